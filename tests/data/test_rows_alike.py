"""One table of rows, run through the doctor, the loader and `prepare` alike: what one passes, the others accept."""

import json
import warnings

import pytest

from grounding_rewards.data.checks import check_dataset
from grounding_rewards.data.dataset_columns import add_prompts
from grounding_rewards.data.splits import image_split
from grounding_rewards.doctor.examine import examine
from grounding_rewards.doctor.rows import open_rows
from grounding_rewards.prepare import PrepareSettings, prepare_images
from grounding_rewards.prepare.examples import make_plan
from grounding_rewards.prepare.load import load_images
from grounding_rewards.sources.jsonl import read_jsonl
from tests.conftest import write_lines
from tests.tables import table

Image = pytest.importorskip("PIL.Image", reason="needs the train extra")
pytest.importorskip("datasets", reason="needs the train extra")

IMAGE = {"file": "a.png", "width": 40, "height": 30, "boxes": [[1, 2, 20, 25]], "labels": ["mass"], "split": "train"}
OTHER = {"file": "b.png", "width": 40, "height": 30, "boxes": [], "labels": [], "split": "test"}


def verdicts(root):
    """What each of the three says of a folder; empty where it has no objection."""
    defects = examine(open_rows(str(root))).defects
    found = {"doctor": "; ".join(defect.name for defect in defects if defect.severity == "error")}
    settings = PrepareSettings("jsonl", "qwen3-vl", readers="any-of")
    steps = {
        "loader": lambda: check_dataset(add_prompts(load_images(root), "qwen3-vl")),
        "prepare": lambda: prepare_images(read_jsonl(root), root, root / "out", settings),
    }
    for name, step in steps.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                step()
            found[name] = ""
        except ValueError as error:
            found[name] = str(error)
    return found


@pytest.fixture
def folder(tmp_path):
    for name in ("a.png", "b.png"):
        Image.effect_noise((40, 30), 90 if name == "a.png" else 50).save(tmp_path / name)

    def write(change):
        if isinstance(change, dict):
            change = json.dumps({key: value for key, value in (IMAGE | change).items() if value != "<gone>"})
        path = write_lines(tmp_path / "annotations.jsonl", [OTHER, {**IMAGE, "id": "good"}])
        path.write_text(f"{change}\n{path.read_text()}")
        return tmp_path

    return write


@pytest.mark.parametrize("row", table("data/tables", "sound_rows"), ids=str)
def test_sound_rows_pass_everywhere(folder, row):
    assert verdicts(folder(row)) == {"doctor": "", "loader": "", "prepare": ""}


@pytest.mark.parametrize("row", table("data/tables", "bad_rows"), ids=str)
def test_bad_rows_pass_nowhere(folder, row):
    found = verdicts(folder(row))
    assert all(found.values()), found
    assert all(found[name].startswith("Expected") for name in ("loader", "prepare")), found


@pytest.mark.parametrize("own", [(None,), ("train",), ("train", None), ("train", "test", None)], ids=str)
@pytest.mark.parametrize("patients", [19, 20])
@pytest.mark.filterwarnings("ignore:.*holds no image out")
def test_one_rule_of_splits(tmp_path, patients, own):
    """An image is in the same split whether its folder is prepared or used as it is."""
    Image.linear_gradient("L").resize((40, 30)).save(tmp_path / "a.png")
    pairs = [{"patient_id": f"p{k}", "split": own[k % len(own)]} for k in range(patients) for _ in range(2)]
    write_lines(tmp_path / "annotations.jsonl", [{**IMAGE, **pair, "id": f"{k}"} for k, pair in enumerate(pairs)])
    loaded = load_images(tmp_path)
    plan = make_plan(list(read_jsonl(tmp_path)), PrepareSettings("jsonl", "qwen3-vl"))
    prepared = {
        image.id: image_split(image.split, image.patient_id, plan.patient_splits.get(image.patient_id), plan.rule)
        for image in read_jsonl(tmp_path)
    }
    assert prepared == dict(zip(loaded["id"], loaded["split"], strict=True))

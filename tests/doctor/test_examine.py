"""The doctor reads every kind of dataset alike, opens files, passes near misses, and says plain values."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("datasets", reason="needs the train extra")
Image = pytest.importorskip("PIL.Image", reason="needs the train extra")

from grounding_rewards.data import prompts  # noqa: E402
from grounding_rewards.data.box_defects import box_defect, find_convention  # noqa: E402
from grounding_rewards.data.checks import row_problems  # noqa: E402
from grounding_rewards.data.prompts import prompt_contradictions  # noqa: E402
from grounding_rewards.doctor.context import CHECKS, SEVERITIES, Model  # noqa: E402
from grounding_rewards.doctor.examine import SHEET, Checkup, examine  # noqa: E402
from grounding_rewards.doctor.label_checks import label_variants  # noqa: E402
from grounding_rewards.doctor.rows import RowSource, open_rows  # noqa: E402
from grounding_rewards.parsing import get_box_format, list_box_formats  # noqa: E402
from tests.conftest import write_lines  # noqa: E402
from tests.doctor.test_checks import LABELS, clean_rows  # noqa: E402
from tests.tables import table  # noqa: E402

IMAGES = 60

DrawnImage = dict[str, Any]
Change = Callable[[list[DrawnImage]], Any]


def clean_images() -> list[DrawnImage]:
    """Sixty images of thirty patients, a quarter without findings, in three splits; no two have a size in common."""
    images = [row.columns for row in clean_rows()[:IMAGES]]
    for k, image in enumerate(images):
        del image["prompt"]
        split = "train" if k < 40 else "validation" if k < 50 else "test"
        image.update(file=image.pop("id"), split=split, box_format="qwen3-vl")
    return images


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The images, each another one."""
    folder = tmp_path_factory.mktemp("images")
    for k, image in enumerate(clean_images()):
        greys = np.random.default_rng(k).integers(0, 256, (9, 7), dtype=np.uint8)
        Image.fromarray(greys).resize((image["width"], image["height"])).save(folder / image["file"])
    return folder


@pytest.fixture
def folder(images: Path, tmp_path: Path) -> Callable[..., str]:
    """Writes the images, changed, as a folder that `load_images` reads; their images are hard links."""

    def write(change: Change = list) -> str:
        annotated_images = clean_images()
        for image in annotated_images:
            (tmp_path / image["file"]).hardlink_to(images / image["file"])
        change(annotated_images)
        write_lines(tmp_path / "annotations.jsonl", annotated_images)
        return str(tmp_path)

    return write


def found(checkup: Checkup, *severities: str) -> list[str]:
    return [defect.name for defect in checkup.defects if defect.severity in (severities or SEVERITIES)]


def with_findings(annotated_images: list[DrawnImage]) -> list[DrawnImage]:
    return [image for image in annotated_images if image["boxes"]]


def over_the_edge(annotated_images):
    for image in with_findings(annotated_images)[:5]:
        image["boxes"][0] = [image["width"] - 40, 10, image["width"] + 3, 60]


def leaked_patient(annotated_images):
    annotated_images[45]["patient_id"] = annotated_images[6]["patient_id"]


def test_a_set_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one row in 'images', got none"):
        examine(RowSource("images", lambda: iter([]), 0))


def test_a_clean_set_passes(folder):
    checkup = examine(open_rows(folder()), Model(get_box_format("qwen3-vl")))
    assert found(checkup) == []
    assert set(checkup.passed) | set(checkup.unchecked) == set(CHECKS)
    assert checkup.unchecked == {"gold-length": "no tokenizer: give --model"}


def test_files_are_opened(folder, tmp_path):
    """What headers and pixels say: a missing file, one that breaks off, one grey, the same image in two splits."""
    root = folder()
    (tmp_path / "001.png").unlink()
    content = (tmp_path / "002.png").read_bytes()
    # The files are links to those of the other tests.
    (tmp_path / "002.png").unlink()
    (tmp_path / "002.png").write_bytes(content[: len(content) // 2])
    for name, change in (
        ("003.png", lambda image: image.point(lambda grey: 100 + grey // 64)),
        # encoded again and resized
        ("045.png", lambda image: Image.open(tmp_path / "005.png").resize(image.size)),
    ):
        changed = change(Image.open(tmp_path / name))
        (tmp_path / name).unlink()
        changed.save(tmp_path / name)
    checkup = examine(open_rows(root), processes=2)
    rows = {defect.name: [fault.row.id for fault in defect.rows] for defect in checkup.defects}
    spoiled = {"missing-image": "001", "broken-image": "002", "one-grey": "003", "copy-leak": "045"}
    assert rows == {name: [f"{number}.png"] for name, number in spoiled.items()}


@pytest.mark.parametrize(("manifest", "words"), table("doctor/texts", "an_unfinished_folder_is_an_error"))
@pytest.mark.parametrize("has_shards", [True, False])
def test_an_unfinished_folder_is_an_error(images, tmp_path, manifest, words, has_shards):
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    root = as_parquet(prompted(clean_images(), images), tmp_path) if has_shards else str(tmp_path)
    (Path(root) / "manifest.json").write_text(text)
    if not words and not has_shards:
        with pytest.raises(ValueError, match="without any"):
            open_rows(root)
        return
    checkup = examine(open_rows(root))
    assert found(checkup, "error") == (["unfinished-folder"] if words else [])
    assert not words or words in checkup.defects[0].found


# Near misses: nothing is wrong with these.


def touching_the_edge(annotated_images):
    for k, image in enumerate(with_findings(annotated_images)):
        width, height = image["width"], image["height"]
        image["boxes"][0] = [0, 0, 60 + 2 * k, 70 + k]
        image["boxes"][-1] = [width - 60.0 - k, height - 70.0 - 2 * k, width, height]


def normal_class(annotated_images):
    # a class called Normal that stands tight around something, as of cells or teeth
    for image in annotated_images:
        image["labels"] = ["Normal" if label == LABELS[0] else label for label in image["labels"]]


def small_nodules(annotated_images):
    for k, image in enumerate(with_findings(annotated_images)):
        x1, y1, *_ = image["boxes"][0]
        image["boxes"][0] = [x1, y1, x1 + 6 + k % 4, y1 + 7 + k % 5]


def two_findings_in_one_place(annotated_images):
    for image in with_findings(annotated_images):
        image["boxes"], image["labels"] = [image["boxes"][0]] * 2, ["pleural effusion", "lung nodule"]


def overlapping_twins(annotated_images):
    # IoU 0.9: two findings, or one drawn twice, which cannot be told from a few images
    for image in with_findings(annotated_images)[:4]:
        x1, y1, x2, y2 = image["boxes"][0]
        image["boxes"], image["labels"] = [[x1, y1, x2, y2], [x1, y1, x2, y1 + 0.9 * (y2 - y1)]], ["lung nodule"] * 2


def sides_of_one_finding(annotated_images):
    for image in annotated_images:
        image["labels"] = [f"{side} lung" for side, _ in zip(("left", "right", "left"), image["labels"], strict=False)]


def findings_that_sound_alike(annotated_images):
    words = ("hyperinflation", "hypoinflation", "pneumothorax", "hemothorax", "rib 1", "rib 2")
    for k, image in enumerate(annotated_images):
        image["labels"] = [words[k % 2] if k % 9 == 0 else words[2 + k % 4] for _ in image["labels"]]


def smaller_copies(annotated_images):
    # The boxes and sizes are of the original, the image is a third of it.
    for image in annotated_images:
        image["boxes"] = [[3 * value for value in box] for box in image["boxes"]]
        image["width"], image["height"] = 3 * image["width"] + 1, 3 * image["height"] + 2


def ids_that_start_anew(annotated_images):
    numbers: Counter[str] = Counter()
    for image in annotated_images:
        image["id"] = str(numbers[image["split"]])
        numbers[image["split"]] += 1


def reports_in_prompts(annotated_images):
    # which deny another finding than the one that the boxes show
    for image in with_findings(annotated_images):
        image["prompt"] = "Findings: No pneumothorax. There is a nodule. Where is it?"


def one_reader_s_overlaps(annotated_images):
    # The readers are apart, as the advice on readers that were not merged has it.
    for image in with_findings(annotated_images):
        x1, y1, x2, y2 = image["boxes"][0]
        image["boxes"], image["labels"] = [[x1, y1, x2, y2]], ["lung nodule"]
        image["reader_boxes"] = [[[x1, y1, x2, y2], [x1, y1, x2, 0.4 * y1 + 0.6 * y2]]] * 2
        image["reader_labels"] = [["lung nodule"] * 2] * 2


def one_split(annotated_images):
    for image in annotated_images:
        image["split"] = "train"


def without_patients(annotated_images):
    for image in annotated_images:
        del image["patient_id"]


NEAR_MISSES = (
    *(touching_the_edge, normal_class, small_nodules, two_findings_in_one_place, overlapping_twins, one_split),
    *(sides_of_one_finding, findings_that_sound_alike, smaller_copies, ids_that_start_anew, without_patients),
    *(reports_in_prompts, one_reader_s_overlaps),
)


@pytest.mark.parametrize("change", NEAR_MISSES)
def test_a_near_miss_passes(folder, change):
    assert found(examine(open_rows(folder(change)))) == []


# Rows with prompts, as `prepare` and `save_to_disk` write them.


def prompted(annotated_images: list[DrawnImage], images: Path) -> list[dict]:
    rows = []
    for image in annotated_images:
        shown = {"bytes": (images / image["file"]).read_bytes(), "path": None}
        row = image | {"id": image["file"], "prompt": prompts.prompt_messages(LABELS), "image": shown}
        rows.append({key: value for key, value in row.items() if key != "file"})
    return rows


def as_parquet(rows: list[dict], folder: Path) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "data").mkdir()
    for split in dict.fromkeys(row["split"] for row in rows):
        mine = [row for row in rows if row["split"] == split]
        for number, part in enumerate((mine[:7], mine[7:])):
            pq.write_table(pa.Table.from_pylist(part), folder / "data" / f"{split}-{number:05}.parquet")
    return str(folder)


def as_saved(rows: list[dict], folder: Path) -> str:
    from datasets import Dataset, DatasetDict
    from datasets import Image as ImageColumn

    parts = {
        split: Dataset.from_list([row for row in rows if row["split"] == split]).cast_column("image", ImageColumn())
        for split in dict.fromkeys(row["split"] for row in rows)
    }
    DatasetDict(parts).save_to_disk(folder)
    return str(folder)


@pytest.mark.parametrize("write", [as_parquet, as_saved])
def test_parquet_shards_and_saved_datasets_are_read_alike(images, tmp_path, write):
    annotated_images = clean_images()
    over_the_edge(annotated_images)
    leaked_patient(annotated_images)
    checkup = examine(open_rows(write(prompted(annotated_images, images), tmp_path)))
    assert found(checkup) == ["partly-off-image", "patient-leak"]
    assert set(checkup.unchecked) == {"gold-length"}
    assert checkup.defects[0].examples[2].row.number == 3
    assert checkup.defects[1].examples[0].detail == "patient P-0003 is also in train"


def test_a_shard_that_is_cut_is_named(images, tmp_path):
    root = as_parquet(prompted(clean_images(), images), tmp_path)
    file = tmp_path / "data" / "train-00001.parquet"
    whole = file.read_bytes()
    for broken in (whole[: len(whole) // 2], whole[:4000] + bytes(len(whole) - 8000) + whole[-4000:]):
        file.write_bytes(broken)
        with pytest.raises((ValueError, OSError)):
            examine(open_rows(root))


def test_several_questions_about_an_image_are_no_repetition(images, tmp_path):
    rows = prompted(clean_images(), images)
    asked = [{**row, "prompt": prompts.prompt_messages(LABELS[:1]), "id": f"{row['id']}#2"} for row in rows]
    assert found(examine(open_rows(as_parquet(rows + asked, tmp_path)))) == []


@pytest.mark.parametrize(("prompt", "box_format", "contradicts"), table("doctor/texts", "claims"))
def test_what_a_prompt_claims(prompt, box_format, contradicts):
    assert bool(list(prompt_contradictions(prompt, get_box_format(box_format)))) == contradicts


def test_the_templates_contradict_no_format():
    for name in list_box_formats():
        fmt = get_box_format(name)
        for wording in range(prompts.wordings("detection")):
            messages = prompts.task_prompt("detection", ("mass",), fmt, wording=wording)
            text = " ".join(part.get("text") or "" for message in messages for part in message["content"])
            assert list(prompt_contradictions(text, fmt)) == [], name


class _Words:
    """Counts words for tokens."""

    def __call__(self, text: str, **_: object) -> dict[str, list[str]]:
        return {"input_ids": text.split()}


class Qwen2VLImageProcessor:
    """What `resized_size` asks of a processor."""

    size = {"shortest_edge": 56 * 56, "longest_edge": 36 * 28 * 28}  # noqa: RUF012
    patch_size, merge_size, do_resize = 14, 2, True

    def __init__(self) -> None:
        self.image_processor = self
        self.tokenizer = _Words()


def test_the_model_s_processor_decides_sizes_and_tokens(folder):
    def change(annotated_images):
        for image in with_findings(annotated_images)[:2]:
            image["boxes"], image["labels"] = [[30, 30, 36, 50]], ["lung nodule"]
        for image in annotated_images:
            image["prompt"] = "Where is a finding?"

    checkup = examine(open_rows(folder(change)), Model(processor=Qwen2VLImageProcessor(), max_completion_length=6))
    assert checkup.assumptions == ()
    length, small = checkup.defects
    assert (length.name, length.severity) == ("gold-length", "error")
    # 6 pixels of 257 are less than 4 of 140
    assert (small.name, small.count) == ("small-boxes", 2)
    assert "of 140 x 168" in small.examples[0].detail


def test_columns_with_the_resized_size_come_first(folder):
    change = lambda images: [image.update(resized_width=28, resized_height=28) for image in images]  # noqa: E731
    checkup = examine(open_rows(folder(change)))
    assert "small-boxes" in found(checkup)
    assert not any("pixels" in one for one in checkup.assumptions)


def test_metrics_count_every_sound_box(folder):
    metrics = examine(open_rows(folder())).metrics
    boxes = sum(len(image["boxes"]) for image in clean_images())
    assert metrics.boxes == boxes
    for counts in (metrics.centres, metrics.sizes):
        assert counts[None].sum() == boxes
        assert sum(counts[label].sum() for label in LABELS) == boxes


def test_the_defects_are_plain_json_without_images(folder):
    checkup = examine(open_rows(folder(over_the_edge)), thumbnails=64)
    assert checkup.jpegs["train", 1]
    written = json.loads(json.dumps(checkup.to_dict(), allow_nan=False))
    assert written["errors"] == 1
    where, detail = {"split": "train", "row": 1, "id": "001.png"}, "box 0 is [217, 10, 260, 60] on 257 x 332"
    assert written["defects"][0]["examples"][0] == {**where, "detail": detail}


@given(
    st.lists(st.one_of(st.floats(), st.integers(-50, 150), st.none(), st.text(max_size=3)), max_size=5), st.booleans()
)
def test_a_box_has_a_defect_where_training_refuses_it(box, is_list):
    """The doctor and the check before training agree on which boxes are bad, but for boxes within one pixel."""
    box = box if is_list else tuple(box)
    defect = box_defect(box, (100, 80))
    refused = any("box 0" in problem for problem in row_problems({"boxes": [box], "width": 100, "height": 80}))
    assert (defect is not None) == refused or defect == "normalised-boxes"


@given(st.lists(st.integers(0, 400), min_size=40, max_size=120))
def test_sound_boxes_over_the_whole_image_follow_no_other_convention(values):
    boxes = [[value, k, value + 60, k + 80] for k, value in enumerate(values)]
    images = np.repeat(np.arange(len(values)), 2)
    boxes = np.array([box for one in boxes for box in (one, [440, 520, 500, 600])], dtype=float)
    assert find_convention(boxes, images, np.full((len(boxes), 2), (500.0, 600.0))) is None


@pytest.mark.parametrize(("counts", "groups"), table("doctor/texts", "label_variants"))
def test_label_variants(counts, groups):
    assert [sorted(group.labels) for group in label_variants(counts)] == groups


def test_the_contact_sheet_shows_each_split_and_the_extremes(folder):
    def change(annotated_images):
        annotated_images[33].update(boxes=[[0, 0, 200, 300]], labels=["lung nodule"])
        annotated_images[34].update(boxes=[[50, 50, 60, 60]], labels=["hernia"])

    checkup = examine(open_rows(folder(change)), thumbnails=16)
    reasons = {row.key: reason for row, reason in checkup.sample}
    assert len(reasons) == len(checkup.sample) == SHEET
    at_random = [split for (split, _), reason in reasons.items() if reason == "at random"]
    assert {split: at_random.count(split) for split in at_random} == {"train": 5, "validation": 5, "test": 5}
    assert {("train", 33), ("train", 34)} <= set(reasons)
    assert {"largest box", "smallest box", "most boxes", "rarest label"} <= {*reasons.values()}
    assert all(checkup.jpegs[key] for key in reasons)

"""Images outside the folder that was named: refused by everything that opens images, unless it is allowed."""

import json

import numpy as np
import pytest

from grounding_rewards.images.image_paths import image_path, is_below

pytest.importorskip("datasets", reason="needs the train extra")

from PIL import Image

from grounding_rewards.commands.diff import _image_loader
from grounding_rewards.doctor.examine import examine
from grounding_rewards.doctor.raw_rows import open_rows
from grounding_rewards.logs.answer_logs import read_log
from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.prepare import PrepareSettings, prepare_images
from grounding_rewards.prepare.load import load_split
from grounding_rewards.sources.jsonl import read_jsonl

# How a table may name the image of somebody else; `link.png` and `linked/` are links that lead out.
WAYS = ["../others/image.png", "{others}/image.png", "link.png", "linked/image.png", "images/../../others/image.png"]


@pytest.fixture
def folder(tmp_path):
    """A folder of images beside another one, with links from the one to the other."""
    for name in ("images", "others"):
        (tmp_path / name).mkdir()
    (tmp_path / "images" / "images").mkdir()
    Image.fromarray(np.uint8(np.arange(1200).reshape(30, 40) % 251)).save(tmp_path / "others" / "image.png")
    Image.new("L", (40, 30), 9).save(tmp_path / "images" / "images" / "own.png")
    (tmp_path / "images" / "link.png").symlink_to(tmp_path / "others" / "image.png")
    (tmp_path / "images" / "linked").symlink_to(tmp_path / "others")
    return tmp_path / "images"


def write_rows(folder, way):
    way = way.format(others=folder.parent / "others")
    row = {"width": 40, "height": 30, "boxes": [[1, 2, 11, 22]], "labels": ["mass"], "split": "train"}
    rows = [{**row, "id": "own", "file": "images/own.png"}, {**row, "id": "other", "file": way}]
    (folder / "annotations.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return way


def prepare(folder, **options):
    settings = PrepareSettings("jsonl", "qwen3-vl", bad_rows="drop")
    return prepare_images(lambda: read_jsonl(folder), folder, folder.parent / "out", settings, **options)


@pytest.mark.parametrize("way", WAYS)
def test_prepare_loader_and_doctor_refuse_an_image_of_somebody_else(folder, way):
    way = write_rows(folder, way)
    with pytest.raises(ValueError, match="leads out of it") as error:
        load_split(str(folder), "train")
    assert "line 2" in str(error.value)
    assert repr(way) in str(error.value)
    assert load_split(str(folder), "train", allow_outside=True).num_rows == 2

    skipped = prepare(folder)["skipped"]
    assert [name for _, name, _ in skipped] == ["other"]
    assert "--allow-outside" in skipped[0][2]

    found = {one.name: one for one in examine(open_rows(str(folder))).defects}
    assert found["outside-image"].count == 1
    assert "missing-image" not in found
    allowed = examine(open_rows(str(folder), allow_outside=True)).defects
    assert "outside-image" not in {one.name for one in allowed}


def test_prepare_takes_them_where_it_is_allowed(folder):
    write_rows(folder, WAYS[0])
    assert prepare(folder, allow_outside=True)["splits"]["train"]["rows"] == 2


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("column", ["image", "image_path", "file"])
def test_a_log_opens_no_image_of_somebody_else(folder, way, column):
    row = {"completion": "[]", "boxes": [], "width": 40, "height": 30, "id": "a"}
    (folder / "log.jsonl").write_text(json.dumps({**row, column: way.format(others=folder.parent / "others")}))
    answers = read_log([folder / "log.jsonl"])
    assert answers.load_image(0) is None
    assert answers.rows[0].get("image_path") is None
    allowed = read_log([folder / "log.jsonl"], allow_outside=True)
    assert allowed.load_image(0).size == (40, 30)


def test_a_log_opens_its_own_images(folder):
    (folder / "log.jsonl").write_text(json.dumps({"completion": "[]", "id": "a", "image": "images/own.png"}))
    assert read_log([folder / "log.jsonl"]).load_image(0).size == (40, 30)


def test_diff_opens_the_images_of_the_run_and_its_dataset_alone(folder, capsys):
    def annotated(image):
        return AnsweredImage("a", 40, 30, image=str(image))

    other, own = annotated(folder.parent / "others" / "image.png"), annotated(folder / "images" / "own.png")
    run = folder.parent / "run"
    run.mkdir()
    assert _image_loader([other], {"dataset": str(folder)}, run, False)(other) is None
    assert "1 images are drawn without their images" in capsys.readouterr().err
    assert _image_loader([other], {"dataset": str(folder)}, run, True)(other).size == (40, 30)
    assert _image_loader([own], {"dataset": str(folder)}, run, False)(own).size == (40, 30)
    assert _image_loader([own], {}, run, False)(own) is None


def test_the_root_itself_may_be_a_link(folder):
    (folder.parent / "alias").symlink_to(folder)
    assert image_path(folder.parent / "alias", "images/own.png").is_file()
    assert is_below([folder.parent / "alias"], folder / "images" / "own.png")
    assert not is_below([folder], str(folder) + "-too/image.png")
    assert not is_below([folder], "zero\0byte.png")

"""The doctor's page is self-contained and bounded, and its command tells CI what it found."""

import io
import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

Image = pytest.importorskip("PIL.Image", reason="needs the train extra")
pytest.importorskip("datasets", reason="needs the train extra")

from grounding_rewards.commands.doctor import print_checkup  # noqa: E402
from grounding_rewards.doctor.examine import Checkup, examine  # noqa: E402
from grounding_rewards.report.doctor_page import render_doctor_page  # noqa: E402
from tests.commands.conftest import call  # noqa: E402
from tests.conftest import write_lines  # noqa: E402
from tests.report.documents import Document, check_self_contained  # noqa: E402

IMAGES = 16


def images(**change: object) -> list[dict]:
    """Images with and without a box, of two splits; the first is changed."""
    made = []
    for k in range(IMAGES):
        found, split = [[10 + 10 * k, 20, 90 + 10 * k, 150]] * (k % 3 > 0), "train" if k < 10 else "test"
        about = {"width": 300 + k, "height": 200, "split": split, "patient_id": str(k)}
        made.append({"file": f"{k}.png", "boxes": found, "labels": ["mass"] * len(found), **about})
    made[1].update(change)
    return made


def write_images(folder: Path, made: list[dict]) -> str:
    """Images of noise, and their table."""
    for k, image in enumerate(made):
        greys = np.random.default_rng(k).integers(0, 256, (9, 7), dtype=np.uint8)
        Image.fromarray(greys).resize((300 + k, 200)).save(folder / image["file"])
    write_lines(folder / "annotations.jsonl", made)
    return str(folder)


@pytest.fixture
def write(tmp_path: Path):
    return partial(write_images, tmp_path)


command = partial(call, "doctor")


def shown(checkup: Checkup) -> str:
    out = io.StringIO()
    print_checkup(checkup, Console(file=out, width=120))
    return out.getvalue()


OFF_IMAGE = {"boxes": [[290, 20, 400, 90]]}
BLANK = {"labels": [" "]}


@pytest.mark.parametrize(
    ("change", "options", "code"),
    [
        ({}, (), 0),
        ({}, ("--strict",), 0),
        (OFF_IMAGE, (), 1),
        (BLANK, (), 0),
        (BLANK, ("--strict",), 1),
        # the error is in the other split
        (OFF_IMAGE, ("--split", "test"), 0),
    ],
)
def test_exit_codes(write, capsys, change, options, code):
    assert command(write(images(**change)), *options) == code
    assert f"{6 if '--split' in options else IMAGES} images: " in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [("nowhere",), (".", "--split", "x"), ("--box-format", "gpt-9", ".")])
def test_a_wrong_argument_is_an_error_of_the_caller(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="Expected"):
        command(*arguments)


def test_markup_in_a_label_is_no_markup(write):
    made = images(labels=["[red]mass[/red]"])
    made[2]["labels"] = ['<script>alert("x")</script>']
    made.append({**made[1], "file": "again.png"})
    checkup = examine(write(made), thumbnails=32)
    shown(checkup)
    page = render_doctor_page(checkup)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    Document(page)


def test_the_page_refers_to_nothing_outside_itself(write, tmp_path):
    out = tmp_path / "report.html"
    command(write(images(**OFF_IMAGE)), "--html", str(out))
    page = out.read_text(encoding="utf-8")
    check_self_contained(Document(page))
    assert "http" not in page.replace("http-equiv=", "")
    assert {"svg", "image", "table", "img"} <= set(Document(page).tags)
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_images_are_left_out_when_asked(write, tmp_path):
    out, numbers = tmp_path / "report.html", tmp_path / "defects.json"
    root = write(images(**OFF_IMAGE))
    command(root, "--html", str(out), "--no-images")
    assert "image/jpeg" not in out.read_text()
    assert "<image" not in out.read_text()
    assert "train, row 1" in out.read_text()
    command(root, "--html", str(out), "--json", str(numbers))
    assert "image/jpeg" in out.read_text()
    content = json.loads(numbers.read_text())
    assert (content["errors"], content["warnings"]) == (1, 0)
    assert content["defects"][0]["name"] == "partly-off-image"
    assert content["metrics"]["images"] == {"train": 10, "test": 6}


def test_without_images_nobody_is_named(write, tmp_path, capsys):
    made = images(**OFF_IMAGE)
    for k, one in enumerate(made):
        one |= {"id": f"DOE_JANE_1950010{k}", "patient_id": "DOE^JANE" if k < 2 else f"ROE^{k}", "split": "train"}
    made[1]["split"] = "test"
    # Copies, files that are missing, and patients in several splits are named in sentences.
    made.append({**made[3], "file": "DOE_JANE.png"})
    out, told = tmp_path / "report.html", tmp_path / "told.json"
    root = Path(write(made))
    (root / "DOE_JANE.png").unlink(missing_ok=True)
    made[2]["file"] = "../DOE_JANE.png"
    write_lines(root / "annotations.jsonl", made)
    command(root, "--html", str(out), "--json", str(told), "--no-images")
    found = {one["name"]: one for one in json.loads(told.read_text())["defects"]}
    assert {"patient-leak", "outside-image", "missing-image"} <= set(found)
    for text in (out.read_text(), told.read_text(), capsys.readouterr().out):
        assert not re.search("DOE|JANE|ROE", text)
    assert found["partly-off-image"]["examples"][0]["detail"] == "box 0 is [290, 20, 400, 90] on 301 x 200"
    assert found["patient-leak"]["examples"][0] == {"split": "test", "row": 0, "id": "-", "detail": ""}


def test_an_image_that_cannot_be_read_is_no_end(write, tmp_path):
    root = write(images())
    (tmp_path / "1.png").write_bytes(b"no image")
    checkup = examine(root, thumbnails=32)
    assert [defect.name for defect in checkup.defects] == ["missing-image"]
    Document(render_doctor_page(checkup))


def test_a_dataset_without_a_single_sound_box_has_a_page(write):
    made = images()
    for image in made:
        image["boxes"], image["labels"] = [], []
    Document(render_doctor_page(examine(write(made), thumbnails=16)))


def test_images_of_readers_have_boxes_on_the_page(write):
    made = images()
    for image in made:
        image["reader_boxes"], image["boxes"], image["labels"] = [image["boxes"] or [[5, 5, 60, 60]]], [], []
    page = render_doctor_page(examine(write(made), thumbnails=32))
    assert "no boxes" not in page
    assert "reader 0" in page

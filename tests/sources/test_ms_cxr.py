"""MS-CXR in both releases, written to the published schema with made-up phrases."""

from __future__ import annotations

import csv
import io

import pytest

from grounding_rewards.sources import AnnotatedImage
from grounding_rewards.sources.ms_cxr import read_ms_cxr

FILE_A, FILE_B = "files/p10/p10000001/s50000001/a.jpg", "files/p11/p11000002/s50000002/b.jpg"
HEADER = ["dicom_id", "category_name", "label_text", "path", "x", "y", "w", "h", "image_width", "image_height", "split"]
# One phrase with two boxes, another phrase of the same image with a third, and a phrase with a comma.
ROWS = [
    ["a", "Pneumonia", "patches in both lungs", FILE_A, 10, 20, 30, 40, 2500, 3000, "train"],
    ["b", "Pneumothorax", "small, at the left apex", FILE_B, 5, 6, 70, 80, 2000, 2400, "val"],
    ["a", "Pneumonia", "patches in both lungs", FILE_A, 110, 20, 30, 40, 2500, 3000, "train"],
    ["a", "Cardiomegaly", "large heart", FILE_A, 50, 60, 100, 90, 2500, 3000, "train"],
]
IMAGE_A = AnnotatedImage(
    id="a",
    file=FILE_A,
    boxes=[[10, 20, 40, 60], [110, 20, 140, 60], [50, 60, 150, 150]],
    labels=["Pneumonia", "Pneumonia", "Cardiomegaly"],
    width=2500,
    height=3000,
    patient_id="10000001",
    split="train",
    phrases=("patches in both lungs", "patches in both lungs", "large heart"),
)
IMAGE_B = AnnotatedImage(
    id="b",
    file=FILE_B,
    boxes=[[5, 6, 75, 86]],
    labels=["Pneumothorax"],
    width=2000,
    height=2400,
    patient_id="11000002",
    split="validation",
    phrases=("small, at the left apex",),
)


def as_csv(rows, columns=11):
    file = io.StringIO()
    csv.writer(file).writerows([row[:columns] for row in [HEADER, *rows]])
    return file.getvalue()


@pytest.fixture
def root(tmp_path):
    (tmp_path / "MS_CXR_Local_Alignment_v1.1.0.csv").write_text(as_csv(ROWS))
    return tmp_path


def test_csv(root):
    assert list(read_ms_cxr(root)) == [IMAGE_A, IMAGE_B]
    assert list(read_ms_cxr(root, split="validation")) == [IMAGE_B]
    assert list(read_ms_cxr(root, split="test")) == []


def test_release_0_1_has_no_splits(tmp_path):
    (tmp_path / "MS_CXR_Local_Alignment_v1.0.0.csv").write_text(as_csv(ROWS, columns=10))
    images = sorted(read_ms_cxr(tmp_path))
    assert images == [IMAGE_A._replace(split=None), IMAGE_B._replace(split=None)]
    with pytest.raises(ValueError, match=r"has no splits\. Take release 1\.1\.0"):
        read_ms_cxr(tmp_path, split="test")


@pytest.mark.parametrize("images", ["mimic-cxr-jpg", "/data/mimic-cxr-jpg"])
def test_images_may_be_elsewhere(root, images):
    assert {image.file for image in read_ms_cxr(root, images=images)} == {f"{images}/{FILE_A}", f"{images}/{FILE_B}"}


def change(row, **cells):
    return [cells.get(name, value) for name, value in zip(HEADER, row, strict=True)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (change(ROWS[0], w=""), r"4 finite numbers in line 6 of .* \(id a\)"),
        (change(ROWS[0], dicom_id="c", image_width="x"), "2 finite numbers in line 6"),
        (change(ROWS[0], image_width=2501), r"the file, size and split of the image's first row, .* in line 6"),
        (change(ROWS[0], split="test"), "the file, size and split of the image's first row"),
    ],
)
def test_a_bad_row_is_named_without_its_phrase(root, row, message):
    (root / "MS_CXR_Local_Alignment_v1.1.0.csv").write_text(as_csv([*ROWS, row]))
    with pytest.raises(ValueError, match=message) as error:
        list(read_ms_cxr(root))
    assert "patches" not in str(error.value)

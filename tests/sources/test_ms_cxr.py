"""MS-CXR in both releases, written to the published schema with made-up phrases."""

import csv
import io

import pytest

from grounding_rewards.sources import AnnotatedImage
from grounding_rewards.sources.ms_cxr import read_ms_cxr
from tests.tables import table

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
    "a", FILE_A, [[10, 20, 40, 60], [110, 20, 140, 60], [50, 60, 150, 150]], ["Pneumonia", "Pneumonia", "Cardiomegaly"],
    2500, 3000, "10000001", "train", phrases=("patches in both lungs", "patches in both lungs", "large heart"),
)  # fmt: skip
IMAGE_B = AnnotatedImage(
    "b", FILE_B, [[5, 6, 75, 86]], ["Pneumothorax"], 2000, 2400, "11000002", "validation",
    phrases=("small, at the left apex",),
)  # fmt: skip


def as_csv(rows, columns=11, version="1.1.0"):
    file = io.StringIO()
    csv.writer(file).writerows([row[:columns] for row in [HEADER, *rows]])
    return {f"MS_CXR_Local_Alignment_v{version}.csv": file.getvalue()}


def test_images_with_all_their_phrases(write):
    root = write(as_csv(ROWS))
    assert list(read_ms_cxr(root)) == [IMAGE_A, IMAGE_B]
    assert list(read_ms_cxr(root, split="validation")) == [IMAGE_B]
    assert list(read_ms_cxr(root, split="test")) == []
    for images in ("mimic-cxr-jpg", "/data/mimic-cxr-jpg"):
        files = [image.file for image in read_ms_cxr(root, images=images)]
        assert files == [f"{images}/{FILE_A}", f"{images}/{FILE_B}"]


def test_release_0_1_has_no_splits(write):
    root = write(as_csv(ROWS, columns=10, version="1.0.0"))
    assert list(read_ms_cxr(root)) == [IMAGE_A._replace(split=None), IMAGE_B._replace(split=None)]
    with pytest.raises(ValueError, match=r"has no splits\. Take release 1\.1\.0"):
        read_ms_cxr(root, split="test")


@pytest.mark.parametrize(("change", "message"), table("sources/tables", "bad_rows_of_ms_cxr"))
def test_a_bad_row_is_named_without_its_phrase(write, change, message):
    row = [change.get(name, value) for name, value in zip(HEADER, ROWS[0], strict=True)]
    with pytest.raises(ValueError, match=message) as error:
        list(read_ms_cxr(write(as_csv([*ROWS, row]))))
    assert "patches" not in str(error.value)

"""Object-CXR's shapes, to the README of the dataset."""

import shutil

import pytest

from grounding_rewards.sources.object_cxr import read_object_cxr


def table(*cells, header="image_name,annotation"):
    return "\n".join([header, *(f"{number:05}.jpg,{cell}" for number, cell in enumerate(cells, start=1))])


def test_the_shapes_of_the_readme(shared_dir, tmp_path):
    shutil.copy(shared_dir / "data" / "annotations" / "object_cxr" / "dev.synthetic.csv", tmp_path / "dev.csv")
    first, second, third = read_object_cxr(tmp_path, split="validation")
    # a rectangle, an ellipse by its box, and a polygon of (500, 500), (540, 510), (560, 560), (505, 555)
    assert first.boxes == [[100, 200, 180, 260], [300, 320, 360, 380], [500, 500, 560, 560]]
    assert first.labels == ["foreign object"] * 3
    assert (first.file, first.split, first.width) == ("dev/00001.jpg", "validation", None)
    assert second.boxes == []  # an empty cell is a negative
    assert third.boxes == [[1020, 40, 1080, 95]]


@pytest.mark.parametrize(
    ("cell", "boxes"),
    [
        ("2 -4 10 30 10 30 50", [[0, 10, 30, 50]]),  # a polygon may begin outside the image
        ("0 -4 10 30 50", [[-4, 10, 30, 50]]),  # a rectangle may not, and is left to the check of the boxes
        ("0 1 2 3 4;", [[1, 2, 3, 4]]),
        ("0 1 2 3 4; 1 5 6 7 8", [[1, 2, 3, 4], [5, 6, 7, 8]]),
        (" ", []),
    ],
)
def test_cells_are_read(write, cell, boxes):
    assert [image.boxes for image in read_object_cxr(write({"dev.csv": table(cell)}))] == [boxes]


def test_a_polygon_is_clipped_to_the_image_that_is_there(write):
    there, missing = read_object_cxr(write({"dev.csv": table("2 -4 10 50 -2 30 70", ""), "dev/00001.jpg": (40, 60)}))
    assert (there.boxes, there.width, there.height) == ([[0, 0, 40, 60]], 40, 60)
    assert (missing.width, missing.height) == (None, None)


def test_the_column_of_the_readme_and_the_splits(write):
    root = write({"train.csv": table("", header="image_path,annotation"), "dev.csv": table("")})
    first, second = read_object_cxr(root)
    assert (first.file, first.split) == ("00001.jpg", "train")  # a path of its own
    assert (second.file, second.split) == ("dev/00001.jpg", "validation")

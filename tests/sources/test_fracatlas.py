"""FracAtlas: COCO boxes; the folders say which image is a negative."""

from __future__ import annotations

import json

import pytest

from grounding_rewards.sources.fracatlas import read_fracatlas

Image = pytest.importorskip("PIL.Image", reason="needs the train extra")

COCO = {
    "images": [{"id": 0, "file_name": "IMG0000019.jpg", "width": 40, "height": 20}],
    # one polygon each
    "annotations": [{"id": 0, "image_id": 0, "category_id": 1, "bbox": [10, 5, 20, 10], "iscrowd": 0,
                     "segmentation": [[10, 5, 30, 5, 30, 15, 10, 15]], "area": 200}],
    "categories": [{"id": 1, "name": "fractured"}],
}  # fmt: skip


@pytest.fixture
def root(tmp_path):
    for name in ("Fractured/IMG0000019.jpg", "Non_fractured/IMG0000000.jpg", "Non_fractured/IMG0000001.jpg"):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (40, 20)).save(path)
    for name, text in {
        "Annotations/COCO JSON/COCO_fracture_masks.json": json.dumps(COCO),
        "Utilities/Fracture Split/train.csv": "image_id\nIMG0000019.jpg\n",
        "Utilities/Fracture Split/valid.csv": "image_id\n",
        "Utilities/Fracture Split/test.csv": "image_id\n",
        "dataset.csv": "image_id,hand,leg,hip,shoulder,mixed,hardware,multiscan,fractured\n"
        "IMG0000019.jpg,1,0,0,0,0,0,1,1\nIMG0000000.jpg,0,0,0,0,0,0,0,0\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_images(root):
    fractured, *negatives = read_fracatlas(root)
    assert (fractured.id, fractured.file) == ("IMG0000019", "images/Fractured/IMG0000019.jpg")
    assert (fractured.boxes, fractured.labels) == ([[10, 5, 30, 15]], ["fractured"])
    assert (fractured.width, fractured.height, fractured.split) == (40, 20, "train")
    assert fractured.extra == {"marks": "hand|multiscan"}
    assert [image.file for image in negatives] == [f"images/Non_fractured/IMG000000{k}.jpg" for k in (0, 1)]
    # no table says the size of a negative, and no split has it
    assert all((image.boxes, image.width, image.split) == ([], None, None) for image in negatives)


def test_a_split_has_no_negatives(root):
    assert [image.id for image in read_fracatlas(root, split="train")] == ["IMG0000019"]
    assert list(read_fracatlas(root, split="validation")) == []


def test_folder_and_boxes_must_agree(root):
    (root / "images" / "Fractured" / "IMG0000019.jpg").rename(root / "images" / "Non_fractured" / "IMG0000019.jpg")
    with pytest.raises(ValueError, match=r"got 1 for .*IMG0000019.jpg"):
        list(read_fracatlas(root))
    # a fractured image without a box is no negative
    (root / "images" / "Non_fractured" / "IMG0000000.jpg").rename(root / "images" / "Fractured" / "IMG0000000.jpg")
    with pytest.raises(ValueError, match=r"got 0 for .*IMG0000000.jpg"):
        list(read_fracatlas(root))


def test_what_is_missing_is_named(root):
    for name in ("train", "valid", "test"):
        (root / "Utilities" / "Fracture Split" / f"{name}.csv").unlink()
    with pytest.raises(ValueError, match=r"Expected Utilities/Fracture Split/train.csv or"):
        read_fracatlas(root, split="train")
    (root / "dataset.csv").unlink()  # optional, like the splits
    assert [(image.split, image.extra) for image in read_fracatlas(root)] == [(None, {})] * 3
    (root / "images").rename(root / "elsewhere")
    with pytest.raises(ValueError, match="Expected images/Fractured and images/Non_fractured with JPEG files"):
        read_fracatlas(root)

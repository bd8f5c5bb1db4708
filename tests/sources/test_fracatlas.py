"""FracAtlas: COCO boxes; the folders say which image is a negative."""

import pytest

from grounding_rewards.sources.fracatlas import read_fracatlas
from tests.tables import table

COCO = table("sources/layouts", "fracatlas")["COCO"]
SPLITS = [f"Utilities/Fracture Split/{name}.csv" for name in ("train", "valid", "test")]
FILES = {
    **{f"images/{name}.jpg": (40, 20) for name in ("Fractured/IMG0000019", "Non_fractured/IMG0000000")},
    **dict.fromkeys(SPLITS[1:], "image_id\n"),
    SPLITS[0]: "image_id\nIMG0000019.jpg\n",
    "Annotations/COCO JSON/COCO_fracture_masks.json": COCO,
}


def test_images(write):
    fractured, negative = read_fracatlas(write(FILES))
    assert (fractured.id, fractured.file) == ("IMG0000019", "images/Fractured/IMG0000019.jpg")
    assert (fractured.boxes, fractured.labels) == ([[10, 5, 30, 15]], ["fractured"])
    assert (fractured.width, fractured.height, fractured.split) == (40, 20, "train")
    # No table says the size of a negative, and no split has it.
    assert negative.file == "images/Non_fractured/IMG0000000.jpg"
    assert (negative.boxes, negative.width, negative.split) == ([], None, None)


def test_a_split_has_no_negatives(write):
    root = write(FILES)
    assert [image.id for image in read_fracatlas(root, split="train")] == ["IMG0000019"]
    assert list(read_fracatlas(root, split="validation")) == []


def test_folder_and_boxes_must_agree(write):
    # A fractured image without a box is no negative.
    for name, count in (("Non_fractured/IMG0000019.jpg", 1), ("Fractured/IMG0000000.jpg", 0)):
        with pytest.raises(ValueError, match=f"got {count} for .*{name}"):
            list(read_fracatlas(write({**FILES, f"images/{name}": (40, 20)})))


def test_optional_files_may_be_missing(write):
    root = write({name: content for name, content in FILES.items() if name not in SPLITS})
    assert [(image.split, image.extra) for image in read_fracatlas(root)] == [(None, {})] * 2
    with pytest.raises(ValueError, match=r"Expected Utilities/Fracture Split/train.csv in"):
        read_fracatlas(root, split="train")

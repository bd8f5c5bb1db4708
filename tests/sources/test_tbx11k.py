"""TBX11K's COCO files, to the schema of yun-liu/Tuberculosis."""

from __future__ import annotations

import pytest

from grounding_rewards.sources.tbx11k import read_tbx11k

CONTENT = {
    "categories": [
        {"id": 1, "name": "ActiveTuberculosis", "supercategory": "Tuberculosis"},
        {"id": 2, "name": "ObsoletePulmonaryTuberculosis", "supercategory": "Tuberculosis"},
        {"id": 3, "name": "PulmonaryTuberculosis", "supercategory": "Tuberculosis"},  # never used
    ],
    "images": [
        {"id": 1, "file_name": "tb/tb0003.png", "width": 512, "height": 512},
        {"id": 2, "file_name": "health/h0001.png", "width": 512, "height": 512},  # no annotation: a negative
        {"id": 3, "file_name": "sick/s0001.png", "width": 512, "height": 512},  # sick with something else: a negative
        {"id": 4, "file_name": "tb/tb1199.png", "width": 512, "height": 512},  # tuberculosis, but nobody located it
    ],
    "annotations": [
        # an annotation's own width and height are the image's
        {"id": 1, "image_id": 1, "category_id": 1, "bbox": [280.5, 90.25, 100.0, 60.5], "width": 512, "height": 512},
        {"id": 2, "image_id": 1, "category_id": 2, "bbox": [10, 20, 30, 40], "area": 1200, "iscrowd": 0},
    ],
}


def test_images_and_splits(write):
    root = write({f"annotations/json/TBX11K_{name}.json": CONTENT for name in ("train", "val")})
    tuberculosis, healthy, sick = read_tbx11k(root, split="train")
    assert tuberculosis.file == "imgs/tb/tb0003.png"
    assert tuberculosis.boxes == [[280.5, 90.25, 380.5, 150.75], [10, 20, 40, 60]]
    assert tuberculosis.labels == ["ActiveTuberculosis", "ObsoletePulmonaryTuberculosis"]
    assert (tuberculosis.width, tuberculosis.height, tuberculosis.split) == (512, 512, "train")
    assert [image.extra["group"] for image in (tuberculosis, healthy, sick)] == ["tb", "health", "sick"]
    assert healthy.boxes == sick.boxes == []
    assert [image.split for image in read_tbx11k(root)] == ["train"] * 3 + ["validation"] * 3
    # The labels of test were never published: read as a split, all of it would be negatives.
    with pytest.raises(ValueError, match="for split, got 'test'"):
        read_tbx11k(root, split="test")

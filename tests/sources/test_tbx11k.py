"""TBX11K's COCO files, to the schema of yun-liu/Tuberculosis."""

import pytest

from grounding_rewards.sources.tbx11k import read_tbx11k
from tests.tables import table

CONTENT = table("sources/layouts", "tbx11k")["CONTENT"]


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

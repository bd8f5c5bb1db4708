"""Whatever holds a dataset, its images pass the one reader."""

import numpy as np
import pytest

datasets = pytest.importorskip("datasets", reason="needs the train extra")

from datasets import Dataset, Features, List, Value, load_from_disk  # noqa: E402
from datasets import Image as ImageColumn  # noqa: E402
from PIL import Image  # noqa: E402

from grounding_rewards.images.image_column import with_image_column  # noqa: E402

DEEP = Image.fromarray(np.linspace(300, 4095, 600).astype(np.uint16).reshape(20, 30))


def images():
    features = Features({"id": Value("string"), "image": ImageColumn(), "images": List(ImageColumn())})
    return Dataset.from_dict({"id": ["a", "b"], "image": [DEEP, None], "images": [[DEEP], []]}, features)


def white(image):
    return (np.asarray(image.convert("RGB")) == 255).mean()


def test_datasets_alone_would_hand_out_a_white_image():
    assert white(images()[0]["image"]) == 1.0


@pytest.mark.parametrize(
    "change",
    [
        lambda images: images,
        lambda images: images.map(lambda row: row, remove_columns=["id"]),
        lambda images: images.filter(lambda row: row["id"] == "a"),
        lambda images: datasets.concatenate_datasets([images, images]),
    ],
)
def test_dataset_methods_keep_the_image_column(change):
    row = change(with_image_column(images()))[0]
    assert (row["image"].mode, row["images"][0].mode) == ("L", "L")
    assert white(row["image"]) < 0.01


def test_what_is_saved_needs_nothing_of_this_package(tmp_path):
    with_image_column(images()).save_to_disk(tmp_path)
    assert type(load_from_disk(tmp_path).features["image"]) is ImageColumn

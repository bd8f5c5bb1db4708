"""The column `image` of a dataset, decoded by the package's own reader of images."""

from dataclasses import dataclass
from typing import Any

from datasets import Dataset, Features, Image, List, concatenate_datasets
from datasets.utils.file_utils import is_local_path

from grounding_rewards.images.decoding import open_image, shown_image

#: The column of images as they are stored, beside an `image` that was shrunk for the model.
FULL_IMAGE = "full_image"


@dataclass
class ImageColumn(Image):
    """A `datasets.Image` whose images are decoded by :func:`grounding_rewards.images.decoding.open_image`.

    `datasets` hands out what Pillow decodes: images of 16 bits, palettes and alpha as they are stored, which every
    trainer then converts to RGB, and so cuts off. `mode` is that of `datasets.Image`: what images are converted to
    after they are brought to 8 bits.
    """

    def decode_example(self, value: Any, token_per_repo_id: Any = None) -> Any:
        """The image of a stored value, which `datasets` asks for, upright and in 8 bits.

        Args:
            value: the bytes or the path of an image, as `{"bytes": ..., "path": ...}`; or a PIL image.
            token_per_repo_id: with which `datasets` fetches images of private repositories.
        """
        if isinstance(value, dict) and value["bytes"] is None and not is_local_path(value["path"]):
            # At an address: fetched by `datasets`, as a PIL image.
            value = super().decode_example(value, token_per_repo_id)
        image = open_image(value) if isinstance(value, dict) else shown_image(value)
        return image if self.mode in (None, image.mode) else image.convert(self.mode)


def with_image_column(dataset: Dataset, mode: str | None = None) -> Dataset:
    """The dataset with :class:`ImageColumn` for `image`, and for each entry of `images`, where these hold images.

    Nothing is decoded or written: only what is handed out changes.

    Args:
        dataset: with any columns.
        mode: what images are converted to, such as `RGB`; None hands out grey images in grey.

    Example:
        >>> import numpy as np
        >>> from PIL import Image as Images
        >>> image = Images.fromarray(np.uint16([[0, 4000]]))
        >>> images = Dataset.from_dict({"image": [image]}, Features({"image": Image()}))
        >>> images[0]["image"].mode, with_image_column(images)[0]["image"].mode
        ('I;16', 'L')
    """
    features: Features = dataset.features
    for name in ("image", "images"):
        feature, column = features.get(name), ImageColumn(mode=mode)
        if isinstance(feature, Image):
            dataset = dataset.cast_column(name, column)
        elif isinstance(feature, List) and isinstance(feature.feature, Image):
            dataset = dataset.cast_column(name, List(column))
    return dataset


def with_full_image(dataset: Dataset, images: Dataset) -> Dataset:
    """The dataset with a column of images at full resolution, each undecoded: its bytes, or where its file is.

    Args:
        dataset: rows whose images may have been shrunk.
        images: the same rows with the images as they were, in `image`.

    Example:
        >>> from PIL import Image as Images
        >>> images = Dataset.from_dict({"image": [Images.new("L", (4, 2))]}, Features({"image": Image()}))
        >>> sorted(with_full_image(images.remove_columns("image"), images)[0]["full_image"])
        ['bytes', 'path']
    """
    full_images = images.select_columns("image").rename_column("image", FULL_IMAGE)
    undecoded = full_images.cast_column(FULL_IMAGE, Image(decode=False))
    return concatenate_datasets([dataset, undecoded], axis=1)

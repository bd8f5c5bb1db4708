"""The sizes of images."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from datasets import Dataset
    from PIL.Image import Image

_EXIF_ORIENTATION = 0x0112
_TURNED = (5, 6, 7, 8)


def image_size(image: Any) -> tuple[int, int]:
    """Width and height of an image in pixels, upright, from its header alone where it is still encoded.

    Args:
        image: A PIL image, or the `{"bytes": ..., "path": ...}` of an undecoded `datasets.Image`.

    Returns:
        `(width, height)` after the EXIF rotation that `datasets` applies when it decodes.

    >>> from PIL import Image
    >>> image_size(Image.new("L", (30, 20)))
    (30, 20)
    """
    from PIL import Image

    if isinstance(image, Image.Image):
        return image.size
    source = image["path"] if image["bytes"] is None else io.BytesIO(image["bytes"])
    with Image.open(source) as opened:
        return upright_size(opened)


def upright_size(opened: Image) -> tuple[int, int]:
    """Width and height of an opened image file after its EXIF rotation, without decoding its pixels.

    >>> from PIL import Image
    >>> upright_size(Image.new("L", (30, 20)))
    (30, 20)
    """
    # Asked for its EXIF data, a PNG file without any in front of the pixels decodes them all to look behind.
    exif = opened.getexif() if opened.format != "PNG" or "exif" in opened.info else {}
    turned = exif.get(_EXIF_ORIENTATION, 1) in _TURNED
    return (opened.height, opened.width) if turned else opened.size


def image_sizes(dataset: Dataset) -> Iterator[tuple[int, int] | None]:
    """The size of every film of a dataset, read from the headers; None where a row has no image.

    Args:
        dataset: Rows with a column `image`.

    >>> from datasets import Dataset
    >>> from datasets import Image as ImageColumn
    >>> from PIL import Image
    >>> films = Dataset.from_dict({"image": [Image.new("L", (30, 20)), None]}).cast_column("image", ImageColumn())
    >>> list(image_sizes(films))
    [(30, 20), None]
    """
    for image in stored_images(dataset):
        yield None if image is None else image_size(image)


def stored_images(dataset: Dataset) -> Iterator[dict[str, Any] | None]:
    """The films of a dataset as they are stored, `{"bytes": ..., "path": ...}`; None where a row has no image.

    Args:
        dataset: Rows with a column `image`.
    """
    from datasets import Image as ImageColumn

    images = dataset.with_format(None).select_columns("image").cast_column("image", ImageColumn(decode=False))
    for row in images:
        yield row["image"]


def shrunken_size(width: int, height: int, max_pixels: int) -> tuple[int, int]:
    """Width and height of the same shape that have at most `max_pixels` pixels together.

    Args:
        width: Width of the image in pixels.
        height: Height of the image in pixels.
        max_pixels: Largest area in pixels, at least 1.

    >>> shrunken_size(2000, 1000, max_pixels=80_000)
    (400, 200)
    """
    if width * height <= max_pixels:
        return width, height
    scale = math.sqrt(max_pixels / (width * height))
    # A side never falls below one pixel, so the other must not exceed the area on its own
    return (
        min(max(1, math.floor(width * scale)), max_pixels),
        min(max(1, math.floor(height * scale)), max_pixels),
    )

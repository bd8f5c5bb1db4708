"""Images of films: opening, thumbnails and sizes; and the rows of a dataset without them."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.data.dicom import is_dicom, read_dicom

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image

_EXIF_ORIENTATION = 0x0112
_TURNED = (5, 6, 7, 8)


def open_film(path: str | Path) -> Image:
    """The image of a file; a DICOM film as the greys that `grounding-rewards prepare` stores.

    Raises:
        ValueError: the file is missing, or no image.

    Example:
        >>> open_film("film.png")
        Traceback (most recent call last):
        ...
        ValueError: Expected an image in 'film.png', got [Errno 2] No such file or directory: 'film.png'. Replace \
the file, or leave its name out.
    """
    from PIL import Image

    if is_dicom(path):
        return Image.fromarray(read_dicom(path).pixels)
    try:
        return Image.open(path)
    except OSError as error:
        raise ValueError(
            f"Expected an image in {str(path)!r}, got {error}. Replace the file, or leave its name out."
        ) from error


def small_film(film: Image, side: int) -> Image:
    """A thumbnail in 8-bit grey or colour; films of more bits are spread over the whole grey scale.

    Args:
        film: a PIL image of any mode; it stays as it is.
        side: pixels that the thumbnail's longer side has at most.

    Example:
        >>> from PIL import Image
        >>> film = small_film(Image.new("I;16", (300, 200)), 150)
        >>> film.mode, film.size
        ('L', (150, 100))
    """
    import numpy as np
    from PIL.Image import fromarray

    if film.mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK"):
        film = film.convert("L" if film.mode in ("1", "L", "LA") else "RGB")
        film.thumbnail((side, side))
        return film
    pixels = np.asarray(film, dtype=np.float64)
    low, high = np.percentile(pixels, (0.5, 99.5))
    film = fromarray(np.uint8(np.clip((pixels - low) / max(high - low, 1e-9), 0, 1) * 255))
    film.thumbnail((side, side))
    return film


def image_size(image: Any) -> tuple[int, int]:
    """Width and height of an image in pixels, upright, from its header alone where it is still encoded.

    Args:
        image: a PIL image, or the `{"bytes": ..., "path": ...}` of an undecoded `datasets.Image`.

    Returns:
        `(width, height)` after the EXIF rotation that `datasets` applies when it decodes.

    Example:
        >>> from PIL import Image
        >>> image_size(Image.new("L", (30, 20)))
        (30, 20)
    """
    from PIL import Image

    if isinstance(image, Image.Image):
        return image.size
    source = image["path"] if image["bytes"] is None else io.BytesIO(image["bytes"])
    with Image.open(source) as opened:
        # `getexif` would decode all pixels of a PNG file without EXIF data in front of them, to look behind them.
        exif = opened.getexif() if opened.format != "PNG" or "exif" in opened.info else {}
        turned = exif.get(_EXIF_ORIENTATION, 1) in _TURNED
        return (opened.height, opened.width) if turned else opened.size


def has_shape(image: tuple[float, float], size: tuple[float, float], rounding: float = 1.0) -> bool:
    """Whether an image may be a copy of a film: both have one shape, up to the rounding of both sides.

    Args:
        image: width and height of the image in pixels.
        size: those of the film.
        rounding: pixels by which each side may have been rounded.

    Example:
        >>> has_shape((299, 200), (3000, 2000)), has_shape((200, 300), (3000, 2000))
        (True, False)
    """
    return abs(image[0] * size[1] - image[1] * size[0]) <= rounding * (size[0] + size[1])


def image_sizes(dataset: Dataset) -> Iterator[tuple[int, int] | None]:
    """The size of every image of a dataset (column `image`), read from the headers; None where a row has none.

    Example:
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
    """The column `image` of a dataset as it is stored, `{"bytes": ..., "path": ...}`; None where a row has no image."""
    from datasets import Image as ImageColumn

    images = dataset.with_format(None).select_columns("image").cast_column("image", ImageColumn(decode=False))
    for row in images:
        yield row["image"]


def rows_without_images(dataset: Dataset | Sequence[Mapping[str, Any]], *others: str) -> list[dict[str, Any]]:
    """The rows of a dataset, or of a list, without images, which would have to be decoded, and without other columns.

    Example:
        >>> rows_without_images([{"id": "a", "prompt": "Where?", "image": None}], "prompt")
        [{'id': 'a'}]
    """
    left_out = {"image", "images", *others}
    if isinstance(dataset, Sequence):
        return [{name: value for name, value in row.items() if name not in left_out} for row in dataset]
    return dataset.remove_columns(sorted(left_out.intersection(dataset.column_names))).to_list()


def shrunken_size(width: int, height: int, max_pixels: int) -> tuple[int, int]:
    """Width and height of the same shape that have at most `max_pixels` pixels together.

    Args:
        width: width of the image in pixels.
        height: height of the image in pixels.
        max_pixels: largest area in pixels, at least 1.

    Example:
        >>> shrunken_size(2000, 1000, max_pixels=80_000)
        (400, 200)
    """
    if width * height <= max_pixels:
        return width, height
    scale = math.sqrt(max_pixels / (width * height))
    # A side is at least one pixel, so the other one must not exceed the area by itself.
    return (
        min(max(1, math.floor(width * scale)), max_pixels),
        min(max(1, math.floor(height * scale)), max_pixels),
    )

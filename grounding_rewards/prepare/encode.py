"""Turn the file of an image into the bytes that are stored: 8 bits, upright, shrunk and encoded."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from grounding_rewards.images.decoding import load_image, shown_image
from grounding_rewards.images.dicom import is_dicom, read_dicom

if TYPE_CHECKING:
    from PIL.Image import Image

_KEPT_FORMATS = ("PNG", "JPEG", "WEBP")
_KEPT_MODES = ("L", "RGB")
_SAVE_OPTIONS: Mapping[str, Mapping[str, int]] = {
    # Three times as fast as Pillow's default level 6; files are 10 % larger.
    "png": {"compress_level": 3},
    "jpeg": {"quality": 95},
    "webp": {"quality": 95},
}


class StoredImage(NamedTuple):
    """An encoded image, its size, and the size of the image that it was made from, all in pixels."""

    data: bytes
    width: int
    height: int
    original_width: int
    original_height: int


def store_image(
    path: str | Path, *, side: int | None = None, image_format: str = "png", window: tuple[float, float] | None = None
) -> StoredImage:
    """Read an image, shrink it and encode it again.

    Images are read as everywhere in the package, see `grounding_rewards.images.decoding`. An image in colour whose
    channels are equal is stored grey. Only pixels are stored, unless `image_format` is `keep` and the file needs no
    change: then the file is stored as it is.

    Args:
        path: A DICOM file, or whatever Pillow reads.
        side: Longest side in pixels; None leaves the size.
        image_format: `png`, `jpeg`, `webp` or `keep`.
        window: The values of an image of more than 8 bits that become black and white; None for its smallest and
            largest.

    Raises:
        ValueError: The file cannot be read; the message says why.
    """
    from PIL.Image import fromarray

    path = Path(path)
    if is_dicom(path):
        return _encode(fromarray(read_dicom(path)), side, image_format)
    loaded = load_image(path)
    may_keep = image_format == "keep" and loaded.format in _KEPT_FORMATS and loaded.mode in _KEPT_MODES
    is_small = side is None or max(loaded.size) <= side
    image = shown_image(loaded, window)
    # `shown_image` returns the same object if it changes nothing.
    if may_keep and is_small and image is loaded:
        return StoredImage(path.read_bytes(), *image.size, *image.size)
    return _encode(_grey_if_colourless(image), side, image_format)


def _grey_if_colourless(image: Image) -> Image:
    """The image in grey if its three channels are equal, else as it is."""
    from PIL.Image import fromarray

    if image.mode != "RGB":
        return image
    pixels = np.asarray(image)
    is_grey = np.array_equal(pixels[..., 0], pixels[..., 1]) and np.array_equal(pixels[..., 0], pixels[..., 2])
    return fromarray(np.ascontiguousarray(pixels[..., 0])) if is_grey else image


def _encode(image: Image, side: int | None, image_format: str) -> StoredImage:
    """Shrink an image to the side and encode it; `keep` is PNG here, as the file is not kept."""
    from PIL.Image import Resampling

    original_width, original_height = image.size
    if side is not None and max(image.size) > side:
        scale = side / max(image.size)
        size = (max(1, round(original_width * scale)), max(1, round(original_height * scale)))
        image = image.resize(size, Resampling.BICUBIC, reducing_gap=3.0)
    file_format = "png" if image_format == "keep" else image_format
    # Otherwise Pillow copies comments and profiles of the source.
    image.info = {}
    buffer = io.BytesIO()
    image.save(buffer, file_format, **_SAVE_OPTIONS[file_format])
    return StoredImage(buffer.getvalue(), *image.size, original_width, original_height)

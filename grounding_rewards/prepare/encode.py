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
    """Read, shrink and encode an image.

    Images are read as everywhere in the package, see `grounding_rewards.images.decoding`; those of more than 8 bits are
    spread between the two values of the window where there is one. Colours stay where there are any; what looks grey is
    stored grey. Nothing but pixels is stored, unless `image_format` is `keep` and the file needs no change.

    Args:
        path: A DICOM file, or whatever Pillow reads.
        side: As `PrepareSettings` takes it, and so are the other arguments.
        image_format: How to encode it.
        window: What becomes black and white of more than 8 bits.

    Raises:
        ValueError: The file cannot be read; the message says why.
    """
    from PIL.Image import fromarray

    path = Path(path)
    if is_dicom(path):
        return _encode(fromarray(read_dicom(path)), side, image_format)
    loaded = load_image(path)
    keep = image_format == "keep" and loaded.format in _KEPT_FORMATS and loaded.mode in _KEPT_MODES
    is_small = side is None or max(loaded.size) <= side
    image = shown_image(loaded, window)
    # An image that needs no change is handed back as it is.
    if keep and is_small and image is loaded:
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
    from PIL.Image import Resampling

    original = image.size
    if side is not None and max(original) > side:
        scale = side / max(original)
        size = (max(1, round(original[0] * scale)), max(1, round(original[1] * scale)))
        image = image.resize(size, Resampling.BICUBIC, reducing_gap=3.0)
    kind = "png" if image_format == "keep" else image_format
    # Otherwise Pillow copies comments and profiles of the source.
    image.info = {}
    buffer = io.BytesIO()
    image.save(buffer, kind, **_SAVE_OPTIONS[kind])
    return StoredImage(buffer.getvalue(), *image.size, *original)

"""Turn the file of a film into the bytes that are stored: 8 bits, upright, shrunk and encoded."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from grounding_rewards.data.dicom import is_dicom, read_dicom

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


class ImageOptions(NamedTuple):
    """The settings of `PrepareSettings` that images depend on."""

    side: int | None = None
    image_format: str = "png"
    window: tuple[float, float] | None = None


class StoredImage(NamedTuple):
    """An encoded image, its size, and the size of the film that it was made from, all in pixels.

    original_spacing: Millimetres per pixel of that film in x and y; None if its file does not say.
    """

    data: bytes
    width: int
    height: int
    original_width: int
    original_height: int
    original_spacing: tuple[float, float] | None = None


def store_image(path: str | Path, options: ImageOptions) -> StoredImage:
    """Read, shrink and encode a film.

    DICOM files pass `grounding_rewards.data.dicom.read_dicom`. Other films of more than 8 bits are spread between the
    two values of the window, or between their own smallest and largest. Films are turned upright as their EXIF data
    say. Colours stay where there are any; what looks grey is stored grey. Nothing but pixels is stored, unless
    `image_format` is `keep` and the file needs no change.

    Args:
        path: A DICOM file, or whatever Pillow reads.
        options: How to store it.

    Raises:
        ValueError: The file cannot be read; the message says why.
    """
    path = Path(path)
    if is_dicom(path):
        film = read_dicom(path)
        # DICOM gives the distance between rows (y) first.
        spacing = None if film.facts.spacing is None else (film.facts.spacing[1], film.facts.spacing[0])
        return _encode(_grey(film.pixels), options)._replace(original_spacing=spacing)
    try:
        return _store_plain(path, options)
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(
            f"Expected an image in {path}, got {str(error).rstrip('.')}. Replace the file or skip the film."
        ) from error


def _store_plain(path: Path, options: ImageOptions) -> StoredImage:
    from PIL import Image, ImageOps
    from PIL.ExifTags import Base

    with Image.open(path) as opened:
        keep = options.image_format == "keep" and opened.format in _KEPT_FORMATS and opened.mode in _KEPT_MODES
        turned = opened.getexif().get(Base.Orientation, 1) != 1
        fits = options.side is None or max(opened.size) <= options.side
        upright = ImageOps.exif_transpose(opened)
        # Raises for a truncated file.
        upright.load()
    if keep and fits and not turned:
        return StoredImage(path.read_bytes(), *upright.size, *upright.size)
    image = _eight_bits(upright, options.window)
    return _encode(_grey_if_colourless(image), options)


def _grey(pixels: np.ndarray) -> Image:
    from PIL import Image

    return Image.fromarray(pixels)


def _eight_bits(image: Image, window: tuple[float, float] | None) -> Image:
    if image.mode in _KEPT_MODES:
        return image
    if image.mode[0] in "IF":
        return _grey(spread(np.asarray(image, dtype=np.float64), window))
    return image.convert("L" if image.mode in ("1", "LA", "La") else "RGB")


def spread(values: np.ndarray, window: tuple[float, float] | None) -> np.ndarray:
    """Map stored values to 8 bits: black up to the low end of the window, white from the high end on.

    Args:
        values: (height, width) of any numbers.
        window: Low and high end; None takes the smallest and largest value. A film of one value is black.

    >>> spread(np.array([[0, 1000, 3000]]), (1000, 2000)).tolist()
    [[0, 0, 255]]
    """
    low, high = (float(values.min()), float(values.max())) if window is None else window
    if low == high:
        return np.zeros(values.shape, dtype=np.uint8)
    return np.rint(np.clip((values - low) / (high - low), 0.0, 1.0) * 255).astype(np.uint8)


def _grey_if_colourless(image: Image) -> Image:
    """The image in grey if its three channels are equal, else as it is."""
    if image.mode != "RGB":
        return image
    pixels = np.asarray(image)
    same = np.array_equal(pixels[..., 0], pixels[..., 1]) and np.array_equal(pixels[..., 0], pixels[..., 2])
    return _grey(np.ascontiguousarray(pixels[..., 0])) if same else image


def _encode(image: Image, options: ImageOptions) -> StoredImage:
    from PIL.Image import Resampling

    original = image.size
    if options.side is not None and max(original) > options.side:
        scale = options.side / max(original)
        size = (max(1, round(original[0] * scale)), max(1, round(original[1] * scale)))
        image = image.resize(size, Resampling.BICUBIC, reducing_gap=3.0)
    kind = "png" if options.image_format == "keep" else options.image_format
    # Otherwise Pillow copies comments and profiles of the source.
    image.info = {}
    buffer = io.BytesIO()
    image.save(buffer, kind, **_SAVE_OPTIONS[kind])
    return StoredImage(buffer.getvalue(), *image.size, *original)

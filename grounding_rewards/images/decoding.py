"""Images: the one reader of their files, where these may lie, thumbnails and sizes; and the rows of a dataset without
them.

Training, evaluation, `prepare`, the doctor and every page see an image as `open_image` gives it, in 8 bits, upright:

* Of more than 8 bits (`I;16`, `I`, `F`; PNG and TIFF): greys are spread from the smallest value of the image, black, to
  its largest, white, as those of a DICOM file without a window are; `value_range` says which outliers are cut off, such
  as a saturated marker. Values that are no numbers are black. TIFF files that count from white are turned round.
* Of several pages of one size (TIFF): refused, as a DICOM file of several frames is.
* Alpha, of any mode: laid on black, which is what surrounds an image.
* Palettes, CMYK and other colours become RGB; images of one bit grey.
* EXIF: the image is turned upright.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.images.dicom import dicom_size, is_dicom, read_dicom, value_range

if TYPE_CHECKING:
    import numpy as np
    from datasets import Dataset
    from PIL.Image import Image

ALLOW_OUTSIDE_HELP = (
    "open images that lie outside the folder of the dataset too (absolute paths, `..`, links that lead out); a table "
    "from elsewhere could otherwise name the images of other patients"
)
"""What the option of every command says."""

# Of what Pillow reads, no format that runs another program, as EPS does, or fetches other files.
_FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "WEBP", "GIF", "JPEG2000", "PPM")
_GREY_MODES = ("1", "L", "LA", "La")
_EXIF_ORIENTATION = 0x0112
_TURNED = (5, 6, 7, 8)
_TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_PHOTOMETRIC, _WHITE_IS_ZERO = 256, 257, 262, 0


def open_image(source: str | Path | Mapping[str, Any]) -> Image:
    """The image as everything in this package sees it: upright, 8 bits, mode `L` or `RGB`.

    Args:
        source: a file, of DICOM too; or the `{"bytes": ..., "path": ...}` of an undecoded `datasets.Image`.

    Raises:
        ValueError: the file is missing, truncated, no image, or so large that it may be an attack; it is named.

    Example:
        >>> open_image("image.png")
        Traceback (most recent call last):
        ...
        ValueError: Expected an image in 'image.png', got [Errno 2] No such file or directory: 'image.png'. Replace \
the file, or leave the image out.
    """
    from PIL.Image import fromarray

    dicom_file = _dicom_file(source)
    if dicom_file is not None:
        return fromarray(read_dicom(dicom_file))
    return shown_image(load_image(source))


def _dicom_file(source: Any) -> str | Path | None:
    """The path of a DICOM file, or of the one that an undecoded image names; None for all other images."""
    is_reference = isinstance(source, Mapping) and source["bytes"] is None
    file = source.get("path") if is_reference else source
    return file if isinstance(file, str | Path) and is_dicom(file) else None


def load_image(source: str | Path | Mapping[str, Any]) -> Image:
    """The image of a file with all its pixels, as it is stored: in its own mode, not turned.

    Args:
        source: as for `open_image`, DICOM files excepted.

    Raises:
        ValueError: as `open_image`.
    """
    with _opened(source) as image:
        pages = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
        if pages > 1:
            size = image.size
            image.seek(1)
            # A second page of another size is a thumbnail. `_opened` puts the error in a sentence with the file's name.
            if image.size == size:
                raise ValueError(f"a file of {pages} pages, of which each is an image")
            image.seek(0)
        # Raises for a truncated file.
        image.load()
    return image


@contextmanager
def _opened(source: str | Path | Mapping[str, Any]) -> Iterator[Image]:
    """Within this context, the image of a file, its header read; any error names the file."""
    from PIL import Image, UnidentifiedImageError

    encoded: Mapping[str, Any] = source if isinstance(source, Mapping) else {"bytes": None, "path": source}
    try:
        # Opened here: of a name, Pillow may map a TIFF file into memory, and then turns it upright wrongly.
        with (
            Path(encoded["path"]).open("rb") if encoded["bytes"] is None else io.BytesIO(encoded["bytes"]) as data,
            Image.open(data, formats=_FORMATS) as image,
        ):
            yield image
    # Decoders raise errors of any type for files that were damaged or made to do damage.
    except Exception as error:
        name = str(encoded.get("path") or "the bytes of a row")
        reason = str(error).rstrip(".") or type(error).__name__
        if isinstance(error, UnidentifiedImageError):
            # Pillow's own words name the buffer in memory where it has no file.
            reason = "a file that no decoder knows"
        raise ValueError(
            f"Expected an image in {name!r}, got {reason}. Replace the file, or leave the image out."
        ) from error


def shown_image(image: Image, window: tuple[float, float] | None = None) -> Image:
    """The image upright, in 8 bits, `L` or `RGB`, by the rules at the top of this module.

    Args:
        image: a PIL image of any mode; it stays as it is.
        window: of images of more than 8 bits, the stored values that become black and white; None takes
            :func:`value_range`.

    Example:
        >>> import numpy as np
        >>> from PIL import Image
        >>> image = shown_image(Image.fromarray(np.uint16([[500, 2500, 4500]])))
        >>> image.mode, np.asarray(image).tolist()
        ('L', [[0, 128, 255]])
    """
    import numpy as np
    from PIL.Image import alpha_composite, fromarray, new

    image = _upright(image)
    # Modes of more than 8 bits, such as I;16 and F, which `convert("RGB")` cuts off at 255.
    if image.mode[0] in "IF":
        values = np.asarray(image)
        # TIFF files may count from white: then the largest value is black. Those of 8 bits Pillow turns round itself.
        if image.mode.startswith("I") and getattr(image, "tag_v2", {}).get(_TIFF_PHOTOMETRIC) == _WHITE_IS_ZERO:
            values = values.max() - values
        return fromarray(spread(values, window))
    is_transparent = "transparency" in image.info or image.mode in ("LA", "La", "PA", "RGBA", "RGBa")
    if image.mode in ("L", "RGB") and not is_transparent:
        return image
    mode = "L" if image.mode in _GREY_MODES else "RGB"
    if is_transparent:
        # On black.
        image = alpha_composite(new("RGBA", image.size, (0, 0, 0, 255)), image.convert("RGBA"))
    return image.convert(mode)


def _upright(image: Image) -> Image:
    """The image turned upright by its EXIF data."""
    from PIL import ImageOps

    return ImageOps.exif_transpose(image) if image.getexif().get(_EXIF_ORIENTATION, 1) != 1 else image


def spread(values: np.ndarray, window: tuple[float, float] | None = None) -> np.ndarray:
    """Map stored values to 8 bits: black up to the low end of the window, white from the high end on.

    Args:
        values: (height, width) of any numbers; what is not finite becomes black.
        window: low and high end; None takes :func:`value_range`. An image of one value is black.

    Returns:
        (height, width) of uint8.

    Example:
        >>> import numpy as np
        >>> spread(np.array([[0, 1000, 3000]]), (1000, 2000)).tolist()
        [[0, 0, 255]]
    """
    import numpy as np

    values = values.astype(np.float64)
    is_finite = np.isfinite(values)
    if window is None:
        window = value_range(values[is_finite]) if is_finite.any() else (0.0, 0.0)
    low, high = window
    if low == high:
        return np.zeros(values.shape, dtype=np.uint8)
    values = np.where(is_finite, values, low)
    return np.rint(np.clip((values - low) / (high - low), 0.0, 1.0) * 255).astype(np.uint8)


def small_image(image: Image, side: int) -> Image:
    """A thumbnail in 8-bit grey or colour, by the rules of `shown_image`.

    Args:
        image: a PIL image of any mode; it stays as it is.
        side: pixels that the thumbnail's longer side has at most.

    Example:
        >>> from PIL import Image
        >>> image = small_image(Image.new("I;16", (300, 200)), 150)
        >>> image.mode, image.size
        ('L', (150, 100))
    """
    # A copy, because an image in 8 bits is returned as it is, and `thumbnail` shrinks in place.
    thumbnail = shown_image(image).copy()
    thumbnail.thumbnail((side, side))
    return thumbnail


def image_size(image: Any) -> tuple[int, int]:
    """Width and height of an image in pixels, upright, from its header alone where it is still encoded.

    Args:
        image: a PIL image, or the `{"bytes": ..., "path": ...}` of an undecoded `datasets.Image`.

    Returns:
        `(width, height)` after the EXIF rotation of `open_image`.

    Raises:
        ValueError: there is no such file, or it is no image; it is named.

    Example:
        >>> from PIL import Image
        >>> image_size(Image.new("L", (30, 20)))
        (30, 20)
    """
    from PIL import Image

    if isinstance(image, Image.Image):
        return _upright(image).size
    dicom_file = _dicom_file(image)
    if dicom_file is not None:
        return dicom_size(dicom_file)
    with _opened(image) as opened:
        # Of TIFF files, some versions of Pillow give the size as stored, others upright.
        tags = getattr(opened, "tag_v2", {})
        width, height = tags.get(_TIFF_WIDTH, opened.width), tags.get(_TIFF_HEIGHT, opened.height)
        # `getexif` would decode all pixels of a PNG file without EXIF data in front of them, to look behind them.
        exif = opened.getexif() if opened.format != "PNG" or "exif" in opened.info else {}
        return (height, width) if exif.get(_EXIF_ORIENTATION) in _TURNED else (width, height)


def has_shape(image: tuple[float, float], size: tuple[float, float]) -> bool:
    """Whether an image has the shape of this size, as its copies have, up to the rounding of both sides to pixels.

    Args:
        image: width and height of the image in pixels.
        size: width and height in pixels that the image may be a copy of.

    Example:
        >>> has_shape((299, 200), (3000, 2000)), has_shape((200, 300), (3000, 2000))
        (True, False)
    """
    # Of one shape are sides with image[0] / size[0] = image[1] / size[1]. A side of the image that is off by a pixel
    # moves the products, which are compared instead of the quotients, by a side of the size.
    return abs(image[0] * size[1] - image[1] * size[0]) <= size[0] + size[1]


def stored_sizes(dataset: Dataset) -> Iterator[tuple[int, int] | None]:
    """The size of every image of a dataset (column `image`), read from the headers; None where a row has none.

    Example:
        >>> from datasets import Dataset
        >>> from datasets import Image as ImageColumn
        >>> from PIL import Image
        >>> images = Dataset.from_dict({"image": [Image.new("L", (30, 20)), None]}).cast_column("image", ImageColumn())
        >>> list(stored_sizes(images))
        [(30, 20), None]
    """
    return (None if image is None else image_size(image) for image in stored_images(dataset))


def stored_images(dataset: Dataset) -> Iterator[dict[str, Any] | None]:
    """The column `image` of a dataset as it is stored, `{"bytes": ..., "path": ...}`; None where a row has no image."""
    from datasets import Image as ImageColumn

    # Without a format, which would make arrays or tensors of the values.
    images = dataset.with_format(None).select_columns("image").cast_column("image", ImageColumn(decode=False))
    return (row["image"] for row in images)


def rows_without_images(dataset: Dataset | Sequence[Mapping[str, Any]], *others: str) -> list[dict[str, Any]]:
    """The rows of a dataset or a list as dicts, without images, which would be decoded, and without columns `others`.

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
    # A side of a narrow image may round to 0, and then is 1: the other side alone must not be more than the area.
    new_width, new_height = (min(max(1, math.floor(side * scale)), max_pixels) for side in (width, height))
    return new_width, new_height


def image_path(root: str | Path, file: str | Path, *, allow_outside: bool = False) -> Path:
    """The path of an image; a table that names one outside its folder is refused.

    Args:
        root: the folder of the dataset.
        file: as its table names it, relative to the root or absolute.
        allow_outside: whether it may lie elsewhere.

    Raises:
        ValueError: the file, links followed, is not below the root.

    Example:
        >>> image_path("images", "images/1.png").as_posix()
        'images/images/1.png'
        >>> image_path("images", "../others/1.png")
        Traceback (most recent call last):
        ...
        ValueError: Expected an image below 'images', got '../others/1.png', which leads out of it. Copy the image \
there, or give --allow-outside if these images are meant.
    """
    path = Path(root, file)
    if not allow_outside and not is_below(root, path):
        raise ValueError(
            f"Expected an image below {str(root)!r}, got {str(file)!r}, which leads out of it. Copy the image there, "
            "or give --allow-outside if these images are meant."
        )
    return path


def is_below(root: str | Path, path: str | Path) -> bool:
    """Whether a path lies in a folder when all links are followed; neither has to exist.

    Example:
        >>> is_below("images", "images/1.png"), is_below("images", "images/../1.png")
        (True, False)
    """
    try:
        # Texts rather than paths: a dataset has many images.
        real_path = os.path.realpath(path)
    except ValueError:
        # A text with a zero byte is no path.
        return False
    # With a separator at the end, so that the folder `images` does not hold `images-too/1.png`.
    folder = os.path.join(os.path.realpath(root), "")
    return os.path.join(real_path, "").startswith(folder)

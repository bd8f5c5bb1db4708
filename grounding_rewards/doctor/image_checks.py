"""Checks of rows and images: can they be read, and do the declared sizes agree with the images?

The pixels are decoded once, by several processes (:func:`rows_with_pixels`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from grounding_rewards.common.workers import map_in_order, worker_pool
from grounding_rewards.data.checks import row_problems
from grounding_rewards.data.copies import image_signature
from grounding_rewards.doctor.box_defects import box_defect
from grounding_rewards.doctor.case import QUICK, Bucket, Case, Examiner
from grounding_rewards.doctor.defects import CHECKS, Defect, Problem, named
from grounding_rewards.doctor.raw_rows import ImageRow, Pixels
from grounding_rewards.images.decoding import has_shape, is_deep, load_image, open_image, shown_image
from grounding_rewards.images.dicom import is_burned_in, is_dicom

# Pixels of a side of the copies that are compared; that a line may lie beside the box's side; greys by which the pixels
# along a line differ at most, and by which they differ from what is beside it at least.
_SMALL, _BAND, _EVEN, _CONTRAST = 16, 6, 24, 40
# Images in work per process, as `prepare` has them.
_AHEAD = 4
# Fewer images are decoded before a process has started.
_FEW = 200


def rows_with_pixels(rows: Iterable[ImageRow], total: int | None, processes: int) -> Iterator[ImageRow]:
    """The rows in their order, each with what its pixels say.

    Args:
        rows: as they are read.
        total: how many they are; None where that is not known.
        processes: how many decode; 1 decodes in this process.
    """
    alone = processes == 1 or (total is not None and total < _FEW)
    with nullcontext() if alone else worker_pool(processes) as pool:
        if pool is None:
            yield from map(_with_pixels, rows)
        else:
            yield from map_in_order(pool, _with_pixels, rows, ahead=processes * _AHEAD)


def _with_pixels(row: ImageRow) -> ImageRow:
    if row.image is None:
        return row
    boxes: list[list[float]] = []
    if (size := row.trusted_size) is not None:
        boxes = [[x1 / size[0], y1 / size[1], x2 / size[0], y2 / size[1]] for x1, y1, x2, y2 in _sound(row, size)]
    return replace(row, pixels=look_at_pixels(row.image, boxes))


def _sound(row: ImageRow, size: tuple[float, float]) -> Iterator[Sequence[float]]:
    return (box for drawing in row.answers for box in drawing.boxes if box_defect(box, size) is None)


def look_at_pixels(image: Mapping[str, Any], boxes: Sequence[Sequence[float]] = ()) -> Pixels | None:
    """What the pixels of an image say; None where there is no file.

    Args:
        image: as `datasets` stores it, `{"bytes": ..., "path": ...}`.
        boxes: of the image, in parts of it.
    """
    from PIL.Image import Resampling

    try:
        data = Path(image["path"]).read_bytes() if image.get("bytes") is None else image["bytes"]
    except (OSError, TypeError, ValueError):
        return None
    digest = hashlib.blake2b(data, digest_size=8).digest()
    try:
        if image.get("bytes") is None and is_dicom(image["path"]):
            annotated, beyond = open_image(image["path"]), None
        else:
            stored = load_image({"bytes": data, "path": image.get("path")})
            annotated, beyond = shown_image(stored), None
            if is_deep(stored):
                values = np.asarray(stored)
                beyond = (
                    f"mode {stored.mode}, values {values.min():g} to {values.max():g}",
                    float((values > 255).mean()),
                )
    except ValueError as error:
        return Pixels(digest, " ".join(str(error).split()))
    plain = annotated.convert("L")
    greys = np.asarray(plain)
    grey = int(greys.min()) if greys.min() == greys.max() else None
    small = plain.resize((_SMALL, _SMALL), Resampling.BOX).tobytes()
    colours = np.asarray(annotated)
    drawn = next((k for k, box in enumerate(boxes) if is_outlined(colours, box)), None)
    return Pixels(digest, "", beyond, grey, image_signature(annotated), small, drawn)


def is_outlined(image: np.ndarray, box: Sequence[float]) -> bool:
    """Whether the outline of a box is drawn into an image: lines of one colour along its sides.

    Args:
        image: (height, width) or (height, width, 3) of uint8.
        box: x1, y1, x2, y2 in parts of the image.

    Example:
        >>> image = np.random.default_rng(0).integers(0, 100, (60, 80), dtype=np.uint8)
        >>> image[[10, 40], 20:61] = image[10:41, [20, 60]] = 255
        >>> is_outlined(image, (20 / 80, 10 / 60, 60 / 80, 40 / 60)), is_outlined(image, (0.3, 0.3, 0.6, 0.9))
        (True, False)
    """
    pixels = image.reshape(*image.shape[:2], -1)
    height, width = pixels.shape[:2]
    x1, x2 = round(box[0] * width), round(box[2] * width)
    y1, y2 = round(box[1] * height), round(box[3] * height)
    if min(x2 - x1, y2 - y1) < 4 * _BAND:
        return False
    # Without the corners, where lines cross.
    along_x, along_y = slice(x1 + _BAND, x2 - _BAND), slice(y1 + _BAND, y2 - _BAND)
    sides = [_is_line(pixels[max(0, y - _BAND) : y + _BAND + 1, along_x]) for y in (y1, y2)]
    sides += [_is_line(pixels[along_y, max(0, x - _BAND) : x + _BAND + 1].swapaxes(0, 1)) for x in (x1, x2)]
    # A side may lie on the edge of the image, where nothing is beyond it.
    return sum(sides) >= 3


def _is_line(band: np.ndarray) -> bool:
    """Whether a row of (rows, length, colours) has one colour all along, other than the rows beyond it."""
    low, middle, high = np.percentile(band, (10, 50, 90), axis=1)
    even = (high - low).max(axis=1) <= _EVEN
    # Beside the even rows, the first and the last row of the band.
    apart = np.minimum(np.abs(middle - middle[0]).max(axis=1), np.abs(middle - middle[-1]).max(axis=1))
    return bool((even & (apart >= _CONTRAST)).any())


# Resized copies are usually smaller than this part of the image.
_NEAR = 0.95


class RowExaminer(Examiner):
    """Missing and unreadable rows."""

    checks = named("unfinished-folder", "unreadable-row")

    def look(self, row: ImageRow) -> Iterator[Problem]:
        if damage := row.damage or "; ".join(row_problems(row.columns, about=["lists"])):
            yield Problem("unreadable-row", damage)

    def defects(self) -> Iterator[Defect]:
        if unfinished := self.case.source.unfinished:
            yield CHECKS["unfinished-folder"].defect(1, 0, unfinished)
        yield from super().defects()


class ImageExaminer(Examiner):
    """Missing images and sizes, and sizes that contradict the image. A smaller copy of the image does not."""

    checks = named(
        *("missing-image", "broken-image", "deep-image", "one-grey", "outside-image", "missing-size", "exchanged-size"),
        *("image-size", "image-scale", "drawn-boxes", "burned-in"),
    )

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._scales: dict[str, Bucket] = {}
        self._rounded_scales: Counter[float] = Counter()

    def look(self, row: ImageRow) -> Iterator[Problem]:
        image, size = row.image_size, row.size
        yield from _pixel_problems(row)
        if (
            image is not None
            and row.image
            and is_dicom(row.image.get("path") or "")
            and is_burned_in(row.image["path"])
        ):
            yield Problem("burned-in", "BurnedInAnnotation is YES")
        if row.outside:
            yield Problem("outside-image", row.outside)
        elif row.expects_image and image is None:
            yield Problem("missing-image", f"image: {row.image_fault}")
        if size is None:
            yield Problem("missing-size", f"width {row.columns.get('width')!r}, height {row.columns.get('height')!r}")
        elif image is not None:
            detail = f"width {size[0]:g}, height {size[1]:g}; the image is {image[0]} x {image[1]}"
            if has_shape(image, size):
                self._scales.setdefault(image_scale(image, size), Bucket()).add(self.case, row, detail)
                self._rounded_scales[round(image[0] / size[0], 2)] += 1
            else:
                is_exchanged = has_shape(image, (size[1], size[0]))
                yield Problem("exchanged-size" if is_exchanged else "image-size", detail)

    def unchecked(self) -> dict[str, str]:
        return (
            dict.fromkeys(("broken-image", "deep-image", "one-grey", "drawn-boxes"), QUICK)
            if self.case.is_quick
            else {}
        )

    def defects(self) -> Iterator[Defect]:
        yield from super().defects()
        # Smaller images are doubtful only if most have the declared size; slightly smaller ones unless all are alike.
        images = sum(bucket.count for bucket in self._scales.values())
        alike = max(
            (sum(self._rounded_scales[round(scale + step, 2)] for step in (0, 0.01)) for scale in self._rounded_scales),
            default=0,
        )
        are_most_exact = self._scales.get("same", Bucket()).count > images / 2
        doubtful = {"larger": True, "near": True, "near-copy": alike < images, "smaller": are_most_exact}
        buckets = [self._scales[kind] for kind, is_doubtful in doubtful.items() if is_doubtful and kind in self._scales]
        if buckets:
            count = sum(bucket.count for bucket in buckets)
            yield CHECKS["image-scale"].defect(
                count,
                images,
                f"{images - count} of {images} images are of the declared size or plain copies.",
                [example for bucket in buckets for example in bucket.examples],
            )


def _pixel_problems(row: ImageRow) -> Iterator[Problem]:
    pixels = row.pixels
    # Without a header the image is missing, which says more.
    if pixels is None or row.image_size is None:
        return
    if pixels.problem:
        yield Problem("broken-image", pixels.problem)
    elif pixels.grey is not None:
        yield Problem("one-grey", f"every pixel is {pixels.grey} of 255")
    elif pixels.drawn is not None:
        yield Problem("drawn-boxes", f"the outline of box {pixels.drawn} is in the pixels")
    elif pixels.deep is not None:
        values, share = pixels.deep
        yield Problem("deep-image", f"{values}: {share:.0%} of the pixels are above 255".replace("%", " %"))


def image_scale(image: tuple[float, float], size: tuple[float, float]) -> str:
    """How an image's shape relates to the declared size, both width and height in pixels.

    Returns:
        `same` (less than a pixel apart), `larger`, or `smaller`. Less than 5 % smaller, which is seldom a deliberate
        copy: `near-copy` if both sides shrink alike up to half a pixel, else `near`.

    >>> [image_scale((640, 512), size) for size in ((640, 512), (320, 256), (1280, 1024), (648, 520))]
    ['same', 'larger', 'smaller', 'near']
    """
    if max(abs(image[0] - size[0]), abs(image[1] - size[1])) < 1:
        return "same"
    if image[0] > size[0] or image[1] > size[1]:
        return "larger"
    if image[0] < _NEAR * size[0]:
        return "smaller"
    return "near-copy" if has_shape(image, size, rounding=0.5) else "near"

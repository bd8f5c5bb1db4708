"""Checks of rows and images: can they be read, and do the declared sizes agree with the images?

The pixels are decoded once, by several processes (:func:`rows_with_facts`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from grounding_rewards.common.workers import map_in_order, worker_pool
from grounding_rewards.data.copies import image_signature
from grounding_rewards.doctor.box_defects import box_defect
from grounding_rewards.doctor.case import Case, Problem
from grounding_rewards.doctor.defects import Defect
from grounding_rewards.doctor.raw_rows import ImageFacts, ImageRow
from grounding_rewards.images.decoding import has_shape, image_size, is_deep, load_image, open_image, shown_image
from grounding_rewards.images.dicom import is_burned_in, is_dicom

# Pixels of a side of the copies that are compared; that a line may lie beside the box's side; greys by which the pixels
# along a line differ at most, and by which they differ from what is beside it at least.
_SMALL, _BAND, _EVEN, _CONTRAST = 32, 6, 24, 40
# Rows of pixels that tell how sharp an image is.
_LINES = 64
# An image with fewer greys, but for one in a hundred pixels at either end, shows nothing. One whose colours differ so
# far on average has some; where no more than this part of the images have, they are odd.
_FEWEST_GREYS, _COLOURFUL, _MOST_COLOURFUL = 8, 12, 0.5
# Images in work per process, as `prepare` has them.
_AHEAD = 4
# Fewer images are decoded before a process has started.
_FEW = 200
# Resized copies are usually smaller than this part of the image; models see sides that are multiples of this.
_NEAR, _PATCH = 0.95, 28


def rows_with_facts(
    rows: Iterable[ImageRow], total: int | None, processes: int, *, quick: bool = False
) -> Iterator[ImageRow]:
    """The rows in their order, each with what its image says in place of the image's bytes.

    Args:
        rows: as they are read.
        total: how many they are; None where that is not known.
        processes: how many decode; 1 decodes in this process.
        quick: whether to read the headers alone.
    """
    alone = quick or processes == 1 or (total is not None and total < _FEW)
    look = partial(_with_facts, quick=quick)
    with nullcontext() if alone else worker_pool(processes) as pool:
        yield from map(look, rows) if pool is None else map_in_order(pool, look, rows, ahead=processes * _AHEAD)


def _with_facts(row: ImageRow, quick: bool) -> ImageRow:
    if row.image is None:
        return row
    encoded, facts = _read_header(row.image)
    known = replace(row, image={"bytes": None, "path": row.image.get("path")}, facts=facts)
    if quick or encoded is None or facts.size is None:
        return known
    boxes: list[list[float]] = []
    if (size := known.trusted_size) is not None:
        drawn = (box for drawing in row.answers for box in drawing.boxes if box_defect(box, size) is None)
        boxes = [[x1 / size[0], y1 / size[1], x2 / size[0], y2 / size[1]] for x1, y1, x2, y2 in drawn]
    return replace(known, facts=look_at_pixels(encoded, facts, boxes))


def _read_header(image: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, ImageFacts]:
    """The image with its bytes, unless it is a DICOM file, and what its header says; None for it if it is missing."""
    path = image.get("path")
    try:
        data = Path(path or "").read_bytes() if image.get("bytes") is None else image["bytes"]
    except (OSError, TypeError, ValueError):
        data = None
    is_file = data is None or (image.get("bytes") is None and is_dicom(path or ""))
    encoded = image if is_file else {"bytes": data, "path": path}
    digest = None if data is None else hashlib.blake2b(data, digest_size=8).digest()
    try:
        size = image_size(encoded)
        burned_in = is_file and is_burned_in(path or "")
    except (ValueError, TypeError, KeyError) as error:
        return None, ImageFacts(None, " ".join(str(error).split()), digest)
    return encoded, ImageFacts(size, "", digest, (data or b"")[:3], burned_in)


def look_at_pixels(image: Mapping[str, Any], facts: ImageFacts, boxes: Sequence[Sequence[float]] = ()) -> ImageFacts:
    """What an image says, its pixels too.

    Args:
        image: `{"bytes": ..., "path": ...}`; a DICOM file has no bytes.
        facts: what its header says.
        boxes: of the image, in parts of it.
    """
    from PIL.Image import Resampling

    deep = None
    try:
        if image["bytes"] is None:
            shown = open_image(image["path"])
        else:
            stored = load_image(image)
            shown = shown_image(stored)
            if is_deep(stored):
                values = np.asarray(stored)
                said = f"mode {stored.mode}, values {values.min():g} to {values.max():g}"
                deep = said, float((values > 255).mean())
    except ValueError as error:
        return facts._replace(problem=" ".join(str(error).split()))
    plain = shown.convert("L")
    counts = np.cumsum(plain.histogram())
    low, high = (int(np.searchsorted(counts, share * counts[-1])) for share in (0.01, 0.99))
    small = shown.resize((_SMALL, _SMALL), Resampling.BOX)
    colours = np.ptp(np.asarray(small.convert("RGB"), dtype=np.int16), axis=-1).mean()
    pixels = np.asarray(shown)
    # Some rows tell it as well.
    lines = np.asarray(plain)[:: max(1, plain.height // _LINES)].astype(np.float32)
    sharpness = (
        np.log((np.abs(np.diff(lines, axis=1)).mean() + 0.01) / (lines.std() + 1)) if plain.width > 1 else np.nan
    )
    return facts._replace(
        deep=deep,
        greys=(low, high),
        signature=image_signature(shown),
        sharpness=float(sharpness),
        small=small.convert("L").tobytes(),
        colourful=bool(colours > _COLOURFUL),
        drawn=next((k for k, box in enumerate(boxes) if is_outlined(pixels, box)), None),
    )


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
    last = band.shape[1] - 1
    low, middle, high = np.sort(band, axis=1)[:, [last // 10, last // 2, last - last // 10]].swapaxes(0, 1).astype(int)
    even = (high - low).max(axis=1) <= _EVEN
    # Beside the even rows, the first and the last row of the band.
    apart = np.minimum(np.abs(middle - middle[0]).max(axis=1), np.abs(middle - middle[-1]).max(axis=1))
    return bool((even & (apart >= _CONTRAST)).any())


def check_unreadable_rows(case: Case) -> Iterator[Defect]:
    """Missing and unreadable rows."""
    if unfinished := case.source.unfinished:
        yield case.defect("unfinished-folder", count=1, found=unfinished)
    yield from case.collect(case.damaged)


def check_image_files(case: Case) -> Iterator[Defect]:
    """Missing images and sizes, and sizes that contradict the image. A smaller copy of the image does not."""
    yield from case.collect(problem for row in case.rows for problem in _image_problems(row))
    yield from _odd_scales(case)
    colourful = [row for row in case.rows if row.facts and row.facts.colourful]
    decoded = sum(row.facts is not None and bool(row.facts.small) for row in case.rows)
    if 0 < len(colourful) <= _MOST_COLOURFUL * decoded:
        yield case.defect("colour-image", [(row, "has colours, as most images here have not") for row in colourful])


def _image_problems(row: ImageRow) -> Iterator[Problem]:
    facts, size = row.facts or ImageFacts(), row.size
    if row.outside:
        yield Problem("outside-image", row, row.outside)
    elif row.expects_image and facts.size is None:
        yield Problem("missing-image", row, f"image: {facts.fault or 'none'}")
    if facts.burned_in:
        yield Problem("burned-in", row, "BurnedInAnnotation is YES")
    if facts.problem:
        yield Problem("broken-image", row, facts.problem)
    elif facts.greys and facts.greys[1] - facts.greys[0] < _FEWEST_GREYS:
        of = "is {}" if facts.greys[0] == facts.greys[1] else "is {} to {}, but for one in a hundred,"
        yield Problem("one-grey", row, f"every pixel {of.format(*facts.greys)} of 255")
    elif facts.drawn is not None:
        yield Problem("drawn-boxes", row, f"the outline of box {facts.drawn} is in the pixels")
    elif facts.deep:
        values, share = facts.deep
        yield Problem("deep-image", row, f"{values}: {share:.0%} of the pixels are above 255".replace("%", " %"))
    if size is None:
        said = f"width {row.columns.get('width')!r}, height {row.columns.get('height')!r}"
        yield Problem("missing-size", row, said)
        return
    if facts.size is not None and not has_shape(facts.size, size):
        is_exchanged = has_shape(facts.size, (size[1], size[0]))
        yield Problem("exchanged-size" if is_exchanged else "image-size", row, _declared(row))
    elif (seen := row.resized_size) and has_shape(seen[::-1], size, _PATCH) and not has_shape(seen, size, _PATCH):
        said = f"resized_width {seen[0]:g}, resized_height {seen[1]:g} of width {size[0]:g}, height {size[1]:g}"
        yield Problem("exchanged-size", row, said)


def _declared(row: ImageRow) -> str:
    width, height = row.size or (0, 0)
    image = row.image_size or (0, 0)
    return f"width {width:g}, height {height:g}; the image is {image[0]} x {image[1]}"


def _odd_scales(case: Case) -> Iterator[Defect]:
    """Images of the declared shape and of another size than the others."""
    scaled = [
        (row, row.image_size, row.size)
        for row in case.rows
        if row.image_size and row.size and has_shape(row.image_size, row.size)
    ]
    kinds = [image_scale(image, size) for _, image, size in scaled]
    rounded = Counter(round(image[0] / size[0], 2) for _, image, size in scaled)
    alike = max((rounded[scale] + rounded[round(scale + 0.01, 2)] for scale in rounded), default=0)
    # Smaller images are doubtful only if most have the declared size; slightly smaller ones unless all are alike.
    are_most_exact = kinds.count("same") > len(kinds) / 2
    doubtful = {"larger": True, "near": True, "near-copy": alike < len(kinds), "smaller": are_most_exact}
    odd = [(row, _declared(row)) for (row, *_), kind in zip(scaled, kinds, strict=True) if doubtful.get(kind)]
    if odd:
        found = f"{len(kinds) - len(odd)} of {len(kinds)} images are of the declared size or plain copies."
        yield case.defect("image-scale", odd, of=len(kinds), found=found)


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

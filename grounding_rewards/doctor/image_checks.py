"""Checks of rows and images: can they be read, and do the declared sizes agree with the images?

The pixels are decoded once, by several processes (:func:`rows_with_facts`).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from grounding_rewards.common.workers import map_in_order, worker_pool
from grounding_rewards.data.copies import image_signature
from grounding_rewards.doctor.altered_copies import middle_of
from grounding_rewards.doctor.box_defects import box_defect
from grounding_rewards.doctor.case import Case, Defect, Problem
from grounding_rewards.doctor.raw_rows import ImageFacts, ImageRow
from grounding_rewards.images.decoding import has_shape, image_size, load_image, open_image, shown_image
from grounding_rewards.images.dicom import is_burned_in, is_dicom

# Pixels of a side of the copies that are compared; that a line may lie beside the box's side; greys by which the pixels
# along a line differ at most, and by which they differ from what is beside it at least.
_SMALL, _BAND, _EVEN, _CONTRAST = 32, 6, 24, 40
# Nine in ten pixels of the middle of a box differ by so many greys at most where something was painted over it; in
# 2,300 sound boxes, real and drawn, by 9 and more.
_BLANK = 4
# The corners of a turned image are filled with one grey, but for so much; of two corners, one reaches farther along
# each side, by so much on three sides and together. So few images, or such a part of them, may have been digitised
# askew: of clean sets up to 1.3 %.
_FILL, _ASKEW, _ASKEW_IN_ALL, _FEWEST_ASKEW, _FEW_ASKEW = 6, 0.05, 0.5, 5, 0.025
# Lines of the small copy at the end of an image that are one grey.
_FEWEST_FLAT = 4
# Rows and columns of pixels that tell how an image was made, and how far apart those are that are compared beside
# neighbours. A grey is compared with so many around it, if this part of the pixels has each of them on average.
_LINES, _FAR_PIXELS, _GREYS_AROUND, _LEAST_SHARE = 32, 8, 17, 0.001
# An image with fewer greys, but for one in a hundred pixels at either end, shows nothing. One whose colours differ so
# far on average has some; where no more than this part of the images have, they are odd.
_FEWEST_GREYS, _COLOURFUL, _MOST_COLOURFUL = 8, 12, 0.5
# Of fewer images of a source nothing is told. They are alike if half of them correlate so far with what they have in
# common; inverted ones do the other way, and turned ones do by so much more once they are turned back; by less, they
# are as like the negative. All but so few correlate as far in one of these ways, or nothing can be told.
_FEWEST_IMAGES, _ALIKE, _INVERTED, _TURNED, _CLEARER, _FEW_UNLIKE = 20, 0.5, -0.3, 0.4, 0.1, 0.2
# So many images are of something else if they correlate less far than this in any of these ways, and all others
# clearly further: crops of many shapes correlate to any degree.
_FEWEST_ODD, _UNLIKE, _LIKE = 3, 0.12, 0.3
# So large a part of the middle of an image is clipped if it is white in so many cells of its copy.
_WHITE, _CLIPPED = 254, 0.25
# Images in work per process, as `prepare` has them.
_AHEAD = 4
# Fewer images are decoded before a process has started.
_FEW = 200
# Models see sides that are multiples of this.
_PATCH = 28


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

    try:
        shown = open_image(image["path"]) if image["bytes"] is None else shown_image(load_image(image))
    except ValueError as error:
        return facts._replace(problem=" ".join(str(error).split()))
    plain = shown.convert("L")
    counts = np.cumsum(plain.histogram())
    low, high = (int(np.searchsorted(counts, share * counts[-1])) for share in (0.01, 0.99))
    small = shown.resize((_SMALL, _SMALL), Resampling.BOX)
    colours = np.ptp(np.asarray(small.convert("RGB"), dtype=np.int16), axis=-1).mean()
    pixels, single = np.asarray(shown), np.asarray(plain)
    return facts._replace(
        greys=(low, high),
        signature=image_signature(shown),
        making=making_of(single, np.array(plain.histogram())),
        small=small.convert("L").tobytes(),
        middle=middle_of(plain),
        colourful=bool(colours > _COLOURFUL),
        drawn=next((k for k, box in enumerate(boxes) if is_outlined(pixels, box)), None),
        blank=next((k for k, box in enumerate(boxes) if is_painted_over(single, box)), None),
        tilted=is_tilted(single),
    )


def making_of(greys: np.ndarray, counts: np.ndarray) -> tuple[float, ...]:
    """What tells how an image was made: how many of its greys are missing, how much more its columns differ than its
    rows, which part is black or white, and how far neighbours differ, beside those some pixels on and beside all.

    All but the part are logarithms; nan where the image is too small.

    Args:
        greys: (height, width) of uint8.
        counts: (256,), the pixels of each grey.

    Example:
        >>> greys = np.random.default_rng(0).integers(0, 256, (90, 80), dtype=np.uint8)
        >>> for one in (greys, greys // 16 * 16, greys.repeat(8, axis=0), greys // 128 * greys):
        ...     print(np.round(making_of(one, np.bincount(one.ravel(), minlength=256))[:4], 1) + 0)
        [0.3 0.  0.  0. ]
        [2.8 0.  0.1 0. ]
        [ 0.3 -2.   0.   0. ]
        [0.3 0.  0.5 0. ]
    """
    height, width = greys.shape
    if min(height, width) <= _FAR_PIXELS:
        return (np.nan,) * 5
    lines = [greys[:: max(1, height // _LINES)], greys[:, :: max(1, width // _LINES)].T]
    near, far = (
        [np.abs(one[:, step:].astype(np.int16) - one[:, :-step]).mean() + 0.05 for one in lines]
        for step in (1, _FAR_PIXELS)
    )
    shares = counts / greys.size
    around = np.convolve(shares, np.full(_GREYS_AROUND, 1 / _GREYS_AROUND), "same")
    # Black and white may be what surrounds an image.
    around[[0, 1, 2, 3, -4, -3, -2, -1]] = 0
    known = around >= _LEAST_SHARE
    missing = float(np.log(np.quantile(shares[known] / around[known], 0.95) + 0.01)) if known.any() else 0.0
    fineness = max(np.log(one / other) for one, other in zip(near, far, strict=True))
    cut, sharpness = shares[:2].sum() + shares[-2:].sum(), np.log(near[0] / (lines[0].std() + 1))
    return missing, *map(float, (np.log(near[1] / near[0]), cut, fineness, sharpness))


def is_painted_over(greys: np.ndarray, box: Sequence[float]) -> bool:
    """Whether the middle of a box holds one grey.

    Args:
        greys: (height, width) of uint8.
        box: x1, y1, x2, y2 in parts of the image.

    Example:
        >>> greys = np.random.default_rng(0).integers(0, 256, (80, 80), dtype=np.uint8)
        >>> greys[20:60, 20:60] = 3
        >>> is_painted_over(greys, (0.25, 0.25, 0.75, 0.75)), is_painted_over(greys, (0.0, 0.0, 0.75, 0.75))
        (True, False)
    """
    start, end = np.array(box[:2]), np.array(box[2:])
    fifth = (end - start) / 5
    (x1, y1), (x2, y2) = (np.rint(corner * greys.shape[::-1]).astype(int) for corner in (start + fifth, end - fifth))
    middle = greys[y1:y2, x1:x2]
    if min(middle.shape) < _BAND:
        return False
    low, high = np.quantile(middle[:: len(middle) // _BAND, :: middle.shape[1] // _BAND], (0.05, 0.95))
    return bool(high - low <= _BLANK)


def is_tilted(greys: np.ndarray) -> bool:
    """Whether the corners of an image are filled with one grey, as of an image that is turned by some degrees.

    Example:
        >>> y, x = np.mgrid[:80, :80] - 40
        >>> turned = np.maximum(abs(x + 0.2 * y), abs(y - 0.2 * x)) < 40
        >>> is_tilted(100 * turned + x % 9), is_tilted(100 * (abs(x) < 30) + x % 9)
        (True, False)
    """
    # Clockwise.
    sides = (greys[0], greys[:, -1], greys[-1, ::-1], greys[::-1, 0])
    # Above the shoulders is nothing, below is the body.
    if np.ptp([int(side[0]) for side in sides]) > _FILL:
        return False
    farther = np.array([_filled(side) - _filled(side[::-1]) for side in sides])
    farther *= np.sign(farther.sum())
    is_so = farther >= _ASKEW
    return bool(is_so.sum() >= 3 and farther.min() >= -_ASKEW and farther.sum() >= _ASKEW_IN_ALL)


def _filled(line: np.ndarray) -> float:
    """The part of a line, from its start, that has the grey of its first pixel."""
    other = np.abs(line.astype(int) - int(line[0])) > _FILL
    return (int(other.argmax()) if other.any() else len(line)) / len(line)


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
    elif (lines := _flat_end(facts.square)) >= _FEWEST_FLAT:
        yield Problem("broken-image", row, f"the last {lines / _SMALL:.0%} of its lines are one grey")
    elif facts.drawn is not None:
        yield Problem("drawn-boxes", row, f"the outline of box {facts.drawn} is in the pixels")
    elif facts.blank is not None:
        yield Problem("blank-box", row, f"the middle of box {facts.blank} is one grey")
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


def _flat_end(square: np.ndarray | None) -> int:
    """How many lines at the end are one grey between black and white, as readers fill a file that breaks off."""
    if square is None or not 64 <= square[-1, 0] <= 192:
        return 0
    is_flat = (np.abs(square.astype(int) - int(square[-1, 0])) <= 1).all(axis=1)
    return len(is_flat) if is_flat.all() else int(is_flat[::-1].argmin())


def _declared(row: ImageRow) -> str:
    width, height = row.size or (0, 0)
    image = row.image_size or (0, 0)
    return f"width {width:g}, height {height:g}; the image is {image[0]} x {image[1]}"


def check_greys(case: Case) -> Iterator[Defect]:
    """Images whose greys are unlike those of their source: inverted and turned ones, and splits that are darker."""
    of_source: defaultdict[str, list[tuple[ImageRow, np.ndarray]]] = defaultdict(list)
    clipped: list[ImageRow] = []
    for row in case.rows:
        if row.facts is None or (square := row.facts.square) is None:
            continue
        if row.facts.greys and row.facts.greys[0] < row.facts.greys[1]:
            of_source[row.source].append((row, square))
            quarter = len(square) // 4
            middle = square[quarter:-quarter, quarter:-quarter]
            if (middle >= _WHITE).mean() >= _CLIPPED:
                clipped.append(row)
    if clipped:
        yield case.defect("clipped-image", [(row, "much of the middle is nothing but white") for row in clipped])
    odd: dict[str, list[tuple[ImageRow | None, str]]] = {name: [] for name in _ODD}
    for images in of_source.values():
        greys = np.array([square for _, square in images])
        # Half the side tells images apart as well.
        side = greys.shape[1] // 2
        greys = greys.reshape(-1, side, 2, side, 2).mean(axis=(2, 4)).reshape(-1, side * side)
        for name, places in zip(_ODD, find_odd(greys), strict=True):
            odd[name] += [(images[k][0], _ODD[name]) for k in places]
    tilted = [row for images in of_source.values() for row, _ in images if row.facts and row.facts.tilted]
    if len(tilted) >= max(_FEWEST_ASKEW, _FEW_ASKEW * sum(map(len, of_source.values()))):
        odd["turned-image"] += [
            (row, "its corners are filled, as of an image turned by some degrees") for row in tilted
        ]
    for name, shown in odd.items():
        case.odd.update(row.key for row, _ in shown if row)
        if shown:
            yield case.defect(name, shown)


_ODD = {
    "inverted-image": "dark where the other images of its source are bright, and bright where they are dark",
    "turned-image": "like the other images of its source once it is turned",
    "odd-image": "in no way like the other images of its source",
}


def find_odd(greys: np.ndarray) -> tuple[list[int], list[int], list[int]]:
    """The places of images that are the negative of what the others have in common, turned, or quite unlike it.

    Args:
        greys: (n, side * side) of any numbers.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> images = np.outer([1, 4, 2, 1], [1, 2, 5, 1]) + rng.normal(0, 1, (30, 4, 4))
        >>> images[4], images[7] = 20 - images[4], images[7].T[::-1]
        >>> find_odd(images.reshape(30, 16))
        ([4], [7], [])
    """
    if len(greys) < _FEWEST_IMAGES:
        return [], [], []
    images = greys.astype(np.float64)
    images -= images.mean(axis=1, keepdims=True)
    images /= np.linalg.norm(images, axis=1, keepdims=True) + 1e-9
    # What they have in common, up to its sign: the mean would vanish where half of them are inverted.
    common = np.linalg.eigh(images.T @ images)[1][:, -1]
    cosines = images @ common
    sign = np.sign(np.median(cosines)) or 1.0
    cosines *= sign
    if np.median(np.abs(cosines)) < _ALIKE:
        return [], [], []
    side = round(greys.shape[1] ** 0.5)
    square = common.reshape(side, side) * sign
    turned = np.max([images @ np.rot90(square, k).ravel() for k in (1, 2, 3)], axis=0)
    # Cut-outs of every size look like anything.
    if np.quantile(np.maximum(np.abs(cosines), turned), _FEW_UNLIKE) < _ALIKE:
        return [], [], []
    # Turning may exchange black and white: what is as like the negative is taken for that.
    is_turned = (turned >= _ALIKE) & (turned - np.abs(cosines) >= _CLEARER) & (turned - cosines >= _TURNED)
    # An image of the other side of the body may be as unlike, and is like once it is mirrored.
    otherwise = np.maximum(turned, images @ square[:, ::-1].ravel())
    is_inverted = (cosines <= _INVERTED) & (-cosines - otherwise >= _CLEARER)
    best = np.maximum(np.abs(cosines), otherwise)
    is_odd = best < _UNLIKE
    is_odd &= is_odd.sum() >= _FEWEST_ODD and (best[~is_odd] >= _LIKE).all()
    return tuple(np.flatnonzero(one).tolist() for one in (is_inverted, is_turned, is_odd))  # type: ignore[return-value]

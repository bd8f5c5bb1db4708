"""Find defects of single reference boxes, and the convention of boxes that are not x1, y1, x2, y2 in pixels.

A single box is compared with its image. Another convention (another order of the four numbers, another frame) shows
only over all boxes of a split: read as xyxy, many are not on their images, and read in the other convention nearly all
of these are.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.boxes import Boxes, from_xyxy, inside_image, is_box, reference_defect, to_xyxy
from grounding_rewards.parsing.no_finding import states_nothing

#: Boxes that mean "no finding" in files where every row has a box.
PLACEHOLDERS = ((0, 0, 1, 1), (0, 0, 0, 0), (-1, -1, -1, -1))
#: Share of its image from which a box covers the whole, and marks no place.
WHOLE_IMAGE = 0.95
# Texts that programs write for a missing value.
_NULLS = ("nan", "none", "null", "nil", "n/a", "na", "#n/a", "<na>", "undefined", "-", "?")
# Beginnings and ends of a label that say "no".
_DENIAL = re.compile(r"^(?:without|absence of|negative for) (?:an? |any )?|^(.*): (?:absent|negative|none|no)$")
# Shortest side, in pixels, of an image on which a box inside the first pixel is taken for a normalised one.
_MIN_SIDE = 16

# Fewest images that have to show another convention, and their smallest share of the images of the split.
_MIN_IMAGES = 6
_MIN_SHARE = 0.01
# Smallest share, of the boxes or images that show another convention, that has to follow the same one.
_MIN_AGREEMENT = 0.95
# Fraction of a side by which a fitting box may reach over the edge: annotators slip.
_TOLERANCE = 0.01
# Fraction of a side from which a box that reaches over the edge is no slip.
_FAR = 0.1
# Fewest boxes that show a corner, and the fraction of both sides to which the corner reaches.
_MIN_CORNER_BOXES = 20
_CORNER = 0.6
# Smallest share of the boxes in each quarter of a frame that they fill.
_MIN_QUARTER = 0.05
#: Sides of coordinate grids and of usual resized copies.
FRAMES = (100, 224, 256, 336, 384, 448, 512, 640, 768, 896, 1000, 1024, 2048)


def is_null_label(label: Any) -> bool:
    """Whether a label is the text that a program writes for a missing value.

    >>> is_null_label("nan"), is_null_label(" N/A"), is_null_label("Nodule")
    (True, True, False)
    """
    return isinstance(label, str) and label.strip().casefold() in _NULLS


def is_placeholder(box: Any, label: Any, size: tuple[float, float] | None = None) -> bool:
    """Whether a box means "no finding": it encloses nothing or everything, and its label does not name a finding.

    A box of a class called Normal that is tight around something is a real one.

    Args:
        box: as the dataset has it.
        label: as the dataset has it; None without one.
        size: width and height of the image in pixels; None if they are not known.

    Example:
        >>> [is_placeholder([0, 0, 1, 1], label) for label in ("No finding", None, "mass")]
        [True, True, False]
        >>> [is_placeholder(box, "Normal", (64, 64)) for box in ([0, 0, 64, 64], [9, 9, 30, 40])]
        [True, False]
    """
    if not isinstance(label, str) or not label.strip() or label.strip().isdecimal():
        # A missing label, or the number of a class, tells nothing, so that only the usual boxes of such rows count.
        return isinstance(box, list | tuple) and tuple(box) in PLACEHOLDERS
    if not _names_nothing(label):
        return False
    # Up to 1: a box within the first pixel, such as [0, 0, 1, 1].
    encloses_nothing = not is_box(box) or max(box) <= 1 or reference_defect(box) == "no-area"
    return encloses_nothing or (size is not None and image_share(box, size) >= WHOLE_IMAGE)


@lru_cache(maxsize=4096)
def _names_nothing(label: str) -> bool:
    """Whether a label says that there is no finding, such as "No finding", "absence of mass" or "mass: none"."""
    words = " ".join(label.replace("_", " ").split()).casefold()
    # "absence of mass" and "mass: none" become "no mass".
    words = _DENIAL.sub(r"no \1", words)
    # "Normal lung" may name a place: without "no" only a single word counts.
    may_deny = words.startswith("no ") or " " not in words
    return may_deny and not is_null_label(label) and states_nothing(f"{words}.")


def image_share(box: Any, size: tuple[float, float]) -> float:
    """The fraction of an image's area that a valid box covers."""
    x1, y1, x2, y2 = box
    width, height = size
    covered_width = max(0, min(x2, width) - max(x1, 0))
    covered_height = max(0, min(y2, height) - max(y1, 0))
    return float(covered_width * covered_height / (width * height))


def box_defect(box: Any, size: tuple[float, float] | None) -> str | None:
    """The name of the first defect of a box, or None.

    Args:
        box: as the dataset has it.
        size: width and height of the image in pixels; with None no defect is found that needs it.

    Returns:
        A defect of :func:`grounding_rewards.boxes.reference_defect`, `normalised-boxes`, or None.

    Example:
        >>> image = (100, 200)
        >>> [box_defect(box, image) for box in ([0, 0, 100, 200], [9, 9, 4, 12], [90, 10, 110, 20], [0.1, 0.1, 0.5, 1])]
        [None, 'swapped-corners', 'partly-off-image', 'normalised-boxes']
    """
    defect = reference_defect(box, size)
    # On a tiny image a box of at most a pixel may be a real one.
    if defect == "not-finite" or size is None or min(size) < _MIN_SIDE:
        return defect
    is_normalised = min(box) >= 0 and 0 < max(box) <= 1
    return "normalised-boxes" if is_normalised else defect


class MistakenOrder(NamedTuple):
    """A meaning of the four numbers other than x1, y1, x2, y2.

    Attributes:
        name: in words.
        to_xyxy: converts such boxes to corners.
        numbers: names of the four numbers, for code.
        corners: x1, y1, x2, y2 in terms of these names.
    """

    name: str
    to_xyxy: Callable[[Boxes], Boxes]
    numbers: str
    corners: str

    @property
    def fix(self) -> str:
        """A line of Python that corrects such boxes."""
        return f"boxes = [[{self.corners}] for {self.numbers} in boxes]."


_TWICE = "x1, y1, x1 + x2, y1 + y2 (corners that were converted from x, y, width, height although they were none)"
_YXYX = "y1, x1, y2, x2 (or width and height of the images are exchanged; then exchange these instead)"
_CENTRED = "x - w / 2, y - h / 2, x + w / 2, y + h / 2"
#: The likeliest mistake first.
MISTAKEN_ORDERS = (
    MistakenOrder("x, y, width, height", lambda boxes: to_xyxy(boxes, "xywh"), "x, y, w, h", "x, y, x + w, y + h"),
    MistakenOrder(_TWICE, lambda boxes: from_xyxy(boxes, "xywh"), "x1, y1, x2, y2", "x1, y1, x2 - x1, y2 - y1"),
    MistakenOrder("centre x, centre y, width, height", lambda boxes: to_xyxy(boxes, "cxcywh"), "x, y, w, h", _CENTRED),
    MistakenOrder("x1, x2, y1, y2", lambda boxes: boxes[:, [0, 2, 1, 3]], "x1, x2, y1, y2", "x1, y1, x2, y2"),
    MistakenOrder("y1, y2, x1, x2", lambda boxes: boxes[:, [2, 0, 3, 1]], "y1, y2, x1, x2", "x1, y1, x2, y2"),
    MistakenOrder(
        "y, x, height, width", lambda boxes: to_xyxy(boxes, "xywh")[:, [1, 0, 3, 2]], "y, x, h, w", "x, y, x + w, y + h"
    ),
    MistakenOrder(_YXYX, lambda boxes: to_xyxy(boxes, "yxyx"), "y1, x1, y2, x2", "x1, y1, x2, y2"),
)


class MistakenConvention(NamedTuple):
    """The convention of boxes that are not x1, y1, x2, y2 in pixels of the image.

    Attributes:
        check: `box-order` or `wrong-frame`.
        words: how the boxes show it, in a sentence.
        fix: what to do.
        order: of `box-order`; None for `wrong-frame`.
    """

    check: str
    words: str
    fix: str
    order: MistakenOrder | None = None


def find_convention(
    boxes: Boxes,
    image_numbers: np.ndarray,
    sizes: np.ndarray,
    resized: np.ndarray | None = None,
    min_images: int = _MIN_IMAGES,
) -> MistakenConvention | None:
    """Find the convention of boxes that are not x1, y1, x2, y2 in pixels; None if they are, or follow none.

    Args:
        boxes: (n, 4), four finite numbers each.
        image_numbers: (n,), the number of the image of each box, rising.
        sizes: (n, 2), width and height of the image.
        resized: (n, 2), width and height at which the model sees it; nan if that is not known.
        min_images: fewest images that have to show it.

    Example:
        >>> boxes = np.array([[300 + k, 200 + 2 * k, 60, 40] for k in range(30)], dtype=float)
        >>> find_convention(boxes, np.arange(30), np.full((30, 2), 512.0)).words
        'As x1, y1, x2, y2, the boxes of 30 of 30 images do not fit; of 30 they do as x, y, width, height.'
    """
    if not len(boxes):
        return None
    # The index of the first box of each image: there its number differs from that before it.
    starts = np.flatnonzero(np.diff(image_numbers, prepend=-1))
    images = len(starts)
    fractions = boxes / np.tile(sizes, 2)
    is_turned = (boxes[:, 0] > boxes[:, 2]) | (boxes[:, 1] > boxes[:, 3])
    is_far_off = np.maximum(-fractions.min(axis=1), fractions.max(axis=1) - 1) > _FAR
    # Whether an image has a box that cannot be xyxy in its pixels.
    is_misfit = np.logical_or.reduceat(is_turned | is_far_off, starts)
    misfits = int(is_misfit.sum())
    if misfits >= max(min_images, _MIN_SHARE * images):
        convention = _find_order(boxes, sizes, starts, is_misfit)
        if convention is not None:
            return convention
        # They fit in no other order: they may be measured on an image of another size.
        words = f"The boxes of {misfits} of {images} images reach far over the edge"
        # Only misfits were seen: the other boxes may be right.
        advice = f"{_CONVERT_ALL}, or only those that are drawn so"
    elif len(boxes) >= _MIN_CORNER_BOXES and (fractions <= _CORNER).all(axis=1).mean() >= _MIN_AGREEMENT:
        # Findings are everywhere on images: these boxes were drawn on smaller ones.
        words, advice = "Nearly all boxes lie in the upper left corner of their images", _CONVERT_ALL
    else:
        return None
    frame = _find_frame(boxes, sizes, resized)
    if frame is None:
        return None
    return MistakenConvention("wrong-frame", f"{words}; the numbers fit {frame.name}.", f"{advice}: {frame.fix}")


def _find_order(
    boxes: Boxes, sizes: np.ndarray, starts: np.ndarray, is_misfit: np.ndarray
) -> MistakenConvention | None:
    """The convention of the order in which most misfitting images have all their boxes inside.

    Returns:
        None if even in the best order fewer than 95 % of the misfitting images fit.

    Args:
        boxes: as for :func:`find_convention`.
        sizes: likewise.
        starts: (images,), the index of the first box of each image.
        is_misfit: (images,), whether the image has a box that does not fit as xyxy.
    """
    # Any order beats a count of -1.
    best_order, best_fits, best_count = MISTAKEN_ORDERS[0], is_misfit, -1
    for order in MISTAKEN_ORDERS:
        is_inside = inside_image(order.to_xyxy(boxes) / np.tile(sizes, 2), _TOLERANCE)
        # Whether all boxes of an image are inside it.
        fits = np.logical_and.reduceat(is_inside, starts)
        fitting = int(fits[is_misfit].sum())
        # The first of equal ones stays: it is the likeliest mistake.
        if fitting > best_count:
            best_order, best_fits, best_count = order, fits, fitting
    misfits = int(is_misfit.sum())
    if best_count < _MIN_AGREEMENT * misfits:
        return None
    words = f"As x1, y1, x2, y2, the boxes of {misfits} of {len(starts)} images do not fit"
    words += f"; of {best_count} they do as {best_order.name}."
    # Where the boxes of other images do not fit in this order, only some are written in it.
    advice = _CONVERT_ALL if best_fits.mean() >= _MIN_AGREEMENT else _CONVERT_SOME
    return MistakenConvention("box-order", words, f"{advice}: {best_order.fix}", best_order)


_CONVERT_ALL = "Convert them once, where the annotations are read"
_CONVERT_SOME = "Find out which source these rows come from, and convert it alone"


class _Frame(NamedTuple):
    """A frame in which boxes may be: its name, its sides (n, 2) for each box, and the Python that corrects boxes."""

    name: str
    sides: np.ndarray
    fix: str


def _find_frame(boxes: Boxes, sizes: np.ndarray, resized: np.ndarray | None) -> _Frame | None:
    """The frame, such as 1000 x 1000 or the resized image, on which the boxes were measured; None if none fits.

    It has boxes in each of its quarters, and more inside than any other frame, at least 95 %; of equals the smallest.

    Args:
        boxes: (n, 4).
        sizes: (n, 2), width and height of the image of each.
        resized: (n, 2), width and height at which the model sees it; nan if that is not known.
    """
    frames = []
    for side in FRAMES:
        # Two are coordinate grids of box formats, and have their names.
        name = {100: "norm100", 1000: "norm1000"}.get(side, f"a frame of {side} x {side}")
        frames.append(_Frame(name, np.full_like(sizes, side), _SCALED.format(side, side)))
    if resized is not None and not np.isnan(resized).any():
        frames.append(_Frame("the resized image", resized, _SCALED.format("resized_width", "resized_height")))
    # Ranked by the number of boxes inside, then by the smaller area.
    best_frame, best_rank = None, (_MIN_AGREEMENT * len(boxes), -np.inf)
    for frame in frames:
        inside = inside_image(boxes / np.tile(frame.sides, 2), _TOLERANCE).sum()
        rank = (float(inside), -float(frame.sides.prod(axis=1).mean()))
        # A frame that is too large has all boxes in its upper left quarter.
        is_right, is_lower = ((boxes[:, :2] + boxes[:, 2:]) / 2 >= frame.sides / 2).T
        boxes_in_quarters = np.bincount(2 * is_right + is_lower, minlength=4)
        if boxes_in_quarters.min() >= _MIN_QUARTER * len(boxes) and rank > best_rank:
            best_frame, best_rank = frame, rank
    return best_frame


_SCALED = (
    "boxes = [[x1 * width / {0}, y1 * height / {1}, x2 * width / {0}, y2 * height / {1}] for x1, y1, x2, y2 in boxes]."
)

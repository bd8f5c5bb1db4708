"""Defects of single reference boxes, and conventions other than x1, y1, x2, y2 in pixels that boxes of a split follow.

A single box is compared with its image. Another convention (another order of the four numbers, another frame) shows
over the boxes of a split, by numbers alone: read as xyxy many are not on their images, and read in the other convention
nearly all of these are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.boxes import Boxes, from_xyxy, inside_image, is_box, reference_defect, to_xyxy
from grounding_rewards.parsing.no_finding import states_nothing

#: What stands for an image without findings in files where every row has a box.
PLACEHOLDERS = ((0, 0, 1, 1), (0, 0, 0, 0), (-1, -1, -1, -1))
#: A box of at least this part of its image says nothing of a place.
WHOLE_IMAGE = 0.95
# Texts that a program writes for a missing value.
_NULLS = ("nan", "none", "null", "nil", "n/a", "na", "#n/a", "<na>", "undefined", "-", "?")
# On images with shorter sides a box within the first pixel may be right.
_MIN_SIDE = 16

# Images that have to show another convention, and their part of all images of the split.
_MIN_IMAGES, _MIN_SHARE = 6, 0.01
# The part of the boxes or images that show another convention which has to follow it.
_MIN_AGREEMENT = 0.95
# Boxes may reach over the edge by this part of the side when it is asked whether they fit: annotators slip.
_TOLERANCE = 0.01
# Boxes that reach further over the edge than this are no slips.
_FAR = 0.1
# Boxes of a split that lie in the upper left corner of their images, and the part of both sides that they keep to.
_MIN_CORNER_BOXES, _CORNER = 20, 0.6
# A frame is that of the boxes if this part of them lies in each of its quarters.
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
    """Whether a box stands for an image without findings: it encloses nothing or everything, and its label says so.

    A box of a class called Normal that stands tight around something is none.

    Args:
        box: what the dataset gives for a box.
        label: what it gives for its label; None where there is none.
        size: width and height of the image in pixels; None where they are not known.

    Example:
        >>> [is_placeholder([0, 0, 1, 1], label) for label in ("No finding", None, "mass")]
        [True, True, False]
        >>> [is_placeholder(box, "Normal", (64, 64)) for box in ([0, 0, 64, 64], [9, 9, 30, 40])]
        [True, False]
    """
    if isinstance(label, str) and label.strip() and not label.strip().isdecimal():
        if not _names_nothing(label):
            return False
        if not is_box(box) or max(box) <= 1 or reference_defect(box) == "no-area":
            return True
        return size is not None and image_share(box, size) >= WHOLE_IMAGE
    return isinstance(box, list | tuple) and len(box) == 4 and tuple(box) in PLACEHOLDERS


@lru_cache(maxsize=4096)
def _names_nothing(label: str) -> bool:
    words = " ".join(label.replace("_", " ").split()).casefold()
    words = re.sub(
        r"^(?:without|absence of|negative for) (?:an? |any )?|^(.*): (?:absent|negative|none|no)$", r"no \1", words
    )
    # "Normal lung" may name a place.
    return not is_null_label(label) and (words.startswith("no ") or " " not in words) and states_nothing(f"{words}.")


def image_share(box: Any, size: tuple[float, float]) -> float:
    """The part of an image that a valid box covers."""
    width, height = min(box[2], size[0]) - max(box[0], 0), min(box[3], size[1]) - max(box[1], 0)
    return float(max(0, width) * max(0, height) / (size[0] * size[1]))


def box_defect(box: Any, size: tuple[float, float] | None) -> str | None:
    """The first thing that is wrong with a box, or None.

    Args:
        box: what the dataset gives for a box.
        size: width and height of the image in pixels; None leaves aside what needs it.

    Returns:
        What :func:`grounding_rewards.boxes.reference_defect` finds, `normalised-boxes`, or None.

    Example:
        >>> image = (100, 200)
        >>> [box_defect(box, image) for box in ([0, 0, 100, 200], [9, 9, 4, 12], [90, 10, 110, 20], [0.1, 0.1, 0.5, 1])]
        [None, 'swapped-corners', 'partly-off-image', 'normalised-boxes']
    """
    defect = reference_defect(box, size)
    if defect == "not-finite" or size is None or min(size) < _MIN_SIDE:
        return defect
    return "normalised-boxes" if min(box) >= 0 and 0 < max(box) <= 1 else defect


class MistakenOrder(NamedTuple):
    """A meaning of the four numbers other than x1, y1, x2, y2.

    name: in words.
    to_xyxy: how such boxes become corners.
    numbers: what the four numbers are called.
    corners: the corners by these names.
    """

    name: str
    to_xyxy: Callable[[Boxes], Boxes]
    numbers: str
    corners: str

    @property
    def fix(self) -> str:
        """How to correct such boxes, in code."""
        return f"boxes = [[{self.corners}] for {self.numbers} in boxes]."


_TWICE = "x1, y1, x1 + x2, y1 + y2 (corners that were converted from x, y, width, height although they were none)"
_YXYX = "y1, x1, y2, x2 (or width and height of the images are exchanged; then exchange these instead)"
#: The likeliest mistake first.
MISTAKEN_ORDERS = (
    MistakenOrder("x, y, width, height", lambda boxes: to_xyxy(boxes, "xywh"), "x, y, w, h", "x, y, x + w, y + h"),
    MistakenOrder(_TWICE, lambda boxes: from_xyxy(boxes, "xywh"), "x1, y1, x2, y2", "x1, y1, x2 - x1, y2 - y1"),
    MistakenOrder(
        "centre x, centre y, width, height",
        lambda boxes: to_xyxy(boxes, "cxcywh"),
        "x, y, w, h",
        "x - w / 2, y - h / 2, x + w / 2, y + h / 2",
    ),
    MistakenOrder("x1, x2, y1, y2", lambda boxes: boxes[:, [0, 2, 1, 3]], "x1, x2, y1, y2", "x1, y1, x2, y2"),
    MistakenOrder("y1, y2, x1, x2", lambda boxes: boxes[:, [2, 0, 3, 1]], "y1, y2, x1, x2", "x1, y1, x2, y2"),
    MistakenOrder(
        "y, x, height, width", lambda boxes: to_xyxy(boxes, "xywh")[:, [1, 0, 3, 2]], "y, x, h, w", "x, y, x + w, y + h"
    ),
    MistakenOrder(_YXYX, lambda boxes: to_xyxy(boxes, "yxyx"), "y1, x1, y2, x2", "x1, y1, x2, y2"),
)


class MistakenConvention(NamedTuple):
    """How the boxes of a split are written, if not as x1, y1, x2, y2 in pixels of the image.

    check: `box-order` or `wrong-frame`.
    words: what was found, a sentence.
    fix: what to do.
    order: of `box-order`.
    """

    check: str
    words: str
    fix: str
    order: MistakenOrder | None = None


def find_convention(
    boxes: Boxes, image: np.ndarray, sizes: np.ndarray, resized: np.ndarray | None = None, min_images: int = _MIN_IMAGES
) -> MistakenConvention | None:
    """The convention other than x1, y1, x2, y2 in pixels that boxes follow, or None.

    Args:
        boxes: (n, 4), four finite numbers each; those of an image stand together.
        image: (n,), the number of the image of each, rising.
        sizes: (n, 2), width and height of its image.
        resized: (n, 2), width and height at which the model sees it; nan where that is not known.
        min_images: how many images have to show it.

    Example:
        >>> boxes = np.array([[300 + k, 200 + 2 * k, 60, 40] for k in range(30)], dtype=float)
        >>> find_convention(boxes, np.arange(30), np.full((30, 2), 512.0)).words
        'As x1, y1, x2, y2, the boxes of 30 of 30 images do not fit; of 30 they do as x, y, width, height.'
    """
    if not len(boxes):
        return None
    # Where the boxes of each image begin.
    first = np.flatnonzero(np.diff(image, prepend=-1))
    images, sides = len(first), np.tile(sizes, 2)
    parts = boxes / sides
    is_turned = (boxes[:, 0] > boxes[:, 2]) | (boxes[:, 1] > boxes[:, 3])
    is_far_off = np.maximum(-parts.min(axis=1), parts.max(axis=1) - 1) > _FAR
    showing_images = np.logical_or.reduceat(is_turned | is_far_off, first)
    count = int(showing_images.sum())
    if count >= max(min_images, _MIN_SHARE * images):
        fitting_images = [
            np.logical_and.reduceat(inside_image(order.to_xyxy(boxes) / sides, _TOLERANCE), first)
            for order in MISTAKEN_ORDERS
        ]
        k = int(np.argmax([fit[showing_images].sum() for fit in fitting_images]))
        fitting, order = int(fitting_images[k][showing_images].sum()), MISTAKEN_ORDERS[k]
        if fitting >= _MIN_AGREEMENT * count:
            words = (
                f"As x1, y1, x2, y2, the boxes of {count} of {images} images do not fit; of {fitting} they do as "
                f"{order.name}."
            )
            is_whole = fitting_images[k].mean() >= _MIN_AGREEMENT
            return MistakenConvention("box-order", words, f"{_WHOLE if is_whole else _PART}: {order.fix}", order)
        if frame := _frame(boxes, sizes, resized):
            words = f"The boxes of {count} of {images} images reach far over the edge; the numbers fit {frame.name}."
            return MistakenConvention("wrong-frame", words, f"{_WHOLE}, or if only some are drawn so: {frame.fix}")
        return None
    is_cornered = len(boxes) >= _MIN_CORNER_BOXES and (parts <= _CORNER).all(axis=1).mean() >= _MIN_AGREEMENT
    if is_cornered and (frame := _frame(boxes, sizes, resized)):
        words = f"All boxes lie in the upper left corner of their images; the numbers fit {frame.name}."
        return MistakenConvention("wrong-frame", words, f"{_WHOLE}: {frame.fix}")
    return None


_WHOLE = "Convert them once, where the annotations are read"
_PART = "Find out which source these rows come from, and convert it alone"


class _Frame(NamedTuple):
    name: str
    sides: np.ndarray
    fix: str


def _frame(boxes: Boxes, sizes: np.ndarray, resized: np.ndarray | None) -> _Frame | None:
    """The frame over which boxes are spread, of those that hold most the smallest; None where none is unlike the image.

    Args:
        boxes: (n, 4).
        sizes: (n, 2), width and height of the image of each.
        resized: (n, 2), width and height at which the model sees it; nan where that is not known.
    """
    frames = []
    for side in FRAMES:
        name = {100: "norm100", 1000: "norm1000"}.get(side, f"a frame of {side} x {side}")
        frames.append(_Frame(name, np.full_like(sizes, side), _SCALED.format(side, side)))
    if resized is not None and not np.isnan(resized).any():
        frames.append(_Frame("the resized image", resized, _SCALED.format("resized_width", "resized_height")))
    best, best_count = None, (_MIN_AGREEMENT * len(boxes), -np.inf)
    for frame in frames:
        inside = inside_image(boxes / np.tile(frame.sides, 2), _TOLERANCE).sum()
        right_half, lower_half = ((boxes[:, :2] + boxes[:, 2:]) / 2 >= frame.sides / 2).T
        is_filled = np.bincount(2 * right_half + lower_half, minlength=4).min() >= _MIN_QUARTER * len(boxes)
        count = (float(inside), -float(frame.sides.prod(axis=1).mean()))
        if is_filled and count > best_count:
            best, best_count = frame, count
    return best


_SCALED = (
    "boxes = [[x1 * width / {0}, y1 * height / {1}, x2 * width / {0}, y2 * height / {1}] for x1, y1, x2, y2 in boxes]."
)

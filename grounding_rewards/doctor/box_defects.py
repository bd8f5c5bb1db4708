"""Defects of single reference boxes, and mistakes that all boxes of a dataset share, or those of a part of its images.

A single box is compared with its image. A mistake in all boxes (another order of the four numbers, another frame) shows
only over many: read as xyxy many do not fit on their images, and read in another way nearly all do. A mistake in some
of the images shows in those that do not fit: nearly all of them do in one other way; or in images that keep to one
corner, while hardly any keeps to the corners beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.boxes import Boxes, from_xyxy, reference_defect, to_xyxy, valid_boxes
from grounding_rewards.parsing.no_finding import states_nothing

# On smaller images a box within the first pixel may be right.
_LEAST_SIDE = 16

#: Common sides of resized copies and of coordinate grids.
SIDES = (100.0, 224.0, 336.0, 448.0, 512.0, 640.0, 768.0, 896.0, 1000.0, 1024.0, 2048.0)
_FEWEST_BOXES = 20
# Another reading is found if at least this part does not fit as xyxy, and at most this part does not fit then.
_LEAST_UNFIT, _MOST_UNEXPLAINED = 0.1, 0.02
# A mistake in a part of the images: so many of them show it, at least, and one other reading explains so large a part.
_FEWEST_IMAGES, _LEAST_IMAGES, _LEAST_EXPLAINED = 6, 0.01, 0.9
# Images of a part reach over the edge by more than this part of a side: slips of the hand are smaller.
_OVER, _FAR_OVER = 0.02, 0.1
# A part of the images is in a smaller frame: so many images keep to it, and so many times more than to its mirror
# images.
_FEWEST_IN_FRAME, _LEAST_IN_FRAME, _TIMES_MIRRORED = 10, 0.05, 4
# A frame that is not smaller than this part of the image's sides can't be told from chance.
_SMALLER = 0.75
# Boxes are in one corner if they lie within this part of both sides.
_CORNER = 0.6
# From these numbers on, chance does not put all boxes into one quarter of the image.
_CERTAIN_BOXES, _CERTAIN_IMAGES, _CERTAIN_LABELS = 30, 10, 2
_QUARTERS = ("upper left", "upper right", "lower left", "lower right")
# A frame fits if some boxes reach at least this part of its width and of its height.
_FILLED = 0.85
# Of two sides that are no farther apart (1000 and 1024), the larger is meant if it holds more.
_NEXT_SIDE = 1.05
_LEAST_OUTSIDE = 0.3
_MUCH_LARGER, _MOST_FAR = 1.5, 0.6
_LOOK = "Look at the images; if the findings lie elsewhere, find out on which size the boxes were drawn."


class OtherOrder(NamedTuple):
    """Another meaning of the four numbers, and how to correct such boxes."""

    name: str
    to_xyxy: Callable[[Boxes], Boxes]
    fix: str


#: The likeliest mistake first.
OTHER_ORDERS = (
    OtherOrder(
        "x, y, width, height",
        lambda boxes: to_xyxy(boxes, "xywh"),
        "Convert once, where the annotations are read: boxes = [[x, y, x + w, y + h] for x, y, w, h in boxes].",
    ),
    OtherOrder(
        "x1, y1, x1 + x2, y1 + y2 (corners that were converted from x, y, width, height although they were none)",
        lambda boxes: from_xyxy(boxes, "xywh"),
        "Leave out the conversion from x, y, width, height: the boxes were corners before it. Or undo it: "
        "boxes = [[x1, y1, x2 - x1, y2 - y1] for x1, y1, x2, y2 in boxes].",
    ),
    OtherOrder(
        "centre x, centre y, width, height",
        lambda boxes: to_xyxy(boxes, "cxcywh"),
        "Convert once: boxes = [[x - w / 2, y - h / 2, x + w / 2, y + h / 2] for x, y, w, h in boxes].",
    ),
    OtherOrder(
        "x1, x2, y1, y2",
        lambda boxes: boxes[:, [0, 2, 1, 3]],
        "Exchange the two numbers in the middle: boxes = [[x1, y1, x2, y2] for x1, x2, y1, y2 in boxes].",
    ),
    OtherOrder(
        "y1, y2, x1, x2",
        lambda boxes: boxes[:, [2, 0, 3, 1]],
        "Put x and y in turn: boxes = [[x1, y1, x2, y2] for y1, y2, x1, x2 in boxes].",
    ),
    OtherOrder(
        "y, x, height, width",
        lambda boxes: to_xyxy(boxes[:, [1, 0, 3, 2]], "xywh"),
        "Convert once: boxes = [[x, y, x + w, y + h] for y, x, h, w in boxes].",
    ),
    OtherOrder(
        "y1, x1, y2, x2 (or width and height of the images are exchanged)",
        lambda boxes: to_xyxy(boxes, "yxyx"),
        "Exchange the axes: boxes = [[x1, y1, x2, y2] for y1, x1, y2, x2 in boxes]; if the image's own size disagrees "
        "with width and height, exchange those instead.",
    ),
)
#: What to do about boxes of another row.
JOIN = "Join boxes and images by the name of the image, never by their places in two tables."
_ON_LARGER = "Give the size of the image that they were drawn on in width and height{}."
_PART = "Find out which source these rows come from, and convert it alone."
_SCALED = (
    "boxes = [[x1 * width / {0}, y1 * height / {1}, x2 * width / {0}, y2 * height / {1}] for x1, y1, x2, y2 in boxes]"
)

#: What stands for an image without findings in files where every row has a box.
PLACEHOLDERS = ((0, 0, 1, 1), (0, 0, 0, 0), (-1, -1, -1, -1))
_NULLS = ("nan", "none", "null", "nil", "n/a", "na", "#n/a", "<na>", "undefined", "-", "?")


def is_null_label(label: Any) -> bool:
    """Whether a label is the text that a program writes for a missing value.

    >>> is_null_label("nan"), is_null_label(" N/A"), is_null_label("Nodule")
    (True, True, False)
    """
    return isinstance(label, str) and label.strip().casefold() in _NULLS


def is_placeholder(box: Any, label: Any) -> bool:
    """Whether a box stands for an image without findings: its label says so, or it has none and is an empty one.

    Args:
        box: what the dataset gives for a box.
        label: what it gives for its label; None where there is none.

    Example:
        >>> [is_placeholder([0, 0, 1, 1], label) for label in ("No finding", None, "mass")]
        [True, True, False]
    """
    if isinstance(label, str) and label.strip() and not label.strip().isdecimal():
        return _names_nothing(label)
    if not isinstance(box, list | tuple) or len(box) != 4:
        return False
    return tuple(box) in PLACEHOLDERS


@lru_cache(maxsize=4096)
def _names_nothing(label: str) -> bool:
    words = " ".join(label.replace("_", " ").split()).casefold()
    words = re.sub(
        r"^(?:without|absence of|negative for) (?:an? |any )?|^(.*): (?:absent|negative|none|no)$", r"no \1", words
    )
    # "Normal lung" may name a place.
    return not is_null_label(label) and (words.startswith("no ") or " " not in words) and states_nothing(f"{words}.")


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
    if defect == "not-finite" or size is None or min(size) < _LEAST_SIDE:
        return defect
    return "normalised-boxes" if min(box) >= 0 and 0 < max(box) <= 1 else defect


class Diagnosis(NamedTuple):
    """A mistake that all boxes share, or a part of them.

    name: `shifted-rows`, `box-order`, `flipped-boxes`, `wrong-frame` or `one-corner`.
    shown_by: number of boxes that show it.
    of: number of all boxes.
    found: what was found, a sentence.
    fix: what to do.
    whole: whether it concerns all boxes, so that their single defects say nothing more.
    certain: whether chance is ruled out.
    explains: the checks of single boxes whose findings follow from it, where it does not concern all boxes.
    order: the order in which the boxes fit, of `box-order`.
    side: of the usual frame that fits, of `wrong-frame`; 0 where none does, None for the resized image.
    """

    name: str
    shown_by: int
    of: int
    found: str
    fix: str
    whole: bool = True
    certain: bool = False
    explains: tuple[str, ...] = ()
    order: OtherOrder | None = None
    side: float | None = 0.0


def shifted_rows(reach: np.ndarray, sizes: np.ndarray) -> Diagnosis | None:
    """Whether boxes fit the image of the row before or after better than their own, as after a join that slipped.

    Args:
        reach: (rows, 2), how far right and down the boxes of each row reach; 0 where it has none.
        sizes: (rows, 2), width and height of the images.

    Example:
        >>> sizes = np.array([[900 if k % 3 else 400, 100] for k in range(41)])
        >>> shifted_rows(np.minimum(sizes[1:], (900, 90)), sizes[:-1]).found
        'Over the edge of their own image reach the boxes of 14 of 40 images; of the one in the row after, 0.'
    """
    images = int((reach > 0).any(axis=1).sum())
    own, before, after = (
        int((reach[mine] > (1 + _OVER) * sizes[other]).any(axis=1).sum())
        for mine, other in ((slice(None), slice(None)), (slice(1, None), slice(-1)), (slice(-1), slice(1, None)))
    )
    fit, where = min((before, "before"), (after, "after"))
    if own < max(_FEWEST_IMAGES, _LEAST_IMAGES * images) or fit > (1 - _LEAST_EXPLAINED) * own:
        return None
    found = (
        f"Over the edge of their own image reach the boxes of {own} of {images} images; of the one in the row {where}, "
        f"{fit}."
    )
    return Diagnosis("shifted-rows", own, images, found, JOIN)


@dataclass(frozen=True)
class BoxFit:
    """How the boxes of many images fit, as xyxy and in other readings.

    Attributes:
        boxes: (n, 4), four finite numbers each; those of an image stand together.
        image: (n,), the image of each, counted from 0.
        sizes: (images, 2), width and height of the images.
        resized: (images, 2), width and height at which the model sees them; nan where that is not known.
        labels: how many labels the boxes have.

    Example:
        >>> boxes = np.array([[300 + k, 200 + 2 * k, 60, 40] for k in range(30)], dtype=float)
        >>> BoxFit(boxes, np.arange(30), np.full((30, 2), 512.0)).diagnose().found
        'As x1, y1, x2, y2, 30 of 30 boxes do not fit on their images; 30 of 30 do as x, y, width, height.'
    """

    boxes: Boxes
    image: np.ndarray
    sizes: np.ndarray
    resized: np.ndarray | None = None
    labels: int = 0

    def diagnose(self, *, corners: bool = True, parts: bool = True) -> Diagnosis | None:
        """The mistake that the boxes share, or None.

        Args:
            corners: whether boxes in one corner count as one.
            parts: whether a mistake in a part of the images counts.
        """
        if not len(self.boxes):
            return None
        whole = self.other_order() or self._other_frame(corners)
        if not parts or (whole is not None and (whole.whole or whole.certain)):
            return whole
        part = self._part_in_other_order() or self._part_far_over()
        return part or whole or (self._part_in_frame() if corners else None)

    @cached_property
    def _corner(self) -> np.ndarray:
        """The lower right corner of each box's image, twice, (n, 4)."""
        return np.tile(self.sizes, 2)[self.image]

    @cached_property
    def _parts(self) -> Boxes:
        return self.boxes / self._corner

    @cached_property
    def _first(self) -> np.ndarray:
        """The first box of each image."""
        return np.flatnonzero(np.diff(self.image, prepend=-1))

    def _of_images(self, rule: np.ufunc, values: np.ndarray) -> np.ndarray:
        """The values of the boxes of each image, made one by a rule."""
        return rule.reduceat(values, self._first)

    @cached_property
    def turned(self) -> np.ndarray:
        """Which boxes have x2 < x1 or y2 < y1."""
        return (self.boxes[:, 0] > self.boxes[:, 2]) | (self.boxes[:, 1] > self.boxes[:, 3])

    @cached_property
    def _in_other_orders(self) -> np.ndarray:
        """Which boxes fit on their image in each of :data:`OTHER_ORDERS`, (n, orders)."""
        return np.stack([_on_image(order.to_xyxy(self.boxes), self._corner) for order in OTHER_ORDERS], axis=1)

    @cached_property
    def _lowest(self) -> np.ndarray:
        return self._of_images(np.minimum, self._parts.min(axis=1))

    @cached_property
    def _highest(self) -> np.ndarray:
        return self._of_images(np.maximum, self._parts.max(axis=1))

    @cached_property
    def _has_turned(self) -> np.ndarray:
        return self._of_images(np.logical_or, self.turned)

    @cached_property
    def _far_over(self) -> np.ndarray:
        """Which images have boxes that reach far over the right or lower edge."""
        return (self._highest - 1 > _FAR_OVER) & (self._lowest >= 0) & ~self._has_turned

    @cached_property
    def _beyond(self) -> int:
        """How many boxes reach past the right or lower edge."""
        return int(((self._parts[:, 2:] > 1.02).any(axis=1) & (self.boxes.min(axis=1) >= 0)).sum())

    @cached_property
    def _frames(self) -> np.ndarray:
        """Width and height of the usual frames and of the resized image, (images, frames, 2)."""
        usual = np.broadcast_to(np.array(SIDES)[:, None], (len(self.sizes), len(SIDES), 2))
        resized = np.full_like(self.sizes, np.nan) if self.resized is None else self.resized
        return np.concatenate([usual, resized[:, None]], axis=1)

    def _short_side_first(self, of_sides: np.ndarray, image: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Values of (width, height) as of (shorter, longer side): a plain copy does not fill a square's shorter one."""
        lies = (self.sizes[:, 0] > self.sizes[:, 1])[image, None, None]
        return np.where(lies, of_sides[..., ::-1], of_sides)

    @cached_property
    def _framed(self) -> tuple[np.ndarray, np.ndarray]:
        """Which boxes lie within each frame, (n, frames), and reach the edges of its sides, (n, frames, 2)."""
        in_frame = self.boxes[:, None, 2:] / self._frames[self.image]
        within = (in_frame <= 1.002).all(axis=-1)
        return within, self._short_side_first(within[..., None] & (in_frame >= _FILLED), self.image)

    def other_order(self) -> Diagnosis | None:
        """Another order in which nearly all boxes fit, where many do not as xyxy."""
        n, unfit = len(self.boxes), int((~_on_image(self.boxes, self._corner)).sum())
        if unfit < max(2, _LEAST_UNFIT * n):
            return None
        fits = self._in_other_orders.sum(axis=0)
        k = int(fits.argmax())
        order = OTHER_ORDERS[k]
        if fits[k] < (1 - _MOST_UNEXPLAINED) * n:
            return None
        found = (
            f"As x1, y1, x2, y2, {unfit} of {n} boxes do not fit on their images; {fits[k]} of {n} do as {order.name}."
        )
        return Diagnosis("box-order", unfit, n, found, order.fix, order=order)

    def _part_in_other_order(self) -> Diagnosis | None:
        """Another order in which nearly all of those images fit that do not as xyxy."""
        images = len(self.sizes)
        unfit = self._has_turned | (np.maximum(-self._lowest, self._highest - 1) > _OVER)
        count = int(unfit.sum())
        if count < max(_FEWEST_IMAGES, _LEAST_IMAGES * images):
            return None
        fits = self._of_images(np.logical_and, self._in_other_orders)[unfit].sum(axis=0)
        k = int(fits.argmax())
        order = OTHER_ORDERS[k]
        if fits[k] < _LEAST_EXPLAINED * count:
            return None
        found = (
            f"As x1, y1, x2, y2, the boxes of {count} of {images} images do not fit; {fits[k]} of these images do as "
            f"{order.name}. A part of the rows seems to be written so, also where it does not show."
        )
        explains = ("swapped-corners", "no-area", "off-image", "partly-off-image", "small-boxes")
        shown_by = int((~_on_image(self.boxes, self._corner)).sum())
        return Diagnosis(
            "box-order", shown_by, len(self.boxes), found, f"{_PART} {order.fix}", False, True, explains, order
        )

    def _part_far_over(self) -> Diagnosis | None:
        """Images whose boxes reach far over the edge: drawn on a larger one."""
        images, far = len(self.sizes), self._far_over
        count = int(far.sum())
        if count < max(_FEWEST_IMAGES, _LEAST_IMAGES * images):
            return None
        within, filling = self._framed
        all_within = self._of_images(np.logical_and, within)
        filled = all_within[..., None] & self._of_images(np.logical_or, filling)
        k = _best_side(all_within[far].sum(axis=0), filled[far].sum(axis=0), count)
        where = "images larger than declared" if k is None else _frame_name(k)
        found = (
            f"The boxes of {count} of {images} images reach more than {_FAR_OVER:.0%} past the right or lower edge; "
            f"the numbers fit {where}. A part of the rows seems to be drawn so."
        )
        fix = _PART + " " + _ON_LARGER.format("" if k is None else f"; or convert them: {_scaling(k)}")
        explains = ("off-image", "partly-off-image")
        return Diagnosis("wrong-frame", self._beyond, len(self.boxes), found, fix, False, True, explains)

    def _part_in_frame(self) -> Diagnosis | None:
        """Images whose boxes keep to a corner that is a usual frame, while hardly any keep to the other corners."""
        images, quarter = len(self.sizes), len(SIDES) + 1
        # With a quarter of the image as the last frame.
        frames = np.concatenate([self._frames / self.sizes[:, None], np.full((images, 1, 2), 0.5)], axis=1)
        near = self._of_images(np.minimum, self._parts[:, :2])[:, None]
        far = self._of_images(np.maximum, self._parts[:, 2:])[:, None]
        start, end = far <= 1.002 * frames, near >= 1 - 1.002 * frames
        # Upper left; upper right, lower left, lower right.
        crossed = end[..., 0] & start[..., 1], start[..., 0] & end[..., 1]
        kept = np.stack([start.all(axis=-1), *crossed, end.all(axis=-1)], axis=-1)
        kept[(frames > _SMALLER).any(axis=-1)] = False
        kept[self._has_turned | self._far_over] = False
        counts, mirrored = kept[..., 0].sum(axis=0), kept[..., 1:].sum(axis=0)
        fewest = max(_FEWEST_IN_FRAME, _LEAST_IN_FRAME * images)
        enough = counts >= np.maximum(fewest, _TIMES_MIRRORED * (mirrored.max(axis=1) + 1))
        if not enough.any():
            return None
        reaching = kept[..., :1] & self._short_side_first(far >= _FILLED * frames)
        filled = (reaching.sum(axis=0) >= np.maximum(2, 0.02 * counts)[:, None]).all(axis=1)
        # As many sound images keep to the upper left as to each of the other corners.
        excess = counts - mirrored.mean(axis=1)
        fits = enough & filled & (excess >= (1 - _MOST_UNEXPLAINED) * excess[enough].max())
        k = _smallest_side(fits[:quarter], counts)
        if k is None:
            if not enough[quarter]:
                return None
            k = quarter
        where = "the upper left quarter" if k == quarter else f"{_frame_name(k)} in the upper left"
        found = (
            f"The boxes of {counts[k]} of {images} images keep to {where}; at most {mirrored[k].max()} keep to another "
            "corner of that size. A part of the rows seems to be drawn on a smaller copy."
        )
        name, fix = ("one-corner", _LOOK) if k == quarter else ("wrong-frame", f"{_PART} {_scaling(k)}.")
        boxes = int(kept[self.image, k, 0].sum())
        return Diagnosis(name, boxes, len(self.boxes), found, fix, False, True, ("small-boxes",))

    def _other_frame(self, corners: bool) -> Diagnosis | None:
        n = len(self.boxes)
        if n < _FEWEST_BOXES:
            return None
        in_corner = int((self._parts[:, 2:] <= _CORNER).all(axis=1).sum())
        cornered = corners and in_corner >= (1 - _MOST_UNEXPLAINED) * n
        # How far right or down boxes reach, in parts of the image. Where much larger numbers are seldom seen beyond the
        # edge, they are those of a part of the images.
        reach = float(np.quantile(self._parts[:, 2:].max(axis=1), 0.9))
        of_all = reach < _MUCH_LARGER or self._far_over.sum() >= _MOST_FAR * len(self.sizes)
        outside = self._beyond >= _LEAST_OUTSIDE * n and of_all
        if not (cornered or outside):
            return self._one_quarter() if corners else None
        # The frame that holds nearly all boxes and whose edges some of them reach.
        within, filling = self._framed
        k = _best_side(within.sum(axis=0), filling.sum(axis=0), n)
        side = 0.0 if k is None else (*SIDES, None)[k]
        if outside:
            found = f"{self._beyond} of {n} boxes reach past the right or lower edge of their images"
            where = f"an image about {reach:.1f} times as large" if k is None else _frame_name(k)
            fix = _ON_LARGER.format("" if k is None else f"; or convert them: {_scaling(k)}")
            return Diagnosis("wrong-frame", self._beyond, n, f"{found}; the numbers fit {where}.", fix, side=side)
        found = f"{in_corner} of {n} boxes end within {_CORNER:.0%} of the width and of the height"
        if k is None:
            return self._one_quarter() or Diagnosis(
                "one-corner", in_corner, n, f"{found} of their images.", _LOOK, whole=False
            )
        found = f"{found}; the numbers fit {_frame_name(k)}."
        return Diagnosis("wrong-frame", in_corner, n, found, f"Convert them: {_scaling(k)}.", side=side)

    def _one_quarter(self) -> Diagnosis | None:
        n = len(self.boxes)
        x, y = np.sort(self._parts[:, ::2], axis=1), np.sort(self._parts[:, 1::2], axis=1)
        left, right, upper, lower = x[:, 1] <= 0.5, x[:, 0] >= 0.5, y[:, 1] <= 0.5, y[:, 0] >= 0.5
        counts = [int(which.sum()) for which in (left & upper, right & upper, left & lower, right & lower)]
        k = int(np.argmax(counts))
        if counts[k] < (1 - _MOST_UNEXPLAINED) * n:
            return None
        of_many = len(self.sizes) >= _CERTAIN_IMAGES, self.labels >= _CERTAIN_LABELS
        # A wrong frame moves boxes to the upper left; a quarter elsewhere may be where one finding usually is.
        certain = n >= _CERTAIN_BOXES and (any(of_many) if k == 0 else all(of_many))
        found = f"{counts[k]} of {n} boxes lie in the {_QUARTERS[k]} quarter of their images."
        return Diagnosis("one-corner", counts[k], n, found, _LOOK, whole=False, certain=certain)


def _best_side(within: np.ndarray, filling: np.ndarray, of: int) -> int | None:
    """The usual side, or the resized image, that holds nearly all and whose edges some reach; None where none does."""
    fits = (within >= (1 - _MOST_UNEXPLAINED) * of) & (filling.min(axis=1) >= max(2, 0.01 * of))
    return _smallest_side(fits, within)


def _smallest_side(fits: np.ndarray, held: np.ndarray) -> int | None:
    """The smallest frame that fits; of two sides close to each other, the one that holds more; None where none fits."""
    if fits[len(SIDES)]:
        # The size that the model sees is the likeliest.
        return len(SIDES)
    for k, side in enumerate(SIDES):
        if fits[k]:
            close = k + 1 < len(SIDES) and SIDES[k + 1] <= _NEXT_SIDE * side
            return k + 1 if close and held[k + 1] > held[k] else k
    return None


def _frame_name(k: int) -> str:
    return "the resized image" if k == len(SIDES) else f"a frame of {SIDES[k]:g} x {SIDES[k]:g}"


def on_frame(diagnosis: Diagnosis, side: float, gain: float) -> Diagnosis:
    """A wrong frame whose side is told by what the images show, by a :func:`BoxContent.frame`."""
    k = SIDES.index(side)
    shown_by = diagnosis.found.partition(";")[0]
    found = f"{shown_by}; what the images show inside fits {_frame_name(k)} ({gain:.2f} in common)."
    return diagnosis._replace(found=found, fix=f"Convert them: {_scaling(k)}.", side=side)


def _scaling(k: int) -> str:
    """The conversion from a frame to the image."""
    if k == len(SIDES):
        return _SCALED.format("resized_width", "resized_height")
    return _SCALED.format(f"{SIDES[k]:g}", f"{SIDES[k]:g}")


def _on_image(boxes: Boxes, corner: np.ndarray) -> np.ndarray:
    """Which boxes, (..., n, 4), are valid and on the image, with a tolerance of 1 %."""
    parts = boxes / corner
    return valid_boxes(boxes) & (parts[..., :2].min(axis=-1) >= -0.01) & (parts[..., 2:].max(axis=-1) <= 1.01)

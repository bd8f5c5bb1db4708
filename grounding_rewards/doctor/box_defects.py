"""Defects of single reference boxes, and mistakes that all boxes of a dataset share, or those of a part of its images.

A single box is compared with its image. A mistake in all boxes (another order of the four numbers, another frame) shows
only over many: read as xyxy many do not fit on their images, and read in another way nearly all do. A mistake in some
of the images shows in those that do not fit: nearly all of them do in one other way; or in images that keep to one
corner, while hardly any keeps to the corners beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.boxes import Boxes, from_xyxy, is_box, reference_defect, to_xyxy, valid_boxes
from grounding_rewards.parsing.no_finding import states_nothing

# On smaller images a box within the first pixel may be right.
_LEAST_SIDE = 16

# Common sides of resized copies and of coordinate grids.
_SIDES = (100.0, 224.0, 336.0, 448.0, 512.0, 640.0, 768.0, 896.0, 1000.0, 1024.0, 2048.0)
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
# Images that are counted together.
_IMAGES_AT_ONCE = 256
_LOOK = "Look at the images; if the findings lie elsewhere, find out on which size the boxes were drawn."
_REACHES = np.linspace(0, 20, 201)


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
_BY_ID = "Join boxes and images by the name of the image, never by their places in two tables."
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

    name: `shifted-rows`, `box-order`, `wrong-frame` or `one-corner`.
    shown_by: number of boxes that show it.
    of: number of all boxes.
    found: what was found, a sentence.
    fix: what to do.
    whole: whether it concerns all boxes, so that their single defects say nothing more.
    certain: whether chance is ruled out.
    explains: the checks of single boxes whose findings follow from it, where it does not concern all boxes.
    order: the order in which the boxes fit, of `box-order`.
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


@dataclass
class NeighbourFit:
    """Whether boxes fit the image of the row before or after better than their own, as after a join that slipped.

    Attributes:
        images: with boxes.
        own: of these, with a box that reaches over the edge.
        before, after: as `own`, on the image of the row before or after.

    Example:
        >>> fit = NeighbourFit()
        >>> for k in range(40):
        ...     fit.add([[0, 0, 900 if k % 3 else 400, 90]], (900 if (k - 1) % 3 else 400, 100))
        >>> fit.diagnose().found
        'Over the edge of their own image reach the boxes of 13 of 40 images; of the one in the row after, 0.'
    """

    images: int = 0
    own: int = 0
    before: int = 0
    after: int = 0
    last: tuple[tuple[float, float], tuple[float, float]] | None = None

    def add(self, boxes: Sequence[Any], size: tuple[float, float]) -> None:
        """Count the boxes of the next image."""
        sound = [box for box in boxes if is_box(box)]
        reach = max((box[2] for box in sound), default=0), max((box[3] for box in sound), default=0)
        self.images += bool(sound)
        self.own += _is_over(reach, size)
        if self.last is not None:
            self.before += _is_over(reach, self.last[1])
            self.after += _is_over(self.last[0], size)
        self.last = reach, size

    def diagnose(self) -> Diagnosis | None:
        """The join that slipped, or None."""
        fit, where = min((self.before, "before"), (self.after, "after"))
        if self.own < max(_FEWEST_IMAGES, _LEAST_IMAGES * self.images) or fit > (1 - _LEAST_EXPLAINED) * self.own:
            return None
        found = (
            f"Over the edge of their own image reach the boxes of {self.own} of {self.images} images; of the one in "
            f"the row {where}, {fit}."
        )
        return Diagnosis("shifted-rows", self.own, self.images, found, _BY_ID)


def _is_over(reach: tuple[float, float], size: tuple[float, float]) -> bool:
    return reach[0] > (1 + _OVER) * size[0] or reach[1] > (1 + _OVER) * size[1]


@dataclass
class BoxFit:
    """Counts of how the boxes of many images fit, as xyxy and in other readings.

    Example:
        >>> fit = BoxFit()
        >>> for k in range(30):
        ...     fit.add([[300 + k, 200 + 2 * k, 60, 40]], (512, 512))
        >>> fit.diagnose().found
        'As x1, y1, x2, y2, 30 of 30 boxes do not fit on their images; 30 of 30 do as x, y, width, height.'
    """

    boxes: int = 0
    unfit: int = 0
    turned: int = 0
    turned_y: int = 0
    beyond: int = 0
    in_corner: int = 0
    images: int = 0
    # At most a few: enough to tell one label from several.
    labels: frozenset[str] = frozenset()
    quarters: np.ndarray = field(default_factory=lambda: np.zeros(len(_QUARTERS), dtype=np.int64))
    fits: np.ndarray = field(default_factory=lambda: np.zeros(len(OTHER_ORDERS), dtype=np.int64))
    within: np.ndarray = field(default_factory=lambda: np.zeros(len(_SIDES) + 1, dtype=np.int64))
    filling: np.ndarray = field(default_factory=lambda: np.zeros((len(_SIDES) + 1, 2), dtype=np.int64))
    reaches: np.ndarray = field(default_factory=lambda: np.zeros(len(_REACHES), dtype=np.int64))
    # Of images: with a box that clearly does not fit, and how many of them fit in each other order; far over the edge.
    unfit_images: int = 0
    fitting_images: np.ndarray = field(default_factory=lambda: np.zeros(len(OTHER_ORDERS), dtype=np.int64))
    far_images: int = 0
    far_within: np.ndarray = field(default_factory=lambda: np.zeros(len(_SIDES) + 1, dtype=np.int64))
    far_filling: np.ndarray = field(default_factory=lambda: np.zeros((len(_SIDES) + 1, 2), dtype=np.int64))
    # Images that keep to each frame in the upper left and, in the other columns, to its mirror images; the last frame
    # is a quarter of the image. Images that also reach its edge on their shorter and on their longer side.
    kept: np.ndarray = field(default_factory=lambda: np.zeros((len(_SIDES) + 2, 4), dtype=np.int64))
    kept_boxes: np.ndarray = field(default_factory=lambda: np.zeros(len(_SIDES) + 2, dtype=np.int64))
    kept_filling: np.ndarray = field(default_factory=lambda: np.zeros((len(_SIDES) + 2, 2), dtype=np.int64))
    # Boxes, sizes and resized sizes of images that are not counted yet.
    waiting: list[tuple[list[Any], tuple[float, float], tuple[float, float]]] = field(default_factory=list)

    def add(
        self,
        boxes: Sequence[Any],
        size: tuple[float, float],
        resized: tuple[float, float] | None = None,
        labels: Sequence[Any] = (),
    ) -> None:
        """Count the boxes of one image.

        Args:
            boxes: others than four finite numbers are skipped.
            size: width and height of the image.
            resized: width and height at which the model sees the image, if known.
            labels: of the boxes.
        """
        sound = [box for box in boxes if is_box(box)]
        if not sound:
            return
        if len(self.labels) < _CERTAIN_LABELS:
            self.labels |= {label for label in labels if isinstance(label, str)}
        self.waiting.append((sound, size, resized or (math.nan, math.nan)))
        if len(self.waiting) >= _IMAGES_AT_ONCE:
            self.count()

    def count(self) -> None:
        """Count the images that wait; many at once, which is far faster than one by one."""
        if not self.waiting:
            return
        per_image, sizes, resized = zip(*self.waiting, strict=True)
        self.waiting.clear()
        numbers = np.array([len(boxes) for boxes in per_image])
        image, first = np.repeat(np.arange(len(numbers)), numbers), np.cumsum(numbers) - numbers
        array = np.array([box for boxes in per_image for box in boxes], dtype=np.float64)
        size = np.array(sizes, dtype=np.float64)
        corner = np.concatenate([size, size], axis=1)[image]
        parts = array / corner
        turned = (array[:, 0] > array[:, 2]) | (array[:, 1] > array[:, 3])
        others = _on_image(np.stack([order.to_xyxy(array) for order in OTHER_ORDERS]), corner)
        self.boxes += len(array)
        self.images += len(numbers)
        self.quarters += _in_quarters(parts)
        self.unfit += int((~_on_image(array, corner)).sum())
        self.turned += int(turned.sum())
        self.turned_y += int((turned & (array[:, 0] < array[:, 2])).sum())
        self.fits += others.sum(axis=1)
        reach = parts[:, 2:]
        self.reaches += np.bincount(np.searchsorted(_REACHES[:-1], reach.max(axis=1)), minlength=len(_REACHES))
        self.in_corner += int((reach <= _CORNER).all(axis=1).sum())
        self.beyond += int(((reach > 1.02).any(axis=1) & (array.min(axis=1) >= 0)).sum())
        # Width and height of the usual frames and of the resized image, (images, frames, 2).
        usual = np.broadcast_to(np.array(_SIDES)[:, None], (len(size), len(_SIDES), 2))
        sides = np.concatenate([usual, np.array(resized, dtype=np.float64)[:, None]], axis=1)
        # The shorter side of the image first: a plain copy does not fill the shorter side of a square.
        lies = (size[:, 0] > size[:, 1])[:, None, None]
        in_frame = array[:, None, 2:] / sides[image]
        within = (in_frame <= 1.002).all(axis=-1)
        filling = within[..., None] & (in_frame >= _FILLED)
        filling = np.where(lies[image], filling[..., ::-1], filling)
        self.within += within.sum(axis=0)
        self.filling += filling.sum(axis=0)
        # From here on images, not boxes.
        lowest, highest = np.minimum.reduceat(parts.min(axis=1), first), np.maximum.reduceat(parts.max(axis=1), first)
        has_turned = np.logical_or.reduceat(turned, first)
        unfit = has_turned | (np.maximum(-lowest, highest - 1) > _OVER)
        self.unfit_images += int(unfit.sum())
        self.fitting_images += np.logical_and.reduceat(others, first, axis=1)[:, unfit].sum(axis=1)
        over = (highest - 1 > _FAR_OVER) & (lowest >= 0) & ~has_turned
        all_within = np.logical_and.reduceat(within, first)
        self.far_images += int(over.sum())
        self.far_within += all_within[over].sum(axis=0)
        self.far_filling += (all_within[..., None] & np.logical_or.reduceat(filling, first))[over].sum(axis=0)
        # With a quarter of the image as the last frame.
        frames = np.concatenate([sides / size[:, None], np.full((len(size), 1, 2), 0.5)], axis=1)
        near = np.minimum.reduceat(parts[:, :2], first)[:, None]
        far = np.maximum.reduceat(parts[:, 2:], first)[:, None]
        start, end = far <= 1.002 * frames, near >= 1 - 1.002 * frames
        # Upper left; upper right, lower left, lower right.
        crossed = end[..., 0] & start[..., 1], start[..., 0] & end[..., 1]
        kept = np.stack([start.all(axis=-1), *crossed, end.all(axis=-1)], axis=-1)
        kept[(frames > _SMALLER).any(axis=-1)] = False
        kept[has_turned | over] = False
        self.kept += kept.sum(axis=0)
        self.kept_boxes += (kept[..., 0] * numbers[:, None]).sum(axis=0)
        reaching = far >= _FILLED * frames
        self.kept_filling += (kept[..., :1] & np.where(lies, reaching[..., ::-1], reaching)).sum(axis=0)

    def __add__(self, other: BoxFit) -> BoxFit:
        """The counts of both."""
        self.count()
        other.count()
        return BoxFit(**{one.name: _joined(getattr(self, one.name), getattr(other, one.name)) for one in fields(self)})

    @property
    def reach(self) -> float:
        """The 90th percentile of how far right or down boxes reach, in parts of the image."""
        place = int(np.searchsorted(np.cumsum(self.reaches), 0.9 * self.boxes))
        return float(_REACHES[min(place, len(_REACHES) - 1)])

    def diagnose(self, *, corners: bool = True, parts: bool = True) -> Diagnosis | None:
        """The mistake that the boxes share, or None.

        Args:
            corners: whether boxes in one corner count as one.
            parts: whether a mistake in a part of the images counts.
        """
        whole = self.other_order() or self._other_frame(corners)
        if not parts or (whole is not None and (whole.whole or whole.certain)):
            return whole
        part = self._part_in_other_order() or self._part_far_over()
        return part or whole or (self._part_in_frame() if corners else None)

    def other_order(self) -> Diagnosis | None:
        """Another order in which nearly all boxes fit, where many do not as xyxy."""
        self.count()
        if self.unfit < max(2, _LEAST_UNFIT * self.boxes):
            return None
        k = int(self.fits.argmax())
        order, fits = OTHER_ORDERS[k], int(self.fits[k])
        if fits < (1 - _MOST_UNEXPLAINED) * self.boxes:
            return None
        found = (
            f"As x1, y1, x2, y2, {self.unfit} of {self.boxes} boxes do not fit on their images; "
            f"{fits} of {self.boxes} do as {order.name}."
        )
        return Diagnosis("box-order", self.unfit, self.boxes, found, order.fix, order=order)

    def _part_in_other_order(self) -> Diagnosis | None:
        """Another order in which nearly all of those images fit that do not as xyxy."""
        if self.unfit_images < max(_FEWEST_IMAGES, _LEAST_IMAGES * self.images):
            return None
        k = int(self.fitting_images.argmax())
        order, fits = OTHER_ORDERS[k], int(self.fitting_images[k])
        if fits < _LEAST_EXPLAINED * self.unfit_images:
            return None
        found = (
            f"As x1, y1, x2, y2, the boxes of {self.unfit_images} of {self.images} images do not fit; {fits} of these "
            f"images do as {order.name}. A part of the rows seems to be written so, also where it does not show."
        )
        explains = ("swapped-corners", "no-area", "off-image", "partly-off-image", "small-boxes")
        fix = f"{_PART} {order.fix}"
        return Diagnosis("box-order", self.unfit, self.boxes, found, fix, False, True, explains, order)

    def _part_far_over(self) -> Diagnosis | None:
        """Images whose boxes reach far over the edge: drawn on a larger one."""
        if self.far_images < max(_FEWEST_IMAGES, _LEAST_IMAGES * self.images):
            return None
        k = _best_side(self.far_within, self.far_filling, self.far_images)
        where = "images larger than declared" if k is None else _frame_name(k)
        found = (
            f"The boxes of {self.far_images} of {self.images} images reach more than {_FAR_OVER:.0%} past the right or "
            f"lower edge; the numbers fit {where}. A part of the rows seems to be drawn so."
        )
        fix = _PART + " " + _ON_LARGER.format("" if k is None else f"; or convert them: {_scaling(k)}")
        explains = ("off-image", "partly-off-image")
        return Diagnosis("wrong-frame", self.beyond, self.boxes, found, fix, False, True, explains)

    def _part_in_frame(self) -> Diagnosis | None:
        """Images whose boxes keep to a corner that is a usual frame, while hardly any keep to the other corners."""
        counts, mirrored = self.kept[:, 0], self.kept[:, 1:].max(axis=1)
        enough = counts >= np.maximum(
            max(_FEWEST_IN_FRAME, _LEAST_IN_FRAME * self.images), _TIMES_MIRRORED * (mirrored + 1)
        )
        if not enough.any():
            return None
        filled = (self.kept_filling >= np.maximum(2, 0.02 * counts)[:, None]).all(axis=1)
        quarter = len(_SIDES) + 1
        # As many sound images keep to the upper left as to each of the other corners.
        excess = counts - self.kept[:, 1:].mean(axis=1)
        fits = enough & filled & (excess >= (1 - _MOST_UNEXPLAINED) * excess[enough].max())
        k = _smallest_side(fits[:quarter], counts)
        if k is None:
            if not enough[quarter]:
                return None
            k = quarter
        where = "the upper left quarter" if k == quarter else f"{_frame_name(k)} in the upper left"
        found = (
            f"The boxes of {counts[k]} of {self.images} images keep to {where}; at most {mirrored[k]} keep to another "
            "corner of that size. A part of the rows seems to be drawn on a smaller copy."
        )
        name, fix = ("one-corner", _LOOK) if k == quarter else ("wrong-frame", f"{_PART} {_scaling(k)}.")
        return Diagnosis(name, int(self.kept_boxes[k]), self.boxes, found, fix, False, True, ("small-boxes",))

    def _other_frame(self, corners: bool) -> Diagnosis | None:
        if self.boxes < _FEWEST_BOXES:
            return None
        cornered = corners and self.in_corner >= (1 - _MOST_UNEXPLAINED) * self.boxes
        # Where much larger numbers are seldom seen beyond the edge, they are those of a part of the images.
        of_all = self.reach < _MUCH_LARGER or self.far_images >= _MOST_FAR * self.images
        outside = self.beyond >= _LEAST_OUTSIDE * self.boxes and of_all
        if not (cornered or outside):
            return self._one_quarter() if corners else None
        # The frame that holds nearly all boxes and whose edges some of them reach.
        k = _best_side(self.within, self.filling, self.boxes)
        if outside:
            found = f"{self.beyond} of {self.boxes} boxes reach past the right or lower edge of their images"
            where = f"an image about {self.reach:.1f} times as large" if k is None else _frame_name(k)
            fix = _ON_LARGER.format("" if k is None else f"; or convert them: {_scaling(k)}")
            return Diagnosis("wrong-frame", self.beyond, self.boxes, f"{found}; the numbers fit {where}.", fix)
        found = f"{self.in_corner} of {self.boxes} boxes end within {_CORNER:.0%} of the width and of the height"
        if k is None:
            fix = _LOOK
            return self._one_quarter() or Diagnosis(
                "one-corner", self.in_corner, self.boxes, f"{found} of their images.", fix, whole=False
            )
        found = f"{found}; the numbers fit {_frame_name(k)}."
        return Diagnosis("wrong-frame", self.in_corner, self.boxes, found, f"Convert them: {_scaling(k)}.")

    def _one_quarter(self) -> Diagnosis | None:
        k = int(self.quarters.argmax())
        count = int(self.quarters[k])
        if count < (1 - _MOST_UNEXPLAINED) * self.boxes:
            return None
        of_many = self.images >= _CERTAIN_IMAGES, len(self.labels) >= _CERTAIN_LABELS
        # A wrong frame moves boxes to the upper left; a quarter elsewhere may be where one finding usually is.
        certain = self.boxes >= _CERTAIN_BOXES and (any(of_many) if k == 0 else all(of_many))
        found = f"{count} of {self.boxes} boxes lie in the {_QUARTERS[k]} quarter of their images."
        return Diagnosis("one-corner", count, self.boxes, found, _LOOK, whole=False, certain=certain)


def _best_side(within: np.ndarray, filling: np.ndarray, of: int) -> int | None:
    """The usual side, or the resized image, that holds nearly all and whose edges some reach; None where none does."""
    fits = (within >= (1 - _MOST_UNEXPLAINED) * of) & (filling.min(axis=1) >= max(2, 0.01 * of))
    return _smallest_side(fits, within)


def _smallest_side(fits: np.ndarray, held: np.ndarray) -> int | None:
    """The smallest frame that fits; of two sides close to each other, the one that holds more; None where none fits."""
    if fits[len(_SIDES)]:
        # The size that the model sees is the likeliest.
        return len(_SIDES)
    for k, side in enumerate(_SIDES):
        if fits[k]:
            close = k + 1 < len(_SIDES) and _SIDES[k + 1] <= _NEXT_SIDE * side
            return k + 1 if close and held[k + 1] > held[k] else k
    return None


def _frame_name(k: int) -> str:
    return "the resized image" if k == len(_SIDES) else f"a frame of {_SIDES[k]:g} x {_SIDES[k]:g}"


def _scaling(k: int) -> str:
    """The conversion from a frame to the image."""
    if k == len(_SIDES):
        return _SCALED.format("resized_width", "resized_height")
    return _SCALED.format(f"{_SIDES[k]:g}", f"{_SIDES[k]:g}")


def _joined(mine: Any, other: Any) -> Any:
    return mine | other if isinstance(mine, frozenset) else mine + other


def _in_quarters(parts: Boxes) -> np.ndarray:
    """How many boxes, (n, 4) in parts of the image, lie wholly in each of :data:`_QUARTERS`."""
    left, right = parts[:, [0, 2]].max(axis=1) <= 0.5, parts[:, [0, 2]].min(axis=1) >= 0.5
    upper, lower = parts[:, [1, 3]].max(axis=1) <= 0.5, parts[:, [1, 3]].min(axis=1) >= 0.5
    return np.array([left & upper, right & upper, left & lower, right & lower]).sum(axis=1)


def _on_image(boxes: Boxes, corner: np.ndarray) -> np.ndarray:
    """Which boxes, (..., n, 4), are valid and on the image, with a tolerance of 1 %."""
    parts = boxes / corner
    return valid_boxes(boxes) & (parts[..., :2].min(axis=-1) >= -0.01) & (parts[..., 2:].max(axis=-1) <= 1.01)

"""Defects of single reference boxes, and mistakes that all boxes of a dataset share.

A single box is compared with its film. A mistake in all boxes (another order of the four numbers, another frame) shows
only over many: read as xyxy many do not fit on their films, and read in another way nearly all do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.boxes import Boxes, from_xyxy, is_box, reference_defect, to_xyxy, valid_boxes

# On smaller films a box within the first pixel may be right.
_LEAST_SIDE = 16

# Common sides of resized copies and of coordinate grids.
_SIDES = (100.0, 224.0, 336.0, 448.0, 512.0, 640.0, 768.0, 896.0, 1000.0, 1024.0, 2048.0)
_FEWEST_BOXES = 20
# Another reading is found if at least this part does not fit as xyxy, and at most this part does not fit then.
_LEAST_UNFIT, _MOST_UNEXPLAINED = 0.1, 0.02
# Least number of boxes with turned corners for a mistake in a part of the rows.
_FEWEST_TURNED = 10
# Boxes are in one corner if they lie within this part of both sides.
_CORNER = 0.6
# From these numbers on, chance does not put all boxes into one quarter of the film.
_CERTAIN_BOXES, _CERTAIN_FILMS, _CERTAIN_LABELS = 30, 10, 2
_QUARTERS = ("upper left", "upper right", "lower left", "lower right")
# A frame fits if some boxes reach at least this part of its width and of its height.
_FILLED = 0.85
_LEAST_OUTSIDE = 0.3
_LOOK = "Look at the films; if the findings lie elsewhere, find out on which size the boxes were drawn."
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
        "Leave out the conversion from x, y, width, height: the boxes were corners before it.",
    ),
    OtherOrder(
        "centre x, centre y, width, height",
        lambda boxes: to_xyxy(boxes, "cxcywh"),
        "Convert once: boxes = [[x - w/2, y - h/2, x + w/2, y + h/2] for x, y, w, h in boxes].",
    ),
    OtherOrder(
        "y1, x1, y2, x2 (or width and height of the films are exchanged)",
        lambda boxes: to_xyxy(boxes, "yxyx"),
        "Exchange the axes: boxes = [[x1, y1, x2, y2] for y1, x1, y2, x2 in boxes]; if the image's own size disagrees "
        "with width and height, exchange those instead.",
    ),
)


def box_defect(box: Any, size: tuple[float, float] | None) -> str | None:
    """The first thing that is wrong with a box, or None.

    Args:
        box: what the dataset gives for a box.
        size: width and height of the film in pixels; None leaves aside what needs it.

    Returns:
        What :func:`grounding_rewards.boxes.reference_defect` finds, `normalised-boxes`, or None.

    Example:
        >>> film = (100, 200)
        >>> [box_defect(box, film) for box in ([0, 0, 100, 200], [9, 9, 4, 12], [90, 10, 110, 20], [0.1, 0.1, 0.5, 1])]
        [None, 'swapped-corners', 'partly-off-film', 'normalised-boxes']
    """
    defect = reference_defect(box, size)
    if defect == "not-finite" or size is None or min(size) < _LEAST_SIDE:
        return defect
    return "normalised-boxes" if min(box) >= 0 and 0 < max(box) <= 1 else defect


class Diagnosis(NamedTuple):
    """A mistake that all boxes share, or a part of them.

    name: `box-order`, `wrong-frame` or `one-corner`.
    shown_by: number of boxes that show it.
    of: number of all boxes.
    found: what was found, a sentence.
    fix: what to do.
    whole: whether it concerns all boxes, so that their single defects say nothing more.
    certain: of `one-corner`, whether chance is ruled out.
    """

    name: str
    shown_by: int
    of: int
    found: str
    fix: str
    whole: bool = True
    certain: bool = False


@dataclass
class BoxFit:
    """Counts of how the boxes of many films fit, as xyxy and in other readings.

    Example:
        >>> fit = BoxFit()
        >>> for k in range(30):
        ...     fit.add([[300 + k, 200 + 2 * k, 60, 40]], (512, 512))
        >>> fit.diagnose().found
        'As x1, y1, x2, y2, 30 of 30 boxes do not fit on their films; 30 of 30 do as x, y, width, height.'
    """

    boxes: int = 0
    unfit: int = 0
    turned: int = 0
    beyond: int = 0
    in_corner: int = 0
    films: int = 0
    # At most a few: enough to tell one label from several.
    labels: frozenset[str] = frozenset()
    quarters: np.ndarray = field(default_factory=lambda: np.zeros(len(_QUARTERS), dtype=np.int64))
    fits: np.ndarray = field(default_factory=lambda: np.zeros(len(OTHER_ORDERS), dtype=np.int64))
    turned_fits: np.ndarray = field(default_factory=lambda: np.zeros(len(OTHER_ORDERS), dtype=np.int64))
    within: np.ndarray = field(default_factory=lambda: np.zeros(len(_SIDES) + 1, dtype=np.int64))
    filling: np.ndarray = field(default_factory=lambda: np.zeros((len(_SIDES) + 1, 2), dtype=np.int64))
    reaches: np.ndarray = field(default_factory=lambda: np.zeros(len(_REACHES), dtype=np.int64))

    def add(
        self,
        boxes: Sequence[Any],
        size: tuple[float, float],
        resized: tuple[float, float] | None = None,
        labels: Sequence[Any] = (),
    ) -> None:
        """Count the boxes of one film.

        Args:
            boxes: others than four finite numbers are skipped.
            size: width and height of the film.
            resized: width and height at which the model sees the film, if known.
            labels: of the boxes.
        """
        array = np.array([box for box in boxes if is_box(box)], dtype=np.float64).reshape(-1, 4)
        if not len(array):
            return
        corner = np.array([*size, *size])
        fit = _on_film(array, corner)
        turned = (array[:, 0] > array[:, 2]) | (array[:, 1] > array[:, 3])
        others = np.array([_on_film(order.to_xyxy(array), corner) for order in OTHER_ORDERS])
        self.boxes += len(array)
        self.films += 1
        if len(self.labels) < _CERTAIN_LABELS:
            self.labels |= {label for label in labels if isinstance(label, str)}
        self.quarters += _in_quarters(array / corner)
        self.unfit += int((~fit).sum())
        self.turned += int(turned.sum())
        self.fits += others.sum(axis=1)
        self.turned_fits += (others & turned).sum(axis=1)
        reach = array[:, 2:] / corner[:2]
        self.reaches += np.bincount(np.searchsorted(_REACHES[:-1], reach.max(axis=1)), minlength=len(_REACHES))
        self.in_corner += int((reach <= _CORNER).all(axis=1).sum())
        self.beyond += int(((reach > 1.02).any(axis=1) & (array.min(axis=1) >= 0)).sum())
        sides = np.array([[side, side] for side in _SIDES] + [resized or (math.nan, math.nan)])
        parts = array[:, None, 2:] / sides
        within = (parts <= 1.002).all(axis=-1)
        self.within += within.sum(axis=0)
        self.filling += (within[..., None] & (parts >= _FILLED)).sum(axis=0)

    def __add__(self, other: BoxFit) -> BoxFit:
        """The counts of both."""
        return BoxFit(**{one.name: _joined(getattr(self, one.name), getattr(other, one.name)) for one in fields(self)})

    @property
    def reach(self) -> float:
        """The 90th percentile of how far right or down boxes reach, in parts of the film."""
        place = int(np.searchsorted(np.cumsum(self.reaches), 0.9 * self.boxes))
        return float(_REACHES[min(place, len(_REACHES) - 1)])

    def diagnose(self, *, corners: bool = True) -> Diagnosis | None:
        """The mistake that the boxes share, or None; `corners` says whether boxes in one corner count as one."""
        return self._other_order() or self._other_frame(corners)

    def _other_order(self) -> Diagnosis | None:
        if self.unfit >= max(2, _LEAST_UNFIT * self.boxes):
            for order, fits in zip(OTHER_ORDERS, self.fits.tolist(), strict=True):
                if fits >= (1 - _MOST_UNEXPLAINED) * self.boxes:
                    found = (
                        f"As x1, y1, x2, y2, {self.unfit} of {self.boxes} boxes do not fit on their films; "
                        f"{fits} of {self.boxes} do as {order.name}."
                    )
                    return Diagnosis("box-order", self.unfit, self.boxes, found, order.fix)
        if self.turned >= _FEWEST_TURNED:
            order, fits = OTHER_ORDERS[0], int(self.turned_fits[0])
            if fits >= (1 - _MOST_UNEXPLAINED) * self.turned:
                found = (
                    f"{self.turned} of {self.boxes} boxes have x2 < x1 or y2 < y1, and {fits} of them fit on their "
                    f"films as {order.name}; a part of the rows seems to be written so."
                )
                fix = f"Find out which source these rows come from, and convert it alone. {order.fix}"
                return Diagnosis("box-order", self.turned, self.boxes, found, fix, whole=False)
        return None

    def _other_frame(self, corners: bool) -> Diagnosis | None:
        if self.boxes < _FEWEST_BOXES:
            return None
        cornered = corners and self.in_corner >= (1 - _MOST_UNEXPLAINED) * self.boxes
        outside = self.beyond >= _LEAST_OUTSIDE * self.boxes
        if not (cornered or outside):
            return self._one_quarter() if corners else None
        frame = self._frame()
        if outside:
            found = f"{self.beyond} of {self.boxes} boxes reach past the right or lower edge of their films"
            where = frame or f"a film about {self.reach:.1f} times as large"
            fix = (
                f"They seem to be drawn on {where}: multiply x by width / that width and y by height / that height, or "
                "give the size of the film that they were drawn on in width and height."
            )
            return Diagnosis("wrong-frame", self.beyond, self.boxes, f"{found}; the numbers fit {where}.", fix)
        found = f"{self.in_corner} of {self.boxes} boxes end within {_CORNER:.0%} of the width and of the height"
        if frame is None:
            fix = _LOOK
            return self._one_quarter() or Diagnosis(
                "one-corner", self.in_corner, self.boxes, f"{found} of their films.", fix, whole=False
            )
        fix = (
            f"Scale the boxes from {frame} to the film: multiply x by width / that width and y by height / that height."
        )
        return Diagnosis("wrong-frame", self.in_corner, self.boxes, f"{found}; the numbers fit {frame}.", fix)

    def _one_quarter(self) -> Diagnosis | None:
        k = int(self.quarters.argmax())
        count = int(self.quarters[k])
        if count < (1 - _MOST_UNEXPLAINED) * self.boxes:
            return None
        of_many = self.films >= _CERTAIN_FILMS, len(self.labels) >= _CERTAIN_LABELS
        # A wrong frame moves boxes to the upper left; a quarter elsewhere may be where one finding usually is.
        certain = self.boxes >= _CERTAIN_BOXES and (any(of_many) if k == 0 else all(of_many))
        found = f"{count} of {self.boxes} boxes lie in the {_QUARTERS[k]} quarter of their films."
        return Diagnosis("one-corner", count, self.boxes, found, _LOOK, whole=False, certain=certain)

    def _frame(self) -> str | None:
        """The frame that holds nearly all boxes and whose edges some of them reach, in words."""
        names = [*(f"a frame of {side:g} x {side:g}" for side in _SIDES), "the resized film"]
        # The size that the model sees is the likeliest.
        for k in (len(_SIDES), *range(len(_SIDES))):
            fits = self.within[k] >= (1 - _MOST_UNEXPLAINED) * self.boxes
            if fits and self.filling[k].min() >= max(2, 0.01 * self.boxes):
                return names[k]
        return None


def _joined(mine: Any, other: Any) -> Any:
    return mine | other if isinstance(mine, frozenset) else mine + other


def _in_quarters(parts: Boxes) -> np.ndarray:
    """How many boxes, (n, 4) in parts of the film, lie wholly in each of :data:`_QUARTERS`."""
    left, right = parts[:, [0, 2]].max(axis=1) <= 0.5, parts[:, [0, 2]].min(axis=1) >= 0.5
    upper, lower = parts[:, [1, 3]].max(axis=1) <= 0.5, parts[:, [1, 3]].min(axis=1) >= 0.5
    return np.array([left & upper, right & upper, left & lower, right & lower]).sum(axis=1)


def _on_film(boxes: Boxes, corner: np.ndarray) -> np.ndarray:
    """Which boxes are valid and on the film, with a tolerance of 1 %."""
    parts = boxes / corner
    return valid_boxes(boxes) & (parts[:, :2].min(axis=1) >= -0.01) & (parts[:, 2:].max(axis=1) <= 1.01)

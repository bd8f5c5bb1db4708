"""A normal chest with individual proportions, in millimetres, and the maps of what a ray loses on its way through it.

Proportions are those of an adult; the cardiothoracic ratio (width of the heart over the inner width of the chest) of a
normal heart is below 0.5.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

VIEWS = ("PA", "AP")
"""Projections: back to front, and front to back (in bed)."""

_NORMAL_RATIO = (0.40, 0.48)
_EDGE = 4.0

# Outline of a lung from its apex (0) to its lowest point (1): distance of the inner and outer edge from the midline in
# half widths of the chest.
_LEVELS = (0.0, 0.05, 0.16, 0.35, 0.6, 0.85, 1.0)
_INNER = (0.42, 0.27, 0.19, 0.17, 0.19, 0.21, 0.22)
_OUTER = (0.44, 0.62, 0.79, 0.90, 0.97, 1.0, 0.99)

Box = tuple[int, int, int, int]

# How much less a ray loses in air-filled lung than in as much soft tissue.
_AIR = 1.15

# A finding is visible from this part of its full strength on.
_VISIBLE = 0.2

_BUT_LAST, _BUT_FIRST = slice(None, -1), slice(1, None)


class Line(NamedTuple):
    """A line of straight pieces.

    points: `(n, 2)` of x and y in millimetres.
    width: In millimetres.
    amount: Added in its middle.
    """

    points: np.ndarray
    width: float
    amount: float


class Canvas:
    """Maps of one image, each `(rows, columns)`; all lengths are millimetres from the upper left corner.

    tissue: loss in soft tissue, bone and metal.
    air: share of the thickness that is air-filled lung, 0 to 1.
    vessels: loss in the vessels of the lung, counted where there is air around them.
    """

    def __init__(self, rows: int, columns: int, spacing: float) -> None:
        self.spacing = spacing
        self.x = ((np.arange(columns) + 0.5) * spacing)[None, :]
        self.y = ((np.arange(rows) + 0.5) * spacing)[:, None]
        self.tissue = np.zeros((rows, columns))
        self.air = np.zeros((rows, columns))
        self.vessels = np.zeros((rows, columns))

    def attenuation(self) -> np.ndarray:
        """The loss of all maps together, `(rows, columns)`, at least 0."""
        return np.maximum(self.tissue - _AIR * self.air + self.vessels * self.air, 0.0)

    def ellipse(self, cx: float, cy: float, rx: float, ry: float, *, softness: float, tilt: float = 0.0) -> np.ndarray:
        """An ellipse of ones with a soft edge, `(rows, columns)`; `tilt` in radians, clockwise."""
        x, y = self.x - cx, self.y - cy
        along, across = x * np.cos(tilt) + y * np.sin(tilt), y * np.cos(tilt) - x * np.sin(tilt)
        return ramp((1.0 - np.hypot(along / rx, across / ry)) * min(rx, ry), softness)

    def add_lines(self, target: np.ndarray, lines: Sequence[Line]) -> None:
        """Add lines with round ends to a map, in their order; overlaps of the pieces of one line are not darker.

        All lines are worked on together, and of each piece only the pixels near it: an image has hundreds of lines.
        """
        if not lines:
            return
        widths, amounts = np.array([(line.width, line.amount) for line in lines]).T
        softness = np.maximum(self.spacing, widths / 4)
        starts, ends = (np.concatenate([line.points[cut] for line in lines]) for cut in (_BUT_LAST, _BUT_FIRST))
        pieces = np.array([len(line.points) - 1 for line in lines])
        line_of = np.repeat(np.arange(len(lines)), pieces)
        low, high = np.minimum(starts, ends), np.maximum(starts, ends)

        # A line ends at its window, even where its soft edge would reach further.
        reach, first_piece = (widths / 2 + self.spacing)[:, None], np.cumsum(pieces) - pieces
        left_top, right_bottom = self._windows(
            np.minimum.reduceat(low, first_piece) - reach, np.maximum.reduceat(high, first_piece) + reach
        )
        size = right_bottom - left_top
        # Where each line begins in a list of the pixels of all lines' windows.
        area = size.prod(axis=1)
        begin = np.cumsum(area) - area

        # The pixels that each piece reaches, one after the other; on all others it adds nothing.
        reach = (widths / 2 + softness / 2)[line_of, None]
        first, stop = self._windows(low - reach, high + reach)
        first, stop = np.maximum(first, left_top[line_of]), np.minimum(stop, right_bottom[line_of])
        columns, rows = np.maximum(stop - first, 0).T
        piece = np.repeat(np.arange(len(starts)), rows * columns)
        number = np.arange(len(piece)) - np.repeat(np.cumsum(rows * columns) - rows * columns, rows * columns)
        row, column = first[piece, 1] + number // columns[piece], first[piece, 0] + number % columns[piece]

        x1, y1, dx, dy = (values[piece] for values in (*starts.T, *(ends - starts).T))
        x, y = self.x[0, column] - x1, self.y[row, 0] - y1
        share = np.minimum(np.maximum((x * dx + y * dy) / np.maximum(dx * dx + dy * dy, 1e-9), 0.0), 1.0)
        line = line_of[piece]
        at = begin[line] + (row - left_top[line, 1]) * size[line, 0] + column - left_top[line, 0]
        nearest, pixel = np.full(area.sum(), np.inf), np.zeros(area.sum(), dtype=int)
        np.minimum.at(nearest, at, np.hypot(x - share * dx, y - share * dy))
        pixel[at] = row * target.shape[1] + column
        (reached,) = np.isfinite(nearest).nonzero()
        line = np.repeat(np.arange(len(lines)), area)[reached]
        added = amounts[line] * ramp(widths[line] / 2 - nearest[reached], softness[line])
        np.add.at(target.reshape(-1), pixel[reached], added)

    def _windows(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first and the last column and row, that one excluded, that rectangles touch; each `(n, 2)`."""
        ends = self.tissue.shape[::-1]
        first, stop = np.clip(low / self.spacing, 0, ends), np.clip((high + self.spacing) / self.spacing, 0, ends)
        return first.astype(int), stop.astype(int)


def ramp(inward: np.ndarray, softness: float) -> np.ndarray:
    """0 outside, 1 inside, smooth over `softness` around the edge; `inward` is the distance from the edge."""
    share = np.minimum(np.maximum(inward / softness + 0.5, 0.0), 1.0)
    return share * share * (3.0 - 2.0 * share)


def visible_box(mask: np.ndarray) -> Box | None:
    """The box around the visible part of a mask, xyxy in pixels; None if nothing is visible."""
    visible = mask > _VISIBLE
    rows, columns = np.flatnonzero(visible.any(axis=1)), np.flatnonzero(visible.any(axis=0))
    if not rows.size:
        return None
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


@functools.cache
def _outline(shape: tuple[float, ...]) -> Callable[[np.ndarray], np.ndarray]:
    """A smooth curve through the distances of `shape` at `_LEVELS`; of one image it is asked for a hundred times."""
    from scipy.interpolate import PchipInterpolator

    return PchipInterpolator(_LEVELS, shape)


@dataclass(frozen=True)
class Lung:
    """One lung.

    side: -1 in the left half of the image, which is the patient's right; 1 in the other.
    middle: x of the midline.
    top, base: y of the apex and of the lowest point.
    half_width: of the chest.
    dome: how far the diaphragm rises above the lowest point.
    """

    side: int
    middle: float
    top: float
    base: float
    half_width: float
    dome: float

    def edges(self, y: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """The smaller and the larger x of the lung at a height."""
        level = np.clip((np.asarray(y) - self.top) / (self.base - self.top), 0.0, 1.0)
        inner_edge, outer_edge = (_outline(shape)(level) * self.half_width for shape in (_INNER, _OUTER))
        if self.side < 0:
            return self.middle - outer_edge, self.middle - inner_edge
        return self.middle + inner_edge, self.middle + outer_edge

    def floor(self, x: np.ndarray | float) -> np.ndarray:
        """The y of the diaphragm: a dome that falls steeply to the wall."""
        x_min, x_max = self.edges(self.base - 0.15 * (self.base - self.top))
        share = np.clip((np.asarray(x) - x_min) / (x_max - x_min), 0.0, 1.0)
        share = 1.0 - share if self.side < 0 else share
        outer = np.clip((share - 0.4) / 0.6, 0.0, 1.0) ** 2.5
        inner = 0.35 * np.clip((0.4 - share) / 0.4, 0.0, 1.0) ** 2
        return self.base - self.dome * (1.0 - outer - inner)

    def inward(self, canvas: Canvas) -> np.ndarray:
        """Distance of every pixel from the edge of the lung, negative outside; `(rows, columns)`."""
        x_min, x_max = self.edges(canvas.y)
        sides = np.minimum(canvas.x - x_min, x_max - canvas.x)
        return np.minimum(sides, np.minimum(self.floor(canvas.x) - canvas.y, canvas.y - self.top))

    def place(self, across: float, down: float) -> tuple[float, float]:
        """The point at these shares of the lung's width, from its smaller x, and of its height above the diaphragm."""
        y = self.top + down * (self.base - self.dome - self.top)
        x_min, x_max = self.edges(y)
        return float(x_min + across * (x_max - x_min)), y


@dataclass(frozen=True)
class Anatomy:
    """The proportions of a patient in one projection, and the seed of random details.

    heart_ratio: the cardiothoracic ratio.
    lungs: the right and the left one.
    """

    view: str
    middle: float
    heart_ratio: float
    lungs: tuple[Lung, ...]
    breasts: bool
    seed: int

    @property
    def top(self) -> float:
        return self.lungs[0].top

    @property
    def base(self) -> float:
        return self.lungs[0].base

    @property
    def half_width(self) -> float:
        return self.lungs[0].half_width


def plan_anatomy(rng: np.random.Generator, view: str, width: float, height: float) -> Anatomy:
    """Choose the proportions of a patient at random, for one of `VIEWS` and an image of this size in millimetres."""
    half_width = float(rng.uniform(128.0, 152.0)) * min(1.0, width / 340.0)
    middle = width / 2 + float(rng.uniform(-10.0, 10.0)) * (width / 350.0)
    # Patients in bed breathe in less deeply
    lung = float(rng.uniform(235.0, 275.0) if view != "AP" else rng.uniform(200.0, 240.0)) * min(1.0, height / 400.0)
    top = (height - lung) * float(rng.uniform(0.33, 0.45))
    dome = float(rng.uniform(32.0, 46.0))
    drop = float(rng.uniform(4.0, 14.0))
    ratio = float(rng.uniform(*_NORMAL_RATIO)) * (1.08 if view == "AP" else 1.0)
    lungs = tuple(Lung(side, middle, top, top + lung + drop * (side > 0), half_width, dome) for side in (-1, 1))
    return Anatomy(view, middle, ratio, lungs, bool(rng.random() < 0.4), int(rng.integers(2**32)))


def paint_anatomy(canvas: Canvas, anatomy: Anatomy) -> None:
    """Paint everything but the heart."""
    from scipy.interpolate import PchipInterpolator

    rng = np.random.default_rng(anatomy.seed)
    for lung in anatomy.lungs:
        canvas.air = np.maximum(canvas.air, ramp(lung.inward(canvas), _EDGE))
    middle, top, base, half = anatomy.middle, anatomy.top, anatomy.base, anatomy.half_width
    heights = np.array([top - 400, top - 55, top - 30, top - 5, top + 45, top + 115, base, base + 200])
    outline = PchipInterpolator(heights, [56, 58, 85, half + 28, half + 62, half + 34, half + 24, half + 30])(canvas.y)
    across = np.abs(canvas.x - middle) / outline
    canvas.tissue += 1.5 * np.clip(1.0 - 0.45 * across**3, 0.0, 1.0) * ramp((1.0 - across) * outline, 6.0)
    canvas.tissue += 0.3 * ramp(canvas.y - base + 10.0, 40.0) * (across < 1.0)
    windpipe = Line(np.array([[middle, -20.0], [middle + 1.0, top + 62.0]]), 17.0, -0.30)
    canvas.add_lines(canvas.tissue, [*_spine(middle, base + 300.0, width=34.0), windpipe])
    canvas.air *= 1.0 - 0.8 * canvas.ellipse(middle + 0.13 * half, top + 74.0, 19.0, 26.0, softness=_EDGE)
    canvas.tissue -= 0.35 * canvas.ellipse(middle + 0.5 * half, base - 6.0, 26.0, 15.0, softness=6.0)
    for lung in anatomy.lungs:
        side = lung.side
        bronchus = Line(np.array([[middle, top + 62.0], [middle + side * 30.0, top + 86.0]]), 11.0, -0.15)
        collar_x = middle + side * 13.0, middle + side * 0.45 * half, middle + side * 1.12 * half
        collar = Line(np.column_stack([collar_x, [top + 33.0, top + 20.0, top + 2.0]]), 12.0, 0.22)
        blade_x = middle + side * (half + 6.0), middle + side * (half - 4.0)
        blade = Line(np.column_stack([blade_x, [top + 25.0, top + 125.0]]), 12.0, 0.13)
        canvas.add_lines(canvas.tissue, [bronchus, *_ribs(lung), collar, blade])
        if anatomy.breasts:
            chest = canvas.ellipse(middle + side * 0.55 * half, base - 62.0, 0.42 * half, 52.0, softness=14.0)
            canvas.tissue += 0.14 * chest
    vessels = [line for lung in anatomy.lungs for line in _vessels(lung, rng, thinnest=canvas.spacing / 2)]
    canvas.add_lines(canvas.vessels, vessels)


def paint_heart(canvas: Canvas, anatomy: Anatomy, ratio: float) -> np.ndarray:
    """Push the lung aside for a heart of this cardiothoracic ratio, and return its mask, `(rows, columns)`."""
    width = 2.0 * anatomy.half_width * ratio
    floor = anatomy.base - anatomy.lungs[0].dome
    # A large heart grows to the sides rather than upwards
    flat = 0.40 * float(np.sqrt(0.44 / max(ratio, 0.44)))
    # A third of the heart lies right of the midline
    x, y = anatomy.middle + 0.17 * width, floor + 18.0 - 0.9 * flat * width
    mask = canvas.ellipse(x, y, 0.54 * width, flat * width, softness=_EDGE, tilt=0.6)
    canvas.air *= 1.0 - 0.9 * mask
    canvas.tissue += 0.25 * mask
    return mask


def _spine(x: float, end: float, *, width: float) -> list[Line]:
    discs = np.arange(12.0, end, 25.0)
    across = x - width / 2 + 4.0, x + width / 2 - 4.0
    return [
        Line(np.array([[x, 0.0], [x, end]]), width, 0.30),
        *(Line(np.array([[across[0], y], [across[1], y]]), 4.0, -0.10) for y in discs),
    ]


def _ribs(lung: Lung) -> list[Line]:
    ribs: list[Line] = []
    share = np.linspace(0.0, 1.0, 14)
    gap = (lung.base - lung.top) / 9.0
    starts = lung.top - 2.0 + np.arange(10) * gap
    first_reach, second_reach = (np.abs(edge - lung.middle) for edge in lung.edges(starts + 10.0))
    for number, (start, reach) in enumerate(zip(starts, np.maximum(first_reach, second_reach) + 5.0, strict=True)):
        x = lung.middle + lung.side * (16.0 + share * (reach - 16.0))
        back = np.stack([x, start - 9.0 * np.sin(np.pi * share * 0.9) + (14.0 + 3.0 * number) * share**2.2], axis=1)
        ribs += [Line(back, 10.0, 0.15), Line(back, 5.5, -0.05)]
        if 0 < number < 7:
            front = np.stack([x[4:], back[-1, 1] + 44.0 * (1.0 - share[4:]) ** 0.8 + 4.0], axis=1)
            ribs.append(Line(front, 11.0, 0.07))
    return ribs


def _vessels(lung: Lung, rng: np.random.Generator, *, thinnest: float) -> list[Line]:
    """44 branches from the root of the lung, of four parts of two pieces each, that thin out towards its edge."""
    outward = np.pi if lung.side < 0 else 0.0
    draws = [
        (rng.uniform(-1.45, 1.45), rng.normal(0.0, (4.0, 14.0)), rng.uniform(1.8, 4.5), rng.normal(0.0, 0.22, 8))
        for _ in range(44)
    ]
    turn, shift, root_width, bends = (np.array(values) for values in zip(*draws, strict=True))
    angles = np.cumsum(np.column_stack([outward + turn, bends]), axis=1)[:, 1:]
    steps = 0.95 * lung.half_width / 9.0 * np.stack([np.cos(angles), np.sin(angles)], axis=2)
    roots = np.array(lung.place(0.95 if lung.side < 0 else 0.05, 0.55)) + shift
    points = np.cumsum(np.concatenate([roots[:, None], steps], axis=1), axis=1)
    widths = np.cumprod(np.column_stack([root_width, np.full((44, 3), 0.72)]), axis=1)
    return [
        Line(branch[2 * part : 2 * part + 3], width, 0.14 * min(1.0, width / 2.5))
        for branch, branch_widths in zip(points, widths.tolist(), strict=True)
        for part, width in enumerate(branch_widths)
        # Nobody sees what is narrower than half a pixel, and small images are drawn by the thousand.
        if width >= thinnest
    ]

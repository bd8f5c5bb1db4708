"""A normal chest with individual proportions, in millimetres, painted on maps of how much it attenuates the rays.

Proportions are those of an adult; the cardiothoracic ratio (width of the heart over the inner width of the chest) of a
normal heart is below 0.5.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

VIEWS = ("PA", "AP")
"""Projections: back to front, and front to back (in bed)."""

# Range of the cardiothoracic ratio of a normal heart.
_NORMAL_RATIO = (0.40, 0.48)
#: Width of soft edges in millimetres.
EDGE = 4.0

# Outline of a lung from its apex (level 0) to its lowest point (1): distance of the inner and of the outer edge from
# the midline in half widths of the chest.
_LEVELS = (0.0, 0.05, 0.16, 0.35, 0.6, 0.85, 1.0)
_INNER = (0.42, 0.27, 0.19, 0.17, 0.19, 0.21, 0.22)
_OUTER = (0.44, 0.62, 0.79, 0.90, 0.97, 1.0, 0.99)

Box = tuple[int, int, int, int]

# Attenuation that air-filled lung takes away from soft tissue of the same thickness.
_AIR = 1.15

# Vessels of a lung, the parts of each, and how much narrower a part is than the one before.
_VESSELS = 44
_PARTS = 4
_THINNING = 0.72
# Attenuation in the middle of a vessel of 2.5 mm or more; a thinner one is fainter.
_VESSEL_AMOUNT = 0.14

# Smallest value of a mask at which a finding is visible.
_VISIBLE = 0.2


class Line(NamedTuple):
    """A line of straight pieces.

    Attributes:
        points: `(n, 2)`, x and y in millimetres.
        width: In millimetres.
        amount: Added to the map in the middle of the line.
    """

    points: np.ndarray
    width: float
    amount: float


class Canvas:
    """Maps of one image, each `(rows, columns)`; all lengths are millimetres from the upper left corner.

    Attributes:
        spacing: Millimetres per pixel.
        x: `(1, columns)`, of the middles of pixels.
        y: `(rows, 1)`, of the middles of pixels.
        tissue: Attenuation by soft tissue, bone and metal.
        air: Share of the thickness that is air-filled lung, 0 to 1.
        vessels: Attenuation by the vessels of the lung, which counts only inside air.
    """

    def __init__(self, rows: int, columns: int, spacing: float) -> None:
        self.spacing = spacing
        self.x = ((np.arange(columns) + 0.5) * spacing)[None, :]
        self.y = ((np.arange(rows) + 0.5) * spacing)[:, None]
        self.tissue = np.zeros((rows, columns))
        self.air = np.zeros((rows, columns))
        self.vessels = np.zeros((rows, columns))

    def attenuation(self) -> np.ndarray:
        """The attenuation by all maps together, `(rows, columns)`, at least 0."""
        return np.maximum(self.tissue - _AIR * self.air + self.vessels * self.air, 0.0)

    def ellipse(self, cx: float, cy: float, rx: float, ry: float, *, softness: float, tilt: float = 0.0) -> np.ndarray:
        """A map with an ellipse of ones with a soft edge, `(rows, columns)`.

        Args:
            cx: Of its centre.
            cy: Likewise.
            rx: Radius along x before it is tilted.
            ry: Radius along y before it is tilted.
            softness: Width of its edge.
            tilt: In radians, clockwise.
        """
        x, y = self.x - cx, self.y - cy
        along = x * np.cos(tilt) + y * np.sin(tilt)
        across = y * np.cos(tilt) - x * np.sin(tilt)
        return ramp((1.0 - np.hypot(along / rx, across / ry)) * min(rx, ry), softness)

    def add_lines(self, target: np.ndarray, lines: Sequence[Line]) -> None:
        """Add lines with round ends to a map in place; a line adds once where its own pieces overlap."""
        for points, width, amount in lines:
            # Nothing is added outside this window, even if the soft edge would reach further.
            reach = width / 2 + self.spacing
            columns = self._pixels_near(points[:, 0].tolist(), reach, target.shape[1])
            rows = self._pixels_near(points[:, 1].tolist(), reach, target.shape[0])
            # x and y of the start of each piece, and of its way to the end, `(pieces, 1, 1)`.
            x1, y1 = points[:-1].T[:, :, None, None]
            dx, dy = (points[1:] - points[:-1]).T[:, :, None, None]
            # The distance of each pixel from each piece, of which the nearest counts: from the point of the piece that
            # is nearest to the pixel, at this share of the way. A piece may be a point, without a way.
            x, y = self.x[:, columns] - x1, self.y[rows] - y1
            share = np.minimum(np.maximum((x * dx + y * dy) / np.maximum(dx * dx + dy * dy, 1e-9), 0.0), 1.0)
            distance = np.hypot(x - share * dx, y - share * dy).min(axis=0)
            shade = ramp(width / 2 - distance, max(self.spacing, width / 4))
            target[rows, columns] += amount * shade

    def _pixels_near(self, values: Sequence[float], reach: float, pixels: int) -> slice:
        """The slice of an axis of so many pixels that the values, in millimetres, and `reach` around them touch."""
        start, stop = (min(values) - reach) / self.spacing, (max(values) + reach + self.spacing) / self.spacing
        return slice(int(min(max(start, 0), pixels)), int(min(max(stop, 0), pixels)))


def ramp(inward: np.ndarray, softness: float) -> np.ndarray:
    """A smooth step from 0 outside to 1 inside an edge.

    Args:
        inward: Distance from the edge, positive inside.
        softness: Width of the step.
    """
    share = np.minimum(np.maximum(inward / softness + 0.5, 0.0), 1.0)
    return share * share * (3.0 - 2.0 * share)


def visible_box(mask: np.ndarray) -> Box | None:
    """The box around the visible part of a mask, xyxy in pixels; None if nothing is visible."""
    visible = mask > _VISIBLE
    rows = np.flatnonzero(visible.any(axis=1))
    columns = np.flatnonzero(visible.any(axis=0))
    if not rows.size:
        return None
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


@functools.cache
def _outline(shape: tuple[float, ...]) -> Callable[[np.ndarray], np.ndarray]:
    """The smooth function from a level to a distance that has the values of `shape` at `_LEVELS`; each is made once."""
    from scipy.interpolate import PchipInterpolator

    return PchipInterpolator(_LEVELS, shape)


@dataclass(frozen=True)
class Lung:
    """One lung.

    Attributes:
        side: -1 in the left half of the image, which is the patient's right; 1 in the other.
        middle: x of the midline.
        top: y of the apex.
        base: y of the lowest point.
        half_width: Of the chest.
        dome: Height of the diaphragm above the lowest point.
    """

    side: int
    middle: float
    top: float
    base: float
    half_width: float
    dome: float

    def edges(self, y: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """The smaller and the larger x of the lung at this y."""
        level = np.clip((np.asarray(y) - self.top) / (self.base - self.top), 0.0, 1.0)
        inner_edge, outer_edge = (_outline(shape)(level) * self.half_width for shape in (_INNER, _OUTER))
        if self.side < 0:
            return self.middle - outer_edge, self.middle - inner_edge
        return self.middle + inner_edge, self.middle + outer_edge

    def floor(self, x: np.ndarray | float) -> np.ndarray:
        """The y of the diaphragm: a dome, highest at 0.4 of the way to the wall, to which it falls steeply."""
        # Where the lung is widest, see `_OUTER`.
        x_min, x_max = self.edges(self.base - 0.15 * (self.base - self.top))
        from_left = np.clip((np.asarray(x) - x_min) / (x_max - x_min), 0.0, 1.0)
        # 0 at the midline, 1 at the wall.
        share = 1.0 - from_left if self.side < 0 else from_left
        # The part of its height that the dome has fallen: all at the wall, 0.35 at the midline.
        outer = np.clip((share - 0.4) / 0.6, 0.0, 1.0) ** 2.5
        inner = 0.35 * np.clip((0.4 - share) / 0.4, 0.0, 1.0) ** 2
        return self.base - self.dome * (1.0 - outer - inner)

    def inward(self, canvas: Canvas) -> np.ndarray:
        """Distance of every pixel from the edge of the lung, negative outside; `(rows, columns)`."""
        x_min, x_max = self.edges(canvas.y)
        sides = np.minimum(canvas.x - x_min, x_max - canvas.x)
        return np.minimum(sides, np.minimum(self.floor(canvas.x) - canvas.y, canvas.y - self.top))

    def point(self, across: float, down: float) -> tuple[float, float]:
        """The x and y at these shares of the lung's width, from its smaller x, and of its height down to the dome."""
        y = self.top + down * (self.base - self.dome - self.top)
        x_min, x_max = self.edges(y)
        return float(x_min + across * (x_max - x_min)), y


@dataclass(frozen=True)
class Anatomy:
    """The proportions of a patient in one projection.

    Attributes:
        view: One of `VIEWS`.
        middle: x of the midline.
        top: y of the apex of both lungs.
        base: y of the lowest point of the right lung.
        half_width: Half the width of the chest.
        heart_ratio: The cardiothoracic ratio.
        lungs: The patient's right and left one.
        breasts: Whether the shadows of breasts are painted.
        seed: Of random details.
    """

    view: str
    middle: float
    top: float
    base: float
    half_width: float
    heart_ratio: float
    lungs: tuple[Lung, ...]
    breasts: bool
    seed: int


def plan_anatomy(rng: np.random.Generator, view: str, width: float, height: float) -> Anatomy:
    """Choose the proportions of a patient at random, for one of `VIEWS` and an image of this size; in millimetres."""
    # On a smaller image the chest is smaller, so that it fits.
    half_width = float(rng.uniform(128.0, 152.0)) * min(1.0, width / 340.0)
    middle = width / 2 + float(rng.uniform(-10.0, 10.0)) * (width / 350.0)
    # Patients in bed breathe in less deeply, and their hearts look larger.
    shortest, longest, magnification = (200.0, 240.0, 1.08) if view == "AP" else (235.0, 275.0, 1.0)
    length = float(rng.uniform(shortest, longest)) * min(1.0, height / 400.0)
    top = (height - length) * float(rng.uniform(0.33, 0.45))
    dome = float(rng.uniform(32.0, 46.0))
    # The left lung reaches lower.
    drop = float(rng.uniform(4.0, 14.0))
    ratio = float(rng.uniform(*_NORMAL_RATIO)) * magnification
    right_lung = Lung(-1, middle, top, top + length, half_width, dome)
    left_lung = Lung(1, middle, top, top + length + drop, half_width, dome)
    has_breasts, seed = bool(rng.random() < 0.4), int(rng.integers(2**32))
    return Anatomy(view, middle, top, top + length, half_width, ratio, (right_lung, left_lung), has_breasts, seed)


def paint_anatomy(canvas: Canvas, anatomy: Anatomy) -> None:
    """Paint everything but the heart onto the maps of the canvas, in millimetres around the midline and the apex."""
    from scipy.interpolate import PchipInterpolator

    rng = np.random.default_rng(anatomy.seed)
    for lung in anatomy.lungs:
        canvas.air = np.maximum(canvas.air, ramp(lung.inward(canvas), EDGE))
    middle, top, base, half = anatomy.middle, anatomy.top, anatomy.base, anatomy.half_width
    # The body from the neck over the shoulders to the hips, thinner towards its sides, and denser below the lungs.
    heights = np.array([top - 400, top - 55, top - 30, top - 5, top + 45, top + 115, base, base + 200])
    outline = PchipInterpolator(heights, [56, 58, 85, half + 28, half + 62, half + 34, half + 24, half + 30])(canvas.y)
    across = np.abs(canvas.x - middle) / outline
    canvas.tissue += 1.5 * np.clip(1.0 - 0.45 * across**3, 0.0, 1.0) * ramp((1.0 - across) * outline, 6.0)
    canvas.tissue += 0.3 * ramp(canvas.y - base + 10.0, 40.0) * (across < 1.0)
    # The windpipe is full of air; the arch of the aorta displaces some, and the stomach below has a bubble.
    windpipe = Line(np.array([[middle, -20.0], [middle + 1.0, top + 62.0]]), width=17.0, amount=-0.30)
    canvas.add_lines(canvas.tissue, [*_spine(middle, base + 300.0, width=34.0), windpipe])
    canvas.air *= 1.0 - 0.8 * canvas.ellipse(middle + 0.13 * half, top + 74.0, 19.0, 26.0, softness=EDGE)
    canvas.tissue -= 0.35 * canvas.ellipse(middle + 0.5 * half, base - 6.0, 26.0, 15.0, softness=6.0)
    for lung in anatomy.lungs:
        side = lung.side
        bronchus = Line(np.array([[middle, top + 62.0], [middle + side * 30.0, top + 86.0]]), width=11.0, amount=-0.15)
        collar_x = middle + side * 13.0, middle + side * 0.45 * half, middle + side * 1.12 * half
        collar = Line(np.column_stack([collar_x, [top + 33.0, top + 20.0, top + 2.0]]), width=12.0, amount=0.22)
        blade_x = middle + side * (half + 6.0), middle + side * (half - 4.0)
        blade = Line(np.column_stack([blade_x, [top + 25.0, top + 125.0]]), width=12.0, amount=0.13)
        canvas.add_lines(canvas.tissue, [bronchus, *_ribs(lung), collar, blade])
        if anatomy.breasts:
            chest = canvas.ellipse(middle + side * 0.55 * half, base - 62.0, 0.42 * half, 52.0, softness=14.0)
            canvas.tissue += 0.14 * chest
    for lung in anatomy.lungs:
        canvas.add_lines(canvas.vessels, _vessels(lung, rng, thinnest=canvas.spacing / 2))


def paint_heart(canvas: Canvas, anatomy: Anatomy, ratio: float) -> np.ndarray:
    """Push the lung aside for a heart of this cardiothoracic ratio, and return its mask, `(rows, columns)`."""
    width = 2.0 * anatomy.half_width * ratio
    # The y of the top of the diaphragm, on which the heart rests.
    floor = anatomy.base - anatomy.lungs[0].dome
    # Its shorter radius as a share of its width: a large heart grows to the sides rather than upwards.
    flat = 0.40 * float(np.sqrt(0.44 / max(ratio, 0.44)))
    # A third of the heart is on the patient's right of the midline.
    x, y = anatomy.middle + 0.17 * width, floor + 18.0 - 0.9 * flat * width
    mask = canvas.ellipse(x, y, 0.54 * width, flat * width, softness=EDGE, tilt=0.6)
    canvas.air *= 1.0 - 0.9 * mask
    canvas.tissue += 0.25 * mask
    return mask


def _spine(x: float, end: float, *, width: float) -> list[Line]:
    """The lines of a spine at x, from the top of the image to y = end: a broad line, and a thin one for each disc."""
    lines = [Line(np.array([[x, 0.0], [x, end]]), width=width, amount=0.30)]
    # The discs are 25 mm apart and a little narrower than the spine; they let more rays pass than bone.
    left, right = x - width / 2 + 4.0, x + width / 2 - 4.0
    for y in np.arange(12.0, end, 25.0):
        lines.append(Line(np.array([[left, y], [right, y]]), width=4.0, amount=-0.10))
    return lines


def _ribs(lung: Lung) -> list[Line]:
    """The lines of the ribs around a lung: the back of each with a darker middle, and the front of some."""
    ribs: list[Line] = []
    # Points along a rib, from the spine (0) to the wall (1); ten ribs from a little above the apex to the base.
    share = np.linspace(0.0, 1.0, 14)
    gap = (lung.base - lung.top) / 9.0
    starts = lung.top - 2.0 + np.arange(10) * gap
    # Ribs end a little outside the outer edge of the lung, the one that is farther from the midline.
    x_min, x_max = lung.edges(starts + 10.0)
    reaches = np.maximum(np.abs(x_min - lung.middle), np.abs(x_max - lung.middle)) + 5.0
    for number, (start, reach) in enumerate(zip(starts, reaches, strict=True)):
        # From the edge of the spine, 16 mm beside the midline. The back rises in an arch and then falls to the wall,
        # that of lower ribs more.
        x = lung.middle + lung.side * (16.0 + share * (reach - 16.0))
        back = np.stack([x, start - 9.0 * np.sin(np.pi * share * 0.9) + (14.0 + 3.0 * number) * share**2.2], axis=1)
        ribs += [Line(back, width=10.0, amount=0.15), Line(back, width=5.5, amount=-0.05)]
        # The fronts of the first and of the lowest ribs are left out; the others fall from the wall, where the back
        # ends, towards the midline, which they do not reach.
        if 0 < number < 7:
            front = np.stack([x[4:], back[-1, 1] + 44.0 * (1.0 - share[4:]) ** 0.8 + 4.0], axis=1)
            ribs.append(Line(front, width=11.0, amount=0.07))
    return ribs


def _vessels(lung: Lung, rng: np.random.Generator, *, thinnest: float) -> list[Line]:
    """The lines of the vessels from the root of a lung, each of several parts of two pieces, which thin out outwards.

    Args:
        lung: with the vessels.
        rng: of their directions and widths.
        thinnest: width in millimetres below which a part is left out.
    """
    # The direction from the midline to the wall, in radians: to the left in the left half of the image, else to the
    # right.
    outward = np.pi if lung.side < 0 else 0.0
    turns, shifts, root_widths, bends = [], [], [], []
    # One vessel after the other: drawn in another order, all images would be others.
    for _ in range(_VESSELS):
        turns.append(rng.uniform(-1.45, 1.45))
        shifts.append(rng.normal(0.0, (4.0, 14.0)))
        root_widths.append(rng.uniform(1.8, 4.5))
        bends.append(rng.normal(0.0, 0.22, 2 * _PARTS))
    # The direction of each piece, which bends off the one before: the sum of the first direction and of all bends so
    # far. The first column, that direction itself, is that of no piece.
    angles = np.cumsum(np.column_stack([outward + np.array(turns), bends]), axis=1)[:, 1:]
    # All pieces are equally long. The 2 * _PARTS = 8 of a straight vessel together are 0.84 half widths of the chest
    # long, far enough to reach the wall; what lies beyond the lung is not seen, as vessels count only inside air.
    piece_length = 0.95 * lung.half_width / 9.0
    steps = piece_length * np.stack([np.cos(angles), np.sin(angles)], axis=2)
    # The roots lie near the inner edge, which is the larger x in the left half of the image, and halfway down.
    roots = np.array(lung.point(0.95 if lung.side < 0 else 0.05, 0.55)) + np.array(shifts)
    # From the root on, the ends of the pieces: (vessels, pieces + 1, 2), x and y. Widths are (vessels, parts).
    points = np.cumsum(np.concatenate([roots[:, None], steps], axis=1), axis=1)
    widths = np.cumprod(np.column_stack([root_widths, np.full((_VESSELS, _PARTS - 1), _THINNING)]), axis=1)
    lines = []
    for vessel, part_widths in zip(points, widths.tolist(), strict=True):
        for part, width in enumerate(part_widths):
            # A thinner part would be invisible, and small images are drawn by the thousand.
            if width >= thinnest:
                # Below 2.5 mm it is fainter, in proportion to its width; a part is two pieces, three points.
                amount = _VESSEL_AMOUNT * min(1.0, width / 2.5)
                lines.append(Line(vessel[2 * part : 2 * part + 3], width, amount))
    return lines

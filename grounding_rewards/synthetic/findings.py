"""Choose and paint findings: their frequency, size, place and look, and the phrase for a report.

Sizes follow public data. `NIH` is BBox_List_2017.csv of ChestX-ray14, 984 boxes, whose sides are fractions of an image
of 1024 pixels, taken here as 400 mm. The three numbers are the 10th, 50th and 90th percentile.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from grounding_rewards.synthetic.anatomy import EDGE, VIEWS, Anatomy, Canvas, Line, Lung, paint_heart, ramp

_SIDES = {-1: "right", 1: "left"}
_DEGREES = ("small", "moderate", "large")
# Side of an image of NIH in millimetres.
_NIH_SIDE = 400.0


@dataclass(frozen=True)
class PlannedFinding:
    """A finding to be painted, in millimetres of the image.

    Attributes:
        label: One of `FINDINGS`.
        side: -1 in the patient's right, 1 in his left, 0 for neither.
        x: Of its middle or its start.
        y: Likewise.
        width: Before it is cut off at the lung or the image.
        height: Likewise.
        phrase: For a report; `{zone}` is replaced by the name of the place when the box is known.
        seed: Of its irregular outline or its tilt; 0 where nothing of it is random.
    """

    label: str
    side: int
    x: float
    y: float
    width: float
    height: float
    phrase: str
    seed: int = 0


@dataclass(frozen=True)
class _Kind:
    """How often a finding occurs and in which views, and the functions that choose its place and paint it."""

    frequency: float
    views: tuple[str, ...]
    place: Callable[[np.random.Generator, Anatomy], PlannedFinding]
    paint: Callable[[Canvas, Anatomy, PlannedFinding], np.ndarray]


def _draw_lognormal(rng: np.random.Generator, low: float, median: float, high: float) -> float:
    """A random lognormal number with this median; its 10th and 90th percentile have the ratio of low and high.

    It is clipped to half of `low` and twice `high`.
    """
    # 1.2816 is the 90th percentile of the normal distribution.
    value = median * math.exp(math.log(high / low) / (2 * 1.2816) * rng.normal())
    return float(np.clip(value, low / 2, high * 2))


def _random_lung(rng: np.random.Generator, anatomy: Anatomy) -> Lung:
    """The right or the left lung."""
    return anatomy.lungs[int(rng.integers(len(anatomy.lungs)))]


def _lung_of(anatomy: Anatomy, finding: PlannedFinding) -> Lung:
    """The lung on the side of a finding; the right one for a finding on neither side."""
    right, left = anatomy.lungs
    return left if finding.side > 0 else right


def _in_lung(
    rng: np.random.Generator, anatomy: Anatomy, label: str, size: tuple[float, float], word: str
) -> PlannedFinding:
    """A finding of this width and height anywhere in a lung; `word`, unless empty, precedes the label in its phrase."""
    lung = _random_lung(rng, anatomy)
    x, y = lung.point(float(rng.uniform(0.2, 0.8)), float(rng.uniform(0.12, 0.9)))
    # `describe` fills in the zone when the place of the box is known.
    phrase = f"{word} {label} in the {{zone}}".strip()
    return PlannedFinding(label, lung.side, x, y, *size, phrase, int(rng.integers(2**32)))


def _place_nodule(rng: np.random.Generator, anatomy: Anatomy) -> PlannedFinding:
    """Draw the size, the place and the words of a nodule; all lengths are millimetres."""
    # The 10th, 50th and 90th percentile of the sides of the 79 boxes of NIH, as fractions of the image's side. Such a
    # box leaves about a fifth of margin, hence 0.8; 30 mm and more is a mass (Fleischner Society glossary, Radiology
    # 2008;246:697).
    size = min(29.0, 0.8 * _NIH_SIDE * _draw_lognormal(rng, 0.045, 0.068, 0.095))
    shape = size, min(29.0, size * float(rng.uniform(0.85, 1.15)))
    return _in_lung(rng, anatomy, "nodule", shape, "small" if size < 16 else "")


def _place_mass(rng: np.random.Generator, anatomy: Anatomy) -> PlannedFinding:
    """Draw the size, the place and the words of a mass; all lengths are millimetres."""
    # The 10th, 50th and 90th percentile of the sides of the 85 boxes of NIH, as fractions of the image's side. Such a
    # box leaves about a fifth of margin, hence 0.8. A smaller one is a nodule; it has 110 mm at most.
    size = float(np.clip(0.8 * _NIH_SIDE * _draw_lognormal(rng, 0.076, 0.121, 0.347), 31.0, 110.0))
    shape = size, max(31.0, size * float(rng.uniform(0.8, 1.2)))
    return _in_lung(rng, anatomy, "mass", shape, "large" if size > 60 else "")


def _place_consolidation(rng: np.random.Generator, anatomy: Anatomy) -> PlannedFinding:
    """Draw the size, the place and the words of a consolidation; all lengths are millimetres."""
    # The 10th, 50th and 90th percentile of the width and of the height of the 120 boxes of pneumonia of NIH, as
    # fractions of the image's side.
    width = _NIH_SIDE * _draw_lognormal(rng, 0.164, 0.223, 0.574)
    height = _NIH_SIDE * _draw_lognormal(rng, 0.158, 0.269, 0.497)
    return _in_lung(rng, anatomy, "consolidation", (width, height), "large" if height > 140 else "")


def _place_atelectasis(rng: np.random.Generator, anatomy: Anatomy) -> PlannedFinding:
    """Draw the size, the place and the words of a linear atelectasis; all lengths are millimetres."""
    # Near the middle of a lung, in its lower part. The width has the 10th, 50th and 90th percentile of that of the 180
    # boxes of NIH, as fractions of the image's side; the height is that of a band, not of a box.
    lung = _random_lung(rng, anatomy)
    x, y = lung.point(float(rng.uniform(0.4, 0.6)), float(rng.uniform(0.6, 0.88)))
    size = _NIH_SIDE * _draw_lognormal(rng, 0.099, 0.167, 0.321), float(rng.uniform(6.0, 14.0))
    phrase = "linear atelectasis in the {zone}"
    return PlannedFinding("atelectasis", lung.side, x, y, *size, phrase, int(rng.integers(2**32)))


def _degree(value: float, moderate_limit: float, large_limit: float, words: Sequence[str] = _DEGREES) -> str:
    """The word for a size: the second one from `moderate_limit` up, the third one from `large_limit` up."""
    if value < moderate_limit:
        return words[0]
    return words[1] if value < large_limit else words[2]


def _place_effusion(rng: np.random.Generator, anatomy: Anatomy) -> PlannedFinding:
    """Draw the size, the place and the words of a pleural effusion; all lengths are millimetres."""
    # The 10th, 50th and 90th percentile of the height of the 153 boxes of NIH, as fractions of the image's side; at
    # least a fifth of the lung stays above the fluid.
    lung = _random_lung(rng, anatomy)
    height = min(_NIH_SIDE * _draw_lognormal(rng, 0.087, 0.271, 0.588), 0.8 * (lung.base - lung.top))
    phrase = f"{_degree(height, 70, 150)} {_SIDES[lung.side]} pleural effusion"
    # Its y is that of the highest point; x and width play no part in painting.
    x, y, width = lung.middle, lung.base - height, lung.half_width
    return PlannedFinding("pleural effusion", lung.side, x, y, width, height, phrase)


def _place_pneumothorax(rng: np.random.Generator, anatomy: Anatomy) -> PlannedFinding:
    """Draw the size, the place and the words of an apical pneumothorax; all lengths are millimetres."""
    # The 10th, 50th and 90th percentile of the height of the 98 boxes of NIH, as fractions of the image's side; the
    # lowest fifth of the lung at least keeps its place.
    lung = _random_lung(rng, anatomy)
    height = min(_NIH_SIDE * _draw_lognormal(rng, 0.083, 0.201, 0.517), 0.8 * (lung.base - lung.top))
    phrase = f"{_degree(height, 60, 120)} {_SIDES[lung.side]} apical pneumothorax"
    # Its y is that of the apex, and its width that of the gap between lung and wall there: the farther down the gap
    # goes, the wider it is. Its x plays no part in painting.
    x, y, width = lung.middle, lung.top, 0.35 * height
    return PlannedFinding("pneumothorax", lung.side, x, y, width, height, phrase)


def _place_cardiomegaly(rng: np.random.Generator, anatomy: Anatomy) -> PlannedFinding:
    """Draw the size, the place and the words of an enlarged heart; lengths are millimetres."""
    # The 10th, 50th and 90th percentile of the width of the 146 boxes of NIH, as fractions of the image's side. The
    # ratio is that of the heart's width to the chest's; from 0.5 up a heart is enlarged, and here clearly so.
    ratio = float(np.clip(_NIH_SIDE * _draw_lognormal(rng, 0.403, 0.466, 0.535) / (2 * anatomy.half_width), 0.54, 0.68))
    width = 2 * anatomy.half_width * ratio
    phrase = f"{_degree(ratio, 0.58, 0.65, ('mild', 'moderate', 'severe'))} cardiomegaly"
    # `paint_heart` takes the width alone, and knows the place and the height; a heart lies on neither side, hence 0.
    return PlannedFinding("cardiomegaly", 0, anatomy.middle, anatomy.base, width, width, phrase)


def _place_pacemaker(rng: np.random.Generator, anatomy: Anatomy) -> PlannedFinding:
    """Draw the size, the place and the words of a pacemaker; all lengths are millimetres."""
    # Usual devices are 40 to 55 mm wide and 40 to 60 mm high. Most lie below the left clavicle, on the side 1.
    side = int(rng.choice([-1, 1], p=[0.25, 0.75]))
    x = anatomy.middle + side * float(rng.uniform(0.62, 0.85)) * anatomy.half_width
    y = anatomy.top + float(rng.uniform(45.0, 80.0))
    size = float(rng.uniform(40.0, 55.0)), float(rng.uniform(40.0, 60.0))
    phrase = f"pacemaker over the {_SIDES[side]} upper chest"
    return PlannedFinding("pacemaker", side, x, y, *size, phrase, int(rng.integers(2**32)))


def _place_tube(rng: np.random.Generator, anatomy: Anatomy) -> PlannedFinding:
    """Draw the size, the place and the words of an endotracheal tube; all lengths are millimetres."""
    # It comes from above the image, so that its height is the y of its tip; it lies on neither side, hence 0.
    # Outer diameter 9 to 12 mm; the tip lies 30 to 50 mm above the carina, which is 62 mm below the apex.
    tip = anatomy.top + 62.0 - float(rng.uniform(30.0, 50.0))
    width, phrase = float(rng.uniform(9.0, 12.0)), "endotracheal tube in the midline"
    return PlannedFinding("endotracheal tube", 0, anatomy.middle, tip, width, tip, phrase)


def _lobed_distance(canvas: Canvas, finding: PlannedFinding, bumps: float) -> np.ndarray:
    """The distance of each pixel from the middle of a finding, 1 on its irregular outline; `(rows, columns)`.

    `bumps`: how far the outline departs from an ellipse, as a share of its radius.
    """
    rng = np.random.default_rng(finding.seed)
    x, y = (canvas.x - finding.x) / (finding.width / 2), (canvas.y - finding.y) / (finding.height / 2)
    angle = np.arctan2(y, x)
    outline = np.ones_like(angle)
    # Waves around the ellipse, from two to six of them, the finer the lower; the outline never shrinks below a half.
    for waves in range(2, 7):
        outline += bumps * rng.normal() / waves * np.cos(waves * angle + rng.uniform(0.0, 2.0 * np.pi))
    return np.hypot(x, y) / np.maximum(outline, 0.5)


def _paint_ball(canvas: Canvas, anatomy: Anatomy, finding: PlannedFinding) -> np.ndarray:
    """Paint a nodule or a mass, and return the mask of its extent, 1 up to a soft edge."""
    radius = _lobed_distance(canvas, finding, bumps=0.06)
    # The distance from the outline, from units of the radius to millimetres, is positive outside.
    soft = 1.0 - ramp((radius - 1.0) * min(finding.width, finding.height) / 2, softness=3.0)
    # The thickness of a ball, but not down to nothing, so that its edge is visible.
    mask = soft * (0.35 + 0.65 * np.sqrt(np.clip(1.0 - radius**2, 0.0, 1.0)))
    # A larger one is denser, up to 60 mm.
    canvas.tissue += (0.35 + 0.006 * min(finding.width, 60.0)) * mask
    return soft


def _paint_consolidation(canvas: Canvas, anatomy: Anatomy, finding: PlannedFinding) -> np.ndarray:
    """Paint patches that displace air in a lung, and return the mask of the displaced air."""
    from scipy.ndimage import gaussian_filter, map_coordinates

    lung = _lung_of(anatomy, finding)
    # Not the seed of the outline, from which `_lobed_distance` draws.
    rng = np.random.default_rng(finding.seed + 1)
    size = min(finding.width, finding.height)
    extent = ramp((1.0 - _lobed_distance(canvas, finding, bumps=0.18)) * size / 2, softness=0.2 * size)
    # Smooth noise on a grid of 64 x 64 points over the image, so that patches do not depend on its number of pixels.
    rows, columns = canvas.tissue.shape
    grain = gaussian_filter(rng.normal(size=(64, 64)), 1.6)
    grain_points = np.meshgrid(np.linspace(0.0, 63.0, rows), np.linspace(0.0, 63.0, columns), indexing="ij")
    # How dense each place is, from 0.25 to 1; order 1 interpolates linearly.
    patches = np.clip(0.65 + 1.6 * map_coordinates(grain, grain_points, order=1), 0.25, 1.0)
    # Only inside the lung is there air to displace.
    mask = extent * ramp(lung.inward(canvas), EDGE)
    # Where an earlier finding has displaced the air, this one cannot be seen.
    visible = mask * canvas.air
    canvas.air *= 1.0 - 0.8 * mask * patches
    return visible


def _paint_atelectasis(canvas: Canvas, anatomy: Anatomy, finding: PlannedFinding) -> np.ndarray:
    """Paint a band that displaces air in a lung, and return the mask of the displaced air."""
    lung = _lung_of(anatomy, finding)
    tilt = np.random.default_rng(finding.seed).uniform(-0.25, 0.25)
    band = canvas.ellipse(finding.x, finding.y, finding.width / 2, finding.height / 2, softness=3.0, tilt=tilt)
    mask = band * ramp(lung.inward(canvas), EDGE)
    # Where an earlier finding has displaced the air, this one cannot be seen.
    visible = mask * canvas.air
    canvas.air *= 1.0 - 0.75 * mask
    return visible


def _paint_effusion(canvas: Canvas, anatomy: Anatomy, finding: PlannedFinding) -> np.ndarray:
    """Paint fluid at the base of a lung, and return the mask of the displaced air."""
    lung = _lung_of(anatomy, finding)
    # Where the lung is wide, above the dome.
    x_min, x_max = lung.edges(lung.base - 0.3 * (lung.base - lung.top))
    from_left = np.clip((canvas.x - x_min) / (x_max - x_min), 0.0, 1.0)
    # 0 at the midline, 1 at the wall.
    outwards = 1.0 - from_left if finding.side < 0 else from_left
    # The y of the surface, a meniscus: fluid climbs up to `finding.y` along the wall.
    # At the midline it lies three quarters of the height lower.
    surface = finding.y + 0.75 * finding.height * (1.0 - outwards**1.6)
    mask = ramp(canvas.y - surface, softness=7.0) * ramp(lung.inward(canvas), EDGE)
    # Where an earlier finding has displaced the air, this one cannot be seen.
    visible = mask * canvas.air
    canvas.air *= 1.0 - 0.97 * mask
    return visible


def _paint_pneumothorax(canvas: Canvas, anatomy: Anatomy, finding: PlannedFinding) -> np.ndarray:
    """Paint air without vessels and the edge of the collapsed lung, and return the mask of the air."""
    lung = _lung_of(anatomy, finding)
    # 0 at the apex, 1 at the lower end of the finding.
    down = np.clip((canvas.y - finding.y) / finding.height, 0.0, 1.0)
    x_min, x_max = lung.edges(canvas.y)
    from_wall = canvas.x - x_min if finding.side < 0 else x_max - canvas.x
    # Distance from the edge of the collapsed lung in millimetres: positive in the lung, negative in the air around it.
    # The lung has sunk from the wall, less in lower parts, and from the apex, by about half as much.
    gap = np.minimum(from_wall - finding.width * (1.0 - down**2), canvas.y - finding.y - 0.45 * finding.width)
    inside = ramp(lung.inward(canvas), EDGE) * (canvas.y < finding.y + finding.height)
    mask = ramp(-gap, softness=2.5) * inside
    # Where an earlier finding has displaced the air, this one cannot be seen.
    visible = mask * canvas.air
    # Air alone has no vessels and lets more rays pass than a lung.
    canvas.vessels *= 1.0 - mask
    canvas.air += 0.14 * visible
    # The edge of the collapsed lung, where the gap is 0, is a thin white line.
    canvas.tissue += 0.16 * np.exp(-((gap / 1.2) ** 2)) * inside
    return visible


def _paint_cardiomegaly(canvas: Canvas, anatomy: Anatomy, finding: PlannedFinding) -> np.ndarray:
    """Paint an enlarged heart, and return its mask."""
    # The cardiothoracic ratio: the heart's width over that of the chest.
    return paint_heart(canvas, anatomy, ratio=finding.width / (2 * anatomy.half_width))


def _paint_pacemaker(canvas: Canvas, anatomy: Anatomy, finding: PlannedFinding) -> np.ndarray:
    """Paint the case of a pacemaker, and return its mask."""
    tilt = np.random.default_rng(finding.seed).uniform(-0.4, 0.4)
    x, y = canvas.x - finding.x, canvas.y - finding.y
    # In the axes of the tilted case.
    along, across = x * np.cos(tilt) + y * np.sin(tilt), y * np.cos(tilt) - x * np.sin(tilt)
    # A superellipse, which is a box with round corners: the radius is 1 on its outline.
    radius = ((2 * along / finding.width) ** 4 + (2 * across / finding.height) ** 4) ** 0.25
    mask = ramp((1.0 - radius) * finding.width / 2, softness=1.5)
    # Metal: denser than anything of the body.
    canvas.tissue += 2.6 * mask
    return mask


def _paint_tube(canvas: Canvas, anatomy: Anatomy, finding: PlannedFinding) -> np.ndarray:
    """Paint a tube with its stripe, and return its mask."""
    mask = np.zeros_like(canvas.tissue)
    # From above the image down to the tip.
    path = np.array([[finding.x, -20.0], [finding.x, finding.y]])
    canvas.add_lines(mask, [Line(path, width=finding.width, amount=1.0)])
    canvas.tissue += 0.30 * mask
    # A stripe of metal salt along its left wall, which ends a little above the tip.
    canvas.add_lines(canvas.tissue, [Line(path - [finding.width / 2 - 1.5, 1.5], width=1.6, amount=0.5)])
    return mask


# In the order of painting: a finding that may hide others comes first, so that a hidden one gets no box.
_KINDS = {
    "cardiomegaly": _Kind(1.3, VIEWS, _place_cardiomegaly, _paint_cardiomegaly),
    "pneumothorax": _Kind(0.8, VIEWS, _place_pneumothorax, _paint_pneumothorax),
    "pleural effusion": _Kind(1.3, VIEWS, _place_effusion, _paint_effusion),
    "consolidation": _Kind(1.2, VIEWS, _place_consolidation, _paint_consolidation),
    "atelectasis": _Kind(0.9, VIEWS, _place_atelectasis, _paint_atelectasis),
    "mass": _Kind(0.7, VIEWS, _place_mass, _paint_ball),
    "nodule": _Kind(1.2, VIEWS, _place_nodule, _paint_ball),
    "pacemaker": _Kind(0.6, VIEWS, _place_pacemaker, _paint_pacemaker),
    "endotracheal tube": _Kind(0.6, ("AP",), _place_tube, _paint_tube),
}

FINDINGS = tuple(_KINDS)
"""The findings that may be drawn, in words of the shared vocabulary and in the order of an image's labels."""

# Probabilities of the number of different findings on an image, and of the number of nodules if there are any.
_COUNTS = {0: 0.25, 1: 0.42, 2: 0.22, 3: 0.11}
_NODULES = {1: 0.75, 2: 0.17, 3: 0.08}


def plan_findings(
    rng: np.random.Generator, anatomy: Anatomy, labels: Sequence[str] = FINDINGS
) -> tuple[PlannedFinding, ...]:
    """Choose findings and their places; a quarter of the images has none, and only nodules occur several times."""
    possible = [label for label in labels if anatomy.view in _KINDS[label].views]
    weights = np.array([_KINDS[label].frequency for label in possible])
    count = rng.choice(list(_COUNTS), p=list(_COUNTS.values()))
    sampled_labels = rng.choice(possible, size=count, replace=False, p=weights / weights.sum())
    findings: list[PlannedFinding] = []
    # In the order of painting.
    for label in sorted(sampled_labels.tolist(), key=FINDINGS.index):
        times = 1
        if label == "nodule":
            times = int(rng.choice(list(_NODULES), p=list(_NODULES.values())))
        for _ in range(times):
            findings.append(_KINDS[label].place(rng, anatomy))
    return tuple(findings)


def paint_finding(canvas: Canvas, anatomy: Anatomy, finding: PlannedFinding) -> np.ndarray:
    """Paint a finding and return its mask, `(rows, columns)`, 0 to 1."""
    return _KINDS[finding.label].paint(canvas, anatomy, finding)


def describe(anatomy: Anatomy, finding: PlannedFinding, y: float) -> str:
    """The phrase of a finding whose box has its centre at y, in millimetres: it names the third of the lung."""
    lung = _lung_of(anatomy, finding)
    # 0 at the apex, 1 at the top of the diaphragm.
    share = (y - lung.top) / (lung.base - lung.dome - lung.top)
    third = _degree(share, 1 / 3, 2 / 3, ("upper", "middle", "lower"))
    return finding.phrase.format(zone=f"{_SIDES[lung.side]} {third} zone")

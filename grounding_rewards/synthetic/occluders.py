"""Objects over a chest radiograph that are no findings: side marker, ECG leads, and the edge of the collimator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grounding_rewards.synthetic.anatomy import Anatomy
from grounding_rewards.synthetic.canvas import Canvas, ramp

#: Strokes of the letters of a marker, in a square of side 1.
LETTERS = {
    "R": (
        ((0.1, 1.0), (0.1, 0.0), (0.55, 0.0), (0.75, 0.12), (0.75, 0.38), (0.55, 0.5), (0.1, 0.5)),
        ((0.4, 0.5), (0.8, 1.0)),
    ),
    "L": (((0.15, 0.0), (0.15, 1.0), (0.75, 1.0)),),
}
_MARKER = 15.0
_LEADS = {"PA": 0.06, "AP": 0.7, "LL": 0.0}


@dataclass(frozen=True)
class Occluders:
    """Objects over one image, in millimetres.

    marker: The letter and its upper left corner; None without marker.
    leads: Curves of wires, `(n, 2)` points each, that end in an electrode.
    margins: Width of the black margin on the left, top, right and bottom.
    """

    marker: tuple[str, float, float] | None
    leads: tuple[tuple[tuple[float, float], ...], ...]
    margins: tuple[float, float, float, float]


NO_OCCLUDERS = Occluders(None, (), (0.0, 0.0, 0.0, 0.0))
"""An image with nothing over it."""


def plan_occluders(rng: np.random.Generator, anatomy: Anatomy, width: float, height: float) -> Occluders:
    """Choose the objects over an image of this size in millimetres; leads are common in bed and rare otherwise."""
    left, top, right, bottom = (float(rng.uniform(0.0, 14.0)) * (rng.random() < 0.5) for _ in range(4))
    marker = None
    if rng.random() < 0.85:
        # The marker names the side it lies on; in an image from the side, the side at the detector
        letter = "L" if anatomy.view == "LL" else str(rng.choice(["R", "L"]))
        inset = float(rng.uniform(8.0, 16.0))
        x = width - right - inset - _MARKER if letter == "L" else left + inset
        marker = letter, x, top + float(rng.uniform(8.0, 30.0))
    leads = []
    if rng.random() < _LEADS[anatomy.view]:
        half = anatomy.half_width
        for across, down, exit_x, exit_y in (
            (-0.62, 0.12, 0.1, 0.75),
            (0.66, 0.10, 0.9, 0.8),
            (0.72, 0.80, 0.95, 1.02),
        ):
            x = anatomy.middle + (across + rng.normal(0.0, 0.06)) * half
            y = anatomy.top + (down + rng.normal(0.0, 0.05)) * (anatomy.base - anatomy.top)
            turn = (x + exit_x * width) / 2 + rng.normal(0.0, 25.0), y + rng.uniform(10.0, 60.0)
            leads.append(_curve((exit_x * width, exit_y * height + 60.0), turn, (x, y)))
    return Occluders(marker, tuple(leads), (left, top, right, bottom))


def paint_occluders(canvas: Canvas, occluders: Occluders) -> None:
    """Paint marker and leads, denser than anything else."""
    if occluders.marker:
        letter, x, y = occluders.marker
        for stroke in LETTERS[letter]:
            canvas.add_line(canvas.tissue, np.array(stroke) * _MARKER + [x, y], width=2.6, amount=2.2)
    for lead in occluders.leads:
        canvas.add_line(canvas.tissue, np.array(lead), width=1.7, amount=0.45)
        x, y = lead[-1]
        canvas.tissue += 0.22 * canvas.ellipse(x, y, 9.0, 9.0, softness=1.5)
        canvas.tissue += 0.9 * canvas.ellipse(x, y, 3.0, 3.0, softness=1.5)


def exposed(canvas: Canvas, occluders: Occluders) -> np.ndarray:
    """1 where the image was exposed, 0 outside the collimator's edge, `(rows, columns)`."""
    left, top, right, bottom = occluders.margins
    rows, columns = canvas.shape
    sides = np.minimum(canvas.x - left, columns * canvas.spacing - right - canvas.x)
    ends = np.minimum(canvas.y - top, rows * canvas.spacing - bottom - canvas.y)
    return ramp(np.minimum(sides, ends), canvas.spacing)


def _curve(
    start: tuple[float, float], turn: tuple[float, float], end: tuple[float, float]
) -> tuple[tuple[float, float], ...]:
    """Twelve points of the quadratic Bézier curve."""
    share = np.linspace(0.0, 1.0, 12)[:, None]
    points = (1 - share) ** 2 * np.array(start) + 2 * share * (1 - share) * np.array(turn) + share**2 * np.array(end)
    return tuple((float(x), float(y)) for x, y in points)

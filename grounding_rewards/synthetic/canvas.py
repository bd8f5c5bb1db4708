"""Maps of what a ray loses on its way through the body; lengths in millimetres."""

from __future__ import annotations

import numpy as np

Box = tuple[int, int, int, int]

# How much less a ray loses in air-filled lung than in as much soft tissue.
_AIR = 1.15

# A finding is visible from this part of its full strength on.
_VISIBLE = 0.2


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

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.tissue.shape
        return rows, columns

    def attenuation(self) -> np.ndarray:
        """The loss of all maps together, `(rows, columns)`, at least 0."""
        return np.maximum(self.tissue - _AIR * self.air + self.vessels * self.air, 0.0)

    def window(self, x1: float, y1: float, x2: float, y2: float) -> tuple[slice, slice]:
        """The rows and columns that a rectangle touches."""
        rows, columns = self.shape
        top, bottom = (int(min(max(y / self.spacing, 0), rows)) for y in (y1, y2 + self.spacing))
        left, right = (int(min(max(x / self.spacing, 0), columns)) for x in (x1, x2 + self.spacing))
        return slice(top, bottom), slice(left, right)

    def ellipse(self, cx: float, cy: float, rx: float, ry: float, *, softness: float, tilt: float = 0.0) -> np.ndarray:
        """An ellipse of ones with a soft edge, `(rows, columns)`; `tilt` in radians, clockwise."""
        x, y = self.x - cx, self.y - cy
        along, across = x * np.cos(tilt) + y * np.sin(tilt), y * np.cos(tilt) - x * np.sin(tilt)
        return ramp((1.0 - np.hypot(along / rx, across / ry)) * min(rx, ry), softness)

    def add_line(self, target: np.ndarray, points: np.ndarray, *, width: float, amount: float) -> None:
        """Add a line with round ends to a map; overlaps of its pieces are not darker.

        Args:
            target: A map of this canvas.
            points: `(n, 2)` of x and y.
            width: Of the line.
            amount: Added in its middle.
        """
        reach = width / 2 + self.spacing
        window = self.window(*(points.min(axis=0) - reach).tolist(), *(points.max(axis=0) + reach).tolist())
        # Pieces of the line × rows × columns
        (x1, y1), (dx, dy) = points[:-1].T[:, :, None, None], np.diff(points, axis=0).T[:, :, None, None]
        x, y = self.x[:, window[1]] - x1, self.y[window[0]] - y1
        share = np.minimum(np.maximum((x * dx + y * dy) / np.maximum(dx * dx + dy * dy, 1e-9), 0.0), 1.0)
        nearest = np.hypot(x - share * dx, y - share * dy).min(axis=0)
        target[window] += amount * ramp(width / 2 - nearest, max(self.spacing, width / 4))


def ramp(inward: np.ndarray, softness: float) -> np.ndarray:
    """0 outside, 1 inside, smooth over `softness` around the edge; `inward` is the distance from the edge."""
    share = np.minimum(np.maximum(inward / softness + 0.5, 0.0), 1.0)
    return share * share * (3.0 - 2.0 * share)


def visible_box(mask: np.ndarray) -> Box | None:
    """The box around the visible part of a mask, xyxy in pixels; None if nothing is visible."""
    seen = mask > _VISIBLE
    rows, columns = np.flatnonzero(seen.any(axis=1)), np.flatnonzero(seen.any(axis=0))
    if not rows.size:
        return None
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1

"""Quality curves: from the IoU of a matched pair to the credit it earns.

A curve is a function of an array of IoUs (clipped to [0, 1]) that returns credits in [0, 1] of the same shape. Every
curve is monotone, so that a better box never earns less.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from grounding_rewards.common.numeric import Array

# Up to so many IoUs a loop in Python is faster than numpy.
_FEW = 6
# The IoUs at which R4's three cubics meet.
_KNOTS = (0.5, 0.8)
# Of each cubic the IoU at its left end and its width, then credit and slope at its left end, and at its right end.
_PIECES = (
    (0.0, 0.5, 0.0, 1.5, 0.5, 1.1),
    (0.5, 0.8 - 0.5, 0.5, 1.1, 0.8, 0.9),
    (0.8, 1.0 - 0.8, 0.8, 0.9, 1.0, 0.5),
)
_PIECE_COLUMNS = np.array(_PIECES).T


def linear(iou: ArrayLike) -> Array:
    """Credit equal to the IoU, which is clipped to [0, 1] (R2, R3).

    Example:
        >>> linear([0.0, 0.6, 1.0])
        array([0. , 0.6, 1. ])
    """
    return np.asarray(np.asarray(iou, dtype=np.float64).clip(0.0, 1.0), dtype=np.float64)


def spline(iou: ArrayLike) -> Array:
    """Cubic Hermite spline through (0, 0), (0.5, 0.5), (0.8, 0.8) and (1, 1) with slopes 1.5, 1.1, 0.9 and 0.5 (R4).

    Example:
        >>> spline([0.0, 0.5, 0.6, 0.8, 1.0]).round(4)
        array([0.    , 0.5   , 0.6067, 0.8   , 1.    ])

    Source: specification §6.1; Fritsch & Carlson, SIAM J. Numer. Anal. 1980.
    """
    iou = np.asarray(iou, dtype=np.float64)
    # For a few IoUs a loop in Python is faster.
    if iou.size <= _FEW:
        credits = [_spline_at(min(max(value, 0.0), 1.0)) for value in iou.ravel().tolist()]
        return np.array(credits, dtype=np.float64).reshape(iou.shape)
    iou = iou.clip(0.0, 1.0)
    # Of the cubic on which each IoU lies.
    piece = _PIECE_COLUMNS[:, np.searchsorted(_KNOTS, iou, side="right")]
    start, width = piece[:2]
    t = (iou - start) / width
    return np.asarray(_cubic(piece, t, t**2, t**3).clip(0.0, 1.0), dtype=np.float64)


def _spline_at(iou: float) -> float:
    """:func:`spline` at one IoU in [0, 1] by the same operations, so to the same bit."""
    piece = _PIECES[bisect_right(_KNOTS, iou)]
    start, width = piece[:2]
    t = (iou - start) / width
    # numpy's cube may differ from Python's in the last bit
    return float(min(max(_cubic(piece, t, t * t, float(np.power(t, 3))), 0.0), 1.0))


def _cubic(piece: Any, t: Any, t2: Any, t3: Any) -> Any:
    """A cubic Hermite polynomial at the share ``t`` of its width; one number, or an array of each.

    Args:
        piece: the numbers of the cubic, as in `_PIECES`.
        t: from 0 at its left end to 1 at its right end.
        t2: t squared.
        t3: t cubed.
    """
    _, width, left_credit, left_slope, right_credit, right_slope = piece
    two_t3, three_t2 = 2 * t3, 3 * t2
    # The credits and slopes at both ends, each times the basis function of Hermite that belongs to it.
    left_part = (two_t3 - three_t2 + 1) * left_credit + (t3 - 2 * t2 + t) * width * left_slope
    return left_part + (three_t2 - two_t3) * right_credit + (t3 - t2) * width * right_slope


def piecewise(
    iou: ArrayLike,
    iou_breakpoints: Sequence[float] = (0.3, 0.5, 0.7),
    quality_breakpoints: Sequence[float] = (0.0, 0.3, 0.7, 1.0),
) -> Array:
    """Straight lines between breakpoints (R5).

    Args:
        iou: any shape.
        iou_breakpoints: IoUs inside (0, 1) at which the curve bends, increasing; below the first the credit is that
            of the first.
        quality_breakpoints: the credit at each of them, and at IoU 1.

    Example:
        >>> piecewise([0.2, 0.4, 0.6, 0.8, 1.0]).round(4)
        array([0.  , 0.15, 0.5 , 0.8 , 1.  ])

    Source: specification §7.1.
    """
    # The last credit is that of IoU 1.
    return np.asarray(np.interp(linear(iou), (*iou_breakpoints, 1.0), quality_breakpoints), dtype=np.float64)

"""Quality curves: from the IoU of a matched pair to the credit it earns.

A curve is a function of an array of IoUs (clipped to [0, 1]) that returns credits in [0, 1] of the same shape. Every
curve is monotone, so that a better box never earns less.
"""

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from grounding_rewards.common.numeric import Array

# Up to so many IoUs a loop in Python is faster than numpy.
_FEW = 6
# The IoUs at which R4's cubics meet; and of each cubic its left end, its width, then credit and slope at its left and
# at its right end.
_KNOTS = (0.5, 0.8)
_PIECES = (
    (0.0, 0.5, 0.0, 1.5, 0.5, 1.1),
    (0.5, 0.8 - 0.5, 0.5, 1.1, 0.8, 0.9),
    (0.8, 1.0 - 0.8, 0.8, 0.9, 1.0, 0.5),
)
_PIECE_COLUMNS = np.array(_PIECES).T


def linear(iou: ArrayLike) -> Array:
    """Credit equal to the IoU (R2, R3).

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
    if iou.size <= _FEW:
        credits = [_spline_at(min(max(value, 0.0), 1.0)) for value in iou.ravel().tolist()]
        return np.array(credits, dtype=np.float64).reshape(iou.shape)
    iou = linear(iou)
    start, h, y0, m0, y1, m1 = _PIECE_COLUMNS[:, np.searchsorted(_KNOTS, iou, side="right")]
    t = (iou - start) / h
    t2, t3 = t**2, t**3
    two_t3, three_t2 = 2 * t3, 3 * t2
    # s(x) = h00(t) y_k + h10(t) h m_k + h01(t) y_k+1 + h11(t) h m_k+1
    s = (two_t3 - three_t2 + 1) * y0 + (t3 - 2 * t2 + t) * h * m0 + (three_t2 - two_t3) * y1 + (t3 - t2) * h * m1
    return np.asarray(s.clip(0.0, 1.0), dtype=np.float64)


def _spline_at(iou: float) -> float:
    """:func:`spline` at one IoU by the same operations, so to the same bit."""
    start, h, y0, m0, y1, m1 = _PIECES[bisect_right(_KNOTS, iou)]
    t = (iou - start) / h
    # numpy's cube may differ from Python's in the last bit
    t2, t3 = t * t, float(np.power(t, 3))
    two_t3, three_t2 = 2 * t3, 3 * t2
    s = (two_t3 - three_t2 + 1) * y0 + (t3 - 2 * t2 + t) * h * m0 + (three_t2 - two_t3) * y1 + (t3 - t2) * h * m1
    return min(max(s, 0.0), 1.0)


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
    return np.asarray(np.interp(linear(iou), (*iou_breakpoints, 1.0), quality_breakpoints), dtype=np.float64)

"""Quality curves: from the IoU of a matched pair to the credit it earns.

A curve is a frozen, hashable value that is called with an array of IoUs (clipped to [0, 1]) and returns credits in
[0, 1] of the same shape. Every curve is monotone, so that a better box never earns less; one that is not, or that
leaves [0, 1], is refused when it is made.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from grounding_rewards.common.numeric import Array

# Up to so many IoUs a loop in Python is faster than numpy.
_FEW = 6
# How far below 0 rounding may put the slope of a spline that does not fall.
_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Linear:
    """Credit equal to the IoU (R2, R3).

    Example:
        >>> Linear()([0.0, 0.6, 1.0])
        array([0. , 0.6, 1. ])
    """

    def __call__(self, iou: ArrayLike) -> Array:
        """The credit of each IoU."""
        return _as_iou(iou)


@dataclass(frozen=True)
class HermiteSpline:
    """Cubic Hermite spline through knots with prescribed slopes (R4).

    Args:
        knots: ``(IoU, credit, slope)`` each, with IoU increasing from 0 to 1.

    Raises:
        ValueError: fewer than two knots, IoUs that do not run from 0 to 1, or a curve that falls somewhere or leaves
            [0, 1].

    Example:
        >>> curve = HermiteSpline()
        >>> curve([0.0, 0.5, 0.6, 0.8, 1.0]).round(4)
        array([0.    , 0.5   , 0.6067, 0.8   , 1.    ])

    Source: specification §6.1; Fritsch & Carlson, SIAM J. Numer. Anal. 1980.
    """

    knots: tuple[tuple[float, float, float], ...] = ((0.0, 0.0, 1.5), (0.5, 0.5, 1.1), (0.8, 0.8, 0.9), (1.0, 1.0, 0.5))

    def __post_init__(self) -> None:
        """Refuse knots that make no rising curve in [0, 1]."""
        object.__setattr__(self, "knots", _as_knots(self.knots, 3, "(IoU, credit, slope)"))
        _check_spline(self.knots)

    def __call__(self, iou: ArrayLike) -> Array:
        """The credit of each IoU."""
        iou = np.asarray(iou, dtype=np.float64)
        if iou.size <= _FEW:
            credits = [self._at(min(max(value, 0.0), 1.0)) for value in iou.ravel().tolist()]
            return np.array(credits, dtype=np.float64).reshape(iou.shape)
        iou = _as_iou(iou)
        inner, pieces = _pieces(self.knots)
        start, h, y0, m0, y1, m1 = pieces[:, inner.searchsorted(iou, side="right")]
        t = (iou - start) / h
        t2, t3 = t**2, t**3
        two_t3, three_t2 = 2 * t3, 3 * t2
        # s(x) = h00(t) y_k + h10(t) h m_k + h01(t) y_k+1 + h11(t) h m_k+1
        s = (two_t3 - three_t2 + 1) * y0 + (t3 - 2 * t2 + t) * h * m0 + (three_t2 - two_t3) * y1 + (t3 - t2) * h * m1
        return np.asarray(s.clip(0.0, 1.0), dtype=np.float64)

    def _at(self, iou: float) -> float:
        """The curve at one IoU by the same operations, so to the same bit."""
        inner, pieces = _listed_pieces(self.knots)
        start, h, y0, m0, y1, m1 = pieces[bisect_right(inner, iou)]
        t = (iou - start) / h
        # numpy's cube may differ from Python's in the last bit
        t2, t3 = t * t, float(np.power(t, 3))
        two_t3, three_t2 = 2 * t3, 3 * t2
        s = (two_t3 - three_t2 + 1) * y0 + (t3 - 2 * t2 + t) * h * m0 + (three_t2 - two_t3) * y1 + (t3 - t2) * h * m1
        return min(max(s, 0.0), 1.0)


@dataclass(frozen=True)
class PiecewiseLinear:
    """Straight lines between knots (R5).

    Args:
        knots: ``(IoU, credit)`` each, with IoU increasing from 0 to 1.

    Raises:
        ValueError: fewer than two knots, IoUs that do not run from 0 to 1, or credits that fall or leave [0, 1].

    Example:
        >>> PiecewiseLinear()([0.2, 0.4, 0.6, 0.8, 1.0]).round(4)
        array([0.  , 0.15, 0.5 , 0.8 , 1.  ])

    Source: specification §7.1.
    """

    knots: tuple[tuple[float, float], ...] = ((0.0, 0.0), (0.3, 0.0), (0.5, 0.3), (0.7, 0.7), (1.0, 1.0))

    def __post_init__(self) -> None:
        """Refuse knots that make no rising curve in [0, 1]."""
        object.__setattr__(self, "knots", _as_knots(self.knots, 2, "(IoU, credit)"))
        credit = [knot[1] for knot in self.knots]
        if min(credit) < 0 or max(credit) > 1 or any(b < a for a, b in pairwise(credit)):
            raise ValueError(
                f"Expected credits in [0, 1] that never fall for `knots`, got {credit}. "
                "A better box must not earn less: sort the credits."
            )

    def __call__(self, iou: ArrayLike) -> Array:
        """The credit of each IoU."""
        x, y = _columns(self.knots)
        return np.asarray(np.interp(_as_iou(iou), x, y), dtype=np.float64)


def _as_iou(iou: ArrayLike) -> Array:
    """The IoUs as an array, clipped to [0, 1]."""
    return np.asarray(np.asarray(iou, dtype=np.float64).clip(0.0, 1.0), dtype=np.float64)


@functools.lru_cache(maxsize=64)
def _pieces(knots: tuple[tuple[float, float, float], ...]) -> tuple[Array, Array]:
    """The IoUs of the inner knots; and an array with six rows, which :meth:`HermiteSpline.__call__` unpacks.

    It has a column for each cubic: its left end, its width, then credit and slope at its left and at its right end.
    """
    x, y, slope = _columns(knots)
    pieces = np.stack([x[:-1], np.diff(x), y[:-1], slope[:-1], y[1:], slope[1:]])
    pieces.flags.writeable = False
    return x[1:-1], pieces


@functools.lru_cache(maxsize=64)
def _listed_pieces(knots: tuple[tuple[float, float, float], ...]) -> tuple[list[float], list[list[float]]]:
    """`_pieces` as lists, a list for each cubic."""
    inner, pieces = _pieces(knots)
    return inner.tolist(), pieces.T.tolist()


@functools.lru_cache(maxsize=64)
def _columns(knots: tuple[tuple[float, ...], ...]) -> Array:
    """The columns of the knots as the rows of an array: all IoUs, all credits and, where they have one, all slopes."""
    table = np.ascontiguousarray(np.array(knots).T)
    table.flags.writeable = False
    return table


def _as_knots(knots: Sequence[Sequence[float]], length: int, shape: str) -> tuple[tuple[float, ...], ...]:
    """The knots as tuples of `length` floats, which `shape` names in errors; refused unless IoUs run from 0 to 1."""
    try:
        result = tuple(tuple(map(float, knot)) for knot in knots)
    except (TypeError, ValueError):
        raise ValueError(f"Expected knots {shape} for `knots`, got {knots!r}. Give numbers only.") from None
    if len(result) < 2 or any(len(knot) != length for knot in result):
        raise ValueError(
            f"Expected two or more knots {shape} for `knots`, got {knots!r}. Give at least one at IoU 0 and one at 1."
        )
    if not np.isfinite(result).all():
        raise ValueError(f"Expected finite numbers for `knots`, got {knots!r}. Replace NaN and infinity.")
    iou = [knot[0] for knot in result]
    if iou[0] != 0 or iou[-1] != 1 or any(b <= a for a, b in pairwise(iou)):
        raise ValueError(
            f"Expected IoUs that increase from 0 to 1 for `knots`, got {iou}. Add a knot at 0 or 1, or sort the knots."
        )
    return result


def _check_spline(knots: Sequence[Sequence[float]]) -> None:
    """Refuse a spline that falls or leaves [0, 1], by the extrema of each cubic, not by sampling."""
    for (x0, y0, m0), (x1, y1, m1) in pairwise(knots):
        h = x1 - x0
        # s'(t) = a t² + b t + c on [0, 1]; its least value is at an end or at the vertex.
        a = 6 * (y0 - y1) + 3 * h * (m0 + m1)
        b = 6 * (y1 - y0) - 2 * h * (2 * m0 + m1)
        c = h * m0
        candidates = [0.0, 1.0]
        if a > 0 and 0 < -b < 2 * a:
            candidates.append(-b / (2 * a))
        if min(a * t * t + b * t + c for t in candidates) < -_TOLERANCE:
            raise ValueError(
                f"Expected a curve that never falls for `knots`, got one that falls between IoU {x0} and {x1}. "
                "A better box must not earn less: use smaller slopes there "
                "(at most three times the slope of the straight line is always safe)."
            )
        # Rising throughout, it stays within [0, 1] if its ends do.
        if min(y0, y1) < 0 or max(y0, y1) > 1:
            raise ValueError(
                f"Expected credits in [0, 1] for `knots`, got {y0} and {y1}. Scale the credits to at most 1."
            )

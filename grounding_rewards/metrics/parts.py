"""What the page of an evaluation shows beside its tables: curves, bars, a matrix; plain values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Curve(NamedTuple):
    """A line of a diagram: `x` and `y` of equal length, `x` not falling; `low` and `high` bound `y` where known.

    A curve of one point is an operating point: an answer without confidences has no curve.
    """

    name: str
    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None


class Calibration(NamedTuple):
    """How often boxes of a stated confidence are right.

    ``confidence`` and ``precision`` are the means of each bin that has a box, ``counts`` their numbers of boxes;
    ``error`` is the expected calibration error.
    """

    confidence: Array
    precision: Array
    counts: NDArray[np.int64]
    error: float


class Confusion(NamedTuple):
    """Which label was said where which was true: ``counts[i, j]`` boxes of ``true[i]`` paired with one of ``said[j]``.

    The last row, ``nothing``, counts predicted boxes that no reference box was paired with; the last column,
    ``nothing``, reference boxes that no predicted box was paired with.
    """

    true: Sequence[str]
    said: Sequence[str]
    counts: NDArray[np.int64]


class RobustnessPoint(NamedTuple):
    """How a model answers films that were changed.

    ``family`` is `corruptions` or `pgd`; ``name`` the change; ``strength`` 0 for the film as it is, 1 … 5 for
    corruptions, ε in parts of the range of intensities for pgd. Each figure is ``(value, low, high)``.
    ``attack_success_rate`` is over all films; ``broken_share`` is over those whose answer was right before the change,
    and NaN where none was.
    """

    family: str
    name: str
    strength: float
    accuracy: tuple[float, float, float]
    attack_success_rate: tuple[float, float, float]
    mean_iou: tuple[float, float, float]
    broken_share: tuple[float, float, float] = (math.nan, math.nan, math.nan)

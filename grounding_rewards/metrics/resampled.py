"""Figures that are no ratio of sums, with what they are on resampled films.

A figure such as average precision is worked out anew on every resampling, from boxes that were matched once: a film
that is drawn twice weighs twice. Two runs on the same films, with the same seed, see the same resamplings, so that
their figures can be subtracted resampling by resampling.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.metrics.bootstrap import percentile_interval
from grounding_rewards.metrics.estimates import Estimate

Array = NDArray[np.float64]

# Cells of the arrays of weights by boxes that are worked on at once.
_CELLS = 1 << 20


class Resampled(NamedTuple):
    """A figure on the films, and ``(resamples,)`` on each resampling of them; NaN where there is nothing to measure."""

    value: float
    resamples: Array

    @property
    def estimate(self) -> Estimate:
        """The figure with its 95 % percentile interval.

        Example:
            >>> Resampled(0.5, np.array([0.4, 0.5, 0.6])).estimate
            Estimate(value=0.5, low=0.405, high=0.595)
        """
        return Estimate(self.value, *percentile_interval(self.resamples))


def resampled_difference(before: Resampled, after: Resampled) -> Resampled:
    """After minus before, on the same films.

    Args:
        before: a figure of one run.
        after: of another run on the same films in the same order, with the same groups, resamples and seed.

    Raises:
        ValueError: the two were not resampled alike.

    Example:
        >>> change = resampled_difference(Resampled(0.5, np.array([0.4, 0.6])), Resampled(0.75, np.array([0.65, 0.85])))
        >>> change.value, change.resamples
        (0.25, array([0.25, 0.25]))
    """
    if before.resamples.shape != after.resamples.shape:
        raise ValueError(
            f"Expected as many resamples for `after` as for `before`, got {len(after.resamples)} and "
            f"{len(before.resamples)}. Resample both with the same films, groups, resamples and seed."
        )
    return Resampled(after.value - before.value, after.resamples - before.resamples)


def mean_of_measured(values: Sequence[Array] | Array) -> Array:
    """The mean over the first axis, of those that are numbers; NaN where none is.

    Example:
        >>> mean_of_measured([np.array([1.0, np.nan]), np.array([0.0, np.nan])])
        array([0.5, nan])
    """
    stacked = np.asarray(values, dtype=np.float64)
    measured = ~np.isnan(stacked)
    total, n = np.where(measured, stacked, 0.0).sum(axis=0), measured.sum(axis=0)
    return np.divide(total, n, out=np.full(np.shape(total), np.nan), where=n > 0)


def blocks(weights: Array, width: int) -> Iterator[Array]:
    """Cut rows of weights into blocks that are small beside as many rows of ``width`` numbers.

    Example:
        >>> [block.shape for block in blocks(np.ones((3, 2)), width=1 << 20)]
        [(1, 2), (1, 2), (1, 2)]
    """
    rows = max(1, _CELLS // max(width, 1))
    for start in range(0, len(weights), rows):
        yield weights[start : start + rows]

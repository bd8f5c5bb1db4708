"""Is the difference of two runs more than chance? A permutation test: their answers change places, patient by patient.

If neither run is better, which of the two answers to a patient's images came from which run is the toss of a coin. So
the runs change places on patients drawn at random, the metrics are taken again, and p is the share of draws whose
difference is at least as large, the runs as they are counting as one of them.

The difference is measured in its standard error, which every draw has its own of. Where the two runs answer alike but
for chance, p is exact with or without that. With it, p is also right, but for a few patients, where the runs differ in
what they do, one writing many boxes and the other few, and only the metric is the same.

A metric is a ratio of sums over units, ``r = N / D`` with ``N = Σ n_i`` and ``D = Σ d_i``. To first order

    var(r_B - r_A) = Σ_i ((n_Bi - r_B d_Bi) / D_B - (n_Ai - r_A d_Ai) / D_A)²

which is made of sums of products, so that all draws are one matrix product.

Sources: Chung and Romano, Exact and Asymptotically Robust Permutation Tests, Annals of Statistics 2013; Phipson and
Smyth, Permutation P-values Should Never Be Zero, Statistical Applications in Genetics and Molecular Biology 2010.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.common.arithmetic import Array, ratio_or_nan

Swaps = NDArray[np.int8]

# Cells of an array of draws by units.
_CELLS = 1 << 21
# Statistics that would be equal without rounding differ by less than this part of them.
_ROUNDING = 1e-9


def swap_p_values(a: Sequence[Array], b: Sequence[Array], *, resamples: int, seed: int = 0) -> list[float]:
    """Two-sided p of the difference of each metric between two runs.

    Args:
        a: by metric ``(units, 2)`` numerators and denominators of run A. Units are independent of each other: patients,
            or images.
        b: of run B, on the same units.
        resamples: number of draws. Where the units on which a metric differs can change places in no more ways than
            this, all of them are taken, and its p is exact.
        seed: of the draws.

    Returns:
        For each metric p in (0, 1]; NaN where it cannot be measured in both runs, or is the same on every unit.

    Example:
        >>> a, b = ([np.column_stack([np.full(6, value), np.ones(6)])] for value in (0.5, 0.75))
        >>> swap_p_values(a, b, resamples=100) == [2 / 2**6]
        True
    """
    metrics = [_Metric(one, other) for one, other in zip(a, b, strict=True)]
    p_values = [math.nan] * len(metrics)
    # The runs as they are count as one more draw.
    drawn: dict[int, int] = {}
    for k, metric in enumerate(metrics):
        if not len(metric.units) or math.isnan(metric.observed):
            continue
        if 2 ** len(metric.units) <= resamples:
            p_values[k] = metric.reached(_all_swaps(len(metric.units))) / 2 ** len(metric.units)
        else:
            drawn[k] = 1
    for swaps in _random_swaps(len(a[0]), resamples, seed) if drawn else ():
        for k in drawn:
            drawn[k] += metrics[k].reached(swaps[:, metrics[k].units])
    for k, reached in drawn.items():
        p_values[k] = reached / (resamples + 1)
    return p_values


class _Metric:
    """One metric of both runs."""

    def __init__(self, a: Array, b: Array) -> None:
        own, other = _sums_and_products(a, b), _sums_and_products(b, a)
        # On the others the runs change nothing by changing places.
        self.units = np.flatnonzero((a != b).any(axis=1))
        self.changes = (other - own)[self.units]
        self.first, self.both = own.sum(axis=0), (own + other).sum(axis=0)
        self.shared = (a * b).sum(axis=0)
        self.observed = float(self._statistic(self.first[None])[0])

    def reached(self, swaps: Swaps) -> int:
        """On how many draws, ``(draws, units that differ)``, the difference is at least as large as it is."""
        drawn = self._statistic(self.first + swaps.astype(np.float64) @ self.changes)
        # A draw on which there is nothing to measure is no sign that there is more than chance.
        return int((~(drawn < self.observed * (1 - _ROUNDING))).sum())

    def _statistic(self, first: Array) -> Array:
        """The difference in standard errors, without its sign, for rows of the sums of the run that comes first."""
        second = self.both - first
        (n_1, d_1, nn_1, nd_1, dd_1, n_1_d_2), (n_2, d_2, nn_2, nd_2, dd_2, n_2_d_1) = first.T, second.T
        nn, dd = self.shared
        r_1, r_2 = ratio_or_nan(n_1, d_1), ratio_or_nan(n_2, d_2)
        apart = ratio_or_nan(nn_1 + r_1**2 * dd_1, d_1**2) + ratio_or_nan(nn_2 + r_2**2 * dd_2, d_2**2)
        together = ratio_or_nan(nn - r_1 * n_2_d_1 - r_2 * n_1_d_2 + r_1 * r_2 * dd, d_1 * d_2)
        variance = apart - 2 * (ratio_or_nan(r_1 * nd_1, d_1**2) + ratio_or_nan(r_2 * nd_2, d_2**2) + together)
        difference = np.abs(r_2 - r_1)
        difference[difference < _ROUNDING] = 0.0
        # Where all units differ alike, the variance is 0 but for rounding.
        variance = np.where(variance < _ROUNDING * apart, 0.0, variance)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(difference == 0, 0.0, difference / np.sqrt(variance))


def _sums_and_products(own: Array, other: Array) -> Array:
    """Of each unit n, d, n², n·d, d², and n times the other run's d, ``(units, 6)``."""
    n, d = own.T
    return np.stack([n, d, n * n, n * d, d * d, n * other[:, 1]], axis=1)


def _all_swaps(n: int) -> Swaps:
    return ((np.arange(2**n)[:, None] >> np.arange(n)) & 1).astype(np.int8)


def _random_swaps(n: int, draws: int, seed: int) -> Iterator[Swaps]:
    rng = np.random.default_rng(seed)
    rows = max(1, _CELLS // n)
    for start in range(0, draws, rows):
        yield rng.integers(0, 2, (min(rows, draws - start), n), dtype=np.int8)

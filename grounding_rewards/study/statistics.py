"""Statistics of a study: the training run is the unit, and the patients of the test set are a sample too.

A run with another seed, and a test set with other patients, would give other metrics. Both are drawn at once, in a
crossed or pigeonhole bootstrap: patients with replacement for all models together, because all answered the same
images, and the runs of an arm with replacement among themselves. ``F[b, r]`` is the metric of run r on the b-th draw of
patients, row 0 on the patients as they are.

The standard error of the mean over the n runs of an arm, or of a difference of such means, needs no draw of runs. Of a
row, ``s²(F[b])`` is the variance between runs, with n - 1; then

    seeds        S = s²(F[0]) / n
    patients     P = variance over b of the mean of F[b]
    interaction  I = (mean over b of s²(F[b]) - s²(F[0])) / n
    se²            = S + P - I,  at least max(S, P)

The crossed bootstrap itself has (n - 1)/n S + P + I or nearly so: too little of the seeds, which matters because there
are few, and what a run does on a patient by chance thrice, because S and P hold it too (Owen). The sum above is what an
analysis of variance gives. Intervals and p are Student's, with Satterthwaite's degrees of freedom: n - 1 for the seeds
of each arm, and the number of patients less one for the rest; but at most twice those of the seeds. The variance of two
or three runs is small by chance now and then, and Satterthwaite's would then take it for known: of two pairs of runs,
5 of 100 had p < 0.001 without any difference. docs/metrics.md has how often they hold.

Sources: Owen, The Pigeonhole Bootstrap, Annals of Applied Statistics 2007; Satterthwaite, Biometrics 1946.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from grounding_rewards.common.numeric import Array
from grounding_rewards.metrics.intervals import Estimate

#: Draws of patients.
RESAMPLES = 2000
ALPHA = 0.05

# Below this, differences are rounding.
_ROUNDING = 1e-12


class Difference(NamedTuple):
    """The mean of one arm's runs less that of another's, or less the one metric of an initial checkpoint.

    value, low, high: with its 95 % interval.
    p: two-sided; NaN where nothing varies, or nothing can be measured.
    error: standard error.
    """

    value: float
    low: float
    high: float
    p: float
    error: float

    @property
    def estimate(self) -> Estimate:
        """The value and its interval."""
        return Estimate(self.value, self.low, self.high)


def patient_weights(patients: int, *, resamples: int = RESAMPLES, seed: int = 0) -> Array:
    """How often each patient is drawn, ``(resamples + 1, patients)``; in row 0 each is there once.

    Example:
        >>> patient_weights(3, resamples=2).sum(axis=1)
        array([3., 3., 3.])
    """
    rng, counts, even = np.random.default_rng(seed), np.ones((resamples + 1, patients)), np.full(patients, 1 / patients)
    # Row by row: the same draws, without a second matrix of whole numbers.
    for row in counts[1:]:
        row[:] = rng.multinomial(patients, even)
    return counts


def difference(own: Array, other: Array, *, patients: int) -> Difference:
    """How much higher the metric of one arm is than that of another on the same images.

    Args:
        own: ``(draws + 1, n)`` metrics of the runs of an arm, by :func:`patient_weights`.
        other: ``(draws + 1, m)`` of the reference. A single column is one model that is given, such as an initial
            checkpoint: it has no seeds.
        patients: how many were drawn from.

    Example:
        >>> own, other = np.array([[0.5, 0.6, 0.7]] * 9), np.array([[0.2, 0.3, 0.4]] * 9)
        >>> found = difference(own, other, patients=100)
        >>> round(found.value, 3), round(found.low, 3), round(found.high, 3), round(found.p, 3)
        (0.3, 0.073, 0.527, 0.021)
    """
    value = float(own[0].mean() - other[0].mean())
    # On some draws there may be nothing to measure, no normal image for instance.
    measured = ~(np.isnan(own[1:]).any(axis=1) | np.isnan(other[1:]).any(axis=1))
    own, other = (table[np.append(True, measured)] for table in (own, other))
    by_draw = own[1:].mean(axis=1) - other[1:].mean(axis=1)
    if math.isnan(value) or not len(by_draw):
        return Difference(value, *(math.nan,) * 4)
    arms = [table for table in (own, other) if table.shape[1] > 1]
    seeds = [(float(table[0].var(ddof=1)), table.shape[1]) for table in arms]
    interaction = sum(float(table[1:].var(axis=1, ddof=1).mean()) / table.shape[1] for table in arms)
    interaction = max(0.0, interaction - sum(variance / n for variance, n in seeds))
    of_seeds = sum(variance / n for variance, n in seeds)
    of_patients = float(by_draw.var())
    squared = max(of_seeds + of_patients - interaction, of_seeds, of_patients)
    if squared < _ROUNDING**2:
        return Difference(value, value, value, 1.0 if abs(value) < _ROUNDING else math.nan, 0.0)
    beyond_seeds = max(0.0, squared - of_seeds)
    freedom = _satterthwaite([*((variance / n, n - 1) for variance, n in seeds), (beyond_seeds, patients - 1)])
    if seeds:
        freedom = min(freedom, 2.0 * sum(n - 1 for _, n in seeds))
    error = math.sqrt(squared)
    reach = _t(1 - ALPHA / 2, freedom) * error
    return Difference(value, value - reach, value + reach, _two_sided(value / error, freedom), error)


def by_checkpoint(own: Array, starts: Sequence[str], order: Sequence[str]) -> Array:
    """The mean of the runs that began from each checkpoint, ``(draws + 1, checkpoints)``.

    Runs from one checkpoint have its skill in common: where there are several checkpoints, these are the units.

    Args:
        own: ``(draws + 1, n)`` metrics of the runs of an arm.
        starts: the checkpoint of each run.
        order: of the checkpoints.

    Example:
        >>> by_checkpoint(np.array([[0.5, 0.7, 0.6, 0.8]]), ["a", "b", "a", "b"], ["a", "b"]).round(2)
        array([[0.55, 0.75]])
    """
    return np.column_stack([own[:, [start == name for start in starts]].mean(axis=1) for name in order])


def paired_difference(own: Array, other: Array, *, patients: int) -> Difference:
    """:func:`difference` where column k of both arms is of the same checkpoint.

    How good the checkpoint was is then in both, and the differences within pairs are what varies: between checkpoints
    with their seeds, and between patients.

    Args:
        own: ``(draws + 1, n)`` metrics of an arm :func:`by_checkpoint`.
        other: ``(draws + 1, n)`` of the reference, likewise.
        patients: how many were drawn from.

    Example:
        >>> own, other = np.array([[0.5, 0.7, 0.9]] * 9), np.array([[0.4, 0.6, 0.8]] * 9)
        >>> [round(found, 3) for found in paired_difference(own, other, patients=100)[:3]]
        [0.1, 0.1, 0.1]
    """
    return difference(own - other, np.zeros((len(own), 1)), patients=patients)


def mean_of_runs(own: Array, *, patients: int) -> Estimate:
    """The mean over the runs of an arm with its 95 % interval; of one given model, over patients alone.

    Example:
        >>> [round(end, 3) for end in mean_of_runs(np.array([[0.5, 0.6, 0.7]] * 9), patients=100)]
        [0.6, 0.352, 0.848]
    """
    nothing = np.zeros((len(own), 1))
    return difference(own, nothing, patients=patients).estimate


def _satterthwaite(parts: Sequence[tuple[float, int]]) -> float:
    """Degrees of freedom of a sum of variances, each with its own."""
    known = [(variance, freedom) for variance, freedom in parts if variance > 0]
    if not known:
        return math.inf
    return sum(variance for variance, _ in known) ** 2 / sum(
        variance**2 / max(freedom, 1) for variance, freedom in known
    )


def _t(share: float, freedom: float) -> float:
    from scipy.stats import t

    return float(t.ppf(share, freedom))


def _two_sided(statistic: float, freedom: float) -> float:
    from scipy.stats import t

    return float(2 * t.sf(abs(statistic), freedom))

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
of each arm, and the number of patients less one for the rest. docs/simulated_study.md has how often they hold.

Interquartile mean, probability of improvement and performance profiles are those of Agarwal et al., with intervals from
draws of runs and patients; as the percentiles of few runs are too narrow, they are taken further out, at
``Φ(± t √(n/(n-1)))`` (Hesterberg).

Sources: Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice, NeurIPS 2021; Owen, The
Pigeonhole Bootstrap, Annals of Applied Statistics 2007; Hesterberg, What Teachers Should Know About the Bootstrap, The
American Statistician 2015; Satterthwaite, Biometrics 1946.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from grounding_rewards.common.arithmetic import Array
from grounding_rewards.metrics.bootstrap import resampling_counts
from grounding_rewards.metrics.estimates import Estimate

#: Draws of patients.
RESAMPLES = 2000
#: Chance to find a difference of the detectable size.
POWER = 0.8
ALPHA = 0.05
#: More seeds than this are no answer to how many would settle a question.
MOST_SEEDS = 200

# Below this, differences are rounding.
_ROUNDING = 1e-12


class Difference(NamedTuple):
    """The mean of one arm's runs less that of another's, or less the one metric of a start.

    value, low, high: with its 95 % interval.
    p: two-sided; NaN where nothing varies, or nothing can be measured.
    error: standard error.
    seed_variance: between runs of an arm, pooled over both.
    patient_variance: of the difference, because of the patients; more seeds do not lower it.
    """

    value: float
    low: float
    high: float
    p: float
    error: float
    seed_variance: float
    patient_variance: float

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
    return np.concatenate([np.ones((1, patients)), resampling_counts(patients, resamples=resamples, seed=seed)])


def difference(own: Array, other: Array, *, patients: int) -> Difference:
    """How much higher the metric of one arm is than that of another on the same images.

    Args:
        own: ``(draws + 1, n)`` metrics of the runs of an arm, by :func:`patient_weights`.
        other: ``(draws + 1, m)`` of the reference. A single column is one model that is given, such as the start: it
            has no seeds.
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
        return Difference(value, *(math.nan,) * 6)
    arms = [table for table in (own, other) if table.shape[1] > 1]
    seeds = [(float(table[0].var(ddof=1)), table.shape[1]) for table in arms]
    interaction = sum(float(table[1:].var(axis=1, ddof=1).mean()) / table.shape[1] for table in arms)
    interaction = max(0.0, interaction - sum(variance / n for variance, n in seeds))
    of_seeds = sum(variance / n for variance, n in seeds)
    of_patients = float(by_draw.var())
    squared = max(of_seeds + of_patients - interaction, of_seeds, of_patients)
    pooled = sum(variance * (n - 1) for variance, n in seeds) / max(1, sum(n - 1 for _, n in seeds))
    beyond_seeds = max(0.0, squared - of_seeds)
    if squared < _ROUNDING**2:
        same = abs(value) < _ROUNDING
        return Difference(value, value, value, 1.0 if same else math.nan, 0.0, pooled, beyond_seeds)
    freedom = _satterthwaite([*((variance / n, n - 1) for variance, n in seeds), (beyond_seeds, patients - 1)])
    error = math.sqrt(squared)
    reach = _t(1 - ALPHA / 2, freedom) * error
    return Difference(
        value, value - reach, value + reach, _two_sided(value / error, freedom), error, pooled, beyond_seeds
    )


def mean_of_runs(own: Array, *, patients: int) -> Estimate:
    """The mean over the runs of an arm with its 95 % interval; of one given model, over patients alone.

    Example:
        >>> [round(end, 3) for end in mean_of_runs(np.array([[0.5, 0.6, 0.7]] * 9), patients=100)]
        [0.6, 0.352, 0.848]
    """
    nothing = np.zeros((len(own), 1))
    return difference(own, nothing, patients=patients).estimate


def interquartile_mean(scores: ArrayLike) -> float:
    """The mean of the middle half of all scores; of n a quarter, rounded down, is left out at either end.

    Args:
        scores: ``(runs, tasks)``, or ``(runs,)`` of one task.

    Example:
        >>> interquartile_mean([0.0, 0.4, 0.5, 0.6, 9.0])
        0.5
    """
    return float(_trimmed(np.asarray(scores, dtype=np.float64).ravel()))


def probability_of_improvement(own: ArrayLike, other: ArrayLike) -> float:
    """How likely a run of one arm has a higher score than one of another, equal ones counting half.

    Args:
        own: ``(n, tasks)``, or ``(n,)`` of one task.
        other: ``(m, tasks)``; the mean over tasks is taken.

    Example:
        >>> probability_of_improvement([0.5, 0.7], [0.6, 0.4])
        0.75
    """
    one, two = (np.asarray(scores, dtype=np.float64) for scores in (own, other))
    return float(_improvement(one[:, None], two[None, :]).mean())


def performance_profile(scores: ArrayLike, thresholds: ArrayLike) -> Array:
    """The share of the scores above each threshold.

    Args:
        scores: ``(runs, tasks)``; NaN where a task has no score.
        thresholds: ``(k,)``.

    Returns:
        ``(k,)``, not rising.

    Example:
        >>> performance_profile([[0.2, 0.6], [0.4, 0.8]], [0.0, 0.4, 0.7])
        array([1.  , 0.5 , 0.25])
    """
    every = np.asarray(scores, dtype=np.float64).ravel()
    every = np.sort(every[~np.isnan(every)])
    above = len(every) - np.searchsorted(every, np.asarray(thresholds, dtype=np.float64), side="right")
    return above / max(1, len(every))


def interquartile_estimate(own: Array, *, seed: int = 0) -> Estimate:
    """The interquartile mean over the runs of an arm, with a 95 % interval over runs and patients.

    Args:
        own: ``(draws + 1, n)`` as for :func:`difference`.
        seed: of the draws of runs.
    """
    drawn = _drawn_runs(own[1:], np.random.default_rng(seed))
    return Estimate(interquartile_mean(own[0]), *_expanded(_trimmed(drawn), own.shape[1]))


def improvement_estimate(own: Array, other: Array, *, seed: int = 0) -> Estimate:
    """The probability of improvement over the runs of another arm, with a 95 % interval over runs and patients.

    Args:
        own: ``(draws + 1, n)`` as for :func:`difference`.
        other: ``(draws + 1, m)``.
        seed: of the draws of runs.
    """
    rng = np.random.default_rng(seed)
    one, two = _drawn_runs(own[1:], rng), _drawn_runs(other[1:], rng)
    drawn = _improvement(one[:, :, None], two[:, None, :]).mean(axis=(1, 2))
    low, high = _expanded(drawn, own.shape[1] + other.shape[1] - 1)
    return Estimate(probability_of_improvement(own[0], other[0]), low, high)


def profile_band(
    scores: Array, thresholds: Array, groups: Sequence[int], *, resamples: int = 200, seed: int = 0
) -> Array:
    """A 95 % band around a performance profile, ``(2, k)``, over runs and patients, point by point.

    Args:
        scores: ``(runs, images)``; NaN where an image has no score.
        thresholds: ``(k,)``.
        groups: the patient of each image, a number from 0.
        resamples: draws of runs and patients.
        seed: of them.
    """
    rng = np.random.default_rng(seed)
    n, patients = len(scores), int(max(groups, default=-1)) + 1
    above = (scores[:, :, None] > thresholds).astype(np.float64)
    there = ~np.isnan(scores)
    by_patient = np.zeros((n, patients, len(thresholds)))
    counted = np.zeros((n, patients))
    for image, group in enumerate(groups):
        by_patient[:, group] += above[:, image]
        counted[:, group] += there[:, image]
    runs = rng.multinomial(n, np.full(n, 1 / n), size=resamples).astype(np.float64)
    drawn = rng.multinomial(patients, np.full(patients, 1 / patients), size=resamples).astype(np.float64)
    hits = np.einsum("bn,bp,npk->bk", runs, drawn, by_patient, optimize=True)
    total = np.einsum("bn,bp,np->b", runs, drawn, counted, optimize=True)
    shares = hits / np.maximum(total, 1.0)[:, None]
    return np.array([_expanded(column, n) for column in shares.T]).T


def detectable_difference(
    seed_variance: float, seeds: int, *, patient_variance: float = 0.0, alpha: float = ALPHA, power: float = POWER
) -> float:
    """The smallest true difference that so many seeds an arm find with probability ``power``.

    ``(t_(1-α/2) + t_power) √(2 s²/n + v)`` with 2n - 2 degrees of freedom.

    Args:
        seed_variance: s², between the runs of an arm.
        seeds: n, of each arm, from 2.
        patient_variance: v, of the difference, because of the patients.
        alpha: level of the test.
        power: probability to find it.

    Example:
        >>> round(detectable_difference(0.01**2, 5), 4), round(detectable_difference(0.01**2, 10), 4)
        (0.0202, 0.0133)
    """
    freedom = 2 * seeds - 2
    return (_t(1 - alpha / 2, freedom) + _t(power, freedom)) * math.sqrt(2 * seed_variance / seeds + patient_variance)


def seeds_to_settle(
    value: float, seed_variance: float, *, patient_variance: float = 0.0, alpha: float = ALPHA, power: float = POWER
) -> int | None:
    """How many seeds an arm find a true difference of this size; None where :data:`MOST_SEEDS` do not.

    Arguments as for :func:`detectable_difference`.

    Example:
        >>> seeds_to_settle(0.0202, 0.01**2), seeds_to_settle(0.01, 0.01**2, patient_variance=0.01**2)
        (6, None)
    """
    for seeds in range(2, MOST_SEEDS + 1):
        if detectable_difference(
            seed_variance, seeds, patient_variance=patient_variance, alpha=alpha, power=power
        ) <= abs(value):
            return seeds
    return None


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


def _trimmed(scores: Array) -> Array:
    """The interquartile mean along the last axis."""
    n = scores.shape[-1]
    cut = n // 4
    return np.sort(scores, axis=-1)[..., cut : n - cut].mean(axis=-1)


def _improvement(own: Array, other: Array) -> Array:
    return (own > other) + 0.5 * (own == other)


def _drawn_runs(metrics: Array, rng: np.random.Generator) -> Array:
    """Of each row as many runs as it has, with replacement; which run is which plays no part."""
    n = metrics.shape[1]
    return np.take_along_axis(np.sort(metrics, axis=1), rng.integers(0, n, metrics.shape), axis=1)


def _expanded(drawn: Array, n: int) -> tuple[float, float]:
    """The percentiles of a 95 % interval of n runs, further out than 2.5 and 97.5 because n is small."""
    from scipy.special import ndtr

    measured = drawn[~np.isnan(drawn)]
    if not len(measured):
        return math.nan, math.nan
    tail = float(ndtr(-_t(1 - ALPHA / 2, n - 1) * math.sqrt(n / (n - 1))))
    low, high = np.quantile(measured, [tail, 1 - tail])
    return float(low), float(high)

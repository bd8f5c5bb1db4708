"""Bootstrap intervals over films, or over patients, whose films are drawn together because they are not independent.

Most figures of an evaluation are ``Σ numerator / Σ denominator`` over films: a mean over films has the denominator 1,
a mean over reference boxes has their number, F1 has ``2·TP`` over ``2·TP + FP + FN``. One resampling of the films is
then one row of counts (how often each film was drawn), and all resamplings of all figures are matrix products.

A figure that is no ratio of sums, such as average precision, is computed again on every resampling, from boxes that
were matched once: a film that is drawn twice weighs twice. Such a figure is :class:`Resampled`. Two runs on the same
films, with the same seed, see the same resamplings, so that their figures can be subtracted resampling by resampling.

The intervals are percentile intervals with two corrections: for bias, because the average precision of a resampling
tends to be higher than that of the films (Efron and Tibshirani, 1993, §14.3, without acceleration), and for few units
(Hesterberg, What Teachers Should Know About the Bootstrap, 2015). docs/simulated_figures.md says how often they hold
the true figure. Shares have intervals of their own, :mod:`grounding_rewards.metrics.shares`: what never happened on any
film never happens in a draw.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.arithmetic import Array, ratio_or_nan
from grounding_rewards.metrics.estimates import Estimate
from grounding_rewards.metrics.shares import share_estimate

_Key = TypeVar("_Key")

#: Resamplings of a ratio of sums.
RESAMPLES = 5_000
#: Resamplings at most of a figure that is computed again on each of them.
RANKED_RESAMPLES = 2_000

# Counts that are in memory at once: 32 MB of float64.
_CELLS = 1 << 22
# Figures of the same films that are added up in another order differ by less than this.
_ROUNDING = 1e-12
# Cells of the arrays of weights by boxes that are worked on at once.
_WEIGHT_CELLS = 1 << 20


def resampling_counts(n: int, *, resamples: int = RESAMPLES, seed: int = 0) -> Array:
    """Draw ``n`` of ``n`` units with replacement, ``resamples`` times.

    Returns:
        ``(resamples, n)`` float64: how often each unit was drawn; every row sums to ``n``.

    Example:
        >>> resampling_counts(3, resamples=4).sum(axis=1)
        array([3., 3., 3., 3.])
    """
    if n == 0:
        return np.zeros((resamples, 0))
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples).astype(np.float64)


def resampled_sums(sums: Array, *, resamples: int = RESAMPLES, seed: int = 0) -> Array:
    """The column sums of every resampling; equal to ``resampling_counts(n) @ sums``, in little memory for any n.

    Columns side by side, of several figures or of several runs over the same units, see the same resamplings, so that
    they can be compared resampling by resampling.

    Args:
        sums: ``(n, k)``, a row per unit that is drawn.
        resamples: number of resamplings.
        seed: of the resampling.

    Returns:
        ``(resamples, k)``.

    Example:
        >>> sums = np.array([[1.0, 2.0], [0.0, 5.0], [4.0, 1.0]])
        >>> np.allclose(resampled_sums(sums, resamples=7), resampling_counts(3, resamples=7) @ sums)
        True
    """
    n, k = sums.shape
    if n == 0:
        return np.zeros((resamples, k))
    chunk = max(1, _CELLS // n)
    counts = _counts(n, resamples, seed)
    return np.concatenate(
        [counts[start : start + chunk].astype(np.float64) @ sums for start in range(0, resamples, chunk)]
    )


# All figures of all systems ask for the same resamplings.
@lru_cache(maxsize=1)
def _counts(n: int, resamples: int, seed: int) -> NDArray[np.uint8 | np.uint16]:
    """:func:`resampling_counts` of at least one unit, drawn and kept in little memory."""
    rng = np.random.default_rng(seed)
    counts = np.empty((resamples, n), dtype=np.uint8 if n < 1 << 8 else np.uint16)
    rows = max(1, _CELLS // n)
    for start in range(0, resamples, rows):
        size = min(rows, resamples - start)
        counts[start : start + size] = rng.multinomial(n, np.full(n, 1 / n), size=size)
    counts.flags.writeable = False
    return counts


def group_numbers(groups: Sequence[Any] | None, films: int) -> NDArray[np.int64]:
    """The number of each film's group, ``(films,)``, in the order in which groups first appear.

    Args:
        groups: one hashable name per film; without them every film is its own group.
        films: how many there are.

    Raises:
        ValueError: the number of names differs from the number of films.

    Example:
        >>> group_numbers(["b", "a", "b"], 3)
        array([0, 1, 0])
    """
    names = range(films) if groups is None else groups
    if len(names) != films:
        raise ValueError(
            f"Expected one group per film for `groups`, got {len(names)} for {films} films. "
            "Give the patient of every film, in the order of the films."
        )
    number: dict[Any, int] = {}
    return np.array([number.setdefault(name, len(number)) for name in names], dtype=np.int64)


def drawn_groups(
    groups: Sequence[Any] | None, films: int, resamples: int, seed: int
) -> tuple[NDArray[np.int64], Array]:
    """Resample groups of films, for instance patients; without groups every film is its own.

    Returns:
        The numbers of :func:`group_numbers`, and ``(resamples, groups)`` how often each group was drawn.

    Example:
        >>> units, weights = drawn_groups(["b", "a", "b"], 3, resamples=4, seed=0)
        >>> units, weights.shape
        (array([0, 1, 0]), (4, 2))
    """
    units = group_numbers(groups, films)
    return units, _drawn(int(units.max(initial=-1)) + 1, resamples, seed)


# All ranked figures of an evaluation ask for the same resamplings.
@lru_cache(maxsize=1)
def _drawn(n: int, resamples: int, seed: int) -> Array:
    weights = resampling_counts(n, resamples=resamples, seed=seed)
    weights.flags.writeable = False
    return weights


def sum_by_group(sums: Array, groups: Sequence[Any]) -> Array:
    """Add up the rows that belong to one group, for instance the films of one patient.

    Args:
        sums: ``(films, k)``, numerators and denominators for instance.
        groups: one hashable name per film.

    Returns:
        ``(groups, k)``, in the order in which the groups first appear.

    Raises:
        ValueError: the number of names differs from the number of films.

    Example:
        >>> sum_by_group(np.array([[1., 1.], [0., 1.], [1., 1.]]), ["a", "b", "a"])
        array([[2., 2.],
               [0., 1.]])
    """
    number = group_numbers(groups, len(sums))
    total = np.zeros((number.max(initial=-1) + 1, sums.shape[1]))
    np.add.at(total, number, sums)
    return total


def ratio_estimates(
    sums: Mapping[_Key, Array],
    *,
    shares: Container[_Key] = (),
    groups: Sequence[Any] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[_Key, Estimate]:
    """``Σ numerator / Σ denominator`` of every figure, with 95 % intervals: of shares exact ones, else percentiles.

    Args:
        sums: by key ``(films, 2)`` numerators and denominators.
        shares: keys of the figures that are shares, see :mod:`grounding_rewards.metrics.shares`.
        groups: the patient of each film, where known; the films of one patient are then drawn together.
        resamples: number of resamplings.
        seed: of the resampling.

    Example:
        >>> ratio_estimates({"recall": np.column_stack([[1, 1, 1, 0], np.ones(4)])})
        {'recall': Estimate(value=0.75, low=0.0, high=1.0)}

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, §13.
    """
    others = [key for key in sums if key not in shares]
    found = {
        key: share_estimate(one if groups is None else sum_by_group(one, groups))
        for key, one in sums.items()
        if key in shares
    }
    if others:
        table = np.concatenate([sums[key] for key in others], axis=1)
        units = table if groups is None else sum_by_group(table, groups)
        drawn = resampled_sums(units, resamples=resamples, seed=seed)
        for k, key in enumerate(others):
            of = slice(2 * k, 2 * k + 2)
            found[key] = resampled_ratio(units[:, of], drawn[:, of]).estimate
    return {key: found[key] for key in sums}


def ratios(sums: Array) -> Any:
    """Divide the last axis' first entry by its second; NaN where the second is 0.

    Example:
        >>> ratios(np.array([[1.0, 4.0], [0.0, 0.0]]))
        array([0.25,  nan])
    """
    ratio = ratio_or_nan(sums[..., 0], sums[..., 1])
    return float(ratio) if ratio.ndim == 0 else ratio


def resampled_ratio(units: Array, drawn: Array) -> Resampled:
    """A ratio of sums over units on all of them, and on resamplings.

    Args:
        units: ``(units, 2)`` numerators and denominators.
        drawn: ``(resamples, 2)`` their sums over every resampling.

    Example:
        >>> found = resampled_ratio(np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 0.0]]), np.array([[2.0, 4.0]]))
        >>> found.value, found.units
        (0.5, 2)
    """
    return Resampled(ratios(units.sum(axis=0)), ratios(drawn), int((units[:, 1] != 0).sum()))


def percentile_interval(values: Array) -> tuple[float, float]:
    """The 2.5th and the 97.5th percentile of the resamplings that have something to measure.

    Example:
        >>> percentile_interval(np.array([0.0, 1.0, np.nan]))
        (0.025, 0.975)
    """
    measured = values[~np.isnan(values)]
    if not measured.size:
        return float("nan"), float("nan")
    low, high = np.quantile(measured, [0.025, 0.975])
    return float(low), float(high)


def corrected_interval(value: float, resamples: Array, units: int) -> tuple[float, float]:
    """The 95 % interval: percentiles of the resamplings that are corrected for bias and for few units.

    The percentiles are ``Φ(2 z_0 ± z)``, with ``z_0 = Φ⁻¹(share of the resamplings below the value)``, equal ones
    counting half, and ``z = t_{units - 1} √(units / (units - 1))``.

    Args:
        value: the figure on the films.
        resamples: ``(resamples,)``, NaN where there is nothing to measure.
        units: how many were drawn from, patients or films; below 2 there is no correction for few units.

    Example:
        >>> low, high = corrected_interval(0.5, np.linspace(0, 1, 1001), units=1000)
        >>> round(low, 3), round(high, 3)
        (0.025, 0.975)
    """
    from scipy.special import ndtr, ndtri, stdtrit

    measured = resamples[~np.isnan(resamples)]
    if not measured.size or np.isnan(value):
        return percentile_interval(measured)
    # What is equal but for rounding is equal.
    below = ((measured < value - _ROUNDING).sum() + (measured <= value + _ROUNDING).sum()) / 2
    # Not further than the draws can tell.
    bias = ndtri(np.clip(below, 0.5, measured.size - 0.5) / measured.size)
    reach = ndtri(0.975) if units < 2 else stdtrit(units - 1, 0.975) * np.sqrt(units / (units - 1))
    low, high = np.quantile(measured, ndtr(2 * bias + reach * np.array([-1.0, 1.0])))
    return float(low), float(high)


class Resampled(NamedTuple):
    """A figure on the films, and ``(resamples,)`` on each resampling of them; NaN where there is nothing to measure.

    ``units`` is how many patients or films were drawn from, of those that have something to measure.
    """

    value: float
    resamples: Array
    units: int = 0

    @property
    def estimate(self) -> Estimate:
        """The figure with its 95 % interval, see :func:`corrected_interval`.

        Example:
            >>> Resampled(0.5, np.array([0.5, 0.5, 0.5])).estimate
            Estimate(value=0.5, low=0.5, high=0.5)
        """
        return Estimate(self.value, *corrected_interval(self.value, self.resamples, self.units))


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
    units = min(before.units, after.units)
    return Resampled(after.value - before.value, after.resamples - before.resamples, units)


def blocks(weights: Array, width: int) -> Iterator[Array]:
    """Cut rows of weights into blocks that are small beside as many rows of ``width`` numbers.

    Example:
        >>> [block.shape for block in blocks(np.ones((3, 2)), width=1 << 20)]
        [(1, 2), (1, 2), (1, 2)]
    """
    rows = max(1, _WEIGHT_CELLS // max(width, 1))
    for start in range(0, len(weights), rows):
        yield weights[start : start + rows]

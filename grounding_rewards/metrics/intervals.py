"""95 % intervals: of shares exact ones, of all other metrics by leaving out patients.

**Shares**: how often something happens among images, boxes or answers, counted one by one (:func:`share_estimate`).
Where something was never seen, a bootstrap never draws it: 0 of 25 images would have the interval [0, 0]. The exact
interval of the binomial distribution (Clopper and Pearson) says [0, 0.137].

What is counted need not be independent: images of one patient are not, and neither are boxes of one image. As surveys
do, the interval is that of as many independent observations as would be equally uncertain (Korn and Graubard),

    n* = n / deff · (t_{n-1} / t_{m-1})²,   deff = m/(m-1) Σ_u (x_u - p n_u)² / (n/(n-1) · n p (1-p)), at least 1

with n counted things, p the share of them, and m units that are independent, patients or images, with x_u of n_u each;
t is the 97.5th percentile of Student's distribution. Where each unit has one thing, n* = n, and the interval is Clopper
and Pearson's. Nothing can be said about how alike the things of a unit are where none or all happened: then n* = m, and
no interval may be shorter at that end than it would be then.

**All other metrics**: from how much each patient, left out, changes them (:class:`Jackknifed`). A metric ``v`` is taken
again without each of the ``g`` units, patients or images, which gives ``v_(1) … v_(g)``. Where there are more than
:data:`MOST_PARTS` units and taking it again is work, units are put at random into that many parts, and parts are left
out. Then

    se² = (g - 1)/g Σ_k (v_(k) - mean)²

is how uncertain it is, and the interval is one that knows the ends of the scale, as that of shares does:

* in [0, 1], Clopper and Pearson's for as many observations as would be equally uncertain,
  ``n* = v (1 - v) / se² · (z / t)²``; z and t are 97.5th percentiles, of the normal distribution and of Student's with
  ``g - 1`` degrees of freedom;
* from 0 up, numbers of boxes for instance, Fay and Feuer's for weighted counts, of variance ``(se t / z)²``, where an
  event that was not seen weighs ``1/m``: with none among m units the upper end is ``3.69/m``, as it is for a Poisson
  number;
* a difference, ``v ± t se``.

What was never seen may still befall others: of m units, a share of at most ``u = 1 - 0.025^(1/m)``. So in [0, 1] the
interval reaches down to ``v (1 - u)`` at least, and up to ``v + (1 - v) u``: a model that is right about all patients
of a test set need not be so about the next one. Fewer than two units say nothing about others: the interval is the
whole scale.

Average precision reads the best precision at each recall or a larger one, and the best of fewer boxes is better by
chance, so that it is too high: as other monotone hulls, by about ``c m^-2/3``. On halves of the units, each with its
counterpart, it is so by ``2^2/3`` times that, which says how much it is; the interval stands around the metric less
that. The metric itself is not changed.

docs/metrics.md says how often the intervals hold the true metric. Two runs on the same units, with the same
seed, leave out the same ones, so that their metrics can be subtracted one by one.

Sources: Clopper and Pearson, The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial,
Biometrika 1934; Korn and Graubard, Confidence Intervals for Proportions with Small Expected Number of Positive Counts
Estimated from Survey Data, Survey Methodology 1998; Efron and Tibshirani, An Introduction to the Bootstrap, 1993, §11
and §13; Fay and Feuer, Confidence Intervals for Directly Standardized Rates, Statistics in Medicine 1997.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.common.formatting import format_value
from grounding_rewards.common.numeric import Array, ratio_or_nan

#: The ends of a metric's scale; infinite where the scale has no end.
Bounds = tuple[float, float]
UNIT: Bounds = (0.0, 1.0)
COUNT: Bounds = (0.0, math.inf)
SIGNED: Bounds = (-math.inf, math.inf)


class Metric(NamedTuple):
    """A metric of an evaluation; tables, pages and `diff` take from here all that they show of it.

    heading: for tables.
    definition: one sentence for a person.
    of: the function that computes it; its table says from what. None where several metrics are computed together.
    lower_is_better: None where 0 is best from both sides.
    is_share: how often something happens among things that are counted: its interval is that of
        :mod:`grounding_rewards.metrics.intervals`.
    bounds: the ends of its scale, which its interval does not cross: `UNIT`, `COUNT` or `SIGNED`.
    """

    heading: str
    definition: str
    of: Any = None
    lower_is_better: bool | None = False
    is_share: bool = False
    bounds: Bounds = UNIT


class Estimate(NamedTuple):
    """A metric and the ends of its 95 % interval; all three are NaN where there is nothing to measure."""

    value: float
    low: float
    high: float


#: Metrics by key.
Metrics = dict[str, Estimate]


def format_interval(estimate: tuple[float, float, float], *, signed: bool = False) -> str:
    """The ends of an interval in brackets, or nothing where nothing was measured.

    Example:
        >>> format_interval(Estimate(0.67, 0.64, 0.7)), format_interval(Estimate(0.02, -0.01, 0.05), signed=True)
        ('[0.640, 0.700]', '[-0.010, +0.050]')
    """
    _, low, high = estimate
    if math.isnan(low) or math.isnan(high):
        return ""
    return f"[{format_value(low, signed=signed)}, {format_value(high, signed=signed)}]"


def format_estimate(estimate: tuple[float, float, float], *, signed: bool = False) -> str:
    """The value and its interval, for a sentence or a cell.

    Example:
        >>> format_estimate(Estimate(0.67, 0.64, 0.7)), format_estimate((float("nan"),) * 3)
        ('0.670 [0.640, 0.700]', '–')
    """
    return f"{format_value(estimate[0], signed=signed)} {format_interval(estimate, signed=signed)}".rstrip()


# The part of a distribution beyond either end of a 95 % interval.
_TAIL = 0.025


def share_estimate(units: Array) -> Estimate:
    """A share with its exact 95 % interval.

    Args:
        units: ``(units, 2)`` how often it happened in each independent unit, and among how many.

    Returns:
        In [0, 1]; NaN without anything counted.

    Example:
        >>> import numpy as np
        >>> share = share_estimate(np.array([[0.0, 1.0]] * 25))
        >>> share.low, round(share.high, 3)
        (0.0, 0.137)
        >>> share_estimate(np.array([[0.0, 2.0]] * 25)) == share
        True
    """
    sums = units[units[:, 1] > 0]
    m = len(sums)
    if not m:
        return Estimate(math.nan, math.nan, math.nan)
    happened, n = sums.sum(axis=0).tolist()
    share = happened / n
    if share in (0, 1):
        # None or all happened, which says nothing about how alike the things of a unit are: each unit counts as one.
        return Estimate(share, *binomial_interval(share, m))
    low, high = binomial_interval(share, _independent_count(sums, share, n))
    # No more certain than if it had happened in all units, or in none.
    always_low, never_high = binomial_interval(1.0, m)[0], binomial_interval(0.0, m)[1]
    return Estimate(share, min(low, always_low), max(high, never_high))


def _independent_count(sums: Array, share: float, n: float) -> float:
    """How many independent observations would be as uncertain as these: n* of the module.

    Args:
        sums: ``(units, 2)`` how often it happened, and among how many.
        share: of all units together.
        n: how many observations there are.
    """
    from scipy.special import stdtrit

    m = len(sums)
    if m == 1:
        return 1.0
    # Of the sum over units as they are, and as it would be if all n observations were independent: deff is their ratio.
    variance = m / (m - 1) * float(((sums[:, 0] - share * sums[:, 1]) ** 2).sum())
    independent_variance = n / (n - 1) * n * share * (1 - share)
    t_ratio = float(stdtrit(n - 1, 1 - _TAIL) / stdtrit(m - 1, 1 - _TAIL))
    # n* = n / deff · (t_{n-1} / t_{m-1})²
    return min(n, n / max(1.0, variance / independent_variance) * t_ratio**2)


def binomial_interval(share: float, n: float) -> tuple[float, float]:
    """The ends of Clopper and Pearson's 95 % interval of a share of n; neither ``share * n`` nor ``n`` need be whole.

    Example:
        >>> low, high = binomial_interval(0.0, 25)
        >>> low, round(high, 3)
        (0.0, 0.137)
    """
    from scipy.special import betaincinv

    # Quantiles of beta distributions; none is below the share 0 or above the share 1.
    x = share * n
    low = 0.0 if x == 0 else float(betaincinv(x, n - x + 1, _TAIL))
    high = 1.0 if x == n else float(betaincinv(x + 1, n - x, 1 - _TAIL))
    return low, high


_Key = TypeVar("_Key")

#: Parts of the units at most that are left out, one at a time, of a metric that is computed again without each.
MOST_PARTS = 100
# Pairs of halves that the bias is read from.
_SPLITS = 20
# Rounding alone makes metrics that do not change differ by less.
_ROUNDING = 1e-12


class Jackknifed(NamedTuple):
    """A metric on all units, and ``(g,)`` without each part of them; NaN where there is nothing to measure.

    units: how many patients or images there are, of those that have something to measure.
    bias: by how much the metric is too high.
    bounds: the ends of its scale.
    """

    value: float
    left_out: Array
    units: int
    bias: float = 0.0
    bounds: Bounds = UNIT

    @property
    def standard_error(self) -> float:
        """The jackknife's standard error of the metric; infinite where fewer than two units can be measured.

        Example:
            >>> round(Jackknifed(0.5, np.array([0.25, 0.5, 0.75]), 3).standard_error, 4)
            0.2887
        """
        measured = self._measured
        if self.units < 2 or len(measured) < 2:
            return math.inf
        # se² = (g - 1)/g Σ_k (v_(k) - mean)², of which `var` is 1/g Σ_k
        error = float(np.sqrt((len(measured) - 1) * measured.var()))
        # What rounding alone makes is no error.
        return 0.0 if error < _ROUNDING * max(1.0, abs(self.value)) * len(measured) else error

    @property
    def estimate(self) -> Estimate:
        """The metric with its 95 % interval; NaN for an end that nothing bounds.

        Example:
            >>> Jackknifed(0.5, np.array([0.5, 0.5]), 1).estimate
            Estimate(value=0.5, low=0.0, high=1.0)
        """
        if math.isnan(self.value):
            return Estimate(math.nan, math.nan, math.nan)
        error = self.standard_error
        if math.isinf(error):
            # Too few units say nothing about others: the interval is the whole scale.
            return Estimate(self.value, *(end if math.isfinite(end) else math.nan for end in self.bounds))
        # The error is uncertain itself where it is made of few values, one for each unit or part of the units that was
        # left out: Student's distribution allows for that.
        widened_error = error * student_factor(min(self.units, len(self._measured)))
        low, high = self.bounds
        interval = _symmetric_ends
        # A value outside its scale, as a reward may have, has no interval of the kind that ends there.
        if low <= self.value <= high:
            interval = _ENDS_BY_BOUNDS.get(self.bounds, _symmetric_ends)
        return Estimate(self.value, *interval(self, widened_error))

    @property
    def as_mean(self) -> Array:
        """The metric as about the mean of the jackknife's value for each part, for a test that takes ratios of sums.

        That value is ``v + (g - 1) (mean - v_(k))``: larger where the metric without the part is smaller.

        Returns:
            ``(g, 2)`` the values as numerators, and denominators of 1; zeros, so that the ratio is NaN, where the
            metric cannot be measured without some part.

        Example:
            >>> Jackknifed(2.0, np.array([1.5, 2.5]), 2).as_mean
            array([[2.5, 1. ],
                   [1.5, 1. ]])
        """
        if np.isnan(self.left_out).any():
            return np.zeros((len(self.left_out), 2))
        part_values = self.value + (len(self.left_out) - 1) * (self.left_out.mean() - self.left_out)
        return np.column_stack([part_values, np.ones(len(part_values))])

    @property
    def _measured(self) -> Array:
        """The metric without each part where it can be measured."""
        return self.left_out[~np.isnan(self.left_out)]


def student_factor(units: float) -> float:
    """How much wider a 95 % interval is by Student's distribution of `units` units than by the normal one, t / z.

    Example:
        >>> round(student_factor(10), 3)
        1.154
    """
    from scipy.special import ndtri, stdtrit

    return float(stdtrit(units - 1, 1 - _TAIL) / ndtri(1 - _TAIL))


def _ends_in_unit(metric: Jackknifed, error: float) -> tuple[float, float]:
    """The ends of the interval of a metric from 0 to 1, by the binomial distribution.

    `error`: the standard error, widened by :func:`student_factor`.
    """
    # The metric without its bias, which may lie outside the scale.
    centre = min(max(metric.value - metric.bias, 0.0), 1.0)
    low = high = centre
    if error > 0 and 0 < centre < 1:
        # n* = v (1 - v) / se²: as many independent observations are equally uncertain.
        low, high = binomial_interval(centre, centre * (1 - centre) / error**2)
    # What befell none of these units may still befall a share of all units: at most this one, as of a larger share no
    # unit is among so many with a probability below `_TAIL`. The interval reaches as far as if the metric were 0, or 1,
    # on that share.
    unseen = 1.0 - _TAIL ** (1 / metric.units)
    return min(low, metric.value * (1 - unseen)), max(high, metric.value + (1 - metric.value) * unseen)


def _ends_from_zero(metric: Jackknifed, error: float) -> tuple[float, float]:
    """The ends of the interval of a metric from 0 up, a mean number of events, by Fay and Feuer's gamma distributions.

    `error`: the standard error, widened by :func:`student_factor`.
    """
    from scipy.special import gammaincinv

    mean, variance = metric.value, error**2
    low = mean
    # A gamma distribution of this mean and variance has the shape mean² / variance and the scale variance / mean.
    if mean > 0 and variance > 0:
        low = float(gammaincinv(mean**2 / variance, _TAIL)) * variance / mean
    # The upper end is that of one event more, which was not seen: it adds its weight, and the square of it as variance.
    weight = 1 / metric.units
    upper_mean, upper_variance = mean + weight, variance + weight**2
    return low, float(gammaincinv(upper_mean**2 / upper_variance, 1 - _TAIL)) * upper_variance / upper_mean


def _symmetric_ends(metric: Jackknifed, error: float) -> tuple[float, float]:
    """The ends of the interval around a metric less its bias by the normal distribution, cut at the ends of its scale.

    `error`: the standard error, widened by :func:`student_factor`.
    """
    from scipy.special import ndtri

    # What no unit changes is certain.
    if error == 0:
        return metric.value, metric.value
    centre, reach = metric.value - metric.bias, float(ndtri(1 - _TAIL)) * error
    lowest, highest = metric.bounds
    return max(centre - reach, lowest), min(centre + reach, highest)


# The function that gives the ends of an interval, by the ends of the scale; of other scales it is `_symmetric_ends`.
_ENDS_BY_BOUNDS = {UNIT: _ends_in_unit, COUNT: _ends_from_zero}


def jackknifed_ratio(units: Array, bounds: Bounds = UNIT) -> Jackknifed:
    """A ratio of sums over units, and the same ratio without each unit.

    Args:
        units: ``(units, 2)`` numerators and denominators.
        bounds: the ends of its scale.

    Example:
        >>> found = jackknifed_ratio(np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 0.0]]))
        >>> found.value, found.left_out, found.units
        (0.5, array([0.5, 0.5, 0.5]), 2)
    """
    total = units.sum(axis=0)
    return Jackknifed(ratios(total), ratios(total - units), int((units[:, 1] != 0).sum()), bounds=bounds)


def jackknifed_difference(before: Jackknifed, after: Jackknifed) -> Jackknifed:
    """After minus before, on the same images.

    Args:
        before: a metric of one run.
        after: of another run on the same images in the same order, with the same groups and seed.

    Example:
        >>> change = jackknifed_difference(Jackknifed(0.5, np.array([0.4, 0.6]), 2),
        ...                                Jackknifed(0.75, np.array([0.65, 0.85]), 2))
        >>> change.estimate
        Estimate(value=0.25, low=0.25, high=0.25)
    """
    # Two values of one scale differ by its length at most, to either side.
    low, high = after.bounds
    return Jackknifed(
        value=after.value - before.value,
        left_out=after.left_out - before.left_out,
        units=min(before.units, after.units),
        bias=after.bias - before.bias,
        bounds=(low - high, high - low),
    )


class Parts(NamedTuple):
    """Images in parts that are left out together.

    of_image: ``(images,)`` the part of each image, an index.
    parts: how many there are.
    units: how many patients, or images of no known patient, there are.
    """

    of_image: NDArray[np.int64]
    parts: int
    units: int

    @classmethod
    def of(cls, groups: Sequence[Any] | None, images: int, seed: int) -> Parts:
        """One part for each unit, or :data:`MOST_PARTS` of about equally many units.

        Args:
            groups: the patient of each image, where known; without them every image is a unit.
            images: how many there are.
            seed: of putting units into parts, and of :attr:`halves`.

        Example:
            >>> Parts.of(["b", "a", "b"], 3, seed=0)
            Parts(of_image=array([0, 1, 0]), parts=2, units=2)
        """
        number = group_numbers(groups, images)
        units = int(number.max(initial=-1)) + 1
        if units <= MOST_PARTS:
            return cls(number, units, units)
        # Every part as often as any other, or once more, in random order.
        part_of_unit = np.random.default_rng(seed).permutation(np.arange(units) % MOST_PARTS)
        return cls(part_of_unit[number], MOST_PARTS, units)

    def halves(self, seed: int) -> Array:
        """Random splits of the parts into halves, as rows of weights: all the first halves, then their counterparts.

        Example:
            >>> Parts.of(None, 4, seed=0).halves(seed=0).sum(axis=0)
            array([20., 20., 20., 20.])
        """
        rng = np.random.default_rng(seed)
        in_first_half = np.array([rng.permutation(self.parts) < self.parts // 2 for _ in range(_SPLITS)])
        return np.concatenate([in_first_half, ~in_first_half]).astype(np.float64)


def jackknife(metric: Callable[[Array], Array], parts: Parts, *, hull_seed: int | None = None) -> Jackknifed:
    """A metric in [0, 1] of all images and without each part of them.

    Args:
        metric: takes weights of the parts ``(rows, parts)`` to values ``(rows,)``.
        parts: of the images.
        hull_seed: for a metric that takes the best precision at each recall or a larger one, and is too high by chance:
            seed of the random halves of the parts that show by how much. None for other metrics.

    Example:
        >>> hits = np.array([1.0, 0.0, 1.0])
        >>> recall = lambda weights: weights @ hits / weights.sum(axis=1)
        >>> jackknife(recall, Parts.of(None, 3, seed=0)).left_out
        array([0.5, 1. , 0.5])
    """
    # All parts, then all but one, then halves: one call for all.
    weights = [np.ones((1, parts.parts)), 1.0 - np.eye(parts.parts)]
    if hull_seed is not None:
        weights.append(parts.halves(hull_seed))
    values = metric(np.concatenate(weights))
    value, left_out, on_halves = float(values[0]), values[1 : parts.parts + 1], values[parts.parts + 1 :]
    on_halves = on_halves[~np.isnan(on_halves)]
    # The metric of m units is too high by c m^-2/3, and of half of them by 2^2/3 times that: the difference of the two
    # is 2^2/3 - 1 times the bias.
    bias = (float(on_halves.mean()) - value) / (2 ** (2 / 3) - 1) if len(on_halves) else 0.0
    return Jackknifed(value, left_out, parts.units, bias)


def ratio_estimates(
    sums: Mapping[_Key, Array], metrics: Mapping[_Key, Metric] | None = None, groups: Sequence[Any] | None = None
) -> dict[_Key, Estimate]:
    """``Σ numerator / Σ denominator`` of every metric, with 95 % intervals.

    Args:
        sums: by key ``(images, 2)`` numerators and denominators.
        metrics: by key, for whether each is a share, and for the ends of its scale; a key that is not among them is
            taken for no share, from 0 to 1.
        groups: the patient of each image, where known; the images of one patient are then left out together.

    Example:
        >>> found = ratio_estimates({"iou": np.column_stack([[0.9, 0.5, 0.7, 0.7], np.ones(4)])})["iou"]
        >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
        (0.7, 0.278, 0.92)
    """
    estimates = {}
    for key, rows in sums.items():
        units = rows if groups is None else sum_by_group(rows, groups)
        estimates[key] = ratio_estimate(units, (metrics or {}).get(key, Metric("", "")))
    return estimates


def ratio_estimate(units: Array, metric: Metric) -> Estimate:
    """A ratio of sums over units with its 95 % interval, the exact one of a share.

    Args:
        units: ``(units, 2)`` numerators and denominators.
        metric: which says whether it is a share, and the ends of its scale.
    """
    return share_estimate(units) if metric.is_share else jackknifed_ratio(units, metric.bounds).estimate


def difference_estimate(before: Array, after: Array, metric: Metric) -> Estimate:
    """After minus before, of ratios of sums over the same units, with its 95 % interval.

    A share that is the same on all of n units has the exact interval of 0 of n, to both sides.

    Args:
        before: ``(units, 2)`` numerators and denominators of the one run.
        after: those of the other run, on the same units.
        metric: as of :func:`ratio_estimate`.

    Example:
        >>> always = np.ones((25, 2))
        >>> round(difference_estimate(always, always, Metric("recall", "", is_share=True)).high, 3)
        0.137
    """
    if metric.is_share and np.array_equal(before, after):
        # How often an answer differs, which is never: numerators of 0, denominators as they are.
        never = share_estimate(before * [0.0, 1.0])
        return Estimate(never.value, -never.high, never.high)
    runs = jackknifed_ratio(before, metric.bounds), jackknifed_ratio(after, metric.bounds)
    return jackknifed_difference(*runs).estimate


def group_numbers(groups: Sequence[Any] | None, images: int) -> NDArray[np.int64]:
    """The number of each image's group, from 0, ``(images,)``.

    Args:
        groups: one hashable name per image, whose groups are numbered as they first appear; or an array of numbers,
            whose groups are numbered in rising order. Without them every image is its own group.
        images: how many there are.

    Raises:
        ValueError: the number of names differs from the number of images.

    Example:
        >>> group_numbers(["b", "a", "b"], 3)
        array([0, 1, 0])
    """
    if groups is None:
        return np.arange(images)
    if len(groups) != images:
        raise ValueError(
            f"Expected one group per image for `groups`, got {len(groups)} for {images} images. "
            "Give the patient of every image, in the order of the images."
        )
    if isinstance(groups, np.ndarray):
        # Numbers already, as this function gives them: asked for every metric, names would take longest.
        return np.unique(groups, return_inverse=True)[1]
    number_of: dict[Any, int] = {}
    return np.array([number_of.setdefault(name, len(number_of)) for name in groups], dtype=np.int64)


def sum_by_group(sums: Array, groups: Sequence[Any]) -> Array:
    """Add up the rows that belong to one group, for instance the images of one patient.

    Args:
        sums: ``(images, k)``, numerators and denominators for instance.
        groups: one hashable name or number per image.

    Returns:
        ``(groups, k)``, in the order of :func:`group_numbers`.

    Raises:
        ValueError: the number of names differs from the number of images.

    Example:
        >>> sum_by_group(np.array([[1., 1.], [0., 1.], [1., 1.]]), ["a", "b", "a"])
        array([[2., 2.],
               [0., 1.]])
    """
    number = group_numbers(groups, len(sums))
    return np.stack([np.bincount(number, weights=column) for column in sums.T], axis=1)


def ratios(sums: Array) -> Any:
    """Divide the first entry along the last axis by the second; NaN where the second is 0.

    Example:
        >>> ratios(np.array([[1.0, 4.0], [0.0, 0.0]]))
        array([0.25,  nan])
    """
    ratio = ratio_or_nan(sums[..., 0], sums[..., 1])
    return float(ratio) if ratio.ndim == 0 else ratio

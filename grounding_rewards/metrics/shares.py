"""Intervals of shares: how often something happens among images, boxes or answers, counted one by one.

A bootstrap draws from what was seen, so where something never happened it never happens in any draw: 0 of 25 images
would have the interval [0, 0]. The exact interval of the binomial distribution (Clopper and Pearson) says [0, 0.137].

What is counted need not be independent: images of one patient are not, and neither are boxes of one image. As surveys
do, the interval is that of as many independent observations as would be equally uncertain (Korn and Graubard),

    n* = n / deff · (t_{n-1} / t_{m-1})²,   deff = m/(m-1) Σ_u (x_u - p n_u)² / (n/(n-1) · n p (1-p)), at least 1

with n counted things, p the share of them, and m units that are independent, patients or images, with x_u of n_u each;
t is the 97.5th percentile of Student's distribution. Where each unit has one thing, n* = n, and the interval is Clopper
and Pearson's. Nothing can be said about how alike the things of a unit are where none or all happened: then n* = m, and
no interval may be shorter at that end than it would be then.

Sources: Clopper and Pearson, The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial,
Biometrika 1934; Korn and Graubard, Confidence Intervals for Proportions with Small Expected Number of Positive Counts
Estimated from Survey Data, Survey Methodology 1998.
"""

from __future__ import annotations

import math

from grounding_rewards.common.arithmetic import Array
from grounding_rewards.metrics.estimates import Estimate

_TAIL = 0.025


def share_estimate(units: Array) -> Estimate:
    """A share with its 95 % interval.

    Args:
        units: ``(units, 2)`` of each independent unit how often it happened, and among how many.

    Returns:
        In [0, 1]; NaN without anything counted.

    Example:
        >>> import numpy as np
        >>> found = share_estimate(np.array([[0.0, 1.0]] * 25))
        >>> found.low, round(found.high, 3)
        (0.0, 0.137)
        >>> share_estimate(np.array([[0.0, 2.0]] * 25)) == found
        True
    """
    counted = units[units[:, 1] > 0]
    m = len(counted)
    if not m:
        return Estimate(math.nan, math.nan, math.nan)
    happened, n = (float(one) for one in counted.sum(axis=0))
    share = happened / n
    never, always = binomial_interval(0.0, m), binomial_interval(1.0, m)
    if not 0 < share < 1:
        return Estimate(share, *(never if share == 0 else always))
    low, high = binomial_interval(share, _independent(counted, share, n))
    return Estimate(share, min(low, always[0]), max(high, never[1]))


def _independent(counted: Array, share: float, n: float) -> float:
    """n*: how many independent observations would be as uncertain."""
    from scipy.special import stdtrit

    m = len(counted)
    if m == 1:
        return 1.0
    between = m / (m - 1) * float(((counted[:, 0] - share * counted[:, 1]) ** 2).sum())
    within = n / (n - 1) * n * share * (1 - share)
    few = stdtrit(n - 1, 1 - _TAIL) / stdtrit(m - 1, 1 - _TAIL)
    return min(n, n / max(1.0, between / within) * float(few) ** 2)


def binomial_interval(share: float, n: float) -> tuple[float, float]:
    """Clopper and Pearson's interval; ``share * n`` and ``n`` need not be whole.

    Example:
        >>> low, high = binomial_interval(0.0, 25)
        >>> low, round(high, 3)
        (0.0, 0.137)
    """
    from scipy.special import betaincinv

    x = share * n
    low = 0.0 if x == 0 else float(betaincinv(x, n - x + 1, _TAIL))
    high = 1.0 if x == n else float(betaincinv(x + 1, n - x, 1 - _TAIL))
    return low, high


def never_seen(units: int) -> float:
    """The largest share of all units that something may befall which befell none of so many: 0.025 = (1 - u)^units.

    Example:
        >>> round(never_seen(25), 3)
        0.137
    """
    return 1.0 - _TAIL ** (1 / units)

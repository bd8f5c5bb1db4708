"""Resampling of images, or of patients, whose images are drawn together because they are not independent.

One resampling of the images is one row of counts, how often each image was drawn, and all resamplings of sums over
images are matrix products. The bands around curves are percentiles of a bootstrap, point by point, and so are the
intervals of readers' agreement; those of metrics are of :mod:`grounding_rewards.metrics.shares` and
:mod:`grounding_rewards.metrics.jackknife`, which hold the true metric more often where images are few.

Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, §13.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.common.arithmetic import Array, ratio_or_nan

#: Resamplings of sums.
RESAMPLES = 5_000

# Counts that are in memory at once: 32 MB of float64.
_CELLS = 1 << 22
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

    Columns side by side, of several metrics or of several runs over the same units, see the same resamplings, so that
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


def _counts(n: int, resamples: int, seed: int) -> NDArray[np.uint8 | np.uint16]:
    """:func:`resampling_counts` of at least one unit, drawn in little memory."""
    rng = np.random.default_rng(seed)
    counts = np.empty((resamples, n), dtype=np.uint8 if n < 1 << 8 else np.uint16)
    rows = max(1, _CELLS // n)
    for start in range(0, resamples, rows):
        size = min(rows, resamples - start)
        counts[start : start + size] = rng.multinomial(n, np.full(n, 1 / n), size=size)
    return counts


def group_numbers(groups: Sequence[Any] | None, images: int) -> NDArray[np.int64]:
    """The number of each image's group, ``(images,)``, in the order in which groups first appear.

    Args:
        groups: one hashable name per image; without them every image is its own group.
        images: how many there are.

    Raises:
        ValueError: the number of names differs from the number of images.

    Example:
        >>> group_numbers(["b", "a", "b"], 3)
        array([0, 1, 0])
    """
    names = range(images) if groups is None else groups
    if len(names) != images:
        raise ValueError(
            f"Expected one group per image for `groups`, got {len(names)} for {images} images. "
            "Give the patient of every image, in the order of the images."
        )
    number: dict[Any, int] = {}
    return np.array([number.setdefault(name, len(number)) for name in names], dtype=np.int64)


def drawn_groups(
    groups: Sequence[Any] | None, images: int, resamples: int, seed: int
) -> tuple[NDArray[np.int64], Array]:
    """Resample groups of images, for instance patients; without groups every image is its own.

    Returns:
        The numbers of :func:`group_numbers`, and ``(resamples, groups)`` how often each group was drawn.

    Example:
        >>> units, weights = drawn_groups(["b", "a", "b"], 3, resamples=4, seed=0)
        >>> units, weights.shape
        (array([0, 1, 0]), (4, 2))
    """
    units = group_numbers(groups, images)
    return units, _drawn(int(units.max(initial=-1)) + 1, resamples, seed)


# All curves of an evaluation ask for the same resamplings.
@lru_cache(maxsize=1)
def _drawn(n: int, resamples: int, seed: int) -> Array:
    weights = resampling_counts(n, resamples=resamples, seed=seed)
    weights.flags.writeable = False
    return weights


def sum_by_group(sums: Array, groups: Sequence[Any]) -> Array:
    """Add up the rows that belong to one group, for instance the images of one patient.

    Args:
        sums: ``(images, k)``, numerators and denominators for instance.
        groups: one hashable name per image.

    Returns:
        ``(groups, k)``, in the order in which the groups first appear.

    Raises:
        ValueError: the number of names differs from the number of images.

    Example:
        >>> sum_by_group(np.array([[1., 1.], [0., 1.], [1., 1.]]), ["a", "b", "a"])
        array([[2., 2.],
               [0., 1.]])
    """
    number = group_numbers(groups, len(sums))
    total = np.zeros((number.max(initial=-1) + 1, sums.shape[1]))
    np.add.at(total, number, sums)
    return total


def ratios(sums: Array) -> Any:
    """Divide the last axis' first entry by its second; NaN where the second is 0.

    Example:
        >>> ratios(np.array([[1.0, 4.0], [0.0, 0.0]]))
        array([0.25,  nan])
    """
    ratio = ratio_or_nan(sums[..., 0], sums[..., 1])
    return float(ratio) if ratio.ndim == 0 else ratio


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


def blocks(weights: Array, width: int) -> Iterator[Array]:
    """Cut rows of weights into blocks that are small beside as many rows of ``width`` numbers.

    Example:
        >>> [block.shape for block in blocks(np.ones((3, 2)), width=1 << 20)]
        [(1, 2), (1, 2), (1, 2)]
    """
    rows = max(1, _WEIGHT_CELLS // max(width, 1))
    for start in range(0, len(weights), rows):
        yield weights[start : start + rows]

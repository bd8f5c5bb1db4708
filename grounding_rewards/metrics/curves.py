"""Reading a curve from ranked boxes: how many boxes, and how many right ones, come before each of its points."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from grounding_rewards.common.arithmetic import Array
from grounding_rewards.metrics.ranking import Indices, RankedBoxes


class Curve(NamedTuple):
    """A line of a plot: `x` and `y` of equal length, `x` not falling; `low` and `high` bound `y` where known.

    A curve of one point is an operating point: boxes that are all tied have no curve.
    """

    name: str
    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None


class Points(NamedTuple):
    """Boxes in the order of a ranking, and the points at which a curve is read.

    ``image`` (n,), ``hit`` (n,) and ``counts`` (n,) are as in :class:`RankedBoxes`; ``ends`` (points,) says how many
    boxes come before each point.
    """

    image: Indices
    hit: Array
    counts: Array
    ends: Indices


def curve_points(ranked: RankedBoxes, threshold: int, *, one_by_one: bool) -> Points:
    """Where a curve is read: at the end of each group of equal keys that has a right box.

    After a group without one, recall is as before and more boxes are false, so no best value is found there.

    Args:
        ranked: boxes of one label.
        threshold: index of the IoU threshold.
        one_by_one: whether boxes of equal stated confidence are groups of their own.

    Example:
        >>> hit = np.array([[True, False, True, False]])
        >>> ranked = RankedBoxes(np.zeros(4, int), np.array([-0.9, -0.8, -0.8, np.inf]), hit, hit | True, np.array([2]))
        >>> curve_points(ranked, 0, one_by_one=False).ends
        array([1, 3])
    """
    order = np.argsort(ranked.key, kind="stable")
    key, hit = ranked.key[order], ranked.hit[threshold, order]
    is_end = np.append(key[1:] != key[:-1], True)[: len(key)]
    if one_by_one:
        is_end |= np.isfinite(key)
    ends = np.flatnonzero(is_end) + 1
    if len(ends):
        ends = ends[np.add.reduceat(hit.astype(np.int64), np.append(0, ends[:-1])) > 0]
    counts = ranked.counts[threshold, order]
    return Points(ranked.image[order], hit.astype(np.float64), counts.astype(np.float64), ends)


def cumulated(points: Points, weights: Array) -> tuple[Array, Array]:
    """The right boxes, and the boxes that count, up to each point, where each image has a weight.

    Args:
        points: at least one.
        weights: ``(rows, images)``.

    Returns:
        ``(rows, points)`` both.

    Example:
        >>> points = Points(np.array([0, 1, 1]), np.array([1.0, 0.0, 1.0]), np.ones(3), np.array([1, 3]))
        >>> cumulated(points, np.array([[1.0, 2.0]]))
        (array([[1., 3.]]), array([[1., 5.]]))
    """
    from scipy.sparse import csr_array

    last = int(points.ends[-1])
    point = np.searchsorted(points.ends, np.arange(last), side="right")
    shape = len(points.ends), weights.shape[1]
    # What each image adds at each point, which is mostly nothing, times how much it weighs.
    hits, boxes = (
        (csr_array((values[:last], (point, points.image[:last])), shape=shape) @ weights.T).cumsum(axis=0)
        for values in (points.hit, points.counts)
    )
    # By rows, in which sums along a curve are as exact as they are fast.
    return np.ascontiguousarray(hits.T), np.ascontiguousarray(boxes.T)


def totals(ranked: RankedBoxes, threshold: int) -> Indices:
    """Right boxes, boxes that count and reference boxes of each image, ``(3, images)``.

    Example:
        >>> hit = np.array([[True, False]])
        >>> totals(RankedBoxes(np.array([0, 1]), np.zeros(2), hit, hit | True, np.array([1, 0])), 0).tolist()
        [[1, 0], [1, 1], [1, 0]]
    """
    images = len(ranked.references)
    hits, boxes = (np.bincount(ranked.image[mask[threshold]], minlength=images) for mask in (ranked.hit, ranked.counts))
    return np.stack([hits, boxes, ranked.references])

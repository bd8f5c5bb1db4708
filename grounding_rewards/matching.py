"""One-to-one matching of predictions to ground truth.

Every function takes ``iou`` of shape ``(n, m)``, or ``(b, n, m)`` for many completions at once, and returns for each
prediction the index of its ground-truth box, or -1: ``(n,)`` or ``(b, n)`` int64. A pair counts from the threshold up
(``>=``), but boxes that do not overlap are never a pair. No ground truth is given twice. Rows and columns of zeros
change nothing, so a batch of completions with different numbers of boxes is padded with them.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

Matches = NDArray[np.int64]
Matcher = Callable[[ArrayLike, float], Matches]


def greedy_match(iou: ArrayLike, iou_threshold: float = 0.5) -> Matches:
    """Match greedily: the surest prediction chooses first.

    Predictions come in the order of their best IoU with any ground truth, highest first; among equals the one that the
    model wrote first. Each takes the free ground truth with which it overlaps most, among equals the one with the lower
    index, and keeps it if the IoU reaches the threshold.

    Args:
        iou: ``(n, m)`` or ``(b, n, m)``, finite.
        iou_threshold: τ, in [0, 1].

    Returns:
        ``(n,)`` or ``(b, n)`` int64: index of the matched ground truth, or -1.

    Raises:
        ValueError: ``iou`` has another number of dimensions, or τ is outside [0, 1].

    Example:
        >>> greedy_match([[0.6, 0.0], [0.9, 0.7]], 0.5)
        array([-1,  0])

    Source: specification §2.2.
    """
    matrices, single = _as_batch(iou, iou_threshold)
    b, n, m = matrices.shape
    matched = np.full((b, n), -1, dtype=np.int64)
    if n == 0 or m == 0:
        return matched[0] if single else matched
    free = matrices.copy()
    rows = np.arange(b)
    order = np.argsort(-matrices.max(axis=2), axis=1, kind="stable")
    for rank in range(n):
        prediction = order[:, rank]
        candidates = free[rows, prediction]
        best = candidates.argmax(axis=1)
        reached = candidates[rows, best]
        hit = (reached >= iou_threshold) & (reached > 0)
        matched[rows[hit], prediction[hit]] = best[hit]
        free[rows[hit], :, best[hit]] = -1.0
    return matched[0] if single else matched


def hungarian_match(iou: ArrayLike, iou_threshold: float = 0.5) -> Matches:
    """Match optimally: the assignment with the greatest total IoU over the full matrix, then pairs below τ dropped.

    Where every prediction can have the ground truth with which it overlaps most (among equals the one with the lower
    index), that is the answer; elsewhere scipy's ``linear_sum_assignment`` decides among assignments of equal total,
    deterministically.

    Args:
        iou: ``(n, m)`` or ``(b, n, m)``, finite.
        iou_threshold: τ, in [0, 1].

    Returns:
        ``(n,)`` or ``(b, n)`` int64: index of the matched ground truth, or -1.

    Raises:
        ValueError: ``iou`` has another number of dimensions, or τ is outside [0, 1].

    Example:
        >>> hungarian_match([[0.6, 0.0], [0.9, 0.7]], 0.5)
        array([0, 1])

    Source: specification §2.2 and §7.2; Kuhn, Naval Research Logistics 1955.
    """
    matrices, single = _as_batch(iou, iou_threshold)
    matched = _assign(matrices, matrices, iou_threshold)
    return matched[0] if single else matched


def thresholded_hungarian_match(iou: ArrayLike, iou_threshold: float = 0.5) -> Matches:
    """Match optimally among the pairs that reach τ: the threshold comes before the assignment.

    The total IoU of the matched pairs is at least that of :func:`hungarian_match`, which may spend a ground truth on
    a pair that it drops afterwards. The specification defines the other one; this is offered under its own name.

    Args:
        iou: ``(n, m)`` or ``(b, n, m)``, finite.
        iou_threshold: τ, in [0, 1].

    Returns:
        ``(n,)`` or ``(b, n)`` int64: index of the matched ground truth, or -1.

    Raises:
        ValueError: ``iou`` has another number of dimensions, or τ is outside [0, 1].

    Example:
        The full matrix prefers 0.45 + 0.45 to 0.5 + 0 and then loses both pairs:

        >>> iou = [[0.5, 0.45], [0.45, 0.0]]
        >>> hungarian_match(iou, 0.5), thresholded_hungarian_match(iou, 0.5)
        (array([-1, -1]), array([ 0, -1]))
    """
    matrices, single = _as_batch(iou, iou_threshold)
    matched = _assign(matrices, np.where(matrices >= iou_threshold, matrices, 0.0), iou_threshold)
    return matched[0] if single else matched


MATCHERS: dict[str, Matcher] = {
    "greedy": greedy_match,
    "hungarian": hungarian_match,
    "thresholded_hungarian": thresholded_hungarian_match,
}


def _as_batch(iou: ArrayLike, iou_threshold: float) -> tuple[NDArray[np.float64], bool]:
    if not isinstance(iou_threshold, Real) or not 0 <= iou_threshold <= 1:
        raise ValueError(
            f"Expected a number in [0, 1] for `iou_threshold`, got {iou_threshold!r}. The usual value is 0.5."
        )
    matrices = np.asarray(iou, dtype=np.float64)
    if matrices.ndim not in (2, 3):
        raise ValueError(
            f"Expected an array of shape (n, m) or (b, n, m) for `iou`, got shape {matrices.shape}. "
            "Compute it with pairwise_iou(pred, gt)."
        )
    if not np.isfinite(matrices).all():
        raise ValueError(
            "Expected finite numbers for `iou`, got NaN or infinity. Compute it with pairwise_iou, which gives neither."
        )
    return (matrices[None], True) if matrices.ndim == 2 else (matrices, False)


def _assign(iou: NDArray[np.float64], gain: NDArray[np.float64], iou_threshold: float) -> Matches:
    """Maximise the total gain in every matrix of the batch and keep the pairs whose IoU reaches the threshold."""
    b, n, m = iou.shape
    if n == 0 or m == 0:
        return np.full((b, n), -1, dtype=np.int64)
    overlaps = np.asarray(gain > 0, dtype=np.bool_)
    active = np.asarray(overlaps.any(axis=2), dtype=np.bool_)
    matched = np.where(active, gain.argmax(axis=2), -1)
    # If nobody wants the same ground truth, the sum of the row maxima is reached, and nothing can exceed that.
    wanted = (matched[..., None] == np.arange(m)).sum(axis=1)
    for k in np.flatnonzero((wanted > 1).any(axis=1)):
        # Boxes that overlap nothing cannot add to the total; without them padding cannot break a tie.
        rows, columns = np.flatnonzero(active[k]), np.flatnonzero(overlaps[k].any(axis=0))
        pred_index, gt_index = linear_sum_assignment(gain[k][np.ix_(rows, columns)], maximize=True)
        matched[k] = -1
        matched[k, rows[pred_index]] = columns[gt_index]
    reached = np.take_along_axis(iou, np.maximum(matched, 0)[..., None], axis=2)[..., 0]
    return np.where((reached >= iou_threshold) & (reached > 0), matched, -1)

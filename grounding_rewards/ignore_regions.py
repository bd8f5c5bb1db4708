"""Which predicted boxes an ignored region takes out of the count: the rules of rewards, metrics and pages.

A region is no place to hedge. In rewards it excuses at most one predicted box, one that matches nothing, touches no
reference box, and has enough of its own area inside. COCO's rule for crowds, by which a region excuses any number of
boxes, because each may be a part of what it holds, is the option ``ignore_many`` and that of COCO's metrics. An excused
box is neither right nor false.

Source: Lin et al., Microsoft COCO, ECCV 2014; https://cocodataset.org/#detection-eval.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grounding_rewards.common.arithmetic import Array
from grounding_rewards.overlap import pairwise_ioa, pairwise_iou


def covered_share(pred: ArrayLike, regions: ArrayLike) -> Array:
    """The largest share of each predicted box's area that lies in one region, in [0, 1].

    ``max over R of |P ∩ R| / |P|``; 0 without regions and for an invalid box, so that batches may be padded with NaN.

    Args:
        pred: ``(..., n, 4)`` xyxy.
        regions: ``(..., k, 4)`` xyxy, in the same space.

    Returns:
        ``(..., n)`` float64.

    Raises:
        ValueError: the last dimension is not 4.

    Example:
        >>> covered_share([[0, 0, 10, 10], [50, 50, 60, 60]], [[0, 0, 10, 4], [0, 2, 10, 10]])
        array([0.8, 0. ])
    """
    return pairwise_ioa(regions, pred).max(axis=-2, initial=0.0)


def excused_boxes(
    pred: ArrayLike,
    gt: ArrayLike,
    regions: ArrayLike,
    matched: NDArray[np.bool_],
    *,
    ignore_threshold: float = 0.5,
    ignore_many: bool = False,
) -> NDArray[np.bool_]:
    """Which predicted boxes of one image its ignored regions excuse.

    As many boxes as there can be, one for each region; where not all can be, those that were written first. Another
    region excuses the same boxes or more.

    Args:
        pred: ``(n, 4)`` xyxy.
        gt: ``(m, 4)`` xyxy, in the same space.
        regions: ``(k, 4)`` xyxy, in the same space.
        matched: ``(n,)`` whether the box has a reference box.
        ignore_threshold: the share of the box's area that has to lie in the region, in (0, 1].
        ignore_many: COCO's rule: a region excuses every unmatched box that lies in it, reference boxes or not.

    Returns:
        ``(n,)``.

    Example:
        Three guesses in a region: one is excused.

        >>> guesses, nowhere = [[0, 0, 4, 4], [1, 0, 5, 4], [2, 0, 6, 4]], np.zeros((0, 4))
        >>> excused_boxes(guesses, nowhere, [[0, 0, 9, 9]], np.zeros(3, dtype=bool))
        array([ True, False, False])
        >>> excused_boxes(guesses, nowhere, [[0, 0, 9, 9]], np.zeros(3, dtype=bool), ignore_many=True)
        array([ True,  True,  True])

    Source: a maximum matching by augmenting paths, Kuhn, Naval Research Logistics 1955.
    """
    if ignore_many:
        return is_ignored(covered_share(pred, regions), matched, ignore_threshold)
    inside = pairwise_ioa(regions, pred) >= ignore_threshold
    touches = (pairwise_iou(pred, gt) > 0).any(axis=1)
    candidates = np.flatnonzero(~matched & ~touches & inside.any(axis=0))
    holder: dict[int, int] = {}
    # Regions that may still take a box. Where the search for one fails, it will fail for every later box as well.
    open_regions = np.asarray(inside[:, candidates].any(axis=1), dtype=np.bool_)
    for box in candidates.tolist():
        if not open_regions.any():
            break
        if (inside[:, box] & open_regions).any():
            open_regions[_searched_in_vain(box, inside, holder)] = False
    excused = np.zeros(len(matched), dtype=np.bool_)
    excused[list(holder.values())] = True
    return excused


def _searched_in_vain(box: int, inside: NDArray[np.bool_], holder: dict[int, int]) -> list[int]:
    """Give ``box`` a region in ``holder``, moving other boxes if need be; the regions in question if there is none."""
    found_for = dict.fromkeys(np.flatnonzero(inside[:, box]).tolist(), box)
    waiting = list(found_for)
    for region in waiting:
        if region not in holder:
            region_of = {held: taken for taken, held in holder.items()}
            # Back along the path: each box moves to the region that was found for it.
            while (taker := found_for[region]) != box:
                holder[region], region = taker, region_of[taker]
            holder[region] = box
            return []
        for other in np.flatnonzero(inside[:, holder[region]]).tolist():
            if other not in found_for:
                found_for[other] = holder[region]
                waiting.append(other)
    return waiting


def is_ignored(share: Array, matched: NDArray[np.bool_], iou_threshold: float | Array) -> NDArray[np.bool_]:
    """Which predicted boxes do not count.

    Args:
        share: ``(..., n)`` of :func:`covered_share`.
        matched: ``(..., n)`` whether the box has a reference box.
        iou_threshold: in (0, 1].

    Returns:
        ``(..., n)``; the arguments are broadcast.

    Example:
        >>> is_ignored(np.array([0.8, 0.8, 0.4]), np.array([False, True, False]), 0.5)
        array([ True, False, False])
    """
    return (share >= iou_threshold) & ~matched

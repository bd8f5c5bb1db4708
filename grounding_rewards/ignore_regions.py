"""Which predicted boxes an ignored region takes out of the count: the one rule of rewards, figures and pages.

A box is ignored if no reference box is matched with it and at least the IoU threshold of its own area lies in one
region: COCO's rule for crowds, because a box may be a part of what the region holds. An ignored box is neither right
nor false.

Source: Lin et al., Microsoft COCO, ECCV 2014; https://cocodataset.org/#detection-eval.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grounding_rewards.arithmetic import Array
from grounding_rewards.overlap import pairwise_ioa


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

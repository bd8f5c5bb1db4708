"""pointing: how many findings are pointed at, whatever the size of the boxes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grounding_rewards.boxes import Boxes, valid_boxes
from grounding_rewards.common.arithmetic import Array, ratio
from grounding_rewards.common.legal import Interval
from grounding_rewards.matching import Indices, match_batch
from grounding_rewards.rewards.base import BoxReward, MatchedBatch
from grounding_rewards.rewards.f_beta import f_beta_score


@dataclass(frozen=True, kw_only=True)
class PointingReward(BoxReward):
    """pointing: control; F-beta of the boxes whose centre lies in a finding, one to one, in [0, 1].

    It stands beside rewards that ask for a fit: what remains when a box only has to point. As many pairs as there can
    be; among those the greatest total IoU. A centre on the edge of a finding lies in it.

    It takes the parameters of :class:`BoxReward`, and:

    Args:
        beta: β of F-beta, in (0, 1000]; above 1 a missed finding costs more than a false one.

    Ceiling: n boxes on an image with m findings earn at most ``(1 + β²) min(n, m) / (n + β² m)``, as under R2 to R5. A
    speck in the middle of a finding earns what the finding itself does.

    Raises:
        ValueError: a parameter is out of its range.

    Example:
        >>> findings = [[0, 0, 10, 10], [50, 50, 60, 60]]
        >>> PointingReward().score([[4, 4, 5, 5], [20, 20, 90, 90]], findings)
        1.0
        >>> PointingReward().score([[4, 4, 5, 5], [5, 5, 6, 6]], findings)
        0.5

    Source: the pointing game of Zhang et al., Top-Down Neural Attention by Excitation Backprop, IJCV 2018, §5.1, for
    several findings.
    """

    beta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_number("beta", Interval(0, 1000, above=True))

    def _ceiling(self, precision: Array, recall: Array) -> Array:
        return f_beta_score(precision, recall, self.beta)

    def _overlap(self, pred: Boxes, gt: Boxes, iou: Array) -> Array:
        with np.errstate(all="ignore"):
            centre = (pred[..., :2] + (pred[..., 2:] - pred[..., :2]) / 2)[..., :, None, :]
            lies_in = ((gt[..., None, :, :2] <= centre) & (centre <= gt[..., None, :, 2:])).all(axis=-1)
        lies_in &= valid_boxes(pred)[..., :, None] & valid_boxes(gt)[..., None, :]
        # In [0.5, 1]: every pair counts alike in F-beta, the IoU only decides between equally many.
        return np.where(lies_in, 0.5 + 0.5 * iou, 0.0)

    def _pair_up(self, overlap: Array) -> Indices:
        return match_batch(overlap, 0.0, matching="most_hits")

    def _combine(self, batch: MatchedBatch) -> tuple[Array, Array, Array]:
        f_beta = f_beta_score(batch.precision, batch.recall, self.beta)
        return f_beta, ratio(batch.tp, batch.tp), f_beta

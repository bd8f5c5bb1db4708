"""F-beta without a threshold: every pair counts by how well it fits, so that poor answers differ too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from grounding_rewards.boxes import Boxes
from grounding_rewards.common.arithmetic import Array, ratio, row_sums
from grounding_rewards.matching import Indices, match_batch
from grounding_rewards.overlap import pairwise_ciou, pairwise_diou, pairwise_giou, pairwise_nwd
from grounding_rewards.rewards.base import MatchedBatch, Outcomes, parameter
from grounding_rewards.rewards.f_beta import BetaReward, f_beta_score
from grounding_rewards.rewards.quality import HermiteSpline, Linear, PiecewiseLinear

#: What pairs of boxes that do not overlap may earn at most, where the overlap tells how far apart they are.
APART = 0.1
_CLOSENESS: dict[str, Callable[[Boxes, Boxes], Array]] = {
    # From -1 for boxes infinitely far apart to 0 for boxes that touch, so 1 more is in [0, 1].
    "giou": lambda pred, gt: 1 + pairwise_giou(pred, gt),
    "diou": lambda pred, gt: 1 + pairwise_diou(pred, gt),
    "ciou": lambda pred, gt: 1 + pairwise_ciou(pred, gt),
    "nwd": pairwise_nwd,
}
OVERLAPS = ("iou", *_CLOSENESS)
QUALITIES: dict[str, Callable[[ArrayLike], Array]] = {
    "linear": Linear(),
    "spline": HermiteSpline(),
    "piecewise": PiecewiseLinear(),
}


@dataclass(frozen=True, kw_only=True)
class SoftF1Reward(BetaReward):
    """soft_f1: F-beta whose true positives are the matched overlaps, without a threshold, in [0, 1].

    ``P = mass / n``, ``R = mass / m`` with ``mass = Σ q(overlap)`` of the one-to-one matching that has the most of it.
    A model whose boxes reach no threshold, which R1 to R5 pay 0 for every answer, is paid more for the nearer ones.
    Of an explanation ``quality`` is the mean credit of the pairs, and ``tp`` the number of pairs with any credit.

    It takes the parameters of :class:`BetaReward`, and:

    Args:
        overlap: ``"iou"``; or ``"giou"``, ``"diou"``, ``"ciou"`` or ``"nwd"``, which tell boxes apart that do not
            overlap. Then a pair counts ``0.9 IoU + 0.1 c``. The closeness c in [0, 1] is the normalised Wasserstein
            distance; or ``s`` for boxes that overlap and ``s (1 + GIoU)``, DIoU or CIoU (0 below) for others, with
            ``s`` the smaller of the two areas over the larger, so that the whole image earns no more than it covers.
            Moved straight towards the only finding, a box never loses.
        quality: the curve from overlap to credit: ``"linear"``, ``"spline"`` (R4's) or ``"piecewise"`` (R5's).

    Ceiling: n boxes on an image with m findings earn at most ``(1 + β²) min(n, m) / (n + β² m)``, as under R2 to R5. A
    box that needs no look at the image earns what it happens to cover, the whole image the share of the image that a
    finding takes up; where ``overlap`` is not the IoU, a box of the right size up to q(0.1) anywhere.

    Raises:
        ValueError: a parameter is out of its range.

    Example:
        An IoU of 0.4 and a false box: mass 0.4, P = 0.2, R = 0.4.

        >>> answer, found = [[0, 0, 10, 4], [50, 50, 60, 60]], [[0, 0, 10, 10]]
        >>> round(SoftF1Reward().score(answer, found), 4)
        0.2667
        >>> near, far = [[12, 0, 22, 10]], [[90, 0, 100, 10]]
        >>> SoftF1Reward().score(near, found), SoftF1Reward().score(far, found)
        (0.0, 0.0)
        >>> by_distance = SoftF1Reward(overlap="giou")
        >>> round(by_distance.score(near, found), 4), round(by_distance.score(far, found), 4)
        (0.0909, 0.02)

    Source: the unthresholded form of F-beta over an optimal matching, as RadVLM-GRPO (arXiv 2512.10691) trains with
    sums of IoU; Rezatofighi et al., CVPR 2019; Zheng et al., AAAI 2020; Wang et al., arXiv 2110.13389.
    """

    overlap: str = parameter("iou", OVERLAPS)
    quality: str = parameter("linear", QUALITIES)

    def _overlap(self, pred: Boxes, gt: Boxes, iou: Array) -> Array:
        if self.overlap != "iou":
            closeness = np.clip(_CLOSENESS[self.overlap](pred, gt), 0.0, 1.0)
            if self.overlap != "nwd":
                closeness = np.where(iou > 0, 1.0, closeness) * _alike_in_size(pred, gt)
            iou = (1 - APART) * iou + APART * closeness
        return QUALITIES[self.quality](iou)

    def _pair_up(self, overlap: Array) -> Indices:
        return match_batch(overlap, 0.0, matching="hungarian")

    def reader_weights(self, outcomes: Outcomes) -> Array:
        """What the reward by each of several readers counts, so that the sum is one F-beta over all their findings.

        With mass_k by reader k, ``F_k = (1 + β²) mass_k / (β² m_k + n_k)``. Weighted by the denominators the F_k become
        ``(1 + β²) Σ mass_k / Σ (β² m_k + n_k)``: each box that a reader drew counts alike, so a finding by the share
        of the readers who drew it, and none has to be merged. A weighted mean is at most the best F_k.

        Args:
            outcomes: an entry for each reader of an image, (b,).

        Returns:
            (b,) from 0 up; 0 where there is neither a box nor a finding.

        Example:
            Three readers drew one finding, one of them another: 2 · 3 / (4 + 3 · 1) for finding the first.

            >>> import grounding_rewards as gr
            >>> reward = gr.get_reward("soft_f1", box_format="qwen3-vl", readers="weighted")
            >>> first, other = [0, 0, 50, 50], [60, 60, 90, 90]
            >>> image = {"width": [100], "height": [100], "reader_boxes": [[[first], [first], [first, other]]]}
            >>> round(reward(['[{"bbox_2d": [0, 0, 500, 500]}]'], **image)[0], 4)
            0.8571
        """
        return np.asarray(self.beta**2 * outcomes.m + outcomes.n, dtype=np.float64)

    def _combine(self, batch: MatchedBatch) -> tuple[Array, Array, Array]:
        mass = row_sums(batch.overlap)
        # P = mass / n,  R = mass / m
        f_beta = f_beta_score(ratio(mass, batch.n), ratio(mass, batch.m), self.beta)
        return f_beta, ratio(mass, batch.tp), f_beta


def _alike_in_size(pred: Boxes, gt: Boxes) -> Array:
    """The smaller area over the larger one, of every pair; 0 for a box without area."""
    sides = [boxes[..., 2:] - boxes[..., :2] for boxes in (pred, gt)]
    with np.errstate(all="ignore"):
        # Side by side, so that areas neither overflow nor vanish.
        larger = np.prod(sides[0][..., :, None, :] / sides[1][..., None, :, :], axis=-1)
        return np.clip(np.nan_to_num(np.minimum(larger, 1 / larger)), 0.0, 1.0)

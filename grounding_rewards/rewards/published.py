"""Rewards that others published, from their formulas, uncorrected: to be rerun and compared under their names.

Texts are read, broken boxes counted and ignored regions taken out as for every other reward here; what a paper leaves
open is said at each. Format rewards, and parts that ask another model, are left out: they do not judge boxes. Where a
formula judges a single box, it is the first of the answer against the first of the reference, unless said otherwise.

:func:`grounding_rewards.list_rewards` names them with ``published=True``; :func:`grounding_rewards.get_reward` knows
them. None is a default, and none is corrected: docs/rewards.md says what they pay for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from grounding_rewards.boxes import Boxes, as_box_array, valid_boxes
from grounding_rewards.common.numeric import Array
from grounding_rewards.common.validation import SOME_SHARE, check_number
from grounding_rewards.matching import match_batch
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.rewards.average_precision import average_precision_of_hits


@dataclass(frozen=True, kw_only=True)
class PublishedReward(ABC):
    """A formula for answers and references that both have boxes; where one side has none, 0.

    Attributes:
        both_empty: what is earned where neither side has a box.
    """

    both_empty: ClassVar[float] = 0.0

    def score(self, pred: ArrayLike, gt: ArrayLike) -> float:
        """The reward of one answer: `pred` (n, 4) and `gt` (m, 4), xyxy in the same space."""
        p, g = as_box_array(pred, "pred"), as_box_array(gt, "gt")
        if len(p) and len(g):
            return float(self._of_boxes(p, g))
        return 0.0 if len(p) or len(g) else self.both_empty

    @abstractmethod
    def _of_boxes(self, p: Boxes, g: Boxes) -> float:
        """The formula, for one box or more on either side."""


class _FirstBoxReward(PublishedReward):
    """A formula for the first predicted box and the first reference box; a broken one earns 0."""

    def _of_boxes(self, p: Boxes, g: Boxes) -> float:
        """The formula for the first box on either side; 0 for a broken one."""
        return self._of_pair(p[:1], g[:1]) if valid_boxes(p[:1])[0] else 0.0

    @abstractmethod
    def _of_pair(self, p: Boxes, g: Boxes) -> float:
        """The formula, for a box on either side, ``(1, 4)``."""


class RadVLMReward(PublishedReward):
    """radvlm: soft F1 of one-to-one pairs, with false boxes beside the mass of the right ones, in [0, 1].

    ``mass = Σ IoU`` of the pairs with the largest sum of IoUs, ``R = mass / (m + ε)``, ``P = mass / (mass + f + ε)``
    with ``f`` predictions of no pair that overlaps, ``2 P R / (P + R + ε)``, ``ε = 1e-8``; 0 where either side has no
    box, also where both have none. A pair of small overlap costs no precision: only a box without any overlap is a
    false one.

    Example:
        >>> round(RadVLMReward().score([[0, 0, 10, 5]], [[0, 0, 10, 10]]), 4)
        0.6667

    Source: Gundersen et al., RadVLM-GRPO, arXiv 2512.10691; uzh-dqbm-cmi/RadVLM-GRPO 90706d2,
    verl/custom_rewards/grounding_reward.py.
    """

    def _of_boxes(self, p: Boxes, g: Boxes) -> float:
        """`2 P R / (P + R + ε)`, as the class defines P and R."""
        iou = pairwise_iou(p, g)
        matched = match_batch(iou[None], 0.0, matching="hungarian")[0]
        pairs = matched >= 0
        mass = float(iou[pairs, matched[pairs]].sum())
        recall = mass / (len(g) + 1e-8)
        precision = mass / (mass + len(p) - pairs.sum() + 1e-8)
        return 2 * precision * recall / (precision + recall + 1e-8)


class MedVisionReward(PublishedReward):
    """medvision: exp(-mean relative error) of the four coordinates of one box, in [0, 1].

    ``exp(-mean_k |p_k - g_k| / (g_k + 1e-15))`` of x1, y1, x2, y2. What an error costs depends on where the finding
    lies: the same shift costs more near the origin, and there is no limit at a coordinate of 0.

    The code reads the last four numbers of the answer, so the last box counts. Their origin is the dataset's; here it
    is the upper left corner. 0 without a box.

    Example:
        The same shift of 10, left and right on the image.

        >>> judge = MedVisionReward()
        >>> [round(judge.score([[x + 10, 100, x + 60, 150]], [[x, 100, x + 50, 150]]), 3) for x in (20, 900)]
        [0.852, 0.995]

    Source: Yao et al., MedVision, arXiv 2511.18676; YongchengYAO/verl 059a599,
    verl/utils/reward_score/medvision_rewards/reward_fn.py, ``exp_decay``.
    """

    def _of_boxes(self, p: Boxes, g: Boxes) -> float:
        """`exp(-mean relative error)` of the last predicted and the first reference box."""
        if not np.isfinite(p[-1]).all():
            return 0.0
        return np.exp(-np.mean(np.abs(p[-1] - g[0]) / (g[0] + 1e-15)))


@dataclass(frozen=True, kw_only=True)
class MedLocReward(_FirstBoxReward):
    """medloc: 1 where the first box reaches IoU τ, else 0.

    The paper raises τ from 0.3 to 0.8 while the model trains, by what the last 30 groups found. A schedule stands in
    the place of the number here, ``iou_threshold: {schedule: self_paced, of: hit_rate, from: 0.3, to: 0.8}``, whose
    rule is one of the paper's three conditions; the bounds of the other two could not be read in the paper's own words.

    Args:
        iou_threshold: τ, in (0, 1].

    Raises:
        ValueError: τ is out of its range.

    Example:
        >>> [MedLocReward(iou_threshold=tau).score([[0, 0, 10, 4]], [[0, 0, 10, 10]]) for tau in (0.3, 0.5)]
        [1.0, 0.0]

    Source: Yang et al., MedLoc-R1, arXiv 2603.28120; MembrAI/MedLoc-R1 38e6d20 holds no code, read in 2026-11.
    """

    iou_threshold: float = 0.3

    def __post_init__(self) -> None:
        """Refuse a threshold that is out of range."""
        object.__setattr__(self, "iou_threshold", check_number("iou_threshold", self.iou_threshold, SOME_SHARE))

    def _of_pair(self, p: Boxes, g: Boxes) -> float:
        """1 if the IoU reaches the threshold, else 0."""
        return pairwise_iou(p, g)[0, 0] >= self.iou_threshold


class VLMR1Reward(_FirstBoxReward):
    """vlm_r1: the IoU of the first box, in whole pixels, in [0, 1]; 0 without a box on either side.

    A pixel is taken from the far corner before boxes are cut with each other and given back after, so that an overlap
    of one pixel's width or less counts as none, and equal boxes given in shares of the image earn 0.

    Example:
        >>> VLMR1Reward().score([[0, 0, 10, 5]], [[0, 0, 10, 10]]), VLMR1Reward().score([[0, 0, 1, 1]], [[0, 0, 1, 1]])
        (0.5, 0.0)

    Source: Shen et al., VLM-R1, arXiv 2504.07615, the reward of referring expressions; om-ai-lab/VLM-R1 90052f4,
    ``iou_reward`` of its Qwen module.
    """

    def _of_pair(self, p: Boxes, g: Boxes) -> float:
        """The IoU in whole pixels."""
        return _pixel_iou(p[0], g[0])


class VLMR1DetectionReward(PublishedReward):
    """vlm_r1_detection: COCO's mAP of one image times ``min(1, m / n)``, in [0, 1].

    AP at 101 recall levels and IoU 0.5, 0.55, …, 0.95 with equal confidences, so in the order of writing, where each
    box takes the free reference box of largest IoU; its mean, less in the share of boxes that are too many. 1 where
    both sides have no box, 0 where one has. The code takes the mean over the labels of the reference; here labels play
    no part.

    Example:
        >>> judge = VLMR1DetectionReward()
        >>> judge.score([[0, 0, 10, 8]], [[0, 0, 10, 10]]), judge.score([[0, 0, 10, 8]] * 2, [[0, 0, 10, 10]])
        (0.7, 0.35)

    Source: Shen et al., VLM-R1, arXiv 2504.07615, the reward of detection; ``odLength_reward`` of om-ai-lab/VLM-R1, as
    copied in repositories of 2025.
    """

    both_empty = 1.0

    def _of_boxes(self, p: Boxes, g: Boxes) -> float:
        """The mean over ten thresholds of the average precision, times `min(1, m / n)`."""
        iou = pairwise_iou(p, g)
        total = 0.0
        for threshold in np.arange(10, 20) / 20:
            free, hits = iou.copy(), np.zeros(len(p), dtype=bool)
            for i, row in enumerate(free):
                best = int(np.argmax(row))
                if row[best] >= threshold:
                    hits[i] = True
                    free[:, best] = 0.0
            total += average_precision_of_hits(hits[None], np.ones((1, len(p)), bool), np.array([len(g)]), "101")[0]
        return total / 10 * min(1.0, len(g) / len(p))


class MedGroundR1Reward(_FirstBoxReward):
    """medground_r1: 1 where the first box has more than half of IoU, as vlm_r1 counts it, else 0.

    The paper adds a semantic part, which asks another model and is left out.

    Example:
        >>> [MedGroundR1Reward().score([[0, 0, 10, y]], [[0, 0, 10, 10]]) for y in (5, 6)]
        [0.0, 1.0]

    Source: Xu et al., MedGround-R1, arXiv 2507.02994; bio-mlhui/MedGround-R1 36486ba,
    open-r1-multimodal/src/open_r1/grpo_rec.py, ``iou_reward``.
    """

    def _of_pair(self, p: Boxes, g: Boxes) -> float:
        """1 if the IoU in whole pixels is above a half, else 0."""
        return _pixel_iou(p[0], g[0]) > 0.5


class VisualRFTReward(PublishedReward):
    """visual_rft: the IoUs of the hits over the larger number of boxes, in [0, 1].

    Boxes that repeat one are left out. In turn each takes the free reference box of largest IoU, if that is above 0.5;
    ``Σ IoU / max(n, m)``. 1 where both sides have no box: the text of the answer then equals the reference's. The order
    is that of stated confidences in the code, and that of writing here; the part that pays for confidences is left out.

    Example:
        >>> VisualRFTReward().score([[0, 0, 10, 8], [50, 50, 60, 60]], [[0, 0, 10, 10]])
        0.4

    Source: Liu et al., Visual-RFT, arXiv 2503.01785, §3.2; ``accuracy_reward_iou`` with ``compute_reward_iou_v2`` of
    Liuziyu77/Visual-RFT, as copied in repositories of 2025.
    """

    both_empty = 1.0

    def _of_boxes(self, p: Boxes, g: Boxes) -> float:
        """`Σ IoU` of the hits over `max(n, m)`, repeated boxes left out."""
        iou = pairwise_iou(list(dict.fromkeys(map(tuple, p.tolist()))), g)
        total = 0.0
        for row in iou:
            best = int(np.argmax(row))
            if row[best] > 0.5:
                total += row[best]
                iou[:, best] = 0.0
        return total / max(len(iou), len(g))


class PerceptionR1Reward(_FirstBoxReward):
    """perception_r1: the squared IoU of the first box, in [0, 1]; 0 without a box on either side.

    Example:
        >>> PerceptionR1Reward().score([[0, 0, 10, 5]], [[0, 0, 10, 10]])
        0.25

    Source: Yu et al., Perception-R1, arXiv 2504.07954; ``pr1_grounding_reward`` of linkangheng/PR1, read in 2026-11 in
    the copy philipmit/PR1 accb7cb, src/open_r1/rewards.py.
    """

    def _of_pair(self, p: Boxes, g: Boxes) -> float:
        """The squared IoU."""
        return pairwise_iou(p, g)[0, 0] ** 2


PUBLISHED: dict[str, Callable[..., object]] = {
    "radvlm": RadVLMReward,
    "medvision": MedVisionReward,
    "medloc": MedLocReward,
    "medground_r1": MedGroundR1Reward,
    "vlm_r1": VLMR1Reward,
    "vlm_r1_detection": VLMR1DetectionReward,
    "visual_rft": VisualRFTReward,
    "perception_r1": PerceptionR1Reward,
}
"""Published rewards by name."""


def _pixel_iou(pred: Array, gt: Array) -> float:
    """IoU as VLM-R1 counts it: by pixels from corner to corner, the far one included."""
    x1, y1 = np.maximum(pred[:2], gt[:2])
    x2, y2 = np.minimum(pred[2:] - 1, gt[2:] - 1)
    inter = (x2 - x1 + 1) * (y2 - y1 + 1) if x1 < x2 and y1 < y2 else 0.0
    areas = (pred[2] - pred[0]) * (pred[3] - pred[1]) + (gt[2] - gt[0]) * (gt[3] - gt[1])
    return float(inter / (areas - inter))

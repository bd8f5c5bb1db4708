"""Rewards that others published, from their formulas, uncorrected: to be rerun and compared under their names.

Texts are read, broken boxes counted and ignored regions taken out as for every other reward here; what a paper leaves
open is said at each. Format rewards, and parts that ask another model, are left out: they do not judge boxes. Where a
formula judges a single box, it is the first of the answer against the first of the reference, unless said otherwise.

:func:`grounding_rewards.list_rewards` names them with ``published=True``; :func:`grounding_rewards.get_reward` knows
them. None is a default, and none is corrected: docs/rewards.md says what they pay for.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from grounding_rewards.boxes import Boxes, as_box_array, from_xyxy, valid_boxes
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
        normalised_boxes: whether boxes come as fractions of the image's width and height.
    """

    both_empty: ClassVar[float] = 0.0
    normalised_boxes: ClassVar[bool] = False

    def score(self, pred: ArrayLike, gt: ArrayLike) -> float:
        """The reward of one answer: `pred` (n, 4) and `gt` (m, 4), xyxy in the same space."""
        pred_boxes, gt_boxes = as_box_array(pred, "pred"), as_box_array(gt, "gt")
        if len(pred_boxes) and len(gt_boxes):
            return float(self._of_boxes(pred_boxes, gt_boxes))
        return 0.0 if len(pred_boxes) or len(gt_boxes) else self.both_empty

    @abstractmethod
    def _of_boxes(self, pred: Boxes, gt: Boxes) -> float:
        """The formula, for one box or more on either side: `pred` (n, 4) and `gt` (m, 4)."""


class _FirstBoxReward(PublishedReward):
    """A formula for the first predicted box and the first reference box; a broken predicted box earns 0."""

    def _of_boxes(self, pred: Boxes, gt: Boxes) -> float:
        """The formula for the first box on either side; 0 where the predicted one is broken."""
        return self._of_pair(pred[:1], gt[:1]) if valid_boxes(pred[:1])[0] else 0.0

    @abstractmethod
    def _of_pair(self, pred: Boxes, gt: Boxes) -> float:
        """The formula, for one valid box on either side, each as an array ``(1, 4)``."""


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

    def _of_boxes(self, pred: Boxes, gt: Boxes) -> float:
        """The harmonic mean of precision and recall; 1e-8, the source's ε, keeps each quotient from dividing by 0."""
        iou = pairwise_iou(pred, gt)
        # The reference box of each predicted box, -1 for a box that overlaps none in the pairing.
        matched = match_batch(iou[None], iou_threshold=0.0, matching="hungarian")[0]
        is_paired = matched >= 0
        mass = float(iou[is_paired, matched[is_paired]].sum())
        recall = mass / (len(gt) + 1e-8)
        # Beside the mass only boxes without a pair count as false.
        precision = mass / (mass + len(pred) - is_paired.sum() + 1e-8)
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

    def _of_boxes(self, pred: Boxes, gt: Boxes) -> float:
        """`exp(-mean relative error)` of the last predicted and the first reference box."""
        if not np.isfinite(pred[-1]).all():
            return 0.0
        # 1e-15, as in the source, where a reference coordinate of 0 would divide.
        return np.exp(-np.mean(np.abs(pred[-1] - gt[0]) / (gt[0] + 1e-15)))


class MedVisionCIoUReward(PublishedReward):
    """medvision_ciou: exp(-(1 - CIoU) / 2) of one box, in [0, 1]: MedVision's later form.

    CIoU as its authors publish it but for three things: swapped corners are put in order, IoU is 0 where the union is
    at most 1e-7 of the image, and a height has 1e-7 added before it divides. A box on the other side of the image still
    earns about 0.4. The last box counts, as in medvision; 0 without a box.

    Boxes are given as shares of the image's sides, which a call with completions sees to.

    Example:
        >>> judge = MedVisionCIoUReward()
        >>> round(judge.score([[0, 0, 0.2, 0.2]], [[0, 0, 0.2, 0.2]]), 4)
        1.0
        >>> round(judge.score([[0, 0, 0.2, 0.2]], [[0.8, 0.8, 1, 1]]), 4)  # CIoU = -0.64
        0.4404

    Source: YongchengYAO/verl cf57500, verl/utils/reward_score/medvision_rewards/reward_fn.py, ``cal_ciou_reward_error``
    under ``exp_decay``, read in 2026-11; its format reward is left out.
    """

    normalised_boxes = True

    def _of_boxes(self, pred: Boxes, gt: Boxes) -> float:
        """`exp(-(1 - CIoU) / 2)` of the last predicted and the first reference box.

        Up to 1e-7 the source takes a divisor for 0. In the names p is the predicted box and g the reference box.
        """
        if not np.isfinite(pred[-1]).all():
            return 0.0
        # Of (x1, y1, x2, y2) both x and both y, each two in rising order: so swapped corners do no harm.
        (px1, px2), (py1, py2) = np.sort(pred[-1].reshape(2, 2).T)
        (gx1, gx2), (gy1, gy2) = np.sort(gt[0].reshape(2, 2).T)
        p_width, p_height, g_width, g_height = px2 - px1, py2 - py1, gx2 - gx1, gy2 - gy1
        inter = max(0.0, min(px2, gx2) - max(px1, gx1)) * max(0.0, min(py2, gy2) - max(py1, gy1))
        union = p_width * p_height + g_width * g_height - inter
        iou = inter / union if union > 1e-7 else 0.0
        # ρ² / c²: squared distance of the centres over the squared diagonal of the smallest box around both.
        distance = ((px1 + px2 - gx1 - gx2) / 2) ** 2 + ((py1 + py2 - gy1 - gy2) / 2) ** 2
        diagonal = (max(px2, gx2) - min(px1, gx1)) ** 2 + (max(py2, gy2) - min(py1, gy1)) ** 2
        separation = distance / diagonal if diagonal > 1e-7 else 0.0
        # v is the difference in shape, and α its weight.
        v = 4 / np.pi**2 * (np.arctan(g_width / (g_height + 1e-7)) - np.arctan(p_width / (p_height + 1e-7))) ** 2
        alpha = v / (1 - iou + v) if 1 - iou + v > 1e-7 else 0.0
        return np.exp(-(1 - (iou - separation - alpha * v)) / 2)


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

    def _of_pair(self, pred: Boxes, gt: Boxes) -> float:
        """1 if the IoU reaches the threshold, else 0."""
        return pairwise_iou(pred, gt)[0, 0] >= self.iou_threshold


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

    def _of_pair(self, pred: Boxes, gt: Boxes) -> float:
        """The IoU in whole pixels."""
        return _pixel_iou(pred[0], gt[0])


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

    def _of_boxes(self, pred: Boxes, gt: Boxes) -> float:
        """The mean over ten IoU thresholds of the average precision, less where there are more boxes than findings."""
        iou = pairwise_iou(pred, gt)
        # The average precision takes a batch of answers: here of one, all of whose boxes count.
        every_box, reference_counts = np.ones((1, len(pred)), dtype=bool), np.array([len(gt)])
        ap_sum = 0.0
        # 0.5, 0.55, …, 0.95
        for threshold in np.arange(10, 20) / 20:
            free_iou, is_hit = iou.copy(), np.zeros(len(pred), dtype=bool)
            for k, row in enumerate(free_iou):
                best_gt = int(np.argmax(row))
                if row[best_gt] >= threshold:
                    is_hit[k] = True
                    # This reference box is taken: later boxes find no overlap with it.
                    free_iou[:, best_gt] = 0.0
            ap_sum += average_precision_of_hits(is_hit[None], every_box, reference_counts, interpolation="101")[0]
        return ap_sum / 10 * min(1.0, len(gt) / len(pred))


class MedGroundR1Reward(_FirstBoxReward):
    """medground_r1: 1 where the first box has more than half of IoU, as vlm_r1 counts it, else 0.

    The paper adds a semantic part, which asks another model and is left out.

    Example:
        >>> [MedGroundR1Reward().score([[0, 0, 10, y]], [[0, 0, 10, 10]]) for y in (5, 6)]
        [0.0, 1.0]

    Source: Xu et al., MedGround-R1, arXiv 2507.02994; bio-mlhui/MedGround-R1 36486ba,
    open-r1-multimodal/src/open_r1/grpo_rec.py, ``iou_reward``.
    """

    def _of_pair(self, pred: Boxes, gt: Boxes) -> float:
        """1 if the IoU in whole pixels is above a half, else 0."""
        return _pixel_iou(pred[0], gt[0]) > 0.5


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

    def _of_boxes(self, pred: Boxes, gt: Boxes) -> float:
        """The sum of the IoUs of the hits over the larger number of boxes, repeated boxes left out."""
        distinct_boxes = list(dict.fromkeys(map(tuple, pred.tolist())))
        free_iou = pairwise_iou(distinct_boxes, gt)
        iou_sum = 0.0
        for row in free_iou:
            best_gt = int(np.argmax(row))
            if row[best_gt] > 0.5:
                iou_sum += row[best_gt]
                # This reference box is taken: later boxes find no overlap with it.
                free_iou[:, best_gt] = 0.0
        return iou_sum / max(len(distinct_boxes), len(gt))


class PerceptionR1Reward(_FirstBoxReward):
    """perception_r1: the squared IoU of the first box, in [0, 1]; 0 without a box on either side.

    Example:
        >>> PerceptionR1Reward().score([[0, 0, 10, 5]], [[0, 0, 10, 10]])
        0.25

    Source: Yu et al., Perception-R1, arXiv 2504.07954; ``pr1_grounding_reward`` of linkangheng/PR1, read in 2026-11 in
    the copy philipmit/PR1 accb7cb, src/open_r1/rewards.py.
    """

    def _of_pair(self, pred: Boxes, gt: Boxes) -> float:
        """The squared IoU."""
        return pairwise_iou(pred, gt)[0, 0] ** 2


class PerceptionR1DetectionReward(PublishedReward):
    """perception_r1_detection: F1, labels and IoU of pairs, less false and missed boxes, in [0, 2.75].

    Pairs have the least sum of ``5 L1 - 2 GIoU``, L1 of centres and sides in pixels, which decides alone; those above
    IoU 0.5 are hits. With k of them ``0.75 F1 + 1 + mean IoU - ((n - k) / n + (m - k) / m) / 2``, and 0 without hits:
    then junk costs nothing. The 1 is the share of hits with the right label, which is taken to be all; format and
    coverage are left out. 0 where either side has no box, or a corner lies on the wrong side of its opposite.

    Example:
        >>> judge = PerceptionR1DetectionReward()
        >>> round(judge.score([[0, 0, 10, 8]], [[0, 0, 10, 10]]), 4)  # 0.75 + 1 + 0.8
        2.55
        >>> round(judge.score([[0, 0, 10, 8], [50, 50, 60, 60]], [[0, 0, 10, 10]]), 4)  # 0.5 + 1 + 0.8 - 0.25
        2.05

    Source: Yu et al., Perception-R1, arXiv 2504.07954; ``pr1_detection_reward`` of linkangheng/PR1 under its defaults,
    read in 2026-11 in the copy philipmit/PR1 accb7cb, src/open_r1/rewards.py and utils.py.
    """

    def _of_boxes(self, pred: Boxes, gt: Boxes) -> float:
        """`0.75 F1 + 1 + mean IoU` less the mean of the shares of false and missed boxes; 0 without a hit.

        The weights are the source's, and so is 1e-8, which keeps quotients from dividing by 0.
        """
        from scipy.optimize import linear_sum_assignment

        if not np.isfinite(pred).all() or not (pred[:, 2:] >= pred[:, :2]).all():
            return 0.0
        # Shapes that broadcast: of every predicted box with every reference box.
        p, g = pred[:, None], gt[None]
        areas = np.prod(p[..., 2:] - p[..., :2], axis=-1) + np.prod(g[..., 2:] - g[..., :2], axis=-1)
        larger, smaller = np.maximum(p, g), np.minimum(p, g)
        inter = np.prod(np.maximum(smaller[..., 2:] - larger[..., :2], 0), axis=-1)
        union = areas - inter
        iou = inter / (union + 1e-8)
        # The smallest box around both.
        hull = np.prod(larger[..., 2:] - smaller[..., :2], axis=-1) + 1e-8
        giou = iou - (hull - union) / hull
        # L1 of centres and sides.
        distance = np.abs(from_xyxy(p, "cxcywh") - from_xyxy(g, "cxcywh")).sum(axis=-1)
        iou_of_pairs = iou[linear_sum_assignment(5 * distance - 2 * giou)]
        hit_ious = iou_of_pairs[iou_of_pairs > 0.5]
        if not len(hit_ious):
            return 0.0
        precision, recall = len(hit_ious) / len(pred), len(hit_ious) / len(gt)
        f1 = 2 * precision * recall / (precision + recall + 1e-8)
        false_share, missed_share = (len(pred) - len(hit_ious)) / len(pred), (len(gt) - len(hit_ious)) / len(gt)
        return max(0.75 * f1 + 1 + hit_ious.mean() - (false_share + missed_share) / 2, 0.0)


class VisionReasonerReward(PublishedReward):
    """vision_reasoner: hits of two kinds over the larger number of boxes, in [0, 2].

    Pairs earn 1 for an IoU above 0.5 and 1 for a mean distance of the four coordinates below 10 pixels of an image of
    840 by 840, to which the model's images are squeezed; the assignment that earns most, divided by ``max(n, m)``.
    IoU counts the far edge as a pixel more. The third part, of points, is left out: boxes have none. 0 where either
    side has no box.

    Boxes are given as shares of the image's sides, which a call with completions sees to.

    Example:
        >>> judge = VisionReasonerReward()
        >>> judge.score([[0.1, 0.1, 0.3, 0.3]], [[0.1, 0.1, 0.3, 0.3]])
        2.0
        >>> judge.score([[0.1, 0.1, 0.3, 0.38]], [[0.1, 0.1, 0.3, 0.3]])  # 17 pixels on average
        1.0

    Source: Liu et al., VisionReasoner, arXiv 2505.12081; ``vision_reasoner_accuracy_reward`` of its training code.
    """

    normalised_boxes = True

    def _of_boxes(self, pred: Boxes, gt: Boxes) -> float:
        """The sum of the credits of the best pairs, 1 for the IoU and 1 for the distance, over the larger box count."""
        # From shares of the image to pixels of the 840 by 840 that the source's model sees.
        pred, gt = 840 * pred, 840 * gt
        # A broken box may have NaN, which is near nothing.
        with np.errstate(invalid="ignore"):
            is_near = np.abs(pred[:, None] - gt).mean(axis=2) < 10
        # The source counts the pixel at a box's right and lower edge too: a side is x2 - x1 + 1.
        last_pixel = [0, 0, 1, 1]
        overlaps = pairwise_iou(pred + last_pixel, gt + last_pixel) > 0.5
        credits = overlaps.astype(np.float64) + is_near
        # Paired by the credits in the place of IoUs; -1 for a box without a pair.
        matched = match_batch(credits[None], iou_threshold=0.0, matching="hungarian")[0]
        is_paired = matched >= 0
        return credits[is_paired, matched[is_paired]].sum() / max(len(pred), len(gt))


class NeMoRLReward(PublishedReward):
    """nemo_rl: GIoU of the one box of an answer, in [-1, 1]; 0 for an answer with no box or several.

    Union and hull are at least 0.001 of the image, so that a right box smaller than that earns less than 1: one of 1
    % of each side earns 0.1. A wrong box earns less than none.

    Boxes are given as shares of the image's sides, which a call with completions sees to. A broken box, for which the
    code gives numbers without a limit, earns 0.

    Example:
        >>> judge = NeMoRLReward()
        >>> judge.score([[0.1, 0.1, 0.3, 0.3]], [[0.1, 0.1, 0.3, 0.3]])
        1.0
        >>> round(judge.score([[0.5, 0.5, 0.51, 0.51]], [[0.5, 0.5, 0.51, 0.51]]), 3)
        0.1

    Source: NVIDIA-NeMo/RL 7ea279a, nemo_rl/environments/rewards.py, ``bbox_giou_reward``.
    """

    normalised_boxes = True

    def _of_boxes(self, pred: Boxes, gt: Boxes) -> float:
        """The GIoU of the only predicted box and the first reference box; 0 if there are several, or it is broken."""
        if len(pred) != 1 or not valid_boxes(pred)[0]:
            return 0.0
        (px1, py1, px2, py2), (gx1, gy1, gx2, gy2) = pred[0], gt[0]
        inter = max(0.0, min(px2, gx2) - max(px1, gx1)) * max(0.0, min(py2, gy2) - max(py1, gy1))
        # The source divides by no area below 0.001 of the image. The hull is the smallest box around both.
        union = max(1e-3, (px2 - px1) * (py2 - py1) + (gx2 - gx1) * (gy2 - gy1) - inter)
        hull = max(1e-3, (max(px2, gx2) - min(px1, gx1)) * (max(py2, gy2) - min(py1, gy1)))
        return inter / union - (hull - union) / hull


PUBLISHED: dict[str, Callable[..., object]] = {
    "radvlm": RadVLMReward,
    "medvision": MedVisionReward,
    "medvision_ciou": MedVisionCIoUReward,
    "medloc": MedLocReward,
    "medground_r1": MedGroundR1Reward,
    "vlm_r1": VLMR1Reward,
    "vlm_r1_detection": VLMR1DetectionReward,
    "visual_rft": VisualRFTReward,
    "perception_r1": PerceptionR1Reward,
    "perception_r1_detection": PerceptionR1DetectionReward,
    "vision_reasoner": VisionReasonerReward,
    "nemo_rl": NeMoRLReward,
}
"""Published rewards by name."""


def _pixel_iou(pred: Array, gt: Array) -> float:
    """IoU of two boxes ``(4,)`` as VLM-R1 counts it: an overlap of one pixel's width or height is none."""
    # The first and the last pixel of the overlap, so that its sides are the difference and 1.
    x1, y1 = np.maximum(pred[:2], gt[:2])
    x2, y2 = np.minimum(pred[2:] - 1, gt[2:] - 1)
    inter = (x2 - x1 + 1) * (y2 - y1 + 1) if x1 < x2 and y1 < y2 else 0.0
    areas = (pred[2] - pred[0]) * (pred[3] - pred[1]) + (gt[2] - gt[0]) * (gt[3] - gt[1])
    return float(inter / (areas - inter))

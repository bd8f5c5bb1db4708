"""The cost of a change of the images: robust accuracy and attack success rate for answers made of boxes.

The specification (§4) writes both for a classifier, ``f(x) = y``. An answer f(x) is a set of boxes, so:

* **right**, ``f(x) = y``: the reward's own matcher leaves nothing over. Every reference box has a partner (IoU at least
  the reward's τ, and labels that agree where the reward compares labels), no predicted box is without one, outside
  ignored regions, and nothing stands broken in the place of a box. On an image without findings an answer is right if
  it says that there is nothing; text that says neither is wrong.
* **the same answer**, ``f(x′) = f(x)``: both are right, or neither is; and by the same matcher, with the first answer
  in the place of the reference, after it was moved along with the image. Of invalid and broken boxes there are as many;
  of two answers without boxes, both say that there is nothing, or neither does. The first condition is no luxury: a box
  may be near its first place and no longer near the reference. With it, as for a classifier, an answer that was right
  and no longer is has changed.

Four metrics, over N images:

* ``accuracy`` = 1/N Σ 1[f(x′) = y], the share of the changed images with a right answer; y moves with the image.
* ``attack_success_rate`` = 1/N Σ 1[f(x′) ≠ f(x)], the specification's, over all images: also a wrong answer that gives
  way to another wrong one, and even to the right one, is a success. Every lost right answer is one too, so that the
  rate is never below accuracy before the change times ``broken_share``.
* ``broken_share`` = Σ 1[f(x) = y and f(x′) ≠ y] / Σ 1[f(x) = y], which many papers call attack success rate: of the
  images with a right answer the share that lost it.
* ``mean_iou``, that of :mod:`grounding_rewards.metrics.detection`, on the changed images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.boxes import Boxes, valid_boxes
from grounding_rewards.metrics.detection import MatchedImages
from grounding_rewards.metrics.intervals import Estimate, Metric, ratio_estimates
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.rewards.grounding import GroundingReward

#: Every metric of a :class:`RobustnessPoint` and its heading in tables.
ROBUSTNESS_METRICS: dict[str, str] = {
    "accuracy": "robust accuracy",
    "attack_success_rate": "attack success rate",
    "broken_share": "right answers lost",
    "mean_iou": "mean IoU",
}


class RobustnessPoint(NamedTuple):
    """Metrics of the answers to images that were changed.

    ``family`` is `corruptions` or `pgd`; ``name`` the change; ``strength`` 0 for the image as it is, 1 … 5 for
    corruptions, ε in parts of the range of intensities for pgd.
    ``attack_success_rate`` is over all images; ``broken_share`` is over those whose answer was right before the change,
    and NaN where none was.
    """

    family: str
    name: str
    strength: float
    accuracy: Estimate
    attack_success_rate: Estimate
    mean_iou: Estimate
    broken_share: Estimate = Estimate(math.nan, math.nan, math.nan)


@dataclass(frozen=True, eq=False)
class AnswerPair:
    """The answers to one image as it is and as it was changed.

    Attributes:
        before: the image as it is.
        after: the changed image, with the reference boxes where they are now.
        moved: ``(n, 4)`` the predicted boxes of ``before``, where the change has moved them to.
        kept: ``(n,)`` bool: False for those of which the change has left too little to ask for them again.
    """

    before: Prediction
    after: Prediction
    moved: Boxes
    kept: np.ndarray

    @staticmethod
    def unmoved(before: Prediction, after: Prediction) -> AnswerPair:
        """The answers to an image on which everything stayed in its place."""
        return AnswerPair(before, after, before.pred, np.ones(len(before.pred), dtype=bool))


def is_right(image: Prediction, reward: GroundingReward) -> bool:
    """Whether an answer marks all that the reference marks and nothing else, ``f(x) = y``.

    Args:
        image: the image and its answer.
        reward: whose threshold, matcher and comparison of labels decide.

    Example:
        >>> from grounding_rewards import get_reward
        >>> image = Prediction("a", 100, 100, gt=[[0, 0, 10, 10]], gt_labels=["mass"], pred=[[0, 0, 10, 8]])
        >>> is_right(image, get_reward("R3")), is_right(image, get_reward("R3", iou_threshold=0.9))
        (True, False)
    """
    # On a normal image an answer without boxes is right only if it says that there is nothing.
    says_neither = not len(image.pred) and not len(image.gt) and image.status != "empty"
    # A broken box counts as a false one.
    if image.broken or says_neither:
        return False
    explained = reward.explain(
        image.pred, image.gt, ignore=image.ignore, pred_labels=image.pred_labels, gt_labels=image.gt_labels
    )
    return explained.fp == explained.fn == 0


def is_same_answer(pair: AnswerPair, reward: GroundingReward) -> bool:
    """Whether both answers mark the same, ``f(x′) = f(x)``.

    Args:
        pair: the two answers.
        reward: whose threshold, matcher and comparison of labels decide.

    Example:
        >>> from grounding_rewards import get_reward
        >>> one, other = (Prediction("a", 100, 100, pred=[[0, 0, 10, side]]) for side in (10, 8))
        >>> is_same_answer(AnswerPair.unmoved(one, other), get_reward("R3"))
        True
    """
    before, after = pair.before, pair.after
    # A box may be near its first place and no longer near the reference: an answer that was right has changed then.
    if is_right(before, reward) != is_right(after, reward):
        return False
    if not len(before.pred) and not len(after.pred):
        # Both say that there is nothing, or neither says anything that can be read.
        return (before.status == "empty") == (after.status == "empty")
    # Broken and invalid boxes match nothing: only their number is compared.
    valid_before, valid_after = valid_boxes(pair.moved), valid_boxes(after.pred)
    if (~valid_before).sum() + len(before.broken) != (~valid_after).sum() + len(after.broken):
        return False
    # The moved first answer stands for the reference. Boxes that were moved off the image need not be found again, and
    # a box that lies on what is left of them is ignored.
    is_kept, is_lost = valid_before & pair.kept, valid_before & ~pair.kept
    explained = reward.explain(
        after.pred[valid_after],
        pair.moved[is_kept],
        ignore=pair.moved[is_lost],
        pred_labels=_labels(after, valid_after),
        gt_labels=_labels(before, is_kept),
    )
    return explained.fp == explained.fn == 0


def robustness_estimates(
    pairs: Sequence[AnswerPair],
    reward: GroundingReward,
    *,
    label_matching: str = "ignore",
    groups: Sequence[Any] | None = None,
) -> dict[str, Estimate]:
    """Every metric of :data:`ROBUSTNESS_METRICS` with its 95 % interval, of shares an exact one.

    Args:
        pairs: one per image.
        reward: whose threshold, matcher and comparison of labels decide.
        label_matching: of mean IoU, as in :mod:`grounding_rewards.metrics.detection`.
        groups: the patient of each image, where known; the images of one patient are then one unit of the intervals.

    Example:
        >>> from grounding_rewards import get_reward
        >>> from dataclasses import replace
        >>> right = Prediction("a", 100, 100, gt=[[0, 0, 10, 10]], gt_labels=["mass"], pred=[[0, 0, 10, 10]])
        >>> wrong = replace(right, pred=[[50, 50, 60, 60]])
        >>> pairs = [AnswerPair.unmoved(right, right), AnswerPair.unmoved(right, wrong)]
        >>> {key: estimate.value for key, estimate in robustness_estimates(pairs, get_reward("R3")).items()}
        {'accuracy': 0.5, 'attack_success_rate': 0.5, 'broken_share': 0.5, 'mean_iou': 0.5}
    """
    ious, is_box = MatchedImages([pair.after for pair in pairs], label_matching).best_ious
    was_right = np.array([is_right(pair.before, reward) for pair in pairs], dtype=bool)
    is_right_after = np.array([is_right(pair.after, reward) for pair in pairs], dtype=bool)
    changed = np.array([not is_same_answer(pair, reward) for pair in pairs], dtype=bool)
    # By key the numerators and denominators of each image; the definitions are at the top of this module.
    fractions = {
        "accuracy": (is_right_after, np.ones(len(pairs))),
        "attack_success_rate": (changed, np.ones(len(pairs))),
        "broken_share": (was_right & ~is_right_after, was_right),
        "mean_iou": (ious.sum(axis=1), is_box.sum(axis=1)),
    }
    sums = {key: np.column_stack(fraction).astype(np.float64) for key, fraction in fractions.items()}
    metrics = {key: Metric(heading, "", is_share=key != "mean_iou") for key, heading in ROBUSTNESS_METRICS.items()}
    return ratio_estimates(sums, metrics, groups)


def _labels(image: Prediction, mask: np.ndarray) -> list[str]:
    """The labels of the predicted boxes for which the mask is set, `no label` for a box without one."""
    # Two boxes without a label agree with each other here; the reward lets None agree with nothing.
    return [label or "no label" for label, is_member in zip(image.pred_labels, mask, strict=True) if is_member]

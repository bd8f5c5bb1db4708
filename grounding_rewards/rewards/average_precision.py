"""R1: average precision at one IoU threshold."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.common.numeric import Array, ratio, row_sums
from grounding_rewards.rewards.box_reward import Matched, ThresholdReward, parameter
from grounding_rewards.rewards.f_beta import f_beta_score

RANKINGS = ("emission", "score", "iou", "tied")
#: The recall levels at which each interpolation reads precision; None reads it at every recall that is reached.
INTERPOLATIONS: dict[str, Array | None] = {
    "all": None,
    "101": np.linspace(0.0, 1.0, 101),
    # k / 10, as recalls are: linspace gives 0.30000000000000004, which three of ten findings never reach.
    "11": np.arange(11) / 10,
}


@dataclass(frozen=True, kw_only=True)
class AveragePrecisionReward(ThresholdReward):
    """R1: the area under the interpolated precision-recall curve, in [0, 1].

    ``AP = Σ_k P̃(R_k) (R_k - R_k-1)`` with ``P̃(R) = max_{R' ≥ R} P(R')``, over the predictions in their ranking.

    Under every ranking but ``"tied"`` a junk box that is ranked after the right ones costs nothing, here as in every
    AP reward: the curve has already reached its recall. ``"tied"`` treats all predictions as equally confident, one
    point on the curve, AP = precision × recall, so that junk costs wherever it stands: take it for training.

    It takes the parameters of :class:`ThresholdReward`, and:

    Args:
        ranking: ``"emission"``, the order in which the model wrote the boxes; ``"score"``, the confidences that the
            completion states, highest first and unstated ones last (boxes without any, as in ``score(pred, gt)``, stay
            in their order); ``"iou"``, the best IoU first; ``"tied"``.
        interpolation: ``"all"`` points, or the mean over ``"101"`` (COCO) or ``"11"`` (VOC 2007) recall levels. The
            levels are compared in float64 as the reference codes do.
        per_label: mAP, the mean of the AP of each label of the image, instead of one AP over all boxes. A made-up
            finding costs: a label that is only predicted has AP 0, and predicted boxes without a label count as one
            such label. Needs a ``label_matching`` that compares labels.

    Ceiling: n boxes on an image with m findings earn at most ``min(n, m) / m``, so 1 for any number of junk boxes
    beside the right ones; under ``ranking="tied"`` ``min(n, m)² / (n m)``. An ``interpolation`` over levels takes the
    share of levels up to that recall, and ``per_label`` promises no less than 1.

    Raises:
        ValueError: a parameter is out of its range.

    Example:
        >>> r1 = AveragePrecisionReward()
        >>> hit, junk = [0, 0, 10, 10], [50, 50, 60, 60]
        >>> r1.score([hit, junk], [hit]), r1.score([junk, hit], [hit])
        (1.0, 0.5)
        >>> AveragePrecisionReward(ranking="tied").score([hit, junk], [hit])
        0.5
        >>> r1_map = AveragePrecisionReward(label_matching="exact", per_label=True)
        >>> r1_map.score([hit, junk], [hit, junk], pred_labels=["mass", "nodule"], gt_labels=["mass", "effusion"])
        0.3333333333333333

    Source: specification §3; Lin et al., Microsoft COCO, ECCV 2014; Everingham et al., IJCV 2010.
    """

    ranking: str = parameter("emission", RANKINGS)
    interpolation: str = parameter("all", INTERPOLATIONS)
    per_label: bool = parameter(False, bool)

    def __post_init__(self) -> None:
        """Check the parameters, and refuse `per_label` without labels to compare."""
        # YAML reads 101 and 11 as numbers.
        object.__setattr__(self, "interpolation", str(self.interpolation))
        super().__post_init__()
        if self.per_label and self.label_matching == "ignore":
            raise ValueError(
                "Expected label_matching 'exact' or 'synonyms' for `per_label`, got 'ignore'. "
                "Without labels there is nothing to take the mean over: state label_matching."
            )

    def _combine(self, batch: Matched) -> tuple[Array, Array, Array]:
        """F1, the quality and the reward of each completion; the last two are both the average precision."""
        f1 = f_beta_score(batch.precision, batch.recall, beta=1.0)
        if batch.pred_labels is not None and batch.gt_labels is not None and self.per_label:
            ap = self._mean_over_labels(batch, batch.pred_labels, batch.gt_labels)
        elif self.ranking == "tied":
            # Equally confident predictions are a single point on the curve.
            ap = batch.precision * batch.recall
        else:
            order = _order(batch, self.ranking)
            ap = average_precision_of_hits(
                _in_order(batch.hit, order), _in_order(~batch.ignored, order), batch.m, self.interpolation
            )
        return f1, ap, ap

    def _mean_over_labels(self, batch: Matched, pred_codes: Array, gt_codes: Array) -> Array:
        """The mean AP over the labels of each completion, those of its reference and those only predicted, (b,).

        Args:
            batch: b completions.
            pred_codes: (b, n), the label of each prediction as a whole number; NaN for none, and in padding.
            gt_codes: (b, m), the same of the references, all of which have a label; NaN in padding.
        """
        b = len(pred_codes)
        is_counted = ~batch.ignored
        is_labelled = is_counted & ~np.isnan(pred_codes)
        # Each label of each completion gets a key of its own, so that one call finds the distinct ones of all
        # completions. A completion has `stride` keys: one for each code, and the last for all boxes without a label.
        stride = int(max(np.nanmax(gt_codes), np.nanmax(pred_codes, initial=0.0))) + 2
        first_keys = np.arange(b)[:, None] * stride
        gt_keys = (first_keys + gt_codes)[~np.isnan(gt_codes)].astype(np.int64)
        pred_keys = (first_keys + pred_codes)[is_labelled].astype(np.int64)
        unlabelled_keys = np.flatnonzero(batch.n > is_labelled.sum(axis=1)) * stride + stride - 1
        all_keys = np.unique(np.concatenate([gt_keys, pred_keys, unlabelled_keys]))
        # From here on a row is one label of one reference, with the AP of that label. Labels that are only predicted
        # have AP 0: they are no rows, and count in the divisor alone.
        label_keys, label_counts = np.unique(gt_keys, return_counts=True)
        completions, codes = np.divmod(label_keys, stride)
        order = _order(batch, self.ranking)
        has_label = _in_order(pred_codes, order)[completions] == codes[:, None]
        hit = _in_order(batch.hit, order)[completions] & has_label
        counted = _in_order(is_counted, order)[completions] & has_label
        if self.ranking == "tied":
            # One point on the curve: precision times recall.
            hit_counts = hit.sum(axis=1)
            ap = ratio(hit_counts, counted.sum(axis=1)) * ratio(hit_counts, label_counts)
        else:
            ap = average_precision_of_hits(hit, counted, label_counts, self.interpolation)
        # The sum of the APs of each completion over the number of its labels.
        return np.bincount(completions, weights=ap, minlength=b) / np.bincount(all_keys // stride, minlength=b)


def _order(batch: Matched, ranking: str) -> np.ndarray | None:
    """The indices of the predictions, (b, n), the highest in rank first; None for the order of writing."""
    if ranking == "iou":
        values = batch.every_iou.max(axis=2)
    elif ranking == "score" and batch.scores is not None:
        values = batch.scores
    else:
        # Written order; of confidences, where no completion states any.
        return None
    # Highest first, equal ones as written, and NaN, a confidence that is not stated, last.
    return np.argsort(np.where(np.isnan(values), np.inf, -values), axis=1, kind="stable")


def _in_order(values: np.ndarray, order: np.ndarray | None) -> np.ndarray:
    """The values of the predicted boxes, (b, n), in this order of the columns, which is None if it is as written."""
    return values if order is None else np.take_along_axis(values, order, axis=1)


def average_precision_of_hits(hit: np.ndarray, counted: np.ndarray, m: np.ndarray, interpolation: str) -> Array:
    """Average precision of each row of ranked predictions, (b,).

    Args:
        hit: ``(b, n)`` which predictions hit, the highest in rank first. Padding at the end does no harm: it only
            lowers precision at a recall that is already reached.
        counted: ``(b, n)`` which predictions count.
        m: ``(b,)`` how many references there are.
        interpolation: a key of :data:`INTERPOLATIONS`.
    """
    # Down to each rank: how many predictions hit, of how many, and the best precision at this recall or a higher one.
    hits_so_far = hit.cumsum(axis=1)
    precision = ratio(hits_so_far, counted.cumsum(axis=1))
    envelope = precision_envelope(precision)
    levels = INTERPOLATIONS[interpolation]
    if levels is None:
        # All points: the area under the envelope. Recall grows by 1/m at a hit and nowhere else.
        return ratio(row_sums(envelope * hit), m)
    # The mean over the levels: each reads the envelope at the first rank whose recall reaches it, or 0 if none does.
    recall = ratio(hits_so_far, m[:, None])
    return row_sums(envelope * newly_reached(recall, levels)) / len(levels)


def precision_envelope(precision: Array) -> Array:
    """The best precision at each point's recall or a higher one, ``P̃(R_k) = max_{k' ≥ k} P_k'``.

    Args:
        precision: ``(b, points)`` in the order of the ranking.

    Example:
        >>> precision_envelope(np.array([[0.0, 0.5, 0.25]]))
        array([[0.5 , 0.5 , 0.25]])
    """
    return np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]


def newly_reached(recall: Array, levels: Array) -> NDArray[np.int64]:
    """Number of recall levels that each point is the first to reach; the first point always reaches level 0.

    Args:
        recall: ``(b, points)``, not falling.
        levels: ``(l,)``, rising.

    Example:
        >>> newly_reached(np.array([[0.0, 0.5, 0.5]]), np.array([0.0, 0.25, 0.5, 1.0]))
        array([[1, 2, 0]])
    """
    return np.diff(np.searchsorted(levels, recall, side="right"), axis=1, prepend=0)

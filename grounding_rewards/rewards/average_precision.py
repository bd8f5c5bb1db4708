"""R1: average precision at one IoU threshold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grounding_rewards.rewards.base import Array, BoxReward, MatchedBatch, check_choice, ratio, row_sums
from grounding_rewards.rewards.f_beta import f_beta_score

RANKINGS = ("emission", "score", "iou", "tied")
INTERPOLATIONS = ("all", "101", "11")


@dataclass(frozen=True, kw_only=True)
class AveragePrecisionReward(BoxReward):
    """R1: the area under the interpolated precision-recall curve, in [0, 1].

    ``AP = Σ_k P̃(R_k) (R_k - R_k-1)`` with ``P̃(R) = max_{R' ≥ R} P(R')``, over the predictions in their ranking.

    Under every ranking but ``"tied"`` a junk box that is ranked after the right ones costs nothing, here as in every
    AP reward: the curve has already reached its recall. ``"tied"`` treats all predictions as equally confident, one
    point on the curve, AP = precision × recall, so that junk costs wherever it stands.

    Args:
        iou_threshold: τ, in (0, 1].
        no_box_bonus: δ, in [0, 1].
        matching: ``"greedy"``, ``"hungarian"`` or ``"thresholded_hungarian"``.
        ranking: ``"emission"``, the order in which the model wrote the boxes; ``"score"``, the confidences that the
            completion states, highest first and unstated ones last (boxes without any, as in ``score(pred, gt)``, stay
            in their order); ``"iou"``, the best IoU first; ``"tied"``.
        interpolation: ``"all"`` points, or the mean over ``"101"`` (COCO) or ``"11"`` (VOC 2007) recall levels. The
            levels are compared in float64 as the reference codes do.

    Raises:
        ValueError: a parameter is out of its range.

    Example:
        >>> r1 = AveragePrecisionReward()
        >>> hit, junk = [0, 0, 10, 10], [50, 50, 60, 60]
        >>> r1.score([hit, junk], [hit]), r1.score([junk, hit], [hit])
        (1.0, 0.5)
        >>> AveragePrecisionReward(ranking="tied").score([hit, junk], [hit])
        0.5

    Source: specification §3; Lin et al., Microsoft COCO, ECCV 2014; Everingham et al., IJCV 2010.
    """

    ranking: str = "emission"
    interpolation: str = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        # YAML reads 101 and 11 as numbers.
        object.__setattr__(self, "interpolation", str(self.interpolation))
        check_choice(self, "ranking", RANKINGS)
        check_choice(self, "interpolation", INTERPOLATIONS)

    def _combine(self, batch: MatchedBatch) -> tuple[Array, Array, Array]:
        f1 = f_beta_score(batch.precision, batch.recall, 1.0)
        if self.ranking == "tied":
            ap = batch.precision * batch.recall
        else:
            ap = _average_precision(_ranked_hits(batch, self.ranking), batch.m, self.interpolation)
        return f1, ap, ap


def _ranked_hits(batch: MatchedBatch, ranking: str) -> np.ndarray:
    if ranking == "emission":
        return batch.hit
    keys = batch.best_iou if ranking == "iou" else batch.scores
    order = np.argsort(np.where(np.isnan(keys), np.inf, -keys), axis=1, kind="stable")
    return np.take_along_axis(batch.hit, order, axis=1)


def _average_precision(hit: np.ndarray, m: np.ndarray, interpolation: str) -> Array:
    """AP of (b, n) hits in ranked order; padding at the end only lowers precision at a recall already reached."""
    found = hit.cumsum(axis=1)
    # P_k = Σ_{i ≤ k} hit_i / k,  R_k = Σ_{i ≤ k} hit_i / m
    precision = found / np.arange(1, hit.shape[1] + 1)
    recall = ratio(found, m[:, None])
    # P̃(R_k) = max_{k' ≥ k} P_k'
    envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    if interpolation == "all":
        # R_k - R_k-1 is 1/m at a hit and 0 elsewhere
        return ratio(row_sums(envelope * hit), m)
    levels = np.linspace(0.0, 1.0, int(interpolation))
    reached = np.searchsorted(levels, recall, side="right")
    # Recall level 0 is reached by the first prediction, where the envelope is that of the first hit.
    newly = np.diff(reached, axis=1, prepend=0)
    return row_sums(envelope * newly) / len(levels)

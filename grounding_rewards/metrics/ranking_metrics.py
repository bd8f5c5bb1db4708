"""Which metrics of ranked boxes an evaluation has, average precision and sensitivities, and what they are called.

That depends on what answers state. Where every box has a confidence, average precision is COCO's. Elsewhere there is no
order that boxes could be ranked by: all are tied, and the heading says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from grounding_rewards.metrics.answered_image import UNNAMED, AnsweredImage
from grounding_rewards.metrics.average_precision import jackknifed_mean_average_precision
from grounding_rewards.metrics.curves import FROC_RATES, sensitivity_at_false_positives
from grounding_rewards.metrics.estimates import Metric
from grounding_rewards.metrics.intervals import Jackknifed
from grounding_rewards.metrics.ranking import (
    COCO_THRESHOLDS,
    RankedImages,
    label_name,
    rank_boxes,
    states_confidences,
)

#: At which IoU thresholds average precision is measured, beside COCO's mean over 0.5 to 0.95.
AP_THRESHOLDS = (0.5,)
# Rates of false boxes that have a sensitivity of their own; the FROC score is the mean over more.
_SHOWN_RATES = FROC_RATES[:4]
# Beginning of the key → name of the kind of average precision, and over what it is.
_KINDS = {"ap": ("AP", "all boxes together"), "map": ("mAP", "mean over labels")}
# What makes a box right where all are together.
_RULES = {
    "ignore": "whatever their label",
    "exact": "each right only under the finding's label",
    "synonyms": "each right only under a synonym of the finding's label",
}


class RankingMetrics(NamedTuple):
    """The metrics that the answers allow.

    ranking: of average precision, `score` or `tied`.
    average_precisions: its kinds: `ap`, of all boxes together, or `map`, the beginning of the key, and how labels are
        compared.
    iou_thresholds: of average precision, each a metric of its own.
    """

    ranking: str
    average_precisions: tuple[tuple[str, str], ...]
    iou_thresholds: tuple[float, ...] = AP_THRESHOLDS

    @classmethod
    def of(
        cls,
        images: Sequence[AnsweredImage],
        label_matching: str = "ignore",
        iou_thresholds: Sequence[float] = AP_THRESHOLDS,
    ) -> RankingMetrics:
        """Decide by what is there: a confidence for every predicted box, a label for any of them, reference labels.

        Args:
            images: answered images, of one run or of several.
            label_matching: how labels are compared; mAP compares them in any case.
            iou_thresholds: of average precision, each in (0, 1].

        Example:
            >>> RankingMetrics.of([AnsweredImage("a", 9, 9, pred=[[0, 0, 5, 5]])])[:2]
            ('tied', (('ap', 'ignore'),))
        """
        stated = any(len(image.pred) for image in images) and states_confidences(images)
        kinds = [("ap", label_matching)]
        if can_compare_labels(images):
            kinds.append(("map", "synonyms" if label_matching == "synonyms" else "exact"))
        return cls("score" if stated else "tied", tuple(kinds), tuple(iou_thresholds))

    @property
    def thresholds(self) -> dict[str, tuple[float, ...]]:
        """End of the key → the IoU thresholds that average precision is the mean over.

        Example:
            >>> list(RankingMetrics("tied", (), (0.3, 0.55)).thresholds)
            ['30', '55', '50_95']
        """
        return {**{f"{100 * iou:g}": (iou,) for iou in self.iou_thresholds}, "50_95": COCO_THRESHOLDS}

    def metrics(self) -> dict[str, Metric]:
        """Heading and definition of every metric, by key.

        Example:
            >>> RankingMetrics("tied", (("ap", "ignore"),)).metrics()["ap_50"].heading
            'AP at IoU 0.5, boxes tied'
        """
        by_score = self.ranking == "score"
        order = (
            "in the order of stated confidences"
            if by_score
            else "not every box has a stated confidence, so all are tied"
        )
        found = {}
        together = _RULES[dict(self.average_precisions)["ap"]]
        for prefix, _ in self.average_precisions:
            name, over = _KINDS[prefix]
            over += f", {together}" if prefix == "ap" else ""
            for key, thresholds in self.thresholds.items():
                shown = f"{thresholds[0]:g}" + (f" to {thresholds[-1]:g}" if len(thresholds) > 1 else "")
                found[f"{prefix}_{key}"] = Metric(
                    f"{name} at IoU {shown}{'' if by_score else ', boxes tied'}",
                    f"average precision, {over}; {order}",
                )
        if by_score:
            found["froc"] = Metric(
                "FROC score", f"mean of the sensitivities at these rates of false boxes; all boxes together, {together}"
            )
            for rate in _SHOWN_RATES:
                found[f"sensitivity_{rate:g}"] = Metric(
                    f"sensitivity at {rate:g} false boxes per image",
                    "share of the reference boxes found at IoU 0.5 where that many false boxes per image are accepted",
                )
        return found

    def rank(self, images: Sequence[AnsweredImage], iou_thresholds: Sequence[float] = ()) -> dict[str, RankedImages]:
        """The boxes as each kind of average precision ranks them, by the beginning of its key.

        Args:
            images: answered images.
            iou_thresholds: at which boxes are matched, beside those of the metrics.

        Example:
            >>> image = AnsweredImage("a", 9, 9, gt=[[0, 0, 5, 5]], gt_labels=["x"])
            >>> list(RankingMetrics.of([image]).rank([image]))
            ['ap']
        """
        every = sorted({*iou_thresholds, *(one for several in self.thresholds.values() for one in several)})
        return {
            prefix: rank_boxes(
                images, every, ranking=self.ranking, label_matching=label_matching, together=prefix == "ap"
            )
            for prefix, label_matching in self.average_precisions
        }

    def jackknifed(
        self,
        ranked: Mapping[str, RankedImages],
        *,
        interpolation: str = "101",
        groups: Sequence[Any] | None = None,
        seed: int = 0,
    ) -> dict[str, Jackknifed]:
        """Every metric of the images, and without each patient, by key.

        Args:
            ranked: of :meth:`rank`.
            interpolation: of average precision.
            groups: the patient of each image, where known; the images of one patient are then left out together.
            seed: of what is left out.

        Raises:
            ValueError: a word is unknown.

        Example:
            >>> image = AnsweredImage("a", 9, 9, gt=[[0, 0, 5, 5]], gt_labels=["x"], pred=[[0, 0, 5, 5], [6, 6, 9, 9]])
            >>> metrics = RankingMetrics.of([image])
            >>> metrics.jackknifed(metrics.rank([image]))["ap_50"].value
            0.5
        """
        parts: dict[str, Any] = {"groups": groups, "seed": seed}
        found = {
            f"{prefix}_{key}": jackknifed_mean_average_precision(boxes, several, interpolation=interpolation, **parts)
            for prefix, boxes in ranked.items()
            for key, several in self.thresholds.items()
        }
        if self.ranking == "score":
            sensitivities = sensitivity_at_false_positives(ranked["ap"], **parts)
            found["froc"] = sensitivities.mean
            # FROC_RATES begins with those that are shown.
            found |= {
                f"sensitivity_{rate:g}": one for rate, one in zip(_SHOWN_RATES, sensitivities.at_rates, strict=False)
            }
        return found


def can_compare_labels(images: Sequence[AnsweredImage]) -> bool:
    """Whether any predicted box has a label, and every reference box one to compare it with.

    Example:
        >>> image = AnsweredImage("a", 9, 9, gt=[[0, 0, 5, 5]], gt_labels=["mass"], pred=[[0, 0, 5, 5]])
        >>> can_compare_labels([image]), can_compare_labels([image, AnsweredImage("b", 9, 9, pred=image.pred,
        ...     pred_labels=["x"])])
        (False, True)
    """
    names = {label_name(label, "exact") for image in images for label in image.gt_labels}
    return any(label for image in images for label in image.pred_labels) and "" not in names and names != {UNNAMED}

"""Average precision over the images of an evaluation, at any IoU, per label and by size, with intervals.

With a confidence on every box, and under ``ranking="coco"``, it is what pycocotools and faster-coco-eval give, which
the tests hold to 1e-6. Where confidences are equal these take boxes in the order of the images; under ``"score"``,
which evaluations have, boxes of one confidence are one group, and the order of a log changes nothing. Without equal
ones both are the same.
Where an answer states none, COCO's ranking does not exist; the other rankings of
:mod:`grounding_rewards.metrics.ranking` then give a number of their own, which needs its own name: "AP at IoU 0.5,
boxes tied" is precision times recall over all recalls, and in the order of emission it is the area under the curve of
the first box of every image, the first two, and so on.

Whatever the ranking, AP does not charge what comes after the last right box, and mean AP does not charge boxes of a
label that no image has. Precision, F1 and the hallucination rate of :mod:`grounding_rewards.metrics.counts` do.

Which of these an evaluation has depends on what answers state (:func:`ranking_metrics`): where every box has a
confidence, average precision is COCO's; elsewhere there is no order that boxes could be ranked by, all are tied, and
the heading says so.

Average precision of each query for itself, in the order in which the answer names its boxes: a published metric.

Models of chest radiographs that state no confidences are compared by it: a query is one finding that is present on one
image; the boxes that the answer gives under its name are ranked in the order of writing, and the all-point AP at IoU
0.5 of each query is averaged over all queries. A query without a box earns 0. Normal images ask nothing, so that what a
model invents on them costs nothing: read it beside the hallucination rate.

A box without a name answers the query of an image that has findings of one name only, as where the prompt asked for it.
Where the dataset names no findings, each image with a finding is one query.

Source: Gundersen et al., RadVLM-GRPO, arXiv 2512.10691, and Deperrois et al., RadVLM, arXiv 2502.03333.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.common.numeric import Array, ratio, ratio_or_nan, row_sums
from grounding_rewards.common.validation import check_word
from grounding_rewards.metrics.answered_image import UNNAMED, AnsweredImage
from grounding_rewards.metrics.curves import (
    FROC_RATES,
    Curve,
    read_curve,
    sensitivity_at_false_positives,
    totals,
)
from grounding_rewards.metrics.estimates import Metric
from grounding_rewards.metrics.intervals import Jackknifed, Parts
from grounding_rewards.metrics.ranking import (
    COCO_THRESHOLDS,
    RankedBoxes,
    RankedImages,
    label_name,
    place_within,
    rank_boxes,
)
from grounding_rewards.rewards.average_precision import INTERPOLATIONS, newly_reached, precision_envelope


def average_precision(
    ranked: RankedImages,
    iou_threshold: float = 0.5,
    *,
    label: str | None = None,
    interpolation: str = "101",
) -> float:
    """Average precision of one label, or of all boxes of a ranking that compared no labels.

    Args:
        ranked: of :func:`grounding_rewards.metrics.ranking.rank_boxes`.
        iou_threshold: from which a box is right, one of ``ranked.iou_thresholds``.
        label: of the finding; None where labels were not compared.
        interpolation: precision is averaged at ``"101"`` recall levels as COCO does, at ``"11"`` as VOC did until 2009,
            or over ``"all"`` recalls as VOC has done since, as in
            :class:`grounding_rewards.rewards.AveragePrecisionReward`.

    Returns:
        In [0, 1]; NaN without a reference box.

    Raises:
        ValueError: an argument is out of its range.

    Example:
        >>> from grounding_rewards.metrics.answered_image import AnsweredImage
        >>> from grounding_rewards.metrics.ranking import rank_boxes
        >>> image = AnsweredImage("a", 100, 100, gt=[[0, 0, 10, 10]], gt_labels=["mass"],
        ...                     pred=[[50, 50, 60, 60], [0, 0, 10, 9]], pred_scores=[0.3, 0.8])
        >>> average_precision(rank_boxes([image])), average_precision(rank_boxes([image]), 0.95)
        (1.0, 0.0)
        >>> average_precision(rank_boxes([image], ranking="tied"))
        0.5

    Source: Lin et al., Microsoft COCO, ECCV 2014; Everingham et al., The PASCAL VOC Challenge, IJCV 2010 and 2015.
    """
    return mean_average_precision(ranked.only(label), [iou_threshold], interpolation=interpolation)


def mean_average_precision(
    ranked: RankedImages,
    iou_thresholds: Sequence[float] | None = None,
    *,
    interpolation: str = "101",
) -> float:
    """Average precision, averaged over the labels that some image has and over IoU thresholds.

    Args:
        ranked: of :func:`grounding_rewards.metrics.ranking.rank_boxes`. Where it compared no labels, all boxes are of
            one label.
        iou_thresholds: of ``ranked.iou_thresholds``; None takes all of them.
        interpolation: as for :func:`average_precision`.

    Returns:
        In [0, 1]; NaN without a reference box.

    Raises:
        ValueError: an argument is out of its range.

    Example:
        One of two labels is found; 0.9 is the IoU.

        >>> from grounding_rewards.metrics.answered_image import AnsweredImage
        >>> from grounding_rewards.metrics.ranking import rank_boxes
        >>> image = AnsweredImage("a", 100, 100, gt=[[0, 0, 10, 10], [50, 50, 60, 60]], gt_labels=["mass", "effusion"],
        ...                     pred=[[0, 0, 10, 9]], pred_labels=["Mass"], pred_scores=[0.8])
        >>> ranked = rank_boxes([image], label_matching="exact")
        >>> mean_average_precision(ranked, [0.5]), mean_average_precision(ranked, [0.5, 0.95])
        (0.5, 0.25)

    Source: https://cocodataset.org/#detection-eval.
    """
    chosen = _chosen(ranked, iou_thresholds)
    everyone = np.ones((1, ranked.images))
    by_threshold = _mean_ap(list(ranked.by_label.values()), chosen, everyone, interpolation)
    return float(by_threshold.mean(axis=0)[0])


def jackknifed_mean_average_precision(
    ranked: RankedImages,
    iou_thresholds: Sequence[float] | None = None,
    *,
    interpolation: str = "101",
    groups: Sequence[Any] | None = None,
    seed: int = 0,
) -> Jackknifed:
    """:func:`mean_average_precision` of the images, and without each patient, see :mod:`.intervals`.

    A label without a reference box among the images that are left is no part of the mean.

    Args:
        ranked: as for :func:`mean_average_precision`.
        iou_thresholds: as for :func:`mean_average_precision`.
        interpolation: as for :func:`average_precision`.
        groups: the patient of each image, where known; the images of one patient are then left out together.
        seed: of what is left out.

    Raises:
        ValueError: as :func:`mean_average_precision`, or there is not one group per image.

    Example:
        >>> from grounding_rewards.metrics.answered_image import AnsweredImage
        >>> from grounding_rewards.metrics.ranking import rank_boxes
        >>> hit = AnsweredImage("a", 100, 100, gt=[[0, 0, 10, 10]], gt_labels=["mass"], pred=[[0, 0, 10, 10]],
        ...                    pred_labels=["mass"], pred_scores=[0.9])
        >>> miss = AnsweredImage("b", 100, 100, gt=[[0, 0, 10, 10]], gt_labels=["mass"])
        >>> ranked = rank_boxes([hit, miss] * 10, [0.5], label_matching="exact")
        >>> found = jackknifed_mean_average_precision(ranked, interpolation="all").estimate
        >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
        (0.5, 0.251, 0.749)
    """
    parts = Parts.of(groups, ranked.images, seed)
    weights = np.concatenate([np.ones((1, parts.parts)), parts.without_each, parts.halves(seed)])
    by_part = [boxes.by_group(parts.of_image) for boxes in ranked.by_label.values()]
    value, *others = _mean_ap(by_part, _chosen(ranked, iou_thresholds), weights, interpolation).mean(axis=0).tolist()
    left_out, halves = np.array(others[: parts.parts]), np.array(others[parts.parts :])
    measured = halves[~np.isnan(halves)]
    # Too high by c m^-2/3, and on a half by 2^2/3 times that.
    bias = (float(measured.mean()) - value) / (2 ** (2 / 3) - 1) if len(measured) else 0.0
    return Jackknifed(value, left_out, parts.units, bias)


def precision_recall_curve(ranked: RankedImages, iou_threshold: float = 0.5, *, name: str = "") -> Curve:
    """Interpolated precision at 101 recall levels, as COCO reads it; of tied boxes the one point that there is.

    Args:
        ranked: as for :func:`average_precision`.
        iou_threshold: as for :func:`average_precision`.
        name: of the curve.

    Returns:
        ``x`` recall, ``y`` precision, 0 at a recall that is not reached. The mean of ``y`` is the average precision,
        unless boxes are tied. Without a reference box, or tied without a predicted one, the curve has no point.

    Raises:
        ValueError: as :func:`average_precision`.

    Example:
        >>> from grounding_rewards.metrics.answered_image import AnsweredImage
        >>> from grounding_rewards.metrics.ranking import rank_boxes
        >>> image = AnsweredImage("a", 100, 100, gt=[[0, 0, 10, 10], [50, 50, 60, 60]], gt_labels=["mass", "mass"],
        ...                     pred=[[0, 0, 10, 9]], pred_scores=[0.8])
        >>> curve = precision_recall_curve(rank_boxes([image]), name="mass")
        >>> curve.x[[0, 50, 51]], curve.y[[0, 50, 51]]
        (array([0.  , 0.5 , 0.51]), array([1., 1., 0.]))
        >>> precision_recall_curve(rank_boxes([image], ranking="tied"))[1:3]
        (array([0.5]), array([1.]))
    """
    boxes, t = ranked.of_label(None), ranked.threshold_index(iou_threshold)
    found, predicted, references = totals(boxes, t)
    if not references or (ranked.ranking == "tied" and not predicted):
        return Curve(name, np.zeros(0), np.zeros(0))
    if ranked.ranking == "tied":
        return Curve(name, ratio([found], [references]), ratio([found], [predicted]))
    x, y = np.linspace(0.0, 1.0, 101), np.zeros(101)
    for (recall,), (best,) in _precision_recall(boxes, t, np.ones((1, ranked.images))):
        y = np.append(best, 0.0)[np.searchsorted(recall, x, side="left")]
    return Curve(name, x, y)


def _chosen(ranked: RankedImages, iou_thresholds: Sequence[float] | None) -> list[int]:
    """Where the thresholds stand among those of the ranking."""
    if iou_thresholds is None:
        return list(range(len(ranked.iou_thresholds)))
    return [ranked.threshold_index(one) for one in iou_thresholds]


def _mean_ap(ranked: Sequence[RankedBoxes], chosen: Sequence[int], weights: Array, interpolation: str) -> Array:
    """mAP at each chosen threshold under each row of weights of the images, ``(thresholds, rows)``."""
    check_word("interpolation", interpolation, INTERPOLATIONS)
    levels = INTERPOLATIONS[interpolation]
    total, labels = np.zeros((len(chosen), len(weights))), np.zeros(len(weights))
    # A label that no image has is no part of the mean.
    for boxes in (one for one in ranked if one.references.any()):
        own, own_weights = _in_its_images(boxes, weights)
        measured = own_weights @ own.references > 0
        labels += measured
        for row, t in enumerate(chosen):
            total[row] += np.where(measured, _average_precision(own, t, own_weights, levels), 0.0)
    return ratio_or_nan(total, labels)


def _in_its_images(ranked: RankedBoxes, weights: Array) -> tuple[RankedBoxes, Array]:
    """Boxes and weights without the images that have no box of the label, which is most where there are many labels."""
    there = ranked.references > 0
    there[ranked.image] = True
    images = np.flatnonzero(there)
    number = np.cumsum(there) - 1
    return replace(ranked, image=number[ranked.image], references=ranked.references[images]), weights[:, images]


def _average_precision(ranked: RankedBoxes, t: int, weights: Array, levels: Array | None) -> Array:
    """AP of one label at one threshold, ``(rows,)``; 0 where there is no reference box."""
    curves = list(_precision_recall(ranked, t, weights))
    if not curves:
        return np.zeros(len(weights))
    parts = []
    for recall, precision in curves:
        if levels is None:
            # AP = Σ_k P̃(R_k) (R_k - R_k-1)
            parts.append((precision * np.diff(recall, axis=1, prepend=0.0)).sum(axis=1))
        else:
            # AP = 1/|L| Σ_{l ∈ L} P̃(l): the levels that each point is the first to reach
            parts.append((precision * newly_reached(recall, levels)).sum(axis=1) / len(levels))
    return np.concatenate(parts)


def _precision_recall(ranked: RankedBoxes, t: int, weights: Array) -> Iterator[tuple[Array, Array]]:
    """For each block of rows of weights, recall and interpolated precision at each point, ``(rows, points)``.

    Yields nothing where no box is right.
    """
    for block, hits, boxes in read_curve(ranked, t, weights, one_by_one=ranked.ranking == "coco"):
        yield ratio(hits, (block @ ranked.references)[:, None]), precision_envelope(ratio(hits, boxes))


def query_ap_sums(images: Sequence[AnsweredImage], *, label_matching: str = "ignore") -> Array:
    """The APs of each image's queries added up, and their number.

    Args:
        images: answered images.
        label_matching: ``"synonyms"`` lets another word for the finding answer the query; under ``"exact"`` and
            ``"ignore"`` names agree up to case and white space.

    Returns:
        ``(images, 2)``, for :func:`grounding_rewards.metrics.intervals.ratio_estimates`.

    Example:
        Two queries: of the mass the second box is right, of the nodule none is written.

        >>> image = AnsweredImage("a", 99, 99, gt=[[0, 0, 9, 9], [50, 50, 60, 60]], gt_labels=["mass", "nodule"],
        ...                     pred=[[20, 20, 30, 30], [0, 0, 9, 8]], pred_labels=["mass", "Mass"])
        >>> query_ap_sums([image])
        array([[0.5, 2. ]])
    """
    compared = _compared(images, label_matching)
    asked = [_asked(image, compared) for image in images]
    named = all(one is image for one, image in zip(asked, images, strict=True))
    ranked = rank_boxes(images if named else asked, (0.5,), ranking="emission", label_matching=compared)
    sums = np.zeros((len(images), 2))
    for boxes in ranked.by_label.values():
        order = np.lexsort((boxes.key, boxes.image))
        image = boxes.image[order]
        place = place_within(image)
        hit, counts = np.zeros((2, len(images), int(place.max(initial=-1)) + 1))
        hit[image, place], counts[image, place] = boxes.hit[0, order], boxes.counts[0, order]
        # P_k = Σ_{i ≤ k} hit_i / Σ_{i ≤ k} counts_i; AP = 1/m Σ_k P̃_k hit_k
        precision = ratio(hit.cumsum(axis=1), counts.cumsum(axis=1))
        # 0 where the image does not ask.
        sums[:, 0] += ratio(row_sums(precision_envelope(precision) * hit), boxes.references)
        sums[:, 1] += boxes.references > 0
    return sums


def _compared(images: Sequence[AnsweredImage], label_matching: str) -> str:
    names = {label_name(label, "exact") for image in images for label in image.gt_labels}
    if "" in names or names <= {UNNAMED}:
        return "ignore"
    return "exact" if label_matching == "ignore" else label_matching


def _asked(image: AnsweredImage, compared: str) -> AnsweredImage:
    """The image with the name of its findings, if they have one name, for boxes without any."""
    if all(image.pred_labels) or len({label_name(label, compared) for label in image.gt_labels}) != 1:
        return image
    return replace(image, pred_labels=tuple(label or image.gt_labels[0] for label in image.pred_labels))


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
        stated = not any(np.isnan(image.pred_scores).any() for image in images) and any(
            len(image.pred) for image in images
        )
        kinds = [("ap", label_matching)]
        if can_compare_labels(images):
            kinds.append(("map", "synonyms" if label_matching == "synonyms" else "exact"))
        return cls("score" if stated else "tied", tuple(kinds), tuple(iou_thresholds))

    @property
    def keys(self) -> dict[str, tuple[str, tuple[float, ...]]]:
        """Key → its kind, and the IoU thresholds that average precision is the mean over.

        Example:
            >>> list(RankingMetrics("tied", (("ap", "ignore"),), (0.3, 0.55)).keys)
            ['ap_30', 'ap_55', 'ap_50_95']
        """
        ends = {**{f"{100 * iou:g}": (iou,) for iou in self.iou_thresholds}, "50_95": COCO_THRESHOLDS}
        return {f"{kind}_{end}": (kind, ends[end]) for kind, _ in self.average_precisions for end in ends}

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
        for key, (kind, thresholds) in self.keys.items():
            name, over = _KINDS[kind]
            over += f", {together}" if kind == "ap" else ""
            shown = f"{thresholds[0]:g}" + (f" to {thresholds[-1]:g}" if len(thresholds) > 1 else "")
            found[key] = Metric(
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
        every = sorted({*iou_thresholds, *(one for _, several in self.keys.values() for one in several)})
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
            key: jackknifed_mean_average_precision(ranked[kind], several, interpolation=interpolation, **parts)
            for key, (kind, several) in self.keys.items()
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

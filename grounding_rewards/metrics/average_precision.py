"""Average precision over the films of an evaluation, at any IoU, per label and by size, with intervals.

With stated confidences on every box it is what pycocotools and faster-coco-eval give, which the tests hold to 1e-6.
Where an answer states none, COCO's ranking does not exist; the other rankings of
:mod:`grounding_rewards.metrics.ranking` then give a number of their own, which needs its own name: "AP at IoU
0.5, boxes tied" is precision times recall under all-point interpolation, and in the order of emission it is the area
under the curve of the first box of every film, the first two, and so on.

Whatever the ranking, AP does not charge what comes after the last right box, and mean AP does not charge boxes of a
label that no film has. Precision, F1 and the hallucination rate of :mod:`grounding_rewards.metrics.counts` do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.legal import check_word
from grounding_rewards.metrics.answered_film import AnsweredFilm
from grounding_rewards.metrics.bootstrap import RESAMPLES, Resampled, blocks, percentile_interval, resampling_counts
from grounding_rewards.metrics.cumulated import cumulated, curve_points, ratio, totals
from grounding_rewards.metrics.parts import Curve
from grounding_rewards.metrics.ranking import Area, RankedBoxes, group_numbers, rank_boxes, rank_one_label
from grounding_rewards.rewards.average_precision import INTERPOLATIONS, newly_reached, precision_envelope

Array = NDArray[np.float64]

#: The IoU thresholds of COCO's mAP, 0.5 to 0.95.
COCO_THRESHOLDS = tuple(np.linspace(0.5, 0.95, 10).tolist())


def average_precision(
    films: Sequence[AnsweredFilm],
    iou_threshold: float = 0.5,
    *,
    interpolation: str = "101",
    ranking: str = "score",
    label: str | None = None,
    labels: str = "exact",
    area: Area | None = None,
    max_detections: int = 100,
) -> float:
    """Average precision of one label, or of all boxes whatever their label.

    Args:
        films: with their answers.
        iou_threshold: from which a box is right, in (0, 1].
        interpolation: precision is averaged at ``"101"`` recall levels as COCO does, at ``"11"`` as VOC did until 2009,
            or over ``"all"`` recalls as VOC has done since, as in
            :class:`grounding_rewards.rewards.AveragePrecisionReward`.
        ranking: ``"score"``, by stated confidence; ``"emission"`` or ``"tied"``, see
            :mod:`grounding_rewards.metrics.ranking`.
        label: of the finding; None takes all boxes together and compares no labels.
        labels: how labels are compared, ``"exact"`` or ``"synonyms"``.
        area: only findings of this size.
        max_detections: the surest boxes of a film and label that are looked at.

    Returns:
        In [0, 1]; NaN without a reference box.

    Raises:
        ValueError: an argument is out of its range.

    Example:
        >>> film = AnsweredFilm("a", 100, 100, gt=[[0, 0, 10, 10]], gt_labels=["mass"],
        ...                     pred=[[50, 50, 60, 60], [0, 0, 10, 9]], pred_scores=[0.3, 0.8])
        >>> average_precision([film])
        1.0
        >>> average_precision([film], ranking="tied"), average_precision([film], 0.95)
        (0.5, 0.0)

    Source: Lin et al., Microsoft COCO, ECCV 2014; Everingham et al., The PASCAL VOC Challenge, IJCV 2010 and 2015.
    """
    ranked = rank_one_label(
        films,
        (iou_threshold,),
        ranking=ranking,
        label=label,
        labels=labels,
        area=area,
        max_detections=max_detections,
    )
    return float(_mean_ap([ranked], np.ones((1, len(films))), interpolation)[0, 0])


def mean_average_precision(
    films: Sequence[AnsweredFilm],
    iou_thresholds: Sequence[float] = COCO_THRESHOLDS,
    *,
    interpolation: str = "101",
    ranking: str = "score",
    labels: str = "exact",
    area: Area | None = None,
    max_detections: int = 100,
) -> float:
    """Average precision, averaged over the labels that some film has and over the IoU thresholds.

    Args:
        films: with their answers.
        iou_thresholds: each in (0, 1].
        interpolation: as for :func:`average_precision`.
        ranking: as for :func:`average_precision`.
        labels: ``"exact"`` or ``"synonyms"``; ``"ignore"`` takes all boxes together.
        area: only findings of this size.
        max_detections: the surest boxes of a film and label that are looked at.

    Returns:
        In [0, 1]; NaN without a reference box.

    Raises:
        ValueError: an argument is out of its range, or a reference box has no label although labels are compared.

    Example:
        One of two labels is found; 0.9 is the IoU.

        >>> film = AnsweredFilm("a", 100, 100, gt=[[0, 0, 10, 10], [50, 50, 60, 60]], gt_labels=["mass", "effusion"],
        ...                     pred=[[0, 0, 10, 9]], pred_labels=["Mass"], pred_scores=[0.8])
        >>> mean_average_precision([film], [0.5]), mean_average_precision([film], [0.5, 0.95])
        (0.5, 0.25)

    Source: https://cocodataset.org/#detection-eval.
    """
    ranked = rank_boxes(films, iou_thresholds, ranking=ranking, labels=labels, area=area, max_detections=max_detections)
    by_threshold = _mean_ap(list(ranked.values()), np.ones((1, len(films))), interpolation)
    return float(by_threshold.mean(axis=0)[0])


def average_precision_estimate(
    films: Sequence[AnsweredFilm],
    iou_thresholds: Sequence[float] = COCO_THRESHOLDS,
    *,
    interpolation: str = "101",
    ranking: str = "score",
    label: str | None = None,
    labels: str = "exact",
    area: Area | None = None,
    max_detections: int = 100,
    groups: Sequence[Any] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Resampled:
    """:func:`mean_average_precision`, or that of one label, on the films and on resamplings of them.

    Boxes are matched once. A label that a resampling has no reference box of is left out of its mean. Equal stated
    confidences, which COCO takes in the order of the films, keep that order, copies of a box one after the other.

    Args:
        films: with their answers.
        iou_thresholds: each in (0, 1]; the result is the mean over them.
        interpolation: as for :func:`average_precision`.
        ranking: as for :func:`average_precision`.
        label: of the finding; None takes the mean over labels.
        labels: ``"exact"`` or ``"synonyms"``; ``"ignore"`` takes all boxes together.
        area: only findings of this size.
        max_detections: the surest boxes of a film and label that are looked at.
        groups: the patient of each film, where known; the films of one patient are then drawn together.
        resamples: number of bootstrap resamples.
        seed: of the resampling.

    Raises:
        ValueError: as :func:`mean_average_precision`, or there is not one group per film.

    Example:
        >>> hit = AnsweredFilm("a", 100, 100, gt=[[0, 0, 10, 10]], gt_labels=["mass"], pred=[[0, 0, 10, 10]],
        ...                    pred_labels=["mass"], pred_scores=[0.9])
        >>> miss = AnsweredFilm("b", 100, 100, gt=[[0, 0, 10, 10]], gt_labels=["mass"])
        >>> average_precision_estimate([hit, miss] * 10, [0.5], interpolation="all").estimate
        Estimate(value=0.5, low=0.3, high=0.7)

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, §13.
    """
    common: dict[str, Any] = {"ranking": ranking, "labels": labels, "area": area, "max_detections": max_detections}
    if label is None:
        ranked = list(rank_boxes(films, iou_thresholds, **common).values())
    else:
        ranked = [rank_one_label(films, iou_thresholds, label=label, **common)]
    units, weights = _units_and_weights(groups, len(films), resamples, seed)
    return _mean_of_thresholds(_resampled(ranked, interpolation, units, weights))


def average_precision_estimates(
    films: Sequence[AnsweredFilm],
    iou_thresholds: Mapping[str, Sequence[float]],
    *,
    interpolation: str = "101",
    ranking: str = "score",
    labels: str = "exact",
    area: Area | None = None,
    max_detections: int = 100,
    groups: Sequence[Any] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Resampled]:
    """:func:`average_precision_estimate` of several sets of IoU thresholds, from one matching and one resampling.

    Args:
        films: with their answers.
        iou_thresholds: by name the thresholds that a figure is the mean over.
        interpolation: as for :func:`average_precision`.
        ranking: as for :func:`average_precision`.
        labels: ``"exact"`` or ``"synonyms"``; ``"ignore"`` takes all boxes together.
        area: only findings of this size.
        max_detections: the surest boxes of a film and label that are looked at.
        groups: the patient of each film, where known.
        resamples: number of bootstrap resamples.
        seed: of the resampling.

    Returns:
        By the same names what :func:`average_precision_estimate` gives for each set.

    Example:
        >>> film = AnsweredFilm("a", 100, 100, gt=[[0, 0, 10, 10]], gt_labels=["mass"], pred=[[0, 0, 10, 7]],
        ...                     pred_labels=["mass"], pred_scores=[0.8])
        >>> found = average_precision_estimates([film], {"0.5": [0.5], "0.5 and 0.75": [0.5, 0.75]}, resamples=10)
        >>> {name: one.value for name, one in found.items()}
        {'0.5': 1.0, '0.5 and 0.75': 0.5}
    """
    every = sorted({threshold for several in iou_thresholds.values() for threshold in several})
    ranked = rank_boxes(films, every, ranking=ranking, labels=labels, area=area, max_detections=max_detections)
    units, weights = _units_and_weights(groups, len(films), resamples, seed)
    by_threshold = _resampled(list(ranked.values()), interpolation, units, weights)
    return {
        name: _mean_of_thresholds([by_threshold[every.index(threshold)] for threshold in several])
        for name, several in iou_thresholds.items()
    }


def average_precision_by_label(
    films: Sequence[AnsweredFilm],
    iou_thresholds: Sequence[float] = COCO_THRESHOLDS,
    *,
    interpolation: str = "101",
    ranking: str = "score",
    labels: str = "exact",
    area: Area | None = None,
    max_detections: int = 100,
    groups: Sequence[Any] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Resampled]:
    """:func:`average_precision_estimate` of every label that some film has, in the order of the alphabet.

    Example:
        >>> film = AnsweredFilm("a", 100, 100, gt=[[0, 0, 10, 10], [50, 50, 60, 60]], gt_labels=["mass", "effusion"],
        ...                     pred=[[0, 0, 10, 9]], pred_labels=["Mass"], pred_scores=[0.8])
        >>> {name: found.value for name, found in average_precision_by_label([film], [0.5], resamples=10).items()}
        {'effusion': 0.0, 'mass': 1.0}
    """
    ranked = rank_boxes(films, iou_thresholds, ranking=ranking, labels=labels, area=area, max_detections=max_detections)
    units, weights = _units_and_weights(groups, len(films), resamples, seed)
    return {
        name: _mean_of_thresholds(_resampled([boxes], interpolation, units, weights))
        for name, boxes in ranked.items()
        if boxes.references.any()
    }


def precision_recall_curve(
    films: Sequence[AnsweredFilm],
    iou_threshold: float = 0.5,
    *,
    ranking: str = "score",
    label: str | None = None,
    labels: str = "exact",
    area: Area | None = None,
    max_detections: int = 100,
    name: str = "",
    groups: Sequence[Any] | None = None,
    resamples: int = 0,
    seed: int = 0,
) -> Curve:
    """Interpolated precision at 101 recall levels, as COCO reads it; with ``"tied"`` the one point that there is.

    Args:
        films: with their answers.
        iou_threshold: from which a box is right, in (0, 1].
        ranking: as for :func:`average_precision`.
        label: of the finding; None takes all boxes together.
        labels: how labels are compared, ``"exact"`` or ``"synonyms"``.
        area: only findings of this size.
        max_detections: the surest boxes of a film and label that are looked at.
        name: of the curve.
        groups: the patient of each film, where known.
        resamples: number of bootstrap resamples for a 95 % band, pointwise; no band without any.
        seed: of the resampling.

    Returns:
        ``x`` recall, ``y`` precision, 0 at a recall that is not reached. The mean of ``y`` is the average precision,
        unless boxes are tied. Without a reference box, or tied without a predicted one, the curve has no point.

    Raises:
        ValueError: as :func:`average_precision`.

    Example:
        >>> film = AnsweredFilm("a", 100, 100, gt=[[0, 0, 10, 10], [50, 50, 60, 60]], gt_labels=["mass", "mass"],
        ...                     pred=[[0, 0, 10, 9]], pred_scores=[0.8])
        >>> curve = precision_recall_curve([film], name="mass")
        >>> curve.x[[0, 50, 51]], curve.y[[0, 50, 51]]
        (array([0.  , 0.5 , 0.51]), array([1., 1., 0.]))
        >>> precision_recall_curve([film], ranking="tied")[1:3]
        (array([0.5]), array([1.]))
    """
    ranked = rank_one_label(
        films,
        (iou_threshold,),
        ranking=ranking,
        label=label,
        labels=labels,
        area=area,
        max_detections=max_detections,
    )
    read = _at_operating_point if ranking == "tied" else _at_levels
    x, (y,) = read(ranked, np.ones((1, len(films))))
    kept = ~np.isnan(y)
    if not resamples:
        return Curve(name, x[kept], y[kept])
    units, weights = _units_and_weights(groups, len(films), resamples, seed)
    _, resampled = read(ranked.by_group(units), weights)
    band = np.array([percentile_interval(column) for column in resampled.T])[kept].reshape(-1, 2)
    return Curve(name, x[kept], y[kept], band[:, 0], band[:, 1])


def _units_and_weights(
    groups: Sequence[Any] | None, films: int, resamples: int, seed: int
) -> tuple[NDArray[np.int64], Array]:
    """The group of each film, and how often each group was drawn, ``(resamples, groups)``."""
    units = group_numbers(groups, films)
    return units, resampling_counts(int(units.max(initial=-1)) + 1, resamples=resamples, seed=seed)


def _resampled(
    ranked: Sequence[RankedBoxes], interpolation: str, units: NDArray[np.int64], weights: Array
) -> list[Resampled]:
    """mAP at each threshold."""
    values = _mean_ap(ranked, np.ones((1, len(units))), interpolation)[:, 0]
    drawn = _mean_ap([boxes.by_group(units) for boxes in ranked], weights, interpolation)
    return [Resampled(float(value), one) for value, one in zip(values, drawn, strict=True)]


def _mean_of_thresholds(found: Sequence[Resampled]) -> Resampled:
    # Whether there is something to measure does not depend on the threshold.
    return Resampled(
        float(np.mean([one.value for one in found])) if found else np.nan,
        np.mean([one.resamples for one in found], axis=0),
    )


def _mean_ap(ranked: Sequence[RankedBoxes], weights: Array, interpolation: str) -> Array:
    """mAP at each threshold under each row of weights of the films, ``(thresholds, rows)``."""
    check_word("interpolation", interpolation, INTERPOLATIONS)
    levels = INTERPOLATIONS[interpolation]
    thresholds = len(ranked[0].hit) if ranked else 1
    total, labels = np.zeros((thresholds, len(weights))), np.zeros(len(weights))
    # A label that no film has is no part of the mean.
    for boxes in (one for one in ranked if one.references.any()):
        own, own_weights = _in_its_films(boxes, weights)
        measured = own_weights @ own.references > 0
        labels += measured
        for t in range(thresholds):
            total[t] += np.where(measured, _average_precision(own, t, own_weights, levels), 0.0)
    return np.divide(total, labels, out=np.full(total.shape, np.nan), where=labels > 0)


def _in_its_films(ranked: RankedBoxes, weights: Array) -> tuple[RankedBoxes, Array]:
    """The same without the films that have no box of the label; most have none where there are many labels."""
    there = ranked.references > 0
    there[ranked.film] = True
    films = np.flatnonzero(there)
    number = np.cumsum(there) - 1
    return replace(ranked, film=number[ranked.film], references=ranked.references[films]), weights[:, films]


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
    """Recall and interpolated precision at each point, ``(rows, points)``, of a block of rows of weights after another.

    Nothing where no box is right.
    """
    points = curve_points(ranked, t, one_by_one=ranked.ranking == "score")
    if not len(points.ends):
        return
    for block in blocks(weights, int(points.ends[-1])):
        hits, boxes = cumulated(points, block)
        yield ratio(hits, (block @ ranked.references)[:, None]), precision_envelope(ratio(hits, boxes))


def _at_levels(ranked: RankedBoxes, weights: Array) -> tuple[Array, Array]:
    """Recall levels (101,) and the interpolated precision at each, ``(rows, 101)``; NaN without references."""
    levels = np.linspace(0.0, 1.0, 101)
    read = [
        np.append(best, 0.0)[np.searchsorted(recall, levels, side="left")]
        for block in _precision_recall(ranked, 0, weights)
        for recall, best in zip(*block, strict=True)
    ]
    y = np.array(read) if read else np.zeros((len(weights), len(levels)))
    return levels, np.where((weights @ ranked.references > 0)[:, None], y, np.nan)


def _at_operating_point(ranked: RankedBoxes, weights: Array) -> tuple[Array, Array]:
    """Recall (1,) under the first row of weights, and precision, ``(rows, 1)``; NaN where it is undefined."""
    hits, boxes, references = (weights @ totals(ranked, 0).T).T
    precision = np.where((boxes > 0) & (references > 0), ratio(hits, boxes), np.nan)
    return ratio(hits, references)[:1], precision[:, None]

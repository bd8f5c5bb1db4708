"""Reading a curve from ranked boxes: how many boxes, and how many right ones, come before each of its points.

FROC: the share of findings that is found against false boxes per image, radiology's way to measure a detector.

Sensitivity is the share of the reference boxes of all images that a box is right about; the other axis is the number of
false boxes over the number of all images, normal ones among them. Boxes are matched as for average precision
(:mod:`grounding_rewards.metrics.ranking`). The sensitivity at a rate is the best one of a threshold on the confidence
that gives at most that many false boxes per image: no line is drawn between thresholds, and all boxes of equal
confidence come together.

ROC: images with a finding against images without, by how sure an answer is that there is any; its area alone.

Where answers state no confidence, there is one operating point, ``ranking="tied"``. ``ranking="emission"`` gives a
curve: the first box of every image, the first two, and so on. It is no trade-off that the model was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.common.numeric import Array, ratio, ratio_or_nan
from grounding_rewards.metrics.answered_image import AnsweredImage, ImageBatch
from grounding_rewards.metrics.estimates import Metric
from grounding_rewards.metrics.intervals import (
    Jackknifed,
    Parts,
    group_numbers,
)
from grounding_rewards.metrics.ranking import (
    Indices,
    RankedBoxes,
    RankedImages,
)


class Curve(NamedTuple):
    """A line of a plot: `x` and `y` of equal length, `x` not falling; `low` and `high` bound `y` where known.

    A curve of one point is an operating point: boxes that are all tied have no curve.
    """

    name: str
    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None


# Cells of the arrays of weights by boxes that are worked on at once.
_WEIGHT_CELLS = 1 << 20


def read_curve(
    ranked: RankedBoxes, threshold: int, weights: Array, *, one_by_one: bool = False
) -> Iterator[tuple[Array, Array, Array]]:
    """How many boxes are right, and how many count, up to each point of a curve, where each image has a weight.

    The points are the ends of groups of equal keys that have a right box. After a group without one, recall is as
    before and more boxes are false, so no best value is found there.

    Args:
        ranked: boxes of one label.
        threshold: index of the IoU threshold.
        weights: ``(rows, images)``.
        one_by_one: whether boxes of equal stated confidence are groups of their own.

    Yields:
        Some rows of the weights, and of these the right boxes and those that count, ``(rows, points)``; nothing where
        no box is right.

    Example:
        >>> hit = np.array([[True, False, True, False]])
        >>> ranked = RankedBoxes(np.zeros(4, int), np.array([-0.9, -0.8, -0.8, np.inf]), hit, hit | True, np.array([2]))
        >>> [(hits.tolist(), boxes.tolist()) for _, hits, boxes in read_curve(ranked, 0, np.ones((1, 1)))]
        [([[1.0, 2.0]], [[1.0, 3.0]])]
    """
    from scipy.sparse import csr_array

    order = np.argsort(ranked.key, kind="stable")
    key, image = ranked.key[order], ranked.image[order]
    hit, counts = (mask[threshold, order].astype(np.float64) for mask in (ranked.hit, ranked.counts))
    if not hit.any():
        return
    is_end = np.append(key[1:] != key[:-1], True)
    if one_by_one:
        is_end |= np.isfinite(key)
    ends = np.flatnonzero(is_end) + 1
    ends = ends[np.add.reduceat(hit, np.append(0, ends[:-1])) > 0]
    last = int(ends[-1])
    # What each image adds at each point, which is mostly nothing, times how much it weighs.
    places = np.searchsorted(ends, np.arange(last), side="right"), image[:last]
    added = [csr_array((values[:last], places), shape=(len(ends), weights.shape[1])) for values in (hit, counts)]
    rows = max(1, _WEIGHT_CELLS // last)
    for block in (weights[start : start + rows] for start in range(0, len(weights), rows)):
        # By rows, in which sums along a curve are as exact as they are fast.
        hits, boxes = (np.ascontiguousarray((one @ block.T).cumsum(axis=0).T) for one in added)
        yield block, hits, boxes


def totals(ranked: RankedBoxes, threshold: int) -> tuple[int, int, int]:
    """Right boxes, boxes that count and reference boxes of all images.

    Example:
        >>> hit = np.array([[True, False]])
        >>> totals(RankedBoxes(np.array([0, 1]), np.zeros(2), hit, hit | True, np.array([1, 0])), 0)
        (1, 2, 1)
    """
    return int(ranked.hit[threshold].sum()), int(ranked.counts[threshold].sum()), int(ranked.references.sum())


#: False boxes per image at which sensitivity is read; the mean of the seven is the FROC score.
FROC_RATES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


class Sensitivities(NamedTuple):
    """Sensitivity at fixed numbers of false boxes per image, and the mean over them, the FROC score."""

    at_rates: tuple[Jackknifed, ...]
    mean: Jackknifed


def sensitivity_at_false_positives(
    ranked: RankedImages,
    rates: Sequence[float] = FROC_RATES,
    *,
    iou_threshold: float = 0.5,
    groups: Sequence[Any] | None = None,
    seed: int = 0,
) -> Sensitivities:
    """The best sensitivity with at most so many false boxes per image.

    Args:
        ranked: of :func:`grounding_rewards.metrics.ranking.rank_boxes`, by score or in the order of emission.
        rates: false boxes per image.
        iou_threshold: from which a box is right, one of ``ranked.iou_thresholds``.
        groups: the patient of each image, where known; the images of one patient are then left out together.
        seed: of what is left out.

    Returns:
        Metrics in [0, 1]; NaN without a reference box.

    Raises:
        ValueError: an argument is out of its range; boxes that are all tied have no sensitivity at another rate.

    Example:
        One finding of two is found at once, the other after a false box on two images.

        >>> from grounding_rewards.metrics.answered_image import AnsweredImage
        >>> from grounding_rewards.metrics.ranking import rank_boxes
        >>> image = AnsweredImage("a", 100, 100, gt=[[0, 0, 10, 10], [50, 50, 60, 60]], gt_labels=["mass"] * 2,
        ...                     pred=[[0, 0, 10, 9], [20, 20, 30, 30], [50, 50, 60, 60]], pred_scores=[0.9, 0.8, 0.7])
        >>> ranked = rank_boxes([image, AnsweredImage("b", 100, 100)])
        >>> found = sensitivity_at_false_positives(ranked, [0.25, 0.5])
        >>> [one.value for one in found.at_rates], found.mean.value
        ([0.5, 1.0], 0.75)

    Source: Setio et al., LUNA16, Medical Image Analysis 2017, for the seven rates and their mean; Bunch et al., A
    free-response approach to the measurement and characterization of radiographic observer performance, 1977.
    """
    boxes, t = ranked.of_label(None), ranked.threshold_index(iou_threshold)
    parts = Parts.of(groups, ranked.images, seed)
    weights = np.concatenate([np.ones((1, parts.parts)), parts.without_each])
    of_part = np.bincount(parts.of_image, minlength=parts.parts)
    found = _sensitivities(boxes.by_group(parts.of_image), t, of_part, weights, np.asarray(rates))
    *at_rates, mean = (
        Jackknifed(float(column[0]), column[1:], parts.units) for column in (*found.T, found.mean(axis=1))
    )
    return Sensitivities(tuple(at_rates), mean)


def froc_curve(ranked: RankedImages, iou_threshold: float = 0.5, *, name: str = "") -> Curve:
    """Sensitivity against false boxes per image: a staircase, which rises at its points; one point for tied boxes.

    Args:
        ranked: of :func:`grounding_rewards.metrics.ranking.rank_boxes`.
        iou_threshold: from which a box is right, one of ``ranked.iou_thresholds``.
        name: of the curve.

    Returns:
        ``x`` false boxes per image, ``y`` sensitivity; the last point takes in all boxes. Without a reference box the
        curve has no point.

    Raises:
        ValueError: an argument is out of its range.

    Example:
        >>> from grounding_rewards.metrics.answered_image import AnsweredImage
        >>> from grounding_rewards.metrics.ranking import rank_boxes
        >>> image = AnsweredImage("a", 100, 100, gt=[[0, 0, 10, 10], [50, 50, 60, 60]], gt_labels=["mass"] * 2,
        ...                     pred=[[0, 0, 10, 9], [20, 20, 30, 30], [50, 50, 60, 60]], pred_scores=[0.9, 0.8, 0.7])
        >>> froc_curve(rank_boxes([image]), name="mass")[:3]
        ('mass', array([0., 1., 1.]), array([0.5, 1. , 1. ]))
        >>> froc_curve(rank_boxes([image], ranking="tied"))[1:3]
        (array([1.]), array([1.]))
    """
    boxes, t = ranked.of_label(None), ranked.threshold_index(iou_threshold)
    if not boxes.references.any():
        return Curve(name, np.zeros(0), np.zeros(0))
    found, predicted, references = totals(boxes, t)
    x = y = np.zeros(0)
    for _, hits, counted in read_curve(boxes, t, np.ones((1, ranked.images))):
        x, y = (counted[0] - hits[0]) / ranked.images, hits[0] / references
    # And with all boxes.
    x, y = np.append(x, (predicted - found) / ranked.images), np.append(y, found / references)
    if ranked.ranking == "tied":
        x, y = x[-1:], y[-1:]
    return Curve(name, x, y)


def _sensitivities(ranked: RankedBoxes, t: int, images: Indices, weights: Array, rates: Array) -> Array:
    """The best sensitivity at each rate under each row of weights of the groups, ``(rows, rates)``.

    Args:
        ranked: boxes by group.
        t: index of the IoU threshold.
        images: ``(groups,)`` number of images.
        weights: ``(rows, groups)``.
        rates: ``(rates,)``.
    """
    best = [
        np.append(0.0, found)[np.searchsorted(false, rates, side="right")]
        for block, hits, boxes in read_curve(ranked, t, weights)
        for false, found in zip(ratio(boxes - hits, (block @ images)[:, None]), hits, strict=True)
    ]
    found = np.array(best) if best else np.zeros((len(weights), len(rates)))
    references = (weights @ ranked.references)[:, None]
    return np.where(references > 0, ratio(found, references), np.nan)


#: In the table of metrics.
IMAGE_AUROC = {
    "auroc": Metric(
        "AUROC of images",
        "how often an image with a finding ranks above one without, ties counting half: by the largest stated "
        "confidence of its boxes; where any box has none, by the share of its answers, sampled ones among them, with a "
        "box",
    )
}


def image_auroc(images: Sequence[AnsweredImage], *, groups: Sequence[Any] | None = None, seed: int = 0) -> Jackknifed:
    """Area under the ROC curve of images with a finding against images without one.

    Args:
        images: with their answers. Where every box states a confidence, an image's score is the largest one, and an
            image without a box comes last; elsewhere it is the share of its answers with a box, the judged one and
            sampled ones.
        groups: the patient of each image, where known; the images of one patient are then left out together.
        seed: of what is left out.

    Returns:
        In [0, 1]; NaN where all images have a finding or none has, and where neither confidences are stated nor
        answers were sampled for every image: yes and no are no ranking.

    Example:
        The normal image ranks below one of two images with a finding.

        >>> found = {"width": 99, "height": 99, "gt": [[0, 0, 9, 9]], "gt_labels": ["mass"]}
        >>> sure = AnsweredImage("a", **found, pred=[[0, 0, 9, 9], [20, 20, 30, 30]], pred_scores=[0.3, 0.9])
        >>> normal = AnsweredImage("c", 99, 99, pred=[[0, 0, 9, 9]], pred_scores=[0.4])
        >>> image_auroc([sure, AnsweredImage("b", **found), normal]).value
        0.5

    Source: Hanley and McNeil, The Meaning and Use of the Area under a ROC Curve, Radiology 1982.
    """
    score, positive = _image_scores(images), np.array([not image.is_normal for image in images], dtype=bool)
    parts = Parts.of(groups, len(images), seed)
    value, *left_out = (
        _area_under_roc(score[kept & positive], score[kept & ~positive])
        for kept in (parts.of_image != part for part in range(-1, parts.parts))
    )
    # Of patients with a finding, or without: the fewer of them bound what is known.
    units = group_numbers(groups, len(images))
    fewest = min(len(np.unique(units[side])) for side in (positive, ~positive))
    return Jackknifed(value, np.array(left_out), fewest)


def _image_scores(images: Sequence[AnsweredImage]) -> Array:
    """How sure each answer is that there is a finding, ``(images,)``; NaN where that is not known."""
    batch = ImageBatch.of(images)
    if batch.states_confidences:
        return np.array([image.pred_scores.max(initial=-np.inf) for image in batch.answers])
    if not all(image.sampled_boxes for image in images):
        return np.full(len(images), np.nan)
    counts = ((len(image.pred), *image.sampled_boxes) for image in batch.answers)
    return np.array([sum(n > 0 for n in several) / len(several) for several in counts])


def _area_under_roc(positive: Array, negative: Array) -> float:
    if np.isnan(positive).any() or np.isnan(negative).any():
        return np.nan
    negative = np.sort(negative)
    # Σ over pairs of (positive above negative) + (equal) / 2
    above = sum(np.searchsorted(negative, positive, side).sum() / 2 for side in ("left", "right"))
    return float(ratio_or_nan(above, len(positive) * len(negative)))

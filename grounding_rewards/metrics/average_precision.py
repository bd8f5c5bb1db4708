"""Average precision, FROC and ROC over the images of an evaluation: all that is read from a ranking of boxes.

**Matching** is COCO's. Of one image and label the first ``max_detections`` boxes of the ranking are looked at; each
takes the free reference box that it overlaps most, if the IoU reaches the threshold. A box that takes none and that an
ignored region covers (:mod:`grounding_rewards.matching`) does not count. Broken boxes, which the parser rejects, and
invalid ones overlap nothing, as in the rewards. pycocotools works on x, y, width, height; where that loses the last
bit of a coordinate, an IoU that equals a threshold may fall on the other side of it.

**Rankings.** COCO knows only confidences; models that write boxes as text often state none:

* ``ranking="score"`` ranks by stated confidence. Boxes of equal confidence are one group, as models write the same one
  nearly everywhere; boxes without one come after all others, as one group.
* ``ranking="coco"`` is COCO's: boxes of equal confidence are taken one by one, in the order of the images. Shuffled,
  the same answers then have another AP. The tests compare it with pycocotools and faster-coco-eval to 1e-6.
* ``ranking="emission"`` ranks by the order in which the answer names the boxes: the first boxes of all images are one
  group, the second boxes the next. It is no trade-off that the model was asked for.
* ``ranking="tied"`` takes all boxes as one group, which is one point on a curve: AP is precision times recall. Those
  that overlap a reference box most choose first, as in :func:`grounding_rewards.matching.greedy_match`.

A curve is read at the end of each group, so that the order of the images matters under ``"coco"`` alone.
:class:`RankingMetrics` chooses for an evaluation: confidences where every box states one, else all boxes are tied, and
the heading says so. Under any ranking AP does not charge boxes after the last right one, and mean AP does not charge
boxes of a label that no image has; precision, F1 and the hallucination rate do.

**FROC**: the share of the reference boxes of all images that a box is right about, against false boxes per image,
normal images included. The sensitivity at a rate is the best one of a threshold on the confidence that gives at most
that many false boxes; no line is drawn between thresholds.

**ROC**: images with a finding against images without, by how sure an answer is that there is any; its area alone.

**Per-query AP** (:func:`query_ap_sums`), by which models of chest radiographs that state no confidences are compared:
a query is one finding that is present on one image; the boxes under its name are ranked in the order of writing, and
the all-point AP at IoU 0.5 is averaged over queries. A query without a box earns 0. Normal images have no query, so
that inventions on them cost nothing. A box without a name answers the query of an image that has findings of one name
only. Where the dataset names no findings, each image with a finding is one query.

Sources: Lin et al., Microsoft COCO, ECCV 2014, and https://cocodataset.org/#detection-eval; Everingham et al., The
PASCAL VOC Challenge, IJCV 2010 and 2015; Setio et al., LUNA16, Medical Image Analysis 2017, for the rates of FROC;
Bunch et al., A free-response approach to the measurement and characterization of radiographic observer performance,
1977; Hanley and McNeil, The Meaning and Use of the Area under a ROC Curve, Radiology 1982; Gundersen et al.,
RadVLM-GRPO, arXiv 2512.10691, and Deperrois et al., RadVLM, arXiv 2502.03333.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import BoxBatch, positions
from grounding_rewards.common.numeric import Array, ratio, ratio_or_nan, row_sums
from grounding_rewards.common.validation import check_word
from grounding_rewards.labels import are_synonyms, normalize_label
from grounding_rewards.matching import LABEL_MATCHING, LabelCodes, covered_share, is_ignored, text_key
from grounding_rewards.metrics.intervals import Jackknifed, Metric, Parts, group_numbers, jackknife
from grounding_rewards.metrics.prediction import UNNAMED, Prediction, PredictionBatch
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.rewards.average_precision import INTERPOLATIONS, newly_reached, precision_envelope

Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

RANKINGS = ("score", "coco", "emission", "tied")

#: The IoU thresholds of COCO's mAP, 0.5 to 0.95.
COCO_THRESHOLDS = tuple(np.linspace(0.5, 0.95, 10).tolist())

# Cells of an array that is worked on at once.
_CELLS = 1 << 20

# pycocotools lowers a threshold of 1 to this.
_ALMOST_ONE = 1 - 1e-10


@dataclass(frozen=True, eq=False)
class RankedBoxes:
    """The predicted boxes of one label, image after image.

    Attributes:
        image: ``(n,)`` the image of each box, an index.
        key: ``(n,)`` place in the ranking, lowest first; infinite for a box without a stated confidence.
        hit: ``(thresholds, n)`` whether the box is right.
        counts: ``(thresholds, n)`` whether the box counts at all.
        references: ``(images,)`` number of reference boxes.
        ranking: what the key is made from.
    """

    image: Indices
    key: Array
    hit: Mask
    counts: Mask
    references: Indices
    ranking: str = "score"

    def by_group(self, group: Indices) -> RankedBoxes:
        """The same boxes, counted by group of images, for instance by patient, instead of by image.

        Args:
            group: ``(images,)`` a number from 0 for each image.
        """
        references = np.bincount(group, weights=self.references).astype(np.int64)
        return replace(self, image=group[self.image], references=references)


@dataclass(frozen=True, eq=False)
class RankedImages:
    """The predicted boxes of all images, ranked and matched once.

    Attributes:
        by_label: the boxes of each label, in the order of the alphabet, labels that are only predicted among them;
            under ``label_matching="ignore"`` all boxes together, under an empty name.
        images: number of images.
        iou_thresholds: at which boxes were matched.
        ranking: how boxes were ranked.
        label_matching: how boxes were put under labels; ``"ignore"`` where all are together.
    """

    by_label: Mapping[str, RankedBoxes]
    images: int
    iou_thresholds: tuple[float, ...]
    ranking: str
    label_matching: str

    def of_label(self, label: str | None) -> RankedBoxes:
        """The boxes of one label; without a label, all boxes of a ranking that compared none.

        Raises:
            KeyError: no box has the label, or labels were compared and ``label`` is None.

        Example:
            >>> image = Prediction("a", 100, 100, gt=[[0, 0, 10, 10]], gt_labels=["mass"])
            >>> rank_boxes([image], label_matching="exact").of_label("Mass").references
            array([1])
        """
        return self.by_label[label_name(label, self.label_matching)]

    def only(self, label: str | None) -> RankedImages:
        """The ranking without the boxes of other labels than this one, see :meth:`of_label`."""
        return replace(self, by_label={"": self.of_label(label)})

    def threshold_index(self, iou_threshold: float) -> int:
        """Index of an IoU threshold among those at which boxes were matched.

        Raises:
            ValueError: it is not among them.

        Example:
            >>> rank_boxes([], [0.3, 0.5]).threshold_index(0.5)
            1
        """
        for index, iou in enumerate(self.iou_thresholds):
            # Of COCO's, one is 0.8999999999999999.
            if abs(iou - iou_threshold) < 1e-9:
                return index
        raise ValueError(
            f"Expected one of {[round(iou, 9) for iou in self.iou_thresholds]} for the IoU threshold, got "
            f"{iou_threshold!r}. Name it in rank_boxes(images, iou_thresholds)."
        )


def rank_boxes(
    images: Sequence[Prediction],
    iou_thresholds: Sequence[float] = COCO_THRESHOLDS,
    *,
    ranking: str = "score",
    label_matching: str = "ignore",
    together: bool = False,
    max_detections: int = 100,
) -> RankedImages:
    """Rank the predicted boxes of each label and say which are right.

    Args:
        images: with their answers.
        iou_thresholds: each in (0, 1].
        ranking: ``"score"``, ``"coco"``, ``"emission"`` or ``"tied"``.
        label_matching: ``"ignore"``, all boxes together; ``"exact"``, by label, up to case and white space;
            ``"synonyms"``, by the names of the shared vocabulary, where left and right of one finding never match.
            Under the last two a predicted box without a label is of no label and does not occur.
        together: rank the boxes of all labels together, as under ``"ignore"``, each right only under the finding's
            label by ``label_matching``; a predicted box without a label is a false one.
        max_detections: the highest-scoring boxes of an image and label that are looked at; under ``"emission"`` and
            ``"tied"`` those named first.

    Raises:
        ValueError: an argument is out of its range, or a reference box has no label although labels are compared.

    Example:
        >>> image = Prediction("a", 100, 100, gt=[[0, 0, 10, 10]], gt_labels=["mass"],
        ...                     pred=[[50, 50, 60, 60], [0, 0, 10, 9]], pred_scores=[0.3, 0.8])
        >>> ranked = rank_boxes([image], [0.5]).of_label(None)
        >>> ranked.key, ranked.hit, ranked.references
        (array([-0.8, -0.3]), array([[ True, False]]), array([1]))
    """
    if not len(iou_thresholds) or not all(0 < threshold <= 1 for threshold in iou_thresholds):
        raise ValueError(
            f"Expected numbers in (0, 1] for the IoU thresholds, got {list(iou_thresholds)!r}. The usual value is 0.5."
        )
    check_word("ranking", ranking, RANKINGS)
    check_word("label_matching", label_matching, LABEL_MATCHING)
    batch = PredictionBatch.of(images)
    pred, gt = batch.pred, batch.gt
    group_by = "ignore" if together else label_matching
    names, pred_label, gt_label = _number_labels(batch.pred_labels, batch.gt_labels, group_by)

    # Boxes are matched per image and label; `entry` is image * labels + label.
    image_numbers = np.arange(len(batch))
    pred_image, gt_image = np.repeat(image_numbers, pred.counts), np.repeat(image_numbers, gt.counts)
    pred_entry, gt_entry = pred_image * len(names) + pred_label, gt_image * len(names) + gt_label
    # Without confidences all are equal, and the boxes of an entry stay in the order of writing.
    uncertainty = np.zeros(len(pred.flat))
    if ranking in ("score", "coco"):
        uncertainty = np.where(np.isnan(batch.pred_scores), np.inf, -batch.pred_scores)
    order = np.lexsort((uncertainty, pred_entry))
    # A predicted box without a label is of no entry.
    order = order[pred_label[order] >= 0]
    place = _place_within(pred_entry[order])
    is_looked_at = place < max_detections
    order, place = order[is_looked_at], place[is_looked_at]
    gt_order = np.argsort(gt_entry, kind="stable")
    entries = np.unique(np.concatenate([pred_entry[order], gt_entry]))

    codes = None
    if label_matching == "synonyms" or (together and label_matching != "ignore"):
        codes = LabelCodes.of(batch.pred_labels, batch.gt_labels, label_matching)
        codes = replace(codes, pred=codes.pred[order], gt=codes.gt[gt_order])
    hit, counts = _match_entries(
        BoxBatch(pred.flat[order], _count_sorted(pred_entry[order], entries)),
        BoxBatch(gt.flat[gt_order], _count_sorted(gt_entry[gt_order], entries)),
        batch.ignore.take(entries // len(names)),
        codes,
        np.minimum(np.asarray(iou_thresholds, dtype=np.float64), _ALMOST_ONE),
        most_overlap_first=ranking == "tied",
    )
    key = place.astype(np.float64) if ranking == "emission" else uncertainty[order]

    by_label = {}
    for number, name in enumerate(names):
        of_label = pred_label[order] == number
        image = pred_image[order][of_label]
        references = np.bincount(gt_image[gt_label == number], minlength=len(batch))
        by_label[name] = RankedBoxes(image, key[of_label], hit[:, of_label], counts[:, of_label], references, ranking)
    return RankedImages(by_label, len(batch), tuple(iou_thresholds), ranking, group_by)


@lru_cache(maxsize=1 << 14)
def label_name(label: str | None, label_matching: str) -> str:
    """The name under which labels are compared; empty for none.

    Args:
        label: of a dataset or of a model.
        label_matching: ``"ignore"``, ``"exact"`` or ``"synonyms"``; under the first all labels are one, whose name is
            empty.

    Example:
        >>> label_name("Left  Effusion", "exact"), label_name("Left  Effusion", "synonyms")
        ('left effusion', 'pleural effusion')
        >>> label_name("left lung", "synonyms")
        'left lung'
    """
    check_word("label_matching", label_matching, LABEL_MATCHING)
    if label_matching == "ignore" or not label:
        return ""
    if label_matching == "exact":
        return text_key(label)
    finding = normalize_label(label)
    # With its side for parts of the chest, where each side is a thing of its own.
    return finding.name if are_synonyms(finding.name, f"left {finding.name}") else finding.text


def _number_labels(
    pred: Sequence[str | None], gt: Sequence[str | None], label_matching: str
) -> tuple[list[str], Indices, Indices]:
    """The names of all labels, in the order of the alphabet; of each predicted and each reference box the name's index.

    The index is -1 for a box without a label.
    """
    gt_names = [label_name(label, label_matching) for label in gt]
    pred_names = [label_name(label, label_matching) for label in pred]
    compared = label_matching != "ignore"
    if compared and not all(gt_names):
        raise ValueError(
            "Expected a label for every reference box for `images`, got a blank one. "
            'Name the finding, or use label_matching="ignore".'
        )
    names = sorted({*gt_names, *filter(None, pred_names)}) if compared else [""]
    index_of = {name: i for i, name in enumerate(names)}
    pred_indices = np.array([index_of.get(name, -1) for name in pred_names], dtype=np.int64)
    gt_indices = np.array([index_of.get(name, -1) for name in gt_names], dtype=np.int64)
    return names, pred_indices, gt_indices


def _place_within(entries: Indices) -> Indices:
    """The place of each value among those equal to it, from 0; equal values stand next to each other."""
    starts = np.flatnonzero(np.diff(entries, prepend=-1))
    return np.arange(len(entries)) - np.repeat(starts, np.diff(np.append(starts, len(entries))))


def rows_of_one_shape(counts: Indices, cells: Callable[..., int]) -> Iterator[Indices]:
    """Rows whose counts are equal, so that they can be one array without padding, some at a time.

    Args:
        counts: ``(rows, k)`` of boxes.
        cells: how many cells of an array a row with these counts needs; about a million are worked on at once.

    Example:
        >>> counts = np.array([(1, 2), (0, 2), (1, 2)])
        >>> [rows.tolist() for rows in rows_of_one_shape(counts, lambda n, m: n * m)]
        [[1], [0, 2]]
    """
    if not len(counts):
        return
    shape = np.ravel_multi_index(tuple(counts.T), counts.max(axis=0) + 1)
    # Numpy sorts small numbers by their digits, which is fast.
    order = np.argsort(shape.astype(np.min_scalar_type(shape.max())), kind="stable")
    changes = np.flatnonzero(np.diff(shape[order])) + 1
    for rows in np.split(order, changes):
        blocks = len(rows) * cells(*counts[rows[0]].tolist()) // _CELLS + 1
        yield from np.array_split(rows, blocks)


def _count_sorted(ordered: Indices, entries: Indices) -> Indices:
    """How often each entry stands in a sorted array."""
    return np.searchsorted(ordered, entries, side="right") - np.searchsorted(ordered, entries, side="left")


def _match_entries(
    preds: BoxBatch,
    gts: BoxBatch,
    ignore: BoxBatch,
    codes: LabelCodes | None,
    thresholds: Array,
    *,
    most_overlap_first: bool,
) -> tuple[Mask, Mask]:
    """Which predicted boxes are right, and which count, at each threshold, ``(thresholds, n)`` each.

    Args:
        preds: the predicted boxes of all entries, in the order of the ranking.
        gts: the reference boxes of all entries.
        ignore: the regions of their images.
        codes: of the labels of both, in their order; None if all labels agree.
        thresholds: ``(t,)``.
        most_overlap_first: whether the boxes that overlap a reference box most choose first.
    """
    hit = np.zeros((len(thresholds), len(preds.flat)), dtype=bool)
    counts = np.ones_like(hit)
    shapes = np.column_stack([preds.counts, gts.counts, ignore.counts])
    for rows in rows_of_one_shape(shapes, lambda n, m, k: n * (m + k)):
        # b entries, each with n predicted boxes, m reference boxes and k regions
        b, (n, m, k) = len(rows), shapes[rows[0]].tolist()
        if not n or not m + k:
            continue
        pred_places, gt_places = positions(preds.counts, rows), positions(gts.counts, rows)
        boxes = preds.flat[pred_places].reshape(b, n, 4)
        iou = pairwise_iou(boxes, gts.flat[gt_places].reshape(b, m, 4))
        if codes is not None:
            agreeing = codes.agree(codes.pred[pred_places].reshape(b, n, 1), codes.gt[gt_places].reshape(b, 1, m))
            iou = np.where(agreeing, iou, 0.0)
        order = np.tile(np.arange(n), (b, 1))
        if most_overlap_first:
            order = np.argsort(-iou.max(axis=2, initial=0.0), axis=1, kind="stable")
        matched = _match(np.take_along_axis(iou, order[..., None], axis=1), thresholds)
        # Back into the order of the ranking: the inverse of a permutation is its argsort.
        matched = np.take_along_axis(matched, np.argsort(order, axis=1)[:, None, :], axis=2)
        share = covered_share(boxes, ignore.take(rows).flat.reshape(b, k, 4))
        ignored = is_ignored(share[:, None], matched, thresholds[:, None])
        hit[:, pred_places] = np.swapaxes(matched, 0, 1).reshape(len(thresholds), -1)
        counts[:, pred_places] = ~np.swapaxes(ignored, 0, 1).reshape(len(thresholds), -1)
    return hit, counts


def _match(iou: Array, thresholds: Array) -> Mask:
    """COCO's matching of many entries of one shape; among equal IoUs the last reference box is taken.

    Args:
        iou: ``(b, n, m)``, predictions in the order in which they choose.
        thresholds: ``(t,)``.

    Returns:
        ``(b, t, n)`` whether each prediction is matched.
    """
    b, n, m = iou.shape
    gt_taken = np.zeros((b, len(thresholds), m), dtype=bool)
    matched = np.zeros((b, len(thresholds), n), dtype=bool)
    for i in range(n):
        box_iou = iou[:, None, i]
        free = (box_iou >= thresholds[:, None]) & ~gt_taken
        best = np.where(free, box_iou, -1.0).max(axis=2, initial=-1.0)
        equal = free & (box_iou == best[..., None])
        # Of reference boxes that overlap equally the last one, as in COCO.
        gt_taken |= equal & (equal[..., ::-1].cumsum(axis=2)[..., ::-1] == 1)
        matched[..., i] = free.any(axis=2)
    return matched


def mean_average_precision(
    ranked: RankedImages,
    iou_thresholds: Sequence[float] | None = None,
    *,
    interpolation: str = "101",
    groups: Sequence[Any] | None = None,
    seed: int = 0,
) -> Jackknifed:
    """Average precision, averaged over the labels that some image has and over IoU thresholds, with its jackknife.

    Args:
        ranked: of :func:`rank_boxes`. Where it compared no labels, all boxes are of one label.
        iou_thresholds: of ``ranked.iou_thresholds``; None takes all of them.
        interpolation: precision is averaged at ``"101"`` recall levels as COCO does, at ``"11"`` as VOC did until 2009,
            or over ``"all"`` recalls as VOC has done since, as in
            :class:`grounding_rewards.rewards.AveragePrecisionReward`.
        groups: the patient of each image, where known; the images of one patient are then left out together.
        seed: of what is left out.

    Returns:
        In [0, 1]; NaN without a reference box. Labels without a reference box on these images are no part of the mean.

    Raises:
        ValueError: an argument is out of its range, or there is not one group per image.

    Example:
        One of two labels is found; 0.9 is the IoU.

        >>> image = Prediction("a", 100, 100, gt=[[0, 0, 10, 10], [50, 50, 60, 60]], gt_labels=["mass", "effusion"],
        ...                     pred=[[0, 0, 10, 9]], pred_labels=["Mass"], pred_scores=[0.8])
        >>> ranked = rank_boxes([image], label_matching="exact")
        >>> [mean_average_precision(ranked, thresholds).value for thresholds in ([0.5], [0.5, 0.95])]
        [0.5, 0.25]
        >>> mean_average_precision(ranked.only("mass"), [0.5]).value
        1.0
    """
    check_word("interpolation", interpolation, INTERPOLATIONS)
    if iou_thresholds is None:
        iou_thresholds = ranked.iou_thresholds
    thresholds = [ranked.threshold_index(iou) for iou in iou_thresholds]
    parts = Parts.of(groups, ranked.images, seed)
    # A label that no image has is no part of the mean.
    labels = [boxes.by_group(parts.of_image) for boxes in ranked.by_label.values() if boxes.references.any()]

    def mean_ap(weights: Array) -> Array:
        """The metric under weights of the parts, (rows,)."""
        ap_sums, label_counts = np.zeros((len(thresholds), len(weights))), np.zeros(len(weights))
        for boxes in labels:
            has_references = weights @ boxes.references > 0
            label_counts += has_references
            for ap_sum, t in zip(ap_sums, thresholds, strict=True):
                ap = _average_precision(boxes, t, weights, INTERPOLATIONS[interpolation])
                ap_sum += np.where(has_references, ap, 0.0)
        return ratio_or_nan(ap_sums, label_counts).mean(axis=0)

    return jackknife(mean_ap, parts, hull_seed=seed)


def _average_precision(ranked: RankedBoxes, t: int, weights: Array, levels: Array | None) -> Array:
    """AP of one label at one threshold, ``(rows,)``; 0 where there is no reference box, or no box is right."""
    blocks = []
    for recall, precision in _precision_recall(ranked, t, weights):
        if levels is None:
            # AP = Σ_k P̃(R_k) (R_k - R_k-1)
            blocks.append((precision * np.diff(recall, axis=1, prepend=0.0)).sum(axis=1))
        else:
            # AP = 1/|L| Σ_{l ∈ L} P̃(l): the levels that each point is the first to reach
            blocks.append((precision * newly_reached(recall, levels)).sum(axis=1) / len(levels))
    return np.concatenate(blocks) if blocks else np.zeros(len(weights))


def _precision_recall(ranked: RankedBoxes, t: int, weights: Array) -> Iterator[tuple[Array, Array]]:
    """For some rows of weights at a time: recall and interpolated precision at each point, ``(rows, points)``.

    Yields nothing where no box is right.
    """
    for block, hits, boxes in _read_curve(ranked, t, weights):
        yield ratio(hits, (block @ ranked.references)[:, None]), precision_envelope(ratio(hits, boxes))


def _read_curve(ranked: RankedBoxes, t: int, weights: Array) -> Iterator[tuple[Array, Array, Array]]:
    """For some rows of weights at a time: the rows, and the right and the counted boxes up to each point of a curve.

    The points are the ends of groups of equal keys that have a right box; under ``"coco"`` boxes of equal stated
    confidence are groups of their own. After a group without a right box recall is as before and more boxes are false,
    so no best value is found there. Yields nothing where no box is right.

    Args:
        ranked: boxes of one label.
        t: index of the IoU threshold.
        weights: ``(rows, images)``.
    """
    from scipy.sparse import csr_array

    order = np.argsort(ranked.key, kind="stable")
    key, image = ranked.key[order], ranked.image[order]
    hit = ranked.hit[t, order].astype(np.float64)
    counts = ranked.counts[t, order].astype(np.float64)
    if not hit.any():
        return
    is_end = np.append(key[1:] != key[:-1], True)
    if ranked.ranking == "coco":
        is_end |= np.isfinite(key)
    ends = np.flatnonzero(is_end) + 1
    ends = ends[np.add.reduceat(hit, np.append(0, ends[:-1])) > 0]
    last = int(ends[-1])
    # What each image adds at each point, (points, images), which is mostly nothing.
    point_and_image = np.searchsorted(ends, np.arange(last), side="right"), image[:last]
    shape = (len(ends), weights.shape[1])
    new_hits = csr_array((hit[:last], point_and_image), shape=shape)
    new_counts = csr_array((counts[:last], point_and_image), shape=shape)
    rows = max(1, _CELLS // last)
    for start in range(0, len(weights), rows):
        block = weights[start : start + rows]
        # By rows, in which sums along a curve are as exact as they are fast.
        hits = np.ascontiguousarray((new_hits @ block.T).cumsum(axis=0).T)
        boxes = np.ascontiguousarray((new_counts @ block.T).cumsum(axis=0).T)
        yield block, hits, boxes


#: False boxes per image at which sensitivity is read; the mean of the seven is the FROC score.
FROC_RATES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


def sensitivity_at_false_positives(
    ranked: RankedImages, rates: Sequence[float] = FROC_RATES, *, groups: Sequence[Any] | None = None, seed: int = 0
) -> Jackknifed:
    """The best sensitivity at IoU 0.5 with at most so many false boxes per image, averaged over some rates of these.

    Args:
        ranked: of :func:`rank_boxes`; boxes that are all tied have no sensitivity at another rate than theirs.
        rates: false boxes per image.
        groups: the patient of each image, where known; the images of one patient are then left out together.
        seed: of what is left out.

    Returns:
        In [0, 1]; NaN without a reference box.

    Example:
        One finding of two is found at once, the other after a false box on two images.

        >>> image = Prediction("a", 100, 100, gt=[[0, 0, 10, 10], [50, 50, 60, 60]], gt_labels=["mass"] * 2,
        ...                     pred=[[0, 0, 10, 9], [20, 20, 30, 30], [50, 50, 60, 60]], pred_scores=[0.9, 0.8, 0.7])
        >>> ranked = rank_boxes([image, Prediction("b", 100, 100)])
        >>> [sensitivity_at_false_positives(ranked, rates).value for rates in ([0.25], [0.5], [0.25, 0.5])]
        [0.5, 1.0, 0.75]
    """
    t = ranked.threshold_index(0.5)
    parts = Parts.of(groups, ranked.images, seed)
    # Boxes of equal confidence are one group under "coco" too: no threshold parts them.
    by_part = replace(ranked.of_label(None).by_group(parts.of_image), ranking="score")
    images_of_part = np.bincount(parts.of_image, minlength=parts.parts)

    def mean_sensitivity(weights: Array) -> Array:
        """The metric under weights of the parts, (rows,)."""
        best_hits = np.zeros((len(weights), len(rates)))
        row = 0
        for block, hits, boxes in _read_curve(by_part, t, weights):
            false_rates = ratio(boxes - hits, (block @ images_of_part)[:, None])
            for row_rates, row_hits in zip(false_rates, hits, strict=True):
                best_hits[row] = np.append(0.0, row_hits)[np.searchsorted(row_rates, rates, side="right")]
                row += 1
        return ratio_or_nan(best_hits, (weights @ by_part.references)[:, None]).mean(axis=1)

    return jackknife(mean_sensitivity, parts)


#: In the table of metrics.
IMAGE_AUROC = {
    "auroc": Metric(
        "AUROC of images",
        "how often an image with a finding ranks above one without, ties counting half: by the largest stated "
        "confidence of its boxes; where any box has none, by the share of its answers, sampled ones among them, with a "
        "box",
    )
}


def image_auroc(images: Sequence[Prediction], *, groups: Sequence[Any] | None = None, seed: int = 0) -> Jackknifed:
    """Area under the ROC curve of images with a finding against images without one.

    Args:
        images: with their answers. The score of an image is the highest confidence of its boxes, if every box of all
            images states one; an image without a box comes last. Else the score is the share of the image's answers,
            judged and sampled, that have a box.
        groups: the patient of each image, where known; the images of one patient are then left out together.
        seed: of what is left out.

    Returns:
        In [0, 1]; NaN where all images have a finding or none has, and where neither confidences are stated nor
        answers were sampled for every image: yes and no are no ranking.

    Example:
        The normal image ranks below one of two images with a finding.

        >>> found = {"width": 99, "height": 99, "gt": [[0, 0, 9, 9]], "gt_labels": ["mass"]}
        >>> sure = Prediction("a", **found, pred=[[0, 0, 9, 9], [20, 20, 30, 30]], pred_scores=[0.3, 0.9])
        >>> normal = Prediction("c", 99, 99, pred=[[0, 0, 9, 9]], pred_scores=[0.4])
        >>> image_auroc([sure, Prediction("b", **found), normal]).value
        0.5
    """
    positive = np.array([not image.is_normal for image in images], dtype=bool)
    batch = PredictionBatch.of(images)
    score = np.full(len(images), np.nan)
    if batch.states_confidences:
        score = np.array([image.pred_scores.max(initial=-np.inf) for image in batch.answers])
    elif all(image.sampled_boxes for image in images):
        for k, image in enumerate(batch.answers):
            has_box = [n > 0 for n in (len(image.pred), *image.sampled_boxes)]
            score[k] = sum(has_box) / len(has_box)
    parts = Parts.of(groups, len(images), seed)

    def areas(weights: Array) -> Array:
        """The area of the images in the parts that have a weight, (rows,)."""
        kept_images = weights[:, parts.of_image] > 0
        return np.array([_area_under_roc(score[kept & positive], score[kept & ~positive]) for kept in kept_images])

    # The interval can rest on no more patients than the smaller of the two classes has.
    units = group_numbers(groups, len(images))
    fewest = min(len(np.unique(units[positive])), len(np.unique(units[~positive])))
    return jackknife(areas, parts)._replace(units=fewest)


def _area_under_roc(positive: Array, negative: Array) -> float:
    """The share of pairs of a positive and a negative score in which the positive is greater; equal ones count half."""
    from scipy.stats import rankdata

    n = len(positive)
    # Equal scores share the mean of their ranks; a NaN makes all ranks NaN.
    ranks = rankdata(np.concatenate([positive, negative]))
    return float(ratio_or_nan(ranks[:n].sum() - n * (n + 1) / 2, n * len(negative)))


def query_ap_sums(images: Sequence[Prediction], *, label_matching: str = "ignore") -> Array:
    """The sum of the APs of each image's queries, each about one finding, and their number.

    Args:
        images: predictions.
        label_matching: ``"synonyms"`` lets another word for the finding answer the query; under ``"exact"`` and
            ``"ignore"`` names agree up to case and white space.

    Returns:
        ``(images, 2)``, for :func:`grounding_rewards.metrics.intervals.ratio_estimates`.

    Example:
        Two queries: of the mass the second box is right, of the nodule none is written.

        >>> image = Prediction("a", 99, 99, gt=[[0, 0, 9, 9], [50, 50, 60, 60]], gt_labels=["mass", "nodule"],
        ...                     pred=[[20, 20, 30, 30], [0, 0, 9, 8]], pred_labels=["mass", "Mass"])
        >>> query_ap_sums([image])
        array([[0.5, 2. ]])
    """
    names = {label_name(label, "exact") for image in images for label in image.gt_labels}
    rule = "exact" if label_matching == "ignore" else label_matching
    if "" in names or names <= {UNNAMED}:
        rule = "ignore"
    queried = [_name_boxes(image, rule) for image in images]
    ranked = rank_boxes(queried, (0.5,), ranking="emission", label_matching=rule)
    sums = np.zeros((len(images), 2))
    for boxes in ranked.by_label.values():
        place = _place_within(boxes.image)
        hit, counts = np.zeros((2, len(images), int(place.max(initial=-1)) + 1))
        hit[boxes.image, place], counts[boxes.image, place] = boxes.hit[0], boxes.counts[0]
        # P_k = Σ_{i ≤ k} hit_i / Σ_{i ≤ k} counts_i; AP = 1/m Σ_k P̃_k hit_k
        precision = ratio(hit.cumsum(axis=1), counts.cumsum(axis=1))
        # 0 where the image has no such query.
        sums[:, 0] += ratio(row_sums(precision_envelope(precision) * hit), boxes.references)
        sums[:, 1] += boxes.references > 0
    return sums


def _name_boxes(image: Prediction, label_matching: str) -> Prediction:
    """The image, its boxes without a label under that of its findings if these have one label in common."""
    gt_names = {label_name(label, label_matching) for label in image.gt_labels}
    if all(image.pred_labels) or len(gt_names) != 1:
        return image
    return replace(image, pred_labels=tuple(label or image.gt_labels[0] for label in image.pred_labels))


#: At which IoU thresholds average precision is measured, beside COCO's mean over 0.5 to 0.95.
AP_THRESHOLDS = (0.5,)
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
        images: Sequence[Prediction],
        label_matching: str = "ignore",
        iou_thresholds: Sequence[float] = AP_THRESHOLDS,
    ) -> RankingMetrics:
        """The metrics that these images allow: by confidence if every box states one, by label if any states one.

        Args:
            images: predictions, of one run or of several.
            label_matching: how labels are compared; mAP compares them in any case.
            iou_thresholds: of average precision, each in (0, 1].

        Example:
            >>> RankingMetrics.of([Prediction("a", 9, 9, pred=[[0, 0, 5, 5]])])[:2]
            ('tied', (('ap', 'ignore'),))
        """
        ranking = "score" if PredictionBatch.of(images).states_confidences else "tied"
        kinds = [("ap", label_matching)]
        if can_compare_labels(images):
            kinds.append(("map", "synonyms" if label_matching == "synonyms" else "exact"))
        return cls(ranking, tuple(kinds), tuple(iou_thresholds))

    def metrics(self) -> dict[str, Metric]:
        """Every metric by key, as `ap_50`; `of` is its kind, and the IoU thresholds or rates that it is the mean over.

        Example:
            >>> RankingMetrics("tied", (("ap", "ignore"),)).metrics()["ap_50"].heading
            'AP at IoU 0.5, boxes tied'
        """
        by_score = self.ranking == "score"
        order = "in the order of stated confidences"
        if not by_score:
            order = "not every box has a stated confidence, so all are tied"
        together = _RULES[dict(self.average_precisions)["ap"]]
        metrics = {}
        for kind, _ in self.average_precisions:
            name, scope = _KINDS[kind]
            if kind == "ap":
                scope += f", {together}"
            thresholds = {f"{100 * iou:g}": (iou,) for iou in self.iou_thresholds} | {"50_95": COCO_THRESHOLDS}
            for key, ious in thresholds.items():
                heading = f"{name} at IoU {ious[0]:g}" + (f" to {ious[-1]:g}" if len(ious) > 1 else "")
                if not by_score:
                    heading += ", boxes tied"
                definition = f"average precision, {scope}; {order}"
                metrics[f"{kind}_{key}"] = Metric(heading, definition, (kind, ious))
        if by_score:
            definition = f"mean of the sensitivities at these rates of false boxes; all boxes together, {together}"
            metrics["froc"] = Metric("FROC score", definition, ("froc", FROC_RATES))
            share = "share of the reference boxes found at IoU 0.5 where that many false boxes per image are accepted"
            # The FROC score is the mean over more rates than have a sensitivity of their own.
            for rate in FROC_RATES[:4]:
                heading = f"sensitivity at {rate:g} false boxes per image"
                metrics[f"sensitivity_{rate:g}"] = Metric(heading, share, ("froc", (rate,)))
        return metrics

    def rank(self, images: Sequence[Prediction]) -> dict[str, RankedImages]:
        """The boxes as each kind of average precision ranks them, by the beginning of its key.

        Example:
            >>> image = Prediction("a", 9, 9, gt=[[0, 0, 5, 5]], gt_labels=["x"])
            >>> list(RankingMetrics.of([image]).rank([image]))
            ['ap']
        """
        all_thresholds = sorted({*self.iou_thresholds, *COCO_THRESHOLDS})
        return {
            kind: rank_boxes(images, all_thresholds, ranking=self.ranking, label_matching=rule, together=kind == "ap")
            for kind, rule in self.average_precisions
        }

    def jackknifed(
        self,
        ranked: Mapping[str, RankedImages],
        *,
        groups: Sequence[Any] | None = None,
        seed: int = 0,
    ) -> dict[str, Jackknifed]:
        """Every metric of the images, and without each patient, by key.

        Args:
            ranked: of :meth:`rank`.
            groups: the patient of each image, where known; the images of one patient are then left out together.
            seed: of what is left out.

        Example:
            >>> image = Prediction("a", 9, 9, gt=[[0, 0, 5, 5]], gt_labels=["x"], pred=[[0, 0, 5, 5], [6, 6, 9, 9]])
            >>> metrics = RankingMetrics.of([image])
            >>> metrics.jackknifed(metrics.rank([image]))["ap_50"].value
            0.5
        """
        metrics = {}
        for key, metric in self.metrics().items():
            kind, values = metric.of
            if kind == "froc":
                metrics[key] = sensitivity_at_false_positives(ranked["ap"], values, groups=groups, seed=seed)
            else:
                metrics[key] = mean_average_precision(ranked[kind], values, groups=groups, seed=seed)
        return metrics


def can_compare_labels(images: Sequence[Prediction]) -> bool:
    """Whether labels can be compared: any predicted box has a label, and every reference box has one.

    Example:
        >>> image = Prediction("a", 9, 9, gt=[[0, 0, 5, 5]], gt_labels=["mass"], pred=[[0, 0, 5, 5]])
        >>> can_compare_labels([image]), can_compare_labels([image, Prediction("b", 9, 9, pred=image.pred,
        ...     pred_labels=["x"])])
        (False, True)
    """
    gt_names = {label_name(label, "exact") for image in images for label in image.gt_labels}
    if "" in gt_names or gt_names == {UNNAMED}:
        return False
    return any(label for image in images for label in image.pred_labels)

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
        image: ``(n,)`` the image of each box, an index, or the group of images, see :meth:`by_group`.
        key: ``(n,)`` by which boxes are ranked, lowest first; infinite for a box without a stated confidence.
        hit: ``(thresholds, n)`` whether the box is right.
        counts: ``(thresholds, n)`` whether the box counts at all.
        references: ``(images,)`` number of reference boxes.
        ranking: by which the key is made, one of :data:`RANKINGS`.
    """

    image: Indices
    key: Array
    hit: Mask
    counts: Mask
    references: Indices
    ranking: str = "score"

    def by_group(self, group: Indices) -> RankedBoxes:
        """The same boxes with groups of images, for instance those of one patient, in the place of images.

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
    # The rule by which boxes are put under labels, which need not be that by which they are right.
    group_by = "ignore" if together else label_matching
    names, pred_label, gt_label = _number_labels(batch.pred_labels, batch.gt_labels, group_by)

    # Boxes compete for the reference boxes of their image and label: an entry, whose number is image * labels + label.
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
    rank = _rank_within(pred_entry[order])
    is_looked_at = rank < max_detections
    order, rank = order[is_looked_at], rank[is_looked_at]
    gt_order = np.argsort(gt_entry, kind="stable")
    # The entries that have a box of either kind, in rising order, and how many of each kind they have.
    entries, entry_index = np.unique(np.concatenate([pred_entry[order], gt_entry]), return_inverse=True)
    pred_counts = np.bincount(entry_index[: len(order)], minlength=len(entries))
    gt_counts = np.bincount(entry_index[len(order) :], minlength=len(entries))

    # Codes are needed only where boxes of different labels stand in one entry.
    codes = None
    if label_matching == "synonyms" or (together and label_matching != "ignore"):
        codes = LabelCodes.of(batch.pred_labels, batch.gt_labels, label_matching)
        codes = replace(codes, pred=codes.pred[order], gt=codes.gt[gt_order])
    hit, counts = _match_entries(
        BoxBatch(pred.flat[order], pred_counts),
        BoxBatch(gt.flat[gt_order], gt_counts),
        batch.ignore.take(entries // len(names)),
        codes,
        np.minimum(np.asarray(iou_thresholds, dtype=np.float64), _ALMOST_ONE),
        most_overlap_first=ranking == "tied",
    )
    key = rank.astype(np.float64) if ranking == "emission" else uncertainty[order]

    # `key`, `hit` and `counts` are of the predicted boxes in this order.
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
    # `name` is without a side, which plays no part for most findings; `text` is with it, for parts of the chest, of
    # which left and right are two things.
    return finding.name if are_synonyms(finding.name, f"left {finding.name}") else finding.text


def _number_labels(
    pred_labels: Sequence[str | None], gt_labels: Sequence[str | None], label_matching: str
) -> tuple[list[str], Indices, Indices]:
    """The names of all labels in the order of the alphabet, and for each predicted and each reference box its index.

    The index is of the name of the box's label, -1 for a box without a label. Where labels are not compared, all boxes
    are of one label, whose name is empty.
    """
    gt_names = [label_name(label, label_matching) for label in gt_labels]
    pred_names = [label_name(label, label_matching) for label in pred_labels]
    names = [""]
    if label_matching != "ignore":
        if not all(gt_names):
            raise ValueError(
                "Expected a label for every reference box for `images`, got a blank one. "
                'Name the finding, or use label_matching="ignore".'
            )
        names = sorted({*gt_names, *filter(None, pred_names)})
    index_of = {name: i for i, name in enumerate(names)}
    pred_indices = np.array([index_of.get(name, -1) for name in pred_names], dtype=np.int64)
    gt_indices = np.array([index_of.get(name, -1) for name in gt_names], dtype=np.int64)
    return names, pred_indices, gt_indices


def _rank_within(groups: Indices) -> Indices:
    """The rank of each box within its group, from 0; the numbers of groups are from 0 up, equal ones side by side."""
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    sizes = np.diff(np.append(starts, len(groups)))
    return np.arange(len(groups)) - np.repeat(starts, sizes)


def rows_of_one_shape(counts: Indices, cells: Callable[..., int]) -> Iterator[Indices]:
    """Yield the indices of rows whose counts are all equal, whose boxes can be one array without padding.

    Args:
        counts: ``(rows, k)`` numbers of boxes of k kinds.
        cells: takes the k counts of a row to how many cells of memory the row needs; rows that need more than about a
            million together are yielded in several blocks.

    Example:
        >>> counts = np.array([(1, 2), (0, 2), (1, 2)])
        >>> [rows.tolist() for rows in rows_of_one_shape(counts, lambda n, m: n * m)]
        [[1], [0, 2]]
    """
    if not len(counts):
        return
    # One number for each row, which is the same where all counts are the same.
    shape = np.ravel_multi_index(tuple(counts.T), counts.max(axis=0) + 1)
    # Numpy sorts small numbers by their digits, which is fast.
    order = np.argsort(shape.astype(np.min_scalar_type(shape.max())), kind="stable")
    starts_of_shapes = np.flatnonzero(np.diff(shape[order])) + 1
    for rows in np.split(order, starts_of_shapes):
        blocks = len(rows) * cells(*counts[rows[0]].tolist()) // _CELLS + 1
        yield from np.array_split(rows, blocks)


def _match_entries(
    preds: BoxBatch,
    gts: BoxBatch,
    ignore: BoxBatch,
    codes: LabelCodes | None,
    thresholds: Array,
    *,
    most_overlap_first: bool,
) -> tuple[Mask, Mask]:
    """Match the boxes of each entry, which is one label on one image, as COCO does.

    Args:
        preds: the predicted boxes of the entries, those of one entry in the order of the ranking.
        gts: the reference boxes of the entries.
        ignore: the ignored regions of the image of each entry.
        codes: of the labels of `preds` and `gts`, in their order; None if all labels of an entry agree.
        thresholds: ``(t,)`` IoU thresholds.
        most_overlap_first: whether the boxes that overlap a reference box most choose first, not the first ones.

    Returns:
        Which predicted boxes are right, and which count, at each threshold, ``(t, n)`` each.
    """
    hit = np.zeros((len(thresholds), len(preds.flat)), dtype=bool)
    counts = np.ones_like(hit)
    shapes = np.column_stack([preds.counts, gts.counts, ignore.counts])
    for rows in rows_of_one_shape(shapes, lambda n, m, k: n * (m + k)):
        # b entries, each with n predicted boxes, m reference boxes and k regions
        b, (n, m, k) = len(rows), shapes[rows[0]].tolist()
        # Boxes with nothing to match or to excuse them are wrong and count, as both arrays begin.
        if not n or not m + k:
            continue
        pred_positions, gt_positions = positions(preds.counts, rows), positions(gts.counts, rows)
        boxes = preds.flat[pred_positions].reshape(b, n, 4)
        iou = pairwise_iou(boxes, gts.flat[gt_positions].reshape(b, m, 4))
        if codes is not None:
            pred_codes, gt_codes = codes.pred[pred_positions], codes.gt[gt_positions]
            iou = np.where(codes.agree(pred_codes.reshape(b, n, 1), gt_codes.reshape(b, 1, m)), iou, 0.0)
        choosing_order = np.tile(np.arange(n), (b, 1))
        if most_overlap_first:
            choosing_order = np.argsort(-iou.max(axis=2, initial=0.0), axis=1, kind="stable")
        matched = _match(np.take_along_axis(iou, choosing_order[..., None], axis=1), thresholds)
        # Back into the order of the ranking: the inverse of a permutation is its argsort.
        matched = np.take_along_axis(matched, np.argsort(choosing_order, axis=1)[:, None, :], axis=2)
        share = covered_share(boxes, ignore.take(rows).flat.reshape(b, k, 4))
        ignored = is_ignored(share[:, None], matched, thresholds[:, None])
        # From (b, t, n) to (t, b n), as the boxes stand.
        hit[:, pred_positions] = np.swapaxes(matched, 0, 1).reshape(len(thresholds), -1)
        counts[:, pred_positions] = ~np.swapaxes(ignored, 0, 1).reshape(len(thresholds), -1)
    return hit, counts


def _match(iou: Array, thresholds: Array) -> Mask:
    """Whether each predicted box takes a reference box, by COCO's rule: each takes the free one that it overlaps most.

    Args:
        iou: ``(b, n, m)`` of the boxes of b entries, predicted boxes in the order in which they choose.
        thresholds: ``(t,)`` that the IoU has to reach.

    Returns:
        ``(b, t, n)``.
    """
    b, n, m = iou.shape
    gt_taken = np.zeros((b, len(thresholds), m), dtype=bool)
    matched = np.zeros((b, len(thresholds), n), dtype=bool)
    for i in range(n):
        box_iou = iou[:, None, i]
        # The reference boxes that this box may take, and those of them that it overlaps most.
        free = (box_iou >= thresholds[:, None]) & ~gt_taken
        best = np.where(free, box_iou, -1.0).max(axis=2, initial=-1.0)
        is_best = free & (box_iou == best[..., None])
        # Of reference boxes that overlap equally the last one, as in COCO: counted from the end it is the first.
        gt_taken |= is_best & (is_best[..., ::-1].cumsum(axis=2)[..., ::-1] == 1)
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
    threshold_indices = [ranked.threshold_index(iou) for iou in iou_thresholds]
    parts = Parts.of(groups, ranked.images, seed)
    # Of each label that some image has, the boxes by part; a label that is only predicted is no part of the mean.
    boxes_of_labels = [boxes.by_group(parts.of_image) for boxes in ranked.by_label.values() if boxes.references.any()]

    def mean_ap(weights: Array) -> Array:
        """The metric of the images under each row of weights, which say how often each part counts, ``(rows,)``."""
        ap_sums, label_counts = np.zeros((len(threshold_indices), len(weights))), np.zeros(len(weights))
        for boxes in boxes_of_labels:
            # Without some parts a label may have no reference box left.
            has_references = weights @ boxes.references > 0
            label_counts += has_references
            for k, t in enumerate(threshold_indices):
                ap = _average_precision(boxes, t, weights, INTERPOLATIONS[interpolation])
                ap_sums[k] += np.where(has_references, ap, 0.0)
        return ratio_or_nan(ap_sums, label_counts).mean(axis=0)

    return jackknife(mean_ap, parts, hull_seed=seed)


def _average_precision(ranked: RankedBoxes, t: int, weights: Array, levels: Array | None) -> Array:
    """AP of one label under each row of weights, ``(rows,)``; 0 where there is no reference box, or no box is right.

    Args:
        ranked: the boxes of the label, by part of the images.
        t: index of the IoU threshold.
        weights: ``(rows, parts)`` how often each part counts.
        levels: the recalls at which precision is averaged; None for all recalls.
    """
    ap_of_blocks = []
    for block_weights, hits, boxes in _read_curve(ranked, t, weights):
        recall = ratio(hits, (block_weights @ ranked.references)[:, None])
        precision = precision_envelope(ratio(hits, boxes))
        if levels is None:
            # AP = Σ_k P̃(R_k) (R_k - R_k-1)
            ap_of_blocks.append((precision * np.diff(recall, axis=1, prepend=0.0)).sum(axis=1))
        else:
            # AP = 1/|L| Σ_{l ∈ L} P̃(l): the levels that each point is the first to reach
            ap_of_blocks.append((precision * newly_reached(recall, levels)).sum(axis=1) / len(levels))
    return np.concatenate(ap_of_blocks) if ap_of_blocks else np.zeros(len(weights))


def _read_curve(ranked: RankedBoxes, t: int, weights: Array) -> Iterator[tuple[Array, Array, Array]]:
    """Yield how many right and how many counted boxes there are up to each point of the curve of one label.

    The points are the ends of groups of equal keys that have a right box; under ``"coco"`` boxes of equal stated
    confidence are groups of their own. After a group without a right box recall is as before and more boxes are false,
    so no best value is found there.

    Args:
        ranked: the boxes of the label, by part of the images.
        t: index of the IoU threshold.
        weights: ``(rows, parts)`` how often each part counts.

    Yields:
        Some rows of `weights` at a time, as many as memory allows, with their numbers of right and of counted boxes,
        ``(rows, points)`` each. Nothing where no box is right.
    """
    from scipy.sparse import csr_array

    order = np.argsort(ranked.key, kind="stable")
    key, part = ranked.key[order], ranked.image[order]
    hit = ranked.hit[t, order].astype(np.float64)
    counts = ranked.counts[t, order].astype(np.float64)
    if not hit.any():
        return
    # Whether a box is the last one of its group; boxes without a confidence, of an infinite key, are always one group.
    is_end = np.append(key[1:] != key[:-1], True)
    if ranked.ranking == "coco":
        is_end |= np.isfinite(key)
    # How many boxes there are up to the end of each group, of groups with a right box.
    ends = np.flatnonzero(is_end) + 1
    ends = ends[np.add.reduceat(hit, np.append(0, ends[:-1])) > 0]
    # Boxes after the last point play no part.
    used_boxes = int(ends[-1])
    # What each part of the images adds at each point, (points, parts), which is mostly nothing.
    point_and_part = np.searchsorted(ends, np.arange(used_boxes), side="right"), part[:used_boxes]
    shape = (len(ends), weights.shape[1])
    new_hits = csr_array((hit[:used_boxes], point_and_part), shape=shape)
    new_counts = csr_array((counts[:used_boxes], point_and_part), shape=shape)
    rows_at_once = max(1, _CELLS // used_boxes)
    for start in range(0, len(weights), rows_at_once):
        block_weights = weights[start : start + rows_at_once]
        # By rows, in which sums along a curve are as exact as they are fast.
        hits = np.ascontiguousarray((new_hits @ block_weights.T).cumsum(axis=0).T)
        boxes = np.ascontiguousarray((new_counts @ block_weights.T).cumsum(axis=0).T)
        yield block_weights, hits, boxes


#: False boxes per image at which sensitivity is read; the mean of the seven is the FROC score.
FROC_RATES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


def sensitivity_at_false_positives(
    ranked: RankedImages, rates: Sequence[float] = FROC_RATES, *, groups: Sequence[Any] | None = None, seed: int = 0
) -> Jackknifed:
    """The mean over some rates of the best sensitivity at IoU 0.5 with at most that many false boxes per image.

    Args:
        ranked: of :func:`rank_boxes`, all labels together; boxes that are all tied have no sensitivity at another rate
            than theirs.
        rates: numbers of false boxes per image.
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
        """The metric of the images under each row of weights, which say how often each part counts, ``(rows,)``."""
        best_hits = []
        for block_weights, hits, boxes in _read_curve(by_part, t, weights):
            false_rates = ratio(boxes - hits, (block_weights @ images_of_part)[:, None])
            # Both only grow along a curve: the best point is the last one within the rate; without any no box is right.
            for row_false_rates, row_hits in zip(false_rates, hits, strict=True):
                points_within = np.searchsorted(row_false_rates, rates, side="right")
                best_hits.append(np.append(0.0, row_hits)[points_within])
        # Without a right box there is no curve.
        hits_at_rates = np.array(best_hits) if best_hits else np.zeros((len(weights), len(rates)))
        return ratio_or_nan(hits_at_rates, (weights @ by_part.references)[:, None]).mean(axis=1)

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
    has_finding = np.array([not image.is_normal for image in images], dtype=bool)
    batch = PredictionBatch.of(images)
    score = np.full(len(images), np.nan)
    if batch.states_confidences:
        score = np.array([image.pred_scores.max(initial=-np.inf) for image in batch.answers])
    elif all(image.sampled_boxes for image in images):
        for k, image in enumerate(batch.answers):
            # Of the judged answer, then of each sampled one.
            has_box = [n > 0 for n in (len(image.pred), *image.sampled_boxes)]
            score[k] = sum(has_box) / len(has_box)
    parts = Parts.of(groups, len(images), seed)

    def areas(weights: Array) -> Array:
        """The area under the curve of the images in parts of a weight above 0, for each row of weights, ``(rows,)``."""
        kept_images = weights[:, parts.of_image] > 0
        return np.array(
            [_area_under_roc(score[kept & has_finding], score[kept & ~has_finding]) for kept in kept_images]
        )

    # The interval can rest on no more patients than the smaller of the two classes has.
    patient = group_numbers(groups, len(images))
    fewest_patients = min(len(np.unique(patient[has_finding])), len(np.unique(patient[~has_finding])))
    return jackknife(areas, parts)._replace(units=fewest_patients)


def _area_under_roc(positive: Array, negative: Array) -> float:
    """The share of pairs of a positive and a negative score in which the positive is greater; equal ones count half."""
    from scipy.stats import rankdata

    n = len(positive)
    # Equal scores share the mean of their ranks, from 1; a NaN makes all ranks NaN.
    ranks = rankdata(np.concatenate([positive, negative]))
    # Ranks of positives less those that they have among each other, 1 + … + n: how many negatives each is above.
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
    # A query names its finding; where the dataset names none, each image is one query.
    rule = "exact" if label_matching == "ignore" else label_matching
    if not _are_findings_named(images):
        rule = "ignore"
    named_images = [_with_query_label(image, rule) for image in images]
    ranked = rank_boxes(named_images, (0.5,), ranking="emission", label_matching=rule)
    sums = np.zeros((len(images), 2))
    for boxes in ranked.by_label.values():
        # The answers to the queries about one finding: the boxes of each image in a row, in the order of writing,
        # filled up with zeros.
        rank = _rank_within(boxes.image)
        hit, counts = np.zeros((2, len(images), int(rank.max(initial=-1)) + 1))
        hit[boxes.image, rank], counts[boxes.image, rank] = boxes.hit[0], boxes.counts[0]
        # P_k = Σ_{i ≤ k} hit_i / Σ_{i ≤ k} counts_i; AP = 1/m Σ_k P̃_k hit_k with m reference boxes of the finding, and
        # 0 on images without it, which have no such query.
        precision = ratio(hit.cumsum(axis=1), counts.cumsum(axis=1))
        sums[:, 0] += ratio(row_sums(precision_envelope(precision) * hit), boxes.references)
        sums[:, 1] += boxes.references > 0
    return sums


def _with_query_label(image: Prediction, label_matching: str) -> Prediction:
    """The image with its one finding's label for predicted boxes without one; unchanged if it has none or several."""
    gt_names = {label_name(label, label_matching) for label in image.gt_labels}
    if len(gt_names) != 1 or all(image.pred_labels):
        return image
    return replace(image, pred_labels=tuple(label or image.gt_labels[0] for label in image.pred_labels))


def _are_findings_named(images: Sequence[Prediction]) -> bool:
    """Whether each reference box has a label, and some have another than :data:`UNNAMED`, which stands for none."""
    names = {label_name(label, "exact") for image in images for label in image.gt_labels}
    return "" not in names and names != {UNNAMED}


#: At which IoU thresholds average precision is measured, beside COCO's mean over 0.5 to 0.95.
AP_THRESHOLDS = (0.5,)
# What makes a box right where the boxes of all labels are ranked together, by how labels are compared.
_RULES = {
    "ignore": "whatever their label",
    "exact": "each right only under the finding's label",
    "synonyms": "each right only under a synonym of the finding's label",
}


class RankingMetrics(NamedTuple):
    """The metrics of rankings that the answers allow.

    ranking: of average precision, `score` or `tied`.
    label_matching: how labels are compared, by the kind of average precision, with which its keys begin: `ap`, of all
        boxes together, and `map`, the mean over labels, where labels can be compared.
    iou_thresholds: of average precision, each a metric of its own.
    """

    ranking: str
    label_matching: dict[str, str]
    iou_thresholds: tuple[float, ...] = AP_THRESHOLDS

    @classmethod
    def of(
        cls,
        images: Sequence[Prediction],
        label_matching: str = "ignore",
        iou_thresholds: Sequence[float] = AP_THRESHOLDS,
    ) -> RankingMetrics:
        """The metrics that these images allow: by confidence if every box states one, by label if any box has one.

        Args:
            images: predictions, of one run or of several.
            label_matching: how labels are compared; mAP compares them in any case.
            iou_thresholds: of average precision, each in (0, 1].

        Example:
            >>> RankingMetrics.of([Prediction("a", 9, 9, pred=[[0, 0, 5, 5]])])[:2]
            ('tied', {'ap': 'ignore'})
        """
        ranking = "score" if PredictionBatch.of(images).states_confidences else "tied"
        matching_of_kinds = {"ap": label_matching}
        # mAP compares labels, which both sides have to state.
        if _are_findings_named(images) and any(label for image in images for label in image.pred_labels):
            matching_of_kinds["map"] = "synonyms" if label_matching == "synonyms" else "exact"
        return cls(ranking, matching_of_kinds, tuple(iou_thresholds))

    def metrics(self) -> dict[str, Metric]:
        """Every metric by key, such as `ap_50`.

        The `of` of a metric is a pair, from which :meth:`jackknifed` computes it: the kind, `ap`, `map` or `froc`; and
        what it is the mean over, IoU thresholds, or rates of false boxes of `froc`.

        Example:
            >>> RankingMetrics("tied", {"ap": "ignore"}).metrics()["ap_50"].heading
            'AP at IoU 0.5, boxes tied'
        """
        tie_note, order = ", boxes tied", "not every box has a stated confidence, so all are tied"
        if self.ranking == "score":
            tie_note, order = "", "in the order of stated confidences"
        together = f"all boxes together, {_RULES[self.label_matching['ap']]}"
        # By the end of the key, `50` for IoU 0.5.
        thresholds = {f"{100 * iou:g}": (iou,) for iou in self.iou_thresholds} | {"50_95": COCO_THRESHOLDS}
        metrics = {}
        for kind in self.label_matching:
            name, scope = ("AP", together) if kind == "ap" else ("mAP", "mean over labels")
            for key, ious in thresholds.items():
                iou_range = f"{ious[0]:g}" if len(ious) == 1 else f"{ious[0]:g} to {ious[-1]:g}"
                heading = f"{name} at IoU {iou_range}{tie_note}"
                metrics[f"{kind}_{key}"] = Metric(heading, f"average precision, {scope}; {order}", (kind, ious))
        # Tied boxes are one point of a curve, which has no sensitivity at other rates.
        if self.ranking == "score":
            definition = f"mean of the sensitivities at these rates of false boxes; {together}"
            metrics["froc"] = Metric("FROC score", definition, ("froc", FROC_RATES))
            definition = (
                "share of the reference boxes found at IoU 0.5 where that many false boxes per image are accepted"
            )
            # The FROC score is the mean over more rates than have a sensitivity of their own.
            for rate in FROC_RATES[:4]:
                heading = f"sensitivity at {rate:g} false boxes per image"
                metrics[f"sensitivity_{rate:g}"] = Metric(heading, definition, ("froc", (rate,)))
        return metrics

    def rank(self, images: Sequence[Prediction]) -> dict[str, RankedImages]:
        """By kind the ranking that average precision reads: `ap` all boxes together, `map` the boxes of each label.

        Example:
            >>> image = Prediction("a", 9, 9, gt=[[0, 0, 5, 5]], gt_labels=["x"])
            >>> list(RankingMetrics.of([image]).rank([image]))
            ['ap']
        """
        all_thresholds = sorted({*self.iou_thresholds, *COCO_THRESHOLDS})
        return {
            kind: rank_boxes(images, all_thresholds, ranking=self.ranking, label_matching=rule, together=kind == "ap")
            for kind, rule in self.label_matching.items()
        }

    def jackknifed(
        self, ranked: Mapping[str, RankedImages], *, groups: Sequence[Any] | None = None, seed: int = 0
    ) -> dict[str, Jackknifed]:
        """Every metric of :meth:`metrics` over the images and without each patient, by key.

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
            kind, averaged_over = metric.of
            if kind == "froc":
                # It reads the ranking of all boxes together.
                metrics[key] = sensitivity_at_false_positives(ranked["ap"], averaged_over, groups=groups, seed=seed)
            else:
                metrics[key] = mean_average_precision(ranked[kind], averaged_over, groups=groups, seed=seed)
        return metrics

"""Predicted boxes of all images in one ranking, each right, wrong or not counted: what AP and FROC are read from.

The rules are COCO's. Of one image and label the first ``max_detections`` boxes of the ranking are looked at; each takes
the free reference box with which it overlaps most, if the IoU reaches the threshold. A box that takes none and that an
ignored region covers (:mod:`grounding_rewards.matching`) does not count. pycocotools works on x, y, width,
height; where that loses the last bit of a coordinate, an IoU that equals a threshold may fall on the other side of it.

What COCO does not know, models that write boxes as text do:

* ``ranking="score"`` ranks by stated confidence. Boxes of equal confidence are one group, as models write the same one
  nearly everywhere; boxes without one come after all others, as one group.
* ``ranking="coco"`` is COCO's: boxes of equal confidence are taken one by one, in the order of the images. Shuffled,
  the same answers then have another AP.
* ``ranking="emission"`` ranks by the order in which the answer names the boxes: the first boxes of all images are one
  group, the second boxes the next.
* ``ranking="tied"`` takes all boxes as one group, which is one point on a curve and favours no order. Those that
  overlap a reference box most choose first, as in :func:`grounding_rewards.matching.greedy_match`.

A curve is read at the end of each group. Under all but ``"coco"`` nothing depends on the order of the images.

Broken boxes, which the parser rejects beside complete ones, are boxes that overlap nothing, as they are in the rewards.
An invalid box has area 0.

Sizes of boxes: parts of the image, or COCO's, in pixels of the image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import BoxBatch, box_area, positions
from grounding_rewards.common.numeric import Array
from grounding_rewards.common.validation import check_word
from grounding_rewards.labels import are_synonyms, normalize_label
from grounding_rewards.matching import covered_share, is_ignored
from grounding_rewards.metrics.answered_image import AnsweredImage, ImageBatch
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.rewards.label_matching import LABEL_MATCHING, LABEL_RULES, LabelCodes


class Area(NamedTuple):
    """A range of box sizes: ``of`` is `pixels`, or `image` for fractions of the image's area.

    In pixels both ends belong to the range, as in COCO; in fractions ``high`` does not, so that neighbouring ranges
    share no box.
    """

    low: float
    high: float
    of: str = "pixels"

    def holds(self, areas: Array, image_areas: Array) -> NDArray[np.bool_]:
        """Which boxes have a size in this range.

        Args:
            areas: of boxes, in pixels of the image.
            image_areas: of the image of each box, in pixels.

        Example:
            >>> Area(0, 0.01, "image").holds(np.array([50.0, 200.0]), np.array([10_000.0, 10_000.0]))
            array([ True, False])
        """
        sizes = areas / image_areas if self.of == "image" else areas
        below = sizes < self.high if self.of == "image" else sizes <= self.high
        return np.asarray((sizes >= self.low) & below, dtype=bool)


#: COCO's sizes. On an image of 2500 by 3000 pixels nearly every finding is `large`.
COCO_AREAS: dict[str, Area] = {
    "all": Area(0, 1e10),
    "small": Area(0, 32**2),
    "medium": Area(32**2, 96**2),
    "large": Area(96**2, 1e10),
}

#: Sizes that do not depend on how many pixels an image has.
IMAGE_AREAS: dict[str, Area] = {
    "small, below 1 % of the image": Area(0, 0.01, "image"),
    "medium, 1 % to 10 % of the image": Area(0.01, 0.1, "image"),
    "large, above 10 % of the image": Area(0.1, float("inf"), "image"),
}

Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

RANKINGS = ("score", "coco", "emission", "tied")

#: The IoU thresholds of COCO's mAP, 0.5 to 0.95.
COCO_THRESHOLDS = tuple(np.linspace(0.5, 0.95, 10).tolist())

# Cells of the IoU arrays that are worked on at once.
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
    """The predicted boxes of all images, ranked and matched once, for :mod:`.average_precision` and :mod:`.curves`.

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
            ValueError: labels were compared and ``label`` is None, or the other way round.
            KeyError: no box has the label.

        Example:
            >>> image = AnsweredImage("a", 100, 100, gt=[[0, 0, 10, 10]], gt_labels=["mass"])
            >>> rank_boxes([image], label_matching="exact").of_label("Mass").references
            array([1])
        """
        name = label_name(label, self.label_matching)
        if not name and (label is not None or self.label_matching != "ignore"):
            raise ValueError(
                f"Expected a label for `label` where labels are compared, and none where not, got {label!r} with "
                f"label_matching={self.label_matching!r}. Name a finding, or rank with another label_matching."
            )
        return self.by_label[name]

    def only(self, label: str | None) -> RankedImages:
        """The boxes of one label alone, see :meth:`of_label`."""
        return replace(self, by_label={"": self.of_label(label)})

    def threshold_index(self, iou_threshold: float) -> int:
        """Where an IoU threshold stands among those at which boxes were matched.

        Raises:
            ValueError: it is not among them.

        Example:
            >>> rank_boxes([], [0.3, 0.5]).threshold_index(0.5)
            1
        """
        (near,) = np.nonzero(np.abs(np.subtract(self.iou_thresholds, iou_threshold)) < 1e-9)
        if not len(near):
            raise ValueError(
                f"Expected one of {[round(one, 9) for one in self.iou_thresholds]} for the IoU threshold, got "
                f"{iou_threshold!r}. Name it in rank_boxes(images, iou_thresholds)."
            )
        return int(near[0])


def rank_boxes(
    images: Sequence[AnsweredImage],
    iou_thresholds: Sequence[float] = COCO_THRESHOLDS,
    *,
    ranking: str = "score",
    label_matching: str = "ignore",
    together: bool = False,
    area: Area | None = None,
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
        area: only reference boxes of this size; predicted boxes that match none of them and have another size, or
            match one of another size, don't count.
        max_detections: the highest-scoring boxes of an image and label that are looked at; under ``"emission"`` and
            ``"tied"`` those named first.

    Raises:
        ValueError: an argument is out of its range, or a reference box has no label although labels are compared.

    Example:
        >>> image = AnsweredImage("a", 100, 100, gt=[[0, 0, 10, 10]], gt_labels=["mass"],
        ...                     pred=[[50, 50, 60, 60], [0, 0, 10, 9]], pred_scores=[0.3, 0.8])
        >>> ranked = rank_boxes([image], [0.5]).of_label(None)
        >>> ranked.key, ranked.hit, ranked.references
        (array([-0.8, -0.3]), array([[ True, False]]), array([1]))

    Source: Lin et al., Microsoft COCO, ECCV 2014; https://cocodataset.org/#detection-eval.
    """
    if not len(iou_thresholds) or not all(0 < threshold <= 1 for threshold in iou_thresholds):
        raise ValueError(
            f"Expected numbers in (0, 1] for the IoU thresholds, got {list(iou_thresholds)!r}. The usual value is 0.5."
        )
    check_word("ranking", ranking, RANKINGS)
    check_word("label_matching", label_matching, LABEL_MATCHING)
    batch = ImageBatch.of(images)
    pred, gt = batch.pred, batch.gt
    divided_by = "ignore" if together else label_matching
    names, pred_label, gt_label = _numbered(batch.pred_labels, batch.gt_labels, divided_by)
    codes = None
    if label_matching == "synonyms" or (together and label_matching != "ignore"):
        codes = LabelCodes.of(batch.pred_labels, batch.gt_labels, label_matching)

    # An entry is an image and a label: image * labels + label. A predicted box without a label is in none.
    every = np.arange(len(batch))
    pred_image, gt_image = np.repeat(every, pred.counts), np.repeat(every, gt.counts)
    pred_entry, gt_entry = pred_image * len(names) + pred_label, gt_image * len(names) + gt_label
    stated = np.where(np.isnan(batch.pred_scores), np.inf, -batch.pred_scores)
    by_confidence = ranking in ("score", "coco")
    order = np.lexsort((stated if by_confidence else place_within(pred_image), pred_entry))
    order = order[pred_label[order] >= 0]
    place = place_within(pred_entry[order])
    order, place = order[place < max_detections], place[place < max_detections]
    gt_order = np.argsort(gt_entry, kind="stable")
    pred_entry, gt_entry = pred_entry[order], gt_entry[gt_order]
    entries = np.unique(np.concatenate([pred_entry, gt_entry]))

    image_areas = batch.sizes.prod(axis=1)
    area = area or Area(-np.inf, np.inf)
    of_size = area.holds(box_area(pred.flat), image_areas[pred_image])[order]
    wanted = area.holds(box_area(gt.flat), image_areas[gt_image])[gt_order]
    matched = _match_entries(
        BoxBatch(pred.flat[order], _counts(pred_entry, entries)),
        BoxBatch(gt.flat[gt_order], _counts(gt_entry, entries)),
        batch.ignore.take(entries // len(names)),
        wanted,
        None
        if codes is None
        else lambda rows, columns: codes.agree(codes.pred[order][rows], codes.gt[gt_order][columns]),
        np.minimum(np.asarray(iou_thresholds, dtype=np.float64), _ALMOST_ONE),
        most_overlap_first=ranking == "tied",
    )
    # COCO: a matched box counts if its reference box does, an unmatched one if its own size is in the range.
    hit = matched == _WANTED
    counts = hit | ((matched == _NOTHING) & of_size)
    keys = {"emission": place.astype(np.float64), "tied": np.zeros(len(order))}
    key = stated[order] if by_confidence else keys[ranking]
    by_label = {}
    for number, name in enumerate(names):
        own, asked = pred_entry % len(names) == number, (gt_entry % len(names) == number) & wanted
        references = np.bincount(gt_entry[asked] // len(names), minlength=len(batch))
        by_label[name] = RankedBoxes(
            pred_entry[own] // len(names), key[own], hit[:, own], counts[:, own], references, ranking
        )
    return RankedImages(by_label, len(batch), tuple(iou_thresholds), ranking, divided_by)


@lru_cache(maxsize=1 << 14)
def label_name(label: str | None, label_matching: str) -> str:
    """What a label is called where labels are compared; empty for none.

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
        return LABEL_RULES["exact"](label)[0]
    finding = normalize_label(label)
    # With its side for parts of the chest, where each side is a thing of its own.
    return finding.name if are_synonyms(finding.name, f"left {finding.name}") else finding.text


# What a predicted box is matched with: nothing, a reference box, or something that makes it not count.
_NOTHING, _WANTED, _UNWANTED = 0, 1, 2


def _numbered(
    pred: Sequence[str | None], gt: Sequence[str | None], label_matching: str
) -> tuple[list[str], Indices, Indices]:
    """The names of all labels, in the order of the alphabet, and of every box its number among them, -1 for none."""
    gt_names = [label_name(label, label_matching) for label in gt]
    pred_names = [label_name(label, label_matching) for label in pred]
    compared = label_matching != "ignore"
    if compared and not all(gt_names):
        raise ValueError(
            "Expected a label for every reference box for `images`, got a blank one. "
            'Name the finding, or use label_matching="ignore".'
        )
    names = sorted({*gt_names, *filter(None, pred_names)}) if compared else [""]
    number = {name: i for i, name in enumerate(names)}
    of_pred, of_gt = (
        np.array([number.get(one, -1) for one in side], dtype=np.int64) for side in (pred_names, gt_names)
    )
    return names, of_pred, of_gt


def place_within(entries: Indices) -> Indices:
    """How many equal values stand before each value of an array in which equal values stand together.

    Example:
        >>> place_within(np.array([3, 3, 7, 7, 7]))
        array([0, 1, 0, 1, 2])
    """
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
    order = np.lexsort(counts.T[::-1])
    changes = np.flatnonzero(np.diff(counts[order], axis=0).any(axis=1)) + 1
    for same in np.split(order, changes) if len(order) else ():
        yield from np.array_split(same, max(1, -(-len(same) * cells(*counts[same[0]].tolist()) // _CELLS)))


def _counts(ordered: Indices, entries: Indices) -> Indices:
    return np.searchsorted(ordered, entries, side="right") - np.searchsorted(ordered, entries, side="left")


def _match_entries(
    preds: BoxBatch,
    gts: BoxBatch,
    ignore: BoxBatch,
    wanted: Mask,
    agree: Callable[[Indices, Indices], Mask] | None,
    thresholds: Array,
    *,
    most_overlap_first: bool,
) -> NDArray[np.int8]:
    """What each predicted box is matched with at each threshold, ``(thresholds, n)``.

    Args:
        preds: the predicted boxes of all entries, in the order of the ranking.
        gts: the reference boxes of all entries.
        ignore: the regions of their images.
        wanted: which reference boxes count.
        agree: whose labels agree, by the places of predicted and of reference boxes; None where any do.
        thresholds: ``(t,)``.
        most_overlap_first: whether the boxes that overlap a reference box most choose first.
    """
    result = np.full((len(thresholds), len(preds.flat)), _NOTHING, dtype=np.int8)
    shapes = np.column_stack([preds.counts, gts.counts, ignore.counts])
    for rows in rows_of_one_shape(shapes, lambda n, m, k: n * (m + k)):
        b, (n, m, k) = len(rows), shapes[rows[0]].tolist()
        if not n or not m + k:
            continue
        pred, gt = positions(preds.counts, rows), positions(gts.counts, rows)
        boxes = preds.flat[pred].reshape(b, n, 4)
        iou = pairwise_iou(boxes, gts.flat[gt].reshape(b, m, 4))
        if agree is not None:
            iou = np.where(agree(pred.reshape(b, n, 1), gt.reshape(b, 1, m)), iou, 0.0)
        regions = ignore.take(rows).flat.reshape(b, k, 4)
        order = np.tile(np.arange(n), (b, 1))
        if most_overlap_first:
            order = np.argsort(-iou.max(axis=2, initial=0.0), axis=1, kind="stable")
        matched = _match(
            np.take_along_axis(iou, order[..., None], axis=1),
            np.take_along_axis(covered_share(boxes, regions), order, axis=1),
            wanted[gt].reshape(b, m),
            thresholds,
        )
        back = np.take_along_axis(matched, np.argsort(order, axis=1)[:, None, :], axis=2)
        result[:, pred] = np.swapaxes(back, 0, 1).reshape(len(thresholds), -1)
    return result


def _match(iou: Array, share: Array, wanted: Mask, thresholds: Array) -> NDArray[np.int8]:
    """COCO's matching of many entries of one shape.

    A wanted reference box comes before one that does not count and before an ignored region, of which the one with the
    larger overlap is chosen; a region can be chosen any number of times. Among equal IoUs the last reference box is
    taken.

    Args:
        iou: ``(b, n, m)``, predictions in the order in which they choose.
        share: ``(b, n)`` of each prediction in one ignored region.
        wanted: ``(b, m)`` whether the reference box counts.
        thresholds: ``(t,)``.

    Returns:
        ``(b, t, n)`` what each prediction is matched with.
    """
    b, n, _ = iou.shape
    wanted = wanted[:, None, :]
    taken = np.zeros((b, len(thresholds), iou.shape[2]), dtype=bool)
    matched = np.full((b, len(thresholds), n), _NOTHING, dtype=np.int8)
    for i in range(n):
        own, covered = iou[:, None, i], share[:, None, i]
        free = (own >= thresholds[:, None]) & ~taken
        hit = np.asarray((free & wanted).any(axis=2))
        pool = np.where(hit[..., None], free & wanted, free)
        best = np.where(pool, own, -1.0).max(axis=2, initial=-1.0)
        equal = pool & (own == best[..., None])
        chosen = equal & (equal[..., ::-1].cumsum(axis=2)[..., ::-1] == 1)
        ignored = is_ignored(covered, hit, thresholds)
        taken |= chosen & ~(ignored & (covered >= best))[..., None]
        matched[..., i] = np.where(hit, _WANTED, np.where(ignored | chosen.any(axis=2), _UNWANTED, _NOTHING))
    return matched

"""What became of every box: right, of the wrong label, in the wrong place; found or missed.

The same rule as that of the metrics, box by box: a predicted box is right if it is a hit at the threshold under the
rule for labels that the evaluation follows. A box that would be right but for its label is of the wrong label, and so
is the reference box in its place: it was not missed but called something else. Under ``label_matching="ignore"`` no box
is of the wrong label, because no label counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import BoxBatch
from grounding_rewards.common.arithmetic import Array
from grounding_rewards.matching import match_batch
from grounding_rewards.metrics.answered_image import UNNAMED, AnsweredImage
from grounding_rewards.metrics.counts import MatchedImages
from grounding_rewards.metrics.ranking import label_name
from grounding_rewards.overlap import pairwise_iou

#: Outcomes of a predicted box.
RIGHT, WRONG_LABEL, WRONG_PLACE, IGNORED = "right", "wrong label", "wrong place", "ignored"
#: Outcomes of a reference box; the third is :data:`WRONG_LABEL`.
FOUND, MISSED = "found", "missed"

#: From which IoU on a box is right on pages.
IOU_THRESHOLD = 0.5


class BoxOutcomes(NamedTuple):
    """Of one image with n predicted and m reference boxes.

    pred: n outcomes.
    gt: m outcomes.
    pred_ious: ``(n,)`` IoU with the reference box that the outcome is about; of a box in the wrong place the largest
        with any.
    gt_ious: ``(m,)`` likewise with a predicted box.
    labels: n labels of the reference box in whose place a box of the wrong label lies, else None.
    renamed: n labels of the reference box that a right box calls something else, where no label counts, else None.
    """

    pred: tuple[str, ...]
    gt: tuple[str, ...]
    pred_ious: Array
    gt_ious: Array
    labels: tuple[str | None, ...]
    renamed: tuple[str | None, ...]


def box_outcomes(image: AnsweredImage, label_matching: str = "ignore") -> BoxOutcomes:
    """What became of every box of an image at :data:`IOU_THRESHOLD`.

    Args:
        image: with its answer.
        label_matching: ``"ignore"``, ``"exact"`` or ``"synonyms"``: whether a box is right only under the finding's
            label.

    Example:
        Both lungs are called left.

        >>> lungs = [[0, 0, 40, 90], [60, 0, 100, 90]]
        >>> image = AnsweredImage("a", 100, 100, gt=lungs, gt_labels=["right lung", "left lung"],
        ...                     pred=lungs, pred_labels=["left lung", "left lung"])
        >>> box_outcomes(image, "exact")[:2]
        (('wrong label', 'right'), ('wrong label', 'found'))
        >>> box_outcomes(image)[:2]
        (('right', 'right'), ('found', 'found'))
    """
    return outcomes_of(MatchedImages([image], label_matching))[0]


def outcomes_of(matched: MatchedImages) -> list[BoxOutcomes]:
    """:func:`box_outcomes` of many images, matched together, which is faster.

    Example:
        >>> image = AnsweredImage("a", 9, 9, gt=[[0, 0, 4, 4]], gt_labels=["mass"])
        >>> [outcomes.gt for outcomes in outcomes_of(MatchedImages([image, image]))]
        [('missed',), ('missed',)]
    """
    compared = matched.label_matching != "ignore"
    return [
        _outcomes(image, right, counted, iou, compared)
        for (image, right, counted), iou in zip(
            matched.by_image(IOU_THRESHOLD), _ious_of_images(matched.images), strict=True
        )
    ]


def _ious_of_images(images: Sequence[AnsweredImage]) -> list[Array]:
    """``pairwise_iou(pred, gt)`` of every image."""
    pred, gt = (BoxBatch.of([getattr(image, name) for image in images], name) for name in ("pred", "gt"))
    pairs = pred.counts * gt.counts
    # Every pair of boxes of one image: no image has to be padded to the longest.
    image = np.repeat(np.arange(len(images)), pairs)
    place = np.arange(len(image)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    i, j = np.divmod(place, gt.counts[image])
    first_pred, first_gt = (np.cumsum(batch.counts) - batch.counts for batch in (pred, gt))
    one, other = pred.flat[first_pred[image] + i], gt.flat[first_gt[image] + j]
    flat = pairwise_iou(one[:, None], other[:, None]).reshape(-1)
    return [
        part.reshape(n, m)
        for part, n, m in zip(np.split(flat, np.cumsum(pairs))[:-1], pred.counts, gt.counts, strict=True)
    ]


def _outcomes(
    image: AnsweredImage, right: NDArray[np.int64], counted: NDArray[np.bool_], iou: Array, compared: bool
) -> BoxOutcomes:
    """Of an image whose predicted boxes are right about these reference boxes, -1 for none.

    Args:
        image: with its answer.
        right: ``(n,)``.
        counted: ``(n,)`` whether the box counts.
        iou: ``(n, m)``.
        compared: whether labels are.
    """
    mislabelled = _mislabelled(right, counted, iou) if compared else np.full(len(right), -1)
    pred = np.where(
        right >= 0, RIGHT, np.where(~counted, IGNORED, np.where(mislabelled >= 0, WRONG_LABEL, WRONG_PLACE))
    )
    gt = np.full(len(image.gt), MISSED, dtype=object)
    gt[mislabelled[mislabelled >= 0]] = WRONG_LABEL
    gt[right[right >= 0]] = FOUND
    partners = np.maximum(right, mislabelled)
    pred_ious, gt_ious = iou.max(axis=1, initial=0.0), iou.max(axis=0, initial=0.0)
    (paired,) = np.nonzero(partners >= 0)
    pred_ious[paired] = gt_ious[partners[paired]] = iou[paired, partners[paired]]
    return BoxOutcomes(
        tuple(pred.tolist()),
        tuple(gt.tolist()),
        pred_ious,
        gt_ious,
        tuple(None if place < 0 else image.gt_labels[place] for place in mislabelled.tolist()),
        tuple(None if compared else _renamed(image, i, place) for i, place in enumerate(right.tolist())),
    )


def _mislabelled(right: NDArray[np.int64], counted: NDArray[np.bool_], iou: Array) -> NDArray[np.int64]:
    """Of what is left over, boxes that would be right if labels played no part: the reference box, or -1."""
    left = ((right < 0) & counted)[:, None] & ~np.isin(np.arange(iou.shape[1]), right)
    free = np.where(left, iou, 0.0)
    if not (free >= IOU_THRESHOLD).any():
        return np.full(len(right), -1)
    return match_batch(free[None], IOU_THRESHOLD, matching="most_hits")[0]


def _renamed(image: AnsweredImage, i: int, place: int) -> str | None:
    stated = image.pred_labels[i]
    if place < 0 or not stated or image.gt_labels[place] == UNNAMED:
        return None
    name = image.gt_labels[place]
    return name if label_name(stated, "exact") != label_name(name, "exact") else None

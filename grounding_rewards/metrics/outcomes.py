"""The outcome of every box: right, of the wrong label, in the wrong place; found or missed.

The same rule as that of the metrics, box by box: a predicted box is right if it is a hit at the threshold under the
rule for labels that the evaluation follows. A box that would be right but for its label is of the wrong label, and so
is the reference box in its place: it was not missed but called something else. Under ``label_matching="ignore"`` no box
is of the wrong label, because no label counts.

Beside it stands how that is written on pages. The metrics that count such boxes over all images, such as precision, are
in :data:`grounding_rewards.metrics.detection.DETECTION_METRICS`.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.common.numeric import Array
from grounding_rewards.matching import match_batch
from grounding_rewards.metrics.detection import MatchedImages
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.overlap import pairwise_iou

#: Outcomes of a predicted box.
RIGHT, WRONG_LABEL, WRONG_PLACE, IGNORED = "right", "wrong label", "wrong place", "ignored"
#: Outcomes of a reference box; the third is :data:`WRONG_LABEL`.
FOUND, MISSED = "found", "missed"

#: From which IoU on a box is right on pages.
IOU_THRESHOLD = 0.5


class BoxOutcomes(NamedTuple):
    """Outcomes of the boxes of one image with n predicted and m reference boxes.

    pred: n outcomes.
    gt: m outcomes.
    pred_ious: ``(n,)`` IoU with the reference box that the outcome is about; of a box in the wrong place the largest
        IoU with any reference box.
    gt_ious: ``(m,)`` IoU with the predicted box that the outcome is about; of a missed box the largest with any.
    other_labels: n labels of the reference box that a predicted box of the wrong label lies on, else None.
    """

    pred: tuple[str, ...]
    gt: tuple[str, ...]
    pred_ious: Array
    gt_ious: Array
    other_labels: tuple[str | None, ...]


def box_outcomes(image: Prediction, label_matching: str = "ignore") -> BoxOutcomes:
    """Outcome of every box of an image at :data:`IOU_THRESHOLD`.

    Args:
        image: with its answer.
        label_matching: ``"ignore"``, ``"exact"`` or ``"synonyms"``: whether a box is right only under the finding's
            label.

    Example:
        Both lungs are called left.

        >>> lungs = [[0, 0, 40, 90], [60, 0, 100, 90]]
        >>> image = Prediction("a", 100, 100, gt=lungs, gt_labels=["right lung", "left lung"],
        ...                     pred=lungs, pred_labels=["left lung", "left lung"])
        >>> box_outcomes(image, "exact")[:2]
        (('wrong label', 'right'), ('wrong label', 'found'))
        >>> box_outcomes(image)[:2]
        (('right', 'right'), ('found', 'found'))
    """
    return outcomes_of(MatchedImages([image], label_matching))[0]


def outcomes_of(matched: MatchedImages) -> list[BoxOutcomes]:
    """:func:`box_outcomes` of each of many images, which were matched together, as that is faster.

    Example:
        >>> image = Prediction("a", 9, 9, gt=[[0, 0, 4, 4]], gt_labels=["mass"])
        >>> [outcomes.gt for outcomes in outcomes_of(MatchedImages([image, image]))]
        [('missed',), ('missed',)]
    """
    outcomes = []
    for image, partners, counts in matched.by_image(IOU_THRESHOLD):
        iou = pairwise_iou(image.pred, image.gt)
        # For each predicted box the reference box that it would match but for its label; -1, as in `partners`, is none.
        mislabelled = np.full(len(partners), -1)
        if matched.label_matching != "ignore":
            mislabelled = _mislabelled_references(partners, counts, iou)
        # What holds later takes the place of what holds before.
        pred = np.full(len(partners), WRONG_PLACE, dtype=object)
        pred[mislabelled >= 0] = WRONG_LABEL
        pred[~counts] = IGNORED
        pred[partners >= 0] = RIGHT
        gt = np.full(len(image.gt), MISSED, dtype=object)
        gt[mislabelled[mislabelled >= 0]] = WRONG_LABEL
        gt[partners[partners >= 0]] = FOUND
        # The largest IoU of each box with any other, then that with the partner, right or of the wrong label, if it has
        # one: a predicted box has one of the two at most, and the other is -1.
        pred_ious, gt_ious = iou.max(axis=1, initial=0.0), iou.max(axis=0, initial=0.0)
        references = np.maximum(partners, mislabelled)
        (paired,) = np.nonzero(references >= 0)
        pred_ious[paired] = gt_ious[references[paired]] = iou[paired, references[paired]]
        other_labels = [None if index < 0 else image.gt_labels[index] for index in mislabelled.tolist()]
        outcomes.append(BoxOutcomes(tuple(pred), tuple(gt), pred_ious, gt_ious, tuple(other_labels)))
    return outcomes


def _mislabelled_references(partners: NDArray[np.int64], counts: NDArray[np.bool_], iou: Array) -> NDArray[np.int64]:
    """The reference box that each predicted box without a partner would match if labels played no part.

    Args:
        partners: ``(n,)`` index of the reference box that each predicted box matches, -1 for none.
        counts: ``(n,)`` which predicted boxes count: not the ignored ones.
        iou: ``(n, m)`` of every pair.

    Returns:
        ``(n,)`` indices as of `partners`, -1 for none.
    """
    # Only pairs of boxes that both have no partner are left.
    is_free = ((partners < 0) & counts)[:, None] & ~np.isin(np.arange(iou.shape[1]), partners)
    free_iou = np.where(is_free, iou, 0.0)
    if not (free_iou >= IOU_THRESHOLD).any():
        # So it is on nearly all images, which need no assignment then.
        return np.full(len(partners), -1)
    # A batch of one image.
    return match_batch(free_iou[None], IOU_THRESHOLD, matching="most_hits")[0]


#: Boxes of an answer that are drawn.
MOST_BOXES = 50


def format_iou(iou: float) -> str:
    """An IoU in two digits, cut and not rounded, so that none below a threshold reads as if it reached it.

    Example:
        >>> [format_iou(iou) for iou in (0.8, 0.503, 0.497, 0.49996, 0.5)]
        ['0.80', '0.50', '0.49', '0.49', '0.50']
    """
    # 0.29 is stored as a little less than that.
    return f"{math.floor(100 * iou + 1e-9) / 100:.2f}"


def image_summary(image: Prediction, outcomes: BoxOutcomes) -> str:
    """The outcomes of the boxes of an image, in one line.

    Example:
        >>> from grounding_rewards.metrics.outcomes import box_outcomes
        >>> image = Prediction("a", 9, 9, gt=[[0, 0, 4, 4]], gt_labels=["mass"], pred=[[0, 0, 4, 4], [5, 5, 9, 9]])
        >>> image_summary(image, box_outcomes(image))
        '1 of 1 found, 1 in the wrong place'
    """
    # Broken boxes count as false ones, and have no outcome.
    broken = len(image.broken)
    summary = "unparseable, " if image.status == "unparseable" else ""
    if image.is_normal:
        false_boxes = len(image.pred) - outcomes.pred.count(IGNORED) + broken
        return f"{summary}normal image, " + (f"{false_boxes} hallucinated" if false_boxes else "no box")
    summary += f"{outcomes.pred.count(RIGHT)} of {len(image.gt)} found"
    counts = {
        "under a wrong label": outcomes.pred.count(WRONG_LABEL),
        "in the wrong place": outcomes.pred.count(WRONG_PLACE),
        "missed": outcomes.gt.count(MISSED),
        "broken": broken,
    }
    return summary + "".join(f", {count} {outcome}" for outcome, count in counts.items() if count)


def drawn_answer(image: Prediction, outcomes: BoxOutcomes) -> list[tuple[Any, ...]]:
    """The drawn boxes of an image: regions to ignore, reference boxes and predicted ones, see :func:`drawn_boxes`.

    Example:
        >>> from grounding_rewards.metrics.outcomes import box_outcomes
        >>> image = Prediction("a", 9, 9, gt=[[0, 0, 4, 4]], gt_labels=["mass"], pred=[[0, 0, 4, 4]])
        >>> [(kind, outcome) for _, kind, _, outcome in drawn_answer(image, box_outcomes(image))]
        [('reference', 'found'), ('predicted', 'right')]
    """
    return [
        *drawn_boxes(image.ignore, "ignored", [""] * len(image.ignore)),
        *drawn_boxes(image.gt, "reference", image.gt_labels, outcomes.gt),
        *drawn_boxes(image.pred, "predicted", image.pred_labels, outcomes.pred),
    ]


def drawn_boxes(
    boxes: Array, kind: str, labels: Sequence[str | None], *outcomes: Sequence[str]
) -> list[tuple[Any, ...]]:
    """The boxes that can be drawn, those with an area among the first :data:`MOST_BOXES`.

    Args:
        boxes: ``(n, 4)``; of too many boxes a picture shows nothing, so that those after the first are left out.
        kind: what all of them are: `ignored`, `reference` or `predicted`.
        labels: n labels, None for a box without one.
        outcomes: at most one sequence, the n outcomes of the boxes; regions to ignore have none.

    Returns:
        For each box its corners, its kind, its label, empty for none, and its outcome if it has one.

    Example:
        >>> import numpy as np
        >>> drawn_boxes(np.array([[0.0, 0, 4, 4], [5, 5, 5, 9]]), "predicted", ["mass", None], ["right", "wrong place"])
        [([0.0, 0.0, 4.0, 4.0], 'predicted', 'mass', 'right')]
    """
    drawn: list[tuple[Any, ...]] = []
    for k, box in enumerate(boxes[:MOST_BOXES].tolist()):
        x1, y1, x2, y2 = box
        # Answers may have boxes without an area, which no picture shows.
        if all(map(math.isfinite, box)) and x1 < x2 and y1 < y2:
            drawn.append((box, kind, labels[k] or "", *(column[k] for column in outcomes)))
    return drawn

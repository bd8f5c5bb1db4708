"""Which label answers give to the findings of each label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.labels import are_synonyms
from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.counts import MatchedImages
from grounding_rewards.metrics.ranking import label_name

ANOTHER_LABEL, NO_LABEL, NOTHING = "another label", "no label", "nothing"


class Confusion(NamedTuple):
    """``counts[i, j]`` reference boxes of label ``gt[i]`` are paired with a predicted box of label ``pred[j]``.

    The last row, ``nothing``, counts predicted boxes that no reference box was paired with; the last column,
    ``nothing``, reference boxes that no predicted box was paired with.
    """

    gt: Sequence[str]
    pred: Sequence[str]
    counts: NDArray[np.int64]


def confusion(images: Sequence[AnsweredImage], *, iou_threshold: float = 0.5, synonyms: bool = False) -> Confusion:
    """Count labels of reference boxes against those of the predicted boxes that they are paired with.

    Boxes are paired from the threshold on, whatever their labels: as many as there can be. The labels are those of the
    reference boxes, the most frequent first, without regard to case and white space. Any other label of a predicted
    box is counted as :data:`ANOTHER_LABEL`, and a predicted box without a label as :data:`NO_LABEL`.

    Args:
        images: answered images.
        iou_threshold: IoU from which two boxes are a pair.
        synonyms: whether a predicted label may be another word for the finding
            (:func:`grounding_rewards.labels.are_synonyms`).

    Returns:
        ``gt`` are the labels and :data:`NOTHING`; ``pred`` the labels, :data:`ANOTHER_LABEL` and :data:`NO_LABEL`
        where they occur, and :data:`NOTHING`; ``counts`` is ``(len(gt), len(pred))``.

    Example:
        >>> image = AnsweredImage("a", 99, 99, gt=[[0, 0, 9, 9], [50, 50, 60, 60]], gt_labels=["mass", "nodule"],
        ...                     pred=[[0, 0, 9, 9]], pred_labels=["Nodule"])
        >>> found = confusion([image])
        >>> found.gt, found.pred
        (('mass', 'nodule', 'nothing'), ('mass', 'nodule', 'nothing'))
        >>> found.counts
        array([[0, 1, 0],
               [0, 0, 1],
               [0, 0, 0]])
    """
    labels = tuple(
        name for name, _ in Counter(_plain(one) for image in images for one in image.gt_labels).most_common()
    )
    columns: dict[tuple[str | None, str | None], str] = {}
    cells: Counter[tuple[str, str]] = Counter()
    for image, matched, counted in MatchedImages(images).by_image(iou_threshold):
        found = matched.tolist()
        partner_labels = [None if gt < 0 else _plain(image.gt_labels[gt]) for gt in found]
        for place, label in enumerate(image.gt_labels):
            if place not in found:
                cells[_plain(label), NOTHING] += 1
        for pred, gt, counts in zip(image.pred_labels, partner_labels, counted, strict=True):
            if counts:
                if (pred, gt) not in columns:
                    columns[pred, gt] = _column(pred, gt, labels, synonyms)
                cells[NOTHING if gt is None else gt, columns[pred, gt]] += 1
    extras = (ANOTHER_LABEL, NO_LABEL)
    names = (*labels, *(extra for extra in extras if extra in columns.values()), NOTHING)
    rows = (*labels, NOTHING)
    counts = np.array([[cells[row, name] for name in names] for row in rows], dtype=np.int64)
    return Confusion(rows, names, counts)


def _column(pred: str | None, gt: str | None, labels: Sequence[str], synonyms: bool) -> str:
    """The column of a predicted label; of several reference labels that agree with it, that of its partner, if any."""
    text = _plain(pred)
    if not text:
        return NO_LABEL
    if text in labels:
        first = text
    elif synonyms:
        first = next((label for label in labels if are_synonyms(text, label)), ANOTHER_LABEL)
    else:
        return ANOTHER_LABEL
    return gt if synonyms and gt is not None and are_synonyms(text, gt) else first


def _plain(label: str | None) -> str:
    return label_name(label, "exact")

"""What became of every box: right, of the wrong label, in the wrong place; found or missed.

The same rule as that of the figures, box by box: a predicted box is right if it is a hit at the threshold under the
rule for labels that the evaluation follows. A box that would be right but for its label is of the wrong label, and so
is the reference box in its place: it was not missed but called something else. Under ``label_matching="ignore"`` no box
is of the wrong label, because no label counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from grounding_rewards.arithmetic import Array
from grounding_rewards.matching import match_batch
from grounding_rewards.metrics.answered_film import UNNAMED, AnsweredFilm
from grounding_rewards.metrics.pairing import pair_film
from grounding_rewards.metrics.ranking import label_name
from grounding_rewards.overlap import pairwise_iou

#: Outcomes of a predicted box.
RIGHT, WRONG_LABEL, WRONG_PLACE, IGNORED = "right", "wrong label", "wrong place", "ignored"
#: Outcomes of a reference box; the third is :data:`WRONG_LABEL`.
FOUND, MISSED = "found", "missed"

#: From which IoU on a box is right on pages.
IOU_THRESHOLD = 0.5


class BoxOutcomes(NamedTuple):
    """Of one film with n predicted and m reference boxes.

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


def box_outcomes(film: AnsweredFilm, label_matching: str = "ignore") -> BoxOutcomes:
    """What became of every box of a film at :data:`IOU_THRESHOLD`.

    Args:
        film: with its answer.
        label_matching: ``"ignore"``, ``"exact"`` or ``"synonyms"``: whether a box is right only under the finding's
            label.

    Example:
        Both lungs are called left.

        >>> lungs = [[0, 0, 40, 90], [60, 0, 100, 90]]
        >>> film = AnsweredFilm("a", 100, 100, gt=lungs, gt_labels=["right lung", "left lung"],
        ...                     pred=lungs, pred_labels=["left lung", "left lung"])
        >>> box_outcomes(film, "exact")[:2]
        (('wrong label', 'right'), ('wrong label', 'found'))
        >>> box_outcomes(film)[:2]
        (('right', 'right'), ('found', 'found'))
    """
    pairs = pair_film(film, label_matching)
    right = pairs.found(IOU_THRESHOLD)
    ignored = ~pairs.counted(IOU_THRESHOLD)
    if label_matching == "ignore":
        iou, mislabelled = pairs.overlaps, np.full(len(film.pred), -1)
    else:
        # Of what is left over, boxes that would be right if labels played no part.
        iou = pairwise_iou(film.pred, film.gt)
        left = ((right < 0) & ~ignored)[:, None] & ~np.isin(np.arange(len(film.gt)), right)
        mislabelled = match_batch(np.where(left, iou, 0.0)[None], IOU_THRESHOLD, matching="most_hits")[0]

    pred = np.where(right >= 0, RIGHT, np.where(ignored, IGNORED, np.where(mislabelled >= 0, WRONG_LABEL, WRONG_PLACE)))
    gt = np.full(len(film.gt), MISSED, dtype=object)
    gt[mislabelled[mislabelled >= 0]] = WRONG_LABEL
    gt[right[right >= 0]] = FOUND
    partners = np.maximum(right, mislabelled)
    pred_ious, gt_ious = iou.max(axis=1, initial=0.0), iou.max(axis=0, initial=0.0)
    (paired,) = np.nonzero(partners >= 0)
    pred_ious[paired] = gt_ious[partners[paired]] = iou[paired, partners[paired]]
    return BoxOutcomes(
        tuple(map(str, pred)),
        tuple(map(str, gt)),
        pred_ious,
        gt_ious,
        tuple(None if place < 0 else film.gt_labels[place] for place in mislabelled),
        tuple(_renamed(film, i, place) if label_matching == "ignore" else None for i, place in enumerate(right)),
    )


def _renamed(film: AnsweredFilm, i: int, place: int) -> str | None:
    stated = film.pred_labels[i]
    if place < 0 or not stated or film.gt_labels[place] == UNNAMED:
        return None
    name = film.gt_labels[place]
    return name if label_name(stated, "exact") != label_name(name, "exact") else None

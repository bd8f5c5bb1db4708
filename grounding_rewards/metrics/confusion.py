"""Which label was said where which was true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from grounding_rewards.labels import are_synonyms
from grounding_rewards.metrics.answered_film import AnsweredFilm
from grounding_rewards.metrics.pairing import pair_film
from grounding_rewards.metrics.parts import Confusion
from grounding_rewards.metrics.ranking import label_name

ANOTHER_LABEL, NO_LABEL, NOTHING = "another label", "no label", "nothing"


def confusion(films: Sequence[AnsweredFilm], *, iou_threshold: float = 0.5, synonyms: bool = False) -> Confusion:
    """Count labels of reference boxes against those of the predicted boxes that they are paired with.

    Boxes are paired whatever their labels, and count as paired from the threshold on. The labels are those of the
    reference boxes, the most frequent first, without regard to case and white space. What the answers say beside
    them is counted as :data:`ANOTHER_LABEL`, and boxes without a label as :data:`NO_LABEL`.

    Args:
        films: answered films.
        iou_threshold: IoU from which two boxes are a pair.
        synonyms: whether a predicted label may be another word for the finding
            (:func:`grounding_rewards.labels.are_synonyms`).

    Returns:
        ``true`` are the labels and :data:`NOTHING`; ``said`` the labels, :data:`ANOTHER_LABEL` and :data:`NO_LABEL`
        where they occur, and :data:`NOTHING`; ``counts`` is ``(len(true), len(said))``.

    Example:
        >>> film = AnsweredFilm("a", 99, 99, gt=[[0, 0, 9, 9], [50, 50, 60, 60]], gt_labels=["mass", "nodule"],
        ...                     pred=[[0, 0, 9, 9]], pred_labels=["Nodule"])
        >>> found = confusion([film])
        >>> found.true, found.said
        (('mass', 'nodule', 'nothing'), ('mass', 'nodule', 'nothing'))
        >>> found.counts
        array([[0, 1, 0],
               [0, 0, 1],
               [0, 0, 0]])
    """
    labels = tuple(name for name, _ in Counter(_plain(one) for film in films for one in film.gt_labels).most_common())
    said_names: dict[tuple[str | None, str | None], str] = {}
    cells: Counter[tuple[str, str]] = Counter()
    for film in films:
        pairs = pair_film(film)
        hits = pairs.hits(iou_threshold)
        true_of: list[str | None] = [None] * len(film.pred)
        for label, hit, partner in zip(film.gt_labels, hits, pairs.partners.tolist(), strict=True):
            if hit:
                true_of[partner] = _plain(label)
            else:
                cells[_plain(label), NOTHING] += 1
        counted = pairs.counted(iou_threshold)
        for said, true, counts in zip(film.pred_labels, true_of, counted, strict=True):
            if counts:
                if (said, true) not in said_names:
                    said_names[said, true] = _said_name(said, true, labels, synonyms)
                cells[NOTHING if true is None else true, said_names[said, true]] += 1
    columns = {name for _, name in cells}
    names = (*labels, *(extra for extra in (ANOTHER_LABEL, NO_LABEL) if extra in columns), NOTHING)
    rows = (*labels, NOTHING)
    counts = np.array([[cells[row, name] for name in names] for row in rows], dtype=np.int64)
    return Confusion(rows, names, counts)


def _said_name(said: str | None, true: str | None, labels: Sequence[str], synonyms: bool) -> str:
    """The column of a predicted label; where several reference labels agree with it, the true one goes first."""
    text = _plain(said)
    if not text:
        return NO_LABEL
    if text in labels:
        first = text
    elif synonyms:
        agreeing = [label for label in labels if are_synonyms(text, label)]
        first = next(iter(agreeing), ANOTHER_LABEL)
    else:
        return ANOTHER_LABEL
    return true if synonyms and true is not None and are_synonyms(text, true) else first


def _plain(label: str | None) -> str:
    return label_name(label, "exact")

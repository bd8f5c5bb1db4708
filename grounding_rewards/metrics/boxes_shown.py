"""How boxes are shown, on pages and during a training: what became of them, and IoUs with as many digits as needed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from grounding_rewards.arithmetic import Array
from grounding_rewards.metrics.answered_film import AnsweredFilm
from grounding_rewards.metrics.outcomes import IGNORED, MISSED, RIGHT, WRONG_LABEL, WRONG_PLACE, BoxOutcomes

#: IoUs that decide whether a box is right in some figure.
THRESHOLDS = (0.3, 0.5, 0.75)
#: Boxes of an answer that are drawn.
MOST_BOXES = 50
_NEAR = 0.01
_MOST_DIGITS = 6

_FRONTAL = re.compile(r"\b(pa|ap|frontal|(postero|antero)[ -]?(anterior|posterior))\b", re.IGNORECASE)
_SIDE = re.compile(r"\b(left|right)\b", re.IGNORECASE)


def format_iou(iou: float) -> str:
    """Two digits, three near a threshold, and more where fewer would put the value on the wrong side of it.

    Example:
        >>> [format_iou(iou) for iou in (0.8, 0.503, 0.497, 0.49996, 0.5)]
        ['0.80', '0.503', '0.497', '0.49996', '0.500']
    """
    near = next((at for at in THRESHOLDS if abs(iou - at) < _NEAR), None)
    if near is None:
        return f"{iou:.2f}"
    digits = range(3, _MOST_DIGITS)
    return next((f"{iou:.{n}f}" for n in digits if (float(f"{iou:.{n}f}") >= near) == (iou >= near)), repr(iou))


def has_sides(film: AnsweredFilm) -> bool:
    """Whether the patient's right is known to lie on the left of the picture, so that sides may be marked on it.

    A frontal film has sides; so does one whose findings are named by side. A film from the side has none, and of a film
    of unknown view nothing is said.

    Example:
        >>> [has_sides(AnsweredFilm("a", 9, 9, view=view)) for view in ("PA", "AP SUPINE", "LATERAL", None)]
        [True, True, False, False]
        >>> has_sides(AnsweredFilm("a", 9, 9, gt=[[0, 0, 4, 4]], gt_labels=["left lung"]))
        True
    """
    if film.view is not None:
        return _FRONTAL.search(film.view) is not None
    return any(_SIDE.search(label) for label in (*film.gt_labels, *film.pred_labels) if label)


def broken_count(film: AnsweredFilm) -> int:
    """How many boxes of the answer are broken: they count, and can't be drawn.

    Example:
        >>> from grounding_rewards.parsing import BrokenBox
        >>> broken_count(AnsweredFilm("a", 9, 9, pred=[[0, 0, 4, 4]], broken=[BrokenBox(1)]))
        1
    """
    return len(film.broken)


def film_summary(film: AnsweredFilm, outcomes: BoxOutcomes) -> str:
    """What became of the boxes of a film, in one line.

    Example:
        >>> from grounding_rewards.metrics.outcomes import box_outcomes
        >>> film = AnsweredFilm("a", 9, 9, gt=[[0, 0, 4, 4]], gt_labels=["mass"], pred=[[0, 0, 4, 4], [5, 5, 9, 9]])
        >>> film_summary(film, box_outcomes(film))
        '1 of 1 found, 1 in the wrong place'
    """
    return ", ".join(_parts(film, outcomes))


def _parts(film: AnsweredFilm, outcomes: BoxOutcomes) -> Iterator[str]:
    broken = broken_count(film)
    if film.status == "unparseable":
        yield "unparseable"
    if film.is_normal:
        yield "normal film"
        counted = len(film.pred) - outcomes.pred.count(IGNORED) + broken
        yield f"{counted} hallucinated" if counted else "no box"
        return
    yield f"{outcomes.pred.count(RIGHT)} of {len(film.gt)} found"
    for count, what in (
        (sum(name is not None for name in outcomes.renamed), "of them under another label"),
        (outcomes.pred.count(WRONG_LABEL), "under a wrong label"),
        (outcomes.pred.count(WRONG_PLACE), "in the wrong place"),
        (outcomes.gt.count(MISSED), "missed"),
        (broken, "broken"),
    ):
        if count:
            yield f"{count} {what}"


def drawn_answer(film: AnsweredFilm, outcomes: BoxOutcomes) -> list[tuple[Any, ...]]:
    """What a page draws upon a film: regions to ignore, reference boxes and predicted ones, see :func:`drawn_boxes`.

    Example:
        >>> from grounding_rewards.metrics.outcomes import box_outcomes
        >>> film = AnsweredFilm("a", 9, 9, gt=[[0, 0, 4, 4]], gt_labels=["mass"], pred=[[0, 0, 4, 4]])
        >>> [(kind, outcome) for _, kind, _, outcome in drawn_answer(film, box_outcomes(film))]
        [('reference', 'found'), ('predicted', 'right')]
    """
    return [
        *drawn_boxes(film.ignore, "ignored", [""] * len(film.ignore)),
        *drawn_boxes(film.gt, "reference", film.gt_labels, outcomes.gt),
        *drawn_boxes(film.pred, "predicted", film.pred_labels, outcomes.pred),
    ]


def drawn_boxes(
    boxes: Array, kind: str, labels: Sequence[str | None], *outcomes: Sequence[str]
) -> list[tuple[Any, ...]]:
    """Corners, class, label and outcome of the boxes that can be drawn: those with an area, the first so many.

    Example:
        >>> import numpy as np
        >>> drawn_boxes(np.array([[0.0, 0, 4, 4], [5, 5, 5, 9]]), "predicted", ["mass", None], ["right", "wrong place"])
        [([0.0, 0.0, 4.0, 4.0], 'predicted', 'mass', 'right')]
    """
    return [
        (box, kind, label or "", *outcome)
        for box, label, *outcome in zip(boxes[:MOST_BOXES].tolist(), labels, *outcomes, strict=False)
        if all(map(math.isfinite, box)) and box[0] < box[2] and box[1] < box[3]
    ]

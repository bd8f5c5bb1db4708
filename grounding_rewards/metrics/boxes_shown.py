"""How boxes are shown, on pages and during a training: what became of them, and IoUs with as many digits as needed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from grounding_rewards.common.arithmetic import Array
from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.outcomes import IGNORED, MISSED, RIGHT, WRONG_LABEL, WRONG_PLACE, BoxOutcomes

#: IoUs that decide whether a box is right in some metric.
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


def has_sides(image: AnsweredImage) -> bool:
    """Whether the patient's right is known to lie on the left of the picture, so that sides may be marked on it.

    A frontal image has sides; so does one whose findings are named by side. An image from the side has none, and of an
    image of unknown view nothing is said.

    Example:
        >>> [has_sides(AnsweredImage("a", 9, 9, view=view)) for view in ("PA", "AP SUPINE", "LATERAL", None)]
        [True, True, False, False]
        >>> has_sides(AnsweredImage("a", 9, 9, gt=[[0, 0, 4, 4]], gt_labels=["left lung"]))
        True
    """
    if image.view is not None:
        return _FRONTAL.search(image.view) is not None
    return any(_SIDE.search(label) for label in (*image.gt_labels, *image.pred_labels) if label)


def broken_count(image: AnsweredImage) -> int:
    """How many boxes of the answer are broken: they count, and can't be drawn.

    Example:
        >>> from grounding_rewards.parsing import BrokenBox
        >>> broken_count(AnsweredImage("a", 9, 9, pred=[[0, 0, 4, 4]], broken=[BrokenBox(1)]))
        1
    """
    return len(image.broken)


def image_summary(image: AnsweredImage, outcomes: BoxOutcomes) -> str:
    """What became of the boxes of an image, in one line.

    Example:
        >>> from grounding_rewards.metrics.outcomes import box_outcomes
        >>> image = AnsweredImage("a", 9, 9, gt=[[0, 0, 4, 4]], gt_labels=["mass"], pred=[[0, 0, 4, 4], [5, 5, 9, 9]])
        >>> image_summary(image, box_outcomes(image))
        '1 of 1 found, 1 in the wrong place'
    """
    return ", ".join(_parts(image, outcomes))


def _parts(image: AnsweredImage, outcomes: BoxOutcomes) -> Iterator[str]:
    broken = broken_count(image)
    if image.status == "unparseable":
        yield "unparseable"
    if image.is_normal:
        yield "normal image"
        counted = len(image.pred) - outcomes.pred.count(IGNORED) + broken
        yield f"{counted} hallucinated" if counted else "no box"
        return
    yield f"{outcomes.pred.count(RIGHT)} of {len(image.gt)} found"
    for count, what in (
        (sum(name is not None for name in outcomes.renamed), "of them under another label"),
        (outcomes.pred.count(WRONG_LABEL), "under a wrong label"),
        (outcomes.pred.count(WRONG_PLACE), "in the wrong place"),
        (outcomes.gt.count(MISSED), "missed"),
        (broken, "broken"),
    ):
        if count:
            yield f"{count} {what}"


def drawn_answer(image: AnsweredImage, outcomes: BoxOutcomes) -> list[tuple[Any, ...]]:
    """What a page draws upon an image: regions to ignore, reference boxes and predicted ones, see :func:`drawn_boxes`.

    Example:
        >>> from grounding_rewards.metrics.outcomes import box_outcomes
        >>> image = AnsweredImage("a", 9, 9, gt=[[0, 0, 4, 4]], gt_labels=["mass"], pred=[[0, 0, 4, 4]])
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

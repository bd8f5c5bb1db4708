"""An image with its boxes, drawn for where there is no page: in a notebook, in a tracker of trainings, on a slide.

Reference boxes are dashed and predicted ones solid, in the colours that pages give to what became of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grounding_rewards.images.decoding import open_image
from grounding_rewards.metrics.confusion import (
    FOUND,
    IGNORED,
    MISSED,
    MOST_BOXES,
    RIGHT,
    WRONG_LABEL,
    WRONG_PLACE,
    BoxOutcomes,
    box_outcomes,
    image_summary,
)
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.parsing import ParsedBoxes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from PIL.Image import Image

#: Of predicted boxes by outcome, as in `report/page.css`.
PREDICTED = {RIGHT: "#4fb3ff", WRONG_LABEL: "#ffe04a", WRONG_PLACE: "#ff8f3f", IGNORED: "#b9bfc6"}
#: Of reference boxes by outcome, likewise.
REFERENCE = {FOUND: "#ffffff", WRONG_LABEL: "#ffffff", MISSED: "#ff8fdc"}

# Inches of the longer side, and pixels of one inch.
_SIDE, _DPI = 4.8, 100
_TITLE = 0.5


def show(
    image: Any,
    boxes: ArrayLike | ParsedBoxes,
    reference: ArrayLike | None = None,
    labels: Sequence[str | None] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw boxes on an image.

    With a reference, predicted boxes are blue where they are right at IoU 0.5 and orange elsewhere, and reference boxes
    are dashed, white where they are found and pink where they are missed.

    Args:
        image: a file, DICOM too, a PIL image, or an array ``(height, width)`` or ``(height, width, 3)``.
        boxes: ``(n, 4)`` xyxy in pixels of the image, or what :func:`grounding_rewards.parse_boxes` returns.
        reference: ``(m, 4)`` likewise.
        labels: n words that stand at the boxes; None are those of parsed boxes.
        ax: where to draw; None makes new ones.

    Returns:
        The ``matplotlib.axes.Axes``.

    Raises:
        ValueError: an array is not (n, 4), or there are not as many labels as boxes.

    Example:
        >>> axes = show(np.zeros((480, 640)), [[64, 48, 320, 240]], reference=[[64, 48, 320, 250]], labels=["nodule"])
        >>> len(axes.patches), axes.texts[0].get_text()
        (2, 'nodule')
    """
    pixels = open_image(image) if isinstance(image, str | Path) else image
    height, width = np.asarray(pixels).shape[:2]
    pred: Any = boxes.boxes if isinstance(boxes, ParsedBoxes) else boxes
    if labels is None and isinstance(boxes, ParsedBoxes):
        labels = boxes.labels
    gt: Any = [] if reference is None else reference
    pred_labels = tuple(labels or ())
    annotated = Prediction("", width, height, gt=gt, gt_labels=("",) * len(gt), pred=pred, pred_labels=pred_labels)
    outcomes = box_outcomes(annotated)
    if reference is None:
        outcomes = outcomes._replace(pred=(RIGHT,) * len(annotated.pred))
    if ax is None:
        from matplotlib import pyplot

        _, ax = pyplot.subplots()
    draw_answer(ax, annotated, pixels, outcomes)
    ax.set_aspect("equal")
    for (x1, y1, *_), label, outcome in zip(annotated.pred.tolist(), pred_labels, outcomes.pred, strict=False):
        if label and np.isfinite((x1, y1)).all():
            ax.text(x1, y1, label, color=PREDICTED[outcome], fontsize=8, va="bottom", parse_math=False)
    return ax


def answer_picture(annotated: Prediction, image: Image | None, label_matching: str = "ignore") -> NDArray[np.uint8]:
    """Draw an image with its reference boxes and the boxes of its answer.

    Args:
        annotated: with its answer; the first :data:`MOST_BOXES` boxes of each kind are drawn.
        image: its pixels, of any size; black where there are none.
        label_matching: `"ignore"`, `"exact"` or `"synonyms"`: whether a box is right only under the finding's label.

    Returns:
        (height, width, 3) colours, the longer side of the image at about 480 pixels; above the image its id and what
        became of its boxes.

    Example:
        >>> image = Prediction("a", 200, 100, gt=[[10, 10, 60, 60]], gt_labels=["mass"], pred=[[10, 10, 60, 50]])
        >>> answer_picture(image, None).shape
        (290, 480, 3)
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    outcomes = box_outcomes(annotated, label_matching)
    scale = _SIDE / max(annotated.width, annotated.height)
    # A strip of an image has a picture all the same.
    width, height = (max(1.0, side * scale) for side in (annotated.width, annotated.height))
    figure = Figure(figsize=(width, height + _TITLE), dpi=_DPI, facecolor="#16191d")
    draw_answer(figure.add_axes((0, 0, 1, height / (height + _TITLE))), annotated, image, outcomes)
    title = f"{annotated.id}\n{image_summary(annotated, outcomes)}"
    figure.text(0.02, 0.99, title, color="#e6e8eb", fontsize=8, va="top", parse_math=False)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def draw_answer(axis: Axes, annotated: Prediction, image: Image | None, outcomes: BoxOutcomes) -> None:
    """Draw an image and its boxes by outcome; a dark edge keeps every line visible on white findings."""
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke

    pixels = np.zeros((1, 1)) if image is None else np.asarray(image)
    axis.imshow(pixels, cmap="gray", extent=(0, annotated.width, annotated.height, 0), aspect="auto")
    axis.set_axis_off()
    for boxes, outcome_of_box, colours, dashes in (
        (annotated.gt, outcomes.gt, REFERENCE, (0, (2, 3))),
        (annotated.pred, outcomes.pred, PREDICTED, "solid"),
    ):
        for (x1, y1, x2, y2), outcome in zip(boxes[:MOST_BOXES].tolist(), outcome_of_box, strict=False):
            if np.isfinite((x1, y1, x2, y2)).all():
                width, line = (2.2, (0, (4, 2))) if outcome == MISSED else (1.5, dashes)
                edge = [withStroke(linewidth=width + 1.6, foreground="#00000090")]
                style: dict[str, Any] = {"linestyle": line, "linewidth": width, "path_effects": edge}
                corner, sides = (x1, y1), (x2 - x1, y2 - y1)
                axis.add_patch(Rectangle(corner, *sides, fill=False, edgecolor=colours[outcome], **style))

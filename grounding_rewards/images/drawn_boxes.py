"""An image with its boxes, drawn for where there is no page: in a notebook, on a slide.

Reference boxes are dashed and predicted ones solid, in the colours that pages give to what became of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from grounding_rewards.images.decoding import open_image, shown_image
from grounding_rewards.metrics.outcomes import (
    FOUND,
    IGNORED,
    MISSED,
    MOST_BOXES,
    RIGHT,
    WRONG_LABEL,
    WRONG_PLACE,
    BoxOutcomes,
    box_outcomes,
)
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.parsing import ParsedBoxes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from PIL.Image import Image

#: Of predicted boxes by outcome, as in `report/page.css`.
PREDICTED = {RIGHT: "#4fb3ff", WRONG_LABEL: "#ffe04a", WRONG_PLACE: "#ff8f3f", IGNORED: "#b9bfc6"}
#: Of reference boxes by outcome, as there too.
REFERENCE = {FOUND: "#ffffff", WRONG_LABEL: "#ffffff", MISSED: "#ff8fdc"}


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
        reference: ``(m, 4)`` reference boxes, xyxy in pixels of the image.
        labels: n words that stand at the boxes; None are those of parsed boxes.
        ax: the matplotlib axes to draw on; None makes new ones.

    Returns:
        The ``matplotlib.axes.Axes``.

    Raises:
        ValueError: an array is not (n, 4), or there are not as many labels as boxes.

    Example:
        >>> axes = show(np.zeros((480, 640)), [[64, 48, 320, 240]], reference=[[64, 48, 320, 250]], labels=["nodule"])
        >>> len(axes.patches), axes.texts[0].get_text()
        (2, 'nodule')
    """
    from PIL.Image import Image as PillowImage

    pixels: Any = image
    if isinstance(image, str | Path):
        pixels = open_image(image)
    elif isinstance(image, PillowImage):
        # The numbers of a palette are no greys, and matplotlib knows no grey with alpha.
        pixels = shown_image(image)
    height, width = np.asarray(pixels).shape[:2]
    pred: Any = boxes
    if isinstance(boxes, ParsedBoxes):
        pred = boxes.boxes
        labels = boxes.labels if labels is None else labels
    gt: Any = [] if reference is None else reference
    pred_labels = tuple(() if labels is None else labels)
    # Only boxes decide on outcomes: reference boxes are given no labels.
    prediction = Prediction("", width, height, gt=gt, gt_labels=("",) * len(gt), pred=pred, pred_labels=pred_labels)
    outcomes = box_outcomes(prediction)
    if reference is None:
        # Nothing says that a box is wrong.
        outcomes = outcomes._replace(pred=(RIGHT,) * len(prediction.pred))
    if ax is None:
        from matplotlib import pyplot

        _, ax = pyplot.subplots()
    draw_answer(ax, prediction, pixels, outcomes)
    ax.set_aspect("equal")
    # A label stands on the upper left corner of its box.
    drawn_boxes = prediction.pred[:MOST_BOXES].tolist()
    for (x1, y1, *_), label, outcome in zip(drawn_boxes, pred_labels, outcomes.pred, strict=False):
        if label and np.isfinite((x1, y1)).all():
            ax.text(x1, y1, label, color=PREDICTED[outcome], fontsize=8, va="bottom", parse_math=False)
    return ax


def draw_answer(axis: Axes, prediction: Prediction, image: Image, outcomes: BoxOutcomes) -> None:
    """Draw an image and its boxes, reference and predicted ones, at most `MOST_BOXES` of each, by their outcomes.

    Reference boxes are dashed and predicted ones solid.
    """
    axis.imshow(np.asarray(image), cmap="gray", extent=(0, prediction.width, prediction.height, 0), aspect="auto")
    axis.set_axis_off()
    for box, outcome in zip(prediction.gt[:MOST_BOXES].tolist(), outcomes.gt, strict=False):
        # In points; missed findings stand out. The style of a dashed line is an offset, then the dash and the gap.
        line_width, dashes = (2.2, (0, (4, 2))) if outcome == MISSED else (1.5, (0, (2, 3)))
        _draw_box(axis, box, REFERENCE[outcome], line_width, dashes)
    for box, outcome in zip(prediction.pred[:MOST_BOXES].tolist(), outcomes.pred, strict=False):
        _draw_box(axis, box, PREDICTED[outcome], 1.5, "solid")


def _draw_box(axis: Axes, box: list[float], colour: str, line_width: float, line_style: Any) -> None:
    """Draw the outline of one box, in a width and a style of matplotlib; a box that is not finite is left out."""
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke

    if not np.isfinite(box).all():
        return
    x1, y1, x2, y2 = box
    rectangle = Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, edgecolor=colour)
    rectangle.set(linewidth=line_width, linestyle=line_style)
    # A dark, half transparent line behind it, wider by 0.8 points on each side, keeps it visible on white findings.
    rectangle.set_path_effects([withStroke(linewidth=line_width + 1.6, foreground="#00000090")])
    axis.add_patch(rectangle)

"""An image with its boxes, drawn for where there is no page: in a tracker of trainings, on a slide.

Reference boxes are dashed and predicted ones solid, in the colours that pages give to what became of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.metrics.answered_image import AnsweredImage
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
    image_summary,
)

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


def answer_picture(annotated: AnsweredImage, image: Image | None, label_matching: str = "ignore") -> NDArray[np.uint8]:
    """Draw an image with its reference boxes and the boxes of its answer.

    Args:
        annotated: with its answer; the first :data:`MOST_BOXES` boxes of each kind are drawn.
        image: its pixels, of any size; black where there are none.
        label_matching: `"ignore"`, `"exact"` or `"synonyms"`: whether a box is right only under the finding's label.

    Returns:
        (height, width, 3) colours, the longer side of the image at about 480 pixels; above the image its id and what
        became of its boxes.

    Example:
        >>> image = AnsweredImage("a", 200, 100, gt=[[10, 10, 60, 60]], gt_labels=["mass"], pred=[[10, 10, 60, 50]])
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


def draw_answer(axis: Axes, annotated: AnsweredImage, image: Image | None, outcomes: BoxOutcomes) -> None:
    """Draw an image and its boxes by outcome; a dark edge keeps every line visible on white findings."""
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke

    pixels = np.zeros((1, 1)) if image is None else np.asarray(image)
    axis.imshow(pixels, cmap="gray", extent=(0, annotated.width, annotated.height, 0), aspect="auto")
    axis.set_axis_off()
    for boxes, found, colours, dashes in (
        (annotated.gt, outcomes.gt, REFERENCE, (0, (2, 3))),
        (annotated.pred, outcomes.pred, PREDICTED, "solid"),
    ):
        for (x1, y1, x2, y2), outcome in zip(boxes[:MOST_BOXES].tolist(), found, strict=False):
            if np.isfinite((x1, y1, x2, y2)).all():
                width, line = (2.2, (0, (4, 2))) if outcome == MISSED else (1.5, dashes)
                edge = [withStroke(linewidth=width + 1.6, foreground="#00000090")]
                style: dict[str, Any] = {"linestyle": line, "linewidth": width, "path_effects": edge}
                corner, sides = (x1, y1), (x2 - x1, y2 - y1)
                axis.add_patch(Rectangle(corner, *sides, fill=False, edgecolor=colours[outcome], **style))

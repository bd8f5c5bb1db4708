"""The first held-out films with their boxes before and after, as one PNG for a README or a slide."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from grounding_rewards.report.page import Box, PageAnswer, PageFilm

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {"before": "#ff9d45", "after": "#4db5ff"}


def draw_films(films: Sequence[PageFilm], *, count: int = 5) -> bytes:
    """Draw the first films in two rows, before above after; reference boxes are dashed white.

    The first films, not the best ones: nobody chose them.

    Args:
        films: held-out films in their own order.
        count: how many of them.

    Returns:
        A PNG.
    """
    from matplotlib.figure import Figure

    shown = films[:count]
    figure = Figure(figsize=(2.1 * len(shown), 5.0), dpi=110, facecolor="white", layout="constrained")
    axes = figure.subplots(2, len(shown), squeeze=False)
    for row, when in enumerate(("before", "after")):
        for axis, film in zip(axes[row], shown, strict=True):
            answer: PageAnswer = getattr(film, when)
            axis.imshow(film.load_image(), cmap="gray", extent=(0, film.width, film.height, 0))
            _draw_boxes(axis, film.boxes, "white", linestyle=(0, (3, 2)), linewidth=1.6)
            _draw_boxes(axis, answer.boxes, _COLOURS[when], linestyle="solid", linewidth=1.6)
            axis.set_title(f"{when}: reward {answer.reward:.2f}", fontsize=8.5)
            axis.set_axis_off()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _draw_boxes(axis: Axes, boxes: Sequence[Box], colour: str, **style: Any) -> None:
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke

    # A dark edge keeps every line visible on white findings.
    edge = [withStroke(linewidth=style["linewidth"] + 1.6, foreground="#00000090")]
    for x1, y1, x2, y2 in boxes:
        axis.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, edgecolor=colour, path_effects=edge, **style))

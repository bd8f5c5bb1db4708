"""The first images with the boxes of two runs, as one PNG for a README or a slide."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from grounding_rewards.images.drawn_boxes import draw_boxes, show_image
from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.report.diff_page import ImagePair

if TYPE_CHECKING:
    from PIL.Image import Image

_COLOURS = ("#ff9d45", "#4db5ff")


def draw_images(
    pairs: Sequence[ImagePair],
    names: tuple[str, str],
    reward: str,
    load_image: Callable[[AnsweredImage], Image | None],
    *,
    count: int = 5,
) -> bytes:
    """Draw the first images in two rows, A above B; reference boxes are dashed white.

    The first images, not the best ones: nobody chose them.

    Args:
        pairs: images that both runs have, in their own order.
        names: of A and of B.
        reward: name of the reward that is written above each image.
        load_image: opens the image, None where there is none.
        count: number of images.

    Returns:
        A PNG.
    """
    from matplotlib.figure import Figure

    shown = pairs[:count]
    figure = Figure(figsize=(2.1 * len(shown), 5.0), dpi=110, facecolor="white", layout="constrained")
    axes = figure.subplots(2, len(shown), squeeze=False)
    for column, pair in enumerate(shown):
        image = load_image(pair.b)
        for axis, annotated, name, colour in zip(axes[:, column], pair, names, _COLOURS, strict=True):
            show_image(axis, annotated, image)
            axis.set_aspect("equal")
            draw_boxes(axis, annotated.gt, "white", linestyle=(0, (3, 2)), linewidth=1.6)
            draw_boxes(axis, annotated.pred, colour, linestyle="solid", linewidth=1.6)
            axis.set_title(f"{name}: reward {annotated.rewards[reward]:.2f}", fontsize=8.5, parse_math=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()

"""Draw one image under every corruption and strength, with its boxes: a row each, the image as it is in front.

python scripts/docs/draw_corruptions.py docs/pictures/corruptions.png
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from grounding_rewards.models.robustness import CORRUPTIONS, STRENGTHS, corrupt
from grounding_rewards.synthetic import draw_radiograph

# Mirrored from strength 3 on.
_SEED = 1
_COLOURS = {True: "#ffb000", False: "#f72585"}


def main() -> None:
    """Read the arguments and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="PNG file to write")
    parser.add_argument("--image", type=int, default=3, help="number of the drawn image")
    parser.add_argument("--seed", type=int, default=_SEED, help="of the corruptions")
    options = parser.parse_args()

    import matplotlib

    matplotlib.use("agg")
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
    from PIL import Image

    annotated = draw_radiograph(options.image, "mixed-512")
    columns = (0, *STRENGTHS)
    figure = Figure(figsize=(len(columns) * 1.0, len(CORRUPTIONS) * 1.28), dpi=100, facecolor="white")
    figure.subplots_adjust(left=0.05, right=0.995, bottom=0.005, top=0.975, wspace=0.04, hspace=0.04)
    grid = figure.subplots(len(CORRUPTIONS), len(columns))
    for axes_of_row, name in zip(grid, CORRUPTIONS, strict=True):
        for axes, strength in zip(axes_of_row, columns, strict=True):
            image, boxes, kept = annotated.image, annotated.boxes, [True] * len(annotated.boxes)
            if strength:
                image, boxes, kept = corrupt(image, boxes, name, strength, seed=options.seed)
            axes.imshow(image, cmap="gray", vmin=0, vmax=255, aspect="auto")
            for (x1, y1, x2, y2), stays in zip(boxes, kept, strict=True):
                colour = _COLOURS[bool(stays)]
                axes.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, edgecolor=colour, linewidth=0.9))
            axes.set_xticks([])
            axes.set_yticks([])
            if name == next(iter(CORRUPTIONS)):
                axes.set_title("as it is" if strength == 0 else str(strength), fontsize=7, pad=2)
        axes_of_row[0].set_ylabel(name, fontsize=7, labelpad=2)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    # Grey images and two colours of boxes: a palette shows them as well, in a third of the bytes.
    Image.open(drawn).convert("RGB").quantize(64).save(options.output, optimize=True)


if __name__ == "__main__":
    main()

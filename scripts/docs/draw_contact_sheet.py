"""Draw a page of drawn images with their boxes and phrases, one for each finding and the rest without any or at random.

python scripts/docs/draw_contact_sheet.py docs/pictures/synthetic.png
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

from grounding_rewards.synthetic import FINDINGS, PRESETS, draw_radiograph
from grounding_rewards.synthetic.radiographs import plan_radiograph

_COLUMNS, _ROWS = 6, 2
_COLOURS = ("#ffb000", "#4cc9f0", "#f72585", "#80ed99")


def choose(preset: str) -> list[int]:
    """The first image of each finding, then the first without any, then what comes, in the order of their numbers."""
    chosen: list[int] = []
    for label in FINDINGS:
        having = (n for n in itertools.count() if label in {f.label for f in plan_radiograph(n, preset).findings})
        chosen.append(next(n for n in having if n not in chosen))
    chosen.append(next(n for n in itertools.count() if not plan_radiograph(n, preset).findings))
    rest = (n for n in itertools.count() if n not in chosen)
    return sorted([*chosen, *itertools.islice(rest, _COLUMNS * _ROWS - len(chosen))])


def main() -> None:
    """Read the arguments and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="PNG file to write")
    parser.add_argument("--preset", choices=list(PRESETS), default="mixed-512")
    options = parser.parse_args()

    import matplotlib

    matplotlib.use("agg")
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    figure = Figure(figsize=(_COLUMNS * 2.0, _ROWS * 3.1), dpi=80, facecolor="white", layout="constrained")
    for axes, index in zip(figure.subplots(_ROWS, _COLUMNS).flat, choose(options.preset), strict=True):
        image = draw_radiograph(index, options.preset)
        axes.imshow(image.image, cmap="gray", vmin=0, vmax=255)
        for (x1, y1, x2, y2), colour in zip(image.boxes, itertools.cycle(_COLOURS), strict=False):
            axes.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, edgecolor=colour, linewidth=1.2))
        width, height = image.image.size
        axes.set_title(f"{index}: {image.view}, {width} × {height}", fontsize=7)
        axes.set_xlabel("\n".join(image.phrases) or "no finding", fontsize=6.5)
        axes.set_xticks([])
        axes.set_yticks([])
    options.output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.output)


if __name__ == "__main__":
    main()

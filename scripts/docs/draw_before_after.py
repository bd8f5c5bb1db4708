"""Draw the first held-out image of each finding with the boxes of two models, one above the other.

    python scripts/docs/draw_before_after.py runs/demo/before runs/demo/after runs/drawn docs/pictures/demo.png

The first two are folders that `grounding-rewards evaluate` wrote, the third holds the same images at any size: of
draw_images.py or ask_findings.py in scripts/studies. White: reference; blue: right; orange: false; pink: missed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from grounding_rewards.images.decoding import open_image
from grounding_rewards.images.drawn_boxes import draw_answer
from grounding_rewards.metrics.outcomes import box_outcomes
from grounding_rewards.metrics.prediction import load_predictions
from grounding_rewards.sources.jsonl import read_jsonl

_SIDE, _DPI, _FONT = 1.6, 100, 8


def main() -> None:
    """Read the arguments and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="evaluation of the model before")
    parser.add_argument("after", type=Path, help="evaluation of the model after")
    parser.add_argument("images", type=Path, help="folder with annotations.jsonl")
    parser.add_argument("output", type=Path, help="picture to write")
    parser.add_argument("--findings", nargs="+", help="these in this order; all when left out")
    options = parser.parse_args()

    import matplotlib

    matplotlib.use("agg")
    from matplotlib.figure import Figure

    before, after = (
        {image.id: image for image in load_predictions(folder / "images.jsonl")}
        for folder in (options.before, options.after)
    )
    files = {image.id: options.images / image.file for image in read_jsonl(options.images)}
    # Not by what became of them: the first of each.
    first: dict[str, str] = {}
    for name, image in after.items():
        if image.gt_labels:
            first.setdefault(image.gt_labels[0], name)
    chosen = [(label, first[label]) for label in options.findings or sorted(first)]
    figure = Figure(figsize=(_SIDE * len(chosen), 2 * _SIDE + 0.35), dpi=_DPI, facecolor="white", layout="constrained")
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0, hspace=0)
    grid = figure.subplots(2, len(chosen), squeeze=False)
    for row, answers in zip(grid, (before, after), strict=True):
        for axis, (_, name) in zip(row, chosen, strict=True):
            draw_answer(axis, answers[name], open_image(files[name]).convert("L"), box_outcomes(answers[name]))
            axis.set_aspect("equal")
    for axis, (label, _) in zip(grid[0], chosen, strict=True):
        axis.set_title(label, fontsize=_FONT)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.output, pil_kwargs={"quality": 85} if options.output.suffix == ".jpg" else None)


if __name__ == "__main__":
    main()

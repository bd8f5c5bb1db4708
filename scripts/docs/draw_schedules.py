"""Draw the schedules of a threshold: three by time, and one that follows what two made-up models hit.

python scripts/docs/draw_schedules.py docs/pictures/schedules.png

The models write one box for one finding; their IoU is normal with a standard deviation of 0.2 around a mean that rises
with the steps, fast and then slowly for one, late for the other.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from grounding_rewards import get_reward
from grounding_rewards.rewards.schedules import Pace, read_schedule

ENDS = {"from": 0.1, "to": 0.5}
BY_TIME = {kind: {"schedule": kind, **ENDS, "over": 0.4} for kind in ("linear", "cosine", "step")}
SELF_PACED = {"schedule": "self_paced", "of": "hit_rate", "window": 200, **ENDS}
STEPS, COMPLETIONS = 120, 32
MODELS = {
    "learns early": lambda p: 0.2 + 0.4 * (1 - np.exp(-5 * p)),
    "learns late": lambda p: 0.1 + 0.5 / (1 + np.exp(-15 * (p - 0.6))),
}
_COLOURS = ("#0b6bcb", "#d1495b", "#2a9d8f")


def follow(model: str, seed: int = 0) -> tuple[list[float], list[float]]:
    """The threshold of every step of a self-paced training, and the mean IoU of its completions."""
    drawn = np.random.default_rng(seed)
    pace = Pace(get_reward("R3", iou_threshold=SELF_PACED))
    thresholds, means = [], []
    for step in range(STEPS):
        ious = np.clip(drawn.normal(MODELS[model](step / STEPS), 0.2, COMPLETIONS), 0, 1)
        threshold = pace.values["iou_threshold"]
        pace.note(ious >= threshold, np.ones(COMPLETIONS))
        pace.update()
        thresholds.append(threshold)
        means.append(float(ious.mean()))
    return thresholds, means


def draw() -> Any:
    """The metric: by time on the left, self-paced on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), dpi=120, facecolor="white", layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    progress = np.linspace(0, 1, 401)
    for (kind, mapping), colour in zip(BY_TIME.items(), _COLOURS, strict=True):
        schedule = read_schedule("iou_threshold", mapping)
        left.plot(progress, [schedule.value(p) for p in progress], color=colour, label=kind)
    left.set(title="by time, over: 0.4", xlabel="share of training that is over", ylabel="iou_threshold", ylim=(0, 0.7))
    for model, colour in zip(MODELS, _COLOURS, strict=False):
        thresholds, means = follow(model)
        right.step(range(STEPS), thresholds, where="post", color=colour, label=f"{model}: threshold")
        right.plot(means, color=colour, linewidth=0.7, alpha=0.6, label=f"{model}: mean IoU")
    right.set(title="self-paced, window: 200", xlabel=f"step, of {COMPLETIONS} completions each")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=8, loc="lower right")
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def main() -> None:
    """Read the arguments and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="PNG file to write")
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    draw().savefig(options.output)


if __name__ == "__main__":
    main()

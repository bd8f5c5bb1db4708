"""Draw how rewards respond to one thing at a time (specification §8.2 to §8.4, computed).

    python scripts/docs/draw_rewards.py
    python scripts/docs/draw_rewards.py --rewards R3 my_pkg.rewards.MyReward --folder somewhere

Writes docs/pictures/rewards_threshold.png (the rewards of the specification and what they are recommended with) and
docs/pictures/rewards_soft.png (those without a threshold); with --rewards, responses.png of these. For each reward, in
units of the side of one square finding: over the IoU of one box, with its slope; over the number of false boxes behind
a perfect one; over the share of eight findings that is found at IoU 0.8; a box of the finding's size moved by up to one
and a half of its sides; and a box that walks at random around the finding.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap

import grounding_rewards as gr
from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.report.plots import GROUND, SERIES, SOFT, Plot

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
#: By picture the rewards that are drawn: their heading, their name, their parameters.
DRAWN: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
    "rewards_threshold": [
        ("R1", "R1", {}),
        ("R1 tied", "R1", {"ranking": "tied"}),
        ("R2", "R2", {}),
        ("R2 geometric", "R2", {"product": "geometric"}),
        ("R3", "R3", {}),
        ("R4", "R4", {}),
        ("R5", "R5", {}),
        ("R5, τ 0.3", "R5", {"iou_threshold": 0.3, "matching": "thresholded_hungarian"}),
    ],
    "rewards_soft": [
        ("soft_f1", "soft_f1", {}),
        *((f"soft_f1 {overlap}", "soft_f1", {"overlap": overlap}) for overlap in ("giou", "diou", "ciou", "nwd")),
        *((f"soft_f1 {quality}", "soft_f1", {"quality": quality}) for quality in ("spline", "piecewise")),
        ("pointing", "pointing", {}),
    ],
}
_DPI = 100
_HEADINGS = ("over IoU; dashed: slope", "over false boxes", "over share found", "box moved", "box walks; grey: IoU")
_WIDTH, _ROW, _MARGIN = 9.2, 1.3, 0.7
# Slopes above this are cut off.
_STEEPEST = 2.5
# Ends of the heat map; the lighter one is what earns nothing.
_COLOURS = ("#f2f4f7", "#56b4e9", "#0072b2", "#00304d")
_FINDING = np.array([0.0, 0.0, 1.0, 1.0])
_FINDINGS, _MOST_FALSE, _REACH, _STEPS, _WALK = 8, 8, 1.5, 41, 160
# A reward that rises faster than this from one point of a curve to the next is taken to jump there.
_JUMP = 0.1


def draw_reward(axes: Any, reward: Any, colours: LinearSegmentedColormap) -> Any:
    """Draw a reward into a row of five axes; returns the heat map."""

    def earned(pred: Any, gt: Any = _FINDING[None]) -> np.ndarray:
        return np.array(reward.score_many(list(pred), [gt] * len(pred)), dtype=np.float64)

    fit, false_boxes, found, moved, walk = axes
    ious = np.linspace(0, 1, 201)
    over_iou = earned([[[0.0, 0.0, 1.0, iou]] if iou else [[0.0, 1.0, 1.0, 2.0]] for iou in ious])
    rise = np.diff(over_iou)
    slope = np.where(np.abs(rise) > _JUMP, np.nan, rise / np.diff(ious))
    fit.plot(ious, over_iou, color=SERIES[0])
    between = (ious[1:] + ious[:-1]) / 2
    fit.plot(between, np.minimum(slope, _STEEPEST), color=SERIES[1], linewidth=1.0, linestyle=(0, (4, 2)))
    _axis(fit, (0, 0.5, 1), top=_STEEPEST)
    # Boxes of the finding's size that touch neither it nor each other.
    apart = _moved([(2.0 * (k + 2), 0.0) for k in range(_MOST_FALSE)])
    counts = np.arange(_MOST_FALSE + 1)
    over_false = earned([np.vstack([_FINDING, apart[:count]]) for count in counts])
    false_boxes.plot(counts, over_false, color=SERIES[0], marker="o", markersize=3)
    _axis(false_boxes, (0, 2, 4, 6, 8))
    fitting = apart[:_FINDINGS] * (1, 1, 1, 0.8)
    over_found = earned([fitting[:count] for count in range(_FINDINGS + 1)], apart[:_FINDINGS])
    found.plot(np.arange(_FINDINGS + 1) / _FINDINGS, over_found, color=SERIES[0], marker="o", markersize=3)
    _axis(found, (0, 0.5, 1))
    moves = np.linspace(-_REACH, _REACH, _STEPS)
    over_moves = earned(_moved([(x, y) for y in moves for x in moves])[:, None]).reshape(_STEPS, _STEPS)
    extent = (-_REACH, _REACH, _REACH, -_REACH)
    heat = moved.imshow(over_moves, cmap=colours, vmin=0, vmax=1, extent=extent, interpolation="nearest")
    moved.set_xticks((-1, 0, 1))
    moved.set_yticks((-1, 0, 1))
    # Every step goes a fifteenth of the way back, and about a tenth of a side anywhere.
    rng, at = np.random.default_rng(7), np.zeros((_WALK, 2))
    for k in range(1, _WALK):
        at[k] = at[k - 1] * 14 / 15 + rng.normal(0, 0.1, 2)
    walked = _moved(at)
    walk.plot(pairwise_iou(walked, _FINDING[None])[:, 0], color=SOFT, linewidth=0.8)
    walk.plot(earned(walked[:, None]), color=SERIES[0], linewidth=1.2)
    _axis(walk, (0, 80, 160))
    return heat


def _moved(by: Any) -> np.ndarray:
    """The finding's box moved by each ``(x, y)``, ``(n, 4)``."""
    return _FINDING + np.tile(np.reshape(by, (-1, 2)), 2)


def _axis(axis: Any, ticks: tuple[float, ...], *, top: float = 1.0) -> None:
    axis.set_ylim(-0.04 * top, 1.06 * top)
    axis.set_yticks((0, 1) if top == 1 else (0, 1, 2))
    axis.set_xticks(ticks)
    axis.grid(visible=True)


def response_plot(rewards: dict[str, Any], name: str) -> Plot:
    """The responses of rewards by their headings, a row of panels for each."""

    def draw(figure: Any) -> None:
        axes = figure.subplots(len(rewards), len(_HEADINGS), squeeze=False)
        colours = LinearSegmentedColormap.from_list("reward", _COLOURS)
        for row, (heading, reward) in enumerate(rewards.items()):
            heat = draw_reward(axes[row], reward, colours)
            axes[row][0].set_ylabel(heading, rotation=0, ha="right", va="center", fontweight="bold")
            for column, axis in enumerate(axes[row]):
                if row == 0:
                    axis.set_title(_HEADINGS[column], loc="left")
                if row < len(rewards) - 1:
                    axis.tick_params(labelbottom=False)
        figure.colorbar(heat, ax=axes[:, 3], shrink=min(1.0, 2 / len(rewards)), aspect=12, label="reward")

    return Plot(name, "", "", draw, (_WIDTH, _MARGIN + _ROW * len(rewards)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=PICTURES, help="where to write; default: docs/pictures")
    parser.add_argument("--rewards", nargs="+", help="names or dotted paths, in the place of those of the docs")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    drawn = {"responses": [(name, name, {}) for name in options.rewards]} if options.rewards else DRAWN
    for name, several in drawn.items():
        picture = io.BytesIO()
        rewards = {heading: gr.get_reward(reward, **given) for heading, reward, given in several}
        response_plot(rewards, name).figure.savefig(picture, format="png", dpi=_DPI, facecolor=GROUND, metadata={})
        write_whole(options.folder / f"{name}.png", picture.getvalue())
        print(options.folder / f"{name}.png")


if __name__ == "__main__":
    main()

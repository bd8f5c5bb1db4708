"""How many groups have no spread, by how good the model is and by which reward? By simulation; writes docs/signal.md.

    python scripts/studies/simulate_signal.py --output docs/signal.md

Drawn images with one to four findings are answered by drawn models, eight times each. A model finds a finding or not,
places its box more or less well, and invents boxes; its answers to one image resemble each other. What the page says
between the marks is replaced; the rest of it stays. It takes some seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.common.numeric import Array
from grounding_rewards.metrics.signal import Groups, main_cause
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.rewards.grounding import GroundingReward, get_reward
from scripts.docs.page_parts import markdown_table, marks_of, replace_part

SIDE = 1000.0
GROUP, LARGEST = 8, 16
#: Mean IoU of a box with the finding that it is meant for; chance of finding it; invented boxes per answer.
MODELS = {0.1: (0.6, 0.6), 0.2: (0.7, 0.5), 0.4: (0.8, 0.4), 0.6: (0.9, 0.3), 0.8: (0.95, 0.1), 0.9: (0.99, 0.02)}
#: How many of the findings an image has, and how long their sides are.
FINDINGS, SIDES = (0.55, 0.25, 0.12, 0.08), (60.0, 350.0)
#: Share of the variance of a box that all answers to an image have in common.
COMMON = 0.5
REWARDS: dict[str, tuple[str, dict[str, object]]] = {
    **{f"{name}, τ 0.5": (name, {}) for name in ("R1", "R2", "R3", "R4", "R5")},
    **{f"{name}, τ 0.3": (name, {"iou_threshold": 0.3}) for name in ("R1", "R2", "R3", "R4", "R5")},
    "R5, τ 0.3, thresholded_hungarian": ("R5", {"iou_threshold": 0.3, "matching": "thresholded_hungarian"}),
    "R4, τ 0.1": ("R4", {"iou_threshold": 0.1}),
    "soft_f1": ("soft_f1", {}),
    "soft_f1, giou": ("soft_f1", {"overlap": "giou"}),
}
MARKS = marks_of("simulated")


class Answered(NamedTuple):
    """Images and answers, those of one image next to each other."""

    pred: list[Array]
    gt: list[Array]
    mean_iou: float


def draw_boxes(rng: np.random.Generator, n: int) -> Array:
    """n boxes inside the image, of sides that are even on a logarithmic scale."""
    sides = np.exp(rng.uniform(*np.log(SIDES), (n, 2)))
    corners = rng.uniform(0, 1, (n, 2)) * (SIDE - sides)
    return np.concatenate([corners, corners + sides], axis=1)


def answer_images(seed: int, images: int, noise: float, found: float, invented: float) -> Answered:
    """Answers of a model to drawn images.

    Args:
        seed: of the images and answers.
        images: how many.
        noise: standard deviation of each corner in parts of the side.
        found: chance of each finding.
        invented: boxes per answer.
    """
    rng = np.random.default_rng(seed)
    pred, gt, ious = [], [], []
    for _ in range(images):
        boxes = draw_boxes(rng, 1 + rng.choice(len(FINDINGS), p=FINDINGS))
        sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
        common = rng.normal(0, np.sqrt(COMMON), boxes.shape)
        for _ in range(LARGEST):
            own = rng.normal(0, np.sqrt(1 - COMMON), boxes.shape)
            moved = boxes + noise * sides * (common + own)
            ordered = np.concatenate(
                [np.minimum(moved[:, :2], moved[:, 2:]), np.maximum(moved[:, :2], moved[:, 2:])], 1
            )
            placed = np.clip(ordered, 0, SIDE)
            ious += pairwise_iou(placed, boxes).diagonal().tolist()
            written = np.concatenate([placed[rng.random(len(boxes)) < found], draw_boxes(rng, rng.poisson(invented))])
            pred.append(written)
            gt.append(boxes)
    return Answered(pred, gt, float(np.mean(ious)))


def noise_for(mean_iou: float, found: float, invented: float) -> float:
    """The noise under which boxes have this mean IoU, by bisection on few images."""
    low, high = 0.0, 3.0
    for _ in range(20):
        middle = (low + high) / 2
        reached = answer_images(0, 60, middle, found, invented).mean_iou
        low, high = (middle, high) if reached > mean_iou else (low, middle)
    return (low + high) / 2


def groups_of(answered: Answered, reward: GroundingReward) -> Groups:
    """All answers to each image as one group."""
    counts = [len(one) for one in answered.pred]
    images = len(counts) // LARGEST
    statuses = ["boxes" if count else "empty" for count in counts]
    rewards = reward.score_many(answered.pred, answered.gt)
    return Groups.of([LARGEST] * images, rewards, statuses, counts, [len(one) for one in answered.gt])


def first_of_each(groups: Groups, size: int) -> Groups:
    """The first so many answers of each group."""
    kept = np.tile(np.arange(LARGEST) < size, len(groups.sizes))
    parts = (getattr(groups, name)[kept] for name in ("rewards", "statuses", "counted", "findings"))
    return Groups(np.full(len(groups.sizes), size), *parts)


def simulate(images: int, seed: int = 1) -> dict[float, tuple[Answered, dict[str, Groups]]]:
    """The answers of every model, and their groups under every reward, by mean IoU."""
    rewards = {label: get_reward(name, **options) for label, (name, options) in REWARDS.items()}
    found = {}
    for mean_iou, (chance, invented) in MODELS.items():
        answered = answer_images(seed, images, noise_for(mean_iou, chance, invented), chance, invented)
        found[mean_iou] = (answered, {label: groups_of(answered, reward) for label, reward in rewards.items()})
    return found


def page_part(simulated: Mapping[float, tuple[Answered, Mapping[str, Groups]]], images: int) -> str:
    """What stands between the marks of the page."""
    models = list(simulated)
    # Rewards of one threshold that say the same of every model share a row.
    names: dict[tuple[str, ...], list[str]] = {}
    for label in REWARDS:
        if label in _NOT_SHOWN:
            continue
        name, _, threshold = label.partition(", ")
        groups = [first_of_each(simulated[one][1][label], GROUP) for one in models]
        cells = (f"{one.no_spread:.2f}{_because(one)}" for one in groups)
        names.setdefault((threshold, *cells), []).append(name)
    rows: list[Sequence[str]] = [
        [", ".join(filter(None, (*of, threshold))), *cells] for (threshold, *cells), of in names.items()
    ]
    return "\n".join(
        [
            f"Simulated groups without spread, by the model's mean IoU ({images} images, {GROUP} answers each).",
            "Cause: all below τ; \\*: all perfect.",
            "",
            markdown_table(["reward", *(f"{one:g}" for one in models)], rows),
            "",
            "Made by `python scripts/studies/simulate_signal.py`.",
        ]
    )


#: How the table marks the main cause; another one would have no mark and stop the script.
_MARKS_OF_CAUSES = {"all_below_threshold": "", "all_perfect": "\\*"}
#: Rewards that are simulated and tested, but need no row.
_NOT_SHOWN = ("R1, τ 0.3", "R5, τ 0.3, thresholded_hungarian", "soft_f1, giou")


def _because(groups: Groups) -> str:
    cause = main_cause(groups.metrics())
    return _MARKS_OF_CAUSES[cause] if cause is not None and groups.no_spread >= 0.05 else ""


def main() -> None:
    """Simulate, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--output", type=Path, default=Path("docs/signal.md"), help="page to write; default: %(default)s"
    )
    parser.add_argument("--images", type=int, default=400, help="default: %(default)s")
    options = parser.parse_args()
    part = page_part(simulate(options.images), options.images)
    write_whole(options.output, replace_part(options.output.read_text(encoding="utf-8"), MARKS, part))


if __name__ == "__main__":
    main()

"""How the numbers of the rows of `golden.toml` are computed, which tests/golden/rewards.json keeps."""

import math
from typing import Any

import grounding_rewards as gr
from tests.conftest import REPOSITORY
from tests.tables import table

FILE = REPOSITORY / "tests" / "golden" / "rewards.json"

_SIZE = {"width": 1000, "height": 800}

#: Rows of a dataset; boxes in pixels of an image of 1000 × 800.
IMAGES: dict[str, dict[str, Any]] = table("rewards/golden", "images")
COMPLETIONS: dict[str, str] = table("rewards/golden", "completions")
REWARDS: dict[str, tuple[str, dict[str, Any]]] = table("rewards/golden", "rewards")

#: Rewards through an exponential, an arc tangent or powers, whose last digit numpy's releases and processors differ in.
ROUNDED = ("soft_f1 ciou", "soft_f1 nwd", "soft_f1 spline")


def is_same(reward: str, one: float | None, other: float | None) -> bool:
    """Whether two numbers of a reward are the same: to the last digit, but for those of :data:`ROUNDED`."""
    if reward in ROUNDED and one is not None and other is not None:
        return math.isclose(one, other, rel_tol=1e-12)
    return one == other


def compute_numbers() -> dict[str, dict[str, dict[str, float]]]:
    """The number of every reward on every image for every completion."""
    found = {}
    for title, (name, kwargs) in REWARDS.items():
        reward = gr.get_reward(name, box_format="qwen3-vl", **kwargs)
        found[title] = {image: _on(reward, row) for image, row in IMAGES.items()}
    return found


def _on(reward: Any, row: dict[str, Any]) -> dict[str, float]:
    columns = {column: [value] * len(COMPLETIONS) for column, value in {**row, **_SIZE}.items()}
    return dict(zip(COMPLETIONS, reward(completions=list(COMPLETIONS.values()), **columns), strict=True))

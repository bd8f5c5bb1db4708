"""The table of metrics in docs/metrics.md names every metric that an evaluation has, and no other."""

import re

import grounding_rewards as gr
from grounding_rewards.metrics.evaluation import Measures, evaluate
from grounding_rewards.metrics.read_predictions import read_predictions
from tests.conftest import REPOSITORY


def keys_on_the_page() -> set[str]:
    page = (REPOSITORY / "docs" / "metrics.md").read_text(encoding="utf-8")
    table = page.partition("## Every metric\n")[2].partition("\n## ")[0]
    cells = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
    named = {key for cell in cells for key in re.findall(r"`([^`]+)`", cell)}
    # From the first to the last of a row.
    named |= {f"reward_R{n}" for n in range(1, 6)} | {f"sensitivity_{n}" for n in (0.125, 0.25, 0.5, 1)}
    return named


def test_every_metric_has_its_formula() -> None:
    box = {"boxes": [[0, 0, 50, 50]], "labels": ["mass"]}
    none: dict[str, list] = {"boxes": [], "labels": []}
    rows = [{"id": str(k), "width": 100, "height": 100, **(box if k % 2 else none)} for k in range(8)]
    answer = '[{"bbox_2d": [0, 0, 500, 400], "label": "mass", "score": 0.9}]'
    images = read_predictions(rows, [[answer, "[]"]] * 8, gr.get_reward("R3", box_format="qwen3-vl"))
    assert set(evaluate({"model": images}, Measures("R3")).metrics) == keys_on_the_page()

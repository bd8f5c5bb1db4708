"""The warm-started model that the repository ships: small, made by the shipped script, and worth training on."""

from __future__ import annotations

import json

import pytest

from grounding_rewards.evaluation.answers import Decoding
from grounding_rewards.evaluation.run import Films, load_model, prepare_task
from tests.conftest import REPOSITORY
from tests.metrics.tables import measure

ASSET = REPOSITORY / "assets" / "tiny_vlm"


def test_it_is_small_enough_to_ship() -> None:
    assert sum(path.stat().st_size for path in ASSET.iterdir()) <= 4_000_000


def test_its_tokenizer_is_the_one_that_the_script_builds() -> None:
    from grounding_rewards.data.synthetic import LABELS
    from grounding_rewards.models.tiny_vlm import build_tokenizer

    built = build_tokenizer((LABELS, ("right lung", "left lung")))
    shipped = json.loads((ASSET / "tokenizer.json").read_text(encoding="utf-8"))
    assert shipped["model"] == json.loads(built.backend_tokenizer.to_str())["model"]


def test_it_finds_findings_loosely_and_leaves_something_to_learn() -> None:
    model, processor = load_model(ASSET)
    task = prepare_task(model, processor, Films(count=40, train_split=None), reward="R4")
    rows = measure(model, processor, task, Decoding(samples=4, max_new_tokens=24), name="shipped")
    shipped = rows[0].figures
    nothing = next(row for row in rows if row.name == "nothing found").figures
    # Far better than knowing nothing, and far from done: wide limits around what docs/rewards_compared.md shows.
    assert shipped["sampled_reward"].value > nothing["sampled_reward"].value + 0.2
    assert 0.5 < shipped["mean_iou"].value < 0.75
    assert shipped["unparseable_share"].value < 0.1


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "config.yaml"])
def test_it_is_complete(name: str) -> None:
    assert (ASSET / name).is_file()

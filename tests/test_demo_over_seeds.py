"""The demo over seeds: what its tables say of kept answers, and that a short run teaches."""

import json
import tarfile
from pathlib import Path
from statistics import fmean, stdev

import pytest

from grounding_rewards.metrics.prediction import Prediction, save_predictions
from scripts import demo_over_seeds
from tests.conftest import REPOSITORY, read_lines
from tests.tables import table

SIDE, IMAGES = 100, 40


def write_kept_run(folder: Path, name: str, before: float, after: float) -> Path:
    """A kept run whose boxes have these IoUs; every image has a finding of its own place."""
    root = folder / name
    for part, iou in (("before", before), ("after", after)):
        (root / part).mkdir(parents=True)
        images = []
        for number in range(IMAGES):
            x, y = 10 * (number % 8), 12 * (number // 8)
            boxes = {"gt": [[x, y, x + 10, y + 10]], "pred": [[x, y, x + 10, y + 10 * iou]]}
            rewards = {"soft_f1": iou}
            said = {"gt_labels": ["mass"], "pred_labels": ["mass"], "rewards": rewards}
            images.append(Prediction(f"image {number}", SIDE, SIDE, **boxes, **said))
        save_predictions(root / part / "images.jsonl", images)
        facts = json.dumps({"facts": {"model": part, "reward": "soft_f1"}})
        (root / part / "evaluation.json").write_text(facts, encoding="utf-8")
    (root / "log.jsonl").write_text('{"step": 1, "reward": 0.25}\n{"step": 2, "reward": 0.5}\n', encoding="utf-8")
    (root / "minutes.json").write_text("7.5", encoding="utf-8")
    archive = folder / f"{name}.tar.xz"
    with tarfile.open(archive, "w:xz") as files:
        for path in sorted(root.rglob("*.json*")):
            files.add(path, str(path.relative_to(root)))
    return archive


@pytest.mark.parametrize(("before", "after", "broken"), table("cases", "a_broken_promise_is_named"))
def test_a_broken_promise_is_named(tmp_path: Path, before: float, after: float, broken: list[str]) -> None:
    run = demo_over_seeds.read_run(write_kept_run(tmp_path, "run", before, after))
    assert demo_over_seeds.broken_promises([run]) == broken


def test_the_tables_of_the_tutorial_are_those_of_the_kept_answers() -> None:
    page = (REPOSITORY / "docs" / "tutorial.md").read_text(encoding="utf-8")
    runs = demo_over_seeds.kept_runs(REPOSITORY / demo_over_seeds.KEPT)
    for part in demo_over_seeds.tables(runs).values():
        assert part in page


@pytest.mark.training
def test_thirty_steps_raise_the_reward_by_more_than_its_spread(tmp_path: Path) -> None:
    from grounding_rewards.cli import main

    # The same 16 images in every step: others would add a spread of their own.
    few = ("--max_steps", "30", "--train_images", "16", "--save_strategy", "no", "--disable_tqdm", "true")
    assert main(["train", "--config", "configs/demo/grpo.yaml", *few, "--output_dir", str(tmp_path)]) == 0
    rewards = [entry["reward"] for entry in read_lines(tmp_path / "log.jsonl") if "reward" in entry]
    assert fmean(rewards[-10:]) - fmean(rewards[:10]) > max(stdev(rewards[:10]), stdev(rewards[-10:]))

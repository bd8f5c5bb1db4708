"""The whole evaluation of an untrained model, and a comparison whose training is somebody else's."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from grounding_rewards.evaluation import run
from grounding_rewards.evaluation.answers import Decoding, answer_films
from grounding_rewards.evaluation.compare import Comparison, comparison_table, make_runs
from grounding_rewards.evaluation.figures import FIGURES
from grounding_rewards.evaluation.run import Films, Launch, prepare_task, train_and_compare
from grounding_rewards.evaluation.summary import read_figures
from tests.metrics.tables import measure

DECODING = Decoding(samples=2, max_new_tokens=4)


def test_a_checkpoint_is_measured_beside_the_baselines(tiny_model: tuple[Any, Any]) -> None:
    task = prepare_task(*tiny_model, Films(count=6, train_split=None), reward="R2")
    assert set(task.dataset["box_format"]) == {"qwen2.5-vl"}
    assert "resized_width" in task.dataset.column_names
    rows = measure(*tiny_model, task, DECODING, name="tiny")
    assert [row.name for row in rows] == ["tiny", "nothing found", "whole image"]
    assert rows[0].figures["sampled_reward"].value <= 0.2
    assert all(set(row.figures) == set(FIGURES) for row in rows)


def test_films_of_one_name_are_refused_before_the_model_is_asked(
    tiny_model: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = prepare_task(*tiny_model, Films(count=2, train_split=None))
    twice = task.dataset.remove_columns("id").add_column("id", ["one", "one"])
    monkeypatch.setattr("grounding_rewards.models.generate.generate", lambda *_, **__: pytest.fail("was asked"))
    with pytest.raises(ValueError, match="Expected a name of its own for every film, got `id` 'one' 2 times"):
        answer_films(*tiny_model, twice, task.reward, DECODING)


MINE = {"syntax": "json", "keys": ["where"], "space": "norm1"}


@pytest.mark.parametrize("kwargs", [{"box_format": MINE}, {"reward_kwargs": {"box_format": MINE}}])
def test_a_format_of_ones_own(tiny_model: tuple[Any, Any], kwargs: dict[str, Any]) -> None:
    task = prepare_task(*tiny_model, Films(count=4, train_split=None), **kwargs)
    assert "box_format" not in task.dataset.column_names
    rows = measure(*tiny_model, task, DECODING, name="tiny")
    whole = rows[2].figures  # written in this format, and read
    assert whole["mean_iou"].value > 0
    assert whole["unparseable_share"].value == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"samples": 0}, "Expected at least 1 for `samples`, got 0"),
        ({"temperature": 0.0}, "Expected a number above 0 for `temperature`, got 0.0"),
    ],
)
def test_wrong_decoding_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Decoding(**settings)


@pytest.fixture
def launch(tiny_model: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    """A run whose training copies the model and writes a log."""
    model, processor = tiny_model
    start = tmp_path / "start"
    model.save_pretrained(start)
    processor.save_pretrained(start)
    config = tmp_path / "grpo.yaml"
    config.write_text(
        f"reward: R4\nmodel_name_or_path: {start}\nmax_completion_length: 4\nuse_cpu: true\nbf16: false\n"
        "report_to: none\nper_device_train_batch_size: 8\nnum_generations: 8\n",
        encoding="utf-8",
    )
    output = tmp_path / "run"

    def train(*arguments: str) -> None:
        assert "scripts/train_grpo.py" in arguments
        model.save_pretrained(output / "checkpoint")
        processor.save_pretrained(output / "checkpoint")
        lines = [{"step": i, "reward": 0.1 * i, "R4/mean_iou": None} for i in range(5)]
        (output / "log.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")

    monkeypatch.setattr(run, "_python", train)
    return Launch(config=str(config), output_dir=output, overrides=("--reward", "R2"))


def test_a_run_leaves_metrics_curves_and_page(launch: Launch) -> None:
    rows, reward = train_and_compare(launch, Films(count=4, train_split=None), Decoding(samples=2))
    assert reward.__name__ == "R2"
    assert [row.name for row in rows][:3] == ["before", "after", "after − before"]
    # The model was only copied, and the same seed draws the same answers.
    assert all(end in (0, 0.0) or math.isnan(end) for end in rows[2].figures["sampled_reward"])
    folder = launch.output_dir
    assert {path.name for path in folder.iterdir()} >= {"metrics.json", "curves.png", "index.html"}
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "http" not in page.replace("http://www.w3.org", "")
    stored = read_figures(folder / "metrics.json")
    assert stored["before"]["sampled_reward"] == rows[0].figures["sampled_reward"]
    assert math.isnan(stored["nothing found"]["label_accuracy"].value)
    assert json.loads((folder / "metrics.json").read_text(encoding="utf-8"))["decoding"]["max_new_tokens"] == 4


def test_several_rewards_are_refused(launch: Launch) -> None:
    several = Launch(launch.config, launch.output_dir, overrides=("--reward", "R1", "R2"))
    with pytest.raises(ValueError, match="Expected one reward for `reward`, got R1, R2"):
        train_and_compare(several, Films(count=4), DECODING)


def finish(folder: Path, value: float) -> None:
    folder.mkdir(parents=True)
    names = ("before", "after", "after − before", "nothing found")
    estimate = {"value": value, "low": value - 0.1, "high": None}
    figures = {name: dict.fromkeys(FIGURES, estimate) for name in names}
    (folder / "metrics.json").write_text(json.dumps({"figures": figures}), encoding="utf-8")


def test_comparison_skips_finished_runs_and_reports_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finish(tmp_path / "R1-seed0", 0.5)
    called: list[list[str]] = []

    def call(command: list[str], **_: Any) -> int:
        called.append(command)
        return int("R3" in command)

    monkeypatch.setattr("grounding_rewards.evaluation.compare.subprocess.call", call)
    comparison = Comparison(["R1", "R2", "R3"], [0], tmp_path, ["--max_steps", "2"])
    with pytest.raises(RuntimeError, match=r"1 of 2 runs failed. Read .*R3-seed0/demo.log"):
        make_runs(comparison)
    assert [command[command.index("--reward") + 1] for command in called] == ["R2", "R3"]
    assert all(command[-2:] == ["--max_steps", "2"] for command in called)
    assert "R2, seed 0: done" in capsys.readouterr().out


def test_comparison_table_has_a_line_per_finished_run_and_baseline(tmp_path: Path) -> None:
    finish(tmp_path / "R1-seed0", 0.5)
    finish(tmp_path / "R1-seed1", 0.25)
    lines = comparison_table(Comparison(["R1", "R2"], [0, 1], tmp_path)).splitlines()
    assert len(lines) == 2 + 2 + 1
    assert lines[2].startswith("| R1 | 0 | 0.500 → 0.500 | +0.500")
    assert lines[4].startswith("| R1 | nothing found | 0.500 |")


def test_baselines_that_all_rewards_score_alike_share_a_line(tmp_path: Path) -> None:
    finish(tmp_path / "R1-seed0", 0.5)
    finish(tmp_path / "R2-seed0", 0.5)
    lines = comparison_table(Comparison(["R1", "R2"], [0], tmp_path)).splitlines()
    assert lines[-1].startswith("| R1, R2 | nothing found | 0.500 |")

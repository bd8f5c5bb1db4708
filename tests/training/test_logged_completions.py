"""A run's table of completions scores itself: every command reads the run's folder as it is."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pandas
import pytest
import torch
from transformers import AutoProcessor
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from grounding_rewards.cli import main
from grounding_rewards.data.model_columns import add_columns, add_prompts
from grounding_rewards.logs.completion_logs import read_completions
from grounding_rewards.rewards.batch_log import METRIC_KEYS
from grounding_rewards.rewards.grounding import get_reward, score_columns
from grounding_rewards.synthetic import synthetic_dataset
from tests.training.runs import ASSET, config, grpo

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a training by two rewards, which say of every row the same."""
    folder = tmp_path_factory.mktemp("runs") / "r4"
    rewards = {"reward": "R4 R3", "reward_kwargs": '[{"iou_threshold":0.3},{}]'}
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as printed:
        # wide enough that no cell is folded
        patch.setenv("COLUMNS", "4000")
        grpo(folder, log_completions="true", **rewards)
    (folder.parent / "printed.txt").write_text(printed.getvalue(), encoding="utf-8")
    return folder


def test_the_screen_shows_answers_and_names_no_image(run):
    printed = (run.parent / "printed.txt").read_text(encoding="utf-8")
    rows = read_completions([run]).rows
    assert "R4/reason" in printed
    assert rows[0]["R4/reason"] in printed
    assert "/row" not in printed
    assert not [row["id"] for row in rows if row["id"] in printed]


def columns_of(rows):
    return {name: [row.get(name) for row in rows] for name in rows[0]}


def test_rewards_computed_again_equal_those_logged_to_the_last_digit(run):
    log = read_completions([run])
    assert len(log.rows) == 4 * 4
    rewards = [get_reward("R4", iou_threshold=0.3), get_reward("R3")]
    found = score_columns(rewards, log.completions, **columns_of(log.rows))
    for name in ("R4", "R3"):
        logged = [row[name] for row in log.rows]
        # the trainer keeps rewards in single precision
        assert np.float32(found[name]).tolist() == logged
        assert [row[f"{name}/reason"] for row in log.rows] == found[f"{name}/reason"]
    assert len(set(found["R4"])) > 2


def test_the_row_says_what_was_scored(run):
    row = read_completions([run / "completions"]).rows[0]
    assert {"id", "boxes", "labels", "width", "height", "resized_width", "resized_height", "box_format", "pred"} <= {
        *row
    }
    assert not [name for name in row if name.endswith("/row")]


def test_every_command_runs_on_the_folder_as_it_is(run, tmp_path, capsys):
    assert main(["inspect", str(run)]) == 0
    assert main(["score", str(run), "--rewards", "R3", "R5", "--out", str(tmp_path / "scored.jsonl")]) == 0
    scored = [json.loads(line) for line in (tmp_path / "scored.jsonl").read_text().splitlines()]
    assert {row["file"] for row in scored} == {f"completions_{step:05d}.parquet" for step in (1, 2, 3, 4)}
    assert np.float32([row["R3"] for row in scored]).tolist() == [row["R3"] for row in read_completions([run]).rows]
    assert main(["evaluate", "--completions", str(run), "--out", str(tmp_path / "evaluation"), "--resamples", "9"]) == 0
    assert (tmp_path / "evaluation" / "report.html").is_file()
    assert main(["signal", str(run), "--json", str(tmp_path / "signal.json")]) == 0
    capsys.readouterr()


def stock(trainer, kind, folder):
    """A run of TRL's own trainer, with the reward as the only thing of ours."""
    torch.set_num_threads(1)
    processor = AutoProcessor.from_pretrained(ASSET, padding_side="left")
    images = add_columns(add_prompts(synthetic_dataset("train", 8), "qwen2.5-vl"), processor, "qwen2.5-vl")
    logs = {"log_completions": True, "num_completions_to_print": 0}
    args = config(folder, kind, max_completion_length=24, max_steps=2, **logs)
    made = trainer(str(ASSET), REWARD, args, train_dataset=images, processing_class=processor)
    made.train()
    return made


REWARD = get_reward("R4", box_format="qwen2.5-vl")


@pytest.mark.parametrize(("trainer", "kind"), [(GRPOTrainer, GRPOConfig), (RLOOTrainer, RLOOConfig)])
def test_grpo_and_rloo_of_trl_take_the_same_reward(trainer, kind, tmp_path):
    made = stock(trainer, kind, tmp_path)
    assert {f"R4/{key}" for key in METRIC_KEYS} <= made.state.log_history[0].keys()
    rows = [json.loads(row) for row in made._logs["extra"]["R4/row"]]
    found = score_columns([REWARD], list(made._logs["completion"]), **columns_of(rows))
    assert np.float32(found["R4"]).tolist() == list(made._logs["rewards"]["R4"])


def test_a_table_with_messages_as_trl_writes_it_is_read(tmp_path, capsys):
    """With the columns of a dataset beside it, in the place of the rows that the reward says itself."""
    stock(GRPOTrainer, GRPOConfig, tmp_path / "run")
    table = pandas.concat(map(pandas.read_parquet, sorted((tmp_path / "run" / "completions").iterdir())))
    assert {len(messages) for messages in table["completion"]} == {1}
    assert {messages[0]["role"] for messages in table["completion"]} == {"assistant"}
    rows = [json.loads(row) for row in table["R4/row"]]
    names = ("id", "boxes", "width", "height", "resized_width", "resized_height", "box_format")
    bare = tmp_path / "bare.parquet"
    columns = {name: [row[name] for row in rows] for name in names}
    table[["step", "prompt", "completion"]].assign(**columns).to_parquet(bare)
    for log in (tmp_path / "run", bare):
        assert main(["inspect", str(log)]) == 0
        assert main(["score", str(log), "--rewards", "R4", "--out", str(tmp_path / "scored.jsonl")]) == 0
        scored = [json.loads(line)["R4"] for line in (tmp_path / "scored.jsonl").read_text().splitlines()]
        assert np.float32(scored).tolist() == list(table["R4"])
        evaluated = ["--out", str(tmp_path / f"of {log.name}"), "--resamples", "9"]
        assert main(["evaluate", "--completions", str(log), *evaluated]) == 0
    assert len(set(table["R4"])) > 1
    capsys.readouterr()

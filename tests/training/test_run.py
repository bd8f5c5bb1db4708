"""Whole runs: what is left in the folder, two processes, the best model, curves, TRL's own command line."""

from __future__ import annotations

import json

import pytest
import yaml
from transformers import AutoModelForImageTextToText, AutoProcessor

from grounding_rewards.common.config_files import read_config
from grounding_rewards.synthetic import synthetic_dataset
from grounding_rewards.training import callbacks
from grounding_rewards.training.arguments import parse_grpo_arguments
from grounding_rewards.training.run import train_grpo
from grounding_rewards.training.run_folder import resolved_config
from tests.training.forks import program, to_the_end
from tests.training.runs import GRPO, REPOSITORY, grpo, sft, weights, words

pytestmark = pytest.mark.training

SMALL = {**GRPO, "max_completion_length": 8, "max_steps": 2}


def options(**values):
    return words({**SMALL, **values})


def test_the_parity_check_can_be_left_out(tiny_vlm, tmp_path, monkeypatch):
    def refuse(trainer, dataset, box_format):
        raise ValueError("Expected the same log-probabilities, got others.")

    monkeypatch.setattr(callbacks, "check_parity", refuse)
    given = options(model_name_or_path=tiny_vlm, output_dir=tmp_path / "run", dataset="synthetic", max_steps=1)
    with pytest.raises(ValueError, match="Expected the same log-probabilities"):
        train_grpo(*parse_grpo_arguments(given))
    train_grpo(*parse_grpo_arguments([*given, "--overwrite", "true", "--parity_check", "false"]))


def log_of(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_run_folder(tiny_vlm, tmp_path):
    arguments = parse_grpo_arguments(
        [
            *options(model_name_or_path=tiny_vlm, output_dir=tmp_path / "run", dataset="synthetic"),
            *("--reward", "R2", "--reward_kwargs", '{"beta": 2.0}', "--eval_strategy", "steps"),
            *("--eval_steps", "1", "--eval_images", "2", "--per_device_eval_batch_size", "4"),
        ]
    )
    train_grpo(*arguments)
    folder = tmp_path / "run"
    AutoProcessor.from_pretrained(folder / "checkpoint")
    AutoModelForImageTextToText.from_pretrained(folder / "checkpoint")
    assert json.loads((folder / "versions.json").read_text())["trl"].startswith("1.")
    log = log_of(folder)
    assert [entry["step"] for entry in log if "reward" in entry] == [1, 2]
    assert [entry["step"] for entry in log if "eval_reward" in entry] == [1, 2]
    assert "R2/mean_iou" in log[0]
    written = yaml.safe_load((folder / "config.yaml").read_text())
    assert written["reward"] == ["R2"]
    assert written["reward_kwargs"] == {"beta": 2.0}
    again = parse_grpo_arguments(["--config", str(folder / "config.yaml")])
    assert resolved_config(*again) == written


def test_lora(tiny_vlm, tmp_path):
    """The adapters of configs/experiments sit in the language model alone."""
    experiment = read_config(REPOSITORY / "configs/experiments/r4.yaml")
    trainer = train_grpo(
        *parse_grpo_arguments(
            [
                *options(model_name_or_path=tiny_vlm, output_dir=tmp_path / "run", max_steps=1),
                *("--use_peft", "true", "--lora_target_modules", *experiment["lora_target_modules"]),
            ]
        )
    )
    trained = [name for name, value in trainer.model.named_parameters() if value.requires_grad]
    assert trained
    assert all("language_model" in name for name in trained)
    assert (tmp_path / "run/checkpoint/adapter_model.safetensors").is_file()


TWO_RANKS = """
import json, os, sys
from pathlib import Path
from grounding_rewards.training import grpo
from grounding_rewards.training.arguments import parse_grpo_arguments
from grounding_rewards.training.run import train_grpo

logged = []
original = grpo.GroundingGRPOTrainer._log_metric
def spy(self, name, value):
    logged.append(name)
    original(self, name, value)
grpo.GroundingGRPOTrainer._log_metric = spy

folder = Path(sys.argv.pop(1))
trainer = train_grpo(*parse_grpo_arguments())
rank = os.environ["RANK"]
history = [entry for entry in trainer.state.log_history if "reward" in entry]
(folder / f"{rank}.json").write_text(json.dumps({"logged": logged, "history": history}))
"""


def test_two_processes(tiny_vlm, tmp_path):
    """Both ranks log the same keys in the same order, agree on the values, and the run ends by itself."""
    script = tmp_path / "two_ranks.py"
    script.write_text(TWO_RANKS)
    to_the_end(
        *(program, "accelerate.commands.launch", "--config_file", "configs/accelerate/cpu_2.yaml"),
        *(script, tmp_path),
        *options(model_name_or_path=tiny_vlm, output_dir=tmp_path / "run", save_steps=2),
        output=tmp_path / "output.txt",
    )
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first["logged"] == second["logged"]
    assert len(first["history"]) == 2
    for one, other in zip(first["history"], second["history"], strict=True):
        assert list(one) == list(other)
        assert all(one[key] == other[key] for key in one if key.startswith(("R4/", "reward")))
        assert one["R4/signal/no_spread"] == one["frac_reward_zero_std"]
    assert [entry["step"] for entry in log_of(tmp_path / "run") if "reward" in entry] == [1, 2]


def test_stock_trl_command(tiny_vlm, tmp_path):
    """`trl grpo --reward_funcs grounding_rewards.rewards.R4` on a dataset with our columns, without our code."""
    images = synthetic_dataset("train", 4)
    for name, value in (("box_format", "qwen2.5-vl"), ("resized_width", 112), ("resized_height", 112)):
        images = images.add_column(name, [value] * 4)
    (tmp_path / "images").mkdir()
    images.to_parquet(str(tmp_path / "images" / "train.parquet"))
    ours = ("model_name_or_path", "train_images", "disable_tqdm")
    to_the_end(
        *(program, "trl.cli", "grpo", "--model_name_or_path", tiny_vlm, "--dataset_name", tmp_path / "images"),
        *("--reward_funcs", "grounding_rewards.rewards.R4", "grounding_rewards.rewards.R1"),
        *("--output_dir", tmp_path / "run"),
        *words({name: value for name, value in SMALL.items() if name not in ours}),
        output=tmp_path / "output.txt",
    )
    state = json.loads((tmp_path / "run/checkpoint-2/trainer_state.json").read_text())
    assert {"rewards/R4/mean", "rewards/R1/mean", "R4/mean_iou", "R1/mean_iou"} <= set(state["log_history"][0])


def test_images_stay_out_of_logs_by_default():
    """In our arguments themselves, so that a configuration that forgets it leaks nothing."""
    _, config, _ = parse_grpo_arguments(words({**GRPO, "output_dir": "runs/x"}))
    assert (config.log_multimodal, config.log_completions, config.push_to_hub, config.report_to) == (
        *(False, False, False),
        [],
    )


def test_an_unknown_keyword_of_the_model_is_refused_by_name(tmp_path):
    for train in (grpo, sft):
        with pytest.raises(ValueError, match=r"Expected keywords that exist in model_init_kwargs, got wrong_key\. "):
            train(tmp_path / "run", model_init_kwargs='{"wrong_key":1}')


def test_one_layer_may_have_an_adapter(tmp_path):
    options = {"use_peft": "true", "lora_r": 4, "lora_target_modules": "q_proj", "max_steps": 1}
    trainer = grpo(tmp_path / "run", **options)
    adapted = {name.partition(".lora_")[0] for name in weights(trainer) if ".lora_" in name}
    assert adapted
    assert {name.rpartition(".")[2] for name in adapted} == {"q_proj"}

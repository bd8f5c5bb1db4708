"""Small real runs of the shipped model, which knows enough that its answers differ in reward."""

import json
import os
import shutil
import sys
from pathlib import Path

import torch
from trl import GRPOConfig

from grounding_rewards.training.arguments import parse_grpo_arguments, parse_sft_arguments
from grounding_rewards.training.run import train_grpo, train_supervised

REPOSITORY = Path(__file__).resolve().parents[2]
ASSET = REPOSITORY / "assets" / "tiny_vlm"
BIN = Path(sys.executable).parent
ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}

COMMON = {
    **{"model_name_or_path": ASSET, "train_images": 8, "per_device_train_batch_size": 4, "max_steps": 4},
    **{"learning_rate": 1e-3, "logging_steps": 1, "save_steps": 1, "save_total_limit": 20, "report_to": "none"},
    **{"use_cpu": "true", "bf16": "false", "gradient_checkpointing": "false", "disable_tqdm": "true"},
}
GRPO = {**COMMON, "num_generations": 2, "max_completion_length": 12}
LORA = {"use_peft": "true", "lora_r": 4, "lora_target_modules": "all-linear"}

# What a clock says; and the closing entry, which speaks of one call of `train` alone.
_TIMED = ("step_time", "eval_runtime", "eval_samples_per_second", "eval_steps_per_second")
_CLOSING = "train_runtime"


def config(folder, kind=GRPOConfig, **changes):
    """TRL's own configuration of one small step."""
    values = {
        **{"output_dir": str(folder), "per_device_train_batch_size": 4, "num_generations": 2, "max_steps": 1},
        **{"max_completion_length": 8, "logging_steps": 1, "save_strategy": "no", "report_to": "none"},
        **{"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "disable_tqdm": True},
    }
    return kind(**{**values, **changes})


def logged(trainer):
    """The entries of the log that belong to steps."""
    return [entry for entry in trainer.state.log_history if "reward" in entry]


def words(values):
    """Options of a command line."""
    return [word for name, value in values.items() for word in (f"--{name}", *str(value).split())]


def grpo(folder, **values):
    torch.set_num_threads(1)
    return train_grpo(*parse_grpo_arguments(words({**GRPO, "output_dir": folder, **values})))


def sft(folder, **values):
    torch.set_num_threads(1)
    return train_supervised(*parse_sft_arguments(words({**COMMON, "output_dir": folder, **values})))


def stopped_copy(folder, step):
    """A copy of a run's folder as it was when the run was killed after a checkpoint."""
    copy = folder.with_name(f"{folder.name}-stopped")
    shutil.copytree(folder, copy)
    shutil.rmtree(copy / "checkpoint")
    for path in copy.glob("checkpoint-*"):
        if int(path.name.rpartition("-")[2]) > step:
            shutil.rmtree(path)
    return copy


def history(trainer_or_folder):
    """Everything that a run logged at its steps, but for what a clock says."""
    if isinstance(trainer_or_folder, Path):
        lines = (trainer_or_folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
        entries = list(map(json.loads, lines))
    else:
        entries = trainer_or_folder.state.log_history
    of_steps = [entry for entry in entries if _CLOSING not in entry]
    return [{key: value for key, value in entry.items() if key not in _TIMED} for entry in of_steps]


def weights(trainer):
    state = trainer.accelerator.unwrap_model(trainer.model).state_dict()
    return {name: value.detach().clone() for name, value in state.items()}


def same_weights(one, other):
    return list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)

"""A GRPO run from arguments to a folder that holds all that is needed to repeat it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from transformers import ProgressCallback, TrainerCallback
from trl import get_peft_config, get_quantization_config

from grounding_rewards.data.images import shrink_image
from grounding_rewards.data.load import load_split
from grounding_rewards.data.versions import package_versions
from grounding_rewards.training.arguments import GroundingArguments, GRPOArguments, ModelArguments
from grounding_rewards.training.grpo import GroundingGRPOTrainer

if TYPE_CHECKING:
    from datasets import Dataset

_PACKAGES = (
    "grounding_rewards",
    "accelerate",
    "datasets",
    "numpy",
    "peft",
    "pillow",
    "scipy",
    "torch",
    "transformers",
    "trl",
    "vllm",
)

# Derived from other fields, which would contradict them when read back
_DERIVED = ("generation_batch_size", "hub_token", "accelerator_config")


def train_grpo(arguments: GroundingArguments, config: GRPOArguments, model: ModelArguments) -> GroundingGRPOTrainer:
    """Train, and leave `checkpoint/`, `config.yaml`, `versions.json` and `log.jsonl` in `config.output_dir`.

    Args:
        arguments: Reward and films.
        config: TRL's configuration. `resume_from_checkpoint` is a folder, or `last` for the last complete
            checkpoint in `output_dir` (a run that has none yet starts from the beginning).
        model: The model, its precision and its adapters.

    Returns:
        The trainer after training.

    Raises:
        ValueError: The films or the settings do not fit, see `GroundingGRPOTrainer`.
    """
    resolved = resolved_config(arguments, config, model)
    folder = Path(config.output_dir)
    checkpoint = _checkpoint(config.resume_from_checkpoint, folder)
    with config.main_process_first(desc="loading films"):
        train_dataset = _films(arguments, arguments.train_split, arguments.train_films)
        eval_dataset = None
        if config.eval_strategy != "no":
            eval_dataset = _films(arguments, arguments.eval_split, arguments.eval_films)
    config.model_init_kwargs = {
        "revision": model.model_revision,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
        **(config.model_init_kwargs or {}),
    }
    trainer = GroundingGRPOTrainer(
        model=model.model_name_or_path,
        reward=list(arguments.reward),
        args=config,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        reward_kwargs=arguments.reward_kwargs,
        box_format=arguments.box_format,
        quantization_config=get_quantization_config(model),
        peft_config=get_peft_config(model),
        callbacks=[LogFile(folder / "log.jsonl")],
    )
    if not config.disable_tqdm:
        trainer.remove_callback(ProgressCallback)
        trainer.add_callback(Progress(trainer.reward_func_names))
    if trainer.is_world_process_zero():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text(yaml.safe_dump(resolved, sort_keys=True), encoding="utf-8")
        (folder / "versions.json").write_text(json.dumps(versions(), indent=2) + "\n", encoding="utf-8")
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model(str(folder / "checkpoint"))
    trainer.end()
    return trainer


class Progress(ProgressCallback):
    """A progress bar with the few numbers that tell whether the run learns; all others are in the log file."""

    def __init__(self, rewards: Sequence[str]) -> None:
        super().__init__()
        self.shown = {"reward": "reward"}
        for name in rewards:
            prefix = f"{name} " if len(rewards) > 1 else ""
            for key in ("mean_iou", "hallucination_rate", "status/unparseable"):
                self.shown[f"{name}/{key}"] = prefix + key.rpartition("/")[2].replace("_", " ")

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Show the latest values behind the bar instead of printing dozens of them."""
        if self.training_bar is not None and logs is not None:
            values = {label: logs[key] for key, label in self.shown.items() if logs.get(key) is not None}
            if values:
                self.training_bar.set_postfix({label: f"{value:.3f}" for label, value in values.items()})


class LogFile(TrainerCallback):
    """Writes what the trainer logs to a file, one JSON object a line, as it happens, on the main process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the file with what a resumed run had logged up to its checkpoint."""
        if state.is_world_process_zero:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text("".join(json.dumps(logs) + "\n" for logs in state.log_history), encoding="utf-8")

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Append the latest entry."""
        if state.is_world_process_zero:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(state.log_history[-1]) + "\n")


def resolved_config(*parts: Any) -> dict[str, Any]:
    """All values of the run as one mapping that `--config` reads back.

    Args:
        *parts: Dataclasses whose fields do not share names.

    >>> resolved_config(GroundingArguments(reward="R2"))["reward"]
    ['R2']
    """
    values = {
        one.name: _plain(getattr(part, one.name))
        for part in parts
        for one in fields(part)
        if one.init and one.name not in _DERIVED
    }
    return {name: value for name, value in values.items() if value is not None}


def versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that a result depends on; None for what is not installed.

    >>> versions()["python"].count(".")
    2
    """
    return package_versions(_PACKAGES)


def last_complete_checkpoint(folder: Path) -> Path | None:
    """The latest checkpoint that was written to its end, or None.

    The trainer writes `trainer_state.json` last, so a checkpoint that a killed run left half-written has
    none.

    Args:
        folder: The run's `output_dir`; need not exist.

    >>> last_complete_checkpoint(Path("no/such/run")) is None
    True
    """
    steps = {
        int(match.group(1)): path
        for path in folder.glob("checkpoint-*")
        if (match := re.fullmatch(r"checkpoint-(\d+)", path.name)) and _readable(path / "trainer_state.json")
    }
    return steps[max(steps)] if steps else None


def _checkpoint(asked: str | None, folder: Path) -> str | None:
    if asked is None or asked.lower() == "false":
        return None
    if asked.lower() in ("last", "true"):
        found = last_complete_checkpoint(folder)
        return None if found is None else str(found)
    if not Path(asked).is_dir():
        raise ValueError(
            f"Expected `last` or the folder of a checkpoint for resume_from_checkpoint, got {asked!r}. Check the path."
        )
    return asked


def _readable(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def _films(arguments: GroundingArguments, split: str, films: int | None) -> Dataset:
    dataset = load_split(arguments.dataset, split, films=films)
    limit = arguments.max_image_pixels
    if limit is None:
        return dataset
    return dataset.map(lambda image: {"image": shrink_image(image, limit)}, input_columns="image")


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value

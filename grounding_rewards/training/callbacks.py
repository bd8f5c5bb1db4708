"""What happens beside the steps of a run: its log, its bar, a word when it learns nothing, and an orderly stop."""

from __future__ import annotations

import json
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import ProgressCallback, TrainerCallback

from grounding_rewards.parsing import REJECT_REASONS

#: Steps in a row that teach nothing before it is said.
PATIENCE = 10


class SignalWarning(UserWarning):
    """The completions of many steps have taught nothing."""


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


class Progress(ProgressCallback):
    """A progress bar with the few numbers that tell whether the run learns; all others are in the log file.

    Args:
        shown: Keys of the log, and what they are called behind the bar.
    """

    def __init__(self, shown: Mapping[str, str]) -> None:
        super().__init__()
        self.shown = shown

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Show the latest values behind the bar instead of printing dozens of them."""
        if self.training_bar is not None and logs is not None:
            values = {label: logs[key] for key, label in self.shown.items() if logs.get(key) is not None}
            if values:
                self.training_bar.set_postfix({label: f"{value:.3f}" for label, value in values.items()})


def shown_of_rewards(names: Sequence[str]) -> dict[str, str]:
    """What a GRPO run shows behind its bar.

    >>> list(shown_of_rewards(["R4"]).values())
    ['reward', 'mean iou', 'hallucination rate', 'unparseable', 'cut off']
    """
    shown = {"reward": "reward"}
    for name in names:
        prefix = f"{name} " if len(names) > 1 else ""
        for key in ("mean_iou", "hallucination_rate", "status/unparseable"):
            shown[f"{name}/{key}"] = prefix + key.rpartition("/")[2].replace("_", " ")
    return {**shown, "completions/clipped_ratio": "cut off"}


class SignalWatch(TrainerCallback):
    """Says once, with its cause and a remedy, that :data:`PATIENCE` steps in a row have taught nothing.

    Args:
        trainer: TRL's GRPO trainer, whose figures of the latest step are read.
        rewards: Names of the grounding rewards.
    """

    def __init__(self, trainer: Any, rewards: Sequence[str]) -> None:
        self.trainer, self.rewards = trainer, rewards
        self.in_a_row: dict[str, int] = {}
        self.said: set[str] = set()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Look at the figures of the completions that were generated for this step."""
        figures = {key: values[-1] for key, values in self.trainer._metrics["train"].items() if values}
        # A step that goes on with the completions of the one before has no figures of its own.
        if "frac_reward_zero_std" not in figures:
            return
        found = dict(self._causes(figures))
        self.in_a_row = {cause: self.in_a_row.get(cause, 0) + 1 for cause in found}
        ripe = [cause for cause, steps in self.in_a_row.items() if steps >= PATIENCE]
        # The first is the cause of those after it.
        if ripe and not self.said and state.is_world_process_zero:
            self.said.add(ripe[0])
            warnings.warn(found[ripe[0]], SignalWarning, stacklevel=2)

    def _causes(self, figures: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        limit = self.trainer.max_completion_length
        if figures["completions/clipped_ratio"] >= 1.0:
            yield (
                "cut off",
                f"All answers of {PATIENCE} steps in a row were cut off: max_completion_length {limit} is too small, "
                "or the model does not know how to end an answer. Raise it, or teach the model with "
                "`grounding-rewards sft`.",
            )
        for name in self.rewards:
            boxes, empty, negatives = (figures[f"{name}/{key}"] for key in ("boxes", "status/empty", "negatives"))
            if boxes == 0 and empty < 1 and negatives < 1:
                yield (
                    "unread",
                    f"{name} found no box in any answer of {PATIENCE} steps in a row, and {1 - empty:.0%} of the "
                    f"latest state no negative either{_reasons(name, figures)}. The model writes boxes in another way "
                    "than box_format says, or not at all: see what it writes with log_completions: true and "
                    "`grounding-rewards inspect`, or teach it with `grounding-rewards sft`.",
                )
        if figures["frac_reward_zero_std"] >= 1.0:
            yield (
                "no spread",
                f"All answers to the same film earned the same in {PATIENCE} steps in a row, so that the reward taught "
                "nothing. Raise temperature or num_generations, lower iou_threshold, or start from a model that "
                "finds something now and then (`grounding-rewards sft`).",
            )


def _reasons(name: str, figures: Mapping[str, float]) -> str:
    """The commonest reason why something was not read, in brackets."""
    shares = {reason: figures.get(f"{name}/rejected/{reason}", 0.0) for reason in REJECT_REASONS}
    worst = max(shares, key=lambda reason: shares[reason])
    return f" ({worst} in {shares[worst]:.0%} of them)" if shares[worst] > 0 else ""


class StopOnSigterm(TrainerCallback):
    """Ends a run in good order when it is told to go: after the step that it is at, with a checkpoint.

    Batch systems send SIGTERM some time before they kill. Where one process of several gets it, all stop.

    Args:
        trainer: Whose processes agree on it.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.signalled = False
        self.stopped = False
        self._handler: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Listen from now on; before, there is nothing to save."""
        # Python lets only its main thread listen.
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGTERM, self._on_signal)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Have a checkpoint written and the training ended, if any process was told to go."""
        if self._any_signalled():
            self.stopped = control.should_save = control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave the signal to whoever had it before."""
        if self._handler is not None:
            signal.signal(signal.SIGTERM, self._handler)

    def _on_signal(self, *_: Any) -> None:
        self.signalled = True

    def _any_signalled(self) -> bool:
        accelerator = self.trainer.accelerator
        if accelerator.num_processes == 1:
            return self.signalled
        signalled = torch.tensor(int(self.signalled), device=accelerator.device)
        return bool(accelerator.reduce(signalled).item())

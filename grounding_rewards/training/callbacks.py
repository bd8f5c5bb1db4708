"""Callbacks of a run: its log, its progress bar, a warning when it learns nothing, a stop with a checkpoint."""

import json
import math
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm
from transformers import ProgressCallback, TrainerCallback

from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.common.formatting import NO_VALUE
from grounding_rewards.metrics.signal import CAUSES, SAME, SIGNAL_KEYS, main_cause
from grounding_rewards.models.parity import check_parity
from grounding_rewards.parsing import BoxFormat

#: Steps in a row without a learning signal before the warning.
PATIENCE = 10


class SignalWarning(UserWarning):
    """Many steps in a row had no learning signal."""


class LogFile(TrainerCallback):
    """Writes what the trainer logs to a file at once, one JSON object per line, on the main process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the file anew, with what a resumed run had logged up to its checkpoint."""
        if state.is_world_process_zero:
            write_whole(self.path, "".join(json.dumps(logs) + "\n" for logs in state.log_history))

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Append the latest entry."""
        if state.is_world_process_zero:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(state.log_history[-1]) + "\n")


class ParityCheck(TrainerCallback):
    """Refuses, before the first step, a training that computes its gradient on other inputs than the model answered.

    Args:
        trainer: TRL's GRPO trainer.
        box_format: as for :func:`grounding_rewards.models.parity.check_parity`.
    """

    def __init__(self, trainer: Any, box_format: str | BoxFormat | None) -> None:
        self.trainer, self.box_format = trainer, box_format

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Check with the weights that the first step has."""
        check_parity(self.trainer, self.trainer.train_dataset, self.box_format)


class LogEntry(TrainerCallback):
    """Hides keys without a value from the trackers, and adds counts of rejected boxes to the log of the run.

    It has to be the first callback. TensorBoard's would warn of each key without a value at each step.

    Args:
        trainer: `GroundingGRPOTrainer`.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Add the counts of rejected boxes to the latest entry, and remove keys without a value for the trackers."""
        # Only here: a tracker cannot draw a mapping of counts by reason.
        state.log_history[-1] |= self.trainer.rejected_reasons
        self.trainer.rejected_reasons = {}
        # Trackers get this mapping; it is changed in place.
        keys_without_value = [key for key, value in (logs or {}).items() if value is None]
        for key in keys_without_value:
            del logs[key]


class Progress(ProgressCallback):
    """A progress bar with the few numbers that show whether the run learns; the log file has all.

    Args:
        labels: keys of the log, and their names next to the bar.
    """

    def __init__(self, labels: Mapping[str, str]) -> None:
        super().__init__()
        self.labels = labels

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Show the latest values of the few keys next to the bar; transformers would print all."""
        if self.training_bar is not None and logs is not None and self.labels.keys() & logs.keys():
            self.training_bar.set_postfix_str(_line_of(logs, self.labels))


class EvaluationLine(TrainerCallback):
    """Prints a line for each evaluation of a run.

    Args:
        labels: keys of the log, and their names in the line.
    """

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.labels = {f"eval_{key}": label for key, label in labels.items()}

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """Print the line above the progress bar."""
        if state.is_world_process_zero and metrics is not None:
            line = f"evaluation at step {state.global_step}: {_line_of(metrics, self.labels)}"
            tqdm.write(line, file=sys.stderr)


def _line_of(logs: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """One line with a label and a number for each key; a missing number keeps its place by a dash.

    >>> _line_of({"reward": 0.25, "loss": -1}, {"reward": "reward", "rate": "rate", "loss": "loss"})
    'reward  0.250, rate      –, loss -1.000'
    """
    cells = []
    for key, label in labels.items():
        number = NO_VALUE if logs.get(key) is None else f"{logs[key]:.3f}"
        cells.append(f"{label} {number:>6}")
    return ", ".join(cells)


def bar_labels(names: Sequence[str]) -> dict[str, str]:
    """Labels of the numbers next to the progress bar of a GRPO run, by their keys in the log.

    Each of several rewards has its mean. The statistics of the answers are those of the first reward: they hardly
    depend on it.

    Args:
        names: of the grounding rewards.

    >>> list(bar_labels(["R4"]).values())
    ['reward', 'mean iou', 'hallucination rate', 'unparseable', 'cut off']
    >>> list(bar_labels(["R4", "format_only"]).values())[:4]
    ['reward', 'R4', 'format_only', 'mean iou']
    """
    labels = {"reward": "reward"}
    if len(names) > 1:
        labels |= {f"rewards/{name}/mean": name for name in names}
    if names:
        labels[f"{names[0]}/mean_iou"] = "mean iou"
        labels[f"{names[0]}/hallucination_rate"] = "hallucination rate"
        labels[f"{names[0]}/status/unparseable"] = "unparseable"
    return {**labels, "completions/clipped_ratio": "cut off"}


class SignalWatch(TrainerCallback):
    """Warns once, with cause and remedy, when :data:`PATIENCE` steps in a row had no learning signal.

    Args:
        trainer: TRL's GRPO trainer, whose metrics of the latest step are read.
        reward_names: of the grounding rewards, which log why their groups have no spread.
        function_names: of all reward functions; of one that is no grounding reward only NaN can be noticed.

    Attributes:
        latest: the metrics of the latest steps that generated completions, by key.
        flat_shares: each such step's share of groups without spread, since the last log; from the first step on the
            list that TRL itself appends to, and replaces when it logs.
        n_flat_shares: the length of that list when it was last looked at, which shows whether a step is new.
    """

    def __init__(self, trainer: Any, reward_names: Sequence[str], function_names: Sequence[str] = ()) -> None:
        self.trainer, self.reward_names, self.function_names = trainer, reward_names, function_names
        self.latest: deque[dict[str, Any]] = deque(maxlen=PATIENCE)
        self.flat_shares: list[float] = []
        self.n_flat_shares = 0
        self.has_warned = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep the metrics of this step, and warn if the latest steps have a problem in common."""
        metrics = self.trainer._metrics["train"]
        # TRL's list of the share of groups without spread, one for each step that generates answers. A step that reuses
        # answers adds none, and its other metrics are not new either.
        flat_shares = metrics.get("frac_reward_zero_std", [])
        # After each log TRL begins another list, of which nothing has been read.
        n_read = self.n_flat_shares if flat_shares is self.flat_shares else 0
        if len(flat_shares) > n_read:
            # The last value in each list is that of this step.
            self.latest.append({key: values[-1] for key, values in metrics.items() if values})
        self.flat_shares, self.n_flat_shares = flat_shares, len(flat_shares)
        if self.has_warned or len(self.latest) < PATIENCE or not state.is_world_process_zero:
            return
        message = self._message()
        if message:
            self.has_warned = True
            warnings.warn(message, SignalWarning, stacklevel=2)

    def _message(self) -> str | None:
        """The warning for the first problem that all of the latest steps have; None if they have none."""
        for name in self.function_names:
            if all(math.isnan(metrics[f"rewards/{name}/mean"]) for metrics in self.latest):
                return (
                    f"{name} returned NaN or None for every answer of {PATIENCE} steps in a row, so that it taught "
                    "nothing. Correct the function."
                )
        for name in self.reward_names:
            # Each group without spread has one cause, so that the shares of the causes add up to that of such groups.
            flat_shares = [sum(metrics[f"{name}/signal/{cause}"] for cause in CAUSES) for metrics in self.latest]
            # In some step a group had spread; SAME allows for rounding.
            if min(flat_shares) < 1.0 - SAME:
                continue
            means = {}
            for key in SIGNAL_KEYS:
                means[key] = sum(metrics[f"{name}/signal/{key}"] for metrics in self.latest) / PATIENCE
            # The most frequent cause over these steps, which `grounding-rewards signal` would name too.
            cause_name = main_cause(means) or "all_equal"
            cause = CAUSES[cause_name]
            return (
                f"All groups of {PATIENCE} steps in a row are without spread under {name}, {means[cause_name]:.0%} of "
                f"them because {cause.meaning}. {cause.remedy} `grounding-rewards signal` on the logged completions "
                "says which reward would have told them apart."
            )
        if not self.reward_names and all(metrics["frac_reward_zero_std"] >= 1.0 for metrics in self.latest):
            return f"All groups of {PATIENCE} steps in a row are without spread. {CAUSES['all_equal'].remedy}"
        return None


class StopOnSigterm(TrainerCallback):
    """Ends a run after its current step, with a checkpoint, when it gets SIGTERM.

    Batch systems send SIGTERM some time before they kill. If one of several processes gets it, all stop. (The option
    of transformers for this, `enable_jit_checkpoint`, saves amid a step, and each process for itself.)

    Args:
        trainer: the trainer, whose processes agree to stop.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.signalled = False
        self.stopped = False
        self._handler: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Handle the signal from now on; before the training there is nothing to save."""
        # Python allows handlers in the main thread only.
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGTERM, self._on_signal)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save a checkpoint and end the training if any process got the signal."""
        accelerator = self.trainer.accelerator
        # Summed over the processes, so that all of them decide alike.
        signalled = torch.tensor(int(self.signalled), device=accelerator.device)
        if accelerator.reduce(signalled).item():
            self.stopped = control.should_save = control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Restore the previous handler."""
        if self._handler is not None:
            signal.signal(signal.SIGTERM, self._handler)

    def _on_signal(self, *_: Any) -> None:
        """Note the signal; the step that runs is made to its end."""
        self.signalled = True

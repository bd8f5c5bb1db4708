"""The folder of a training, for who reads it: what its files are called, and what was logged."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from grounding_rewards.common.text_files import read_json_lines, read_yaml

#: In the folder of a run: what the trainer logged, one JSON object per line; every value of the run as it was used,
#: which `--config` reads back; versions of Python and of the packages that a result depends on; and the trained model.
LOG, CONFIG, VERSIONS, CHECKPOINT = "log.jsonl", "config.yaml", "versions.json", "checkpoint"

#: Seconds that the run took: a key of the last entry of one that came to its end, or was stopped.
CLOSING = "train_runtime"


def model_name(model: str) -> str:
    """The name of a model without its folders; that of a checkpoint with the name of its run.

    Example:
        >>> model_name("Qwen/Qwen2.5-VL-3B-Instruct"), model_name("/data/runs/r4/checkpoint-50/")
        ('Qwen2.5-VL-3B-Instruct', 'r4/checkpoint-50')
    """
    path = Path(model)
    # `.` and `..` have no name of their own.
    if model and path.name in ("", ".."):
        path = path.resolve()
    if path.name.startswith("checkpoint") and path.parent.name:
        return f"{path.parent.name}/{path.name}"
    return path.name


def first_and_last(entries: Sequence[Mapping[str, Any]], key: str) -> str:
    """Say in words how a logged value changed, from the mean of the first tenth of a run to that of the last.

    Beside it stands the standard deviation of single steps within these tenths: a change that is not larger shows
    nothing.

    Args:
        entries: the entries of the log, oldest first.
        key: the key of the value. Without an entry that has it, the text is empty.

    Example:
        >>> first_and_last([{"loss": value} for value in [0.2, 0.3] + [0.4] * 16 + [0.5, 0.5]], "loss")
        '0.250 → 0.500, a step ± 0.050, first and last 2 of 20'
    """
    values = [entry[key] for entry in entries if entry.get(key) is not None]
    if not values:
        return ""
    n = max(len(values) // 10, 1)
    first_values, last_values = values[:n], values[-n:]
    spread = ""
    if n > 1:
        # The mean of both variances, each around the mean of its own tenth.
        spread = f", a step ± {math.sqrt((variance(first_values) + variance(last_values)) / 2):.3f}"
    return f"{fmean(first_values):.3f} → {fmean(last_values):.3f}{spread}, first and last {n} of {len(values)}"


def tool_notes(model: str) -> list[str]:
    """A sentence if the model was trained with tools, for commands that ask it without; else nothing.

    Args:
        model: folder or id of a model; beside that of a checkpoint stands the configuration of its run.

    Example:
        >>> tool_notes("some/model")
        []
    """
    if not _settings(Path(model).resolve().parent).get("look_closer"):
        return []
    return [
        "The model was trained with look_closer; here it answers without tools, and what it would have seen closer it "
        "may miss. With tools it is evaluated during its run, by eval_strategy."
    ]


def trained_reward(log: Path) -> tuple[str, dict[str, Any]] | None:
    """The reward that the run of a log trained, and its parameters; None for no known run, or for several rewards.

    Args:
        log: a file or folder in the folder of a run, or that folder.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     text = '{reward: [R3], reward_kwargs: {beta: 2.0}, box_format: gemini}'
        ...     _ = Path(folder, "config.yaml").write_text(text)
        ...     trained_reward(Path(folder, "completions"))
        ('R3', {'box_format': 'gemini', 'beta': 2.0})
    """
    # The relative path of a file in the working directory does not name the folders above it.
    path = log.absolute()
    # A log is the folder of its run, lies in it, or in `completions` there. The nearest folder comes first.
    run_folders = [folder for folder in (path, *path.parents[:2]) if (folder / CONFIG).is_file()]
    settings = _settings(run_folders[0]) if run_folders else {}
    names = settings.get("reward")
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        return None
    parameters = settings.get("reward_kwargs") or {}
    if isinstance(parameters, list):
        # One mapping for each reward, of which there is one.
        parameters = parameters[0] or {}
    if not isinstance(parameters, Mapping):
        return None
    if settings.get("box_format") is not None:
        parameters = {"box_format": settings["box_format"], **parameters}
    return names[0], dict(parameters)


def _settings(folder: Path) -> Mapping[str, Any]:
    """The configuration of the run in a folder; empty if it has no file of this name, or somebody else's."""
    config = folder / CONFIG
    try:
        settings = read_yaml(config) if config.is_file() else {}
    except ValueError:
        return {}
    return settings if isinstance(settings, Mapping) else {}


def read_entries(log: Path) -> list[dict[str, Any]]:
    """The entries of a training's log, one for each logged step, oldest first.

    Args:
        log: the file.

    Raises:
        ValueError: a line is no JSON object; it is named.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "log.jsonl").write_text('{"step": 1}\\n{"step": 2}')
        ...     read_entries(Path(folder, "log.jsonl"))
        [{'step': 1}, {'step': 2}]
    """
    return [entry for _, entry in read_json_lines(log, f"Give the {LOG} of a training.")]

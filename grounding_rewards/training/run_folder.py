"""Claim the folder of a run, find the checkpoint from which it resumes, and keep what is needed to repeat it."""

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from grounding_rewards.common.atomic_files import check_settings, write_whole
from grounding_rewards.common.environment import package_versions
from grounding_rewards.common.text_files import parse_yaml
from grounding_rewards.logs.run_log import CHECKPOINT, CONFIG, LOG, VERSIONS

ADAPTER = "adapter"
"""The adapter of a warm start with LoRA; the checkpoint has it merged."""

CARD = "README.md"
"""The model card."""

_PACKAGES = (
    *("grounding_rewards", "accelerate", "datasets", "numpy", "peft", "pillow", "scipy", "torch"),
    *("transformers", "trl", "vllm"),
)

# Fields that are not saved: a secret, and what is computed from others, which read back would contradict changed ones.
_UNSAVED = ("generation_batch_size", "hub_token", "accelerator_config")

# Options that may change when a run is resumed: where and how often it writes, how long it trains, and how its work is
# distributed on the machine.
_CHANGEABLE = re.compile(
    r"output_dir|overwrite|resume_from_checkpoint|run_name|project|report_to|disable_tqdm|local_rank|debug"
    r"|max_steps|num_train_epochs|early_stopping_patience|num_completions_to_print"
    r"|(hub|push|log|logging|save|eval|trackio|dataloader|ddp|vllm_server|vllm_gpu)_.*"
)

# The files of a complete checkpoint; the trainer writes the first one last.
_CHECKPOINT_FILES = ("trainer_state.json", "optimizer.pt", "scheduler.pt")


def resolved_config(*parts: Any) -> dict[str, Any]:
    """All options of a run as one mapping, which `--config` reads back; an option that is off is None.

    Args:
        *parts: dataclasses whose fields do not share names.

    >>> from grounding_rewards.training.arguments import GroundingArguments
    >>> resolved_config(GroundingArguments(reward="R2"))["reward"]
    ['R2']
    """
    config = {}
    for part in parts:
        for option in fields(part):
            if option.init and option.name not in _UNSAVED:
                # JSON turns members of an Enum into texts, and tuples into lists.
                config[option.name] = json.loads(json.dumps(getattr(part, option.name)))
    return config


def versions() -> dict[str, str | None]:
    """The versions of Python and of the packages that a result depends on; None for what is not installed.

    >>> versions()["python"].count(".")
    2
    """
    return package_versions(_PACKAGES)


def find_start(config: Mapping[str, Any], *, processes: int = 1) -> tuple[Path | None, list[str]]:
    """Refuse a folder that holds another run, and find the checkpoint to resume from.

    Nothing is changed; see :func:`claim`.

    Args:
        config: from :func:`resolved_config`, with `output_dir`, and maybe `resume_from_checkpoint` (`last`, or the
            folder of a checkpoint) and `overwrite`.
        processes: how many processes the run has.

    Returns:
        The checkpoint, None for the beginning, and lines to print: how the resumed run differs from the earlier one.

    Raises:
        ValueError: the folder cannot be written; it holds files of something else; it holds a run and is neither to be
            resumed nor overwritten; `overwrite` would remove the model; there is no such checkpoint, it is not whole,
            or not the last one; or it comes from another configuration, of which the differing values are named.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     find_start({"output_dir": folder, "resume_from_checkpoint": "last"})
    (None, [])
    """
    folder, overwrite = Path(config["output_dir"]), config.get("overwrite")
    resume_from = config.get("resume_from_checkpoint")
    # transformers takes true and false here too, which the command line gives as texts.
    resume_from = {"false": None, "true": "last"}.get(str(resume_from).lower(), resume_from)
    _check_writable(folder)
    # What this run will remove or write over must have been written by a run, not by the user.
    replaced_paths = _run_files(folder) if overwrite else [folder / CARD, folder / CONFIG]
    _refuse_foreign(folder, replaced_paths)
    # The model to start from may lie in the old run, which is removed before the model is loaded.
    model = Path(str(config.get("model_name_or_path"))).resolve()
    if overwrite and any(path.resolve() in (model, *model.parents) for path in replaced_paths):
        raise ValueError(
            f"Expected a model_name_or_path that overwrite does not remove, got {str(model)!r} in {str(folder)!r}. "
            "Give another output_dir, or move the model."
        )
    if resume_from is not None and overwrite:
        raise ValueError(
            f"Expected resume_from_checkpoint or overwrite, got both, {resume_from!r} and true. The one keeps what the "
            "other removes: give one of them."
        )
    if resume_from is None:
        if not overwrite:
            _refuse_run(folder, "go on with --resume_from_checkpoint last, or start again with --overwrite")
        return None, []
    checkpoint = last_complete_checkpoint(folder) if resume_from == "last" else Path(resume_from)
    if checkpoint is not None:
        return checkpoint, _resume_notes(folder, checkpoint, config, processes)
    # There is no checkpoint to resume from: `last` was asked of a run that saved none.
    if (folder / CHECKPOINT).is_dir():
        raise ValueError(
            f"Expected a checkpoint in {str(folder)!r} for resume_from_checkpoint, got a finished run without any. "
            "Start again with --overwrite, or start another run from its checkpoint/."
        )
    # It was stopped before its first checkpoint, and begins again with the same configuration.
    return None, _allowed_changes(folder, config)


def _resume_notes(folder: Path, checkpoint: Path, config: Mapping[str, Any], processes: int) -> list[str]:
    """Return lines to print on how this run may differ from the one that wrote a checkpoint; refuse if it must not.

    Args:
        folder: the `output_dir` of this run.
        checkpoint: from which it resumes, in this folder or in that of another run.
        config: of this run.
        processes: how many it has.
    """
    _refuse_incomplete(checkpoint)
    if config.get("sync_ref_model"):
        raise ValueError(
            "Expected sync_ref_model: false for resume_from_checkpoint, got true. A checkpoint does not hold the "
            "reference model, which would start from the beginning again."
        )
    if checkpoint.resolve().parent != folder.resolve():
        # The checkpoint continues in a fresh folder: one with a run would then hold two.
        _refuse_run(folder, "or resume in the folder of the checkpoint")
    notes = _allowed_changes(checkpoint.parent, config)
    # Each process saves its random state. Where these files were not copied, the number is not known.
    earlier_processes = len(list(checkpoint.glob("rng_state*.pth")))
    if earlier_processes not in (0, processes):
        notes.append(
            f"Goes on in {processes} processes instead of {earlier_processes}: samples differ from those of a run that "
            "was never stopped."
        )
    return notes + _skipped_checkpoints(folder, checkpoint)


def claim(config: Mapping[str, Any]) -> None:
    """Write the configuration and the versions of a run into its folder; with `overwrite` remove the old run first.

    Args:
        config: as for :func:`find_start`.
    """
    folder = Path(config["output_dir"])
    if config.get("overwrite"):
        for path in _run_files(folder):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    # A run that takes its options from this file is a new one: it must neither resume nor overwrite.
    saved_config = {**config, "resume_from_checkpoint": None, "overwrite": False}
    # First the file by which a folder is known as a run's: the next run could not tell the other one from a user's.
    write_whole(folder / VERSIONS, json.dumps(versions(), indent=2) + "\n")
    write_whole(folder / CONFIG, yaml.safe_dump(saved_config, sort_keys=True))


def last_complete_checkpoint(folder: Path) -> Path | None:
    """The latest complete checkpoint, or None.

    The trainer writes `trainer_state.json` last, so an incomplete checkpoint of a killed run has none.

    Args:
        folder: the run's `output_dir`; need not exist.

    >>> last_complete_checkpoint(Path("no/such/run")) is None
    True
    """
    return next((path for path in reversed(_checkpoints(folder)) if _is_complete(path)), None)


def _refuse_run(folder: Path, remedy: str) -> None:
    """Refuse a folder that holds checkpoints, a model or a log of a run."""
    names = [path.name for path in _checkpoints(folder)]
    names += [name for name in (ADAPTER, CHECKPOINT) if (folder / name).is_dir()]
    log = folder / LOG
    # An empty log is that of a run that ended before it logged a step.
    if log.is_file() and log.stat().st_size:
        names.append(LOG)
    if names:
        raise ValueError(
            f"Expected an output_dir without a run, got {str(folder)!r}, which holds {', '.join(names)}. "
            f"Give another folder, {remedy}."
        )


def _refuse_foreign(folder: Path, paths: Sequence[Path]) -> None:
    """Refuse a folder in which one of these paths exists although no run wrote there.

    Every run writes its versions before anything else, so that a folder without them is not a run's.
    """
    foreign_names = [path.name for path in paths if path.exists()]
    if foreign_names and not (folder / VERSIONS).exists():
        raise ValueError(
            f"Expected a folder of its own for output_dir, got {str(folder)!r}, which holds "
            f"{' and '.join(foreign_names)} without a run's {VERSIONS}. Give another folder, or move them away."
        )


def _refuse_incomplete(checkpoint: Path) -> None:
    """Refuse a path that is not a checkpoint, or is an incomplete one."""
    if not checkpoint.is_dir():
        raise ValueError(
            f"Expected `last` or the folder of a checkpoint for resume_from_checkpoint, got {str(checkpoint)!r}. "
            "Check the path."
        )
    missing = [name for name in _CHECKPOINT_FILES if not (checkpoint / name).is_file()]
    # FSDP names the file of an optimizer optimizer.bin; FSDP and DeepSpeed write the shards of one into folders.
    optimizer_names = ("optimizer.bin", "optimizer_*", "global_step*")
    has_sharded_optimizer = any(any(checkpoint.glob(name)) for name in optimizer_names)
    # The first file, which the trainer writes last, has to be there; with shards the other two may be missing.
    if missing and not (has_sharded_optimizer and _CHECKPOINT_FILES[0] not in missing):
        raise ValueError(
            f"Expected a whole checkpoint for resume_from_checkpoint, got {str(checkpoint)!r} without "
            f"{', '.join(missing)}. A model without them can be started from, as model_name_or_path, but not resumed."
        )


def _checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, complete or not, in the order of their steps."""
    return sorted((path for path in folder.glob("checkpoint-*") if _step(path) >= 0), key=_step)


def _step(path: Path) -> int:
    """The step in the name of a checkpoint; -1 if a checkpoint has no such name."""
    match = re.fullmatch(r"checkpoint-(\d+)", path.name)
    return int(match[1]) if match else -1


def _run_files(folder: Path) -> list[Path]:
    """The files and folders in a folder that bear names of a run's own."""
    names = (ADAPTER, CHECKPOINT, LOG, CONFIG, VERSIONS, CARD, "training_args.bin")
    paths = [folder / name for name in names if (folder / name).exists()]
    return paths + _checkpoints(folder) + list((folder / "completions").glob("completions_*.parquet"))


def _check_writable(folder: Path) -> None:
    """Make the folder, and refuse one in which no file can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"Expected a folder that can be written for output_dir, got {str(folder)!r} ({error.strerror}). "
            "Give another folder."
        ) from error


def _allowed_changes(folder: Path, config: Mapping[str, Any]) -> list[str]:
    """Return lines to print: the options and versions that changed since an earlier run; refuse other options.

    Args:
        folder: of the earlier run, with its configuration and versions; without them there is nothing to compare.
        config: of the run that resumes it.
    """
    if not (folder / CONFIG).is_file():
        return []
    old_config = _read(folder / CONFIG, parse_yaml) or {}
    new_versions = versions()
    # A run whose versions are not known counts as one with the same versions.
    old_versions = _read(folder / VERSIONS, json.loads) or new_versions
    updated_packages = [name for name, version in new_versions.items() if old_versions.get(name) != version]
    changeable_names = [name for name in {*old_config, *config} if _CHANGEABLE.fullmatch(name)]
    if updated_packages:
        # A newer library has options that the older one did not know: these may differ too.
        changeable_names += [name for name in config if name not in old_config]
    remedy = "Give the same again, or start another run from its checkpoint, as model_name_or_path."
    changes = check_settings(folder, old_config, config, remedy, may_change=changeable_names)
    # Not worth a line: that and where it resumes, which the user has just typed, and options that the older library did
    # not know.
    unmentioned_names = {"resume_from_checkpoint", "overwrite", "output_dir"} | (changes.keys() - old_config.keys())
    notes = [f"Goes on with {change}." for name, change in changes.items() if name not in unmentioned_names]
    for name in updated_packages:
        notes.append(f"Goes on with {name} {new_versions[name]} instead of {old_versions.get(name)}.")
    return notes


def _skipped_checkpoints(folder: Path, checkpoint: Path) -> list[str]:
    """Return a line to print for each incomplete checkpoint after the one to resume from; refuse complete ones."""
    later = [path for path in _checkpoints(folder) if _step(path) > _step(checkpoint)]
    complete_names = [path.name for path in later if _is_complete(path)]
    if complete_names:
        raise ValueError(
            f"Expected the last checkpoint of the run in {str(folder)!r} for resume_from_checkpoint, got "
            f"{checkpoint.name} before {', '.join(complete_names)}, from which the run would go on the next time. "
            "Remove the later ones, or give another output_dir."
        )
    return [f"Passed over {path.name}, which was not written to its end." for path in later]


def _is_complete(checkpoint: Path) -> bool:
    """Whether the file that the trainer writes last can be read."""
    return _read(checkpoint / _CHECKPOINT_FILES[0], json.loads) is not None


def _read(path: Path, parse: Callable[[str], Any]) -> Any:
    """The parsed content of a file; None if it is missing or cut off."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None

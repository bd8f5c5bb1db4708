"""Make the runs of a study: train each by `accelerate launch`, measure it in one process, and write one small file.

A finished run is never made again. An interrupted run continues exactly at its last checkpoint (`training.resume`), so
that its file is the same as without the interruption.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from grounding_rewards.common.atomic_files import check_settings, write_whole
from grounding_rewards.common.config_files import find_shipped
from grounding_rewards.common.text_files import read_yaml
from grounding_rewards.logs.run_log import CHECKPOINT, CLOSING, LOG, VERSIONS, read_entries
from grounding_rewards.study.plan import (
    SFT,
    InitialCheckpoint,
    Plan,
    Run,
    claim_folder,
    fingerprint_of_run,
    fingerprint_of_start,
)
from grounding_rewards.study.results import SCHEMA, Folder, read_json, write_json
from grounding_rewards.training.run_options import COMMON_OPTIONS

# The file next to the checkpoints of a training that has ended without an error.
_TRAINED = "trained.json"
_CONFIG = "run.yaml"
# Lines of a log that an error shows.
_SHOWN_LINES = 3
# Metrics of a log that a curve keeps.
_CURVE_METRICS = ("reward", "loss", "frac_reward_zero_std")


def make_runs(
    plan: Plan,
    folder: Folder,
    runs: Sequence[Run],
    *,
    jobs: int = 1,
    on_end: Callable[[str, str, float], None] = lambda name, error, seconds: None,
) -> dict[str, str]:
    """Make those runs that are not finished, and the initial checkpoints that they need.

    Args:
        plan: of the study.
        folder: of the study, which is claimed for it.
        runs: of the plan; if empty, only initial checkpoints are made, all of them.
        jobs: runs at the same time.
        on_end: called when each initial checkpoint and run has ended, with its name, its error, empty where it is
            finished, and its seconds.

    Returns:
        The error of each run that failed, by name; without runs, of each initial checkpoint. If an initial checkpoint
        fails, so do its runs.

    Raises:
        ValueError: the folder holds another study.
    """

    def attempt(name: str, make: Callable[[], None]) -> str:
        """Make a run or an initial checkpoint, and return its error."""
        start_time = time.monotonic()
        error = ""
        try:
            make()
        except (ValueError, OSError) as reason:
            error = str(reason)
        on_end(name, error, time.monotonic() - start_time)
        return error

    claim_folder(folder, plan)
    missing = missing_runs(runs, folder)
    errors: dict[str, str] = {}
    # One after the other: the first one writes the references that all others are compared with.
    for start in plan.with_parents([run.start for run in missing] if runs else plan.starts):
        parent = plan.starts[start].parent
        # A checkpoint cannot be taught on from one that failed. Most have no parent; None is no key.
        if parent in errors:
            errors[start] = errors[parent]
        elif not _is_made(folder, plan.starts[start]):
            error = attempt(f"start {start}", partial(_make_start, plan, folder, plan.starts[start]))
            if error:
                errors[start] = f"the start {start} failed: {error}"
    if not runs:
        return errors
    failed = {run.name: errors[run.start] for run in missing if run.start in errors}
    with ThreadPoolExecutor(jobs) as pool:
        futures = {}
        for run in missing:
            if run.name not in failed:
                futures[run.name] = pool.submit(attempt, run.name, partial(_make_run, plan, folder, run))
        try:
            for future in as_completed(futures.values()):
                # Raises what `attempt` does not count as the failure of a run, such as an interrupt: all stops.
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    # An empty error is that of a finished run.
    failed |= {name: future.result() for name, future in futures.items() if future.result()}
    return failed


def missing_runs(runs: Sequence[Run], folder: Folder) -> list[Run]:
    """The runs that have no result yet."""
    return [run for run in runs if not folder.result(run.name).is_file()]


def _is_made(folder: Folder, start: InitialCheckpoint) -> bool:
    """Whether an initial checkpoint is taught, if it has to be, and measured."""
    file = folder.start(start.name)
    is_taught = start.sft is None or (folder.made(start.name) / _TRAINED).is_file()
    return is_taught and file.is_file() and read_json(file)["fingerprint"] == fingerprint_of_start(start)


def _make_start(plan: Plan, folder: Folder, start: InitialCheckpoint) -> None:
    """Train an initial checkpoint if the plan says so, measure it and write the result."""
    training = folder.made(start.name)
    log = folder.log(f"start-{start.name}")
    if start.sft is not None:
        model = start.model if start.parent is None else _weights(plan, folder, start.parent)
        config = {**start.sft, "model_name_or_path": model, "output_dir": str(training)}
        _train(plan, SFT, config, log)
    # Without options of a run, so that the study's box format is used.
    measured = _measure(plan, folder, training, [_weights(plan, folder, start.name)], {}, log)
    content = {
        "schema": SCHEMA,
        "study": plan.name,
        "start": start.name,
        "fingerprint": fingerprint_of_start(start),
        "box_format": measured["box_format"],
        "step": 0,
        **measured["checkpoints"][0],
    }
    write_json(folder.start(start.name), content)


def _make_run(plan: Plan, folder: Folder, run: Run) -> None:
    """Train a run, measure its checkpoints and write its result; then its checkpoints are removed."""
    log = folder.log(run.name)
    training = folder.training(run.name)
    weights = _weights(plan, folder, run.start)
    config = {**run.config, "model_name_or_path": weights, "output_dir": str(training)}
    _train(plan, run.kind, config, log)
    # The steps at which the training has saved a checkpoint.
    interval = run.config["save_steps"]
    steps = range(interval, run.config["max_steps"] + 1, interval)
    checkpoints = [str(training / f"checkpoint-{step}") for step in steps]
    measured = _measure(plan, folder, training, checkpoints, run.config, log)
    entries = read_entries(training / LOG)
    measured_checkpoints = []
    for step, checkpoint in zip(steps, measured["checkpoints"], strict=True):
        # In steps of GRPO, so that supervised runs can be compared with it.
        measured_checkpoints.append({"step": round(step * run.equivalent), **checkpoint})
    content = {
        "schema": SCHEMA,
        "study": plan.name,
        **{name: getattr(run, name) for name in ("arm", "start", "seed", "role", "kind", "reward")},
        "box_format": measured["box_format"],
        "curve": curve_of(entries, run.equivalent),
        "checkpoints": measured_checkpoints,
        "log": entries,
        "versions": json.loads((training / VERSIONS).read_text(encoding="utf-8")),
        "fingerprint": fingerprint_of_run(plan, run),
    }
    write_json(folder.result(run.name), content)
    shutil.rmtree(training, ignore_errors=True)


def _weights(plan: Plan, folder: Folder, start: str) -> str:
    """The `model_name_or_path` of runs that begin at an initial checkpoint."""
    checkpoint = plan.starts[start]
    return find_shipped(checkpoint.model) if checkpoint.sft is None else str(folder.made(start) / CHECKPOINT)


def _train(plan: Plan, kind: str, config: Mapping[str, Any], output_log: Path) -> None:
    """Train to the end, or continue an interrupted training.

    Args:
        plan: of the study.
        kind: the command, `train` or `sft`.
        config: its options, with `output_dir`.
        output_log: of what the training prints.

    Raises:
        ValueError: the training failed, or was begun with other settings.
    """
    training = Path(config["output_dir"])
    # The marker is written when a training has ended without an error.
    config_file, marker = training / _CONFIG, training / _TRAINED
    if config_file.is_file():
        check_settings(training, read_yaml(config_file), config, "Give the same again, or remove the folder.")
    if marker.is_file():
        return
    if not any(training.glob("checkpoint-*")):
        # Without a checkpoint to continue from it begins anew. `train` refuses that beside a model, such as one that a
        # killed training has left.
        shutil.rmtree(training / CHECKPOINT, ignore_errors=True)
    write_whole(config_file, yaml.safe_dump(dict(config)))
    words = ["-m", "accelerate.commands.launch", "--quiet", "--config_file", find_shipped(plan.accelerate)]
    words += ["-m", "grounding_rewards.cli", kind, "--config", str(config_file)]
    words += ["--resume_from_checkpoint", "last", "--disable_tqdm", "true"]
    run_program(words, output_log)
    write_whole(marker, "{}")


def _measure(
    plan: Plan, folder: Folder, training: Path, checkpoints: Sequence[str], config: Mapping[str, Any], log: Path
) -> dict[str, Any]:
    """Measure checkpoints on all sets.

    Args:
        plan: of the study.
        folder: of the study.
        training: folder for the files of the job.
        checkpoints: folders or names of models.
        config: options of the run, whose `box_format` goes before that of the study; empty for an initial checkpoint.
        log: of the output.

    Returns:
        The result of :func:`grounding_rewards.study.measure.measure`.
    """
    output = training / "answers.json"
    job_file = training / "measure.json"
    # As many tokens as an answer may have in the training, by its default where the study does not say. The second
    # member is a help text, which is not needed.
    default_length, _ = COMMON_OPTIONS["train"]["max_completion_length"]
    job = {
        "checkpoints": checkpoints,
        "sets": [vars(image_set) for image_set in plan.sets],
        "box_format": config.get("box_format", plan.train.get("box_format")),
        "batch_size": plan.batch_size,
        "max_new_tokens": int(plan.train.get("max_completion_length", default_length)),
        "images": str(folder.images),
        "output": str(output),
    }
    write_whole(job_file, json.dumps(job))
    run_program(["-m", "grounding_rewards.study.measure", str(job_file)], log)
    return json.loads(output.read_text(encoding="utf-8"))


def run_program(words: Sequence[str], log: Path) -> None:
    """Run Python with arguments, and append its output to a log.

    Raises:
        ValueError: the program failed; the message has the last lines of the log.
    """
    # One thread each, unless the user's environment says otherwise: several runs share the cores, and small models gain
    # nothing from more.
    environment = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", **os.environ}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        program = subprocess.run(
            [sys.executable, *words], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
    if program.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise ValueError(f"exit code {program.returncode}; {log} ends: {' | '.join(lines[-_SHOWN_LINES:])}")


def curve_of(entries: Sequence[Mapping[str, Any]], equivalent: float = 1.0) -> dict[str, Any]:
    """The curves of a log: each metric at the steps of the entries, None where an entry lacks it.

    Args:
        entries: of the log; the last one, which is about the whole run, is not used.
        equivalent: the steps of GRPO that cost as much as one step.

    >>> curve_of([{"step": 4, "loss": 0.2}, {"step": 8, "loss": 0.3}], 0.25)
    {'step': [1, 2], 'loss': [0.2, 0.3]}
    """
    entries = [entry for entry in entries if CLOSING not in entry]
    curve: dict[str, Any] = {"step": [round(entry["step"] * equivalent) for entry in entries]}
    for name in _CURVE_METRICS:
        if any(name in entry for entry in entries):
            curve[name] = [entry.get(name) for entry in entries]
    return curve

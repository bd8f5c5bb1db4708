"""Make the runs of a study: each trained by `accelerate launch`, measured in one process, and kept as one small file.

A finished run is never made again, and a run that was stopped, in whatever way, goes on exactly where its last
checkpoint is (`training.resume`), so that the same files come out.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from grounding_rewards.common.atomic_files import check_settings, write_whole
from grounding_rewards.common.config_files import find_shipped
from grounding_rewards.common.text_files import read_yaml
from grounding_rewards.logs.run_log import CHECKPOINT, CLOSING, LOG, VERSIONS, read_entries
from grounding_rewards.study.plan import (
    POINTS,
    SFT,
    UNTRAINED,
    InitialCheckpoint,
    Plan,
    Run,
    claim_folder,
    fingerprint_of_run,
    fingerprint_of_start,
    sequences_a_step,
)
from grounding_rewards.study.results import SCHEMA, Folder

# Written when a training has ended well, beside its checkpoints.
_TRAINED = "trained.json"
_CONFIG = "run.yaml"
# Seconds that a training has for its checkpoint when it is stopped.
_PATIENCE = 120.0
# Lines of a log that an error shows.
_SHOWN_LINES = 3
# What is kept of a log.
_KEPT = ("reward", "loss", "frac_reward_zero_std")

#: How the work on a run ended.
FINISHED, KNOWN, FAILED, ELSEWHERE = "finished", "finished before", "failed", "at work elsewhere"


class Ended(NamedTuple):
    """How the work on a run, or an initial checkpoint, ended.

    Attributes:
        name: of the run.
        state: one of the above.
        seconds: that it took now, with measuring.
        why: it failed.
    """

    name: str
    state: str
    seconds: float = 0.0
    why: str = ""


def make_runs(
    plan: Plan,
    folder: Folder,
    runs: Sequence[Run],
    *,
    jobs: int = 1,
    on_begin: Callable[[str], None] = lambda name: None,
    on_end: Callable[[Ended], None] = lambda ended: None,
) -> list[Ended]:
    """Make initial checkpoints and runs, those that are missing.

    Args:
        plan: of the study.
        folder: of the study, which is claimed for it.
        runs: of the plan, those to be made.
        jobs: runs at the same time.
        on_begin: called with the name of each initial checkpoint and run that is begun.
        on_end: called when each has ended.

    Returns:
        How the runs ended; a run whose initial checkpoint failed has failed.

    Raises:
        ValueError: the folder holds another study.
    """
    claim_folder(folder, plan)
    with _children() as children, ThreadPoolExecutor(jobs) as pool:
        workshop = _Workshop(plan, folder, children, on_begin)
        failed: dict[str, str] = {}
        try:
            # The first start writes the references that all others are compared with.
            for start in dict.fromkeys(run.start for run in runs if not folder.result(run.name).is_file()):
                ended = workshop.start(plan.starts[start])
                on_end(ended)
                if ended.state == FAILED:
                    failed[start] = f"the start {start} failed: {ended.why}"
            found = {run.name: Ended(run.name, FAILED, why=failed[run.start]) for run in runs if run.start in failed}
            waiting = {pool.submit(workshop.run, run) for run in runs if run.start not in failed}
            while waiting:
                # A short wait, so that signals reach this thread.
                done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                for ended in (future.result() for future in done):
                    found[ended.name] = ended
                    on_end(ended)
        except BaseException:
            children.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [found[run.name] for run in runs]


class _Workshop:
    """What makes initial checkpoints and runs."""

    def __init__(self, plan: Plan, folder: Folder, children: Children, on_begin: Callable[[str], None]) -> None:
        self.plan, self.folder, self.children, self.on_begin = plan, folder, children, on_begin

    def start(self, start: InitialCheckpoint) -> Ended:
        """Make an initial checkpoint where it has to be made, and measure it."""
        file, training = self.folder.answers_of_start(start.name), self.folder.made(start.name)
        mark = fingerprint_of_start(start)
        # Runs cannot begin before it is there, whoever makes it.
        with _at_work(self.folder.lock(f"start-{start.name}"), wait=True) as lock:
            made = start.sft is None or (training / _TRAINED).is_file()
            if made and file.is_file() and json.loads(file.read_text(encoding="utf-8"))["fingerprint"] == mark:
                return Ended(f"start {start.name}", KNOWN)

            def make() -> None:
                log = self.folder.log(f"start-{start.name}")
                compute = {} if start.sft is None else self._train(SFT, self._recipe(start), log, lock)
                found = self._measure(training, [self._weights(start)], {}, log, lock)
                content = {"schema": SCHEMA, "study": self.plan.name, "start": start.name, "fingerprint": mark}
                content |= {"box_format": found["box_format"], "compute": compute, "step": 0}
                _write(file, {**content, **found["checkpoints"][0]})

            return self._ended(f"start {start.name}", make)

    def run(self, run: Run) -> Ended:
        """Train and measure a run, unless it is finished or at work elsewhere."""
        with _at_work(self.folder.lock(run.name)) as lock:
            if lock is None:
                return Ended(run.name, ELSEWHERE)
            ended = Ended(run.name, KNOWN)
            if not self.folder.result(run.name).is_file():
                ended = self._ended(run.name, lambda: self._make(run, lock))
            if ended.state != FAILED and not self.plan.keep:
                shutil.rmtree(self.folder.training(run.name), ignore_errors=True)
        return ended

    def _ended(self, name: str, make: Callable[[], None]) -> Ended:
        self.on_begin(name)
        began = time.monotonic()
        try:
            make()
        except (ValueError, OSError) as error:
            return Ended(name, FAILED, time.monotonic() - began, str(error))
        return Ended(name, FINISHED, time.monotonic() - began)

    def _make(self, run: Run, lock: Any) -> None:
        log, folder = self.folder.log(run.name), self.folder.training(run.name)
        weights = self._weights(self.plan.starts[run.start])
        config = {**run.config, "model_name_or_path": weights, "output_dir": str(folder)}
        compute = self._train(run.kind, config, log, lock)
        every = run.config["save_steps"]
        steps = range(every, run.config["max_steps"] + 1, every)
        found = self._measure(folder, [str(folder / f"checkpoint-{step}") for step in steps], run.config, log, lock)
        answered = zip(steps, found["checkpoints"], strict=True)
        content = {
            "schema": SCHEMA,
            "study": self.plan.name,
            **{name: getattr(run, name) for name in ("arm", "start", "seed", "role", "kind", "reward")},
            "box_format": found["box_format"],
            "compute": compute,
            "curve": thin_curve(read_entries(folder / LOG), run.equivalent),
            "checkpoints": [{"step": round(step * run.equivalent), **one} for step, one in answered],
            "versions": json.loads((folder / VERSIONS).read_text(encoding="utf-8")),
            "fingerprint": fingerprint_of_run(self.plan, run),
        }
        _write(self.folder.result(run.name), content)

    def _weights(self, start: InitialCheckpoint) -> str:
        """What runs give as model_name_or_path."""
        return find_shipped(start.model) if start.sft is None else str(self.folder.made(start.name) / CHECKPOINT)

    def _recipe(self, start: InitialCheckpoint) -> dict[str, Any]:
        """The configuration that makes an initial checkpoint."""
        recipe, model = start.sft or {}, start.model
        if model == UNTRAINED:
            from transformers.utils.logging import disable_progress_bar

            from grounding_rewards.models.load import save_untrained

            # One of the study's own is on the screen.
            disable_progress_bar()
            model = str(self.folder.made(f"{start.name}--untrained"))
            save_untrained("assets/tiny_vlm", model, seed=recipe.get("seed", 0))
        return {**recipe, "model_name_or_path": model, "output_dir": str(self.folder.made(start.name))}

    def _train(self, kind: str, config: Mapping[str, Any], log: Path, lock: Any) -> dict[str, Any]:
        """Train to the end, or go on; what it cost.

        Raises:
            ValueError: the training failed, or was started with other settings.
        """
        folder = Path(config["output_dir"])
        marker, file = folder / _TRAINED, folder / _CONFIG
        # What a stopped study left; finished runs never come here.
        before = read_yaml(file) if file.is_file() else config
        check_settings(folder, before, config, "Give the same again, or remove the folder.")
        if not marker.is_file():
            from_step = max((int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*")), default=0)
            if not from_step:
                # A start that was killed while it saved its weights, and has none to go on from.
                shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)
            write_whole(file, yaml.safe_dump(dict(config)))
            self.children.call(
                [
                    *("-m", "accelerate.commands.launch", "--quiet"),
                    *("--config_file", find_shipped(self.plan.accelerate)),
                    *("-m", "grounding_rewards.cli", kind, "--config", str(file)),
                    *("--resume_from_checkpoint", "last", "--disable_tqdm", "true"),
                ],
                log,
                lock,
            )
            sequences = sequences_a_step(config, self.plan.processes)
            write_whole(marker, json.dumps(compute_of(read_entries(folder / LOG), sequences, from_step)))
        return json.loads(marker.read_text(encoding="utf-8"))

    def _measure(
        self, folder: Path, checkpoints: Sequence[str], config: Mapping[str, Any], log: Path, lock: Any
    ) -> dict[str, Any]:
        output, job = folder / "answers.json", folder / "measure.json"
        asked = {
            "checkpoints": checkpoints,
            "sets": [vars(one) for one in self.plan.sets],
            "box_format": config.get("box_format", self.plan.train.get("box_format")),
            "batch_size": self.plan.batch_size,
            "max_new_tokens": int(self.plan.train.get("max_completion_length", 256)),
            "images": str(self.folder.images),
            "output": str(output),
        }
        write_whole(job, json.dumps(asked))
        self.children.call(["-m", "grounding_rewards.study.measure", str(job)], log, lock)
        return json.loads(output.read_text(encoding="utf-8"))


class Children:
    """The programs that are running, each with what it starts itself in a group of its own."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False
        self._lock = threading.Lock()

    def call(self, words: Sequence[str], log: Path, lock: Any) -> None:
        """Run Python with these words.

        Raises:
            ValueError: it failed; with the last lines of its log.
        """
        # One thread each: several runs share the cores, and small models gain nothing from more.
        environment = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", **os.environ}
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            with self._lock:
                if self._stopped:
                    raise ValueError("stopped")
                child = subprocess.Popen(
                    [sys.executable, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                    pass_fds=[lock.fileno()],
                )
                self._running.add(child)
            code = child.wait()
            _until_gone(child.pid)
            with self._lock:
                self._running.discard(child)
        if code:
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise ValueError(f"exit code {code}; {log} ends: {' | '.join(lines[-_SHOWN_LINES:])}")

    def stop(self) -> None:
        """Ask all to stop: trainings leave a checkpoint to go on from."""
        with self._lock:
            self._stopped = True
            for child in self._running:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGTERM)


def _until_gone(group: int) -> None:
    """Wait for what a launcher left when it was stopped: a training that still writes its checkpoint."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return
        time.sleep(0.1)


@contextmanager
def _children() -> Iterator[Children]:
    """Programs that are stopped when this one is, by Ctrl-C or SIGTERM."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    here = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, stop) if here else None
    try:
        yield Children()
    finally:
        if here:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _at_work(file: Path, *, wait: bool = False) -> Iterator[Any]:
    """Hold the lock of a run or start: two studies of one folder, such as jobs of an array, share the work.

    Programs that inherit the file hold it on, should this process be killed before them. Gives the open file; None
    where another process is at work, unless ``wait``.
    """
    import fcntl

    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield lock


def thin_curve(rows: Sequence[Mapping[str, Any]], equivalent: float = 1.0, points: int = POINTS) -> dict[str, Any]:
    """The curves of a log: `step`, the last of those that a point is the mean of, and the metrics at it.

    Args:
        rows: entries of the log; the closing one, of the whole run, is left out.
        equivalent: steps of GRPO that a step costs as much as.
        points: at most so many.

    >>> thin_curve([{"step": 1, "reward": 0.2}, {"step": 2, "reward": 0.3}], points=1)
    {'step': [2], 'reward': [0.25]}
    """
    rows = [row for row in rows if CLOSING not in row]
    size = max(1, math.ceil(len(rows) / points))
    parts = [rows[i : i + size] for i in range(0, len(rows), size)]
    curve: dict[str, Any] = {"step": [round(part[-1]["step"] * equivalent) for part in parts]}
    for name in (name for name in _KEPT if any(name in row for row in rows)):
        known = [
            [row[name] for row in part if row.get(name) is not None and math.isfinite(row[name])] for part in parts
        ]
        curve[name] = [round(sum(values) / len(values), 4) if values else None for values in known]
    return curve


def compute_of(rows: Sequence[Mapping[str, Any]], sequences: int, from_step: int) -> dict[str, Any]:
    """What a run cost: seconds, steps, and the sequences and tokens that it learned from.

    Args:
        rows: entries of the log.
        sequences: that a step learns from.
        from_step: from which the last attempt went on; the runtime of a supervised run is known of that one alone.
    """
    steps = max(row.get("step", 0) for row in rows)
    times = [row["step_time"] for row in rows if row.get("step_time") is not None]
    if times:
        seconds = sum(times) * steps / len(times)
    else:
        runtime = next((row[CLOSING] for row in reversed(rows) if CLOSING in row), 0.0)
        seconds = runtime * steps / max(1, steps - from_step)
    return {
        "seconds": round(seconds, 1),
        "steps": steps,
        "completions": steps * sequences if times else 0,
        "sequences": steps * sequences,
        "tokens": int(max((row["num_tokens"] for row in rows if row.get("num_tokens") is not None), default=0)),
    }


def estimated_cost(runs: Sequence[Run], folder: Folder) -> str:
    """What the missing runs will cost, in a sentence; in time, where runs of the study are finished."""
    left = [run for run in runs if not folder.result(run.name).is_file()]
    steps = sum(run.config["max_steps"] * run.equivalent for run in left)
    said = f"{len(left)} of {len(runs)} runs are to be made, {steps:.0f} steps"
    finished = [json.loads(folder.result(run.name).read_text(encoding="utf-8")) for run in runs if run not in left]
    if not finished:
        return f"{said}. How long they take is known when the first one is finished."
    made = sum(one["checkpoints"][-1]["step"] for one in finished)
    hours = steps * sum(one["compute"]["seconds"] for one in finished) / made / 3600
    return f"{said}: about {hours:.1f} hours of training, as the finished ones took, divided by --jobs."


def _write(path: Path, content: Mapping[str, Any]) -> None:
    # ASCII escapes can hold the lone surrogates of a text that was cut off.
    write_whole(path, json.dumps(content, separators=(",", ":")) + "\n")

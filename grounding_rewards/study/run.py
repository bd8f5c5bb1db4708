"""Make the runs of a study: each trained by `accelerate launch`, measured in one process, and kept as one small file.

A finished run is never made again, and a run that was stopped, in whatever way, goes on exactly where its last
checkpoint is (`training.resume`), so that the same files come out.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from grounding_rewards.common.shipped import find_shipped
from grounding_rewards.common.texts import read_yaml
from grounding_rewards.common.whole_files import write_whole
from grounding_rewards.logs.run_log import CHECKPOINT, LOG, VERSIONS, read_entries
from grounding_rewards.study.curves import compute_of, thin_curve
from grounding_rewards.study.folder import (
    Folder,
    at_work,
    claim,
    fingerprint_of_run,
    fingerprint_of_start,
)
from grounding_rewards.study.plan import GRPO, SFT, UNTRAINED, Plan, Run, Start, sequences_a_step
from grounding_rewards.study.results import SCHEMA

# Written when a training has ended well, beside its checkpoints.
_TRAINED = "trained.json"
_CONFIG = "run.yaml"
# Seconds that a training has for its checkpoint when it is stopped.
_PATIENCE = 120.0
# Lines of a log that an error shows.
_SHOWN_LINES = 3

#: How the work on a run ended.
FINISHED, KNOWN, FAILED, ELSEWHERE = "finished", "finished before", "failed", "at work elsewhere"


class Outcome(NamedTuple):
    """How the work on a run, or a start, ended.

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


def run_study(
    plan: Plan,
    folder: Folder,
    runs: Sequence[Run],
    *,
    jobs: int = 1,
    on_begin: Callable[[str], None] = lambda name: None,
    on_end: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Make starts and runs, those that are missing.

    Args:
        plan: of the study.
        folder: of the study, which is claimed for it.
        runs: of the plan, those to be made.
        jobs: runs at the same time.
        on_begin: called with the name of each start and run that is begun.
        on_end: called with the outcome of each.

    Returns:
        The outcomes of the runs; a run whose start failed has failed.

    Raises:
        ValueError: the folder holds another study.
    """
    claim(folder, plan)
    needed = dict.fromkeys(run.start for run in runs if not folder.result(run).is_file())
    with _children() as children, ThreadPoolExecutor(jobs) as pool:
        workshop = _Workshop(plan, folder, children, on_begin)
        failed: dict[str, str] = {}
        try:
            # The first start writes the references that all others are compared with.
            for start in needed:
                outcome = workshop.start(plan.starts[start])
                on_end(outcome)
                if outcome.state == FAILED:
                    failed[start] = f"the start {start} failed: {outcome.why}"
            outcomes = [Outcome(run.name, FAILED, why=failed[run.start]) for run in runs if run.start in failed]
            waiting = {pool.submit(workshop.run, run) for run in runs if run.start not in failed}
            while waiting:
                # A short wait, so that signals reach this thread.
                done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in done:
                    outcomes.append(future.result())
                    on_end(outcomes[-1])
        except BaseException:
            children.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    order = {run.name: k for k, run in enumerate(runs)}
    return sorted(outcomes, key=lambda outcome: order[outcome.name])


def estimate(runs: Sequence[Run], folder: Folder) -> str:
    """What the missing runs will cost, in a sentence; in time, where runs of the study are finished."""
    left = [run for run in runs if not folder.result(run).is_file()]
    steps = sum(run.config["max_steps"] * run.equivalent for run in left)
    said = f"{len(left)} of {len(runs)} runs are to be made, {steps:.0f} steps"
    finished = [json.loads(folder.result(run).read_text(encoding="utf-8")) for run in runs if run not in left]
    made = sum(one["checkpoints"][-1]["step"] for one in finished)
    if not made:
        return f"{said}. How long they take is known when the first one is finished."
    hours = steps * sum(one["compute"]["seconds"] for one in finished) / made / 3600
    return f"{said}: about {hours:.1f} hours of training, as the finished ones took, divided by --jobs."


class _Workshop:
    """What makes starts and runs."""

    def __init__(self, plan: Plan, folder: Folder, children: Children, on_begin: Callable[[str], None]) -> None:
        self.plan, self.folder, self.children, self.on_begin = plan, folder, children, on_begin

    def start(self, start: Start) -> Outcome:
        """Make a start where it has to be made, and measure it."""
        name = f"start {start.name}"
        file = self.folder.answers_of_start(start.name)
        began = time.monotonic()
        # Runs cannot begin before it is there, whoever makes it.
        with at_work(self.folder.root / "locks" / f"start-{start.name}", wait=True) as lock:
            made = start.sft is None or (self.folder.made(start.name) / _TRAINED).is_file()
            if made and _fingerprint_in(file) == fingerprint_of_start(start):
                return Outcome(name, KNOWN)
            self.on_begin(name)
            log = self.folder.log(f"start-{start.name}")
            try:
                compute = self._make_start(start, log, lock)
                checkpoint = self.folder.weights(start)
                found = self._measure(start.name, self.folder.made(start.name), [checkpoint], None, log, lock)
            except (ValueError, OSError) as error:
                return Outcome(name, FAILED, time.monotonic() - began, str(error))
            content = {
                "schema": SCHEMA,
                "study": self.plan.name,
                "start": start.name,
                "fingerprint": fingerprint_of_start(start),
                "box_format": found["box_format"],
                "compute": compute,
                "step": 0,
                "sets": found["checkpoints"][0]["sets"],
            }
            _write(file, content)
        return Outcome(name, FINISHED, time.monotonic() - began)

    def run(self, run: Run) -> Outcome:
        """Train and measure a run, unless it is finished or at work elsewhere."""
        began = time.monotonic()
        with at_work(self.folder.root / "locks" / run.name) as lock:
            if lock is None:
                return Outcome(run.name, ELSEWHERE)
            result = self.folder.result(run)
            if result.is_file():
                self._clear(run)
                return Outcome(run.name, KNOWN)
            self.on_begin(run.name)
            try:
                self._make(run, result, lock)
            except (ValueError, OSError) as error:
                return Outcome(run.name, FAILED, time.monotonic() - began, str(error))
            self._clear(run)
        return Outcome(run.name, FINISHED, time.monotonic() - began)

    def _make(self, run: Run, result: Path, lock: Any) -> None:
        log, folder = self.folder.log(run.name), self.folder.training(run)
        start = self.plan.starts[run.start]
        config = {**run.config, "model_name_or_path": self.folder.weights(start), "output_dir": str(folder)}
        compute = self._train(run.kind, config, log, lock)
        every = run.config["save_steps"]
        steps = range(every, run.config["max_steps"] + 1, every)
        checkpoints = [str(folder / f"checkpoint-{step}") for step in steps]
        found = self._measure(run.name, folder, checkpoints, run.config, log, lock)
        content = {
            "schema": SCHEMA,
            "study": self.plan.name,
            "arm": run.arm,
            "start": run.start,
            "seed": run.seed,
            "role": run.role,
            "kind": run.kind,
            "reward": run.reward,
            "box_format": found["box_format"],
            "compute": compute,
            "curve": thin_curve(read_entries(folder / LOG), run.equivalent),
            "checkpoints": [
                {"step": round(step * run.equivalent), **one}
                for step, one in zip(steps, found["checkpoints"], strict=True)
            ],
            "versions": json.loads((folder / VERSIONS).read_text(encoding="utf-8")),
            "fingerprint": fingerprint_of_run(self.plan, run),
        }
        _write(result, content)

    def _make_start(self, start: Start, log: Path, lock: Any) -> dict[str, Any]:
        """Make a start by its recipe; what that cost."""
        if start.sft is None:
            return {"seconds": 0.0, "steps": 0, "completions": 0, "sequences": 0, "tokens": 0}
        model = start.model
        if model == UNTRAINED:
            from transformers.utils.logging import disable_progress_bar

            from grounding_rewards.models.tiny_vlm import save_untrained

            # One of the study's own is on the screen.
            disable_progress_bar()
            model = str(self.folder.made(f"{start.name}--untrained"))
            save_untrained(model, seed=start.sft.get("seed", 0))
        config = {**start.sft, "model_name_or_path": model, "output_dir": str(self.folder.made(start.name))}
        return self._train(SFT, config, log, lock)

    def _train(self, kind: str, config: Mapping[str, Any], log: Path, lock: Any) -> dict[str, Any]:
        """Train to the end, or go on; what it cost."""
        folder = Path(config["output_dir"])
        marker, file = folder / _TRAINED, folder / _CONFIG
        if file.is_file() and read_yaml(file) != config:
            # The beginning of a run whose settings have changed since; finished runs never come here.
            shutil.rmtree(folder)
        if not marker.is_file() and not any(folder.glob("checkpoint-*")):
            # A start that was killed while it saved its weights, and has none to go on from.
            shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)
        if not marker.is_file():
            write_whole(file, yaml.safe_dump(dict(config)))
            from_step = max((int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*")), default=0)
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
        self,
        name: str,
        folder: Path,
        checkpoints: Iterable[str],
        config: Mapping[str, Any] | None,
        log: Path,
        lock: Any,
    ) -> dict[str, Any]:
        grpo = next(run.config for run in self.plan.runs if run.kind == GRPO)
        own = grpo if config is None else config
        output = folder / "answers.json"
        job = {
            "checkpoints": list(checkpoints),
            "sets": [vars(one) for one in self.plan.sets],
            "box_format": own.get("box_format", grpo.get("box_format")),
            "batch_size": self.plan.batch_size,
            "max_new_tokens": int(grpo.get("max_completion_length", 256)),
            "images": str(self.folder.images),
            "output": str(output),
        }
        write_whole(folder / "measure.json", json.dumps(job))
        self.children.call(["-m", "grounding_rewards.study.measure", str(folder / "measure.json")], log, lock)
        return json.loads(output.read_text(encoding="utf-8"))

    def _clear(self, run: Run) -> None:
        if not self.plan.keep:
            shutil.rmtree(self.folder.training(run), ignore_errors=True)


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


def _fingerprint_in(path: Path) -> str | None:
    return json.loads(path.read_text(encoding="utf-8"))["fingerprint"] if path.is_file() else None


def _write(path: Path, content: Mapping[str, Any]) -> None:
    # ASCII escapes can hold the lone surrogates of a text that was cut off.
    write_whole(path, json.dumps(content, separators=(",", ":")) + "\n")

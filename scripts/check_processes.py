"""Does a training in several processes do what it does in one? Trains for real, on the processor; prints a table.

    python scripts/check_processes.py
    python scripts/check_processes.py --only same_steps --processes 2

The shipped small model is trained with GRPO in one process with accumulation, and in 2 and 4 processes: a copy of the
model in each (DDP), or its weights shared out (FSDP2). What is checked stands in CHECKS. Each training starts its own
processes, so that the table takes minutes on a machine with few cores.

Answers are fixed for `same_steps`, because every process draws its samples from a seed of its own: boxes off by a few
pixels, as the number of the answer and the name of the image say; and in between steps in which nothing can be read, on
one process or on all, and answers without a token.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[1]

#: Steps of `same_steps`, and the share of the largest change of a weight by which two trainings may differ.
# Sums in another order, six steps of AdamW long; what is logged of each step agrees to a thousandth.
STEPS, FLOAT_NOISE = 6, 0.02
#: Seconds within which the processes that are left have ended after one was killed: the launcher asks them to end after
#: their step, and kills them 30 seconds later.
SECONDS = 60
OPTIONS = {
    "model_name_or_path": REPOSITORY / "assets" / "tiny_vlm",
    "train_images": 24,
    "per_device_train_batch_size": 4,
    "num_generations": 2,
    "max_completion_length": 32,
    "learning_rate": 1e-3,
    "logging_steps": 1,
    "report_to": "none",
    "use_cpu": "true",
    "bf16": "false",
    "gradient_checkpointing": "false",
    "disable_tqdm": "true",
}
# What differs although the steps are the same: clocks, the entropy, which TRL averages over batches, and evaluations,
# whose last batch is filled up with images of the first one.
_OF_BATCHES = ("step_time", "entropy", "train_", "eval_")


def answer(row: Mapping[str, Any], number: int, step: int) -> str:
    """The fixed answer with this number to an image at a step; some steps have answers that are hard on a trainer."""
    from grounding_rewards.data.prompts import gold_answer

    drawn = np.random.default_rng(zlib.crc32(f"{row['id']} {number}".encode()))
    if step == 2:
        return "I cannot tell."
    if step == 3 and drawn.random() < 0.5:
        return ""
    boxes = [[side + int(drawn.integers(-6, 7)) for side in box] for box in row["boxes"]]
    return gold_answer({**row, "boxes": boxes}, "qwen2.5-vl")


def train(folder: Path, words: Sequence[str], *, sharded: bool) -> None:
    """Train with the fixed answers, in a process that a launcher has started, and keep history and weights."""
    import torch

    from grounding_rewards.training import run
    from grounding_rewards.training.arguments import parse_grpo_arguments

    class FixedAnswers(run.GroundingGRPOTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            self.rows = inputs
            return super()._generate_and_score_completions(inputs)

        def _generate_single_turn(self, prompts: Any, images: Any, fields: Any, number: int, **_: Any) -> Any:
            texts = [answer(row, k % number, self.state.global_step) for k, row in enumerate(self.rows)]
            tokens = self._tokenizer(texts, add_special_tokens=False)["input_ids"]
            return [[*ids, self._tokenizer.eos_token_id] for ids in tokens], None

        def end(self) -> None:
            """Not yet: the end of a run is the end of the group of processes, which the weights below still need."""

    if sharded:
        _shard_on_the_processor()
    run.GroundingGRPOTrainer = FixedAnswers
    torch.set_num_threads(1)
    trainer = run.train_grpo(*parse_grpo_arguments(words))
    moved = trainer.accelerator.get_state_dict(trainer.model)
    if trainer.is_world_process_zero():
        torch.save({name: weight.detach().clone() for name, weight in moved.items()}, folder / "weights.pt")
        (folder / "history.json").write_text(json.dumps(trainer.state.log_history), encoding="utf-8")
        kinds = {type(weight).__name__ for weight in trainer.model.parameters()}
        (folder / "kinds.json").write_text(json.dumps(sorted(kinds)), encoding="utf-8")
    trainer.accelerator.wait_for_everyone()
    super(FixedAnswers, trainer).end()


def _shard_on_the_processor() -> None:
    """Make accelerate share out weights over processes without GPUs, which it does by its name for those with one."""
    from accelerate import PartialState
    from accelerate.utils import DistributedType

    os.environ |= {
        **{"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_RESHARD_AFTER_FORWARD": "true"},
        **{"FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP", "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT"},
        "FSDP_TRANSFORMER_CLS_TO_WRAP": "Qwen2_5_VLDecoderLayer",
    }
    begin = PartialState.__init__

    def named(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        if self.distributed_type is DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.MULTI_GPU

    PartialState.__init__ = named


def launched(processes: int, *words: object) -> list[str]:
    """The command that starts so many processes, as one on one machine is started."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [sys.executable, *(launcher if processes > 1 else []), *map(str, words)]


def options(values: Mapping[str, object]) -> list[str]:
    """Options of a command line."""
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


def environment() -> dict[str, str]:
    """Of the processes of a training: one thread each, nothing from the network."""
    found = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **os.environ}
    return {**found, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, [found.get("PYTHONPATH")])])}


def start(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a training whose output goes to a file."""
    with log.open("wb") as file:
        return subprocess.Popen(
            command, cwd=REPOSITORY, env=environment(), stdout=file, stderr=file, start_new_session=True
        )


def finish(started: subprocess.Popen[bytes], log: Path, seconds: float) -> float:
    """Wait for the end and return how long it took; what hangs is ended, with all its processes."""
    begun = time.monotonic()
    try:
        started.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        raise RuntimeError(f"no end within {seconds:g} s: {log.read_text(errors='replace')[-2000:]}") from None
    return time.monotonic() - begun


def to_the_end(processes: int, *words: object, log: Path) -> int:
    """Run Python with these words in so many processes; the exit code."""
    started = start(launched(processes, *words), log)
    finish(started, log, 900)
    return started.returncode


def _errors(log: Path) -> str:
    """The lines of a log that say what failed, without those of the launcher."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "; ".join(dict.fromkeys(line for line in lines if re.search(r"(Error|Exception|Expected)\b.*:? ", line)))


def fixed_steps(
    folder: Path, processes: int, accumulation: int, *, sharded: bool = False, **others: object
) -> dict[str, Any]:
    """History and weights of a training with the fixed answers."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    values = {"gradient_accumulation_steps": accumulation, "max_steps": STEPS, "save_strategy": "no"}
    values |= {"eval_strategy": "steps", "eval_steps": 3, "eval_images": 3, "per_device_eval_batch_size": 4}
    words = options({**OPTIONS, **values, **others, "output_dir": folder / "run"})
    how = ["--train", folder, *(["--sharded"] if sharded else [])]
    if to_the_end(processes, __file__, *how, "--", *words, log=folder / "log.txt"):
        raise RuntimeError(_errors(folder / "log.txt"))
    history = json.loads((folder / "history.json").read_text())
    kinds = json.loads((folder / "kinds.json").read_text())
    return {"history": history, "weights": torch.load(folder / "weights.pt", weights_only=True), "kinds": kinds}


def compared(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """How far two trainings have come apart: the largest difference of a weight, in shares of the largest change.

    Raises:
        AssertionError: a metric that both have logged differs by more than float noise, or is not finite.
    """
    import torch
    from transformers import AutoModelForImageTextToText

    base = AutoModelForImageTextToText.from_pretrained(OPTIONS["model_name_or_path"], dtype=torch.float32).state_dict()
    assert len(one["history"]) == len(other["history"])
    for mine, theirs in zip(one["history"], other["history"], strict=True):
        assert set(mine) == set(theirs), set(mine) ^ set(theirs)
        for key, value in mine.items():
            assert theirs[key] is None or math.isfinite(theirs[key]), f"step {mine['step']}: {key} is {theirs[key]}"
            if isinstance(value, float) and not any(part in key for part in _OF_BATCHES):
                close = math.isclose(value, theirs[key], rel_tol=1e-3, abs_tol=1e-5)
                assert close, f"step {mine['step']}: {key} is {value} and {theirs[key]}"
    moved = max(float((weight - base[name]).abs().max()) for name, weight in one["weights"].items() if name in base)
    apart = max(float((weight - other["weights"][name]).abs().max()) for name, weight in one["weights"].items())
    assert moved > 0
    assert all(bool(weight.isfinite().all()) for weight in one["weights"].values())
    return apart / moved


def check_same_steps(folder: Path, processes: int, *, sharded: bool = False) -> str:
    """One process with accumulation and several without log the same and move the same weights, by hard batches too."""
    one = fixed_steps(folder / "one", 1, processes)
    many = fixed_steps(folder / "many", processes, 1, sharded=sharded)
    apart = compared(one, many)
    assert apart < FLOAT_NOISE, f"weights differ by {apart:.1%} of their change"
    assert ("DTensor" in many["kinds"]) == sharded, many["kinds"]
    return f"weights differ by {apart:.4%} of their largest change"


def check_resumed_sharded(folder: Path, processes: int) -> str:
    """A run of shared out weights that is resumed from a checkpoint equals the one that was not stopped."""
    saved = {"save_strategy": "steps", "save_steps": 3}
    whole = fixed_steps(folder / "whole", processes, 1, sharded=True, **saved)
    shutil.copytree(folder / "whole" / "run", folder / "resumed" / "run")
    for name in ("checkpoint", f"checkpoint-{STEPS}"):
        shutil.rmtree(folder / "resumed" / "run" / name)
    resumed = fixed_steps(folder / "resumed", processes, 1, sharded=True, **saved, resume_from_checkpoint="last")
    return f"weights differ by {compared(whole, resumed):.4%} of their largest change"


def train_words(folder: Path, **values: object) -> list[str]:
    """The command `train` with real samples, as words for Python."""
    words = options({**OPTIONS, "save_steps": 1, "save_total_limit": 3, **values, "output_dir": folder})
    return ["-m", "grounding_rewards.cli", "train", *words]


def check_killed(folder: Path, processes: int, *, rank: int = 1) -> str:
    """kill -9 of one process ends all within SECONDS, by the launcher; the same command resumes."""
    import psutil

    folder.mkdir(parents=True)
    run, log = folder / "run", folder / "log.txt"
    started = start(launched(processes, *train_words(run, max_steps=50)), log)
    deadline = time.monotonic() + 600
    while not (run / "checkpoint-2" / "trainer_state.json").is_file():
        alive = started.poll() is None and time.monotonic() < deadline
        assert alive, log.read_text(errors="replace")[-3000:]
        time.sleep(0.1)
    children = psutil.Process(started.pid).children(recursive=True)
    [killed] = [one for one in children if one.environ().get("RANK") == str(rank)]
    killed.send_signal(signal.SIGKILL)
    seconds = finish(started, log, SECONDS)
    assert started.returncode != 0
    assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in children)
    steps = _last_step(run) + 1
    again = train_words(run, max_steps=steps, resume_from_checkpoint="last")
    code = to_the_end(processes, *again, log=folder / "again.txt")
    assert code == 0, (folder / "again.txt").read_text(errors="replace")[-3000:]
    assert _last_step(run) == steps
    return f"ended after {seconds:.1f} s"


def _last_step(run: Path) -> int:
    """The step of the last whole checkpoint."""
    from grounding_rewards.training.run_folder import last_complete_checkpoint

    last = last_complete_checkpoint(run)
    return 0 if last is None else int(last.name.rpartition("-")[2])


#: What is checked, for each number of processes.
CHECKS: dict[str, Callable[[Path, int], str]] = {
    "same_steps": check_same_steps,
    "same_steps_sharded": lambda folder, processes: check_same_steps(folder, processes, sharded=True),
    "resumed_sharded": check_resumed_sharded,
    "killed": check_killed,
    "killed_first": lambda folder, processes: check_killed(folder, processes, rank=0),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks and print the table; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CHECKS, default=list(CHECKS), help="default: all")
    parser.add_argument("--processes", nargs="+", type=int, default=[2, 4], help="default: 2 4")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--sharded", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.train is not None:
        train(given.train, given.words, sharded=given.sharded)
        return 0
    failed = 0
    print("| check | processes | outcome |\n|---|---|---|", flush=True)
    for name in given.only:
        for processes in given.processes:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    outcome = CHECKS[name](Path(folder) / name, processes)
                except (AssertionError, RuntimeError) as error:
                    failed, outcome = 1, f"**failed**: {' '.join(str(error).split())}"
            print(f"| {name} | {processes} | {outcome} |", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())

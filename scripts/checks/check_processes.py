"""Does a training in several processes do what it does in one? Trains for real, on the processor; prints a table.

    python scripts/checks/check_processes.py
    python scripts/checks/check_processes.py --only same_steps --processes 2
    python scripts/checks/check_processes.py --write docs/cluster.md

The shipped small model is trained with GRPO as the files of configs/accelerate/ say, over gloo:

  * `same_steps`: six steps in 2 and 4 processes are those of one process with accumulation. Answers are fixed, because
    every process draws its samples from a seed of its own: boxes off by a few pixels, and in between steps in which
    nothing can be read, on one process or on all, and answers without a token.
  * `agree`: two steps of real samples in two processes are those of DDP. What is saved has the names of weights that
    the shipped model has, or those of DDP's adapter, and a run that resumes after the first step ends with the same
    bits.
  * `killed`: kill -9 of one process ends all within SECONDS; the same command resumes.

Each training starts its own processes, so that the table takes minutes. DeepSpeed is in no extra, and its rows are
passed over where `DS_BUILD_OPS=0 pip install --no-build-isolation deepspeed` did not install it; the first of them
compiles a part of it with g++.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import math
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.common.environment import package_version
from scripts.docs.page_parts import marks_of, replace_part

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = REPOSITORY / "assets" / "tiny_vlm"
MARKS = marks_of("processes")


class Engine(NamedTuple):
    """How processes share the work.

    Attributes:
        config: the file of configs/accelerate/.
        trace: pattern of a file that only this engine writes into a checkpoint, which shows that it ran.
    """

    config: str
    trace: str


ENGINES = {
    "DDP": Engine("gpu_many.yaml", "optimizer.pt"),
    "DDP, two launchers": Engine("nodes.yaml", "optimizer.pt"),
    "FSDP2": Engine("fsdp2.yaml", "pytorch_model_fsdp.bin"),
    "ZeRO-2": Engine("zero2.yaml", "global_step*/mp_rank_00_model_states.pt"),
    "ZeRO-3": Engine("zero3.yaml", "global_step*/zero_pp_rank_1_mp_rank_00_model_states.pt"),
}
# Without dropout: processes that share weights run the model until the last of them has ended its answers, so that
# dropout would draw more random numbers than with DDP.
LORA = {"use_peft": "true", "lora_r": 4, "lora_dropout": 0, "lora_target_modules": "all-linear"}
MODES: dict[str, dict[str, object]] = {"full": {}, "LoRA": LORA}
OPTIONS = {
    "model_name_or_path": MODEL,
    "train_images": 24,
    "per_device_train_batch_size": 4,
    "num_generations": 2,
    "max_completion_length": 32,
    "learning_rate": 1e-3,
    # AdamW divides by the size of a gradient. Where that is nothing but rounding, as for the bias of keys, rounding
    # would move the weight as far as any other.
    "adam_epsilon": 1e-5,
    "logging_steps": 1,
    "report_to": "none",
    "use_cpu": "true",
    "bf16": "false",
    "gradient_checkpointing": "false",
    "disable_tqdm": "true",
}

#: Steps of `same_steps`, and the share of the largest change of a weight by which two trainings may differ.
# Sums in another order, six steps of AdamW long; what is logged of each step agrees to a thousandth.
STEPS, FLOAT_NOISE = 6, 0.002
#: How far a weight and the loss of `agree` may be from DDP's.
AGREEMENT = 1e-6
#: The same for the gradient's norm, as a share: a million squares are summed up in another order.
GRADIENT_AGREEMENT = 5e-6
#: Seconds within which the processes that are left have ended after one was killed: the launcher asks them to end after
#: their step, and kills them 30 seconds later.
SECONDS = 60
# What differs although the steps are the same: clocks, the entropy, which TRL averages over batches, and evaluations,
# whose last batch is filled up with images of the first one.
_OF_BATCHES = ("step_time", "entropy", "eval_")


def answer(row: Mapping[str, Any], number: int, step: int) -> str:
    """The fixed answer with this number to an image at a step; some steps have answers that are hard on a trainer."""
    from grounding_rewards.data.prompts import gold_answer

    rng = np.random.default_rng(zlib.crc32(f"{row['id']} {number}".encode()))
    if step == 2:
        return "I cannot tell."
    if step == 3 and rng.random() < 0.5:
        return ""
    boxes = [[side + int(rng.integers(-6, 7)) for side in box] for box in row["boxes"]]
    return gold_answer({**row, "boxes": boxes}, "qwen2.5-vl")


def train_here(words: Sequence[str], *, fixed: bool) -> int:
    """Run `grounding-rewards train` in this process, which a launcher has started; with the fixed answers if asked."""
    import torch

    from grounding_rewards.cli import main
    from grounding_rewards.training import run

    class FixedAnswers(run.GroundingGRPOTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            self.rows = inputs
            return super()._generate_and_score_completions(inputs)

        def _generate_single_turn(self, prompts: Any, images: Any, fields: Any, number: int, **_: Any) -> Any:
            texts = [answer(row, k % number, self.state.global_step) for k, row in enumerate(self.rows)]
            tokens = self._tokenizer(texts, add_special_tokens=False)["input_ids"]
            return [[*ids, self._tokenizer.eos_token_id] for ids in tokens], None

    if fixed:
        run.GroundingGRPOTrainer = FixedAnswers
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        _shard_on_the_processor()
    torch.set_num_threads(1)
    return main(["train", *words])


def _shard_on_the_processor() -> None:
    """Make accelerate share out weights over processes without GPUs, which it does by its name for those with one."""
    from accelerate import PartialState
    from accelerate.utils import DistributedType

    begin = PartialState.__init__

    def named(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        if self.distributed_type is DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.MULTI_GPU

    PartialState.__init__ = named


def commands(engine: Engine, processes: int, folder: Path, words: Sequence[object]) -> list[list[str]]:
    """What starts so many processes, a command for each machine: the shipped file, but for the processor."""
    if processes == 1:
        return [[sys.executable, *map(str, words)]]
    config = yaml.safe_load((REPOSITORY / "configs" / "accelerate" / engine.config).read_text(encoding="utf-8"))
    config |= {"use_cpu": True, "mixed_precision": "no", "num_processes": processes}
    machines = config["num_machines"]
    if machines > 1:
        # They must agree on a port: one that is free now.
        with socket.create_server(("127.0.0.1", 0)) as server:
            config["main_process_port"] = server.getsockname()[1]
    file = folder / engine.config
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(file)]
    return [[*launch, "--machine_rank", str(rank), *map(str, words)] for rank in range(machines)]


def environment() -> dict[str, str]:
    """Of the processes of a training: one thread each, no GPU, nothing from the network."""
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    defaults = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**defaults, **os.environ, "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": path}


def start(engine: Engine, processes: int, *words: object, log: Path) -> list[subprocess.Popen[bytes]]:
    """Start a training whose output goes to a file."""
    with log.open("wb") as file:
        return [
            subprocess.Popen(
                command, cwd=REPOSITORY, env=environment(), stdout=file, stderr=file, start_new_session=True
            )
            for command in commands(engine, processes, log.parent, words)
        ]


def finish(started: Sequence[subprocess.Popen[bytes]], log: Path, seconds: float) -> float:
    """Wait for the end and return how long it took; what hangs is ended, with all its processes."""
    begun = time.monotonic()
    try:
        for launcher in started:
            launcher.wait(max(0, begun + seconds - time.monotonic()))
    except subprocess.TimeoutExpired:
        for launcher in started:
            os.killpg(launcher.pid, signal.SIGKILL)
        raise RuntimeError(f"no end within {seconds:g} s: {log.read_text(errors='replace')[-2000:]}") from None
    return time.monotonic() - begun


def to_the_end(engine: Engine, processes: int, *words: object, log: Path) -> int:
    """Run Python with these words in so many processes; the exit code."""
    started = start(engine, processes, *words, log=log)
    finish(started, log, 900)
    return max(abs(launcher.returncode) for launcher in started)


def words_of(folder: Path, *, fixed: bool = False, **values: object) -> list[object]:
    """This script as the program that trains, and the options of a run."""
    values = {**OPTIONS, **values, "output_dir": folder}
    options = [word for name, value in values.items() for word in (f"--{name}", value)]
    return [__file__, "--train", *(["--fixed"] if fixed else []), "--", *options]


class Run(NamedTuple):
    """What a training logged, an entry a step, and the weights that it saved."""

    history: list[dict[str, Any]]
    weights: dict[str, Any]


def trained(folder: Path, engine: Engine, processes: int, **values: Any) -> Run:
    """Train in a folder.

    Raises:
        AssertionError: the engine did not run, or did not save.
        RuntimeError: the training failed; says how.
    """
    from safetensors.torch import load_file

    folder.mkdir(parents=True, exist_ok=True)
    run, log = folder / "run", folder / "log.txt"
    if to_the_end(engine, processes, *words_of(run, **values), log=log):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        errors = (line for line in lines if re.search(r"(Error|Exception|Expected)\b.*:? ", line))
        raise RuntimeError("; ".join(dict.fromkeys(errors)))
    assert [*run.glob(f"checkpoint-*/{engine.trace}")], f"no checkpoint has {engine.trace}"
    [saved] = (run / "checkpoint").glob("*.safetensors")
    entries = map(json.loads, (run / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return Run([entry for entry in entries if "reward" in entry or "eval_reward" in entry], load_file(saved))


def apart(run: Run, other: Run) -> float:
    """The largest difference of a weight.

    Raises:
        AssertionError: the weights have other names, or are not finite.
    """
    names = sorted(run.weights.keys() ^ other.weights.keys())
    assert not names, f"{len(names)} names that only one of them saved, {names[0]} among them"
    assert all(bool(weight.isfinite().all()) for weight in run.weights.values())
    return max(float((weight - other.weights[name]).abs().max()) for name, weight in run.weights.items())


def shipped() -> Run:
    """The weights that the model has before any step."""
    from safetensors.torch import load_file

    return Run([], {name: weight.float() for name, weight in load_file(MODEL / "model.safetensors").items()})


def check_same_steps(folder: Path, processes: int, *, engine: str = "DDP") -> str:
    """One process with accumulation and several without log the same and move the same weights, by hard batches too."""
    values = {"fixed": True, "max_steps": STEPS, "save_steps": STEPS, "eval_strategy": "steps", "eval_steps": 3}
    values |= {"eval_images": 3, "per_device_eval_batch_size": 4}
    alone = trained(folder / "alone", ENGINES["DDP"], 1, gradient_accumulation_steps=processes, **values)
    together = trained(folder / "together", ENGINES[engine], processes, **values)
    for expected, entry in zip(alone.history, together.history, strict=True):
        assert set(expected) == set(entry), set(expected) ^ set(entry)
        for key, value in expected.items():
            message = f"step {entry['step']}: {key} is {entry[key]} instead of {value}"
            if isinstance(value, dict):
                # Counts by name. Several processes evaluate some images twice, where they do not fill the last batch.
                assert value == entry[key] or key.startswith("eval_"), message
                continue
            assert entry[key] is None or math.isfinite(entry[key]), message
            if isinstance(value, float) and not any(part in key for part in _OF_BATCHES):
                assert math.isclose(value, entry[key], rel_tol=1e-3, abs_tol=1e-5), message
    difference = apart(alone, together) / apart(alone, shipped())
    assert difference < FLOAT_NOISE, f"weights differ by {difference:.1%} of their change"
    return f"{difference:.4%} of the largest change of a weight"


def two_steps(folder: Path, engine: str, mode: str, **values: object) -> Run:
    """Two steps with real samples in two processes."""
    return trained(folder, ENGINES[engine], 2, **MODES[mode], max_steps=2, save_steps=1, **values)


@functools.cache
def steps_of_ddp(mode: str) -> Run:
    """What all other engines are compared with."""
    with tempfile.TemporaryDirectory() as folder:
        return two_steps(Path(folder), "DDP", mode)


def check_agree(folder: Path, *, engine: str, mode: str) -> str:
    """Two steps move weights as DDP does, and save them under its names; resumed after the first, they are equal."""
    expected, run = steps_of_ddp(mode), two_steps(folder, engine, mode)
    if mode == "full":
        assert expected.weights.keys() == shipped().weights.keys()
    weights = apart(expected, run)
    loss, gradient = (
        max(abs(entry[key] - other[key]) for entry, other in zip(expected.history, run.history, strict=True))
        for key in ("loss", "grad_norm")
    )
    gradient /= max(entry["grad_norm"] for entry in expected.history)
    outcome = f"weights {weights:.1g}, loss {loss:.1g}, gradient {gradient:.1g}"
    assert max(weights, loss) <= AGREEMENT, outcome
    assert gradient <= GRADIENT_AGREEMENT, outcome
    for name in ("checkpoint", "checkpoint-2"):
        shutil.rmtree(folder / "run" / name)
    again = two_steps(folder, engine, mode, resume_from_checkpoint="last")
    # Its time too: the first step was not made once more.
    assert again.history[0] == run.history[0]
    resumed = apart(run, again)
    assert resumed == 0, f"a resumed run differs by {resumed:.1g}"
    return f"{outcome}; resumed {resumed:g}"


def check_killed(folder: Path, processes: int, *, rank: int = 1) -> str:
    """kill -9 of one process ends all within SECONDS, by the launcher; the same command resumes."""
    import psutil

    folder.mkdir(parents=True)
    engine, run, log = ENGINES["DDP"], folder / "run", folder / "log.txt"
    saved = {"save_steps": 1, "save_total_limit": 3}
    started = start(engine, processes, *words_of(run, **saved, max_steps=50), log=log)
    deadline = time.monotonic() + 600
    while not (run / "checkpoint-2" / "trainer_state.json").is_file():
        alive = started[0].poll() is None and time.monotonic() < deadline
        assert alive, log.read_text(errors="replace")[-3000:]
        time.sleep(0.1)
    children = psutil.Process(started[0].pid).children(recursive=True)
    [killed] = [child for child in children if child.environ().get("RANK") == str(rank)]
    killed.send_signal(signal.SIGKILL)
    seconds = finish(started, log, SECONDS)
    assert started[0].returncode != 0
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
    steps = _last_step(run) + 1
    again = words_of(run, **saved, max_steps=steps, resume_from_checkpoint="last")
    code = to_the_end(engine, processes, *again, log=folder / "again.txt")
    assert code == 0, (folder / "again.txt").read_text(errors="replace")[-3000:]
    assert _last_step(run) == steps
    return f"all ended after {seconds:.1f} s, resumed"


def _last_step(run: Path) -> int:
    """The step of the last whole checkpoint."""
    from grounding_rewards.training.run_folder import last_complete_checkpoint

    last = last_complete_checkpoint(run)
    return 0 if last is None else int(last.name.rpartition("-")[2])


class Row(NamedTuple):
    """A row of the table: what is checked of which engine, and what does it in a folder and returns the last cell."""

    check: str
    engine: str
    mode: str
    processes: int
    ran: str
    outcome: Callable[[Path], str]


def rows(processes: Sequence[int]) -> Iterator[Row]:
    """All rows, with so many processes where any number will do."""
    for number in processes:
        for engine in ("DDP", "FSDP2"):
            check = functools.partial(check_same_steps, processes=number, engine=engine)
            yield Row("same_steps", engine, "full", number, f"{STEPS} steps, against 1 process", check)
    shared = ("FSDP2", "ZeRO-2", "ZeRO-3")
    for mode, engines in (("full", ("DDP, two launchers", *shared)), ("LoRA", shared)):
        for engine in engines:
            check = functools.partial(check_agree, engine=engine, mode=mode)
            yield Row("agree", engine, mode, 2, "2 steps, against DDP; resumed", check)
    for number in processes:
        for rank in (1, 0):
            check = functools.partial(check_killed, processes=number, rank=rank)
            yield Row("killed", "DDP", "full", number, f"`kill -9` of process {rank}", check)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks and print the table; 1 if one failed."""
    names = list(dict.fromkeys(row.check for row in rows([2])))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="default: all")
    parser.add_argument("--processes", nargs="+", type=int, default=[2, 4], help="default: 2 4")
    parser.add_argument("--write", type=Path, metavar="PAGE", help=f"put the table between {MARKS[0]} and its end")
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--fixed", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.train:
        return train_here(options.words, fixed=options.fixed)
    failed = 0
    table = ["| engine | mode | processes | what ran | agreement |", "|---|---|---|---|---|"]
    print(*table, sep="\n", flush=True)
    for row in rows(options.processes):
        if row.check not in options.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            if row.engine.startswith("ZeRO") and find_spec("deepspeed") is None:
                outcome = "not run: DeepSpeed is not installed"
            else:
                try:
                    outcome = row.outcome(Path(folder) / "run")
                except (AssertionError, RuntimeError) as error:
                    failed, outcome = 1, f"**failed**: {' '.join(str(error).split())}"
        table.append(f"| {row.engine} | {row.mode} | {row.processes} | {row.ran} | {outcome} |")
        print(table[-1], flush=True)
    libraries = ("torch", "transformers", "trl", "accelerate", "peft", "deepspeed")
    versions = ", ".join(f"{name} {package_version(name)}" for name in libraries)
    table += ["", f"{datetime.date.today()}, processor ({platform.machine()}), gloo; {versions}."]
    print(*table[-2:], sep="\n")
    if options.write:
        page = options.write.read_text(encoding="utf-8")
        write_whole(options.write, replace_part(page, MARKS, "\n".join(table)))
    return failed


if __name__ == "__main__":
    sys.exit(main())

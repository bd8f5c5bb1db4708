"""Is what vLLM is shown what is trained on? GRPO with vLLM itself, on the processor; writes a table of docs/cluster.md.

    python scripts/checks/check_vllm.py                            install vLLM into .venv-vllm, and check everything
    python scripts/checks/check_vllm.py --only colocate guard server      these; the rows of others stay as they are
    python scripts/checks/check_vllm.py --environment DIR                 the environment lies there

The small shipped model is trained for a few steps by the commands that users give, with vLLM's build for processors:
the pair of versions that `grounding-rewards env` calls tested. What is checked stands in CHECKS. The environment takes
4 GB. Without a GPU there is no sleep mode, no NCCL and no tensor parallelism: these alone are not tried.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from scripts.checks.environments import REPOSITORY, create, install_vllm
from scripts.checks.model_families import FAMILIES, save_family
from scripts.docs.page_parts import between, marks_of, replace_part

PAGE = REPOSITORY / "docs" / "cluster.md"
MARKS = marks_of("vllm")
HEAD = ("engine", "mode", "what ran", "mean of abs(Δ log p)", "importance ratio: mean (range)")
RUN = REPOSITORY / "scripts" / "checks" / "vllm_on_processor.py"
MODEL = REPOSITORY / "assets" / "tiny_vlm"
DIFFERENCE, RATIO = "sampling/sampling_logp_difference/mean", "sampling/importance_sampling_ratio/"
#: Largest mean difference of a step between vLLM and the training, where vLLM computes in the checkpoint's float16.
ROUNDING = 0.01
#: The same where both compute in bfloat16.
BF16_ROUNDING = 0.05
#: By how much the mean importance ratio of a step may be off 1, in float32 and in bfloat16.
RATIO_NOISE, BF16_RATIO_NOISE = 0.01, 0.05
#: Seconds for the start of a server.
START = 300

# One step takes 16 answers to 2 images; images come again from the second step on where there are 2 in all.
SMALL = {
    "train_images": 16,
    "per_device_train_batch_size": 16,
    "num_generations": 8,
    "vllm_max_model_length": 512,
    "learning_rate": 1e-3,
    "max_steps": 3,
    "vllm_enable_sleep_mode": "false",
}
DEMO = ("--config", "configs/demo/grpo.yaml", "--config", "configs/generation/vllm_colocate.yaml")


class Check(NamedTuple):
    """What is run, and how.

    Attributes:
        mode: where vLLM runs, and what is trained.
        what: what ran, in words.
        run: called with the Python of the environment and an empty folder; gives the last two cells of the row.
    """

    mode: str
    what: str
    run: Callable[[Path, Path], tuple[str, str]]


def environment() -> dict[str, str]:
    """Variables of what is started: nothing from the network, one process where that is possible."""
    quiet = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}
    small = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "TOKENIZERS_PARALLELISM": "false"}
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"OMP_WAIT_POLICY": "passive", **os.environ, **quiet, **small, "PYTHONPATH": path}


def options(values: Mapping[str, object]) -> list[str]:
    """Options of a command line."""
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


def call(python: Path, script: Path, *words: object) -> str:
    """Run a script in the environment; what it printed.

    Raises:
        RuntimeError: it failed; with the end of what it printed.
    """
    command = [python, script, *map(str, words)]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment(), capture_output=True, text=True, check=False)
    printed = done.stdout + done.stderr
    if done.returncode:
        raise RuntimeError(printed[-3000:])
    return printed


def train(
    python: Path,
    folder: Path,
    *words: object,
    configs: Sequence[str] = DEMO,
    without: Sequence[str] = (),
    **values: Any,
) -> tuple[list[dict[str, Any]], str]:
    """Train by the command `train`; the log of its steps, and what it printed.

    Raises:
        RuntimeError: as :func:`call`.
    """
    mends = ("--without", *without, "--") if without else ()
    command = ("train", *configs, *words, *options({**SMALL, **values, "output_dir": folder}))
    printed = call(python, RUN, *mends, *command)
    entries = map(json.loads, (folder / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [entry for entry in entries if DIFFERENCE in entry], printed


def judge(steps: Sequence[Mapping[str, Any]], limit: float = ROUNDING, noise: float = RATIO_NOISE) -> tuple[str, str]:
    """The cells of a training whose rollouts are what was trained on.

    Raises:
        AssertionError: a difference or an importance ratio is too far off.
    """
    differences = [step[DIFFERENCE] for step in steps]
    ratios = [step[f"{RATIO}mean"] for step in steps]
    lowest, highest = min(step[f"{RATIO}min"] for step in steps), max(step[f"{RATIO}max"] for step in steps)
    assert steps, "no step was logged"
    assert max(differences) < limit, f"log-probabilities differ by {differences}"
    assert all(abs(mean - 1) < noise for mean in ratios), f"mean importance ratios are {ratios}"
    assert any(step["grad_norm"] > 0 for step in steps), "no weight moved"
    worst = max(ratios, key=lambda mean: abs(mean - 1))
    return f"{max(differences):.1g}", f"{worst:.3f} ({lowest:.2f} to {highest:.2f})"


def check_full(python: Path, folder: Path) -> tuple[str, str]:
    """All weights, three steps; then on from the second one's checkpoint."""
    train(python, folder / "run", save_steps=2)
    (folder / "run" / "checkpoint").rename(folder / "checkpoint-of-3")
    again, _ = train(python, folder / "run", save_steps=2, max_steps=4, resume_from_checkpoint="last")
    assert [step["step"] for step in again] == [1, 2, 3, 4]
    return judge(again)


def check_lora(python: Path, folder: Path) -> tuple[str, str]:
    """Adapters on the language model, by the shipped file."""
    steps, _ = train(python, folder / "run", "--config", "configs/tuning/lora.yaml", dtype="float32")
    return judge(steps)


def check_bfloat16(python: Path, folder: Path) -> tuple[str, str]:
    """The same as on a GPU: weights in 32 bits, computing in 16."""
    steps, _ = train(python, folder / "run", bf16="true")
    return judge(steps, BF16_ROUNDING, BF16_RATIO_NOISE)


def check_experiment(python: Path, folder: Path) -> tuple[str, str]:
    """The experiment that users start with, on the small model."""
    configs = ("--config", "configs/experiments/r4.yaml")
    small = {"use_cpu": "true", "bf16": "false", "tf32": "false", "dtype": "float32", "dataset": "synthetic"}
    small |= {"max_completion_length": 24, "gradient_accumulation_steps": 1, "model_name_or_path": MODEL}
    small["learning_rate"] = 1e-5
    steps, _ = train(python, folder / "run", configs=configs, **small)
    return judge(steps)


def check_features(python: Path, folder: Path) -> tuple[str, str]:
    """The vision tower is trained and two images come again, five steps; without the mend the difference grows."""
    repeated = {"train_images": 2, "max_steps": 5, "learning_rate": 2e-3}
    mended = judge(train(python, folder / "mended", **repeated)[0])
    stale, printed = train(python, folder / "stale", without=["features"], **repeated)
    assert max(step[DIFFERENCE] for step in stale[2:]) > 3 * ROUNDING, [step[DIFFERENCE] for step in stale]
    assert "log-probabilities of sampled tokens that differ" in printed, "there was no warning"
    return f"{mended[0]} (unmended {max(step[DIFFERENCE] for step in stale):.1g})", mended[1]


def check_guard(python: Path, folder: Path) -> tuple[str, str]:
    """Prompts as TRL hands them to vLLM are refused before a weight has moved; unwatched, they are noise."""
    printed = ""
    try:
        train(python, folder / "refused", without=["prompts"])
    except RuntimeError as error:
        printed = str(error)
    lengths = re.search(r"Expected the (\d+) tokens .* got (\d+)\..*trl#6294", printed)
    assert lengths, f"TRL's prompts were not refused: {printed[-500:]}"
    assert not (folder / "refused" / "checkpoint").exists()
    noise, _ = train(python, folder / "noise", "--parity_check", "false", without=["prompts", "watch"])
    return f"refused: {lengths[1]} and {lengths[2]} tokens", f"unwatched: {max(step[DIFFERENCE] for step in noise):.1g}"


def check_families(python: Path, folder: Path) -> tuple[str, str]:
    """Every family of configs/models, with random weights: vLLM writes out an image as its processor does."""
    cells = []
    for name in dict.fromkeys(family.rpartition("_")[0] for family in FAMILIES):
        full = next(family for family in FAMILIES if family.startswith(name))
        save_family(full, folder / name, layers=2, narrow=True)
        # Random weights write no box, so that only a drawn reward moves them.
        drawn = {"reward": "random", "reward_kwargs": "{}", "max_steps": 2, "train_images": 4}
        values = {**drawn, "model_name_or_path": folder / name, "vllm_max_model_length": 4096}
        box_format = "medgemma-1.5" if name.startswith("medgemma") else "qwen3-vl"
        steps, _ = train(python, folder / f"{name}_run", box_format=box_format, save_strategy="no", **values)
        # Answers must not hold the token of an image, which random weights write as often as any other of some 270.
        cells.append(judge(steps, noise=0.2))
    ratios = [float(ratio.split()[0]) for _, ratio in cells]
    return f"{max(float(cell) for cell, _ in cells):.1g}", f"{min(ratios):.3f} to {max(ratios):.3f}, see below"


def check_greedy(python: Path, folder: Path) -> tuple[str, str]:
    """Greedy answers to 20 images are transformers', by `evaluate` with both; so are their log-probabilities."""
    for backend, engine in (
        ("transformers", {}),
        ("vllm", {"vllm-options": '{"dtype": "float32", "max_model_len": 512}'}),
    ):
        asked = {"model": MODEL, "dataset": "synthetic", "max-images": 20, "backend": backend, **engine}
        call(python, RUN, "evaluate", *options({**asked, "out": folder / backend}))
    answers = [
        (folder / backend / "completions.jsonl").read_text(encoding="utf-8") for backend in ("transformers", "vllm")
    ]
    first, second = ([json.loads(line)["completion"] for line in text.splitlines()] for text in answers)
    same = sum(one == other for one, other in zip(first, second, strict=True))
    assert same == len(first) == 20, f"{same} of {len(first)} answers are the same"
    return "–", f"{same} of {len(first)} answers equal"


def check_server(python: Path, folder: Path) -> tuple[str, str]:
    """vLLM in a server, whose weights and image features are renewed; the images come again."""
    with server(python, folder / "server.txt") as port:
        configs = (*DEMO[:2], "--config", "configs/generation/vllm_server.yaml")
        values = {"vllm_server_port": port, "train_images": 2, "max_steps": 4}
        steps, _ = train(python, folder / "run", configs=configs, **values)
    assert (folder / "server.txt").read_text().count('POST /reset_encoder_cache HTTP/1.1" 200') >= 4
    return judge(steps)


@contextmanager
def server(python: Path, log: Path) -> Iterator[int]:
    """A server with the small model, as the head of configs/generation/vllm_server.yaml starts it; its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    head = (REPOSITORY / "configs" / "generation" / "vllm_server.yaml").read_text(encoding="utf-8")
    stated = re.search(r"vllm serve \S+ (.*?)\n#   grounding", head, re.DOTALL)
    assert stated, "the file of the server does not say how it is started"
    words = stated[1].replace("\\\n#", " ").replace("'", "").replace('{"backend": "nccl"}', "BACKEND").split()
    words = ['{"backend": "file"}' if word == "BACKEND" else word for word in words]
    words[words.index("--max-model-len") + 1] = "512"
    command = [python, RUN, "serve", "--model", MODEL, *words, "--enforce-eager", "--port", port, "--host", "127.0.0.1"]
    variables = environment() | {"VLLM_SERVER_DEV_MODE": "1", "VLLM_LOGGING_LEVEL": "INFO"}
    variables.pop("VLLM_ENABLE_V1_MULTIPROCESSING")
    with log.open("w") as file:
        started = subprocess.Popen(
            list(map(str, command)), cwd=REPOSITORY, env=variables, stdout=file, stderr=file, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START
        while not _answers(f"http://127.0.0.1:{port}/health"):
            if started.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: {log.read_text()[-3000:]}")
            time.sleep(1)
        yield port
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


#: What is checked; the order of the table.
CHECKS: Mapping[str, Check] = {
    "colocate": Check("colocate, all weights", "3 steps, resumed for a 4th", check_full),
    "lora": Check("colocate, `lora.yaml`", "3 steps", check_lora),
    "bfloat16": Check("colocate, all weights, bf16", "3 steps", check_bfloat16),
    "experiment": Check("colocate, `r4.yaml`", "3 steps", check_experiment),
    "features": Check("colocate, vision tower trained", "5 steps on 2 images (trl#7198)", check_features),
    "guard": Check("colocate, prompts as TRL's", "the refusal (trl#6294)", check_guard),
    "families": Check("colocate, random weights of each family", "2 steps each", check_families),
    "greedy": Check("`evaluate --backend vllm`", "20 greedy answers, float32", check_greedy),
    "server": Check("server, all weights", "4 steps on 2 images, weights by a file", check_server),
}


def rows_of(page: str) -> dict[str, list[str]]:
    """The rows of the table between the marks, by mode."""
    lines = between(page, MARKS).splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| vLLM")]
    return {row[1]: row for row in rows}


def write_rows(rows: Mapping[str, list[str]], footer: str) -> None:
    """Write the table into the page; rows of other checks stay as they are."""
    page = PAGE.read_text(encoding="utf-8")
    known = rows_of(page) | rows
    lines = [HEAD, ["---"] * len(HEAD), *(known[check.mode] for check in CHECKS.values() if check.mode in known)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    PAGE.write_text(replace_part(page, MARKS, f"{table}\n\n{footer}"), encoding="utf-8")


def versions(python: Path) -> str:
    """What the table was made with."""
    code = (
        "from importlib.metadata import version; import json, sys; "
        "print(json.dumps({name: version(name) for name in sys.argv[1:]}))"
    )
    names = ["vllm-cpu", "transformers", "trl", "peft", "torch"]
    found = json.loads(subprocess.run([python, "-c", code, *names], capture_output=True, text=True, check=True).stdout)
    listed = ", ".join(f"{name} {number}" for name, number in found.items())
    return f"{time.strftime('%Y-%m-%d')}, processor, {listed}; `python scripts/checks/check_vllm.py`."


def main(words: Sequence[str] | None = None) -> int:
    """Install, check, write the table; 1 if a check failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CHECKS, default=list(CHECKS), help="default: all")
    parser.add_argument("--environment", type=Path, default=REPOSITORY / ".venv-vllm", help="default: .venv-vllm")
    given = parser.parse_args(words)
    python = create(given.environment.absolute())
    if not (given.environment / ".installed").exists():
        from grounding_rewards.common.environment import TESTED_WITH_VLLM

        pair = f"transformers=={TESTED_WITH_VLLM['transformers']}"
        install_vllm(python, pair, "trl==1.16.0", "--editable", f"{REPOSITORY}[train]")
        (given.environment / ".installed").touch()
    rows: dict[str, list[str]] = {}
    failed = 0
    for name in given.only:
        check = CHECKS[name]
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                cells = check.run(python, Path(folder))
                rows[check.mode] = ["vLLM", check.mode, check.what, *cells]
                print(f"{name}: {' | '.join(cells)} ({time.monotonic() - begun:.0f} s)", flush=True)
            except (AssertionError, RuntimeError) as error:
                failed = 1
                print(f"{name}: **failed**: {error}", flush=True)
    write_rows(rows, versions(python))
    return failed


if __name__ == "__main__":
    sys.exit(main())

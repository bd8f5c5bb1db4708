"""Evaluate a small model, train it with GRPO, evaluate it again and show what changed, on drawn chest radiographs: two
processor cores are enough, and nothing is downloaded. The page is index.html in the folder of --output_dir.

These are the commands that a person would run: `grounding-rewards evaluate`, `train`, `evaluate` and `diff`, and first
`sft` where --warm_start names its configuration. Options that are not listed here go to `grounding-rewards train`, for
example --reward R2, --max_steps 50 or --seed 1.

examples:
  grounding-rewards demo                      # soft_f1 on the model and the images that come with the package
  grounding-rewards demo --reward R2 --seed 1 --output_dir runs/demo_r2
  grounding-rewards demo --smoke              # one step on a few images: does everything run here?
  grounding-rewards demo --config configs/demo/real_images.yaml --warm_start configs/demo/sft_real_images.yaml
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from grounding_rewards.commands.console import say
from grounding_rewards.commands.options import option

_METRICS = (
    "sampled_reward", "mean_iou", "image_dependence", "f1_50", "recall_50", "recall_75", "hallucination_rate",
    "sampled_unparseable_share", "label_accuracy",
)  # fmt: skip

# The options of the training with --smoke; images and samples of the evaluations are in `run`.
_SMOKE = (
    *("--max_steps", "1", "--train_images", "8", "--per_device_train_batch_size", "4", "--num_generations", "4"),
    *("--max_completion_length", "24", "--save_strategy", "no"),
)


def run(
    *train_options: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    config: str = "configs/demo/grpo.yaml",
    warm_start: Annotated[str | None, option("YAML of `sft`, to train supervised first", name="--warm_start")] = None,
    output_dir: Annotated[Path, option("folder to write", name="--output_dir")] = Path("runs/demo"),
    accelerate_config: Annotated[
        str, option("how training is launched", name="--accelerate_config")
    ] = "configs/accelerate/cpu_1.yaml",
    max_images: int = 1000,
    samples: int = 4,
    smoke: bool = False,
) -> int:
    """Run the demo; the exit code of the first command that fails, else 0.

    Args:
        train_options: of `train`
        config: YAML of `train`
        max_images: the first so many held-out images
        samples: sampled answers per image
        smoke: one step on a few images, to see that everything runs here
    """
    from grounding_rewards.common.config_files import find_shipped, read_config
    from grounding_rewards.logs.run_log import CHECKPOINT
    from grounding_rewards.training.arguments import parse_grpo_arguments

    if smoke:
        # Options of the user come later, and so count.
        max_images, samples, train_options = 4, 2, (*_SMOKE, *train_options)
    warm_start_folder = output_dir / "warm_start"
    training_words = ["--config", config, "--output_dir", str(output_dir), *train_options]
    training_words += _kept_reward_kwargs(train_options, read_config(config))
    if warm_start is not None:
        training_words += ["--model_name_or_path", str(warm_start_folder / CHECKPOINT)]
    # Wrong values are refused here, not after the first evaluation, which takes long.
    arguments, training, model = parse_grpo_arguments(training_words)
    if len(arguments.reward) != 1:
        raise ValueError(f"Expected one reward for --reward, got {', '.join(arguments.reward)}. Make a run with each.")
    evaluation_words = _evaluation_words(arguments, training, max_images, samples)
    try:
        if warm_start is not None:
            say(f"demo: supervised warm start with {warm_start}", stderr=True)
            dataset_words = ("--dataset", arguments.dataset, "--train_split", arguments.train_split)
            _call("sft", "--config", warm_start, "--overwrite", *dataset_words, "--output_dir", warm_start_folder)
        _evaluate(str(model.model_name_or_path), output_dir / "before", evaluation_words)
        say(f"demo: training it with {arguments.reward[0]}", stderr=True)
        launcher = ("-m", "accelerate.commands.launch", "--quiet", "--config_file", find_shipped(accelerate_config))
        # An earlier run in this folder is replaced, unless it is resumed.
        overwrite = () if training.resume_from_checkpoint else ("--overwrite",)
        _call("train", *training_words, *overwrite, launcher=launcher)
        _evaluate(output_dir / CHECKPOINT, output_dir / "after", evaluation_words)
        # Without samples nothing is known of them.
        metrics = [key for key in _METRICS if samples or not key.startswith("sampled")]
        # diff.json is written last: a run that has it is finished.
        files = ("--html", output_dir / "index.html", "--json", output_dir / "diff.json")
        _call("diff", output_dir / "before", output_dir / "after", *files, "--metrics", *metrics)
    except subprocess.CalledProcessError as error:
        # The command has printed the reason.
        return error.returncode
    return 0


def _evaluation_words(arguments: Any, training: Any, max_images: int, samples: int) -> list[object]:
    """The options of `evaluate` before and after the training, with the images, reward and decoding of the training.

    Args:
        arguments: options of the training that are this package's.
        training: options of the training that are TRL's.
        max_images: the first so many of the images.
        samples: sampled answers per image.
    """
    from grounding_rewards.rewards.registry import spread_kwargs

    # There is one reward, so one set of parameters.
    [kwargs] = spread_kwargs(arguments.reward, arguments.reward_kwargs)
    words = [
        *("--dataset", arguments.dataset, "--split", "test", "--train-split", arguments.train_split),
        *("--max-images", max_images, "--reward", arguments.reward[0], "--reward-kwargs", json.dumps(kwargs)),
        *("--samples", samples, "--temperature", training.temperature, "--batch-size", 256),
        *("--max-new-tokens", training.max_completion_length),
    ]
    box_format = arguments.box_format
    if box_format is not None:
        words += ["--box-format", box_format if isinstance(box_format, str) else json.dumps(box_format)]
    return words


def _evaluate(checkpoint: str | Path, out: Path, words: Sequence[object]) -> None:
    """Evaluate a checkpoint into a folder, which is emptied; `words` are further options of `evaluate`."""
    say(f"demo: evaluating {checkpoint}", stderr=True)
    # Answers of an earlier demo: `evaluate` would go on with them, or refuse those of another checkpoint.
    shutil.rmtree(out, ignore_errors=True)
    _call("evaluate", "--model", checkpoint, "--out", out, *words)


def _kept_reward_kwargs(words: Sequence[str], configured: Mapping[str, Any]) -> list[str]:
    """The option `--reward_kwargs` for a reward that replaces that of the configuration; empty if none is needed.

    The parameters of the configuration are those of its own reward. Only the bonus, which every reward has, is kept.

    Args:
        words: the options of the command line.
        configured: the options of the configuration.
    """
    # Finds two options, and passes over all others.
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--reward")
    parser.add_argument("--reward_kwargs")
    options, _ = parser.parse_known_args(words)
    kwargs = configured.get("reward_kwargs")
    is_same_reward = options.reward in (None, configured.get("reward"))
    if is_same_reward or options.reward_kwargs or not isinstance(kwargs, Mapping):
        return []
    bonus = {name: value for name, value in kwargs.items() if name == "no_box_bonus"}
    return ["--reward_kwargs", json.dumps(bonus)]


def _call(*words: object, launcher: Sequence[str] = ()) -> None:
    """Run a command of `grounding-rewards` in a process of its own.

    Args:
        *words: the command and its options.
        launcher: options of Python that come before the command, such as a module that starts it.

    Raises:
        subprocess.CalledProcessError: the command failed, and has printed why.
    """
    # The two tables of the evaluations are in their report.html; the one of the comparison is printed.
    output = subprocess.DEVNULL if words[0] == "evaluate" else None
    command = [sys.executable, *launcher, "-m", "grounding_rewards.cli", *map(str, words)]
    # Without these the launcher warns of old names that TRL uses, and tokenizers warn when a process starts others.
    quiet = {"PYTHONWARNINGS": "ignore::FutureWarning", "TOKENIZERS_PARALLELISM": "false"}
    code = subprocess.call(command, stdout=output, env={**quiet, **os.environ})
    if code:
        raise subprocess.CalledProcessError(code, str(words[0]))

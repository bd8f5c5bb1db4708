"""Evaluate checkpoints on held-out films, alone or before and after a training run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.data.answer_logs import light_rows
from grounding_rewards.data.load import SYNTHETIC, load_split
from grounding_rewards.data.model_columns import add_columns
from grounding_rewards.evaluation.answers import Decoding, answer_films
from grounding_rewards.evaluation.summary import AFTER, BEFORE, summarise, write_metrics, write_page
from grounding_rewards.metrics.answered_film import AnsweredFilm
from grounding_rewards.metrics.baselines import baseline_systems
from grounding_rewards.models.load import load_model
from grounding_rewards.parsing import BoxFormat, box_format_for_model_type
from grounding_rewards.report.tables import Row
from grounding_rewards.rewards.grounding import GroundingReward, get_reward
from grounding_rewards.training.run_folder import CHECKPOINT

if TYPE_CHECKING:
    from datasets import Dataset

_OF_A_FILM = ("boxes", "labels", "width", "height")


@dataclass(frozen=True)
class Films:
    """Which films to evaluate on: ``count`` of ``split``, all without it.

    ``train_split`` gives the constant box, which is left out without it.
    """

    dataset: str = SYNTHETIC
    split: str = "test"
    count: int | None = None
    train_split: str | None = "train"


@dataclass(frozen=True)
class Task:
    """Held-out films with all columns, training films, and the reward that scores the answers."""

    dataset: Dataset
    training: Dataset | None
    reward: GroundingReward


@dataclass(frozen=True)
class Launch:
    """What :func:`train_and_compare` starts, each a file: relative to the repository, where it is run.

    ``overrides`` are options for ``scripts/train_grpo.py`` that go before those of ``config``. ``warm_start`` is
    a configuration of ``scripts/train_sft.py``, whose result GRPO starts from; it is trained on the same films.
    """

    config: str
    output_dir: Path
    accelerate_config: str = "configs/accelerate/cpu_1.yaml"
    warm_start: str | None = None
    overrides: tuple[str, ...] = ()


def prepare_task(
    model: Any,
    processor: Any,
    films: Films,
    *,
    reward: str = "R4",
    reward_kwargs: Mapping[str, Any] | None = None,
    box_format: str | Mapping[str, Any] | BoxFormat | None = None,
) -> Task:
    """Load the films and make the reward as the trainer does.

    Args:
        model: decides the box format where neither ``box_format`` nor the dataset does.
        processor: decides the resized sizes.
        films: which ones.
        reward: name or dotted path.
        reward_kwargs: its parameters.
        box_format: how the model writes boxes: a name, or what else ``get_box_format`` takes.

    Raises:
        ValueError: an unknown dataset, split, reward, parameter or box format.
    """
    dataset = load_split(films.dataset, films.split, films=films.count)
    made = get_reward(reward, **{"box_format": box_format, **(reward_kwargs or {})})
    column = None
    if made.box_format is None and "box_format" not in dataset.column_names:
        column = box_format_for_model_type(model.config.model_type)
    training = None if films.train_split is None else load_split(films.dataset, films.train_split)
    return Task(add_columns(dataset, processor, column), training, made)


def train_and_compare(launch: Launch, films: Films, decoding: Decoding) -> tuple[list[Row], GroundingReward]:
    """Warm-start if asked, evaluate, train with GRPO, evaluate again, and write it all down.

    ``launch.output_dir`` then holds what the training leaves there (checkpoint, resolved config, versions, log)
    and ``metrics.json``, ``curves.png`` and ``index.html``.

    Args:
        launch: the training.
        films: the held-out films; dataset and training split are the configuration's.
        decoding: how the models are asked; temperature and length are replaced by the configuration's.

    Returns:
        The rows of the table, and the reward.

    Raises:
        ValueError: a wrong value in the configuration, several rewards, or films that cannot be measured.
        subprocess.CalledProcessError: the training failed.
    """
    started = time.monotonic()
    folder = launch.output_dir
    options = ["--config", launch.config, "--output_dir", str(folder), *launch.overrides]
    if "--resume_from_checkpoint" not in launch.overrides:
        # The page, the table and the curves of an earlier comparison are replaced too.
        options.append("--overwrite")
    warm = folder / "warm_start"
    if launch.warm_start is not None:
        options += ["--model_name_or_path", str(warm / CHECKPOINT)]
    arguments, config, model_arguments = _grpo_arguments(options)
    if launch.warm_start is not None:
        taught = ("--dataset", arguments.dataset, "--train_split", arguments.train_split, "--output_dir", str(warm))
        _python("scripts/train_sft.py", "--config", launch.warm_start, "--overwrite", *taught)
    films = Films(arguments.dataset, films.split, films.count, arguments.train_split)
    decoding = Decoding(
        decoding.samples, config.temperature, config.max_completion_length, decoding.batch_size, decoding.seed
    )
    start = model_arguments.model_name_or_path
    model, processor = load_model(start)
    task = prepare_task(
        model,
        processor,
        films,
        reward=arguments.reward[0],
        reward_kwargs=_reward_kwargs(arguments),
        box_format=arguments.box_format,
    )
    before = answer_films(model, processor, task.dataset, task.reward, decoding, progress=BEFORE)
    del model

    launcher = ("-m", "accelerate.commands.launch", "--quiet", "--config_file", launch.accelerate_config)
    _python(*launcher, "scripts/train_grpo.py", *options)

    after = answer_films(*load_model(folder / CHECKPOINT), task.dataset, task.reward, decoding, progress=AFTER)
    rows = summarise({BEFORE: before, AFTER: after, **baselines(task)})
    _write_run(folder, rows, task, films, decoding, before, after, start=start, started=started)
    return rows, task.reward


def baselines(task: Task) -> dict[str, list[AnsweredFilm]]:
    """The answers that need no look at the film, see :func:`grounding_rewards.metrics.baselines.baseline_systems`.

    There is a constant box only where at least half of the training films share a label.
    """
    training = () if task.training is None else task.training.select_columns(list(_OF_A_FILM))
    systems = baseline_systems(light_rows(task.dataset), training, task.reward, at_least_one=False)
    # However often such a rule is asked, it answers the same.
    return {
        name: [replace(film, sampled_rewards=(film.rewards[task.reward.name],), sampled_read=(True,)) for film in films]
        for name, films in systems.items()
    }


def read_log(path: Path) -> list[dict[str, Any]]:
    """The trainer's log, one JSON object a line; none where the file is missing."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _write_run(
    folder: Path,
    rows: Sequence[Row],
    task: Task,
    films: Films,
    decoding: Decoding,
    before: Sequence[AnsweredFilm],
    after: Sequence[AnsweredFilm],
    *,
    start: str,
    started: float,
) -> None:
    facts = {
        "reward": repr(task.reward),
        "model": str(start),
        "films": {**asdict(films), "count": len(before)},
        "decoding": asdict(decoding),
        "seconds": round(time.monotonic() - started, 1),
    }
    write_page(
        folder / "index.html",
        title=f"{task.reward.__name__}: before and after GRPO",
        subtitle=f"{len(before)} held-out films of {films.dataset} ({films.split}), one greedy and "
        f"{decoding.samples} sampled answers each at temperature {decoding.temperature:g}",
        rows=rows,
        before=before,
        after=after,
        reward=task.reward.name,
        load_image=partial(_load_image, task.dataset),
        log_history=read_log(folder / "log.jsonl"),
    )
    # Last, because a run with this file counts as finished.
    write_metrics(folder / "metrics.json", rows, facts)


def _load_image(dataset: Dataset, k: int) -> Any:
    return dataset[k]["image"]


def _grpo_arguments(options: Sequence[str]) -> tuple[Any, Any, Any]:
    from grounding_rewards.training.arguments import parse_grpo_arguments

    arguments, config, model = parse_grpo_arguments(options)
    if len(arguments.reward) != 1:
        raise ValueError(f"Expected one reward for `reward`, got {', '.join(arguments.reward)}. Make a run with each.")
    return arguments, config, model


def _reward_kwargs(arguments: Any) -> dict[str, Any]:
    from grounding_rewards.training.rewards import spread_kwargs

    return spread_kwargs(arguments.reward, arguments.reward_kwargs)[0]


def _python(*arguments: str) -> None:
    """Run Python in the repository; its output goes to this terminal."""
    subprocess.run([sys.executable, *arguments], check=True)

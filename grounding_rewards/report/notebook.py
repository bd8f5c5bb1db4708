"""The commands as a notebook calls them: a log in, a result out that shows itself.

A log is a path, several of them, rows (a list of mappings, a ``pandas.DataFrame``, a ``datasets.Dataset``), or
predictions that were read already. What the command line prints as warnings are warnings here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.logs.inspection import Inspection, inspect_completions
from grounding_rewards.logs.join import ImageAnswers, read_log
from grounding_rewards.logs.read import off_image_notes, read_completions
from grounding_rewards.logs.run_log import trained_reward
from grounding_rewards.metrics import evaluation as metrics_evaluation
from grounding_rewards.metrics.baselines import baseline_systems, system_name
from grounding_rewards.metrics.comparison import RunDifference, compare_runs
from grounding_rewards.metrics.evaluation import Evaluation, Measures, answer_notes, evaluation_file
from grounding_rewards.metrics.prediction import Prediction, load_predictions
from grounding_rewards.metrics.read_predictions import read_predictions
from grounding_rewards.metrics.signal import SignalReport, measure_signal
from grounding_rewards.prepare.load import load_split
from grounding_rewards.report.comparison import compare_evaluations
from grounding_rewards.rewards.grounding import GroundingReward, get_reward

if TYPE_CHECKING:
    from datasets import Dataset


class LogWarning(UserWarning):
    """Something about a log of completions that a person should know."""


def evaluate(
    log: Any,
    dataset: str | Dataset | None = None,
    box_format: Any = None,
    text_column: str | None = None,
    by_order: bool = False,
    *,
    reward: Any = "R4",
    split: str = "test",
    label_matching: str = "ignore",
) -> Evaluation:
    """Measure how good the answers of a log are, with intervals, next to answers that need no model.

    Args:
        log: a path, rows, or predictions (:class:`Prediction`), which are measured as they are.
        dataset: the images, as a dataset or as its name; without it the rows have `boxes`, `width` and `height`.
        box_format: how the model writes boxes; None takes it from the rows.
        text_column: of the log with the completions, where two columns may hold them.
        by_order: take the rows in the order of the dataset's images.
        reward: what the evaluation is about: anything that :func:`grounding_rewards.get_reward` takes.
        split: of a dataset that is named.
        label_matching: ``"ignore"``, ``"exact"`` or ``"synonyms"``: whether a box is right only under the finding's
            label.

    Raises:
        ValueError: a file is broken, images and answers do not fit each other, or an image cannot be right.

    Warns:
        LogWarning: what a person should know about the log.

    Example:
        >>> row = {"id": "a", "boxes": [[0, 0, 50, 50]], "width": 100, "height": 100}
        >>> rows = [row | {"completion": '[{"bbox_2d": [0, 0, 500, 400]}]'}]
        >>> found = evaluate(rows, box_format="qwen3-vl")
        >>> round(found.systems["completions"]["mean_iou"].value, 2)
        0.8
    """
    if _is_predictions(log):
        # Predictions have their rewards already: `reward` only says by name which of these the evaluation is about.
        systems = {"predictions": list(log)}
        name = reward if isinstance(reward, str) else get_reward(reward).name
    else:
        judge = _text_reward(reward, box_format)
        answers = _answers(
            log, judge, dataset, split, text_column=text_column, by_order=by_order, label_matching=label_matching
        )
        predictions = read_predictions(answers.rows, answers.texts, judge)
        _warn([*answers.notes, *answer_notes(predictions)])
        title = system_name(log) if isinstance(log, str | Path) else "completions"
        # None: no training images, so that the constant box is fitted on those of other patients in the log.
        systems = {title: predictions, **baseline_systems(answers.rows, None, judge)}
        name = judge.name
    return metrics_evaluation.evaluate(systems, Measures(name, label_matching))


def inspect(
    log: Any,
    box_format: Any = None,
    text_column: str | None = None,
    *,
    sizes: Mapping[str, float | None] | None = None,
    prompt_opens_thinking: bool = False,
    track: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> Inspection:
    """Say what is in a log: how many completions were read, and whether their numbers contradict the box format.

    Args:
        log: a path, several, or rows.
        box_format: how the model writes boxes; None takes it from the rows.
        text_column: of the log with the completions, where two columns may hold them.
        sizes: of images that state none, by column: `width`, `height`, `resized_width`, `resized_height`.
        prompt_opens_thinking: as for :func:`grounding_rewards.get_reward`.
        track: iterates over its argument, and may show progress.

    Raises:
        ValueError: a file is broken, or the box format is unknown.

    Example:
        >>> inspect([{"completion": "[]"}, {"completion": "no idea"}], "qwen3-vl")
        2 completions: 1 empty, 1 unparseable.
        qwen3-vl: Too little to judge norm1000, order xyxy by: 0 images with 0 boxes of known size and with references.
    """
    read = read_completions(_log_source(log), text_column=text_column)
    inspection = inspect_completions(
        read.completions, read.rows, box_format, sizes=sizes, prompt_opens_thinking=prompt_opens_thinking, track=track
    )
    # `sizes` are for rows that state none: those of a row replace them.
    sized_rows = [{**(sizes or {}), **row} for row in read.rows]
    off_image = off_image_notes(read._replace(rows=sized_rows))
    return replace(inspection, notes=(*read.notes, *inspection.notes, *off_image))


def signal(
    log: Any,
    dataset: str | Dataset | None = None,
    box_format: Any = None,
    text_column: str | None = None,
    by_order: bool = False,
    *,
    reward: Any = None,
    split: str = "train",
) -> SignalReport:
    """Say whether a reward tells the answers to one image apart, and if not why.

    Args:
        log: a path, several, or rows, with several answers to each image.
        dataset: as for :func:`evaluate`.
        box_format: as for :func:`evaluate`.
        text_column: as for :func:`evaluate`.
        by_order: as for :func:`evaluate`.
        reward: anything that :func:`grounding_rewards.get_reward` takes; None for the reward that the run of the log
            trained, or R4 where that is not known.
        split: of a dataset that is named.

    Raises:
        ValueError: no image has several answers, or images and answers do not fit each other.

    Warns:
        LogWarning: what a person should know about the log.

    Example:
        >>> row = {"id": "a", "boxes": [[0, 0, 50, 50]], "width": 100, "height": 100}
        >>> texts = ["[]", '[{"bbox_2d": [0, 0, 500, 400]}]']
        >>> found = signal([row | {"completion": text} for text in texts], box_format="qwen3-vl", reward="R3")
        >>> found.configured.no_spread.value
        0.0
    """
    parameters: Mapping[str, Any] = {}
    if reward is None:
        trained = trained_reward(Path(log)) if isinstance(log, str | Path) else None
        reward, parameters = trained or ("R4", {})
    judge = _text_reward(reward, box_format, parameters)
    answers = _answers(log, judge, dataset, split, text_column=text_column, by_order=by_order, in_groups=True)
    _warn(answers.notes)
    return measure_signal(answers.rows, answers.texts, judge)


def compare(before: Any, after: Any, **options: Any) -> RunDifference:
    """Say what changed from one run to another on the images that both answered.

    Args:
        before: the folder of an evaluation, an :class:`Evaluation`, predictions, or a log as :func:`evaluate` takes it.
        after: the run that is compared with it, likewise.
        **options: of :func:`evaluate`, which evaluates logs first.

    Raises:
        ValueError: the runs have no image in common, or other reference boxes.

    Example:
        >>> truth = {"width": 99, "height": 99, "gt": [[0, 0, 9, 9]], "gt_labels": ["mass"]}
        >>> before, after = ([Prediction(str(i), **truth, pred=[[0, 0, 9, y]]) for i in range(8)] for y in (3, 6))
        >>> compare(before, after).metrics["f1_50"].difference.value
        1.0
    """
    if _is_evaluation_folder(before) and _is_evaluation_folder(after):
        # Folders say how they were measured, which must be the same in both.
        return compare_evaluations(before, after).difference
    images_before, images_after = (_predictions(run, options) for run in (before, after))
    return compare_runs(images_before, images_after, label_matching=options.get("label_matching", "ignore"))


def _predictions(run: Any, options: Mapping[str, Any]) -> Sequence[Prediction]:
    """The images of a run with their answers, whatever :func:`compare` was given for it."""
    if _is_evaluation_folder(run):
        return load_predictions(run)
    if isinstance(run, Evaluation):
        return run.images
    if _is_predictions(run):
        return list(run)
    # A log, which is read now.
    return evaluate(run, **options).images


def _is_evaluation_folder(run: Any) -> bool:
    """Whether this is the path of an evaluation on the disk: its folder, or its images.jsonl."""
    if not isinstance(run, str | Path):
        return False
    return (Path(run).is_dir() or Path(run).name == "images.jsonl") and evaluation_file(run).is_file()


def _is_predictions(log: Any) -> bool:
    """Whether this is a list of predictions, which were read already."""
    return isinstance(log, list | tuple) and bool(log) and all(isinstance(image, Prediction) for image in log)


def _text_reward(reward: Any, box_format: Any, parameters: Mapping[str, Any] | None = None) -> GroundingReward:
    """Build the reward that reads and scores a log, with this box format unless that is None.

    Parameters that training changes step by step have their final values, since nothing is trained here.
    """
    # A reward that is built already may lack the box format alone.
    if isinstance(reward, GroundingReward):
        return reward if box_format is None else replace(reward, box_format=box_format)
    format_parameter = {} if box_format is None else {"box_format": box_format}
    return get_reward(reward, **{**(parameters or {}), **format_parameter}).final()


def _answers(
    log: Any, judge: GroundingReward, dataset: str | Dataset | None, split: str, **options: Any
) -> ImageAnswers:
    """The answers of a log, to the images of a dataset where one is given."""
    images = load_split(dataset, split) if isinstance(dataset, str) else dataset
    return read_log(_log_source(log), judge, dataset=images, **options)


def _log_source(log: Any) -> Sequence[Any]:
    """A log as a list of paths or of rows, whichever kind of object it is."""
    if isinstance(log, str | Path):
        return [log]
    # A pandas.DataFrame.
    if hasattr(log, "to_dict") and hasattr(log, "columns"):
        return log.to_dict("records")
    # A datasets.Dataset; its images would be decoded, and no log needs them.
    if hasattr(log, "column_names"):
        return log.remove_columns([name for name in ("image", "images") if name in log.column_names]).to_list()
    return list(log)


def _warn(notes: Iterable[str]) -> None:
    """Warn of each note, at the line of the user that called a function of this module."""
    for note in notes:
        # Frames: this function, the one of this module, the user's.
        warnings.warn(note, LogWarning, stacklevel=3)

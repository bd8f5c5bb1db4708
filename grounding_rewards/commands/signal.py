"""Will this reward teach this model? Whether the answers to the same image differ in reward, if not why, and which
reward would tell them apart: before a GPU-hour is spent, or from the log of a training that does not improve.

GRPO compares answers to the same image. If all of them earn the same, the image teaches nothing. Give a log with
several answers to each image (the folder of a training with `log_completions: true`, samples.jsonl of `evaluate
--samples 8`, or any file whose rows have the image's `id`), or a model and images, and the model answers now.

If nothing is wrong, or the answers are misread, one sentence says so. Otherwise a table has a row for the reward, for
small changes of it (a lower threshold, graded negatives) and for each other one, with the share of groups without
spread, why, and how much of a group carries an update; and a sentence says what to train with.

examples:
  grounding-rewards signal runs/r4/completions                             # the log of a training
  grounding-rewards signal runs/base/samples.jsonl --reward R3 --json signal.json
  grounding-rewards signal --model Qwen/Qwen2.5-VL-3B-Instruct --dataset data/vindr --max-images 32 --samples 8
  grounding-rewards signal --model warm/checkpoint --dataset data/vindr --temperature 0.7 --keep samples
  grounding-rewards signal log.jsonl --reward R4 --reward-kwargs '{"iou_threshold": 0.3}' --try soft_f1 R3 --strict

exit code:
  0  done        1  with --strict: more than a fifth of the groups is without spread, or the answers are misread
  2  a wrong argument or log
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from grounding_rewards.commands.console import WIDE, output_console, say, track, write_numbers
from grounding_rewards.commands.options import AnswerOptions, Json, ResizedPixels, in_range, option
from grounding_rewards.common.formatting import counted, percent
from grounding_rewards.logs.run_log import trained_reward
from grounding_rewards.metrics.signal import ENOUGH, TRIED, SignalReport, measure_signal
from grounding_rewards.report.tables import Cell, Table

if TYPE_CHECKING:
    from datasets import Dataset
    from rich.console import Console

    from grounding_rewards.models.ask import AskedModel
    from grounding_rewards.rewards.grounding import GroundingReward

# Images about which a model is asked by default: enough to see whether there is a signal.
_IMAGES_TO_ASK_ABOUT = 32


@Parameter(name="*")
@dataclass(kw_only=True)
class SignalOptions(AnswerOptions):
    """The options of `signal`: the answers, the rewards that judge them, and what is printed.

    Args:
        model: ask this model now: folder or name of a checkpoint or adapter; about 32 images by default
        dataset: the images: `synthetic`, a folder, or a name on the hub; of a log by `id`
        group_size: so many rows one after another are a group; default: by `id`
        reward: R1 … R5, soft_f1, or a dotted path; default: what the run of the log trained, else R4
        samples: answers per image
        keep: folder to keep the answers in; the same command goes on
        strict: exit with 1 where more than 20% of the groups are without spread
    """

    only_model = (*AnswerOptions.only_model, "keep")
    only_log = (*AnswerOptions.only_log, "group_size", "resized_width", "resized_height")

    split: str = "train"
    group_size: int | None = None
    resized_width: ResizedPixels = None
    resized_height: ResizedPixels = None
    reward: str | None = None
    tried: Annotated[Sequence[str], option("rewards that are tried on the same answers", name="--try")] = TRIED
    samples: Annotated[int, in_range(2)] = 8
    keep: Path | None = None
    json: Json = None
    strict: bool = False
    every: Annotated[bool, option("print the table, also where nothing is wrong", name="--all")] = False


def run(log: Sequence[Path] = (), /, *, options: SignalOptions | None = None) -> int:
    """Measure the signal, print it, and write what was asked for.

    Args:
        log: files or folders with several answers to each image

    Returns:
        0; 1 with `--strict` where too many groups are without spread, or the answers are misread.

    Raises:
        ValueError: the log has no groups, log or model and images do not fit each other, or an option is wrong.
    """
    options = options or SignalOptions()
    options.check_subject(log)
    name, run_parameters = options.reward, None
    if name is None:
        # The log of a run lies beside the configuration that names the reward it trained; R4 where there is none.
        reward_of_run = trained_reward(log[0]) if log else None
        name, run_parameters = reward_of_run or ("R4", None)
    judge = options.judge(name, run_parameters)
    max_images = options.max_images
    if options.model is not None and max_images is None:
        max_images = _IMAGES_TO_ASK_ABOUT
    images = options.images(options.split, max_images)
    # A model without images was refused above.
    if options.model is not None and images is not None:
        asked_model, texts = _ask_model(options, images, judge)
        # This reward has the model's box format if `judge` has none.
        rows, judge = asked_model.rows, asked_model.reward
    else:
        answers = options.read_log(log, judge, images, in_groups=True, group_size=options.group_size)
        rows, texts = answers.rows, answers.texts
        for note in answers.notes:
            say(f"note: {note}", stderr=True)
    report = measure_signal(rows, texts, judge, tried=options.tried, track=partial(track, "scoring"))
    if options.json is not None:
        write_numbers(options.json, report.to_dict())
    print_signal(report, output_console(120), every=options.every)
    return int(options.strict and (bool(report.misreading) or report.configured.no_spread.value > ENOUGH))


def _ask_model(options: SignalOptions, images: Dataset, judge: GroundingReward) -> tuple[AskedModel, list[list[str]]]:
    """The model and its sampled answers to each image; those that the folder of `--keep` has are not made again."""
    # Not every reward compares labels.
    label_matching = getattr(judge.box_reward, "label_matching", "ignore")
    asked_model = options.prepare_asking(images, judge, backend=options.backend, label_matching=label_matching)
    with tempfile.TemporaryDirectory() as temporary_folder:
        folder = options.keep or Path(temporary_folder)
        folder.mkdir(parents=True, exist_ok=True)
        title = f"{options.samples} samples at temperature {options.temperature:g}"
        sampling = {"samples": options.samples, "temperature": options.temperature}
        return asked_model, options.ask(asked_model, folder / "samples.jsonl", title, **sampling)


def print_signal(report: SignalReport, console: Console, *, every: bool = False) -> None:
    """Print the table of rewards and the recommendation, or the recommendation alone.

    No table is needed where nothing is wrong, and none is right where the answers are read in the wrong box format.

    Args:
        report: from :func:`grounding_rewards.metrics.signal.measure_signal`.
        console: a ``rich.console.Console``.
        every: whether to print the table in any case.
    """
    from rich.text import Text

    if (report.is_fine or report.misreading) and not every:
        console.print(Text(report.recommendation, style="bold"))
        return
    reward = report.configured
    # Groups whose answers all get the same reward, from which nothing is learned, with the interval of their share.
    share, low, high = map(percent, reward.no_spread)
    counts = f"{counted(report.groups, 'group')}, {report.completions:,} completions, {report.size} in most groups."
    console.print(Text(f"{counts} Without spread under {reward.name}: {share} [{low}, {high}]"))
    (name, no_spread, cause, *further_headings), rows = report.table()
    table = Table([name, no_spread, Cell(cause, kind="words"), *further_headings], rows)
    caption = None
    if console.width < WIDE:
        # A narrow terminal has room for the name, the share without spread and its cause.
        caption = f"{len(further_headings)} more columns in a terminal of {WIDE} characters."
        table = table.first_columns(3)
    console.print(table.rich(caption=caption))
    console.print(Text(report.recommendation, style="bold"))
    if report.best_of_k:
        console.print(Text(report.best_of_k))

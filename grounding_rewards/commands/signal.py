"""Will this reward teach this model? Whether the answers to the same image differ in reward, if not why, and which
reward would tell them apart: before a GPU-hour is spent, or from the log of a training that stands still.

GRPO compares answers to the same image. Where all of them earn the same, the image teaches nothing. Give a log with
several answers to each image (the folder of a training with `log_completions: true`, samples.jsonl of `evaluate
--samples 8`, or any file whose rows have the image's `id`), or a model and images: then it is asked now.

Printed, and on the page: a row for each reward and threshold with the share of groups without spread, why, and how much
of a group carries an update; the same by temperature; and one sentence: what to train with.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from grounding_rewards.commands.console import (
    add_allow_outside,
    add_sizes,
    final_reward,
    output_console,
    parameters_from_option,
    say,
    stated_sizes,
    track,
    write_json,
)
from grounding_rewards.commands.evaluate_options import named_images
from grounding_rewards.commands.evaluate_subject import generation_progress, load_asked
from grounding_rewards.common.whole_files import write_whole
from grounding_rewards.data.checks import BAD_ROWS
from grounding_rewards.exchange.names import model_name
from grounding_rewards.metrics.estimates import percent
from grounding_rewards.metrics.signal import ENOUGH, TRIED, SignalReport, measure_signal
from grounding_rewards.parsing import box_format_from_option
from grounding_rewards.report.signal_page import render_signal_page
from grounding_rewards.report.tables import plain_table

if TYPE_CHECKING:
    from rich.console import Console

    from grounding_rewards.logs.answer_logs import Answers
    from grounding_rewards.rewards.grounding import GroundingReward

EXAMPLES = """\
examples:
  grounding-rewards signal runs/r4/completions                             # the log of a training
  grounding-rewards signal runs/base/samples.jsonl --reward R3 --html signal.html
  grounding-rewards signal --model Qwen/Qwen2.5-VL-3B-Instruct --dataset data/vindr --images 32 --samples 8
  grounding-rewards signal --model warm/checkpoint --dataset data/vindr --temperatures 0.7 1.0 1.3 --keep samples
  grounding-rewards signal log.jsonl --reward R4 --reward-kwargs '{"iou_threshold": 0.3}' --try soft_f1 R3 --strict

exit code:
  0  done        1  with --strict: more than a fifth of the groups is without spread        2  a wrong argument or log
"""

_IMAGES, _SAMPLES = 32, 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `grounding-rewards signal`."""
    source = parser.add_argument_group("which answers")
    source.add_argument("log", nargs="*", type=Path, help="files or folders with several answers to each image")
    source.add_argument(
        "--model", metavar="MODEL", help="ask this model now: folder or name of a checkpoint or adapter"
    )
    source.add_argument(
        "--dataset", metavar="DATA", help="the images: `synthetic`, a folder, or a name on the hub; of a log by `id`"
    )
    source.add_argument("--split", default="train", help="of the dataset; default: %(default)s")
    source.add_argument("--images", type=int, metavar="N", help=f"the first so many; with --model {_IMAGES} by default")
    source.add_argument(
        "--bad-rows", choices=BAD_ROWS, default="refuse", help="images that cannot be right; default: refuse"
    )
    source.add_argument("--text-column", metavar="NAME", help="column of the log with the completions")
    source.add_argument(
        "--group-size", type=int, metavar="N", help="so many rows one after another are a group; default: by `id`"
    )
    add_sizes(source, resized=True)
    add_allow_outside(source)
    rewards = parser.add_argument_group("which reward")
    rewards.add_argument("--reward", default="R4", help="that you mean to train with; default: %(default)s")
    rewards.add_argument("--reward-kwargs", metavar="JSON", help="""its parameters, such as '{"iou_threshold": 0.3}'""")
    rewards.add_argument(
        "--box-format", metavar="FORMAT", help="how the model writes boxes; default: the log's, or by model"
    )
    rewards.add_argument(
        "--try",
        dest="tried",
        nargs="*",
        default=list(TRIED),
        metavar="REWARD",
        help="rewards that are tried on the same answers; default: " + " ".join(TRIED),
    )
    sampling = parser.add_argument_group("how a model is asked")
    sampling.add_argument(
        "--samples", type=int, default=_SAMPLES, metavar="K", help="answers per image; default: %(default)s"
    )
    sampling.add_argument(
        "--temperatures",
        type=float,
        nargs="+",
        default=[1.0],
        metavar="T",
        help="at each of them; default: 1, as in TRL",
    )
    sampling.add_argument(
        "--max-new-tokens", type=int, default=256, metavar="N", help="default: %(default)s, as in TRL"
    )
    sampling.add_argument("--batch-size", type=int, default=32, metavar="N", help="default: %(default)s")
    sampling.add_argument("--max-image-pixels", type=int, metavar="N", help="largest image that the model sees")
    sampling.add_argument(
        "--backend", choices=("transformers", "vllm", "auto"), default="transformers", help="default: %(default)s"
    )
    sampling.add_argument("--seed", type=int, default=0, help="of the samples; default: 0")
    sampling.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep the answers there; the same command goes on"
    )
    output = parser.add_argument_group("what is written")
    output.add_argument("--json", type=Path, metavar="FILE", help="write the metrics, without any text or image")
    output.add_argument("--html", type=Path, metavar="FILE", help="write the table and a plot of it as a page")
    output.add_argument(
        "--strict",
        action="store_true",
        help=f"exit with 1 where more than {ENOUGH:.0%} of the groups are without spread".replace("%", "%%"),
    )


def run(options: argparse.Namespace) -> int:
    """Measure the signal, print it, and write what was asked for.

    Returns:
        0; 1 with `--strict` where too many groups are without spread.

    Raises:
        ValueError: the log has no groups, log or model and images do not fit each other, or an option is wrong.
    """
    reward = configured_reward(options)
    found = ask(options, reward) if options.model is not None else (_read(options, reward), reward)
    if found is None:
        # Not the first process: its share of the answers is generated.
        return 0
    answers, reward = found
    for note in answers.notes:
        say(f"note: {note}", error=True)
    report = measure_signal(answers.rows, answers.texts, reward, tried=options.tried, track=partial(track, "scoring"))
    if options.json is not None:
        write_json(options.json, report.as_json())
    if options.html is not None:
        write_whole(options.html, render_signal_page(report, title=_title(options)))
    print_signal(report, output_console(120))
    return int(options.strict and report.configured.no_spread.value > ENOUGH)


def configured_reward(options: argparse.Namespace) -> GroundingReward:
    """The reward that the options name.

    Raises:
        ValueError: an option is wrong, or excludes another.
    """
    from grounding_rewards.rewards.grounding import get_reward

    _check_options(options)
    given = parameters_from_option(options.reward_kwargs)
    parameters = {"box_format": box_format_from_option(options.box_format), **given}
    return final_reward(get_reward(options.reward, **parameters))


def _title(options: argparse.Namespace) -> str:
    what = model_name(options.model) if options.model is not None else ", ".join(path.name for path in options.log)
    return f"Signal of {options.reward}: {what}"


def _check_options(options: argparse.Namespace) -> None:
    if bool(options.log) == (options.model is not None):
        got = "both" if options.log else "neither"
        raise ValueError(f"Expected a log of completions or --model, got {got}. Name one of them.")
    if options.model is not None and options.dataset is None:
        raise ValueError("Expected images for --dataset, got none. A model needs images to look at; name some.")
    if options.model is not None and options.samples < 2:
        raise ValueError(
            f"Expected at least 2 for --samples, got {options.samples}. GRPO compares answers to one image."
        )
    for name in ("images", "batch_size", "max_new_tokens"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"Expected at least 1 for --{name.replace('_', '-')}, got {value}. Leave it out.")
    for temperature in options.temperatures:
        if not temperature > 0:
            raise ValueError(
                f"Expected numbers above 0 for --temperatures, got {temperature:g}. Greedy answers are all alike."
            )


def _read(options: argparse.Namespace, reward: GroundingReward) -> Answers:
    from grounding_rewards.logs.answer_groups import read_groups
    from grounding_rewards.logs.answer_logs import check_images, image_problems

    groups = read_groups(
        options.log,
        dataset=named_images(options, options.images),
        text_column=options.text_column,
        group_size=options.group_size,
        sizes=stated_sizes(options),
    )
    matching = _label_matching(reward)
    if options.bad_rows == "drop":
        groups = groups.without(image_problems(groups.rows, reward, label_matching=matching))
    check_images(groups.rows, groups.places, reward, label_matching=matching)
    return groups


def _label_matching(reward: GroundingReward) -> str:
    return getattr(reward.box_reward, "label_matching", "ignore")


def ask(options: argparse.Namespace, reward: GroundingReward) -> tuple[Answers, GroundingReward] | None:
    """Ask the model several times about each image; None in all processes but the first.

    Returns:
        The answers, and the reward as it reads them.

    Raises:
        ValueError: model and images do not fit each other.
    """
    from grounding_rewards.data.light_rows import load_dataset_image
    from grounding_rewards.logs.answer_logs import Answers
    from grounding_rewards.models.generate import Sampling
    from grounding_rewards.models.load import choose_backend
    from grounding_rewards.models.resumable import generate_to_file

    if options.keep is None and int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise ValueError(
            "Expected --keep FOLDER with several processes, got none. They put their answers together there."
        )
    options.images = options.images or _IMAGES
    options.label_matching = _label_matching(reward)
    backend = choose_backend(options.backend)
    asked = load_asked(options, reward, backend=backend)
    texts: list[list[list[str]]] = []
    with ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        for temperature in dict.fromkeys(options.temperatures):
            title = f"{model_name(options.model)}, {options.samples} samples at temperature {temperature:g}"
            with generation_progress(title) as on_progress:
                texts.append(
                    generate_to_file(
                        asked.model,
                        asked.processor,
                        # So that what is kept is a log of groups by itself.
                        asked.shown.add_column("temperature", [temperature] * asked.shown.num_rows),
                        folder / f"samples-{temperature:g}.jsonl",
                        Sampling(options.samples, temperature, options.max_new_tokens, asked.skip_special_tokens),
                        batch_size=options.batch_size,
                        seed=options.seed,
                        backend=backend,
                        on_progress=on_progress if asked.state.is_main_process else None,
                    )
                )
    if not asked.state.is_main_process:
        return None
    temperatures = list(dict.fromkeys(options.temperatures))
    rows = [{**row, "temperature": one} for one in temperatures for row in asked.rows]
    images = len(asked.rows)
    answers = Answers(
        rows,
        [one for several in texts for one in several],
        lambda k: load_dataset_image(asked.dataset, k % images),
        asked.places * len(temperatures),
    )
    return answers, asked.reward


def print_signal(report: SignalReport, console: Console) -> None:
    """Print the table and the recommendation.

    Args:
        report: from :func:`grounding_rewards.metrics.signal.measure_signal`.
        console: a ``rich.console.Console``.
    """
    from rich.text import Text

    own = report.configured
    low, high = percent(own.no_spread.low), percent(own.no_spread.high)
    groups = "group" if report.groups == 1 else "groups"
    console.print(
        Text.assemble(
            f"{report.groups:,} {groups}, {report.completions:,} completions, {report.size} in most groups. "
            f"Without spread under {own.name}: ",
            (percent(own.no_spread.value), "bold"),
            f" [{low}, {high}]",
        )
    )
    headings, rows = report.table()
    table = plain_table(*headings, words=(0, 2))
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print(Text(report.recommendation, style="bold"))

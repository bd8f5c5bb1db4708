"""Score the answers of a log again by many rewards, and say how they order them: which rewards agree with each other,
which with average precision, F1, sensitivity and mean IoU, and on which images they disagree. No model is needed.

The log is the folder of a run that logged its completions (`log_completions: true`), verl's rollouts, ms-swift's
completions.jsonl, the completions.jsonl or samples.jsonl of `grounding-rewards evaluate`, or a file with the columns
completion, boxes, width and height. Answers to one image, by its `id`, at one `step` are a group.

Two coefficients are printed for each pair. Over all answers: do both put all answers in one order? Within groups: do
both put the answers to one image in one order, which is all that GRPO sees? The unit of every interval is the patient,
or the image where no patient is known. A reward that is the same for all answers has no order, and no correlation.

A reward is named as in `score`, with parameters after a colon where it has its own: R3:iou_threshold=0.3.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.commands.console import (
    add_allow_outside,
    add_log_columns,
    add_rewards,
    add_sizes,
    output_console,
    rewards_from_words,
    say,
    stated_sizes,
    track,
    write_json,
)
from grounding_rewards.commands.evaluate_options import named_images
from grounding_rewards.common.whole_files import write_whole
from grounding_rewards.data.checks import BAD_ROWS
from grounding_rewards.metrics.estimates import format_value
from grounding_rewards.metrics.replay import METHODS, Replay, answer_rulers, replay
from grounding_rewards.parsing import box_format_from_option, list_box_formats
from grounding_rewards.parsing.space_check import SpaceWarning
from grounding_rewards.report.tables import metric_cell, plain_table
from grounding_rewards.rewards.label_matching import LABEL_MATCHING

if TYPE_CHECKING:
    from grounding_rewards.logs.replay_log import ReplayLog
    from grounding_rewards.rewards.grounding import GroundingReward

EXAMPLES = """\
examples:
  grounding-rewards replay runs/r4 --rewards R1 R2 R3 R4 R5 soft_f1
  grounding-rewards replay rollouts --rewards R3 R3:iou_threshold=0.3 soft_f1:overlap=giou --html replay.html
  grounding-rewards replay runs/base/samples.jsonl --rewards R1 R1:ranking=tied --box-format qwen3-vl --json replay.json
  grounding-rewards replay runs/r4 --rewards R1 soft_f1 --dataset data/vindr --html replay.html --images 12
"""

# Answers that are scored together.
_CHUNK = 512
_PRINTED_IMAGES = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `grounding-rewards replay`."""
    parser.add_argument("log", nargs="+", type=Path, help="files with completions, or folders of runs")
    add_rewards(parser)
    add_log_columns(parser)
    parser.add_argument(
        "--correlation", choices=METHODS, default=METHODS[0], help="the coefficient; default: %(default)s"
    )
    parser.add_argument(
        "--label-matching",
        choices=LABEL_MATCHING,
        default="ignore",
        help="whether a box is right, for AP, F1 and sensitivity, only under the finding's label; default: %(default)s",
    )
    images = parser.add_argument_group("the images, where the log does not have them")
    images.add_argument(
        "--dataset", metavar="DATA", help="`synthetic`, a folder of images, or a name on the hub; by `id`"
    )
    images.add_argument(
        "--split", default="train", help="of the dataset; `all` takes every image; default: %(default)s"
    )
    images.add_argument(
        "--bad-rows", choices=BAD_ROWS, default="refuse", help="rows whose image cannot be right; default: %(default)s"
    )
    add_sizes(images, resized=True)
    add_allow_outside(images)
    output = parser.add_argument_group("what is written")
    output.add_argument("--json", type=Path, metavar="FILE", help="write the metrics, without any text or image")
    output.add_argument(
        "--html", type=Path, metavar="FILE", help="write a page, with the answers on which rewards disagree"
    )
    output.add_argument(
        "--images",
        type=int,
        default=8,
        metavar="N",
        help="images on the page, those with the largest disagreement; the image of each, where --dataset names it; "
        "0 shows none, and no answer; default: %(default)s",
    )


def run(options: argparse.Namespace) -> int:
    """Score, compare, print, and write what was asked for."""
    from grounding_rewards.metrics.answered_image import patients_of
    from grounding_rewards.metrics.answers import read_each

    rewards = _rewards(options)
    log = _read(options, rewards[0])
    for note in log.notes:
        say(f"Note: {note}", error=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SpaceWarning)
        scored = _score(rewards, log)
        named = [{**row, "id": image} for row, image in zip(log.rows, log.images, strict=True)]
        answers = read_each(named, log.completions, rewards[0])
    for warning in dict.fromkeys(str(one.message) for one in caught):
        say(f"warning: {warning}", error=True)
    patients = patients_of(answers)
    found = replay(
        {reward.__name__: scored[reward.__name__] for reward in rewards},
        answer_rulers(answers, label_matching=options.label_matching),
        groups=log.groups,
        images=log.images,
        patients=patients,
        controls=[reward.__name__ for reward in rewards if not reward.judges_boxes],
        method=options.correlation,
        track=track,
    )
    print_replay(found, log.images)
    if options.json is not None:
        write_json(options.json, found.as_json())
    if options.html is not None:
        from grounding_rewards.report.replay_page import ReplayPage, render_replay_page

        page = ReplayPage(
            title="Rewards on the same answers",
            log=", ".join(path.name for path in options.log),
            found=found,
            answers=answers,
            scored={name: scored[name] for name in found.rewards},
            images=log.images,
            steps=[row.get("step") for row in log.rows],
            load_image=log.load_image,
            shown=options.images,
            label_matching=options.label_matching,
        )
        write_whole(options.html, render_replay_page(page))
        print(f"Page: {options.html.resolve().as_uri()}")
    return 0


def _rewards(options: argparse.Namespace) -> list[GroundingReward]:
    from grounding_rewards.rewards.grounding import check_alike

    if options.images < 0:
        raise ValueError(f"Expected at least 0 for --images, got {options.images}. 0 shows none.")
    box_format = box_format_from_option(options.box_format)
    rewards = rewards_from_words(options.rewards, options.reward_kwargs, box_format)
    check_alike(rewards)
    return rewards


def _read(options: argparse.Namespace, reward: GroundingReward) -> ReplayLog:
    from grounding_rewards.logs.replay_log import read_replay_log

    log = read_replay_log(
        options.log,
        dataset=named_images(options),
        text_column=options.text_column,
        sizes=stated_sizes(options),
        reward=reward,
        label_matching=options.label_matching,
        bad_rows=options.bad_rows,
    )
    if reward.box_format is None and not any(row.get("box_format") for row in log.rows):
        raise ValueError(
            "Expected a box format, got none in the log. Say with --box-format how the model writes boxes; known are "
            f"{', '.join(list_box_formats())}."
        )
    return log


def _score(rewards: Sequence[GroundingReward], log: ReplayLog) -> dict[str, list[float]]:
    """What each reward gives to each answer."""
    from grounding_rewards.rewards.grounding import score_columns

    names = dict.fromkeys(name for row in log.rows for name in row)
    scored: dict[str, list[float]] = {reward.__name__: [] for reward in rewards}
    for start in track("scoring", range(0, len(log.rows), _CHUNK)):
        part = slice(start, start + _CHUNK)
        columns = {name: [row.get(name) for row in log.rows[part]] for name in names}
        found = score_columns(rewards, log.completions[part], **columns)
        for name, values in scored.items():
            values += found[name]
    return scored


def print_replay(found: Replay, images: Sequence[str]) -> None:
    """Print what rewards give, how they agree with rulers and with each other, and where they disagree most.

    Args:
        found: from :func:`grounding_rewards.metrics.replay.replay`.
        images: the name of each answer's image.
    """
    from rich.text import Text

    from grounding_rewards.report.replay_page import headline

    console = output_console(120)

    def show(title: str, table: Any) -> None:
        # A title of the table itself is folded at its width.
        console.print(Text(title, style="bold"))
        console.print(table)

    console.print(headline(found), markup=False)
    show("\nWhat rewards give", _spread_table(found))
    if found.groups:
        console.print(
            "silent: of the groups whose answers differ in mean IoU, those in which the reward is the same for all\n"
        )
    name = found.method.capitalize()
    for where, table, per in (
        ("within groups, mean over groups", found.within, "groups"),
        ("over all answers", found.overall, "answers"),
    ):
        if any(one.of for one in table.values()):
            show(f"{name} of rewards and metrics, {where}", _ruler_table(found, table, per))
            show(f"{name} of rewards, {where}", _matrix(found, table))
    for reason in _reasons(found):
        console.print(Text(f"No coefficient: {reason}."))
    if found.reversals:
        show(
            "Two answers to one image, which two rewards put in opposite orders: "
            f"on {len(found.reversals)} of {found.images} images, the largest first",
            _disagreements(found, images),
        )


def _reasons(found: Replay) -> Iterable[str]:
    return dict.fromkeys(one.reason for table in (found.overall, found.within) for one in table.values() if one.reason)


def _spread_table(found: Replay) -> Any:
    from grounding_rewards.report.replay_page import format_share

    headings = ("mean", "sd", "sd within groups", "answers at 0", "groups without spread", "silent")
    table = plain_table("", *headings)
    for name, spread in found.spreads.items():
        shares = map(format_share, (spread.zero, spread.without_spread, found.silent[name, "mean_iou"]))
        numbers = (format_value(spread.deviation), format_value(spread.within))
        table.add_row(_name(name), metric_cell(spread.mean), *numbers, *shares)
    return table


def _ruler_table(found: Replay, table: Any, per: str) -> Any:
    made = plain_table("", *(metric.heading for metric in found.rulers.values()))
    for name in found.rewards:
        cells = [metric_cell(table[name, key].estimate, beneath=True) for key in found.rulers]
        made.add_row(_name(name), *cells)
    made.add_section()
    counts = [sorted({table[name, key].of for name in found.rewards}) for key in found.rulers]
    made.add_row(per, *(f"{one[0]}" if len(one) == 1 else f"{one[0]} to {one[-1]}" for one in counts))
    return made


def _matrix(found: Replay, table: Any) -> Any:
    made = plain_table("", *found.rewards)
    for name in found.rewards:
        cells = ["" if one == name else format_value(table[name, one].estimate.value) for one in found.rewards]
        made.add_row(_name(name), *cells)
    return made


def _disagreements(found: Replay, images: Sequence[str]) -> Any:
    made = plain_table("image", "prefers the one", "prefers the other", "by at least")
    for one in found.reversals[:_PRINTED_IMAGES]:
        made.add_row(_name(images[one.answers[0]]), *map(_name, one.rewards), format_value(one.size))
    return made


def _name(text: str) -> Any:
    from rich.text import Text

    return Text(text)

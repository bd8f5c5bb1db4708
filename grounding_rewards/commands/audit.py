"""Can a reward be gamed? Every reward scores scripted answers to the images of a dataset, honest and reward-hacking:
boxes twice, junk before and after the right ones, grids, the whole image, broken boxes, boxes in thinking, and so on.
No model is needed.

A table shows what each scripted answer earns under each reward, and marks answers that earn more than they should: that
do not look and earn more than one that does, that earn as much or more with something wrong added, or that cannot be
read and earn something. Documented weaknesses are listed as accepted. Answers are written and read in a model's own box
format, as in training.

examples:
  grounding-rewards audit --rewards R1 R3 soft_f1
  grounding-rewards audit --rewards R1 R1:ranking=tied --html audit.html
  grounding-rewards audit --rewards my_pkg.rewards.MyReward --dataset prepared/ --split train --max-images 500
  grounding-rewards audit --rewards my_pkg.rewards.reward_func --strict --json audit.json   # a function as TRL takes it

exit code:
  0  done        1  with --strict, a scripted answer is paid too much, documented weaknesses left out
  2  a wrong argument or dataset
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from grounding_rewards.audit.run import Audit, audit
from grounding_rewards.commands.console import output_console, track, write_numbers
from grounding_rewards.commands.options import AllowOutside, Json, MaxImages, OutputFile, Rewards, rewards_from_words
from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.parsing import get_box_format
from grounding_rewards.prepare.load import SYNTHETIC

if TYPE_CHECKING:
    from rich.console import Console


def run(
    *,
    rewards: Rewards,
    dataset: str = SYNTHETIC,
    split: str = "test",
    max_images: MaxImages = 128,
    box_format: str = "qwen3-vl",
    json: Json = None,
    html: OutputFile = None,
    allow_outside: AllowOutside = False,
    strict: bool = False,
) -> int:
    """Play the scripts, print the tables, and write the files.

    Args:
        dataset: `synthetic` images, a folder of images, or a name on the hub
        split: of the dataset
        box_format: how the answers are written: a name, or a mapping as in a configuration
        html: write a page there
        strict: exit with 1 if a scripted answer earns more than it should

    Returns:
        0; 1 with ``--strict`` if a scripted answer is paid too much.

    Raises:
        ValueError: an unknown reward, parameter, box format or dataset.
        OSError: a file cannot be read or written.
    """
    from grounding_rewards.audit.audit_images import images_of
    from grounding_rewards.data.dataset_columns import light_rows
    from grounding_rewards.prepare.load import load_split

    declared_format = get_box_format(box_format)
    named_rewards = rewards_from_words(rewards, declared_format, functions=True)
    # The scripts need sizes and reference boxes alone: light rows leave the images out.
    images = images_of(light_rows(load_split(dataset, split, max_images=max_images, allow_outside=allow_outside)))
    result = audit(named_rewards, images, declared_format, track=partial(track, "playing"))
    if json is not None:
        write_numbers(json, result.to_dict())
    if html is not None:
        from grounding_rewards.report.audit_page import render_audit_page

        write_whole(html, render_audit_page(result, dataset=f"{dataset}, {split}"))
    # Where the output is no terminal, every reward has room for its column beside the names of the scripts.
    print_audit(result, output_console(max(120, 60 + 11 * len(named_rewards))))
    return int(strict and bool(result.faults))


def print_audit(result: Audit, console: Console) -> None:
    """Print a table of what each scripted answer earns, findings and documented weaknesses.

    Args:
        result: from :func:`grounding_rewards.audit.run.audit`.
        console: a ``rich.console.Console``.
    """
    from rich.text import Text

    from grounding_rewards.report.audit_page import accepted_table, audit_table, found_tables

    images = f"{result.images} images, {result.negatives} of them without a finding"
    caption = f"Written in {result.box_format}. ! marks what is wrong, ~ a documented weakness, both explained below."
    answers = audit_table(result)._replace(title=f"Mean reward of each scripted answer, {images}")
    # Numbers are never broken into lines; names, in column 0, are.
    console.print(answers.rich(small=False, caption=caption, unbroken=range(1, len(answers.header))))
    for table in found_tables(result):
        console.print(table.rich(small=False))
    if result.accepted:
        console.print(accepted_table(result).rich(small=False))
    if not result.faults:
        console.print(Text("No scripted answer is paid too much.", style="bold green"))

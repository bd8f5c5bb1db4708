"""Say what is wrong with a dataset before training on it: boxes in another order or frame than x1, y1, x2, y2 in
pixels, in all images or in some, corners, edges, duplicates, readers that were not merged, boxes that stand for no
finding, sizes that are not the image's, labels in several spellings, images or patients in several splits, boxes too
small to be learned, answers too long to be written, prompts that ask for another format or hold the answer. Every
defect comes with its extent, three examples, why it matters and what to do.

A dataset is a folder with annotations.jsonl, a folder of parquet files such as `grounding-rewards prepare` writes, a
folder written by save_to_disk, or a dataset on the hub. Its columns: boxes (x1, y1, x2, y2 in pixels of the image),
width, height, and as far as there are labels, reader_boxes, reader_labels, ignore_boxes, image, prompt, id, patient_id,
box_format, resized_width and resized_height. Nothing is changed, and nothing leaves this machine.

examples:
  grounding-rewards doctor images/
  grounding-rewards doctor images/ --box-format qwen2.5-vl --model Qwen/Qwen2.5-VL-3B-Instruct --html report.html
  grounding-rewards doctor prepared/ --strict --json defects.json       # in CI
  grounding-rewards doctor images/ --html report.html --no-images           # a report that can be passed on

exit code:
  0  no error        1  an error was found, or with --strict a warning        2  a wrong argument or folder
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from grounding_rewards.commands.console import output_console, track, write_numbers
from grounding_rewards.commands.options import AllowOutside, BoxFormat, Json, OutputFile, in_range, option
from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.doctor.context import CHECKS, Defect, Model
from grounding_rewards.doctor.examine import Checkup, examine
from grounding_rewards.images.resize import load_processor
from grounding_rewards.parsing import get_box_format
from grounding_rewards.report.doctor_page import LONGEST_SIDE, doctor_verdict, extent, place, render_doctor_page

if TYPE_CHECKING:
    from rich.console import Console

_COLOURS = {"error": "bold red", "warning": "bold yellow", "note": "bold blue"}


def run(
    dataset: str,
    /,
    *,
    split: Annotated[tuple[str, ...], option("only this split; may be repeated", repeated=True)] = (),
    box_format: BoxFormat = None,
    model: str | None = None,
    max_completion_length: Annotated[int, in_range(1)] = 256,
    html: OutputFile = None,
    no_images: bool = False,
    json: Json = None,
    rows: OutputFile = None,
    processes: int = os.cpu_count() or 1,
    allow_outside: AllowOutside = False,
    strict: bool = False,
) -> int:
    """Examine the dataset and report.

    Args:
        dataset: folder, or the name of a dataset on the hub
        model: path or id of the model, whose processor says how large boxes are on what it sees, and how many tokens
            an answer has; without it the size is assumed, and tokens are not counted
        max_completion_length: tokens that a completion may have in training, as in TRL
        html: write a page, with a contact sheet of images and with plots of boxes
        no_images: leave the images and all names out of the report: they are patients'. Rows have their numbers alone
        rows: write all rows of every defect as CSV: check, split, row, id, detail; what no row shows has no number
        processes: that decode images; default: one for each core
        strict: exit with 1 for warnings too

    Returns:
        0; 1 where there is an error, or with `strict` a warning.

    Raises:
        ValueError: the dataset, a split, the box format or the model cannot be found.
        OSError: a file cannot be read or written.
    """
    target_model = Model(
        box_format=None if box_format is None else get_box_format(box_format),
        processor=None if model is None else load_processor(model),
        max_completion_length=max_completion_length,
    )
    checkup = examine(
        dataset,
        target_model,
        splits=split,
        allow_outside=allow_outside,
        # The longest side of the images that are kept for the page; 0 keeps none.
        thumbnails=LONGEST_SIDE if html is not None and not no_images else 0,
        names=not no_images,
        processes=processes,
        track=partial(track, "examining"),
    )
    if json is not None:
        write_numbers(json, checkup.to_dict())
    if rows is not None:
        write_whole(rows, checkup.to_dataframe().to_csv(index=False))
    if html is not None:
        write_whole(html, render_doctor_page(checkup))
    print_checkup(checkup, output_console(120))
    return int(checkup.count("error") > 0 or (strict and checkup.count("warning") > 0))


def print_checkup(checkup: Checkup, console: Console) -> None:
    """Print the defects, the worst first, then the checks that could not be made, and a verdict.

    Args:
        checkup: from :func:`grounding_rewards.doctor.examine.examine`.
        console: a ``rich.console.Console``.
    """
    from rich.text import Text

    for defect in checkup.defects:
        console.print(_defect_table(defect))
    for assumption in checkup.assumptions:
        console.print(Text.assemble(("assumed  ", "dim"), assumption))
    # Checks that could not be made for one reason share a line.
    titles_by_reason: dict[str, list[str]] = {}
    for name, reason in checkup.unchecked.items():
        titles_by_reason.setdefault(reason, []).append(CHECKS[name].title.lower())
    for reason, titles in titles_by_reason.items():
        console.print(Text.assemble(("not looked for  ", "dim"), f"{'; '.join(titles)} ({reason})"))
    metrics = checkup.metrics
    console.print(
        Text(f"{metrics.boxes:,} boxes, {metrics.negatives:,} of {metrics.rows:,} images without any, ")
        + Text(f"{len(checkup.passed)} of {len(CHECKS)} checks found nothing", style="dim")
    )
    # The first defect is the worst.
    style = _COLOURS[checkup.defects[0].severity] if checkup.defects else "bold green"
    console.print(Text(f"{checkup.dataset}: {doctor_verdict(checkup)}", style=style))


def _defect_table(defect: Defect) -> Any:
    """A ``rich.table.Table`` of one defect: title and extent, examples, why it matters and how to fix it."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(
        Text(defect.severity, style=_COLOURS[defect.severity]),
        Text.assemble((defect.title, "bold"), f"  {extent(defect)}  ", (defect.name, "dim")),
    )
    if defect.found:
        table.add_row("found", Text(defect.found))
    for number, fault in enumerate(defect.examples):
        heading = "examples" if number == 0 else ""
        text = ": ".join(filter(None, (place(fault), fault.detail)))
        table.add_row(heading, Text(text))
    table.add_row("why", Text(defect.why))
    table.add_row("fix", Text(defect.fix))
    table.add_row("", "")
    return table

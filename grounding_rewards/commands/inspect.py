"""Read a log of completions and say what is in it: how many were read, why the others were not, and whether the numbers
contradict the coordinate space or order of the box format.

A log is a .jsonl, .json, .csv or .parquet file, or a folder: of such files, or of a run that logged its completions
(TRL's `log_completions: true`, ms-swift's completions.jsonl, verl's rollouts). A row has the completion (column
completion, text, response, output, answer, …: a string or a list of messages; with two of them --text-column names one)
and, as far as known, boxes (x1, y1, x2, y2 in original pixels), width, height, resized_width, resized_height and
box_format.

examples:
  grounding-rewards inspect completions.jsonl --box-format qwen3-vl
  grounding-rewards inspect runs/r4
  grounding-rewards inspect outputs/completions --box-format qwen2.5-vl --width 1024 --height 1024
  grounding-rewards inspect log.csv --box-format '{syntax: json, keys: [box], order: yxyx, space: norm1000}'
  grounding-rewards inspect log.jsonl --json metrics.json --strict
"""

from functools import partial
from pathlib import Path
from typing import Any

from grounding_rewards.columns import SIZE_COLUMNS
from grounding_rewards.commands.console import output_console, printable, track, write_numbers
from grounding_rewards.commands.options import BoxFormat, Json, Pixels, ResizedPixels, TextColumn
from grounding_rewards.common.formatting import NO_VALUE
from grounding_rewards.logs.inspection import Inspection
from grounding_rewards.parsing import get_box_format
from grounding_rewards.parsing.results import REASON_MEANINGS
from grounding_rewards.report.notebook import inspect
from grounding_rewards.report.tables import Cell, Table

# Characters of an excerpt in a table.
_EXCERPT = 80


def run(
    log: list[Path],
    /,
    *,
    box_format: BoxFormat = None,
    text_column: TextColumn = None,
    width: Pixels = None,
    height: Pixels = None,
    resized_width: ResizedPixels = None,
    resized_height: ResizedPixels = None,
    prompt_opens_thinking: bool = False,
    json: Json = None,
    strict: bool = False,
) -> int:
    """Inspect a log; returns 1 with `--strict` if it is suspect.

    Args:
        log: files or folders
        prompt_opens_thinking: the prompt ended in an open <think>, so completions that never close it have no answer
        strict: exit with 1 if numbers or marks of thinking contradict what was declared, or more than a tenth of the
            completions is unparseable
    """
    inspection = inspect(
        log,
        None if box_format is None else get_box_format(box_format),
        text_column,
        sizes=dict(zip(SIZE_COLUMNS, (width, height, resized_width, resized_height), strict=True)),
        prompt_opens_thinking=prompt_opens_thinking,
        track=partial(track, "inspecting"),
    )
    if json is not None:
        write_numbers(json, inspection.to_dict())
    print_inspection(inspection, output_console(120))
    return int(strict and inspection.is_suspect)


def print_inspection(inspection: Inspection, console: Any) -> None:
    """Print how the completions were read: statuses, rejected boxes, places of boxes, and what is suspect in bold red.

    Args:
        inspection: from :func:`inspect_completions`.
        console: a ``rich.console.Console``.
    """
    from rich.text import Text

    n_completions = len(inspection.texts)
    console.print(f"{n_completions} completions, box format {', '.join(inspection.space_checks)}", markup=False)
    rows: list[list[str | Cell]] = []
    for status, count in inspection.statuses.items():
        rows.append([status, str(count), _share(count, n_completions), Cell("", _excerpt(inspection, status), "words")])
    headings: list[str | Cell] = ["status", "completions", "share", Cell("example", kind="words")]
    console.print(Table(headings, rows).rich(unbroken=range(3)))
    if inspection.reasons:
        rows = []
        for reason, count in inspection.reasons.items():
            rows.append([reason, str(count), Cell(REASON_MEANINGS[reason], _excerpt(inspection, reason), "words")])
        console.print(Table(["rejected", "times", Cell("what it means, and an example", kind="words")], rows).rich())
    box_facts = {
        "per completion, mean": f"{inspection.boxes / n_completions:.2f}",
        "per completion, most": str(inspection.most_boxes),
        # Of the boxes on images whose size is known.
        "reaching off the image": _share(inspection.off_image, inspection.located),
    }
    # A format that reads the whole text does not look for thinking: then no completion has any.
    if any(count for state, count in inspection.thinking.items() if state != "none"):
        box_facts["thinking closed, but never opened"] = _share(inspection.thinking["unopened"], n_completions)
        box_facts["thinking never closed"] = _share(inspection.thinking["unclosed"], n_completions)
    console.print(Table(["boxes", ""], list(box_facts.items())).rich())
    # A check finds another box format `likely` where the numbers contradict the declared one.
    for name, check in inspection.space_checks.items():
        console.print(Text(f"{name}: {check.message}", style="bold red" if check.likely else ""))
    if inspection.thinking_suspicion is not None:
        console.print(Text(inspection.thinking_suspicion, style="bold red"))
    for note in inspection.notes:
        console.print(Text(f"Note: {note}"))


def _share(count: int, total: int) -> str:
    """A count as a percentage of a total; a dash if that is 0."""
    return f"{count / total:.0%}" if total else NO_VALUE


def _excerpt(inspection: Inspection, key: str) -> str:
    """Up to :data:`_EXCERPT` characters of an example, in one line; empty if no completion is one.

    Args:
        inspection: with the completions.
        key: a status or a reason for which boxes are rejected, of which the first completion is shown.
    """
    if key not in inspection.examples:
        return ""
    first_example = inspection.examples[key][0]
    answer = inspection.answers[first_example].strip()
    is_cut_off = key in ("truncated", "unclosed")
    # What is wrong with an answer that was cut off is seen at its end. Escaping may make the part longer.
    part = printable(answer[-_EXCERPT:] if is_cut_off else answer[:_EXCERPT], lines=False)
    if len(answer) == len(part) <= _EXCERPT:
        return part
    # One character less makes room for the ellipsis.
    return f"…{part[1 - _EXCERPT :]}" if is_cut_off else f"{part[: _EXCERPT - 1]}…"

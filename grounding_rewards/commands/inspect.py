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
    """Print tables and verdict. Control characters in the model's text are escaped.

    Args:
        inspection: from :func:`inspect_completions`.
        console: a ``rich.console.Console``.
    """
    from rich.text import Text

    n = len(inspection.texts)
    console.print(f"{n} completions, box format {', '.join(inspection.space_checks)}", markup=False)
    rows: list[list[str | Cell]] = []
    for status, count in inspection.statuses.items():
        rows.append([status, str(count), _share(count, n), Cell("", _excerpt(inspection, status), "words")])
    headings: list[str | Cell] = ["status", "completions", "share", Cell("example", kind="words")]
    console.print(Table(headings, rows).rich(unbroken=range(3)))
    if inspection.reasons:
        rows = []
        for reason, count in inspection.reasons.items():
            rows.append([reason, str(count), Cell(REASON_MEANINGS[reason], _excerpt(inspection, reason), "words")])
        console.print(Table(["rejected", "times", Cell("what it means, and an example", kind="words")], rows).rich())
    box_facts = {
        "per completion, mean": f"{inspection.boxes / n:.2f}",
        "per completion, most": str(inspection.most_boxes),
        "reaching off the image": _share(inspection.off_image, inspection.located),
    }
    # Of a format that reads the whole text nobody has looked for thinking.
    if any(count for state, count in inspection.thinking.items() if state != "none"):
        box_facts["thinking closed, but never opened"] = _share(inspection.thinking["unopened"], n)
        box_facts["thinking never closed"] = _share(inspection.thinking["unclosed"], n)
    console.print(Table(["boxes", ""], list(box_facts.items())).rich())
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
    """One line of the first completion with a status or reason: its end if it was cut off, else its start.

    Args:
        inspection: with the completions.
        key: a status or a reason.
    """
    if key not in inspection.examples:
        return ""
    answer = inspection.answers[inspection.examples[key][0]].strip()
    if key in ("truncated", "unclosed"):
        ending = printable(answer[-_EXCERPT:], lines=False)
        # Escapes make the line longer than the answer.
        return ending if len(answer) == len(ending) <= _EXCERPT else f"…{ending[1 - _EXCERPT :]}"
    start = printable(answer[:_EXCERPT], lines=False)
    return start if len(answer) == len(start) <= _EXCERPT else f"{start[: _EXCERPT - 1]}…"

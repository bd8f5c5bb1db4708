"""One table, three ways to show it: in the terminal, as Markdown, as HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grounding_rewards.metrics.estimates import NOTHING, Estimate, format_interval, format_value


@dataclass(frozen=True)
class Row:
    """One line of a table: figures by key, each with its interval."""

    name: str
    figures: Mapping[str, Estimate]
    is_difference: bool = False


def measured_columns(rows: Sequence[Row], headings: Mapping[str, str]) -> dict[str, str]:
    """The headings of those figures that at least one row has.

    Example:
        >>> measured_columns([Row("after", {"iou": Estimate(0.5, 0.4, 0.6)})], {"iou": "mean IoU", "f1": "F1"})
        {'iou': 'mean IoU'}
    """
    return {
        key: heading
        for key, heading in headings.items()
        if any(not math.isnan(row.figures[key][0]) for row in rows if key in row.figures)
    }


def terminal_table(rows: Sequence[Row], headings: Mapping[str, str], *, title: str | None = None) -> Any:
    """A ``rich.table.Table`` with the value above its interval in every cell."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_lines=False, padding=(0, 1))
    table.add_column("", no_wrap=True)
    columns = measured_columns(rows, headings)
    for heading in columns.values():
        table.add_column(heading, justify="right")
    for row in rows:
        cells = []
        for key in columns:
            value, interval = _cell(row, key)
            cells.append(Text.assemble(value, ("\n" + interval if interval else "", "dim")))
        table.add_row(row.name, *cells, style="bold" if row.is_difference else None)
    return table


def print_table(rows: Sequence[Row], headings: Mapping[str, str], *, title: str | None = None) -> None:
    """Print the table; it is never folded to less than 170 characters, which matters in logs."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, 170))
    console.print(terminal_table(rows, headings, title=title))


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table.

    Example:
        >>> print(markdown_table(["reward", "after"], [["R1", "0.5"]]))
        | reward | after |
        |---|---|
        | R1 | 0.5 |
    """
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "|" + "|".join(row) + "|" if i == 1 else "| " + " | ".join(row) + " |" for i, row in enumerate(lines)
    )


def html_table(rows: Sequence[Row], headings: Mapping[str, str]) -> str:
    """The table as HTML, with the interval small under each value."""
    columns = measured_columns(rows, headings)
    head = "".join(f'<th scope="col">{html.escape(heading)}</th>' for heading in columns.values())
    body = "".join(_html_row(row, columns) for row in rows)
    return f'<table><thead><tr><th scope="col"></th>{head}</tr></thead><tbody>{body}</tbody></table>'


def _html_row(row: Row, columns: Mapping[str, str]) -> str:
    cells = []
    for key in columns:
        value, interval = _cell(row, key)
        small = f"<small>{interval}</small>" if interval else ""
        cells.append(f"<td>{value}{small}</td>")
    kind = ' class="difference"' if row.is_difference else ""
    return f'<tr{kind}><th scope="row">{html.escape(row.name)}</th>{"".join(cells)}</tr>'


def _cell(row: Row, key: str) -> tuple[str, str]:
    interval = row.figures.get(key)
    if interval is None:
        return NOTHING, ""
    return format_value(interval[0], signed=row.is_difference), format_interval(interval, signed=row.is_difference)

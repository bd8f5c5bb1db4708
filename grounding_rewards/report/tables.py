"""One table, three ways to show it: in the terminal, as Markdown, as HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: A figure and the ends of its interval; NaN where there is nothing to measure.
Interval = tuple[float, float, float]

NOTHING = "–"


@dataclass(frozen=True)
class Row:
    """One line of a table: figures by key, each with its interval."""

    name: str
    figures: Mapping[str, Interval]
    is_difference: bool = False


def format_value(value: float, *, signed: bool = False) -> str:
    """Three decimals, or a dash for NaN.

    Example:
        >>> format_value(0.67), format_value(0.02, signed=True), format_value(float("nan"))
        ('0.670', '+0.020', '–')
    """
    if math.isnan(value):
        return NOTHING
    text = f"{value:+.3f}" if signed else f"{value:.3f}"
    return "0.000" if float(text) == 0 else text


def format_interval(interval: Interval, *, signed: bool = False) -> str:
    """The ends of an interval, or nothing where nothing was measured.

    Example:
        >>> format_interval((0.67, 0.64, 0.7)), format_interval((0.02, -0.01, 0.05), signed=True)
        ('[0.640, 0.700]', '[-0.010, +0.050]')
    """
    _, low, high = interval
    if math.isnan(low) or math.isnan(high):
        return ""
    return f"[{format_value(low, signed=signed)}, {format_value(high, signed=signed)}]"


def measured_columns(rows: Sequence[Row], headings: Mapping[str, str]) -> dict[str, str]:
    """The headings of those figures that at least one row has.

    Example:
        >>> measured_columns([Row("after", {"iou": (0.5, 0.4, 0.6)})], {"iou": "mean IoU", "f1": "F1"})
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
        table.add_row(Text(row.name), *cells, style="bold" if row.is_difference else None)
    return table


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

"""Rows of metrics with intervals, for the terminal and for pages, and Markdown tables."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from grounding_rewards.metrics.estimates import Estimate, format_interval, format_value
from grounding_rewards.metrics.evaluation import Evaluation, Group
from grounding_rewards.metrics.robustness import ROBUSTNESS_METRICS, RobustnessPoint

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


@dataclass(frozen=True)
class Row:
    """One line of a table: metrics by key, each with its interval."""

    name: str
    metrics: Mapping[str, Estimate]
    is_difference: bool = False


def system_rows(evaluation: Evaluation) -> list[Row]:
    """A row for each system: first what was evaluated, then its baselines."""
    return [Row(name, metrics) for name, metrics in evaluation.systems.items()]


def group_rows(groups: Sequence[Group]) -> list[Row]:
    """A row for each label, size or source, with its number of reference boxes.

    Example:
        >>> group_rows([Group("mass", 12, {})])
        [Row(name='mass (12)', metrics={}, is_difference=False)]
    """
    return [Row(f"{group.name} ({group.boxes})", group.metrics) for group in groups]


def robustness_rows(points: Sequence[RobustnessPoint]) -> list[Row]:
    """A row for each change and strength, under :data:`ROBUSTNESS_METRICS`.

    Args:
        points: of any families. The unchanged image, with which all corruptions begin, becomes one row; ε is given
            in grey values.

    Example:
        >>> share = (0.5, 0.4, 0.6)
        >>> [row.name for row in robustness_rows([RobustnessPoint("pgd", "pgd", 2 / 255, share, share, share)])]
        ['pgd, ε 2/255']
    """
    rows = {_change(point): {key: getattr(point, key) for key in ROBUSTNESS_METRICS} for point in points}
    return [Row(name, metrics) for name, metrics in rows.items()]


def _change(point: RobustnessPoint) -> str:
    name = point.name.replace("_", " ")
    if point.family == "pgd":
        return f"{name}, ε {255 * point.strength:.3g}/255"
    return f"{name}, strength {point.strength:g}" if point.strength else "the image as it is"


def measured_columns(rows: Sequence[Row], headings: Mapping[str, str]) -> dict[str, str]:
    """The headings of those metrics that at least one row has.

    Example:
        >>> measured_columns([Row("after", {"iou": Estimate(0.5, 0.4, 0.6)})], {"iou": "mean IoU", "f1": "F1"})
        {'iou': 'mean IoU'}
    """
    return {
        key: heading
        for key, heading in headings.items()
        if any(not math.isnan(row.metrics[key][0]) for row in rows if key in row.metrics)
    }


def plain_table(
    *headings: str,
    title: str | None = None,
    caption: str | None = None,
    words: Collection[int] = (0,),
    unbroken: Collection[int] = (),
) -> Table:
    """An empty ``rich.table.Table`` as all commands print them.

    Args:
        *headings: of the columns.
        title: above it.
        caption: beneath it.
        words: which columns hold words and begin at the left; the others hold numbers.
        unbroken: which columns are cut rather than broken into lines.

    Example:
        >>> [column.justify for column in plain_table("status", "completions").columns]
        ['left', 'right']
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD)
    for k, heading in enumerate(headings):
        whole = k in unbroken
        justify: Literal["left", "right"] = "left" if k in words else "right"
        # No markup: a name may hold brackets.
        table.add_column(Text(heading), justify=justify, no_wrap=whole, overflow="ellipsis" if whole else "fold")
    return table


def terminal_table(
    rows: Sequence[Row], headings: Mapping[str, str], *, title: str | None = None, beneath: bool = True
) -> Table:
    """A ``rich.table.Table`` with a line for each row, and the interval beneath each value or beside it."""
    from rich.text import Text

    columns = measured_columns(rows, headings)
    table = plain_table("", *columns.values(), title=title, unbroken=(0,))
    for row in rows:
        estimates = (row.metrics.get(key, (math.nan,) * 3) for key in columns)
        cells = (metric_cell(one, signed=row.is_difference, beneath=beneath) for one in estimates)
        table.add_row(Text(row.name), *cells, style="bold" if row.is_difference else None)
    return table


def evaluation_table(evaluation: Evaluation, *, title: str) -> Table:
    """A ``rich.table.Table`` with a line for each metric, and intervals for the first system alone."""
    from rich.text import Text

    table = plain_table("", *evaluation.systems, title=title, caption="In brackets the 95 % interval.")
    first, *others = evaluation.systems.values()
    for key, heading in evaluation.headings.items():
        table.add_row(Text(heading), metric_cell(first[key]), *(format_value(metrics[key].value) for metrics in others))
    return table


def metric_cell(estimate: tuple[float, float, float], *, signed: bool = False, beneath: bool = False) -> Text:
    """A cell of a table in the terminal: the value and, dim, its interval, beside or beneath it.

    Example:
        >>> metric_cell((0.5, 0.4, 0.6)).plain
        '0.500 [0.400, 0.600]'
    """
    from rich.text import Text

    interval = format_interval(estimate, signed=signed)
    separator = ("\n" if beneath else " ") if interval else ""
    return Text.assemble(format_value(estimate[0], signed=signed), (separator + interval, "dim"))


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

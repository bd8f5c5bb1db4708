"""One table for the terminal, for Markdown and for pages, and the tables of metrics with their intervals."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from grounding_rewards.metrics.baselines import REFERENCE
from grounding_rewards.metrics.estimates import Metrics, format_interval, format_value
from grounding_rewards.metrics.evaluation import Evaluation, GroupMetrics
from grounding_rewards.metrics.robustness import ROBUSTNESS_METRICS, RobustnessPoint
from grounding_rewards.report.metric_groups import group_metrics, rewards_explained

if TYPE_CHECKING:
    import rich.table
    from rich.text import Text

# How kinds of cells look in the terminal.
_STYLES = {"better": "bold", "worse": "bold", "marked": "bold red", "strong": "bold", "error": "bold red"}


class Cell(NamedTuple):
    """What stands in a table.

    text: of the cell.
    small: beneath it, such as an interval; of a heading of rows what they have in common, a line each.
    kind: its class on pages: `words` stand at the left, `better`, `worse` and others of `page.css` have a colour.
    """

    text: str
    small: str = ""
    kind: str = ""


def estimate_cell(estimate: tuple[float, float, float] | None, *, signed: bool = False, kind: str = "") -> Cell:
    """The value and its interval, or a dash.

    Example:
        >>> estimate_cell((0.5, 0.4, 0.6))
        Cell(text='0.500', small='[0.400, 0.600]', kind='')
    """
    value, low, high = estimate or (math.nan,) * 3
    return Cell(format_value(value, signed=signed), format_interval((value, low, high), signed=signed), kind)


class Table(NamedTuple):
    """Rows of cells under a header.

    header: a cell for each column; those of kind `words` hold words, as the first one does.
    rows: a row of one cell is a heading of those that follow.
    title: above it.
    note: beneath its title, on pages.
    """

    header: Sequence[str | Cell]
    rows: Sequence[Sequence[str | Cell]]
    title: str = ""
    note: str = ""

    def rich(self, *, small: bool = True, caption: str | None = None) -> rich.table.Table:
        """The table for the terminal; with `small`, intervals stand beneath their values."""
        from rich.text import Text

        header = [_cell(one) for one in self.header]
        words = [k for k, one in enumerate(header) if k == 0 or one.kind == "words"]
        table = plain_table(
            *(one.text for one in header), title=self.title, caption=caption, words=words, unbroken=(0,)
        )
        for row in self.rows:
            if len(row) == 1:
                table.add_section()
            cells = [_cell(one) for one in row]
            table.add_row(
                *(
                    Text.assemble(
                        (one.text, "bold" if len(row) == 1 else _STYLES.get(one.kind.rpartition(" ")[2], "")),
                        (f"\n{one.small}" if small and one.small and len(row) > 1 else "", "dim"),
                    )
                    for one in cells
                )
            )
        return table

    def markdown(self) -> str:
        """The table in Markdown, in which no text of others is markup."""
        width = len(self.header)
        rows = [
            [_escaped(" ".join(filter(None, _cell(one)[: min(2, len(row))]))) for one in row]
            + [""] * (width - len(row))
            for row in self.rows
        ]
        return markdown_table([_escaped(_cell(one).text) for one in self.header], rows)


def _cell(one: str | Cell) -> Cell:
    return Cell(one) if isinstance(one, str) else one


def _escaped(text: str) -> str:
    """Labels are text of others: a bar would end the cell, a tag would be a tag, and a bracket may fetch an image."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("[", "\\[").replace("<", "&lt;").replace("\n", " ")


def rows_of_groups(groups: Sequence[GroupMetrics]) -> dict[str, Metrics]:
    """The metrics of each label, size or source by its name and its number of reference boxes.

    Example:
        >>> rows_of_groups([GroupMetrics("mass", 12, {})])
        {'mass (12)': {}}
    """
    return {f"{group.name} ({group.boxes})": group.metrics for group in groups}


def robustness_rows(points: Sequence[RobustnessPoint]) -> dict[str, Metrics]:
    """The :data:`ROBUSTNESS_METRICS` of each change and strength.

    Args:
        points: of any families. The unchanged image, with which all corruptions begin, becomes one row; ε is given
            in grey values.

    Example:
        >>> share = (0.5, 0.4, 0.6)
        >>> list(robustness_rows([RobustnessPoint("pgd", "pgd", 2 / 255, share, share, share)]))
        ['pgd, ε 2/255']
    """
    rows = {}
    for point in points:
        change = point.name.replace("_", " ")
        if point.family == "pgd":
            name = f"{change}, ε {255 * point.strength:.3g}/255"
        else:
            name = f"{change}, strength {point.strength:g}" if point.strength else "the image as it is"
        rows[name] = {key: getattr(point, key) for key in ROBUSTNESS_METRICS}
    return rows


def measured_columns(rows: Mapping[str, Metrics], headings: Mapping[str, str]) -> dict[str, str]:
    """The headings of those metrics that at least one row has.

    Example:
        >>> measured_columns({"after": {"iou": (0.5, 0.4, 0.6)}}, {"iou": "mean IoU", "f1": "F1"})
        {'iou': 'mean IoU'}
    """
    return {
        key: heading
        for key, heading in headings.items()
        if any(not math.isnan(row[key][0]) for row in rows.values() if key in row)
    }


def metrics_table(
    rows: Mapping[str, Metrics],
    headings: Mapping[str, str],
    *,
    first: str = "",
    title: str = "",
    differences: Collection[str] = (),
) -> Table:
    """A line for each row, a column for each metric that some row has.

    Args:
        rows: metrics by the name of the row.
        headings: of the metrics, by key.
        first: heading of the names.
        title: of the table.
        differences: names of rows that are differences, with a sign.
    """
    columns = measured_columns(rows, headings)
    lines = [
        [
            Cell(name, kind="strong" if name in differences else ""),
            *(estimate_cell(row.get(key), signed=name in differences) for key in columns),
        ]
        for name, row in rows.items()
    ]
    return Table([first, *columns.values()], lines, title)


def evaluation_table(evaluation: Evaluation, rewards: Sequence[str] = (), *, title: str = "") -> Table:
    """A line for each metric, in groups; a column for each system, to fit on a journal's page.

    Args:
        evaluation: what was measured.
        rewards: names of rewards that are explained above their rows.
        title: of the table.
    """
    systems = evaluation.systems
    own = next(iter(systems.values()), {})
    rows: list[list[str | Cell]] = []
    for group, keys in group_metrics(measured_columns(systems, evaluation.headings)):
        told = [f"{name}: {what}" for name, what in rewards_explained(rewards)] if group.title == "Rewards" else []
        rows.append([Cell(group.title, "\n".join(filter(None, [group.definition, *told])))])
        for key in keys:
            metric = evaluation.metrics[key]
            sign = {True: -1, False: 1, None: math.nan}[metric.lower_is_better]
            line: list[str | Cell] = [metric.heading + " ↓" * (metric.lower_is_better is True)]
            for name, metrics in systems.items():
                cell = estimate_cell(
                    metrics.get(key),
                    signed=metric.lower_is_better is None,
                    kind="ceiling" if name == REFERENCE else "",
                )
                ahead = key in own and key in metrics and sign * metrics[key][0] > sign * own[key][0]
                line.append(cell._replace(text=f"▲ {cell.text}") if ahead and name != REFERENCE else cell)
            rows.append(line)
    return Table(["metric", *systems], rows, title)


def plain_table(
    *headings: str,
    title: str | None = None,
    caption: str | None = None,
    words: Collection[int] = (0,),
    unbroken: Collection[int] = (),
) -> rich.table.Table:
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
    lines = [f"| {' | '.join(row)} |" for row in (header, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])

"""One table for the terminal and for pages, and the tables of metrics: which belong together, which come
first, and what a person must know to read them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from grounding_rewards.common.formatting import format_p, format_value
from grounding_rewards.metrics.baselines import REFERENCE
from grounding_rewards.metrics.evaluation import CORE_METRICS, Evaluation, GroupMetrics
from grounding_rewards.metrics.intervals import Metrics, format_interval
from grounding_rewards.metrics.robustness import ROBUSTNESS_METRICS, RobustnessPoint

if TYPE_CHECKING:
    import rich.table

# How kinds of cells look in the terminal.
_STYLES = {"better": "bold green", "worse": "bold red", "marked": "bold red", "strong": "bold", "error": "bold red"}


class Cell(NamedTuple):
    """A cell of a table.

    text: of the cell.
    small: beneath it, such as an interval; of a heading of rows what they have in common, a line each.
    kind: its class on pages: `words` are aligned left, `better`, `worse` and others of `page.css` have a colour.
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


def kind_of(sign: float) -> str:
    """The kind of a cell with a change, which gives it its colour: better above 0, worse below, soft for none."""
    if sign > 0:
        return "better"
    return "worse" if sign < 0 else "soft"


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

    def first_columns(self, count: int) -> Table:
        """The table with its first columns alone, for a narrow terminal."""
        return self._replace(header=self.header[:count], rows=[row[:count] for row in self.rows])

    def rich(
        self, *, small: bool = True, caption: str | None = None, unbroken: Collection[int] = (0,)
    ) -> rich.table.Table:
        """The table for the terminal.

        Args:
            small: whether the small print of a cell, such as an interval, stands beneath its text.
            caption: beneath the table.
            unbroken: indices of the columns whose text is cut where there is no room; that of others is broken into
                lines.
        """
        from rich import box
        from rich.table import Table
        from rich.text import Text

        # No markup: a name may hold brackets.
        title = Text(self.title, "table.title") if self.title else None
        table = Table(title=title, caption=caption, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD)
        for column, cell in enumerate(map(_cell, self.header)):
            is_unbroken = column in unbroken
            table.add_column(
                Text(cell.text),
                # The first column has the names of the rows; others have numbers, unless they say otherwise.
                justify="left" if column == 0 or cell.kind == "words" else "right",
                no_wrap=is_unbroken,
                overflow="ellipsis" if is_unbroken else "fold",
            )
        for row in self.rows:
            is_heading = len(row) == 1
            if is_heading:
                table.add_section()
            cells = []
            for cell in map(_cell, row):
                beneath = cell.small if small and not is_heading else ""
                # A kind may be several classes of a page, as in `shade-3 marked`: the last one has the style.
                style = "bold" if is_heading else _STYLES.get(cell.kind.split(" ")[-1], "")
                line_end = "\n" if cell.text and beneath else ""
                cells.append(Text.assemble((cell.text, style), (line_end + beneath, "dim")))
            table.add_row(*cells)
        return table


def _cell(content: str | Cell) -> Cell:
    """The cell, or a cell of this text."""
    return Cell(content) if isinstance(content, str) else content


def measured_columns(rows: Mapping[str, Metrics], headings: Mapping[str, str]) -> dict[str, str]:
    """The headings, by key, of those metrics that at least one row has.

    Example:
        >>> measured_columns({"after": {"iou": (0.5, 0.4, 0.6)}}, {"iou": "mean IoU", "f1": "F1"})
        {'iou': 'mean IoU'}
    """
    # NaN is the value of a metric for which there was nothing to measure.
    measured = {key for metrics in rows.values() for key, (value, _, _) in metrics.items() if not math.isnan(value)}
    return {key: heading for key, heading in headings.items() if key in measured}


def metrics_table(rows: Mapping[str, Metrics], headings: Mapping[str, str], name_heading: str) -> Table:
    """A table with the name and the metrics of each row, in columns for the metrics that at least one row has.

    Args:
        rows: metrics by the name of the row.
        headings: of the metrics, by key.
        name_heading: of the column with the names.
    """
    columns = measured_columns(rows, headings)
    table_rows: list[list[str | Cell]] = []
    for name, metrics in rows.items():
        table_rows.append([name, *(estimate_cell(metrics.get(key)) for key in columns)])
    return Table([name_heading, *columns.values()], table_rows)


def groups_table(groups: Sequence[GroupMetrics], headings: Mapping[str, str], name_heading: str) -> Table:
    """The metrics of each label, size or source, by its name with its number of reference boxes.

    Args:
        groups: of an evaluation.
        headings: of the metrics, by key.
        name_heading: of the column with the names.

    Example:
        >>> groups_table([GroupMetrics("mass", 12, {"f1": (0.5, 0.4, 0.6)})], {"f1": "F1"}, "label").rows[0][0]
        'mass (12)'
    """
    rows = {f"{group.name} ({group.boxes})": group.metrics for group in groups}
    return metrics_table(rows, headings, name_heading)


def robustness_table(points: Sequence[RobustnessPoint]) -> Table:
    """The :data:`ROBUSTNESS_METRICS` on images that were changed, a row for each kind and strength of change.

    Args:
        points: of corruptions, whose strength is 0 for the unchanged image, and of `pgd` attacks, whose strength is
            the largest change of a pixel, ε, as a part of the range of its values.

    Example:
        >>> from grounding_rewards.metrics.intervals import Estimate
        >>> share = Estimate(0.5, 0.4, 0.6)
        >>> robustness_table([RobustnessPoint("pgd", "pgd", 2 / 255, share, share, share)]).rows[0][0]
        'pgd, ε 2/255'
    """
    rows: dict[str, Metrics] = {}
    for point in points:
        change = point.name.replace("_", " ")
        if point.family == "pgd":
            name = f"{change}, ε {255 * point.strength:.3g}/255"
        else:
            name = f"{change}, strength {point.strength:g}" if point.strength else "the image as it is"
        # Every corruption has the same point for the unchanged image: their common name makes one row of them.
        rows[name] = {key: getattr(point, key) for key in ROBUSTNESS_METRICS}
    return metrics_table(rows, ROBUSTNESS_METRICS, "change")


#: The beginnings of the keys of each group of metrics, in the order of the table; a key belongs to the first that fits.
METRIC_GROUPS = {
    "Finding": ("recall_", "precision_", "f1_", "pq", "false_per_film", "film_sensitivity", "count_", "label_"),
    "Placing": ("mean_iou", "image_dependence", "accuracy_", "phrase_"),
    "Normal images": ("hallucination", "specificity", "auroc"),
    "Ranking": ("ap_", "map_", "froc", "sensitivity_", "query_ap_"),
    "Areas": ("pixel_accuracy", "class_mean_iou", "dice"),
    "Rewards": ("reward_", "sampled_", "unparseable"),
    "Other metrics": ("",),
}


def group_metrics(keys: Iterable[str]) -> dict[str, list[str]]:
    """Sort keys of metrics into the groups of :data:`METRIC_GROUPS`; groups without keys are left out.

    The keys of a group are in the order of its beginnings: in `Finding`, `recall_…` stands before `f1_…`.

    Example:
        >>> group_metrics(["reward_R4", "mean_iou", "f1_50", "mine"])
        {'Finding': ['f1_50'], 'Placing': ['mean_iou'], 'Rewards': ['reward_R4'], 'Other metrics': ['mine']}
    """
    groups: dict[str, list[str]] = {title: [] for title in METRIC_GROUPS}
    for key in keys:
        title = next(title for title, beginnings in METRIC_GROUPS.items() if key.startswith(beginnings))
        groups[title].append(key)
    for title, group_keys in groups.items():
        # The key of an earlier beginning has its True earlier, and so the larger list. Equal ones stay in their order.
        group_keys.sort(key=lambda key: [key.startswith(start) for start in METRIC_GROUPS[title]], reverse=True)
    return {title: group_keys for title, group_keys in groups.items() if group_keys}


def core_table(evaluation: Evaluation, reward: str, *, title: str = "", note: str = "") -> Table:
    """The metrics that a reader asks for first, and how far they are above the constant box.

    Args:
        evaluation: what was measured.
        reward: name of the reward that it is about.
        title: of the table.
        note: beneath its title, on pages.
    """
    measured = measured_columns(evaluation.systems, evaluation.headings)
    keys = [key for key in (*CORE_METRICS, f"reward_{reward}") if key in measured]
    header: list[str | Cell] = ["metric", *evaluation.systems]
    rows = [_metric_row(evaluation, key) for key in keys]
    if evaluation.constant:
        # After the columns of the metric and of the first system, which is what was evaluated: others are baselines.
        header.insert(2, "above the constant box")
        for key, row in zip(keys, rows, strict=True):
            row.insert(2, estimate_cell(evaluation.above_constant.get(key), signed=True, kind="strong"))
    return Table(header, rows, title, note)


def evaluation_table(evaluation: Evaluation) -> Table:
    """A row for each metric that was measured, in groups; a column for each system, to fit on a journal's page."""
    rows: list[list[str | Cell]] = []
    for group, keys in group_metrics(measured_columns(evaluation.systems, evaluation.headings)).items():
        # A row of one cell is the heading of those beneath it.
        rows.append([group])
        rows += [_metric_row(evaluation, key) for key in keys]
    return Table(["metric", *evaluation.systems], rows)


def _metric_row(evaluation: Evaluation, key: str) -> list[str | Cell]:
    """The row of a metric: its heading, and its value for every system."""
    metric = evaluation.metrics[key]
    heading = f"{metric.heading} ↓" if metric.lower_is_better else metric.heading
    # This metric alone has a test: whether the answers depend on the image.
    if key == "image_dependence" and evaluation.dependence is not None and not math.isnan(evaluation.dependence.p):
        heading += f" ({format_p(evaluation.dependence.p)})"
    row: list[str | Cell] = [heading]
    for name, metrics in evaluation.systems.items():
        # The reference as answer earns the most that is possible.
        kind = "ceiling" if name == REFERENCE else ""
        # What is best at 0, such as the error of a count, has a sign.
        row.append(estimate_cell(metrics.get(key), signed=metric.lower_is_better is None, kind=kind))
    return row

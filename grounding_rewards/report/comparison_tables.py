"""The comparison of two runs as tables: in the terminal, as Markdown, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.metrics.comparison import Change, Group, RunDifference, p_cell
from grounding_rewards.metrics.estimates import NOTHING, Metrics, finite_or_none, format_estimate, format_value
from grounding_rewards.report.tables import Row, markdown_table, plain_table, terminal_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_LONGEST_FACT = 80
# Of a table that is measured, in characters: wider than any.
_WIDEST = 10_000
_LETTERS = ("A", "B")
_HEADER = ("", "A", "B", "B − A", "better / worse / same", "p", "Holm")
_CAPTION = (
    "Intervals: 95 %, not adjusted for the number of metrics. p: two-sided, of a permutation test in which the runs "
    "change places on {units}. Holm: p adjusted for all tests of its kind, shown or not."
)


@dataclass(frozen=True)
class Comparison:
    """What `grounding-rewards diff` reports, in the terminal and in every file.

    Attributes:
        found: how the runs differ.
        paths: of A and of B.
        metrics: keys of the metrics that are shown, in order.
        settings: what differs in how the runs were made, see :func:`facts_that_differ`.
        baselines: by name the metrics of baselines on the same images.
    """

    found: RunDifference
    paths: tuple[Path, Path]
    metrics: Sequence[str]
    settings: Mapping[str, tuple[str, str]]
    baselines: Mapping[str, Metrics]

    @property
    def names(self) -> tuple[str, str]:
        """The names of the two folders; A and B where these are the same."""
        return run_names(*self.paths)

    @property
    def verdict(self) -> str:
        """The verdict, which speaks of A and B, and which runs these are."""
        a, b = self.names
        return self.found.verdict + ("" if (a, b) == _LETTERS else f" A is {a}, B is {b}.")

    @property
    def facts(self) -> list[str]:
        """How the runs were made and compared, a line each."""
        found = self.found
        drawn = f" of {found.n} patients" if found.units == "patients" else ""
        alone = f"{found.only_a} only in A and {found.only_b} only in B play no part"
        return [
            *(f"{letter} = {path}" for letter, path in zip(_LETTERS, self.paths, strict=True)),
            f"{found.images} images{drawn} in both; {alone}",
            f"{found.resamples} draws of {found.units}, seed {found.seed}",
            f"labels of boxes: {found.label_matching} (--label-matching)",
            *(f"{name}: A has {one}, B has {other}" for name, (one, other) in self.settings.items()),
        ]

    def as_json(self) -> dict[str, Any]:
        """The comparison and the baselines as plain values."""
        a, b = map(str, self.paths)
        baselines = {
            name: {key: list(map(finite_or_none, one)) for key, one in metrics.items()}
            for name, metrics in self.baselines.items()
        }
        return {"a": a, "b": b, **self.found.as_json(), "baselines": baselines}


def run_names(a: Path, b: Path) -> tuple[str, str]:
    """The names of the folders of two runs; A and B where these are the same.

    Example:
        >>> run_names(Path("runs/before"), Path("runs/after")), run_names(Path("R1/evaluation"), Path("R2/evaluation"))
        (('before', 'after'), ('A', 'B'))
    """
    one, other = ((path.parent if path.is_file() else path).resolve().name for path in (a, b))
    return (one, other) if one != other and one and other else _LETTERS


def facts_that_differ(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """In which facts of their evaluations two runs differ; none where either has no facts.

    Example:
        >>> facts_that_differ({"reward": "R4", "images": 9}, {"reward": "R5", "images": 9})
        {'reward': ('R4', 'R5')}
    """
    if not a or not b:
        return {}
    return {
        name: (_short(a.get(name)), _short(b.get(name)))
        for name in dict.fromkeys([*a, *b])
        if a.get(name) != b.get(name)
    }


def print_difference(comparison: Comparison, console: Console) -> None:
    """Print the tables, and the verdict last, where it is seen."""
    from rich.text import Text

    found = comparison.found
    for line in comparison.facts:
        console.print(Text(line))
    for title, header, rows in _tables(comparison):
        for table in _that_fit(title, header, rows, console):
            console.print(table)
    console.print(Text(_CAPTION.format(units=found.units), style="dim"))
    console.print(Text(found.verdict, style="bold"))


def _that_fit(
    title: str, header: Sequence[str], rows: Sequence[tuple[Change, list[str]]], console: Console
) -> list[Table]:
    """The table; where it is wider than the console, one without the baselines and one of them."""
    from rich.measure import Measurement

    whole, own = range(len(header)), range(len(_HEADER))
    table = _terminal(title, header, rows, whole)
    if Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum <= console.width:
        return [table]
    beside = [0, *whole[len(own) :]]
    return [
        _terminal(title, header, rows, own),
        *([_terminal(f"{title}, baselines", header, rows, beside)] if len(beside) > 1 else []),
    ]


def _terminal(
    title: str, header: Sequence[str], rows: Sequence[tuple[Change, list[str]]], columns: Sequence[int]
) -> Table:
    from rich.text import Text

    # The first column is the name of the metric.
    table = plain_table(*(header[k] for k in columns), title=title, unbroken=range(1, len(columns)))
    for change, cells in rows:
        style = "bold" if change.direction(adjusted=True) else None
        table.add_row(*(Text(cells[k]) for k in columns), style=style)
    return table


def print_metrics(comparison: Comparison, console: Console) -> None:
    """Print the chosen metrics as columns, runs and baselines as lines, then the verdict."""
    from rich.text import Text

    a, b = comparison.names
    changes = {key: comparison.found.metrics[key] for key in comparison.metrics}
    rows = [
        Row(a, {key: change.a for key, change in changes.items()}),
        Row(b, {key: change.b for key, change in changes.items()}),
        Row(f"{b} − {a}", {key: change.difference for key, change in changes.items()}, is_difference=True),
        *(Row(name, metrics) for name, metrics in comparison.baselines.items()),
    ]
    headings = {key: change.metric.heading for key, change in changes.items()}
    title = f"{comparison.found.images} images, 95 % intervals"
    console.print(terminal_table(rows, headings, title=title))
    console.print(Text(comparison.verdict, style="bold"))


def render_markdown(comparison: Comparison) -> str:
    """The verdict and the tables as Markdown."""
    parts = [comparison.found.verdict, "\n".join(f"- {line}" for line in comparison.facts)]
    for title, header, rows in _tables(comparison):
        body = [[_escaped(cells[0]), *cells[1:]] for _, cells in rows]
        parts += [f"**{title}**", markdown_table([_escaped(heading) for heading in header], body)]
    return "\n\n".join([*parts, _CAPTION.format(units=comparison.found.units)]) + "\n"


def _tables(comparison: Comparison) -> Iterator[tuple[str, list[str], list[tuple[Change, list[str]]]]]:
    """For each table its title, its header and its lines: the change and the cells that show it."""
    found, baselines = comparison.found, comparison.baselines
    rows = []
    for key in comparison.metrics:
        change = found.metrics[key]
        name = change.metric.heading + (" (less is better)" if change.metric.lower_is_better else "")
        beside = [format_value(metrics[key].value) if key in metrics else NOTHING for metrics in baselines.values()]
        rows.append((change, _cells(name, change) + beside))
    yield "all images", [*_HEADER, *baselines], rows
    if len(comparison.metrics) < len(found.metrics):
        return
    for title, groups in (("reference boxes by label", found.labels), ("reference boxes by size", found.sizes)):
        if groups:
            yield title, [*_HEADER], [row for group in groups for row in _group_rows(group)]


def _group_rows(group: Group) -> list[tuple[Change, list[str]]]:
    boxes = "1 box" if group.boxes == 1 else f"{group.boxes} boxes"
    return [
        (change, _cells(f"{group.name} ({boxes}), {change.metric.heading}", change))
        for change in group.changes.values()
    ]


def _cells(name: str, change: Change) -> list[str]:
    units = change.units
    return [
        name,
        format_value(change.a.value),
        format_value(change.b.value),
        format_estimate(change.difference, signed=True),
        f"{units.better} / {units.worse} / {units.tied}" if any(units) else NOTHING,
        *map(p_cell, (change.p, change.holm)),
    ]


def _escaped(name: str) -> str:
    """Labels are text of others: a bar would end the cell, a tag would be a tag, and a bracket may fetch an image."""
    return name.replace("\\", "\\\\").replace("|", "\\|").replace("[", "\\[").replace("<", "&lt;").replace("\n", " ")


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_FACT else text[: _LONGEST_FACT - 1] + "…"

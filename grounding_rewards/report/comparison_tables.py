"""The comparison of two runs as tables: in the terminal, as Markdown, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.metrics.comparison import Change, RunDifference, p_cell
from grounding_rewards.metrics.estimates import NOTHING, Metrics, finite_or_none
from grounding_rewards.report.metric_groups import group_metrics
from grounding_rewards.report.tables import Cell, Table, estimate_cell, metrics_table

if TYPE_CHECKING:
    from rich.console import Console

_LONGEST_FACT = 80
_LETTERS = ("A", "B")


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


def comparison_tables(comparison: Comparison) -> list[Table]:
    """A line for each metric in groups, then, unless metrics were chosen, one for each label and size."""
    found = comparison.found
    header = ["metric", *comparison.names, " − ".join(comparison.names[::-1]), "better / worse / same", "p", "Holm"]
    lines: list[list[str | Cell]] = []
    for group, keys in group_metrics(comparison.metrics):
        lines.append([Cell(group.title, group.definition)])
        for key in keys:
            change = found.metrics[key]
            beside = [estimate_cell(metrics.get(key)) for metrics in comparison.baselines.values()]
            name = change.metric.heading + " ↓" * (change.metric.lower_is_better is True)
            lines.append([*_line(name, change), *beside])
    tables = [Table([*header, *comparison.baselines], lines)]
    if len(comparison.metrics) == len(found.metrics):
        for title, groups in (("Reference boxes by label", found.labels), ("Reference boxes by size", found.sizes)):
            rows = [
                _line(f"{group.name} ({group.boxes}), {change.metric.heading}", change)
                for group in groups
                for change in group.changes.values()
            ]
            tables += [Table(header, rows, title)] if rows else []
    return tables


def _line(name: str, change: Change) -> list[str | Cell]:
    return [
        name,
        estimate_cell(change.a),
        estimate_cell(change.b),
        estimate_cell(change.difference, signed=True, kind=kind_of(change.shown_by_interval())),
        " / ".join(map(str, change.units)) if any(change.units) else NOTHING,
        *map(p_cell, (change.p, change.holm)),
    ]


def kind_of(sign: float) -> str:
    """How a change is coloured."""
    return "better" if sign > 0 else "worse" if sign < 0 else "soft"


def print_difference(comparison: Comparison, console: Console) -> None:
    """Print the tables, and the verdict last, where it is seen."""
    from rich.text import Text

    for line in comparison.facts:
        console.print(Text(line))
    for table in comparison_tables(comparison):
        console.print(table.rich())
    console.print(Text(caption(comparison), style="dim"))
    console.print(Text(comparison.verdict, style="bold"))


def print_metrics(comparison: Comparison, console: Console) -> None:
    """Print the chosen metrics as columns, runs and baselines as lines, then the verdict."""
    from rich.text import Text

    a, b = comparison.names
    changes = {key: comparison.found.metrics[key] for key in comparison.metrics}
    rows = {
        a: {key: change.a for key, change in changes.items()},
        b: {key: change.b for key, change in changes.items()},
        f"{b} − {a}": {key: change.difference for key, change in changes.items()},
        **comparison.baselines,
    }
    headings = {key: change.metric.heading for key, change in changes.items()}
    title = f"{comparison.found.images} images, 95 % intervals"
    console.print(metrics_table(rows, headings, title=title, differences=[f"{b} − {a}"]).rich())
    console.print(Text(comparison.verdict, style="bold"))


def render_markdown(comparison: Comparison) -> str:
    """The verdict and the tables as Markdown."""
    parts = [comparison.found.verdict, "\n".join(f"- {line}" for line in comparison.facts)]
    for table in comparison_tables(comparison):
        parts += [*([f"**{table.title}**"] if table.title else []), table.markdown()]
    return "\n\n".join([*parts, caption(comparison)]) + "\n"


def caption(comparison: Comparison) -> str:
    """How to read the tables."""
    units = comparison.found.units
    return (
        f"95 % intervals, not adjusted for the number of metrics. ↓: lower is better. Better / worse / same: {units}. "
        f"p: two-sided, of a permutation test in which the runs change places on {units}. Holm: p adjusted for all "
        "tests of its kind, shown or not."
    )


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_FACT else text[: _LONGEST_FACT - 1] + "…"

"""The comparison of one run with one or several others as tables: in the terminal, as Markdown, and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from grounding_rewards.logs.run_log import trained_reward
from grounding_rewards.metrics.answered_image import AnsweredImage, read_answered
from grounding_rewards.metrics.comparison import DRAWS, MAIN_METRIC, Change, RunDifference, compare_runs, p_cell
from grounding_rewards.metrics.estimates import NOTHING, Estimate, Metrics, finite_or_none, format_value
from grounding_rewards.metrics.evaluation import read_evaluation
from grounding_rewards.report.tables import CORE_METRICS, Cell, Table, estimate_cell, group_metrics

if TYPE_CHECKING:
    from rich.console import Console

_LONGEST_FACT = 80


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What `grounding-rewards diff` reports of two or more runs, in the terminal and in every file.

    A is the first run; each of the others is compared with it, on the images that all have.

    Attributes:
        differences: of each of the others from A.
        paths: of the runs, A first.
        names: of the runs, see :func:`run_names`.
        metrics: keys of the metrics that all have, or of those that were chosen, in order.
        baselines: for each of the others, by name the metrics of baselines on the same images.
        images: of each run.
        made: what is known of how each run was made.
        reward: name of the reward by which images are chosen.
        chosen: whether the metrics were chosen, and no others, labels or sizes are wanted.
    """

    differences: Sequence[RunDifference]
    paths: Sequence[Path]
    names: Sequence[str]
    metrics: Sequence[str]
    baselines: Sequence[Mapping[str, Metrics]]
    images: Sequence[Sequence[AnsweredImage]]
    made: Sequence[Mapping[str, Any]]
    reward: str = "R4"
    chosen: bool = False

    @property
    def first(self) -> RunDifference:
        """The first of the differences: images, draws and keys of metrics are those of all."""
        return self.differences[0]

    def changes(self, key: str) -> list[Change]:
        """How a metric changes from A to each of the others."""
        return [one.metrics[key] for one in self.differences]

    @property
    def verdict(self) -> str:
        """The verdict on two runs at length; of several which are better, worse, and not shown to differ."""
        a, *others = self.names
        if len(others) == 1:
            return self.first.verdict_on(a, others[0])
        told: dict[str, list[str]] = {"better": [], "worse": [], "not shown to differ": [], "not measured": []}
        changes = self.changes(self.first.main)
        for name, main in zip(others, changes, strict=True):
            words = {1: "better", -1: "worse", 0: "not shown to differ"}
            word = "not measured" if math.isnan(main.difference.value) else words[main.direction()]
            told[word].append(f"{name} ({format_value(main.difference.value, signed=True)})")
        said = "; ".join(f"{word}: {', '.join(names)}" for word, names in told.items() if names)
        return f"{changes[0].metric.heading} against {a}. {said[:1].upper()}{said[1:]}."

    @property
    def title(self) -> str:
        """What was compared and how the metric of the verdict changed, as in `GRPO with R4: mean IoU 0.63 → 0.69`."""
        a, *others = self.names
        changes = self.changes(self.first.main)
        heading, values = (
            changes[0].metric.heading,
            [_two_digits(one) for one in (changes[0].a, *(c.b for c in changes))],
        )
        if len(others) > 1:
            told = (f"{name} {value}" for name, value in zip(self.names, values, strict=True))
            return f"{heading}: {', '.join(told)}"
        trained_a, trained_b = map(_trained, self.made)
        what = f"{others[0]} against {a}"
        if trained_b and trained_a != trained_b:
            what = f"{trained_b} against {trained_a}" if trained_a else trained_b
        return f"{what}: {heading} {' → '.join(values)}"

    @property
    def core(self) -> list[str]:
        """Keys of the metrics that are shown first: those that were chosen, else the core, verdict and reward."""
        core = (*CORE_METRICS, self.first.main, f"reward_{self.reward}")
        shown, found = dict.fromkeys(self.metrics if self.chosen else core), self.first.metrics
        measured = (key for key in shown if key in self.metrics)
        return [key for key in measured if not math.isnan(found[key].a.value) or not math.isnan(found[key].b.value)]

    @property
    def facts(self) -> list[str]:
        """How the runs were made and compared, a line each."""
        found, a = self.first, self.names[0]
        drawn = f" of {found.n} patients" if found.units == "patients" else ""
        alone = (f"{one.only_a} only in {a} and {one.only_b} only in {b}" for b, one in self._others)
        return [
            *(f"{name}: {path}" for name, path in zip(self.names, self.paths, strict=True)),
            f"{found.images} images{drawn} in both; {', '.join(alone)} play no part",
            f"{found.resamples} draws of {found.units}, seed {found.seed}",
            f"labels of boxes: {found.label_matching} (--label-matching)",
            *(
                f"{fact}: {one} in {a}, {other} in {b}"
                for b, facts in zip(self.names[1:], self.made[1:], strict=True)
                for fact, (one, other) in facts_that_differ(self.made[0], facts).items()
            ),
        ]

    @property
    def _others(self) -> list[tuple[str, RunDifference]]:
        return list(zip(self.names[1:], self.differences, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """The comparison and the baselines as plain values; of several runs each with A, as two are written."""
        a, *others = map(str, self.paths)
        several = [
            {
                "a": a,
                "b": b,
                **one.to_dict(),
                "baselines": {
                    name: {key: list(map(finite_or_none, own)) for key, own in metrics.items()}
                    for name, metrics in baselines.items()
                },
            }
            for b, one, baselines in zip(others, self.differences, self.baselines, strict=True)
        ]
        return several[0] if len(several) == 1 else {"a": a, "comparisons": several}

    def to_dataframe(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each metric of each run that is compared with A."""
        import pandas

        tables = [one.to_dataframe().assign(run=name) for name, one in self._others]
        return pandas.concat(tables, ignore_index=True)

    def table(self, keys: Sequence[str]) -> Table:
        """A line for each of these metrics, in groups, and the baselines of two runs beside them."""
        baselines = self.baselines[0] if len(self.differences) == 1 else {}
        lines: list[list[str | Cell]] = []
        for group, own in group_metrics(keys):
            lines.append([Cell(group.title, group.definition)])
            for key in own:
                changes = self.changes(key)
                metric = changes[0].metric
                beside = [estimate_cell(metrics.get(key)) for metrics in baselines.values()]
                lines.append([*_line(metric.heading + " ↓" * (metric.lower_is_better is True), changes), *beside])
        return Table([*self._header, *baselines], lines)

    def group_tables(self) -> list[Table]:
        """A line for each label, and one for each size of the reference boxes; none where metrics were chosen."""
        tables = []
        for title, name in (("Reference boxes by label", "labels"), ("Reference boxes by size", "sizes")):
            # The runs have the same reference boxes, and so the same groups.
            groups = list(zip(*(getattr(one, name) for one in self.differences), strict=True))
            rows = [
                _line(
                    f"{several[0].name} ({several[0].boxes}), {change.metric.heading}",
                    [group.changes[key] for group in several],
                )
                for several in groups
                for key, change in several[0].changes.items()
            ]
            tables += [Table(self._header, rows, title)] if rows and not self.chosen else []
        return tables

    @property
    def _header(self) -> list[str]:
        a, *others = self.names
        two = [f"{others[0]} − {a}", "better / worse / same"] if len(others) == 1 else []
        return ["metric", *self.names, *two]

    @property
    def caption(self) -> str:
        """How to read the tables."""
        units = self.first.units
        several = f" Beneath each value: its difference from {self.names[0]}."
        sides = f" Better / worse / same: {units}." if len(self.differences) == 1 else several
        return (
            f"95 % intervals, not adjusted for the number of metrics. ↓: lower is better.{sides} "
            f"p: two-sided, of a permutation test in which the runs change places on {units}. Holm: p adjusted for all "
            "tests of its kind, shown or not."
        )

    def print(self, console: Console, *, every: bool = False) -> None:
        """Print the tables, and the verdict last, where it is seen.

        Args:
            console: a ``rich.console.Console``.
            every: whether to print all metrics, labels and sizes, not the core alone.
        """
        from rich.text import Text

        for line in self.facts:
            console.print(Text(line))
        for table in (self.table(self.metrics if every else self.core), *(self.group_tables() if every else ())):
            console.print(table.rich())
        left = len(self.metrics) - len(self.core)
        more = "" if every or self.chosen or not left else f" --all: {left} more metrics, labels and sizes."
        console.print(Text(self.caption + more, style="dim"))
        console.print(Text(self.verdict, style="bold"))

    def markdown(self) -> str:
        """The verdict and all tables as Markdown."""
        parts = [self.verdict, "\n".join(f"- {line}" for line in self.facts)]
        for table in (self.table(self.metrics), *self.group_tables()):
            parts += [*([f"**{table.title}**"] if table.title else []), table.markdown()]
        return "\n\n".join([*parts, self.caption]) + "\n"


def compare_evaluations(
    paths: Sequence[str | Path],
    *,
    metric: str = MAIN_METRIC,
    metrics: Sequence[str] = (),
    label_matching: str | None = None,
    resamples: int = DRAWS,
    seed: int = 0,
    reward: str | None = None,
) -> Comparison:
    """Compare the first evaluation with each of the others, on the images that all have.

    Args:
        paths: folders of evaluations, or their images.jsonl.
        metric: what the verdict is about.
        metrics: those that are shown; all without any.
        label_matching: as for :func:`grounding_rewards.metrics.comparison.compare_runs`; None for that of the
            evaluations.
        resamples: draws of the permutation test.
        seed: of all draws.
        reward: by which images are chosen; None for that of the second evaluation.

    Raises:
        ValueError: a run cannot be read, the runs cannot be compared, or one lacks a metric.
    """
    runs, evaluations = [read_answered(path) for path in paths], [read_evaluation(path) for path in paths]
    if len(paths) > 2:
        # One table needs the same images in all of its columns.
        shared = set.intersection(*({image.id for image in images} for images in runs))
        runs = [[image for image in images if image.id in shared] for images in runs]
    rules = dict.fromkeys(one.label_matching for one in evaluations if one.label_matching is not None)
    if label_matching is None and len(rules) > 1:
        raise ValueError(
            f"Expected runs that were evaluated by one --label-matching, got {' and '.join(rules)}. Their metrics "
            "say different things: give --label-matching, by which both are measured here, or evaluate one again."
        )
    # A run that does not say is taken to be as the others.
    matching = label_matching or next(iter(rules), "ignore")
    found = [
        compare_runs(runs[0], run, label_matching=matching, main=metric, resamples=resamples, seed=seed)
        for run in runs[1:]
    ]
    # Where a run states no confidences its boxes are ranked otherwise, and the same key is another metric.
    first = found[0].metrics
    common = [key for key in first if all(key in one.metrics for one in found)]
    common = [
        key for key in common if all(one.metrics[key].metric.heading == first[key].metric.heading for one in found)
    ]
    for key in metrics:
        if key not in common:
            raise ValueError(
                f"Expected metrics of all runs for --metrics, got {key!r}. They have: {', '.join(common)}."
            )
    return Comparison(
        differences=found,
        paths=(files := list(map(Path, paths))),
        names=run_names(files),
        metrics=list(dict.fromkeys(metrics)) or common,
        # They stand beside both runs where they were measured on the same images, by the same labels.
        baselines=[
            dict(list(other.systems.items())[1:]) if not one.only_b and other.label_matching == matching else {}
            for one, other in zip(found, evaluations[1:], strict=True)
        ],
        images=runs,
        made=[one.facts for one in evaluations],
        reward=reward or evaluations[1].reward,
        chosen=bool(metrics),
    )


def _trained(facts: Mapping[str, Any]) -> str:
    """How the evaluated model was trained, where its run says so."""
    model = Path(str(facts.get("model", "")))
    found = trained_reward(model) if "model" in facts and model.is_dir() else None
    return "" if found is None else f"GRPO with {found[0]}"


def _two_digits(one: Estimate) -> str:
    return NOTHING if math.isnan(one.value) else f"{one.value:.2f}"


def run_names(paths: Sequence[Path]) -> list[str]:
    """A name for each run: the last parts of their paths that tell them apart, or letters where none do.

    Example:
        >>> run_names([Path("runs/before"), Path("runs/after")])
        ['before', 'after']
        >>> run_names([Path("R1/evaluation"), Path("R2/evaluation"), Path("R3/evaluation")])
        ['R1', 'R2', 'R3']
        >>> run_names([Path("runs/R1"), Path("runs/R1")])
        ['A', 'B']
    """
    parts = [(path.parent if path.is_file() else path).resolve().parts[1:] for path in paths]
    if len(set(parts)) < len(parts):
        return list(ascii_uppercase[: len(parts)])
    # What all of them end with says nothing.
    same = sum(1 for _ in takewhile(lambda last: len(set(last)) == 1, zip(*map(reversed, parts), strict=False)))
    own = [one[: len(one) - same] for one in parts]
    depth = next(n for n in range(1, 1 + max(map(len, own))) if len({one[-n:] for one in own}) == len(own))
    return ["/".join(one[-depth:]) or str(path) for one, path in zip(own, paths, strict=True)]


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


def _line(name: str, changes: Sequence[Change]) -> list[str | Cell]:
    """The cells of a metric: of two runs a column for what differs, of several a line beneath each value."""
    line: list[str | Cell] = [name, estimate_cell(changes[0].a)]
    for change in changes:
        kind = kind_of(change.shown_by_interval())
        difference = estimate_cell(change.difference, signed=True, kind=kind)
        holm = "" if math.isnan(change.holm) else f"Holm {p_cell(change.holm)}"
        if len(changes) == 1:
            units = " / ".join(map(str, change.units)) if any(change.units) else NOTHING
            p = "" if math.isnan(change.p) else f"p {p_cell(change.p)}, {holm}"
            line += [estimate_cell(change.b), difference, Cell(units, p)]
        else:
            owed = f"{difference.text} {difference.small}" if difference.small else ""
            small = "\n".join(filter(None, (owed, holm)))
            line.append(Cell(estimate_cell(change.b).text, small, kind))
    return line


def kind_of(sign: float) -> str:
    """How a change is coloured."""
    return "better" if sign > 0 else "worse" if sign < 0 else "soft"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_FACT else text[: _LONGEST_FACT - 1] + "…"

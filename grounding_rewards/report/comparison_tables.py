"""The comparison of one run with one or several others as tables: in the terminal, as Markdown, and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Comparison:
    """What `grounding-rewards diff` reports of two runs, in the terminal and in every file.

    Several runs are several comparisons: of the same A with each of the others, on the same images.

    Attributes:
        found: how the runs differ.
        paths: of A and of B.
        names: of A and of B, see :func:`run_names`.
        metrics: keys of the metrics that all comparisons have, or of those that were chosen, in order.
        settings: what differs in how the runs were made, see :func:`facts_that_differ`.
        baselines: by name the metrics of baselines on the same images.
        images: of A and of B, those that are compared.
        made: what is known of how A and B were made.
        reward: name of the reward that B was evaluated with.
        trained: how A and B were trained, such as `GRPO with R4`; empty where that is not known.
        chosen: whether the metrics were chosen, and no others, labels or sizes are wanted.
    """

    found: RunDifference
    paths: tuple[Path, Path]
    names: tuple[str, str]
    metrics: Sequence[str]
    settings: Mapping[str, tuple[str, str]]
    baselines: Mapping[str, Metrics]
    images: tuple[Sequence[AnsweredImage], Sequence[AnsweredImage]] = ((), ())
    made: tuple[Mapping[str, Any], Mapping[str, Any]] = field(default_factory=lambda: ({}, {}))
    reward: str = "R4"
    trained: tuple[str, str] = ("", "")
    chosen: bool = False

    @property
    def core(self) -> list[str]:
        """Keys of the metrics that are shown first: those that were chosen, else the core, verdict and reward."""
        core = (*CORE_METRICS, self.found.main, f"reward_{self.reward}")
        shown, found = dict.fromkeys(self.metrics if self.chosen else core), self.found.metrics
        measured = (key for key in shown if key in self.metrics)
        return [key for key in measured if not math.isnan(found[key].a.value) or not math.isnan(found[key].b.value)]

    @property
    def facts(self) -> list[str]:
        """How the runs were made and compared, a line each."""
        found = self.found
        drawn = f" of {found.n} patients" if found.units == "patients" else ""
        a, b = self.names
        alone = f"{found.only_a} only in {a} and {found.only_b} only in {b} play no part"
        return [
            *(f"{name}: {path}" for name, path in zip(self.names, self.paths, strict=True)),
            f"{found.images} images{drawn} in both; {alone}",
            f"{found.resamples} draws of {found.units}, seed {found.seed}",
            f"labels of boxes: {found.label_matching} (--label-matching)",
            *(f"{name}: {one} in {a}, {other} in {b}" for name, (one, other) in self.settings.items()),
        ]

    def to_dict(self) -> dict[str, Any]:
        """The comparison and the baselines as plain values."""
        a, b = map(str, self.paths)
        baselines = {
            name: {key: list(map(finite_or_none, one)) for key, one in metrics.items()}
            for name, metrics in self.baselines.items()
        }
        return {"a": a, "b": b, **self.found.to_dict(), "baselines": baselines}


def compare_evaluations(
    paths: Sequence[Path],
    *,
    metric: str = MAIN_METRIC,
    metrics: Sequence[str] = (),
    label_matching: str | None = None,
    sizes: str = "image",
    resamples: int = DRAWS,
    seed: int = 0,
    reward: str | None = None,
) -> list[Comparison]:
    """Compare the first evaluation with each of the others, on the images that all have.

    Args:
        paths: folders of evaluations, or their images.jsonl.
        metric: what the verdict is about.
        metrics: those that are shown; all without any.
        label_matching: as for :func:`grounding_rewards.metrics.comparison.compare_runs`; None for that of the
            evaluations.
        sizes: likewise.
        resamples: draws of the permutation test.
        seed: of all draws.
        reward: by which images are chosen; None for that of each evaluation.

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
    names, trained = run_names(paths), [_trained(one.facts) for one in evaluations]
    found = [
        compare_runs(runs[0], run, label_matching=matching, sizes=sizes, main=metric, resamples=resamples, seed=seed)
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
    return [
        Comparison(
            found=one,
            paths=(paths[0], paths[k]),
            names=(names[0], names[k]),
            metrics=list(dict.fromkeys(metrics)) or common,
            settings=facts_that_differ(evaluations[0].facts, evaluations[k].facts),
            # They stand beside both runs where they were measured on the same images, by the same labels.
            baselines=dict(list(evaluations[k].systems.items())[1:])
            if not one.only_b and evaluations[k].label_matching == matching
            else {},
            images=(runs[0], runs[k]),
            made=(evaluations[0].facts, evaluations[k].facts),
            reward=reward or evaluations[k].reward,
            trained=(trained[0], trained[k]),
            chosen=bool(metrics),
        )
        for k, one in enumerate(found, start=1)
    ]


def _trained(facts: Mapping[str, Any]) -> str:
    """How the evaluated model was trained, where its run says so."""
    model = Path(str(facts.get("model", "")))
    found = trained_reward(model) if "model" in facts and model.is_dir() else None
    return "" if found is None else f"GRPO with {found[0]}"


def comparison_title(comparisons: Sequence[Comparison]) -> str:
    """What was compared and how the metric of the verdict changed, as in `GRPO with R4: mean IoU 0.63 → 0.69`."""
    first = comparisons[0]
    metric = first.found.metrics[first.found.main]
    if len(comparisons) > 1:
        values = {first.names[0]: metric.a} | {one.names[1]: one.found.metrics[one.found.main].b for one in comparisons}
        told = ", ".join(f"{name} {_two_digits(value)}" for name, value in values.items())
        return f"{metric.metric.heading}: {told}"
    (a, b), (trained_a, trained_b) = first.names, first.trained
    if trained_b and trained_a != trained_b:
        what = f"{trained_b} against {trained_a}" if trained_a else trained_b
    else:
        what = f"{b} against {a}"
    before, after = map(_two_digits, (metric.a, metric.b))
    return f"{what}: {metric.metric.heading} {before} → {after}"


def _two_digits(one: Estimate) -> str:
    return NOTHING if math.isnan(one.value) else f"{one.value:.2f}"


def verdict_of(comparisons: Sequence[Comparison]) -> str:
    """The verdict of two runs at length; of several which are better, worse, and not shown to differ."""
    first = comparisons[0]
    if len(comparisons) == 1:
        return first.found.verdict_on(*first.names)
    metric = first.found.metrics[first.found.main].metric.heading
    told: dict[str, list[str]] = {"better": [], "worse": [], "not shown to differ": [], "not measured": []}
    for one in comparisons:
        main = one.found.metrics[first.found.main]
        words = {1: "better", -1: "worse", 0: "not shown to differ"}
        word = "not measured" if math.isnan(main.difference.value) else words[main.direction()]
        told[word].append(f"{one.names[1]} ({format_value(main.difference.value, signed=True)})")
    said = "; ".join(f"{word}: {', '.join(names)}" for word, names in told.items() if names)
    return f"{metric} against {first.names[0]}. {said[:1].upper()}{said[1:]}."


def comparison_facts(comparisons: Sequence[Comparison]) -> list[str]:
    """How the runs were made and compared, a line each."""
    return list(dict.fromkeys(line for one in comparisons for line in one.facts))


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


def metrics_changes(comparisons: Sequence[Comparison], keys: Sequence[str]) -> Table:
    """A line for each of these metrics, in groups, and the baselines of two runs beside them."""
    baselines = comparisons[0].baselines if len(comparisons) == 1 else {}
    lines: list[list[str | Cell]] = []
    for group, own in group_metrics(keys):
        lines.append([Cell(group.title, group.definition)])
        for key in own:
            changes = [one.found.metrics[key] for one in comparisons]
            metric = changes[0].metric
            beside = [estimate_cell(metrics.get(key)) for metrics in baselines.values()]
            lines.append([*_line(metric.heading + " ↓" * (metric.lower_is_better is True), changes), *beside])
    return Table([*_header(comparisons), *baselines], lines)


def group_tables(comparisons: Sequence[Comparison]) -> list[Table]:
    """A line for each label, and one for each size of the reference boxes."""
    tables = []
    for title, name in (("Reference boxes by label", "labels"), ("Reference boxes by size", "sizes")):
        # The runs have the same reference boxes, and so the same groups.
        groups = list(zip(*(getattr(one.found, name) for one in comparisons), strict=True))
        rows = [
            _line(
                f"{several[0].name} ({several[0].boxes}), {change.metric.heading}",
                [group.changes[key] for group in several],
            )
            for several in groups
            for key, change in several[0].changes.items()
        ]
        tables += [Table(_header(comparisons), rows, title)] if rows else []
    return tables


def _header(comparisons: Sequence[Comparison]) -> list[str]:
    a, *others = [comparisons[0].names[0], *(one.names[1] for one in comparisons)]
    return ["metric", a, *others, *([f"{others[0]} − {a}", "better / worse / same"] if len(others) == 1 else [])]


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


def print_difference(comparisons: Sequence[Comparison], console: Console, *, every: bool = False) -> None:
    """Print the tables, and the verdicts last, where they are seen.

    Args:
        comparisons: of A with each of the others.
        console: a ``rich.console.Console``.
        every: whether to print all metrics, labels and sizes, not the core alone.
    """
    from rich.text import Text

    first = comparisons[0]
    for line in comparison_facts(comparisons):
        console.print(Text(line))
    console.print(metrics_changes(comparisons, first.metrics if every else first.core).rich())
    for table in group_tables(comparisons) if every else ():
        console.print(table.rich())
    left = len(first.metrics) - len(first.core)
    more = "" if every or first.chosen or not left else f" --all: {left} more metrics, labels and sizes."
    console.print(Text(caption(comparisons) + more, style="dim"))
    console.print(Text(verdict_of(comparisons), style="bold"))


def render_markdown(comparisons: Sequence[Comparison]) -> str:
    """The verdicts and all tables as Markdown."""
    first = comparisons[0]
    parts = [verdict_of(comparisons), "\n".join(f"- {line}" for line in comparison_facts(comparisons))]
    tables = [metrics_changes(comparisons, first.metrics), *([] if first.chosen else group_tables(comparisons))]
    for table in tables:
        parts += [*([f"**{table.title}**"] if table.title else []), table.markdown()]
    return "\n\n".join([*parts, caption(comparisons)]) + "\n"


def caption(comparisons: Sequence[Comparison]) -> str:
    """How to read the tables."""
    units = comparisons[0].found.units
    sides = (
        f" Better / worse / same: {units}."
        if len(comparisons) == 1
        else f" Beneath each value: its difference from {comparisons[0].names[0]}."
    )
    return (
        f"95 % intervals, not adjusted for the number of metrics. ↓: lower is better.{sides} "
        f"p: two-sided, of a permutation test in which the runs change places on {units}. Holm: p adjusted for all "
        "tests of its kind, shown or not."
    )


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_FACT else text[: _LONGEST_FACT - 1] + "…"

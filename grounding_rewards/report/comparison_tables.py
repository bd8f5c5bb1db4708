"""The comparison of one run with one or several others as tables: in the terminal, as Markdown, and as JSON."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import numpy as np

from grounding_rewards.common.formatting import NO_VALUE, capitalised, finite_or_none, format_value
from grounding_rewards.logs.run_log import LOG, first_and_last, initial_checkpoint, read_entries, trained_reward
from grounding_rewards.metrics.average_precision import Curve
from grounding_rewards.metrics.comparison import (
    DRAWS,
    LEVEL,
    MAIN_METRIC,
    Change,
    RunDifference,
    compare_runs,
    p_cell,
)
from grounding_rewards.metrics.evaluation import CORE_METRICS, StoredEvaluation, read_evaluation
from grounding_rewards.metrics.intervals import Metrics, format_estimate
from grounding_rewards.metrics.prediction import Prediction, load_predictions
from grounding_rewards.report.page import is_measured
from grounding_rewards.report.plots import read_series
from grounding_rewards.report.tables import Cell, Table, estimate_cell, group_metrics

if TYPE_CHECKING:
    from rich.console import Console

_LONGEST_FACT = 80


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The report of `grounding-rewards diff` on two or more runs, in the terminal and in every file.

    A is the first run; each of the others is compared with it, on the images that all have.

    Attributes:
        differences: of each of the others from A.
        paths: of the runs, A first.
        names: of the runs, see :func:`run_names`.
        metrics: keys of the metrics that all have, or of those that were chosen, in order.
        baselines: for each of the others, by name the metrics of baselines on the same images.
        images: of each run.
        run_facts: what is known of how each run was made.
        reward: name of the reward by which images are chosen.
        log: what the training of the second run logged; empty where no training is known.
        evaluated: the sampled reward before and after that training, where the first run is its initial checkpoint.
    """

    differences: Sequence[RunDifference]
    paths: Sequence[Path]
    names: Sequence[str]
    metrics: Sequence[str]
    baselines: Sequence[Mapping[str, Metrics]]
    images: Sequence[Sequence[Prediction]]
    run_facts: Sequence[Mapping[str, Any]]
    reward: str = "R4"
    log: Sequence[Mapping[str, Any]] = ()
    evaluated: Curve | None = None

    @property
    def first(self) -> RunDifference:
        """The first of the differences: images, draws and keys of metrics are those of all."""
        return self.differences[0]

    @property
    def verdict(self) -> str:
        """The metrics that changed, that are not shown to have changed, and that are worse, in sentences."""
        if len(self.differences) == 1:
            return self.first.verdict
        # Short, because every number is in the table.
        sentences = []
        for key in self.first.leading:
            runs: dict[str, list[str]] = {"better": [], "worse": [], "no change shown": [], "not measured": []}
            for name, difference in self._compared:
                change = difference.metrics[key]
                word = {1: "better", -1: "worse", 0: "no change shown"}[change.direction]
                word = "not measured" if math.isnan(change.difference.value) else word
                runs[word].append(f"{name} ({format_value(change.difference.value, signed=True)})")
            clauses = "; ".join(f"{word}: {', '.join(names)}" for word, names in runs.items() if names)
            heading = self.first.metrics[key].metric.heading
            sentences.append(f"{capitalised(heading)} against {self.names[0]}. {capitalised(clauses)}.")
        losses = [f"Worse in {name}: {'; '.join(run.worse)}." for name, run in self._compared if run.worse]
        return " ".join([*sentences, *(losses or ["No other metric, label or size is shown to be worse."])])

    @property
    def training_reward(self) -> str:
        """The change of the reward in the training, as in `0.433 → 0.565, first and last 10 of 200`."""
        rewards = read_series(self.log, "reward")
        return "" if rewards is None else first_and_last(rewards.y.tolist())

    @property
    def title(self) -> str:
        """The runs and the change of the metric of the verdict, as in `GRPO with R4: mean IoU 0.63 → 0.69`."""
        changes = [difference.metrics[self.first.main] for difference in self.differences]
        heading = changes[0].metric.heading
        numbers = [changes[0].a.value, *(change.b.value for change in changes)]
        values = [NO_VALUE if math.isnan(number) else f"{number:.2f}" for number in numbers]
        if len(changes) > 1:
            return f"{heading}: {', '.join(map(' '.join, zip(self.names, values, strict=True)))}"
        before, after = map(_trained, self.run_facts)
        if not after or before == after:
            before, after = self.names
        compared = f"{after} against {before}" if before else after
        return f"{compared}: {heading} {' → '.join(values)}"

    @property
    def core(self) -> list[str]:
        """Keys of the metrics that are shown first: those that were chosen, or the core."""
        changes = {key: self.first.metrics[key] for key in self.first.core if key in self.metrics}
        return [key for key, change in changes.items() if is_measured(change.a) or is_measured(change.b)]

    @property
    def facts(self) -> list[str]:
        """Facts of the runs and of the comparison, a line each."""
        first, a = self.first, self.names[0]
        patients = f" of {first.n} patients" if first.units == "patients" else ""
        lines = [f"{name}: {path}" for name, path in zip(self.names, self.paths, strict=True)]
        alone = [f"{run.only_a} only in {a} and {run.only_b} only in {b}" for b, run in self._compared]
        lines.append(f"{first.images} images{patients} in both; {', '.join(alone)} play no part")
        lines.append(f"{first.resamples} draws of {first.units}, seed {first.seed}")
        lines.append(f"labels of boxes: {first.label_matching} (--label-matching)")
        for b, facts in zip(self.names[1:], self.run_facts[1:], strict=True):
            for name, (fact_a, fact_b) in facts_that_differ(self.run_facts[0], facts).items():
                lines.append(f"{name}: {fact_a} in {a}, {fact_b} in {b}")
        return lines

    @property
    def _compared(self) -> list[tuple[str, RunDifference]]:
        return list(zip(self.names[1:], self.differences, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """The comparison and the baselines as plain values; of several runs each with A, as two are written."""
        a, *paths = map(str, self.paths)
        comparisons = []
        for path, difference, baselines in zip(paths, self.differences, self.baselines, strict=True):
            values = {
                name: {key: list(map(finite_or_none, estimate)) for key, estimate in metrics.items()}
                for name, metrics in baselines.items()
            }
            comparisons.append({"a": a, "b": path, **difference.to_dict(), "baselines": values})
        return comparisons[0] if len(comparisons) == 1 else {"a": a, "comparisons": comparisons}

    def table(self, keys: Sequence[str]) -> Table:
        """A line for each of these metrics, in groups."""
        rows: list[list[str | Cell]] = []
        for group, members in group_metrics(keys):
            rows.append([Cell(group.title, group.definition)])
            for key in members:
                metric = self.first.metrics[key].metric
                heading = metric.heading + " ↓" * (metric.lower_is_better is True)
                rows.append(_line(heading, [difference.metrics[key] for difference in self.differences]))
        return Table(self._header, rows)

    def further_tables(self) -> list[Table]:
        """A line for each label and each size of the reference boxes, and the baselines of two runs."""
        tables = []
        for title, name in (("Reference boxes by label", "labels"), ("Reference boxes by size", "sizes")):
            rows = []
            # The runs have the same reference boxes, and so the same groups.
            for groups in zip(*(getattr(difference, name) for difference in self.differences), strict=True):
                for key, change in groups[0].changes.items():
                    heading = f"{groups[0].name} ({groups[0].boxes}), {change.metric.heading}"
                    rows.append(_line(heading, [group.changes[key] for group in groups]))
            if rows:
                tables.append(Table(self._header, rows, title))
        if len(self.differences) == 1 and (baselines := self.baselines[0]):
            values = []
            for key in self.metrics:
                estimates = [metrics.get(key, (math.nan,)) for metrics in baselines.values()]
                values.append(
                    [self.first.metrics[key].metric.heading, *(format_value(estimate[0]) for estimate in estimates)]
                )
            tables.append(Table(["metric", *baselines], values, "Baselines on the same images"))
        return tables

    @property
    def _header(self) -> list[str | Cell]:
        change = [Cell("change", "better / worse / same")] if len(self.names) == 2 else []
        return ["metric", *self.names, *change]

    @property
    def caption(self) -> str:
        """The rule for better and worse, and the signs of the tables."""
        differences_note = f" Beneath each value: its difference from {self.names[0]}." if len(self.names) > 2 else ""
        return (
            "Better or worse: the 95 % interval of the change excludes 0, and Holm's p over the metrics shown is below "
            f"{LEVEL:g}; else no change is shown. ↓: lower is better.{differences_note}"
        )

    @property
    def tests_caption(self) -> str:
        """The small print beneath the changes, and the tests that Holm's p accounts for."""
        sides = f"Better / worse / same: on how many {self.first.units}. " if len(self.names) == 2 else ""
        return (
            f"{sides}p: two-sided, of a permutation test in which the runs change places on {self.first.units}. "
            "Holm: p adjusted for the metrics that are shown, for all others, for labels, or for sizes."
        )

    def print(self, console: Console, *, every: bool = False) -> None:
        """Print the tables, and the verdict last, where it is seen.

        Args:
            console: a ``rich.console.Console``; two runs fit into 80 columns.
            every: whether to print all metrics, labels, sizes, baselines and tests, not the core alone.
        """
        from rich.text import Text

        has_several = len(self.names) > 2
        console.print(Text("\n".join(self.facts)))
        for table in [self.table(self.metrics), *self.further_tables()] if every else [self.table(self.core)]:
            # Names are broken into lines where a metric has several anyway, and numbers where there are many runs.
            unbroken = () if has_several else range(1, len(table.header)) if every else (0,)
            console.print(table.rich(small=every or has_several, unbroken=unbroken))
        legend = self.tests_caption if every else "--all: every metric, labels, sizes, baselines and tests."
        console.print(Text(f"{self.caption} {legend}", style="dim"))
        if self.training_reward:
            console.print(Text(f"Reward in training {self.training_reward} steps."))
        console.print(Text(self.verdict, style="bold"))

    def to_dataframe(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each metric of each run that is compared with A."""
        import pandas

        tables = [difference.to_dataframe().assign(run=name) for name, difference in self._compared]
        return pandas.concat(tables, ignore_index=True)

    def markdown(self) -> str:
        """The verdict and all tables as Markdown."""
        parts = [self.verdict, "\n".join(f"- {line}" for line in self.facts)]
        for table in (self.table(self.metrics), *self.further_tables()):
            parts += [f"**{table.title}**"] if table.title else []
            parts.append(table.markdown())
        return "\n\n".join([*parts, f"{self.caption} {self.tests_caption}"]) + "\n"


def compare_evaluations(
    paths: Sequence[str | Path],
    *,
    metric: str = MAIN_METRIC,
    metrics: Sequence[str] = (),
    label_matching: str | None = None,
    resamples: int = DRAWS,
    seed: int = 0,
    reward: str | None = None,
    log: str | Path | None = None,
) -> Comparison:
    """Compare the first evaluation with each of the others, on the images that all have.

    Args:
        paths: folders of evaluations, or their images.jsonl.
        metric: what the verdict is about.
        metrics: those that are shown with `metric`; without any the core, and the rest on request.
        label_matching: as for :func:`grounding_rewards.metrics.comparison.compare_runs`; None for that of the
            evaluations.
        resamples: draws of the permutation test.
        seed: of all draws.
        reward: by which images are chosen; None for that of the second evaluation.
        log: of the training of the second run; None for log.jsonl next to its checkpoint, if there is one.

    Raises:
        ValueError: a run cannot be read, the runs cannot be compared, or one lacks a metric.
    """
    files = [Path(path) for path in paths]
    runs = [load_predictions(path) for path in files]
    evaluations = [read_evaluation(path) for path in files]
    if len(runs) > 2:
        # One table needs the same images in all of its columns.
        shared = set.intersection(*({image.id for image in images} for images in runs))
        runs = [[image for image in images if image.id in shared] for images in runs]
    matching = label_matching or _common_label_matching(evaluations)
    reward = reward or evaluations[1].reward
    options: dict[str, Any] = {"label_matching": matching, "resamples": resamples, "seed": seed, "main": metric}
    core = metrics or (*CORE_METRICS, f"reward_{reward}")
    differences = [compare_runs(runs[0], run, core=core, **options) for run in runs[1:]]
    common = _common_metrics(differences)
    for key in metrics:
        if key not in common:
            nearest = difflib.get_close_matches(key, common, 1)
            guess = f"Did you mean {nearest[0]}? " if nearest else ""
            raise ValueError(
                f"Expected metrics of all runs for --metrics, got {key!r}. {guess}They have: {', '.join(common)}."
            )
    baselines: list[Mapping[str, Metrics]] = []
    for difference, evaluation in zip(differences, evaluations[1:], strict=True):
        # A baseline is shown with both runs if it was measured on the same images, by the same labels.
        comparable = not difference.only_b and evaluation.label_matching == matching
        baselines.append(dict([*evaluation.systems.items()][1:]) if comparable else {})
    facts = [evaluation.facts for evaluation in evaluations]
    entries = _training_log(log, facts[1])
    return Comparison(
        differences=differences,
        paths=files,
        names=run_names(files),
        metrics=list(dict.fromkeys((*metrics, metric))) if metrics else common,
        baselines=baselines,
        images=runs,
        run_facts=facts,
        reward=reward,
        log=entries,
        evaluated=_evaluated(differences[0].metrics.get("sampled_reward"), facts, evaluations[1].reward, entries),
    )


def _common_label_matching(evaluations: Sequence[StoredEvaluation]) -> str:
    """The rule by which all evaluations compared labels; one that names none is taken to be like the rest."""
    rules = dict.fromkeys(run.label_matching for run in evaluations if run.label_matching is not None)
    if len(rules) > 1:
        raise ValueError(
            f"Expected runs that were evaluated by one --label-matching, got {' and '.join(rules)}. Their metrics "
            "say different things: give --label-matching, by which both are measured here, or evaluate one again."
        )
    return next(iter(rules), "ignore")


def _common_metrics(differences: Sequence[RunDifference]) -> list[str]:
    """Keys of the metrics that all differences have under one heading.

    Boxes of a run without confidences are ranked in another way, and the same key is then another metric.
    """
    first, *other_metrics = (difference.metrics for difference in differences)
    return [
        key
        for key, change in first.items()
        if all(key in metrics and metrics[key].metric.heading == change.metric.heading for metrics in other_metrics)
    ]


def _training_log(log: str | Path | None, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The entries of the file that was named, else of the log next to the evaluated model, else none."""
    if log is not None:
        return read_entries(Path(log))
    path = Path(str(facts.get("model", ""))).parent / LOG
    return read_entries(path) if "model" in facts and path.is_file() else []


def _evaluated(
    change: Change | None, run_facts: Sequence[Mapping[str, Any]], reward: str, log: Sequence[Mapping[str, Any]]
) -> Curve | None:
    """The sampled reward at the first and the last step, where one run is the initial checkpoint of the other."""
    before, after = (facts.get("model") for facts in run_facts[:2])
    if change is None or not log or before is None or after is None:
        return None
    start, trained = initial_checkpoint(Path(after)), trained_reward(Path(after))
    if start is None or Path(before).resolve() != Path(start).resolve() or trained is None or trained[0] != reward:
        return None
    steps = np.array([0.0, max(float(entry.get("step", 0)) for entry in log)])
    return Curve("held-out images", steps, *np.transpose([change.a, change.b]))


def _trained(facts: Mapping[str, Any]) -> str:
    """The training of the evaluated model, as in `GRPO with R4`; empty if unknown."""
    model = Path(str(facts.get("model", "")))
    trained = trained_reward(model) if "model" in facts and model.is_dir() else None
    return "" if trained is None else f"GRPO with {trained[0]}"


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
    while len({path[-1:] for path in parts}) == 1:
        parts = [path[:-1] for path in parts]
    depth = 1
    while len({path[-depth:] for path in parts}) < len(parts):
        depth += 1
    return ["/".join(names[-depth:]) or str(path) for names, path in zip(parts, paths, strict=True)]


def facts_that_differ(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The facts of their evaluations in which two runs differ; none where either has no facts.

    Example:
        >>> facts_that_differ({"reward": "R4", "images": 9}, {"reward": "R5", "images": 9})
        {'reward': ('R4', 'R5')}
    """

    def text_of(value: Any) -> str:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return text if len(text) <= _LONGEST_FACT else text[: _LONGEST_FACT - 1] + "…"

    names = dict.fromkeys([*a, *b]) if a and b else ()
    return {name: (text_of(a.get(name)), text_of(b.get(name))) for name in names if a.get(name) != b.get(name)}


def _line(heading: str, changes: Sequence[Change]) -> list[str | Cell]:
    """The cells of a metric: of two runs both values and their change, of several the change beneath each value."""
    cells: list[str | Cell] = [heading, estimate_cell(changes[0].a)]
    for change in changes:
        holm = "" if math.isnan(change.holm) else f"Holm {p_cell(change.holm)}"
        kind = kind_of(change.direction)
        value = estimate_cell(change.b)
        if len(changes) == 1:
            units = " / ".join(map(str, change.units)) if any(change.units) else ""
            p = "" if math.isnan(change.p) else f"p {p_cell(change.p)}, {holm}"
            difference = format_estimate(change.difference, signed=True)
            cells += [value, Cell(difference, "\n".join(filter(None, (units, p))), kind)]
        else:
            difference = format_estimate(change.difference, signed=True).replace(" ", "\n", 1)
            cells.append(Cell(value.text, "\n".join(filter(None, (difference, holm))), kind))
    return cells


def kind_of(sign: float) -> str:
    """The colour of a change."""
    return "better" if sign > 0 else "worse" if sign < 0 else "soft"

"""The comparison of one run with one or several others as tables: in the terminal, as Markdown, and as JSON."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import numpy as np

from grounding_rewards.logs.run_log import LOG, first_and_last, initial_checkpoint, read_entries, trained_reward
from grounding_rewards.metrics.answered_image import AnsweredImage, read_answered
from grounding_rewards.metrics.comparison import (
    DRAWS,
    LEVEL,
    MAIN_METRIC,
    Change,
    RunDifference,
    compare_runs,
    p_cell,
)
from grounding_rewards.metrics.curves import Curve
from grounding_rewards.metrics.estimates import (
    NOTHING,
    Estimate,
    Metrics,
    capitalised,
    finite_or_none,
    format_estimate,
    format_value,
)
from grounding_rewards.metrics.evaluation import CORE_METRICS, read_evaluation
from grounding_rewards.report.page import is_measured
from grounding_rewards.report.plots import read_series
from grounding_rewards.report.tables import Cell, Table, estimate_cell, group_metrics

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
        log: what the training of the second run logged; empty where no training is known.
        evaluated: the sampled reward before and after that training, where the first run is its initial checkpoint.
    """

    differences: Sequence[RunDifference]
    paths: Sequence[Path]
    names: Sequence[str]
    metrics: Sequence[str]
    baselines: Sequence[Mapping[str, Metrics]]
    images: Sequence[Sequence[AnsweredImage]]
    made: Sequence[Mapping[str, Any]]
    reward: str = "R4"
    log: Sequence[Mapping[str, Any]] = ()
    evaluated: Curve | None = None

    @property
    def first(self) -> RunDifference:
        """The first of the differences: images, draws and keys of metrics are those of all."""
        return self.differences[0]

    def changes(self, key: str) -> list[Change]:
        """How a metric changes from A to each of the others."""
        return [one.metrics[key] for one in self.differences]

    @property
    def verdict(self) -> str:
        """What changed, what is not shown to have changed, and what is worse."""
        return f"{self.summary} {self.losses}"

    @property
    def summary(self) -> str:
        """The metrics that lead: of two runs each with its values, of several which runs are better and worse."""
        if len(self.differences) == 1:
            return self.first.summary
        sentences = []
        for key in self.first.leading:
            names: dict[str, list[str]] = {"better": [], "worse": [], "no change shown": [], "not measured": []}
            for name, change in zip(self.names[1:], self.changes(key), strict=True):
                word = {1: "better", -1: "worse", 0: "no change shown"}[change.direction]
                word = "not measured" if math.isnan(change.difference.value) else word
                names[word].append(f"{name} ({format_value(change.difference.value, signed=True)})")
            clauses = "; ".join(f"{word}: {', '.join(runs)}" for word, runs in names.items() if runs)
            heading = self.first.metrics[key].metric.heading
            sentences.append(f"{capitalised(heading)} against {self.names[0]}. {capitalised(clauses)}.")
        return " ".join(sentences)

    @property
    def losses(self) -> str:
        """Which other metrics, labels and sizes are worse; of several runs in each."""
        if len(self.differences) == 1:
            return self.first.losses
        worse = {name: "; ".join(difference.worse) for name, difference in self._others}
        sentences = [f"Worse in {name}: {changes}." for name, changes in worse.items() if changes]
        return " ".join(sentences) or "No other metric, label or size is shown to be worse."

    @property
    def training_reward(self) -> str:
        """How the reward rose or fell in the training, as in `0.433 → 0.565, first and last 10 of 200`."""
        rewards = read_series(self.log, "reward").get("")
        return "" if rewards is None else first_and_last(rewards.y.tolist())

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
        """Keys of the metrics that are shown first: those that were chosen, or the core."""
        changes = {key: self.first.metrics[key] for key in self.first.core if key in self.metrics}
        return [key for key, change in changes.items() if is_measured(change.a) or is_measured(change.b)]

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
        """A line for each of these metrics, in groups."""
        lines: list[list[str | Cell]] = []
        for group, members in group_metrics(keys):
            lines.append([Cell(group.title, group.definition)])
            for key in members:
                metric = self.first.metrics[key].metric
                lines.append(_line(metric.heading + " ↓" * (metric.lower_is_better is True), self.changes(key)))
        return Table(self._header, lines)

    def further_tables(self) -> list[Table]:
        """A line for each label and each size of the reference boxes, and the baselines of two runs."""
        tables = []
        for title, name in (("Reference boxes by label", "labels"), ("Reference boxes by size", "sizes")):
            # The runs have the same reference boxes, and so the same groups.
            groups = list(zip(*(getattr(difference, name) for difference in self.differences), strict=True))
            rows = [
                _line(
                    f"{several[0].name} ({several[0].boxes}), {change.metric.heading}",
                    [group.changes[key] for group in several],
                )
                for several in groups
                for key, change in several[0].changes.items()
            ]
            tables += [Table(self._header, rows, title)] if rows else []
        if len(self.differences) == 1 and (baselines := self.baselines[0]):
            nothing = (math.nan,)
            values = [
                [
                    self.first.metrics[key].metric.heading,
                    *(format_value(metrics.get(key, nothing)[0]) for metrics in baselines.values()),
                ]
                for key in self.metrics
            ]
            tables.append(Table(["metric", *baselines], values, "Baselines on the same images"))
        return tables

    @property
    def _header(self) -> list[str | Cell]:
        return ["metric", *self.names, *([Cell("change", "better / worse / same")] if len(self.names) == 2 else [])]

    @property
    def caption(self) -> str:
        """How to read the tables."""
        several = f" Beneath each value: its difference from {self.names[0]}." if len(self.names) > 2 else ""
        return (
            "Better or worse: the 95 % interval of the change excludes 0, and Holm's p over the metrics shown is below "
            f"{LEVEL:g}; else no change is shown. ↓: lower is better.{several}"
        )

    @property
    def tests_caption(self) -> str:
        """What stands beneath the changes, and which tests Holm's p accounts for."""
        sides = f"Better / worse / same: on how many {self.first.units}. "
        return (
            f"{sides * (len(self.names) == 2)}p: two-sided, of a permutation test in which the runs change places on "
            f"{self.first.units}. Holm: p adjusted for the metrics that are shown, for all others, for labels, or for "
            "sizes."
        )

    def print(self, console: Console, *, every: bool = False) -> None:
        """Print the tables, and the verdict last, where it is seen.

        Args:
            console: a ``rich.console.Console``; two runs fit into 80 columns.
            every: whether to print all metrics, labels, sizes, baselines and tests, not the core alone.
        """
        from rich.text import Text

        for line in self.facts:
            console.print(Text(line))
        several = len(self.names) > 2
        tables = [self.table(self.metrics), *self.further_tables()] if every else [self.table(self.core)]
        for table in tables:
            # Names are broken into lines where a metric has several anyway, and numbers where there are many runs.
            unbroken = () if several else range(1, len(table.header)) if every else (0,)
            console.print(table.rich(small=every or several, unbroken=unbroken))
        more = self.tests_caption if every else "--all: every metric, labels, sizes, baselines and tests."
        console.print(Text(f"{self.caption} {more}", style="dim"))
        console.print(Text(self.summary, style="bold"))
        if self.training_reward:
            console.print(Text(f"Reward in training {self.training_reward} steps."))
        console.print(Text(self.losses, style="bold"))

    def markdown(self) -> str:
        """The verdict and all tables as Markdown."""
        parts = [self.verdict, "\n".join(f"- {line}" for line in self.facts)]
        for table in (self.table(self.metrics), *self.further_tables()):
            parts += [*([f"**{table.title}**"] if table.title else []), table.markdown()]
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
        metrics: those that are shown beside `metric`; without any the core, and all others on request.
        label_matching: as for :func:`grounding_rewards.metrics.comparison.compare_runs`; None for that of the
            evaluations.
        resamples: draws of the permutation test.
        seed: of all draws.
        reward: by which images are chosen; None for that of the second evaluation.
        log: of the training of the second run; None for log.jsonl beside its checkpoint, if there is one.

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
    reward = reward or evaluations[1].reward
    options: dict[str, Any] = {"label_matching": matching, "resamples": resamples, "seed": seed}
    core = metrics or (*CORE_METRICS, f"reward_{reward}")
    differences = [compare_runs(runs[0], run, main=metric, core=core, **options) for run in runs[1:]]
    # Where a run states no confidences its boxes are ranked otherwise, and the same key is another metric.
    first, *others = (difference.metrics for difference in differences)
    common = [
        key
        for key, change in first.items()
        if all(key in other and other[key].metric.heading == change.metric.heading for other in others)
    ]
    for key in metrics:
        if key not in common:
            near = difflib.get_close_matches(key, common, 1)
            guess = f"Did you mean {near[0]}? " if near else ""
            raise ValueError(
                f"Expected metrics of all runs for --metrics, got {key!r}. {guess}They have: {', '.join(common)}."
            )
    made = [evaluation.facts for evaluation in evaluations]
    entries = _training_log(log, made[1])
    return Comparison(
        differences=differences,
        paths=(files := list(map(Path, paths))),
        names=run_names(files),
        metrics=list(dict.fromkeys((*metrics, metric))) if metrics else common,
        # They stand beside both runs where they were measured on the same images, by the same labels.
        baselines=[
            dict([*evaluation.systems.items()][1:])
            if not difference.only_b and evaluation.label_matching == matching
            else {}
            for difference, evaluation in zip(differences, evaluations[1:], strict=True)
        ],
        images=runs,
        made=made,
        reward=reward,
        log=entries,
        evaluated=_evaluated(first.get("sampled_reward"), made, evaluations[1].reward, entries),
    )


def _training_log(log: str | Path | None, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a training logged: in the file that was named, else beside the model that was evaluated, if at all."""
    if log is not None:
        return read_entries(Path(log))
    beside = Path(str(facts.get("model", ""))).parent / LOG
    return read_entries(beside) if "model" in facts and beside.is_file() else []


def _evaluated(
    change: Change | None, made: Sequence[Mapping[str, Any]], reward: str, log: Sequence[Mapping[str, Any]]
) -> Curve | None:
    """The sampled reward at the first and the last step, where one run is the initial checkpoint of the other."""
    before, after = (facts.get("model") for facts in made[:2])
    if change is None or not log or before is None or after is None:
        return None
    start, trained = initial_checkpoint(Path(after)), trained_reward(Path(after))
    if start is None or Path(before).resolve() != Path(start).resolve() or trained is None or trained[0] != reward:
        return None
    steps = np.array([0.0, max(float(entry.get("step", 0)) for entry in log)])
    return Curve("held-out images", steps, *np.transpose([change.a, change.b]))


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
    """The cells of a metric: of two runs both values and their change, of several the change beneath each value."""
    line: list[str | Cell] = [name, estimate_cell(changes[0].a)]
    for change in changes:
        holm = "" if math.isnan(change.holm) else f"Holm {p_cell(change.holm)}"
        kind = kind_of(change.direction)
        if len(changes) == 1:
            units = " / ".join(map(str, change.units)) if any(change.units) else ""
            p = "" if math.isnan(change.p) else f"p {p_cell(change.p)}, {holm}"
            small = "\n".join(filter(None, (units, p)))
            line += [estimate_cell(change.b), Cell(format_estimate(change.difference, signed=True), small, kind)]
        else:
            difference = estimate_cell(change.difference, signed=True)
            small = "\n".join(filter(None, (difference.text, difference.small, holm)))
            line.append(Cell(estimate_cell(change.b).text, small, kind))
    return line


def kind_of(sign: float) -> str:
    """How a change is coloured."""
    return "better" if sign > 0 else "worse" if sign < 0 else "soft"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_FACT else text[: _LONGEST_FACT - 1] + "…"

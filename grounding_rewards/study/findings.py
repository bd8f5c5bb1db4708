"""What a study found: every arm by every ruler, against the reference and against its initial checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from grounding_rewards.common.arithmetic import Array
from grounding_rewards.metrics.comparison import holm
from grounding_rewards.metrics.curves import Curve
from grounding_rewards.metrics.estimates import Estimate, estimate_as_json, finite_or_none
from grounding_rewards.metrics.intervals import sum_by_group
from grounding_rewards.study.results import CONTROL, ArmKey, Study, StudyRun
from grounding_rewards.study.rulers import RULERS, read_model, ruler_of
from grounding_rewards.study.statistics import (
    ALPHA,
    RESAMPLES,
    Difference,
    detectable_difference,
    difference,
    mean_of_runs,
    patient_weights,
)

if TYPE_CHECKING:
    import pandas

#: Of the training log: the share of groups whose completions all earned alike, from which nothing is learned.
NO_SPREAD = "frac_reward_zero_std"
# By set and ruler the metric of every run on every draw of patients, ``(draws + 1, runs)``.
_Tables = Mapping[str, Mapping[str, Array]]


@dataclass(frozen=True)
class ArmFound:
    """One arm from one start.

    Attributes:
        key: start and arm.
        is_control: whether nobody expects it to teach.
        reward: of the runs; None of supervised ones.
        seeds: numbers of its runs.
        runs: the primary metric of each.
        metrics: by set and ruler the mean over runs.
        against_reference: by set and ruler; None for the reference itself.
        against_start: likewise.
        holm_reference: p of the primary metric, adjusted for all arms that are compared with a reference.
        holm_start: likewise, for all arms.
        curves: over steps, mean, lowest and highest seed: `learning`, of the primary metric at the checkpoints, and
            :data:`NO_SPREAD` where the log has it.
        compute: means over runs.
    """

    key: ArmKey
    is_control: bool
    reward: Mapping[str, Any] | None
    seeds: tuple[int, ...]
    runs: Array
    metrics: Mapping[str, Mapping[str, Estimate]]
    against_reference: Mapping[str, Mapping[str, Difference]] | None
    against_start: Mapping[str, Mapping[str, Difference]]
    holm_reference: float
    holm_start: float
    curves: Mapping[str, Curve]
    compute: Mapping[str, float]


@dataclass(frozen=True)
class Findings:
    """What a study found.

    Attributes:
        study: its files.
        arms: every arm with at least two runs, start by start, controls last.
        starts: by start, set and ruler the metric of the start.
        seed_variance: between the runs of an arm, of the primary metric, pooled over the arms.
        patient_variance: of a difference because of the patients, mean over the comparisons.
        family: number of comparisons with a reference, for which p is adjusted.
        patients: by set how many there are.
        resamples: draws of patients.
    """

    study: Study
    arms: tuple[ArmFound, ...]
    starts: Mapping[str, Mapping[str, Mapping[str, Estimate]]]
    seed_variance: float
    patient_variance: float
    family: int
    patients: Mapping[str, int]
    resamples: int

    @property
    def primary(self) -> str:
        """Key of the declared metric."""
        return self.study.declared.metric

    @property
    def on(self) -> str:
        """The declared set."""
        return self.study.declared.on

    @property
    def seeds(self) -> int:
        """Of the arm that has fewest."""
        return min(len(arm.seeds) for arm in self.arms)

    def of_start(self, start: str) -> list[ArmFound]:
        """The arms from one start."""
        return [arm for arm in self.arms if arm.key.start == start]

    def primary_difference(self, arm: ArmFound, *, start: bool = False) -> Difference | None:
        """By the declared metric against the reference, or against the start."""
        table = arm.against_start if start else arm.against_reference
        return None if table is None else table[self.on][self.primary]

    def detectable(self, seeds: int) -> float:
        """The difference of the declared metric that so many seeds an arm find, see the module of statistics.

        At the strictest level that Holm asks of a comparison with the reference.
        """
        return detectable_difference(
            self.seed_variance, seeds, patient_variance=self.patient_variance, alpha=ALPHA / max(1, self.family)
        )

    def start_name(self, start: str) -> str:
        """What a start is called in sentences and tables."""
        return "the start" if len(self.starts) == 1 else f"the {start} start"

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each model, set and ruler: the mean over runs, and the differences with their intervals.

        The row of a start has no `arm`. p is not adjusted here.
        """
        for start, tables in self.starts.items():
            for on, key in ((on, key) for on in self.study.sets for key in RULERS):
                at = {"start": start, "set": on, "metric": key}
                yield {**at, "arm": None, **tables[on][key]._asdict()}
                for arm in self.of_start(start):
                    row: dict[str, Any] = {**at, "arm": arm.key.arm, **arm.metrics[on][key]._asdict()}
                    for against, table in (("reference", arm.against_reference), ("start", arm.against_start)):
                        one = None if table is None else table[on][key]
                        for name in ("value", "low", "high", "p"):
                            row[f"against_{against}_{name}"] = None if one is None else getattr(one, name)
                    yield row

    def to_dataframe(self) -> pandas.DataFrame:
        """:meth:`rows` as a table of pandas."""
        import pandas

        return pandas.DataFrame(list(self.rows()))

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain values; null where there is nothing to measure."""
        return {
            "study": self.study.name,
            "declared": {"metric": self.primary, "set": self.on, "reference": self.study.declared.reference},
            "seed_variance": finite_or_none(self.seed_variance),
            "patient_variance": finite_or_none(self.patient_variance),
            "detectable": {str(n): finite_or_none(self.detectable(n)) for n in (self.seeds, 5, 10, 20)},
            "family": self.family,
            "patients": dict(self.patients),
            "resamples": self.resamples,
            "starts": {start: _plain(tables) for start, tables in self.starts.items()},
            "arms": [
                {
                    **arm.key._asdict(),
                    "control": arm.is_control,
                    "reward": arm.reward,
                    "seeds": list(arm.seeds),
                    "runs": list(map(finite_or_none, arm.runs)),
                    "metrics": _plain(arm.metrics),
                    "against_reference": arm.against_reference and _plain(arm.against_reference),
                    "against_start": _plain(arm.against_start),
                    "holm_reference": finite_or_none(arm.holm_reference),
                    "holm_start": finite_or_none(arm.holm_start),
                    "compute": dict(arm.compute),
                }
                for arm in self.arms
            ],
        }


def find(
    study: Study,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    on_progress: Callable[[str], None] = lambda what: None,
) -> Findings:
    """Measure every model of a study by every ruler, and compare arms.

    Args:
        study: of :func:`grounding_rewards.study.results.read_study`.
        resamples: draws of patients.
        seed: of all draws.
        on_progress: called with the name of each arm before it is measured.

    Raises:
        ValueError: the declared metric is no ruler, or images lack what metrics are made of.
    """
    primary, on, reference = ruler_of(study.declared.metric), study.declared.on, study.declared.reference
    first = study.starts[next(iter(study.starts))]
    groups = {name: read_model(study.sets[name], first.answers[name], study.box_format).patients for name in study.sets}
    patients = {name: int(one.max(initial=-1)) + 1 for name, one in groups.items()}
    weights = {name: patient_weights(n, resamples=resamples, seed=seed) for name, n in patients.items()}

    def measure(models: Sequence[Any]) -> _Tables:
        """The last checkpoints, all on the same draws of patients."""
        tables = {}
        for name, rows in study.sets.items():
            read = [read_model(rows, model.answers[name], study.box_format) for model in models]
            tables[name] = {
                key: np.column_stack(
                    [
                        ruler.combine(weights[name] @ sum_by_group(ruler.parts(one), groups[name].tolist()))
                        for one in read
                    ]
                )
                for key, ruler in RULERS.items()
            }
        return tables

    def compare(own: _Tables, other: _Tables) -> dict[str, dict[str, Difference]]:
        return {
            name: {key: difference(table, other[name][key], patients=patients[name]) for key, table in rulers.items()}
            for name, rulers in own.items()
        }

    def means(own: _Tables) -> dict[str, dict[str, Estimate]]:
        return {
            name: {key: mean_of_runs(table, patients=patients[name]) for key, table in rulers.items()}
            for name, rulers in own.items()
        }

    def at_checkpoints(runs: Sequence[StudyRun], at_start: float, at_end: Array) -> Curve:
        steps = [one.step for one in runs[0].checkpoints]
        values = [[at_start] * len(runs)]
        for k, _ in enumerate(steps[:-1]):
            texts = [run.checkpoints[k].answers[on] for run in runs if len(run.checkpoints) == len(steps)]
            values.append([primary.value(read_model(study.sets[on], one, study.box_format)) for one in texts])
        return _over_seeds([0, *steps], [*values, at_end.tolist()])

    of_starts: dict[str, _Tables] = {}
    for start, checkpoint in study.starts.items():
        on_progress(f"start {start}")
        of_starts[start] = measure([checkpoint])
    tables: dict[ArmKey, _Tables] = {}
    for key, runs in study.arms.items():
        on_progress(f"{key.start}, {key.arm}")
        tables[key] = measure([run.checkpoints[-1] for run in runs])
    against = {key: compare(own, tables[ArmKey(key.start, reference)]) for key, own in tables.items()}
    against = {key: found for key, found in against.items() if key.arm != reference}
    since = {key: compare(own, of_starts[key.start]) for key, own in tables.items()}
    p_reference = _adjusted({key: found[on][primary.key].p for key, found in against.items()})
    p_start = _adjusted({key: found[on][primary.key].p for key, found in since.items()})
    arms = []
    for key, runs in study.arms.items():
        own = tables[key][on][primary.key][0]
        learning = at_checkpoints(runs, of_starts[key.start][on][primary.key][0, 0], own)
        spread = _logged(runs, NO_SPREAD)
        arms.append(
            ArmFound(
                key=key,
                is_control=study.role(key) == CONTROL,
                reward=runs[0].reward,
                seeds=tuple(run.seed for run in runs),
                runs=own,
                metrics=means(tables[key]),
                against_reference=against.get(key),
                against_start=since[key],
                holm_reference=p_reference.get(key, math.nan),
                holm_start=p_start[key],
                curves={"learning": learning, **({} if spread is None else {NO_SPREAD: spread})},
                compute=_compute(runs),
            )
        )
    order = list(study.starts)
    arms.sort(key=lambda arm: (order.index(arm.key.start), arm.is_control))
    noise = [one[on][primary.key].patient_variance for one in against.values()]
    return Findings(
        study=study,
        arms=tuple(arms),
        starts={start: means(one) for start, one in of_starts.items()},
        seed_variance=_pooled([arm.runs for arm in arms if not arm.is_control] or [arm.runs for arm in arms]),
        patient_variance=float(np.mean(noise)) if noise else 0.0,
        family=len(against),
        patients=patients,
        resamples=resamples,
    )


def _over_seeds(steps: Sequence[float], rows: Sequence[Sequence[float]]) -> Curve:
    of = [np.array([np.nan if not row else edge(row) for row in rows]) for edge in (np.mean, np.min, np.max)]
    return Curve("", np.array(steps, dtype=np.float64), *of)


def _logged(runs: Sequence[StudyRun], name: str) -> Curve | None:
    """A curve of the log where the runs have it."""
    by_step: dict[float, list[float]] = {}
    for run in runs:
        for step, value in zip(run.curve.get("step", ()), run.curve.get(name, ()), strict=False):
            if value is not None:
                by_step.setdefault(float(step or 0), []).append(float(value))
    steps = sorted(by_step)
    return _over_seeds(steps, [by_step[step] for step in steps]) if steps else None


def _compute(runs: Sequence[StudyRun]) -> dict[str, float]:
    names = dict.fromkeys(name for run in runs for name in run.compute)
    return {name: float(np.mean([run.compute.get(name, 0) or 0 for run in runs])) for name in names}


def _adjusted(p_values: Mapping[ArmKey, float]) -> dict[ArmKey, float]:
    return dict(zip(p_values, holm(list(p_values.values())), strict=True))


def _pooled(runs: Sequence[Array]) -> float:
    several = [one for one in runs if len(one) > 1]
    freedom = sum(len(one) - 1 for one in several)
    return sum(float(one.var(ddof=1)) * (len(one) - 1) for one in several) / freedom if freedom else math.nan


def _plain(table: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Estimates, and differences with their p."""
    return {
        on: {
            key: {**estimate_as_json(one[:3]), **({"p": finite_or_none(one.p)} if isinstance(one, Difference) else {})}
            for key, one in metrics.items()
        }
        for on, metrics in table.items()
    }

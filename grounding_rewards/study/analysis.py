"""What a study found: every arm by every ruler, against the reference and against its initial checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from grounding_rewards.common.formatting import finite_or_none
from grounding_rewards.common.numeric import Array
from grounding_rewards.common.validation import check_word
from grounding_rewards.metrics.average_precision import Curve
from grounding_rewards.metrics.comparison import direction, holm
from grounding_rewards.metrics.intervals import Estimate, group_numbers, ratios, sum_by_group
from grounding_rewards.metrics.prediction import Prediction, patients_of
from grounding_rewards.study.results import CONTROL, Answers, ArmKey, Measure, Study, StudyRun
from grounding_rewards.study.rulers import RULERS, read_model, ruler_sums
from grounding_rewards.study.statistics import (
    RESAMPLES,
    Difference,
    by_checkpoint,
    difference,
    mean_of_runs,
    paired_difference,
    patient_weights,
)

if TYPE_CHECKING:
    import pandas

#: Of the training log: the share of groups whose completions all earned alike, from which nothing is learned.
NO_SPREAD = "frac_reward_zero_std"
#: What an arm is held against.
REFERENCE, START = "reference", "start"
# Every ruler on every set, of several models on every draw of patients, ``(draws + 1, models)``.
_Tables = Mapping[Measure, Array]


@dataclass(frozen=True)
class ArmFound:
    """One arm from one kind of initial checkpoint.

    Attributes:
        key: initial checkpoint and arm.
        is_control: whether nobody expects it to teach.
        reward: of the runs; None of supervised ones.
        seeds: numbers of its runs.
        metrics: by ruler and set the mean over runs.
        against: by :data:`REFERENCE` (not the reference itself) and :data:`START`, ruler and set.
        holm: likewise, by primary metric: p, adjusted for all arms and primary metrics.
        curves: over steps, mean, lowest and highest seed: `learning`, of the first primary metric at the checkpoints,
            and :data:`NO_SPREAD` where the log has it.
        compute: means over runs.
    """

    key: ArmKey
    is_control: bool
    reward: Mapping[str, Any] | None
    seeds: tuple[int, ...]
    metrics: Mapping[Measure, Estimate]
    against: Mapping[str, Mapping[Measure, Difference]]
    holm: Mapping[str, Mapping[Measure, float]]
    curves: Mapping[str, Curve]
    compute: Mapping[str, float]

    def difference(self, measure: Measure, against: str) -> Difference | None:
        """None for the reference against itself."""
        return self.against[against][measure] if against in self.against else None

    def direction(self, primary: Measure, against: str) -> int:
        """1 where the arm is better, -1 where it is worse, 0 where neither is shown, by a primary metric."""
        adjusted = self.holm[against][primary]
        lower_is_better = RULERS[primary.metric].lower_is_better
        return direction(self.against[against][primary].estimate, adjusted, lower_is_better=lower_is_better)


@dataclass(frozen=True)
class StudyResult:
    """What a study found.

    Attributes:
        study: its files.
        arms: every arm with at least two runs, by initial checkpoint, controls last.
        starts: by kind of initial checkpoint, ruler and set the metric, the mean over checkpoints.
        patients: by set how many there are.
        resamples: draws of patients.
    """

    study: Study
    arms: tuple[ArmFound, ...]
    starts: Mapping[str, Mapping[Measure, Estimate]]
    patients: Mapping[str, int]
    resamples: int

    @property
    def family(self) -> int:
        """Number of comparisons with a reference, for which p is adjusted."""
        return sum(len(arm.holm.get(REFERENCE, ())) for arm in self.arms)

    def of_start(self, start: str) -> list[ArmFound]:
        """The arms from one kind of initial checkpoint."""
        return [arm for arm in self.arms if arm.key.start == start]

    def start_name(self, start: str) -> str:
        """What an initial checkpoint is called in sentences and tables."""
        return f"the {start} checkpoint" if len(self.starts) > 1 else "the initial checkpoint"

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each model, set and ruler: the mean over runs, and the differences with their intervals.

        The row of an initial checkpoint has no `arm`; `holm` is p after the adjustment, of the primary metrics alone.
        """
        for start, metrics in self.starts.items():
            for measure, of_start in metrics.items():
                at = {"start": start, "set": measure.on, "metric": measure.metric}
                yield {**at, "arm": None, **of_start._asdict()}
                for arm in self.of_start(start):
                    row: dict[str, Any] = {**at, "arm": arm.key.arm, **arm.metrics[measure]._asdict()}
                    for against in (REFERENCE, START):
                        one = arm.difference(measure, against)
                        row |= {f"against_{against}_{name}": getattr(one, name, None) for name in _OF_DIFFERENCE}
                        row[f"against_{against}_holm"] = arm.holm.get(against, {}).get(measure)
                    yield row

    def to_dataframe(self) -> pandas.DataFrame:
        """:meth:`rows` as a table of pandas."""
        import pandas

        return pandas.DataFrame(list(self.rows()))

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain values; null where there is nothing to measure."""
        plain = [
            {name: finite_or_none(value) if isinstance(value, float) else value for name, value in row.items()}
            for row in self.rows()
        ]
        return {
            "study": self.study.name,
            "primary": [one._asdict() for one in self.study.primary],
            "reference": self.study.reference,
            "equivalence": self.study.equivalence,
            "family": self.family,
            "patients": dict(self.patients),
            "resamples": self.resamples,
            "arms": [
                {
                    **arm.key._asdict(),
                    "control": arm.is_control,
                    "reward": arm.reward,
                    "seeds": list(arm.seeds),
                    "compute": dict(arm.compute),
                }
                for arm in self.arms
            ],
            "rows": plain,
        }


_OF_DIFFERENCE = ("value", "low", "high", "p")


def find(
    study: Study,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    on_progress: Callable[[str], None] = lambda what: None,
) -> StudyResult:
    """Measure every model of a study by every ruler, and compare arms.

    Args:
        study: of :func:`grounding_rewards.study.results.read_study`.
        resamples: draws of patients.
        seed: of all draws.
        on_progress: called with the name of each arm before it is measured.

    Raises:
        ValueError: a declared metric is no ruler, or images lack what metrics are made of.
    """
    for one in study.primary:
        check_word("the primary metric", one.metric, RULERS)
    leading = study.primary[0]

    def read(model: Answers, on: str) -> list[Prediction]:
        return read_model(study.sets[on], model[on], study.box_format)

    first = next(iter(next(iter(study.starts.values())).values()))
    groups = {on: group_numbers(patients_of(read(first, on)), len(rows)) for on, rows in study.sets.items()}
    patients = {on: int(one.max(initial=-1)) + 1 for on, one in groups.items()}
    weights = {on: patient_weights(n, resamples=resamples, seed=seed) for on, n in patients.items()}

    def measure(models: Sequence[Answers]) -> _Tables:
        """The models, all on the same draws of patients."""
        tables = {}
        for on in study.sets:
            several = [ruler_sums(read(model, on)) for model in models]
            for key in several[0]:
                by_patient = [sum_by_group(sums[key], groups[on].tolist()) for sums in several]
                tables[Measure(key, on)] = np.column_stack([ratios(weights[on] @ sums) for sums in by_patient])
        return tables

    def compare(own: ArmKey, other: _Tables, of: Sequence[str]) -> dict[Measure, Difference]:
        """An arm with other models, begun from ``of``; in pairs from the same checkpoint where there are several."""
        mine = [run.start for run in study.arms[own]]
        if len(study.starts[own.start]) == 1 or not set(mine) <= set(of):
            return {at: difference(table, other[at], patients=patients[at.on]) for at, table in tables[own].items()}
        order = sorted(set(mine))
        return {
            at: paired_difference(
                by_checkpoint(table, mine, order), by_checkpoint(other[at], of, order), patients=patients[at.on]
            )
            for at, table in tables[own].items()
        }

    def means(own: _Tables, of: Sequence[str]) -> dict[Measure, Estimate]:
        order = sorted(set(of))
        return {
            at: mean_of_runs(by_checkpoint(table, of, order) if len(order) > 1 else table, patients=patients[at.on])
            for at, table in own.items()
        }

    of_starts: dict[str, _Tables] = {}
    for start, models in study.starts.items():
        on_progress(f"start {start}")
        of_starts[start] = measure(list(models.values()))
    tables: dict[ArmKey, _Tables] = {}
    for key, runs in study.arms.items():
        on_progress(f"{key.start}, {key.arm}")
        tables[key] = measure([_last(run) for run in runs])
    against: dict[ArmKey, dict[str, dict[Measure, Difference]]] = {}
    for key in tables:
        against[key] = {START: compare(key, of_starts[key.start], list(study.starts[key.start]))}
        if key.arm != study.reference:
            other = ArmKey(key.start, study.reference)
            against[key][REFERENCE] = compare(key, tables[other], [run.start for run in study.arms[other]])
    adjusted: dict[ArmKey, dict[str, dict[Measure, float]]] = {
        key: {name: {} for name in against[key]} for key in against
    }
    for name in (REFERENCE, START):
        places = [(key, at) for key in against if name in against[key] for at in study.primary]
        for (key, at), p in zip(places, holm([against[key][name][at].p for key, at in places]), strict=True):
            adjusted[key][name][at] = p

    def curves(key: ArmKey, runs: Sequence[StudyRun]) -> dict[str, Curve]:
        """The first primary metric at the checkpoints, and groups without spread."""
        learning: dict[float, list[float]] = {0.0: of_starts[key.start][leading][0].tolist()}
        for run in runs:
            for step, answers in list(run.checkpoints.items())[:-1]:
                sums = ruler_sums(read(answers, leading.on))[leading.metric]
                learning.setdefault(step, []).append(ratios(sums.sum(axis=0)))
        learning[max(runs[0].checkpoints)] = tables[key][leading][0].tolist()
        logged: dict[float, list[float]] = {}
        for run in runs:
            for at, value in zip(run.curve["step"], run.curve.get(NO_SPREAD, ()), strict=False):
                if at is not None and value is not None:
                    logged.setdefault(at, []).append(value)
        return {name: _over_seeds(of) for name, of in (("learning", learning), (NO_SPREAD, logged)) if of}

    arms = [
        ArmFound(
            key=key,
            is_control=runs[0].role == CONTROL,
            reward=runs[0].reward,
            seeds=tuple(run.seed for run in runs),
            metrics=means(tables[key], [run.start for run in runs]),
            against=against[key],
            holm=adjusted[key],
            curves=curves(key, runs),
            compute={name: float(np.mean([run.compute[name] for run in runs])) for name in runs[0].compute},
        )
        for key, runs in study.arms.items()
    ]
    order = list(study.starts)
    return StudyResult(
        study=study,
        arms=tuple(sorted(arms, key=lambda arm: (order.index(arm.key.start), arm.is_control))),
        starts={start: means(one, list(study.starts[start])) for start, one in of_starts.items()},
        patients=patients,
        resamples=resamples,
    )


def _last(run: StudyRun) -> Answers:
    return run.checkpoints[max(run.checkpoints)]


def _over_seeds(values: Mapping[float, Sequence[float]]) -> Curve:
    """A curve of the mean, between the lowest and the highest seed."""
    steps = sorted(values)
    of = [np.array([edge(values[step]) for step in steps]) for edge in (np.mean, np.min, np.max)]
    return Curve("", np.array(steps, dtype=np.float64), *of)

"""What a study found: every arm by every ruler, against the reference and against its initial checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from grounding_rewards.common.arithmetic import Array
from grounding_rewards.metrics.comparison import holm
from grounding_rewards.metrics.curves import Curve
from grounding_rewards.metrics.estimates import Estimate, estimate_as_json, finite_or_none
from grounding_rewards.metrics.intervals import sum_by_group
from grounding_rewards.study.results import CONTROL, ArmKey, Checkpoint, Primary, Study, StudyRun
from grounding_rewards.study.rulers import RULERS, read_model, ruler_of
from grounding_rewards.study.statistics import (
    RESAMPLES,
    Difference,
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
# By set and ruler the metric of every run on every draw of patients, ``(draws + 1, runs)``.
_Tables = Mapping[str, Mapping[str, Array]]
_Differences = Mapping[str, Mapping[str, Difference]]


@dataclass(frozen=True)
class ArmFound:
    """One arm from one kind of start.

    Attributes:
        key: start and arm.
        is_control: whether nobody expects it to teach.
        reward: of the runs; None of supervised ones.
        seeds: numbers of its runs.
        runs: the first primary metric of each.
        metrics: by set and ruler the mean over runs.
        against: by :data:`REFERENCE` (not the reference itself) and :data:`START`, set and ruler.
        holm: likewise, by primary metric: p, adjusted for all arms and primary metrics.
        curves: over steps, mean, lowest and highest seed: `learning`, of the first primary metric at the checkpoints,
            and :data:`NO_SPREAD` where the log has it.
        compute: means over runs.
    """

    key: ArmKey
    is_control: bool
    reward: Mapping[str, Any] | None
    seeds: tuple[int, ...]
    runs: Array
    metrics: Mapping[str, Mapping[str, Estimate]]
    against: Mapping[str, _Differences]
    holm: Mapping[str, Mapping[Primary, float]]
    curves: Mapping[str, Curve]
    compute: Mapping[str, float]

    def difference(self, primary: Primary, against: str) -> Difference | None:
        """By a primary metric; None for the reference against itself."""
        return self.against[against][primary.on][primary.metric] if against in self.against else None


@dataclass(frozen=True)
class Findings:
    """What a study found.

    Attributes:
        study: its files.
        arms: every arm with at least two runs, start by start, controls last.
        starts: by start, set and ruler the metric of the start, the mean where each seed has its own.
        family: number of comparisons with a reference, for which p is adjusted.
        patients: by set how many there are.
        resamples: draws of patients.
    """

    study: Study
    arms: tuple[ArmFound, ...]
    starts: Mapping[str, Mapping[str, Mapping[str, Estimate]]]
    family: int
    patients: Mapping[str, int]
    resamples: int

    def of_start(self, start: str) -> list[ArmFound]:
        """The arms from one kind of start."""
        return [arm for arm in self.arms if arm.key.start == start]

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
                    for against in (REFERENCE, START):
                        one = arm.difference(Primary(key, on), against)
                        for name in ("value", "low", "high", "p"):
                            row[f"against_{against}_{name}"] = None if one is None else getattr(one, name)
                    yield row

    def to_dataframe(self) -> pandas.DataFrame:
        """:meth:`rows` as a table of pandas."""
        import pandas

        return pandas.DataFrame(list(self.rows()))

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain values; null where there is nothing to measure."""
        declared = self.study.declared
        return {
            "study": self.study.name,
            "declared": {
                "primary": [one._asdict() for one in declared.primary],
                "reference": declared.reference,
                "equivalence": declared.equivalence,
            },
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
                    **{f"against_{name}": _plain(table) for name, table in arm.against.items()},
                    "holm": {
                        name: [{**one._asdict(), "p": finite_or_none(p)} for one, p in of.items()]
                        for name, of in arm.holm.items()
                    },
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
        ValueError: a declared metric is no ruler, or images lack what metrics are made of.
    """
    declared = study.declared
    for one in declared.primary:
        ruler_of(one.metric)
    first = next(iter(next(iter(study.starts.values())).values()))
    groups = {name: read_model(study.sets[name], first.answers[name], study.box_format).patients for name in study.sets}
    patients = {name: int(one.max(initial=-1)) + 1 for name, one in groups.items()}
    weights = {name: patient_weights(n, resamples=resamples, seed=seed) for name, n in patients.items()}

    def measure(models: Sequence[Checkpoint]) -> _Tables:
        """The models, all on the same draws of patients."""
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

    def compare(own: ArmKey, other: _Tables, of: Sequence[Any]) -> _Differences:
        """An arm with other models; in pairs from the same checkpoint where each seed has its own."""
        mine = [run.start for run in study.arms[own]]
        columns = [of.index(start) for start in mine if start in of]
        pairs = len(study.starts[own.start]) > 1 and len(columns) == len(mine)
        return {
            name: {
                key: paired_difference(table, other[name][key][:, columns], patients=patients[name])
                if pairs
                else difference(table, other[name][key], patients=patients[name])
                for key, table in rulers.items()
            }
            for name, rulers in tables[own].items()
        }

    def means(own: _Tables) -> dict[str, dict[str, Estimate]]:
        return {
            name: {key: mean_of_runs(table, patients=patients[name]) for key, table in rulers.items()}
            for name, rulers in own.items()
        }

    of_starts: dict[str, _Tables] = {}
    for start, checkpoints in study.starts.items():
        on_progress(f"start {start}")
        of_starts[start] = measure(list(checkpoints.values()))
    tables: dict[ArmKey, _Tables] = {}
    for key, runs in study.arms.items():
        on_progress(f"{key.start}, {key.arm}")
        tables[key] = measure([run.checkpoints[-1] for run in runs])
    against: dict[ArmKey, dict[str, _Differences]] = {}
    for key in tables:
        against[key] = {START: compare(key, of_starts[key.start], list(study.starts[key.start]))}
        if key.arm != declared.reference:
            other = ArmKey(key.start, declared.reference)
            against[key][REFERENCE] = compare(key, tables[other], [run.start for run in study.arms[other]])
    adjusted = {name: _adjusted(against, name, declared.primary) for name in (REFERENCE, START)}
    leading = declared.primary[0]

    def learning(runs: Sequence[StudyRun], start: str, at_end: Array) -> Curve:
        """The first primary metric at the checkpoints."""
        steps = [one.step for one in runs[0].checkpoints]
        values = [of_starts[start][leading.on][leading.metric][0].tolist()]
        for k, _ in enumerate(steps[:-1]):
            texts = [run.checkpoints[k].answers[leading.on] for run in runs if len(run.checkpoints) == len(steps)]
            read = [read_model(study.sets[leading.on], one, study.box_format) for one in texts]
            values.append([ruler_of(leading.metric).value(one) for one in read])
        return _over_seeds([0, *steps], [*values, at_end.tolist()])

    arms = []
    for key, runs in study.arms.items():
        own = tables[key][leading.on][leading.metric][0]
        spread = _logged(runs, NO_SPREAD)
        arms.append(
            ArmFound(
                key=key,
                is_control=study.role(key) == CONTROL,
                reward=runs[0].reward,
                seeds=tuple(run.seed for run in runs),
                runs=own,
                metrics=means(tables[key]),
                against=against[key],
                holm={name: adjusted[name][key] for name in against[key]},
                curves={
                    "learning": learning(runs, key.start, own),
                    **({} if spread is None else {NO_SPREAD: spread}),
                },
                compute=_compute(runs),
            )
        )
    order = list(study.starts)
    arms.sort(key=lambda arm: (order.index(arm.key.start), arm.is_control))
    return Findings(
        study=study,
        arms=tuple(arms),
        starts={start: means(one) for start, one in of_starts.items()},
        family=sum(map(len, adjusted[REFERENCE].values())),
        patients=patients,
        resamples=resamples,
    )


def _adjusted(
    against: Mapping[ArmKey, Mapping[str, _Differences]], name: str, primary: Sequence[Primary]
) -> dict[ArmKey, dict[Primary, float]]:
    """p of every arm and primary metric, after Holm over all of them."""
    places = [(key, one) for key, tables in against.items() if name in tables for one in primary]
    found = holm([against[key][name][one.on][one.metric].p for key, one in places])
    made: dict[ArmKey, dict[Primary, float]] = {}
    for (key, one), p in zip(places, found, strict=True):
        made.setdefault(key, {})[one] = p
    return made


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


def _plain(table: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Estimates, and differences with their p."""
    return {
        on: {
            key: {**estimate_as_json(one[:3]), **({"p": finite_or_none(one.p)} if isinstance(one, Difference) else {})}
            for key, one in metrics.items()
        }
        for on, metrics in table.items()
    }

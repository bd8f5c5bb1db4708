"""What a study found: every arm by every ruler, against the reference and against its start."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.common.arithmetic import Array
from grounding_rewards.metrics.bootstrap import sum_by_group
from grounding_rewards.metrics.comparison import holm
from grounding_rewards.metrics.estimates import Estimate
from grounding_rewards.metrics.ranking import Indices
from grounding_rewards.rewards import SPECIFICATION_REWARDS
from grounding_rewards.study.audited import Flagged
from grounding_rewards.study.results import CONTROL, ArmKey, Study, StudyRun
from grounding_rewards.study.rulers import RULERS, SOFT, ModelAnswers, image_scores, read_model, ruler_of
from grounding_rewards.study.statistics import (
    ALPHA,
    RESAMPLES,
    Difference,
    detectable_difference,
    difference,
    improvement_estimate,
    interquartile_estimate,
    mean_of_runs,
    patient_weights,
    performance_profile,
    profile_band,
    seeds_to_settle,
)

#: How a reward treats boxes that overlap too little, by name of the family.
THRESHOLDED, LOWERED, SCHEDULED, UNTHRESHOLDED = "thresholded", "lower threshold", "scheduled", "without a threshold"
#: Thresholds of profiles.
PROFILE_THRESHOLDS = np.linspace(0, 1, 51)[:-1]
# From which a threshold is the specification's.
_USUAL_THRESHOLD = 0.5
# Of the curves in the log, those that the page shows over seeds.
CURVES = ("reward", "frac_reward_zero_std", "mean_iou", "hallucination_rate", "entropy")
_NO_SPREAD = "frac_reward_zero_std"


class Band(NamedTuple):
    """A curve over steps: the mean over seeds, and the lowest and highest seed."""

    steps: Array
    mean: Array
    low: Array
    high: Array


class Profile(NamedTuple):
    """The share of images, all runs together, above each of :data:`PROFILE_THRESHOLDS`, with its band."""

    share: Array
    low: Array
    high: Array


class Signal(NamedTuple):
    """Mean share of groups whose completions all earned alike, over the run and over its first quarter."""

    whole: float
    begin: float


class Contrast(NamedTuple):
    """Families of rewards from one start: the arms of each, what it changed, and how far it is from the thresholded.

    change: of the primary metric since the start, mean over the family's arms.
    gap: less the change of the thresholded ones; None of these themselves.
    no_spread: share of groups in which all completions earn alike, mean over its arms.
    """

    family: str
    arms: tuple[ArmKey, ...]
    change: Difference
    gap: Difference | None
    no_spread: float


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
        interquartile: mean of the primary metric.
        improvement: probability of improvement over the reference; None for the reference itself.
        settled_by: seeds an arm that would show the difference seen; None where no number does, or it is the reference.
        learning: the primary metric at the checkpoints.
        curves: of the training log.
        profile: of the primary metric by image; None where an image has none.
        signal: NaN where the log does not say.
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
    interquartile: Estimate
    improvement: Estimate | None
    settled_by: int | None
    learning: Band
    curves: Mapping[str, Band]
    profile: Profile | None
    signal: Signal
    compute: Mapping[str, float]

    @property
    def own_ruler(self) -> str | None:
        """The ruler that is the reward this arm was trained on, with whatever parameters."""
        name = None if self.reward is None else self.reward.get("name")
        return f"reward_{name}" if isinstance(name, str) and f"reward_{name}" in RULERS else None


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
        contrasts: by start what families of rewards did.
        resamples: draws of patients.
        trained: rulers that some arm was trained on.
        audited: what an audit of the arms' rewards flagged, of :func:`grounding_rewards.study.audited.audit_arms`.
    """

    study: Study
    arms: tuple[ArmFound, ...]
    starts: Mapping[str, Mapping[str, Mapping[str, Estimate]]]
    seed_variance: float
    patient_variance: float
    family: int
    patients: Mapping[str, int]
    contrasts: Mapping[str, tuple[Contrast, ...]]
    resamples: int
    trained: frozenset[str]
    audited: Mapping[ArmKey, tuple[Flagged, ...]] = field(default_factory=dict)

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

    @property
    def level(self) -> float:
        """The strictest level that Holm asks of a comparison with the reference."""
        return ALPHA / max(1, self.family)

    def of_start(self, start: str) -> list[ArmFound]:
        """The arms from one start."""
        return [arm for arm in self.arms if arm.key.start == start]

    def primary_of(self, arm: ArmFound) -> Estimate:
        """The declared metric of an arm."""
        return arm.metrics[self.on][self.primary]

    def primary_difference(self, arm: ArmFound, *, start: bool = False) -> Difference | None:
        """By the declared metric against the reference, or against the start."""
        table = arm.against_start if start else arm.against_reference
        return None if table is None else table[self.on][self.primary]

    def detectable(self, seeds: int) -> float:
        """The difference of the declared metric that so many seeds an arm find, see the module of statistics."""
        return detectable_difference(
            self.seed_variance, seeds, patient_variance=self.patient_variance, alpha=self.level
        )

    @property
    def untrained(self) -> list[str]:
        """Headings of the rulers that no arm was trained on."""
        return [ruler.heading for ruler in RULERS.values() if ruler.key not in self.trained]

    def start_name(self, start: str) -> str:
        """What a start is called in sentences and tables."""
        return "the start" if len(self.starts) == 1 else f"the {start} start"

    def name(self, arm: ArmFound | ArmKey) -> str:
        """What an arm is called: with its start where there are several."""
        key = arm.key if isinstance(arm, ArmFound) else arm
        return key.arm if len(self.starts) == 1 else f"{key.arm}, {key.start} start"


class _Measured(NamedTuple):
    """Metrics of one model on one set: by ruler ``(draws + 1,)``, and of its images by the primary ruler."""

    metrics: Mapping[str, Array]
    images: Array | None


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
        on_progress: called with the name of each run before it is measured.

    Raises:
        ValueError: the declared metric is no ruler, or images lack what metrics are made of.
    """
    primary = ruler_of(study.declared.metric)
    measure = _Measurer(study, resamples, seed)
    of_starts: dict[str, _Tables] = {}
    for start, checkpoint in study.starts.items():
        on_progress(f"start {start}")
        of_starts[start] = _tables({on: [measure(on, checkpoint.answers[on])] for on in study.sets})
    last: dict[ArmKey, dict[str, list[_Measured]]] = {}
    for key, runs in study.arms.items():
        on_progress(f"{key.start}, {key.arm}")
        last[key] = {on: [measure(on, run.checkpoints[-1].answers[on]) for run in runs] for on in study.sets}
    tables = {key: _tables(models) for key, models in last.items()}
    compare = partial(_differences, patients=measure.patients)
    reference = {key: ArmKey(key.start, study.declared.reference) for key in tables}
    against_reference = {key: compare(tables[key], tables[other]) for key, other in reference.items() if key != other}
    against_start = {key: compare(tables[key], of_starts[key.start]) for key in tables}
    on = study.declared.on
    p_reference = _adjusted({key: found[on][primary.key].p for key, found in against_reference.items()})
    p_start = _adjusted({key: found[on][primary.key].p for key, found in against_start.items()})
    level = ALPHA / max(1, len(against_reference))
    groups = measure.answers_of(on, study.starts[next(iter(of_starts))].answers[on]).patients
    arms = []
    for key, runs in study.arms.items():
        own = tables[key][on][primary.key]
        found = against_reference.get(key)
        mine = None if found is None else found[on][primary.key]
        settle = {} if mine is None else {"patient_variance": mine.patient_variance, "alpha": level}
        arms.append(
            ArmFound(
                key=key,
                is_control=study.role(key) == CONTROL,
                reward=runs[0].reward,
                seeds=tuple(run.seed for run in runs),
                runs=own[0],
                metrics=_means(tables[key], patients=measure.patients),
                against_reference=found,
                against_start=against_start[key],
                holm_reference=p_reference.get(key, math.nan),
                holm_start=p_start[key],
                interquartile=interquartile_estimate(own, seed=seed),
                improvement=None
                if mine is None
                else improvement_estimate(own, tables[reference[key]][on][primary.key], seed=seed),
                settled_by=None if mine is None else seeds_to_settle(mine.value, mine.seed_variance, **settle),
                learning=_learning(study, runs, of_starts[key.start][on][primary.key][0], own[0]),
                curves={name: band for name in CURVES if (band := _band(runs, name)) is not None},
                profile=_profile([one.images for one in last[key][on]], groups, seed),
                signal=_signal(runs),
                compute=_compute(runs),
            )
        )
    order = list(study.starts)
    arms.sort(key=lambda arm: (order.index(arm.key.start), arm.is_control))
    rewarding = [arm for arm in arms if not arm.is_control] or arms
    compared = [found[on][primary.key] for found in against_reference.values()]
    return Findings(
        study=study,
        arms=tuple(arms),
        starts={start: _means(one, patients=measure.patients) for start, one in of_starts.items()},
        seed_variance=_pooled([arm.runs for arm in rewarding]),
        patient_variance=float(np.mean([one.patient_variance for one in compared])) if compared else 0.0,
        family=len(against_reference),
        patients=measure.patients,
        contrasts={
            start: _contrasts(
                [arm for arm in arms if arm.key.start == start],
                tables,
                of_starts[start],
                on,
                primary.key,
                measure.patients[on],
            )
            for start in order
        },
        resamples=resamples,
        trained=frozenset(arm.own_ruler for arm in arms if arm.own_ruler),
    )


def family_of(reward: Mapping[str, Any] | None) -> str | None:
    """How a reward treats boxes that overlap too little; None where that cannot be said, as of controls.

    Example:
        >>> family_of({"name": "R3", "kwargs": {}}), family_of({"name": "R5", "kwargs": {"iou_threshold": 0.3}})
        ('thresholded', 'lower threshold')
        >>> family_of({"name": "R3", "kwargs": {"iou_threshold": {"schedule": "linear", "from": 0.1, "to": 0.5}}})
        'scheduled'
        >>> family_of({"name": "soft_f1", "kwargs": {}}), family_of({"name": "constant", "kwargs": {}})
        ('without a threshold', None)
    """
    if reward is None or not isinstance(reward.get("name"), str):
        return None
    options = reward.get("kwargs") or {}
    if any(isinstance(value, Mapping) and "schedule" in value for value in options.values()):
        return SCHEDULED
    if reward["name"] == SOFT:
        return UNTHRESHOLDED
    if reward["name"] in SPECIFICATION_REWARDS:
        return THRESHOLDED if float(options.get("iou_threshold", 0.5)) >= _USUAL_THRESHOLD else LOWERED
    return None


class _Measurer:
    """Metrics of models on the sets of a study, all on the same draws of patients."""

    def __init__(self, study: Study, resamples: int, seed: int) -> None:
        self._study, self._primary = study, ruler_of(study.declared.metric)
        first = study.starts[next(iter(study.starts))]
        read = {on: self.answers_of(on, first.answers[on]) for on in study.sets}
        self.patients = {on: int(one.patients.max(initial=-1)) + 1 for on, one in read.items()}
        self._weights = {on: patient_weights(n, resamples=resamples, seed=seed) for on, n in self.patients.items()}

    def answers_of(self, on: str, texts: Sequence[str]) -> ModelAnswers:
        return read_model(self._study.sets[on], texts, self._study.box_format)

    def __call__(self, on: str, texts: Sequence[str]) -> _Measured:
        answers = self.answers_of(on, texts)
        patients = answers.patients.tolist()
        metrics = {
            key: ruler.combine(self._weights[on] @ sum_by_group(ruler.parts(answers), patients))
            for key, ruler in RULERS.items()
        }
        return _Measured(metrics, image_scores(self._primary, answers))


def _learning(study: Study, runs: Sequence[StudyRun], at_start: Array, at_end: Array) -> Band:
    """The declared metric at the start and at every checkpoint that all runs have."""
    ruler, on = ruler_of(study.declared.metric), study.declared.on
    steps = [one.step for one in runs[0].checkpoints]
    rows = [at_start.tolist() * len(runs)]
    for k, _ in enumerate(steps[:-1]):
        rows.append(
            [
                ruler.value(read_model(study.sets[on], run.checkpoints[k].answers[on], study.box_format))
                for run in runs
                if len(run.checkpoints) == len(steps)
            ]
        )
    rows.append(at_end.tolist())
    return _over_seeds([0, *steps], rows)


def _over_seeds(steps: Sequence[float], rows: Sequence[Sequence[float]]) -> Band:
    of = [np.array([np.nan if not row else edge(row) for row in rows]) for edge in (np.mean, np.min, np.max)]
    return Band(np.array(steps, dtype=np.float64), *of)


def _band(runs: Sequence[StudyRun], name: str) -> Band | None:
    """A curve of the log where the runs have it, at the steps of the shortest."""
    series = [
        [(step, value) for step, value in zip(run.curve["step"], run.curve[name], strict=False) if value is not None]
        for run in runs
        if name in run.curve and "step" in run.curve
    ]
    if not series:
        return None
    by_step: dict[float, list[float]] = {}
    for points in series:
        for step, value in points:
            by_step.setdefault(float(step or 0), []).append(float(value))
    steps = sorted(by_step)
    return _over_seeds(steps, [by_step[step] for step in steps]) if steps else None


def _signal(runs: Sequence[StudyRun]) -> Signal:
    whole, begin = [], []
    for run in runs:
        values = [value for value in run.curve.get(_NO_SPREAD, ()) if value is not None]
        if values:
            whole.append(float(np.mean(values)))
            begin.append(float(np.mean(values[: max(1, len(values) // 4)])))
    return Signal(*(float(np.mean(one)) if one else math.nan for one in (whole, begin)))


def _compute(runs: Sequence[StudyRun]) -> dict[str, float]:
    names = dict.fromkeys(name for run in runs for name in run.compute)
    return {name: float(np.mean([run.compute.get(name, 0) or 0 for run in runs])) for name in names}


def _profile(images: Sequence[Array | None], groups: Indices, seed: int) -> Profile | None:
    known = [one for one in images if one is not None]
    if not known:
        return None
    scores = np.array(known)
    low, high = profile_band(scores, PROFILE_THRESHOLDS, groups.tolist(), seed=seed)
    return Profile(performance_profile(scores, PROFILE_THRESHOLDS), low, high)


# By set and ruler ``(draws + 1, runs)``.
_Tables = Mapping[str, Mapping[str, Array]]


def _tables(models: Mapping[str, Sequence[_Measured]]) -> _Tables:
    return {
        on: {ruler: np.column_stack([one.metrics[ruler] for one in of_set]) for ruler in RULERS}
        for on, of_set in models.items()
    }


def _means(tables: _Tables, *, patients: Mapping[str, int]) -> dict[str, dict[str, Estimate]]:
    return {
        on: {ruler: mean_of_runs(table, patients=patients[on]) for ruler, table in of_rulers.items()}
        for on, of_rulers in tables.items()
    }


def _differences(own: _Tables, other: _Tables, *, patients: Mapping[str, int]) -> dict[str, dict[str, Difference]]:
    return {
        on: {ruler: difference(table, other[on][ruler], patients=patients[on]) for ruler, table in of_rulers.items()}
        for on, of_rulers in own.items()
    }


def _adjusted(p_values: Mapping[ArmKey, float]) -> dict[ArmKey, float]:
    return dict(zip(p_values, holm(list(p_values.values())), strict=True))


def _pooled(runs: Iterable[Array]) -> float:
    several = [one for one in runs if len(one) > 1]
    freedom = sum(len(one) - 1 for one in several)
    return sum(float(one.var(ddof=1)) * (len(one) - 1) for one in several) / freedom if freedom else math.nan


def _contrasts(
    arms: Sequence[ArmFound],
    tables: Mapping[ArmKey, _Tables],
    start: _Tables,
    on: str,
    ruler: str,
    patients: int,
) -> tuple[Contrast, ...]:
    """What families of rewards did from one start; runs of one seed of a family's arms are averaged."""
    members = {
        family: [arm for arm in arms if not arm.is_control and family_of(arm.reward) == family]
        for family in (THRESHOLDED, LOWERED, SCHEDULED, UNTHRESHOLDED)
    }
    averaged = {}
    for family, of_family in members.items():
        common = set.intersection(*(set(arm.seeds) for arm in of_family)) if of_family else set()
        if len(common) > 1:
            averaged[family] = np.mean(
                [
                    tables[arm.key][on][ruler][:, [arm.seeds.index(seed) for seed in sorted(common)]]
                    for arm in of_family
                ],
                axis=0,
            )
    base = averaged.get(THRESHOLDED)
    return tuple(
        Contrast(
            family,
            tuple(arm.key for arm in members[family]),
            difference(table, start[on][ruler], patients=patients),
            None if base is None or family == THRESHOLDED else difference(table, base, patients=patients),
            float(np.mean([arm.signal.whole for arm in members[family]])),
        )
        for family, table in averaged.items()
    )

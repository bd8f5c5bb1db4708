"""Measure every model of a study by every metric, and compare the arms.

The unit is the initial checkpoint: if a kind has several, the runs from one checkpoint are averaged; from a single
checkpoint each run is a unit. A run is compared with its initial checkpoint, or with the run of the reference arm from
the same checkpoint with the same seed. So a difference has one value ``d_k`` for each of n units, and

    mean ± t_{n-1} · s(d) / √n

is its 95 % interval, with Student's p. The interval over patients says how much another test set would change the
difference of the same models, see :mod:`grounding_rewards.metrics.intervals`; with a single unit it is the only one.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from grounding_rewards.columns import patient_of
from grounding_rewards.common.formatting import as_json
from grounding_rewards.common.numeric import Array
from grounding_rewards.common.validation import check_word
from grounding_rewards.metrics.comparison import direction, holm
from grounding_rewards.metrics.detection import MatchedImages, label_groups, reference_sums
from grounding_rewards.metrics.image_dependence import dependence_sums
from grounding_rewards.metrics.intervals import (
    SIGNED,
    UNIT,
    Estimate,
    Jackknifed,
    jackknifed_difference,
    jackknifed_ratio,
    sum_by_group,
)
from grounding_rewards.metrics.prediction import Prediction, patients_of
from grounding_rewards.metrics.read_predictions import read_predictions
from grounding_rewards.parsing.space_check import SpaceWarning
from grounding_rewards.rewards import SPECIFICATION_REWARDS
from grounding_rewards.rewards.grounding import get_reward
from grounding_rewards.study.results import CONTROL, ArmKey, Completions, Measure, Study

if TYPE_CHECKING:
    import pandas

#: The partners that an arm is compared with: the reference arm, and its initial checkpoint.
REFERENCE, START = "reference", "start"
#: The reward without a threshold, a metric next to R1 … R5.
SOFT = "soft_f1"
# Below this, differences are rounding.
_ROUNDING = 1e-12


class StudyMetric(NamedTuple):
    """The heading of a metric in tables, and whether less of it is better."""

    heading: str
    lower_is_better: bool = False


#: By key the metrics of every model; each is a ratio of sums over images, and a key that metrics/ has is that metric.
METRICS = {
    "mean_iou": StudyMetric("mean IoU"),
    "f1_50": StudyMetric("F1@0.5"),
    "image_dependence": StudyMetric("image dependence"),
    "placing": StudyMetric("placing"),
    "precision_50": StudyMetric("precision@0.5"),
    "recall_50": StudyMetric("recall@0.5"),
    "hallucination_rate": StudyMetric("hallucination", lower_is_better=True),
    "dice": StudyMetric("Dice"),
    **{f"reward_{name}": StudyMetric(name.replace("_", " ")) for name in (*SPECIFICATION_REWARDS, SOFT)},
}


def model_predictions(rows: Sequence[Mapping[str, Any]], texts: Sequence[str], box_format: Any) -> list[Prediction]:
    """Read the predictions of a model on the images of a set, scored by every reward that is a metric.

    Args:
        rows: of the images, with boxes, width and height.
        texts: the completion to each.
        box_format: how the model writes boxes; None if the rows say it.

    Raises:
        ValueError: a row lacks boxes or sizes.
    """
    reward = get_reward(SOFT, box_format=box_format)
    with warnings.catch_warnings():
        # Not again: the training has warned of boxes outside the declared space, and the boxes of an initial checkpoint
        # that has learned little fit no space.
        warnings.simplefilter("ignore", SpaceWarning)
        return read_predictions(rows, [[text] for text in texts], reward)


def metric_sums(images: Sequence[Prediction]) -> dict[str, Array]:
    """By key of :data:`METRICS` the numerator and denominator for each image, ``(images, 2)``; recall also by finding.

    Example:
        >>> image = Prediction("a", 9, 9, gt=[[0, 0, 4, 4]], gt_labels=["x"], pred=[[0, 0, 4, 2]], rewards={})
        >>> metric_sums([image])["mean_iou"]
        array([[0.5, 1. ]])
    """
    matched = MatchedImages(images)
    sums = dict(matched.sums())
    sums["image_dependence"] = dependence_sums(images).by_image
    sums["placing"] = dependence_sums(images, same_labels=True).by_image
    # Those of METRICS alone, in its order; images without rewards lack some.
    sums = {key: sums[key] for key in METRICS if key in sums}
    for (label, key), label_sums in reference_sums(matched, label_groups(images)).items():
        # Only recall@0.5 is reported by finding.
        if key == "recall_50":
            sums[f"{key} of {label}"] = label_sums
    return sums


class ModelMetric(NamedTuple):
    """A row of the table of a study: one metric of one model.

    Attributes:
        start: kind of its initial checkpoint.
        checkpoint: name of its initial checkpoint.
        arm: of the run; None for the initial checkpoint itself.
        seed: of the run; None for the initial checkpoint itself.
        step: of the training; 0 for the initial checkpoint.
        measure: the metric and its set.
        metric: its value, with its values when each patient is left out.
    """

    start: str
    checkpoint: str
    arm: str | None
    seed: int | None
    step: int
    measure: Measure
    metric: Jackknifed


def model_table(study: Study, on_progress: Callable[[str], None] = lambda step: None) -> list[ModelMetric]:
    """Measure every model of a study by every metric; returns a row for each model, set and metric.

    Trained models and initial checkpoints are measured on all sets, checkpoints in between only on the set of the
    first primary metric.
    """
    table: list[ModelMetric] = []
    for start, checkpoints in study.starts.items():
        on_progress(f"start {start}")
        for checkpoint, completions in checkpoints.items():
            for measure, value in _measure(study, completions, study.sets):
                # An initial checkpoint is no run: it has neither arm nor seed.
                table.append(ModelMetric(start, checkpoint, arm=None, seed=None, step=0, measure=measure, metric=value))
    for (start, arm), runs in study.arms.items():
        on_progress(f"{start}, {arm}")
        primary_set = study.primary_of(start)[0].on
        for run in runs:
            for step, completions in run.checkpoints.items():
                # The last checkpoint is the trained model.
                sets = study.sets if step == run.last_step else [primary_set]
                for measure, value in _measure(study, completions, sets):
                    table.append(ModelMetric(start, run.start, arm, run.seed, step, measure, value))
    return table


def _measure(study: Study, completions: Completions, sets: Iterable[str]) -> Iterator[tuple[Measure, Jackknifed]]:
    """Yield every metric of a model on some sets, with its value and its values when each patient is left out.

    `completions` are the model's answers by set.
    """
    for name in sets:
        images = model_predictions(study.sets[name], completions[name], study.box_format)
        # Where no patient is known, each image counts as one.
        patients = patients_of(images) or range(len(images))
        for key, sums in metric_sums(images).items():
            # These two are differences, of either sign; all others lie between 0 and 1.
            bounds = SIGNED if key in ("image_dependence", "placing") else UNIT
            yield Measure(key, name), jackknifed_ratio(sum_by_group(sums, patients), bounds)


class Difference(NamedTuple):
    """The mean of an arm's runs less that of the reference arm, or less that of its initial checkpoints.

    Attributes:
        value: the difference.
        low: lower end of its 95 % interval over units.
        high: upper end of that interval.
        p: two-sided; NaN if the units do not vary, or there are none.
        patients: the same difference with its 95 % interval over patients.
    """

    value: float
    low: float
    high: float
    p: float
    patients: Estimate

    @property
    def estimate(self) -> Estimate:
        """The value with its interval over units."""
        return Estimate(self.value, self.low, self.high)


def student_difference(units: Sequence[Jackknifed]) -> Difference:
    """Test the mean of some values against 0 by Student's t.

    Args:
        units: each with its value, and its values when each patient is left out; a single unit is tested over patients.

    Returns:
        The mean with its 95 % interval and p; NaN for what cannot be told. Its interval over patients is beside it.

    Example:
        >>> units = [Jackknifed(value, np.array([value, value]), 2) for value in (0.1, 0.2, 0.3)]
        >>> difference = student_difference(units)
        >>> [round(number, 3) for number in difference[:4]]
        [0.2, -0.048, 0.448, 0.074]
    """
    from scipy.stats import t

    if not units or any(math.isnan(unit.value) for unit in units):
        nan = math.nan
        return Difference(nan, nan, nan, nan, Estimate(nan, nan, nan))
    mean = _mean(units)
    value, n = mean.value, len(units)
    if n > 1:
        error = float(np.std([unit.value for unit in units], ddof=1)) / math.sqrt(n)
        freedom = n - 1
    else:
        # One unit says nothing about the spread over units: that over patients takes its place.
        error, freedom = mean.standard_error, mean.units - 1
    if error < _ROUNDING:
        # All units are equal: either there is no difference, and p is 1, or t would be endless, and there is no p.
        return Difference(value, value, value, 1.0 if abs(value) < _ROUNDING else math.nan, mean.estimate)
    if math.isinf(error):
        # A single unit on fewer than two patients.
        return Difference(value, math.nan, math.nan, math.nan, mean.estimate)
    reach = float(t.ppf(0.975, freedom)) * error
    p = float(2 * t.sf(abs(value) / error, freedom))
    return Difference(value, value - reach, value + reach, p, mean.estimate)


def _mean(metrics: Sequence[Jackknifed]) -> Jackknifed:
    """The mean of metrics over the same patients, whose number and bounds it has."""
    return metrics[0]._replace(
        value=float(np.mean([metric.value for metric in metrics])),
        left_out=np.mean([metric.left_out for metric in metrics], axis=0),
        bias=float(np.mean([metric.bias for metric in metrics])),
    )


def compare_rows(rows: Sequence[ModelMetric], partner_rows: Sequence[ModelMetric]) -> Difference:
    """The mean difference of a metric between runs and their partners.

    Args:
        rows: one metric of the runs of an arm.
        partner_rows: the same metric of the partners: runs of the reference arm, from the same checkpoint with the same
            seed, or the initial checkpoints of the runs. A run without its partner is left out.
    """
    partners = {(row.checkpoint, row.seed): row.metric for row in partner_rows}
    changes: list[tuple[ModelMetric, Jackknifed]] = []
    for row in rows:
        # The partner is a run of the same seed; or the initial checkpoint, whose row has no seed.
        partner = partners.get((row.checkpoint, row.seed)) or partners.get((row.checkpoint, None))
        if partner is not None:
            changes.append((row, jackknifed_difference(partner, row.metric)))
    return student_difference(_units(changes))


def mean_of_rows(rows: Sequence[ModelMetric]) -> Estimate:
    """The mean of a metric over units, with its interval over them; with a single unit, over patients."""
    units = _units([(row, row.metric) for row in rows])
    return units[0].estimate if len(units) == 1 else student_difference(units).estimate


def _units(metrics: Sequence[tuple[ModelMetric, Jackknifed]]) -> list[Jackknifed]:
    """The mean metric of each unit: of all runs from one checkpoint, or of each run if all are from a single one.

    Args:
        metrics: the row of each run, which says what unit it belongs to; and its metric, or the change of that.
    """
    has_several_checkpoints = len({row.checkpoint for row, _ in metrics}) > 1
    metrics_by_unit: dict[Any, list[Jackknifed]] = defaultdict(list)
    for row, metric in metrics:
        unit = row.checkpoint if has_several_checkpoints else row.seed
        metrics_by_unit[unit].append(metric)
    return [_mean(unit_metrics) for unit_metrics in metrics_by_unit.values()]


@dataclass(frozen=True)
class ArmResult:
    """One arm from one kind of initial checkpoint.

    Attributes:
        key: initial checkpoint and arm.
        is_control: whether it is not expected to teach.
        reward: of the runs; None of supervised ones.
        seeds: numbers of its runs.
        metrics: by metric and set the mean over units.
        differences: by :data:`REFERENCE` (not the reference itself) and :data:`START`, metric and set.
        holm: by partner and primary metric p, adjusted for all arms and primary metrics of its family.
    """

    key: ArmKey
    is_control: bool
    reward: Mapping[str, Any] | None
    seeds: tuple[int, ...]
    metrics: Mapping[Measure, Estimate]
    differences: Mapping[str, Mapping[Measure, Difference]]
    holm: Mapping[str, Mapping[Measure, float]]

    def difference(self, measure: Measure, partner: str) -> Difference | None:
        """The difference from a partner by a metric; None for the reference against itself."""
        return self.differences[partner][measure] if partner in self.differences else None

    def direction(self, primary: Measure, partner: str) -> int:
        """1 if the arm is better than a partner by a primary metric, -1 if it is worse, 0 if neither is shown."""
        adjusted = self.holm[partner][primary]
        lower_is_better = METRICS[primary.metric].lower_is_better
        return direction(self.differences[partner][primary].estimate, adjusted, lower_is_better=lower_is_better)


@dataclass(frozen=True)
class StudyResult:
    """Result of a study.

    Attributes:
        study: its files.
        arms: every arm with enough runs, by initial checkpoint, controls last.
        starts: by kind of initial checkpoint, metric and set the mean over checkpoints.
        patients: number of patients of each set.
        table: every metric of every model, from which the others are computed, see :func:`model_table`.
    """

    study: Study
    arms: tuple[ArmResult, ...]
    starts: Mapping[str, Mapping[Measure, Estimate]]
    patients: Mapping[str, int]
    table: Sequence[ModelMetric]

    @property
    def family(self) -> int:
        """Number of comparisons with a reference, for which p is adjusted."""
        return sum(len(arm.holm.get(REFERENCE, ())) for arm in self.arms)

    def of_start(self, start: str) -> list[ArmResult]:
        """The arms from one kind of initial checkpoint."""
        return [arm for arm in self.arms if arm.key.start == start]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each arm, set and metric: the mean over units, and the differences with their intervals.

        The initial checkpoints of a kind have such a row too, whose `arm` is None and which has no differences. `holm`
        is the adjusted p; only primary metrics have it.
        """
        for start, metrics in self.starts.items():
            for measure, start_estimate in metrics.items():
                key = {"start": start, "set": measure.on, "metric": measure.metric}
                yield {**key, "arm": None, **start_estimate._asdict()}
                for arm in self.of_start(start):
                    row: dict[str, Any] = {**key, "arm": arm.key.arm, **arm.metrics[measure]._asdict()}
                    for partner in (REFERENCE, START):
                        # None for the reference against itself: `getattr` finds nothing, and its cells are empty.
                        difference = arm.difference(measure, partner)
                        for name in ("value", "low", "high", "p"):
                            row[f"against_{partner}_{name}"] = getattr(difference, name, None)
                        patients = None if difference is None else difference.patients
                        row[f"against_{partner}_patients_low"] = getattr(patients, "low", None)
                        row[f"against_{partner}_patients_high"] = getattr(patients, "high", None)
                        row[f"against_{partner}_holm"] = arm.holm.get(partner, {}).get(measure)
                    yield row

    def to_dataframe(self) -> pandas.DataFrame:
        """:meth:`rows` as a table of pandas."""
        import pandas

        return pandas.DataFrame(list(self.rows()))

    def to_dict(self) -> dict[str, Any]:
        """The metrics that decided and all rows as plain values; None for a number that is not finite."""
        primary = [{**primary.measure._asdict(), "start": primary.start} for primary in self.study.declared]
        return as_json({"study": self.study.name, "primary": primary, "rows": list(self.rows())})


_RowsByMeasure: TypeAlias = "dict[Measure, list[ModelMetric]]"
#: By partner, `START` or `REFERENCE`, and metric.
_Differences: TypeAlias = "dict[str, dict[Measure, Difference]]"


def analyse(study: Study, *, on_progress: Callable[[str], None] = lambda step: None) -> StudyResult:
    """Measure every model of a study by every metric, and compare arms.

    Args:
        study: of :func:`grounding_rewards.study.results.read_study`.
        on_progress: called with the name of each arm before it is measured.

    Raises:
        ValueError: a declared metric is unknown, or images lack what metrics are made of.
    """
    for measure in study.primary:
        check_word("the primary metric", measure.metric, METRICS)
    table = model_table(study, on_progress)
    # All runs of an arm have the same steps.
    last_steps = {key: runs[0].last_step for key, runs in study.arms.items()}
    # The rows of the initial checkpoints, and those of trained models; no checkpoint in between is compared.
    trained: dict[ArmKey, _RowsByMeasure] = defaultdict(lambda: defaultdict(list))
    initial: dict[str, _RowsByMeasure] = defaultdict(lambda: defaultdict(list))
    for row in table:
        if row.arm is None:
            initial[row.start][row.measure].append(row)
        elif row.step == last_steps[ArmKey(row.start, row.arm)]:
            trained[ArmKey(row.start, row.arm)][row.measure].append(row)
    differences = {key: _differences(study, key, trained, initial[key.start]) for key in trained}
    adjusted = _holm_adjusted(study, differences)
    arms = []
    for key, runs in study.arms.items():
        arm = ArmResult(
            key=key,
            is_control=runs[0].role == CONTROL,
            reward=runs[0].reward,
            seeds=tuple(run.seed for run in runs),
            metrics={measure: mean_of_rows(rows) for measure, rows in trained[key].items()},
            differences=differences[key],
            holm=adjusted[key],
        )
        arms.append(arm)
    start_order = list(study.starts)
    starts = {}
    for start, rows_by_measure in initial.items():
        starts[start] = {measure: mean_of_rows(rows) for measure, rows in rows_by_measure.items()}
    patients = {}
    for name, images in study.sets.items():
        # An image without a patient counts as one.
        patients[name] = len({patient_of(image) or number for number, image in enumerate(images)})
    return StudyResult(
        study=study,
        arms=tuple(sorted(arms, key=lambda arm: (start_order.index(arm.key.start), arm.is_control))),
        starts=starts,
        patients=patients,
        table=table,
    )


def _differences(
    study: Study, key: ArmKey, trained: Mapping[ArmKey, _RowsByMeasure], initial: _RowsByMeasure
) -> _Differences:
    """The differences of an arm from its initial checkpoints and, unless it is the reference, from the reference arm.

    Args:
        study: that has the arm.
        key: of the arm.
        trained: by arm and metric the rows of trained models.
        initial: by metric the rows of the initial checkpoints.
    """
    partners = {START: initial}
    if key.arm != study.reference:
        partners[REFERENCE] = trained[ArmKey(key.start, study.reference)]
    arm_rows = trained[key].items()
    differences: _Differences = {}
    for partner, partner_rows in partners.items():
        differences[partner] = {measure: compare_rows(rows, partner_rows[measure]) for measure, rows in arm_rows}
    return differences


def _holm_adjusted(
    study: Study, differences: Mapping[ArmKey, _Differences]
) -> dict[ArmKey, dict[str, dict[Measure, float]]]:
    """The p of each primary metric by arm and partner, adjusted by Holm for all comparisons of the same family.

    A family has the comparisons of arms with one of the partners, by the primary metrics of one kind of checkpoint.
    """
    adjusted: dict[ArmKey, dict[str, dict[Measure, float]]] = {}
    for key, by_partner in differences.items():
        adjusted[key] = {partner: {} for partner in by_partner}
    for partner in (REFERENCE, START):
        # By the kind of initial checkpoint for which a primary metric was declared; None has those for all kinds.
        families: dict[str | None, list[tuple[ArmKey, Measure]]] = defaultdict(list)
        for key, by_partner in differences.items():
            for primary in study.declared:
                # The reference arm is not compared with itself.
                if partner in by_partner and primary.start in (None, key.start):
                    families[primary.start].append((key, primary.measure))
        for comparisons in families.values():
            p_values = holm([differences[key][partner][measure].p for key, measure in comparisons])
            for (key, measure), p in zip(comparisons, p_values, strict=True):
                adjusted[key][partner][measure] = p
    return adjusted

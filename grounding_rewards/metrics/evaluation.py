"""An evaluation of predictions: metrics with intervals, all together and by label, size and source.

Every metric has a 95 % interval over patients, or over images where no patient is known: shares the exact one of
Clopper and Pearson, all others the jackknife's (:mod:`grounding_rewards.metrics.intervals`).
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.common.formatting import as_json, format_value, html_table
from grounding_rewards.common.numeric import Array
from grounding_rewards.metrics import average_precision, detection, intervals
from grounding_rewards.metrics.average_precision import RankedImages, RankingMetrics
from grounding_rewards.metrics.baselines import CONSTANT, CONSTANT_OF_THESE
from grounding_rewards.metrics.detection import CLASS_MEAN_IOU, MatchedImages, class_mean_iou_estimate
from grounding_rewards.metrics.image_dependence import (
    IMAGE_DEPENDENCE,
    ImageDependence,
    dependence_sums,
    image_dependence,
    shift_notes,
)
from grounding_rewards.metrics.intervals import Estimate, Metric, Metrics
from grounding_rewards.metrics.prediction import UNNAMED, Prediction, patients_of
from grounding_rewards.metrics.read_predictions import reading_notes
from grounding_rewards.metrics.robustness import RobustnessPoint

#: Keys of the metrics that are shown first, beside the reward that an evaluation is about.
CORE_METRICS = (
    *("recall_50", "precision_50", "f1_50", "false_per_film", "hallucination_rate", "specificity"),
    *("label_accuracy", "mean_iou", "image_dependence", "ap_50", "ap_50_95"),
)

_FILE = "evaluation.json"
# Beginning of the keys of rewards.
_REWARD = "reward_"
_NOTHING = Estimate(math.nan, math.nan, math.nan)
# Metrics of a label or a size; those about whole images say nothing there.
_BY_BOX = ("mean_iou", "f1_50", "precision_50", "recall_50", "recall_75")
_MOST_LABELS = 40
_NO_SOURCE = "not known"
# The metrics that come first in the table, after the reward.
_QUOTED = ("mean_iou", "image_dependence", "f1_50", "hallucination_rate", "map_50", "ap_50")


@dataclass(frozen=True)
class Measures:
    """Settings of an evaluation.

    Attributes:
        reward: name of the reward that it is about, a key of the images' `rewards`.
        label_matching: ``"ignore"``, ``"exact"`` or ``"synonyms"``: whether a box is right only under the finding's
            label.
        iou_thresholds: of average precision, beside the mean over 0.5 to 0.95.
        seed: of what intervals leave out.
    """

    reward: str
    label_matching: str = "ignore"
    iou_thresholds: tuple[float, ...] = average_precision.AP_THRESHOLDS
    seed: int = 0


class GroupMetrics(NamedTuple):
    """The boxes of one label, size or source: the number of reference boxes, and metrics by key."""

    name: str
    boxes: int
    metrics: Metrics


@dataclass(frozen=True)
class Evaluation:
    """Results of an evaluation. The first of ``systems`` is what was evaluated, the others are baselines.

    Attributes:
        matched: the images of the first system with their answers, whose boxes are matched.
        systems: name → estimates by key; NaN where there is nothing to measure.
        metrics: key → what is measured, in the order of tables.
        per_label: the labels of the references, the most frequent first.
        per_size: the sizes of the boxes.
        per_source: the datasets that the images are from, by name; empty where they are from one.
        ious: of every reference box with its partner.
        robustness: answers to changed images, from :func:`grounding_rewards.models.robustness.robustness`.
        dependence: what the first system's mean IoU owes to the images; None without reference boxes.
        above_constant: by key how far the first system is above the constant box, which answers the same images.
        facts: what someone needs who wants the same metrics again.
        command: what was asked for, as one line; empty where no command asked.
    """

    matched: MatchedImages
    systems: Mapping[str, Metrics]
    metrics: Mapping[str, Metric]
    per_label: tuple[GroupMetrics, ...]
    per_size: tuple[GroupMetrics, ...]
    per_source: tuple[GroupMetrics, ...]
    ious: Array
    robustness: tuple[RobustnessPoint, ...] = ()
    dependence: ImageDependence | None = None
    above_constant: Metrics = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""

    def __repr__(self) -> str:
        name, metrics = next(iter(self.systems.items()))
        values = [f"{self.metrics[key].heading} {intervals.format_estimate(metrics[key])}" for key in self._core[:3]]
        return "\n".join(filter(None, [f"{name}: {', '.join(values)}", self.looking]))

    def _repr_html_(self) -> str:
        rows = []
        for key in self._core:
            values = [intervals.format_estimate(table[key]) for table in self.systems.values()]
            rows.append([self.metrics[key].heading, *values])
        return html_table(["metric", *self.systems], rows, self.looking)

    @property
    def _core(self) -> list[str]:
        """Keys of what was measured of the first system: the core metrics, the most quoted first, then the rewards."""
        metrics = next(iter(self.systems.values()))
        quoted_core = [key for key in _QUOTED if key in CORE_METRICS]
        rewards = [key for key in metrics if key.startswith(_REWARD)]
        keys = dict.fromkeys([*quoted_core, *CORE_METRICS, *rewards])
        return [key for key in keys if key in metrics and not math.isnan(metrics[key].value)]

    @property
    def images(self) -> Sequence[Prediction]:
        """The images of the first system, with their answers."""
        return self.matched.images

    @property
    def headings(self) -> dict[str, str]:
        """The heading of every metric, by key."""
        return {key: metric.heading for key, metric in self.metrics.items()}

    @property
    def constant(self) -> Metrics:
        """The metrics of the constant box, which never looks; empty where it was not measured."""
        return self.systems.get(CONSTANT) or self.systems.get(CONSTANT_OF_THESE, {})

    @property
    def looking(self) -> str:
        """One sentence: the first system's mean IoU, what never looking would reach, and what is owed to the images.

        It opens with a verdict where the system is not shown to be better than the constant box, and a second sentence
        counts distinct answers. Empty where nothing is to be found on any image.
        """
        if self.dependence is None:
            return ""
        verdict = constant_box = ""
        constant_iou = self.constant.get("mean_iou", _NOTHING).value
        if not math.isnan(constant_iou):
            constant_box = f"the constant box, which never looks, reaches {format_value(constant_iou)}; "
            above = self.above_constant.get("mean_iou", _NOTHING)
            if above.high < 0:
                verdict = "Worse than a model that never looks: "
            # Also where the interval has no low end, NaN.
            elif not above.low > 0:
                verdict = "Not shown to be better than a model that never looks: "
        value, owed = format_value(self.dependence.value), self.dependence.sentence
        images, answers = self.dependence.images, self.dependence.distinct
        answer_note = f"All {images} images have the same answer."
        if answers > 1:
            answer_note = f"{answers} distinct answers to {images} images."
        return f"{verdict}{value} mean IoU; {constant_box}{owed}. {answer_note}"

    def to_dict(self) -> dict[str, Any]:
        """The metrics as plain values; null where there is nothing to measure."""
        return as_json(
            {
                "systems": self.systems,
                "per_label": _by_name(self.per_label),
                "per_size": _by_name(self.per_size),
                "per_source": _by_name(self.per_source),
                "above_constant": self.above_constant,
                "image_dependence": self.dependence,
                "robustness": self.robustness,
                "headings": self.headings,
                "definitions": {key: metric.definition for key, metric in self.metrics.items()},
                "facts": self.facts,
                "command": self.command,
            }
        )

    def to_dataframe(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each system and metric: the value and the ends of its interval."""
        import pandas

        rows = []
        for name, metrics in self.systems.items():
            rows += [{"system": name, "metric": key, **estimate._asdict()} for key, estimate in metrics.items()]
        return pandas.DataFrame(rows)


def _by_name(groups: Sequence[GroupMetrics]) -> dict[str, Any]:
    """The number of `boxes` and the metrics of each group, by its name."""
    return {group.name: {"boxes": group.boxes, **group.metrics} for group in groups}


def answer_notes(images: Sequence[Prediction]) -> list[str]:
    """Notes for a person on how answers were read and placed.

    Example:
        >>> len(answer_notes([Prediction("a", 9, 9, text="?", status="unparseable")]))
        1
    """
    return [*reading_notes(images), *shift_notes(images)]


def evaluate(systems: Mapping[str, Sequence[Prediction]], measures: Measures) -> Evaluation:
    """Measure what was answered, beside its baselines.

    Args:
        systems: by name the answers to the same images in the same order; the first is what is evaluated, the others
            are baselines.
        measures: settings.

    Raises:
        ValueError: a word of ``measures`` is unknown.

    Example:
        >>> image = Prediction("a", 100, 100, gt=[[0, 0, 10, 10]], gt_labels=["mass"], pred=[[0, 0, 10, 8]],
        ...                     rewards={"R3": 0.8})
        >>> found = evaluate({"model": [image]}, Measures("R3"))
        >>> found.systems["model"]["mean_iou"].value, found.headings["ap_50"]
        (0.8, 'AP at IoU 0.5, boxes tied')
    """
    model, *baselines = systems
    matched = MatchedImages(systems[model], measures.label_matching)
    images = matched.images
    # The metrics of rankings that the first system allows; baselines are ranked in the same way, to stand beside it.
    by_rank = RankingMetrics.of(images, measures.label_matching, measures.iou_thresholds)
    ranked = by_rank.rank(images)
    # Numbers of the patients, who are the units of intervals; of the images where no patient is known.
    groups = intervals.group_numbers(patients_of(images), len(images))
    dependence = None
    if any(len(image.gt) for image in images):
        dependence = image_dependence(images, label_matching=measures.label_matching, seed=measures.seed)
    tables = {model: _estimates(matched, measures, by_rank, ranked, groups, dependence)}
    above_constant: Metrics = {}
    for system in baselines:
        system_matched = MatchedImages(systems[system], measures.label_matching)
        system_ranked = by_rank.rank(system_matched.images)
        tables[system] = _estimates(system_matched, measures, by_rank, system_ranked, groups)
        # There is one constant box at most, fitted on training images or on these.
        if system in (CONSTANT, CONSTANT_OF_THESE):
            above_constant = _differences(system_matched, matched, groups)
    metrics = _table_metrics(matched, measures, by_rank, tables)
    ious, is_box = matched.best_ious
    return Evaluation(
        matched=matched,
        systems={name: {key: table.get(key, _NOTHING) for key in metrics} for name, table in tables.items()},
        metrics=metrics,
        # There is no `map`, the ranking by label, where labels cannot be compared.
        per_label=tuple(_by_label(matched, measures, ranked.get("map"), groups)),
        per_size=tuple(_by_size(matched, groups)),
        per_source=tuple(_by_source(images, measures, by_rank)),
        # Without the cells that fill the rows of images up.
        ious=ious[is_box],
        dependence=dependence,
        above_constant=above_constant,
        facts=_facts_of_images(images, measures),
    )


def _table_metrics(
    matched: MatchedImages, measures: Measures, by_rank: RankingMetrics, tables: Mapping[str, Metrics]
) -> dict[str, Metric]:
    """The metrics that can be measured of some system, by key, in the order of tables.

    The reward that the evaluation is about comes first, then what is quoted most. `tables` are the systems' estimates.
    """
    metrics = {
        **by_rank.metrics(),
        **average_precision.IMAGE_AUROC,
        **detection.DETECTION_METRICS,
        **CLASS_MEAN_IOU,
        **matched.metrics,
        **IMAGE_DEPENDENCE,
    }
    # Where there is no mAP no labels can be compared.
    if "map" not in by_rank.label_matching:
        del metrics["label_accuracy"]
    measured = {}
    for key in dict.fromkeys([_REWARD + measures.reward, *_QUOTED, *metrics]):
        values = [table.get(key, _NOTHING).value for table in tables.values()]
        if key in metrics and not all(map(math.isnan, values)):
            measured[key] = metrics[key]
    return measured


class StoredEvaluation(NamedTuple):
    """What is read again of the `evaluation.json` of a run; the defaults without that file.

    facts: how the run was measured.
    system: the name of what was evaluated.
    reward: name of the reward that the evaluation is about.
    command: what was asked for; None where the file does not say.
    """

    facts: Mapping[str, Any] = MappingProxyType({})
    system: str = "model"
    reward: str = "R4"
    command: str | None = None


def write_evaluation(folder: str | Path, evaluation: Evaluation) -> None:
    """Write `evaluation.json`.

    Example:
        >>> import tempfile
        >>> found = evaluate({"model": [Prediction("a", 9, 9, rewards={"R3": 0.8})]}, Measures("R3"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_evaluation(Path(folder), found)
        ...     stored = read_evaluation(Path(folder))
        >>> stored.reward, stored.system
        ('R3', 'model')
    """
    text = json.dumps(evaluation.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(Path(folder, _FILE), text + "\n")


def evaluation_file(run: str | Path) -> Path:
    """The path of the `evaluation.json` of an evaluation, whose folder or any file in it is `run`.

    Example:
        >>> evaluation_file(Path("runs/r4/images.jsonl")).as_posix()
        'runs/r4/evaluation.json'
    """
    return (Path(run) if Path(run).is_dir() else Path(run).parent) / _FILE


def read_evaluation(run: str | Path) -> StoredEvaluation:
    """Read the `evaluation.json` of a run; without that file, or where it does not say something, defaults are given.

    Args:
        run: folder of the evaluation, or a file in it.

    Raises:
        ValueError: the file is not one that :func:`write_evaluation` wrote.
    """
    file = evaluation_file(run)
    if not file.is_file():
        return StoredEvaluation()
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        facts = dict(content["facts"])
        # The first metric of an evaluation is the reward that it is about, and the first system what was evaluated.
        defaults = StoredEvaluation()
        first_metric = next(iter(content.get("headings", ())), "")
        reward = first_metric.removeprefix(_REWARD) if first_metric.startswith(_REWARD) else defaults.reward
        system = next(iter(content.get("systems", ())), defaults.system)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"Expected an object with `facts` in {str(file)!r}, got {type(error).__name__} ({error}). "
            "Make it anew with `grounding-rewards evaluate`."
        ) from error
    return StoredEvaluation(facts, system, reward, content.get("command"))


def _estimates(
    matched: MatchedImages,
    measures: Measures,
    by_rank: RankingMetrics,
    ranked: Mapping[str, RankedImages],
    groups: Any,
    dependence: ImageDependence | None = None,
) -> dict[str, Estimate]:
    """Every metric of one system, by key.

    Args:
        matched: the images with its answers.
        measures: the settings.
        by_rank: which metrics of rankings there are.
        ranked: the rankings that `by_rank` made of the images.
        groups: numbers of the patients, whose images are left out together.
        dependence: image dependence of these answers, if it was measured already.
    """
    estimates = intervals.ratio_estimates(matched.sums(), matched.metrics, groups)
    if dependence is None:
        sums = dependence_sums(matched.images, label_matching=matched.label_matching).by_image
        estimates |= intervals.ratio_estimates({"image_dependence": sums}, IMAGE_DEPENDENCE, groups)
    else:
        estimates["image_dependence"] = dependence.dependence
    of_ranking = by_rank.jackknifed(ranked, groups=groups, seed=measures.seed)
    estimates |= {key: metric.estimate for key, metric in of_ranking.items()}
    estimates["auroc"] = average_precision.image_auroc(matched.images, groups=groups, seed=measures.seed).estimate
    return {**estimates, "class_mean_iou": class_mean_iou_estimate(matched.areas, groups=groups)}


def _differences(before: MatchedImages, after: MatchedImages, groups: Any) -> Metrics:
    """After less before, by key, of the rewards and core metrics that are ratios of sums over images.

    Both have answers to the same images; `groups` are numbers of the patients of these.
    """
    differences = {}
    for key, metric in after.metrics.items():
        if key in before.metrics and (key in CORE_METRICS or key.startswith(_REWARD)):
            before_sums = intervals.sum_by_group(before.sums([key])[key], groups)
            after_sums = intervals.sum_by_group(after.sums([key])[key], groups)
            differences[key] = intervals.difference_estimate(before_sums, after_sums, metric)
    return differences


def _by_label(
    matched: MatchedImages, measures: Measures, ranked: RankedImages | None, groups: Any
) -> Iterator[GroupMetrics]:
    """Yield the metrics of the most frequent labels of the references.

    `ranked` are the boxes by label; None where answers state no labels. Then false boxes have none, so that only mean
    IoU and recall, which the reference boxes alone decide, are known.
    """
    label_matching = "exact" if ranked is None else ranked.label_matching
    by_label = replace(matched, label_matching=label_matching)
    # By the name of each label which reference boxes have it.
    for name, members in islice(detection.label_groups(matched.images, label_matching).items(), _MOST_LABELS):
        if ranked is None:
            reference_sums = detection.reference_sums(matched, {name: members})
            sums = {key: values for (_, key), values in reference_sums.items()}
        else:
            sums = replace(by_label, label=name).sums(_BY_BOX)
        metrics = intervals.ratio_estimates(sums, detection.DETECTION_METRICS, groups)
        if ranked is not None:
            ap = average_precision.mean_average_precision(ranked.only(name), (0.5,), groups=groups, seed=measures.seed)
            metrics["ap_50"] = ap.estimate
        yield GroupMetrics(name or UNNAMED, int(members.sum()), metrics)


def _by_size(matched: MatchedImages, groups: Any) -> Iterator[GroupMetrics]:
    """Yield the metrics of each size that some reference box has; `groups` are numbers of the patients."""
    for name, size in detection.IMAGE_SIZES.items():
        sums = replace(matched, size=size).sums(_BY_BOX)
        # The denominators of recall are numbers of reference boxes.
        boxes = int(sums["recall_50"][:, 1].sum())
        if boxes:
            yield GroupMetrics(name, boxes, intervals.ratio_estimates(sums, detection.DETECTION_METRICS, groups))


def _by_source(images: Sequence[Prediction], measures: Measures, by_rank: RankingMetrics) -> Iterator[GroupMetrics]:
    """Yield the quoted metrics over the images of each source; nothing where all images are from one source."""
    sources = sorted({image.source or _NO_SOURCE for image in images})
    if len(sources) < 2:
        return
    for source in sources:
        members = [image for image in images if (image.source or _NO_SOURCE) == source]
        matched = MatchedImages(members, measures.label_matching)
        groups = intervals.group_numbers(patients_of(members), len(members))
        estimates = _estimates(matched, measures, by_rank, by_rank.rank(matched.images), groups)
        # Each key once, in the order of tables.
        keys = dict.fromkeys([_REWARD + measures.reward, *_QUOTED, *_BY_BOX])
        metrics = {key: estimates[key] for key in keys if key in estimates}
        yield GroupMetrics(source, sum(len(image.gt) for image in members), metrics)


def _facts_of_images(images: Sequence[Prediction], measures: Measures) -> dict[str, Any]:
    """Facts about the images and the measures, by what they are about, as pages show them."""
    patients = {image.patient for image in images if image.patient is not None}
    facts: dict[str, Any] = {"images": len(images), "patients": len(patients) or "not known"}
    unknown = sum(image.patient is None for image in images)
    if patients and unknown:
        facts["images whose patient is not known"] = unknown
    facts["images without a finding"] = sum(image.is_normal for image in images)
    facts["reference boxes"] = sum(len(image.gt) for image in images)
    facts["label matching"] = measures.label_matching
    units = "patients" if patients else "images"
    facts["intervals"] = f"95 %, over {units}: of shares exact, of others by the jackknife, seed {measures.seed}"
    return facts

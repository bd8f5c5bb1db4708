"""How often do intervals hold the true metric, and how often does `diff` find a difference? By simulation; writes its
part of docs/metrics.md.

    python scripts/studies/simulate_metrics.py

A drawn population of patients is answered by drawn models, so that every true metric is known. Then patients are drawn
from it, as a test set is, again and again, and measured by the code of `evaluate` and `diff`. It takes some minutes.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.common.formatting import format_value
from grounding_rewards.common.numeric import Array
from grounding_rewards.metrics.average_precision import RankingMetrics, mean_average_precision, rank_boxes
from grounding_rewards.metrics.comparison import swap_p_values
from grounding_rewards.metrics.detection import CLASS_MEAN_IOU, MatchedImages, class_mean_iou_estimate
from grounding_rewards.metrics.intervals import Estimate, ratio_estimates, ratios, sum_by_group
from grounding_rewards.metrics.prediction import Prediction
from scripts.docs.page_parts import markdown_table, marks_of, replace_part

SIDE = 1000.0
LABELS = ("mass", "effusion", "nodule")
SIZES = (10, 40, 100)
_TESTED = ("f1_50",)

_PART = """\
**Intervals.** Share that hold the true metric, over {draws} test sets from {population} simulated patients; it should
be 0.95 (standard error {error:.3f}). *Good*: a model that does nearly everything right.

{coverage}

**Tests.** Share of these test sets with p below 0.05 in `diff`: 0.05 or less where runs are alike.

{tests}"""
MARKS = marks_of("metrics")
#: Metrics with a row of their own; of all the lowest share is told.
_SHOWN = ("ap_50", "map_50_95", "mean_iou", "f1_50", "hallucination_rate")


class Model(NamedTuple):
    """skill: log odds that a finding is found; junk: mean number of false boxes; shift: of edges, in sizes of boxes."""

    skill: float = 0.8
    junk: float = 0.35
    shift: float = 0.12
    unread: float = 0.02


RARE = Model(skill=4.0, junk=0.02, shift=0.05)


class Patient(NamedTuple):
    """What makes the images of a patient hard, and their reference boxes."""

    hard: float
    images: list[Array]


def draw_patients(rng: np.random.Generator, count: int) -> list[Patient]:
    def image() -> Array:
        findings = 0 if rng.random() < 0.4 else int(rng.integers(1, 4))
        return _boxes(rng, findings)

    return [Patient(rng.normal(), [image() for _ in range(rng.integers(1, 4))]) for _ in range(count)]


def answer(rng: np.random.Generator, patients: Sequence[Patient], model: Model) -> list[Prediction]:
    return [
        _answered(rng, f"{k}-{i}", gt, model, patient.hard)
        for k, patient in enumerate(patients)
        for i, gt in enumerate(patient.images)
    ]


def _boxes(rng: np.random.Generator, count: int) -> Array:
    corner, size = rng.uniform(0, 700, (count, 2)), rng.uniform(60, 300, (count, 2))
    return np.hstack([corner, corner + size])


def _answered(rng: np.random.Generator, name: str, gt: Array, model: Model, hard: float) -> Prediction:
    labels = tuple(LABELS[int(box[0]) % len(LABELS)] for box in gt)
    found = rng.random(len(gt)) < 1 / (1 + np.exp(hard - model.skill))
    placed = gt[found] + rng.normal(0, model.shift, (found.sum(), 4)) * np.tile(gt[found, 2:] - gt[found, :2], 2)
    invented = _boxes(rng, int(rng.poisson(model.junk * np.exp(hard / 2 - 1 / 8))))
    is_read = rng.random() >= model.unread
    pred = np.concatenate([placed, invented]) if is_read else np.zeros((0, 4))
    named = [label for label, is_found in zip(labels, found, strict=True) if is_found] + [LABELS[0]] * len(invented)
    confidences = np.concatenate([rng.beta(6, 2, len(placed)), rng.beta(3, 3, len(invented))])
    return Prediction(
        name,
        SIDE,
        SIDE,
        gt=gt,
        gt_labels=labels,
        pred=pred,
        pred_labels=tuple(label if rng.random() < 0.9 else LABELS[1] for label in named) if is_read else (),
        pred_scores=confidences if is_read else np.zeros(0),
        patient=name.partition("-")[0],
        status="boxes" if len(pred) else "empty" if is_read else "unparseable",
        rewards={"R3": float(rng.beta(2, 2))},
    )


class Population:
    """Answered images of all patients, with what their metrics are made of."""

    def __init__(self, images: Sequence[Prediction]) -> None:
        self.images = list(images)
        matched = MatchedImages(images)
        self.metrics, self.sums, self.areas = matched.metrics, matched.sums(), matched.areas
        self.by_rank = RankingMetrics.of(images)
        self.patient = np.array([int(image.patient or 0) for image in images])
        self.of_patient = np.split(np.arange(len(images)), np.flatnonzero(np.diff(self.patient)) + 1)

    def estimates(self, rows: NDArray[np.int64], groups: Sequence[int]) -> dict[str, Estimate]:
        ranked = self.by_rank.rank([self.images[row] for row in rows])
        return {
            **ratio_estimates({key: sums[rows] for key, sums in self.sums.items()}, self.metrics, groups),
            "class_mean_iou": class_mean_iou_estimate(self.areas[rows], groups=groups),
            **{key: one.estimate for key, one in self.by_rank.jackknifed(ranked, groups=groups).items()},
        }

    def draw(self, rng: np.random.Generator, patients: int) -> tuple[NDArray[np.int64], list[int]]:
        """Images of so many patients, and whose each is; a patient that is drawn twice is two patients."""
        chosen = [self.of_patient[k] for k in rng.integers(0, len(self.of_patient), patients)]
        return np.concatenate(chosen), np.repeat(np.arange(patients), list(map(len, chosen))).tolist()


def held(population: Population, patients: int, draws: int) -> dict[str, float]:
    """By metric the share of draws whose interval holds the true metric; of draws that have something to measure."""
    rng = np.random.default_rng(patients)
    everyone = np.arange(len(population.images))
    true = population.estimates(everyone, [0] * len(everyone))
    found: dict[str, list[bool]] = {key: [] for key in true}
    for _ in range(draws):
        for key, one in population.estimates(*population.draw(rng, patients)).items():
            if not math.isnan(one.low):
                found[key].append(one.low - 1e-9 <= true[key].value <= one.high + 1e-9)
    return {key: float(np.mean(holds)) if holds else math.nan for key, holds in found.items()}


def coverage_table(patients: Sequence[Patient], draws: int) -> str:
    rng = np.random.default_rng(1)
    usual, rare = (Population(answer(rng, patients, model)) for model in (Model(), RARE))
    columns = [held(which, n, draws) for which in (usual, rare) for n in SIZES[1:]]
    known = {**usual.by_rank.metrics(), **usual.metrics, **CLASS_MEAN_IOU}
    rows = [[known[key].heading, *(format_value(one[key]) for one in columns)] for key in _SHOWN]
    rows.append([f"lowest of all {len(known)}", *(format_value(min(one[key] for key in known)) for one in columns)])
    header = ["metric", *(f"{n} patients{rarely}" for rarely in ("", ", good") for n in SIZES[1:])]
    return markdown_table(header, rows)


def equal_f1(rng: np.random.Generator, patients: Sequence[Patient]) -> tuple[Model, Model]:
    """A careful and a careless model of the same F1: the careless one's false boxes are as many as that takes."""
    careful, skill = Model(skill=-0.2, junk=0.0), 2.2
    sums = [
        MatchedImages(answer(rng, patients, model)).sums(["f1_50"])["f1_50"] for model in (Model(skill, 0.0), careful)
    ]
    (twice_tp, boxes), (other, of) = (one.sum(axis=0) for one in sums)
    # F1 = 2 TP / (n + m): more false boxes until it is that of the other.
    false = twice_tp / (other / of) - boxes
    return careful, Model(skill, float(false) / sum(len(patient.images) for patient in patients))


def rejected(
    a: Mapping[str, Array], b: Mapping[str, Array], patients: int, draws: int, *, are_alike: bool
) -> list[float]:
    """For each metric the share of draws on which the permutation test has p below 0.05.

    Of two answers that are alike it is left to chance which is whose, so that there is no difference but by chance.
    """
    rng = np.random.default_rng(patients)
    count = np.zeros(len(_TESTED))
    for seed in range(draws):
        chosen = rng.integers(0, len(a[_TESTED[0]]), patients)
        changed = are_alike * rng.integers(0, 2, (patients, 1))
        both = [(a[key][chosen], b[key][chosen]) for key in _TESTED]
        one = [np.where(changed, second, first) for first, second in both]
        other = [np.where(changed, first, second) for first, second in both]
        count += np.array(swap_p_values(one, other, resamples=999, seed=seed)) < 0.05
    return (count / draws).tolist()


def rejected_ap(
    runs: Sequence[Sequence[Prediction]], of_patient: Sequence[int], patients: int, draws: int, *, are_alike: bool
) -> float:
    """The share of draws on which the permutation test of average precision has p below 0.05, as in `rejected`."""
    rng = np.random.default_rng(patients)
    starts = np.cumsum([0, *of_patient])
    count = 0
    for seed in range(draws):
        images: tuple[list[Prediction], list[Prediction]] = ([], [])
        groups: list[int] = []
        for k, chosen in enumerate(rng.integers(0, len(of_patient), patients)):
            changed = are_alike and rng.random() < 0.5
            of = slice(starts[chosen], starts[chosen + 1])
            for one, run in zip(images, runs[::-1] if changed else runs, strict=True):
                one += run[of]
            groups += [k] * of_patient[chosen]
        a, b = (mean_average_precision(rank_boxes(one, (0.5,)), groups=groups).as_mean for one in images)
        count += swap_p_values([a], [b], resamples=999, seed=seed)[0] < 0.05
    return count / draws


def test_table(patients: Sequence[Patient], draws: int) -> str:
    rng = np.random.default_rng(2)
    cases = {
        "alike": (Model(), Model()),
        "other answers, the same F1": equal_f1(rng, patients),
        "B is better": (Model(), Model(skill=1.4)),
    }
    rows = []
    of_patient = [len(patient.images) for patient in patients]
    for name, models in cases.items():
        runs = [answer(rng, patients, model) for model in models]
        groups = [image.patient for image in runs[0]]
        matched = [MatchedImages(run) for run in runs]
        a, b = ({key: sum_by_group(sums, groups) for key, sums in run.sums().items()} for run in matched)
        by_size = [rejected(a, b, n, draws, are_alike=name == "alike") for n in SIZES]
        for k, key in enumerate(_TESTED):
            values = (format_value(float(ratios(run[key].sum(axis=0)))) for run in (a, b))
            shares = (f"{one[k]:.3f}" for one in by_size)
            rows.append([name, matched[0].metrics[key].heading, *values, *shares])
        if name != "other answers, the same F1":
            ranked = [rank_boxes(run, (0.5,)) for run in runs]
            values = (format_value(mean_average_precision(one, (0.5,)).value) for one in ranked)
            shares = (f"{rejected_ap(runs, of_patient, n, draws, are_alike=name == 'alike'):.3f}" for n in SIZES)
            rows.append([name, "AP at IoU 0.5", *values, *shares])
    header = ["runs", "metric", "A", "B", *(f"{n} patients" for n in SIZES)]
    return markdown_table(header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("docs/metrics.md"), help="default: %(default)s")
    parser.add_argument("--patients", type=int, default=4000, help="in the population; default: %(default)s")
    parser.add_argument("--draws", type=int, default=1000, help="default: %(default)s")
    options = parser.parse_args()
    patients = draw_patients(np.random.default_rng(0), options.patients)
    part = _PART.format(
        population=f"{options.patients:,}",
        draws=f"{options.draws:,}",
        error=math.sqrt(0.95 * 0.05 / options.draws),
        coverage=coverage_table(patients, options.draws),
        tests=test_table(patients, options.draws),
    )
    write_whole(options.output, replace_part(options.output.read_text(encoding="utf-8"), MARKS, part))


if __name__ == "__main__":
    main()

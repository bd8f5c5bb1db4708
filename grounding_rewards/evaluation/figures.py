"""The figures of an evaluation, from scored answers.

One ruler for every reward: whatever the reward matches with, the figures about boxes use the same best
one-to-one assignment, so that models trained with different rewards can be compared.

* Predicted and reference boxes of a film are paired one to one so that the sum of their IoUs is largest
  (labels play no part, as in the rewards). A reference box's IoU is that of its partner, and 0 without one.
* ``mean_iou``, ``above_50`` and ``above_75`` are means over all reference boxes of all films, so a film
  with three findings weighs three times as much as a film with one, and a normal film not at all.
* ``f1_50`` pools the films: a pair with IoU >= 0.5 is a true positive, any other predicted box a false
  positive, any other reference box a false negative, and F1 = 2·TP / (2·TP + FP + FN).
* ``hallucination_rate`` counts normal films (no reference box) whose answer has at least one box, valid or
  not.
* ``label_accuracy`` is the share of true positives whose label is the reference's, among those that state
  one.

All of these are about the greedy answer. ``sampled_reward`` and ``unparseable_share`` are about the sampled
answers: first the mean over the answers to one film, then over films. An answer is unparseable when it holds
neither a complete box nor a stated negative, also where the reason is that it was cut off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grounding_rewards.boxes import as_box_array
from grounding_rewards.evaluation.bootstrap import (
    RESAMPLES,
    Array,
    Estimate,
    difference_estimate,
    ratio_estimate,
    resampling_counts,
    sum_by_group,
)
from grounding_rewards.matching import hungarian_match
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.scoring import ScoredCompletion

#: Key of every figure and its heading in tables, in the order of the columns.
FIGURES: dict[str, str] = {
    "sampled_reward": "sampled reward",
    "mean_iou": "mean IoU",
    "f1_50": "F1 at IoU 0.5",
    "above_50": "boxes above IoU 0.5",
    "above_75": "boxes above IoU 0.75",
    "hallucination_rate": "hallucination on normal films",
    "unparseable_share": "unparseable answers",
    "label_accuracy": "right label",
}

Figures = dict[str, Estimate]


class Pairing(NamedTuple):
    """For each reference box: ``ious`` (m,) in [0, 1]; ``partners`` (m,), index into pred or -1."""

    ious: Array
    partners: NDArray[np.int64]


@dataclass(frozen=True)
class FilmAnswers:
    """What a model said about one film: the text of its greedy answer, and all answers scored."""

    text: str
    greedy: ScoredCompletion
    sampled: tuple[ScoredCompletion, ...]


def pair_boxes(pred: ArrayLike, gt: ArrayLike) -> Pairing:
    """Pair predicted with reference boxes one to one so that the sum of IoUs is largest.

    Args:
        pred: ``(n, 4)`` xyxy.
        gt: ``(m, 4)`` xyxy, in the same space.

    Returns:
        Each reference box's IoU with its partner (0 without one) and the partner's index (-1 without one).
        Boxes that do not overlap are not partners.

    Example:
        >>> pair_boxes([[0, 0, 10, 5], [50, 50, 60, 60]], [[0, 0, 10, 10], [20, 20, 30, 30]])
        Pairing(ious=array([0.5, 0. ]), partners=array([ 0, -1]))
    """
    pred, gt = as_box_array(pred, "pred"), as_box_array(gt, "gt")
    ious, partners = np.zeros(len(gt)), np.full(len(gt), -1, dtype=np.int64)
    overlap = pairwise_iou(pred, gt)
    for i, j in hungarian_match(overlap, 0.0):
        ious[j], partners[j] = overlap[i, j], i
    return Pairing(ious, partners)


def film_sums(
    answers: Sequence[FilmAnswers], boxes: Sequence[ArrayLike], labels: Sequence[Sequence[str]]
) -> dict[str, Array]:
    """Write every figure as numerators and denominators per film.

    Args:
        answers: one per film.
        boxes: the reference boxes of each film, ``(m, 4)`` xyxy in original-image pixels.
        labels: the label of each reference box.

    Returns:
        For each key of :data:`FIGURES` a ``(films, 2)`` array, for
        :mod:`grounding_rewards.evaluation.bootstrap`.

    Raises:
        ValueError: the three sequences differ in length.
    """
    if not len(answers) == len(boxes) == len(labels):
        raise ValueError(
            "Expected as many answers as films for `answers`, got "
            f"{len(answers)} answers, {len(boxes)} rows of boxes and {len(labels)} rows of labels. "
            "Give one of each per film, in the same order."
        )
    films = [_one_film(*film) for film in zip(answers, boxes, labels, strict=True)]
    return {key: np.array([film[key] for film in films], dtype=np.float64).reshape(-1, 2) for key in FIGURES}


def _one_film(answer: FilmAnswers, boxes: ArrayLike, labels: Sequence[str]) -> Mapping[str, tuple[float, float]]:
    gt = as_box_array(boxes)
    parsed = answer.greedy.parsed
    ious, partners = pair_boxes(parsed.boxes, gt)
    n, m = len(parsed.boxes), len(gt)
    found = ious >= 0.5
    tp = int(found.sum())
    stated = [(parsed.labels[partners[j]], labels[j]) for j in np.flatnonzero(found).tolist()]
    stated = [(said, true) for said, true in stated if said is not None]
    normal = m == 0
    return {
        "sampled_reward": (float(np.mean([sample.reward for sample in answer.sampled])), 1),
        "mean_iou": (float(ious.sum()), m),
        "f1_50": (2 * tp, n + m),  # n + m = 2·TP + FP + FN
        "above_50": (tp, m),
        "above_75": (int((ious >= 0.75).sum()), m),
        "hallucination_rate": (int(normal and n > 0), int(normal)),
        "unparseable_share": (
            float(np.mean([_is_unparseable(sample) for sample in answer.sampled])),
            1,
        ),
        "label_accuracy": (sum(said == true for said, true in stated), len(stated)),
    }


def _is_unparseable(answer: ScoredCompletion) -> bool:
    return not len(answer.parsed.boxes) and answer.parsed.status != "empty"


def estimate_figures(
    sums: Mapping[str, Array],
    *,
    groups: Sequence[Any] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Figures:
    """Every figure with its 95 % bootstrap interval over films, or over groups of films.

    Args:
        sums: from :func:`film_sums`.
        groups: the patient of each film, where known; the films of one patient are then drawn together.
        resamples: number of bootstrap resamples.
        seed: of the resampling.
    """
    sums = _grouped(sums, groups)
    counts = _counts(sums, resamples, seed)
    return {key: ratio_estimate(sums[key], counts) for key in FIGURES}


def estimate_changes(
    before: Mapping[str, Array],
    after: Mapping[str, Array],
    *,
    groups: Sequence[Any] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Figures:
    """After minus before for every figure, with paired 95 % bootstrap intervals.

    Args:
        before: from :func:`film_sums`.
        after: from :func:`film_sums`, of the same films in the same order.
        groups: the patient of each film, where known.
        resamples: number of bootstrap resamples.
        seed: of the resampling.
    """
    before, after = _grouped(before, groups), _grouped(after, groups)
    counts = _counts(before, resamples, seed)
    return {key: difference_estimate(before[key], after[key], counts) for key in FIGURES}


def _grouped(sums: Mapping[str, Array], groups: Sequence[Any] | None) -> Mapping[str, Array]:
    return sums if groups is None else {key: sum_by_group(value, groups) for key, value in sums.items()}


def _counts(sums: Mapping[str, Array], resamples: int, seed: int) -> Array:
    return resampling_counts(len(sums["mean_iou"]), resamples=resamples, seed=seed)

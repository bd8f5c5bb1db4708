"""Figures of detection that are ratios of sums over films, for :mod:`grounding_rewards.metrics.bootstrap`.

Boxes are matched by the code that rewards are made of, :class:`grounding_rewards.rewards.BoxReward`: F-beta over one
film is the F-beta that the reward explains. Ignored boxes don't count, broken ones count as false, as in the rewards.

A film is matched once, whatever is asked afterwards: where a label or a size is chosen, a right box counts with its
reference box, a false one under its own label and size. So the true and false positives and the false negatives of all
sizes add up to those of the whole, which COCO's rule for sizes (average_precision.py) does not give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.box_batch import BoxBatch, pad
from grounding_rewards.boxes import box_area
from grounding_rewards.metrics.answered_film import AnsweredFilm, is_read
from grounding_rewards.metrics.ranking import (
    Area,
    label_name,
    with_broken_boxes,
)
from grounding_rewards.overlap import nms, pairwise_iou
from grounding_rewards.rewards import MeanIoUReward
from grounding_rewards.rewards.base import Outcomes
from grounding_rewards.rewards.label_matching import LabelCodes

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
# Numerators and denominators, (films,) each.
Sums = tuple[NDArray[Any], NDArray[Any]]

# The smallest number above 0: any overlap makes a pair.
_ANY_OVERLAP = float(np.nextafter(0.0, 1.0))

_BETA = 1.5


class Counts(NamedTuple):
    """Of each film, ``(films,)``: predicted boxes that count, reference boxes, and right boxes."""

    n: Array
    m: Array
    tp: Array


class Figure(NamedTuple):
    """A figure of an evaluation.

    ``heading`` is for tables, ``definition`` one sentence for a person, ``lower_is_better`` None where 0 is best from
    both sides; ``sums`` gives numerators and denominators of each film.
    """

    heading: str
    definition: str
    lower_is_better: bool | None
    sums: Callable[[MatchedFilms], Sums]


@dataclass(frozen=True, eq=False)
class MatchedFilms:
    """Films whose boxes are matched as the rewards match them.

    Attributes:
        films: with their answers.
        matching: a key of :data:`grounding_rewards.matching.MATCHERS`.
        labels: ``"ignore"``, ``"exact"`` or ``"synonyms"``: whether a box matches a finding of another label.
        label: only this label; None takes all.
        area: only boxes of this size; None takes all.

    Raises:
        ValueError: a word is unknown, or a label is chosen and none is compared.

    Example:
        >>> film = AnsweredFilm("a", 100, 100, gt=[[0, 0, 10, 10]], pred=[[0, 0, 10, 9], [50, 50, 60, 60]],
        ...                     gt_labels=["mass"])
        >>> MatchedFilms([film]).counts(0.5)
        Counts(n=array([2.]), m=array([1.]), tp=array([1.]))
    """

    films: Sequence[AnsweredFilm]
    matching: str = "greedy"
    labels: str = "ignore"
    label: str | None = None
    area: Area | None = None

    def __post_init__(self) -> None:
        if self.label is not None and not label_name(self.label, self.labels):
            raise ValueError(
                f"Expected a label that is compared for `label`, got {self.label!r} with labels={self.labels!r}. "
                'Name a finding, and use labels="exact" or "synonyms".'
            )

    def counts(self, iou_threshold: float) -> Counts:
        """Boxes of each film, where a pair is right from this IoU on, in (0, 1]."""
        return self._count(self._outcomes(iou_threshold, self.matching))

    @cached_property
    def counts_50(self) -> Counts:
        """:meth:`counts` at IoU 0.5."""
        return self._count(self._outcomes_50)

    @cached_property
    def right_labels(self) -> Sums:
        """Of each film how many boxes are right at IoU 0.5 and bear the label of the finding; how many state one."""
        outcomes = self._outcomes_50
        every = np.arange(len(self.films))
        codes = LabelCodes.of(*self._said_and_true, "exact")
        said, true = pad(codes.pred, self._pred.counts, every), pad(codes.gt, self._gt.counts, every)
        hit = self._chosen(outcomes).pred & (outcomes.matched >= 0)
        film, i = np.nonzero(hit)
        pairs = np.full((2, *hit.shape), np.nan)
        pairs[0, film, i], pairs[1, film, i] = said[film, i], true[film, outcomes.matched[film, i]]
        stated = ~np.isnan(pairs).any(axis=0)
        return ((pairs[0] == pairs[1]) & stated).sum(axis=1), stated.sum(axis=1)

    @cached_property
    def best_ious(self) -> tuple[Array, Mask]:
        """Of each reference box the IoU with its partner, 0 without one, ``(films, boxes)``; and which boxes there are.

        Partners are those of the greatest sum of IoUs.
        """
        outcomes = self._outcomes(_ANY_OVERLAP, "hungarian")
        there = self._chosen(outcomes).gt
        ious = np.zeros(there.shape)
        film, i = np.nonzero(outcomes.matched >= 0)
        ious[film, outcomes.matched[film, i]] = outcomes.iou[film, i]
        return np.where(there, ious, 0.0), there

    @cached_property
    def phrase_ious(self) -> tuple[Array, Array]:
        """Of each film with one reference box the IoU of its surest box, 0 without one; and which films those are.

        The surest box has the highest confidence; among equals, and without confidences, it is the first.
        """
        ious = np.array([_surest_iou(film) if len(film.gt) == 1 else 0.0 for film in self.films])
        chosen = self.best_ious[1].sum(axis=1) if len(self.films) else np.zeros(0)
        single = np.array([len(film.gt) == 1 for film in self.films], dtype=bool) & (chosen == 1)
        return np.where(single, ious, 0.0), single.astype(np.float64)

    @cached_property
    def is_read(self) -> Mask:
        """Whether an answer has a box or says that there is none, ``(films,)``."""
        return np.array([is_read(film.pred, film.status) for film in self.films], dtype=bool)

    @cached_property
    def _pred(self) -> BoxBatch:
        return BoxBatch.of([with_broken_boxes(film).pred for film in self.films], "pred")

    @cached_property
    def _gt(self) -> BoxBatch:
        return BoxBatch.of([film.gt for film in self.films], "gt")

    @cached_property
    def _said_and_true(self) -> tuple[list[str | None], list[str]]:
        """The labels of all predicted boxes, broken ones among them, and of all reference boxes."""
        said = chain.from_iterable(with_broken_boxes(film).pred_labels for film in self.films)
        return list(said), list(chain.from_iterable(film.gt_labels for film in self.films))

    @cached_property
    def _outcomes_50(self) -> Outcomes:
        return self._outcomes(0.5, self.matching)

    def _count(self, outcomes: Outcomes) -> Counts:
        chosen = self._chosen(outcomes)
        masks = (chosen.pred, chosen.gt, chosen.pred & (outcomes.matched >= 0))
        n, m, tp = (np.asarray(mask.sum(axis=1), dtype=np.float64) for mask in masks)
        return Counts(n, m, tp)

    def _outcomes(self, iou_threshold: float, matching: str) -> Outcomes:
        reward = MeanIoUReward(iou_threshold=iou_threshold, matching=matching, label_matching=self.labels)
        return reward.score_flat(
            self._pred,
            self._gt,
            ignore=BoxBatch.of([film.ignore for film in self.films], "ignore"),
            labels=reward.label_codes(*self._said_and_true),
        )

    def _chosen(self, outcomes: Outcomes) -> _Chosen:
        gt = _there(self._gt)
        pred = _there(self._pred) & ~outcomes.ignored
        matched = outcomes.matched
        if self.label is not None and outcomes.gt_labels is not None and outcomes.pred_labels is not None:
            name = label_name(self.label, self.labels)
            codes = [code for code, text in enumerate(outcomes.label_names) if label_name(text, self.labels) == name]
            gt &= np.isin(outcomes.gt_labels, codes)
            pred &= np.isin(outcomes.pred_labels, codes)
        if self.area is not None:
            own, of_gt = self._has_size(self._pred), self._has_size(self._gt)
            gt &= of_gt
            partner = _take(of_gt, matched)
            pred &= np.where(matched >= 0, partner, own)
        return _Chosen(pred, gt)

    def _has_size(self, boxes: BoxBatch) -> Mask:
        if self.area is None:
            return _there(boxes)
        film_areas = np.array([film.width * film.height for film in self.films], dtype=np.float64)
        held = self.area.holds(box_area(boxes.flat), np.repeat(film_areas, boxes.counts))
        return pad(held.astype(np.float64), boxes.counts, np.arange(len(boxes.counts))) == 1


class _Chosen(NamedTuple):
    """Which predicted boxes, (films, n), and which reference boxes, (films, m), count for the label and the size."""

    pred: Mask
    gt: Mask


def detection_sums(
    films: Sequence[AnsweredFilm],
    *,
    matching: str = "greedy",
    labels: str = "ignore",
    label: str | None = None,
    area: Area | None = None,
) -> dict[str, Array]:
    """Every figure of :data:`DETECTION_FIGURES` as numerators and denominators of each film.

    Args:
        films: with their answers.
        matching: ``"greedy"``, ``"hungarian"`` or ``"thresholded_hungarian"``.
        labels: ``"ignore"``, labels play no part in matching; ``"exact"``, a box is right only under the label of the
            finding, up to case and white space; ``"synonyms"``, or under one that
            :func:`grounding_rewards.labels.are_synonyms` agrees with.
        label: only this label; needs labels that are compared.
        area: only boxes of this size.

    Returns:
        By key ``(films, 2)``, for :func:`grounding_rewards.metrics.bootstrap.ratio_estimates`.

    Raises:
        ValueError: a word is unknown, a label is chosen and none is compared, or a reference box has a blank label
            although labels are compared.

    Example:
        >>> film = AnsweredFilm("a", 100, 100, gt=[[0, 0, 10, 10]], pred=[[0, 0, 10, 9], [50, 50, 60, 60]],
        ...                     gt_labels=["mass"])
        >>> sums = detection_sums([film])
        >>> sums["precision_50"].tolist(), sums["f1_50"].tolist(), sums["hallucination_rate"].tolist()
        ([[1.0, 2.0]], [[2.0, 3.0]], [[0.0, 0.0]])
    """
    matched = MatchedFilms(films, matching, labels, label, area)
    return {
        key: np.column_stack([np.asarray(part, dtype=np.float64) for part in figure.sums(matched)]).reshape(-1, 2)
        for key, figure in DETECTION_FIGURES.items()
    }


def without_duplicates(films: Sequence[AnsweredFilm], iou_threshold: float = 0.5) -> list[AnsweredFilm]:
    """The films with the boxes that :func:`grounding_rewards.overlap.nms` keeps, in the order of the answer.

    Only boxes that are given the same label, or none, remove each other: the surer one stays. A box with a confidence
    is surer than one without; among equals, and where answers state no confidence, it is the one that comes first.

    Args:
        films: with their answers.
        iou_threshold: a box is removed whose IoU with a surer one is greater, in [0, 1].

    Raises:
        ValueError: the threshold is out of its range.

    Example:
        >>> film = AnsweredFilm("a", 100, 100, pred=[[0, 0, 10, 10], [0, 0, 10, 9], [50, 50, 60, 60]])
        >>> without_duplicates([film])[0].pred.tolist()
        [[0.0, 0.0, 10.0, 10.0], [50.0, 50.0, 60.0, 60.0]]
    """
    return [_without_duplicates(film, iou_threshold) for film in films]


def _without_duplicates(film: AnsweredFilm, iou_threshold: float) -> AnsweredFilm:
    names = np.array([label_name(label, "exact") for label in film.pred_labels])
    kept: list[int] = []
    for name in dict.fromkeys(names.tolist()):
        same = np.flatnonzero(names == name)
        kept += same[nms(film.pred[same], film.pred_scores[same], iou_threshold)].tolist()
    kept.sort()
    return replace(
        film,
        pred=film.pred[kept],
        pred_labels=tuple(film.pred_labels[i] for i in kept),
        pred_scores=film.pred_scores[kept],
    )


def _there(boxes: BoxBatch) -> Mask:
    return np.arange(int(boxes.counts.max(initial=0))) < boxes.counts[:, None]


def _take(values: Mask, index: NDArray[np.int64]) -> Mask:
    """``values[film, index[film, i]]``; of an index of -1 anything."""
    if not values.shape[1]:
        return np.zeros(index.shape, dtype=bool)
    return np.take_along_axis(values, np.maximum(index, 0), axis=1)


def _surest_iou(film: AnsweredFilm) -> float:
    if not len(film.pred):
        return 0.0
    surest = int(np.where(np.isnan(film.pred_scores), -np.inf, film.pred_scores).argmax())
    return float(pairwise_iou(film.pred[[surest]], film.gt)[0, 0])


def _precision(films: MatchedFilms) -> Sums:
    n, _, tp = films.counts_50
    return tp, n


def _recall(films: MatchedFilms, iou_threshold: float) -> Sums:
    _, m, tp = films.counts(iou_threshold)
    return tp, m


def _f_beta(films: MatchedFilms, beta: float) -> Sums:
    n, m, tp = films.counts_50
    # F = (1 + β²) TP / ((1 + β²) TP + β² FN + FP) = (1 + β²) TP / (β² m + n)
    return (1 + beta**2) * tp, beta**2 * m + n


def _mean_iou(films: MatchedFilms) -> Sums:
    ious, there = films.best_ious
    return ious.sum(axis=1), there.sum(axis=1)


def _phrase_accuracy(films: MatchedFilms) -> Sums:
    ious, single = films.phrase_ious
    return (ious >= 0.5).astype(np.float64), single


def _hallucination(films: MatchedFilms) -> Sums:
    n, m, _ = films.counts_50
    return (m == 0) & (n > 0), m == 0


def _specificity(films: MatchedFilms) -> Sums:
    n, m, _ = films.counts_50
    return (m == 0) & (n == 0) & films.is_read, m == 0


def _film_sensitivity(films: MatchedFilms) -> Sums:
    n, m, _ = films.counts_50
    return (m > 0) & (n > 0), m > 0


def _unparseable(films: MatchedFilms) -> Sums:
    return ~films.is_read, np.ones(len(films.films))


def _count_error(films: MatchedFilms) -> Sums:
    n, m, _ = films.counts_50
    return np.abs(n - m), np.ones(len(n))


def _count_bias(films: MatchedFilms) -> Sums:
    n, m, _ = films.counts_50
    return n - m, np.ones(len(n))


def _false_per_film(films: MatchedFilms) -> Sums:
    n, _, tp = films.counts_50
    return n - tp, np.ones(len(n))


#: Key, heading, definition and sums of every figure, in the order of tables.
DETECTION_FIGURES: dict[str, Figure] = {
    "mean_iou": Figure(
        "mean IoU",
        "predicted and reference boxes are paired one to one for the largest sum of IoUs; mean over reference boxes, "
        "0 for one without a partner",
        False,
        _mean_iou,
    ),
    "f1_50": Figure(
        "F1 at IoU 0.5",
        "boxes of all films pooled: twice the right boxes over predicted and reference boxes",
        False,
        partial(_f_beta, beta=1.0),
    ),
    "f_beta_50": Figure(
        f"F{_BETA} at IoU 0.5",
        f"as F1, with missed findings weighing more: β = {_BETA}, the β of the rewards",
        False,
        partial(_f_beta, beta=_BETA),
    ),
    "precision_50": Figure(
        "precision at IoU 0.5", "share of the predicted boxes of all films that are right", False, _precision
    ),
    "recall_30": Figure(
        "recall at IoU 0.3",
        "share of the reference boxes of all films that a box is right about",
        False,
        partial(_recall, iou_threshold=0.3),
    ),
    "recall_50": Figure(
        "recall at IoU 0.5",
        "share of the reference boxes of all films that a box is right about",
        False,
        partial(_recall, iou_threshold=0.5),
    ),
    "recall_75": Figure(
        "recall at IoU 0.75",
        "share of the reference boxes of all films that a box is right about",
        False,
        partial(_recall, iou_threshold=0.75),
    ),
    "accuracy_50": Figure(
        "accuracy at IoU 0.5",
        "phrase grounding: share of the films with one reference box whose surest box reaches IoU 0.5; the first box "
        "where no confidence is stated",
        False,
        _phrase_accuracy,
    ),
    "phrase_mean_iou": Figure(
        "mIoU of phrases",
        "phrase grounding: IoU of the surest box, mean over films with one reference box, 0 without a box",
        False,
        lambda films: films.phrase_ious,
    ),
    "hallucination_rate": Figure(
        "hallucination on normal films",
        "share of the films without a finding whose answer has a box",
        True,
        _hallucination,
    ),
    "specificity": Figure(
        "specificity",
        "share of the films without a finding whose answer says so; an answer that cannot be read does not",
        False,
        _specificity,
    ),
    "film_sensitivity": Figure(
        "sensitivity for films",
        "share of the films with a finding whose answer has a box, wherever it is",
        False,
        _film_sensitivity,
    ),
    "false_per_film": Figure(
        "false boxes per film",
        "predicted boxes that are not right at IoU 0.5, mean over all films",
        True,
        _false_per_film,
    ),
    "count_error": Figure(
        "error in the number of boxes",
        "difference between the numbers of predicted and reference boxes without its sign, mean over all films",
        True,
        _count_error,
    ),
    "count_bias": Figure(
        "surplus of boxes",
        "number of predicted minus number of reference boxes, mean over all films; below 0 where boxes are missing",
        None,
        _count_bias,
    ),
    "label_accuracy": Figure(
        "right label",
        "share of the boxes right at IoU 0.5, and with a label, whose label is the reference's, up to case and white "
        "space",
        False,
        lambda films: films.right_labels,
    ),
    "unparseable_share": Figure(
        "unparseable answers",
        "share of the answers with neither a complete box nor a stated negative",
        True,
        _unparseable,
    ),
}

"""Answers that were given once, scored by many rewards: which of them say the same, and which agree with a ruler.

A reward teaches by the order in which it puts answers to one image, so everything here is about order: rank
correlation, which no rescaling of a reward changes. The unit of observation is the answer. Two questions are asked of
each pair:

* over all answers: do both put answers in the same order, whatever their images? A pair of answers to an easy and a
hard
  image counts as any other.
* within groups, the answers to one image at one step: what GRPO compares, and all that it sees. The coefficient is
taken
  in every group in which both have an order, and averaged over these groups.

A metric that is the same for all answers has no order, and no correlation: it is NaN, and not 0. Numbers that differ
by less than 1e-12, which rounding may make, are ties.

Spearman's coefficient is the correlation of ranks, ties sharing their mean rank; Kendall's is tau-b,
``Σ sign(x_i - x_j) sign(y_i - y_j) / sqrt(n_x n_y)`` over pairs of answers, n_x and n_y being the pairs that x and y
put in an order. Intervals are those of :mod:`grounding_rewards.metrics.jackknife`: patients, or images, are left out
with all their answers.

Sources: Spearman, American Journal of Psychology 1904; Kendall, Biometrika 1945.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from grounding_rewards.common.arithmetic import Array, ratio, ratio_or_nan
from grounding_rewards.common.legal import check_word
from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.bootstrap import group_numbers, sum_by_group
from grounding_rewards.metrics.counts import DETECTION_METRICS, MatchedImages
from grounding_rewards.metrics.estimates import Estimate, Metric, estimate_as_json, finite_or_none
from grounding_rewards.metrics.jackknife import Jackknifed, Parts, jackknifed_ratio
from grounding_rewards.metrics.query_ap import image_average_precisions
from grounding_rewards.metrics.ranking import RankedBoxes, place_within, rank_boxes

#: The coefficients.
METHODS = ("spearman", "kendall")
#: Metrics of one answer, on a scale that no reward has a part in.
RULERS: dict[str, Metric] = {
    "ap_50": Metric(
        "AP@0.5",
        "average precision at IoU 0.5 of the answer's boxes in writing order, over all recalls; images with findings "
        "only",
    ),
    "f1_50": Metric(
        "F1@0.5",
        "2 tp / (predicted + reference boxes) at IoU 0.5; 1 where there is nothing to find and the answer says so",
    ),
    "froc_1": Metric(
        "sensitivity at 1 false box",
        "share of the findings found at IoU 0.5 before the second false box, in writing order; images with findings "
        "only",
    ),
    "mean_iou": Metric(
        "mean IoU",
        "IoU of each finding with the box paired to it, 0 without one, mean over findings; images with findings only",
    ),
}
_FALSE_BOXES = 1
# Numbers closer than this are ties.
_DECIMALS = 12
_CORRELATION = (-1.0, 1.0)

Track = Callable[[str, Sequence[Any]], Iterable[Any]]


class Correlation(NamedTuple):
    """How two metrics of the same answers agree in order.

    estimate: the coefficient in [-1, 1] with its 95 % interval; NaN where there is none.
    of: how many answers, or groups, it is made of.
    reason: why there is none, for a person; empty where there is one.
    """

    estimate: Estimate
    of: int
    reason: str = ""


class Spread(NamedTuple):
    """What a reward gives.

    mean: over answers, with its 95 % interval over patients or images.
    deviation: standard deviation over all answers.
    within: mean over groups of the standard deviation within the group; NaN without groups.
    zero: share of answers that earn 0.
    without_spread: share of groups in which all answers earn the same; NaN without groups.
    """

    mean: Estimate
    deviation: float
    within: float
    zero: float
    without_spread: float


class Reversal(NamedTuple):
    """Two answers to one image, of which one reward prefers the first and another the second.

    rewards: the names of both.
    answers: the numbers of both answers.
    size: the smaller of the two differences in reward, by which answers to different images are compared.
    """

    rewards: tuple[str, str]
    answers: tuple[int, int]
    size: float


@dataclass(frozen=True)
class Replay:
    """What rewards say of the same answers.

    Attributes:
        method: the coefficient.
        answers: how many there are.
        groups: how many groups of two answers or more.
        images: how many.
        units: how many patients, or images, intervals are over.
        by_patient: whether units are patients.
        spreads: by reward.
        overall: over all answers, by reward and by another reward or ruler.
        within: within groups, by reward and by another reward or ruler.
        silent: by reward and ruler, the share of the groups in which the ruler has an order and the reward has none.
        reversals: the largest reversal of each image, the largest first.
        rulers: by key, the rulers.
    """

    method: str
    answers: int
    groups: int
    images: int
    units: int
    by_patient: bool
    spreads: dict[str, Spread]
    overall: dict[tuple[str, str], Correlation]
    within: dict[tuple[str, str], Correlation]
    silent: dict[tuple[str, str], float]
    reversals: tuple[Reversal, ...]
    rulers: dict[str, Metric]

    @property
    def rewards(self) -> tuple[str, ...]:
        """The names of the rewards."""
        return tuple(self.spreads)

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON, without any text or name of an image; what was not measured is None."""
        columns = (*self.rewards, *self.rulers)

        def table(found: Mapping[tuple[str, str], Correlation]) -> dict[str, Any]:
            return {
                one: {
                    other: {**estimate_as_json(found[one, other].estimate), "of": found[one, other].of}
                    for other in columns
                    if other != one
                }
                for one in self.rewards
            }

        return {
            "method": self.method,
            "answers": self.answers,
            "groups": self.groups,
            "images": self.images,
            "units": {"patients" if self.by_patient else "images": self.units},
            "rulers": {key: metric.definition for key, metric in self.rulers.items()},
            "rewards": {
                name: {
                    "mean": estimate_as_json(spread.mean),
                    **{key: finite_or_none(value) for key, value in spread._asdict().items() if key != "mean"},
                }
                for name, spread in self.spreads.items()
            },
            "over_all_answers": table(self.overall),
            "within_groups": table(self.within),
            "silent": {
                name: {key: finite_or_none(self.silent[name, key]) for key in self.rulers} for name in self.rewards
            },
        }


def answer_rulers(answers: Sequence[AnsweredImage], *, label_matching: str = "ignore") -> dict[str, Array]:
    """The metrics of each answer by which rewards are judged, see :data:`RULERS`.

    Args:
        answers: n answers, each with the image that it is about; several may be about one image.
        label_matching: ``"ignore"``, ``"exact"`` or ``"synonyms"``: whether a box is right only under the finding's
            label.

    Returns:
        By key ``(n,)``, in [0, 1]; NaN for a metric that the image does not have.

    Example:
        Of two findings one is found at once, the other after two false boxes.

        >>> image = AnsweredImage("a", 99, 99, gt=[[0, 0, 10, 10], [50, 50, 60, 60]], gt_labels=["mass", "mass"],
        ...     pred=[[0, 0, 10, 9], [20, 0, 30, 9], [40, 0, 49, 9], [50, 50, 60, 60]])
        >>> {key: round(float(values[0]), 3) for key, values in answer_rulers([image]).items()}
        {'ap_50': 0.75, 'f1_50': 0.667, 'froc_1': 0.5, 'mean_iou': 0.95}
    """
    matched = MatchedImages(answers, label_matching)
    n, m, tp = matched.counts_50
    ranked = rank_boxes(answers, (0.5,), ranking="emission", label_matching=label_matching, together=True)
    # Without any box there is nothing to rank.
    precisions, found = np.zeros(len(answers)), np.zeros(len(answers))
    for boxes in ranked.by_label.values():
        precisions, found = image_average_precisions(boxes), _found_at_once(boxes)
    return {
        "ap_50": np.where(m > 0, precisions, np.nan),
        "f1_50": np.where(n + m > 0, ratio(2 * tp, n + m), matched.is_read),
        "froc_1": ratio_or_nan(found, m),
        "mean_iou": ratio_or_nan(*DETECTION_METRICS["mean_iou"].of(matched)),
    }


def _found_at_once(boxes: RankedBoxes) -> Array:
    """How many findings of each image are found before it has more false boxes than are allowed."""
    order = np.lexsort((boxes.key, boxes.image))
    image, hit, counts = boxes.image[order], boxes.hit[0, order], boxes.counts[0, order]
    place = place_within(image)
    wrong = np.zeros((len(boxes.references), int(place.max(initial=-1)) + 1))
    wrong[image, place] = counts & ~hit
    taken = wrong.cumsum(axis=1)[image, place] <= _FALSE_BOXES
    found = np.bincount(image, weights=(hit & taken).astype(np.float64), minlength=len(boxes.references))
    return np.asarray(found, dtype=np.float64)


def rank_correlations(values: ArrayLike, method: str = "spearman") -> Array:
    """The rank correlation of each two rows.

    Args:
        values: ``(k, n)``, k metrics of n answers, finite.
        method: one of :data:`METHODS`.

    Returns:
        ``(k, k)`` in [-1, 1]; NaN where a metric is the same for all answers, also with itself.

    Raises:
        ValueError: the method is unknown.

    Example:
        >>> rank_correlations([[0.1, 0.2, 0.3], [0.5, 0.9, 0.7], [1.0, 1.0, 1.0]])
        array([[1. , 0.5, nan],
               [0.5, 1. , nan],
               [nan, nan, nan]])
        >>> rank_correlations([[0.1, 0.2, 0.3], [0.5, 0.9, 0.7]], "kendall").round(3)[0]
        array([1.   , 0.333])
    """
    check_word("method", method, METHODS)
    rounded: Array = np.asarray(values, dtype=np.float64).round(_DECIMALS)
    return _spearman(rounded) if method == "spearman" else _kendall(rounded)


def _spearman(values: Array) -> Array:
    from scipy.stats import rankdata

    if not values.shape[1]:
        return np.full((len(values), len(values)), np.nan)
    ranks = rankdata(values, axis=1)
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    return _as_correlations(centred @ centred.T)


# Pairs of answers that are in memory at once; of more answers, scipy sorts instead.
_MOST_PAIRED = 64


def _kendall(values: Array) -> Array:
    k, n = values.shape
    if n <= _MOST_PAIRED:
        i, j = np.triu_indices(n, 1)
        signs = np.sign(values[:, i] - values[:, j])
        return _as_correlations(signs @ signs.T)
    from scipy.stats import kendalltau

    varies = np.ptp(values, axis=1) > 0
    found = np.full((k, k), np.nan)
    found[varies, varies] = 1.0
    for one, other in combinations(np.flatnonzero(varies).tolist(), 2):
        found[one, other] = found[other, one] = kendalltau(values[one], values[other]).statistic
    return found


def _as_correlations(products: Array) -> Array:
    """From the products of all pairs of rows to correlations."""
    own = np.diag(products)
    # The root of the product, so that the same order gives 1 to the last digit.
    found = np.clip(ratio_or_nan(products, np.sqrt(own[:, None] * own)), -1.0, 1.0)
    np.fill_diagonal(found, np.where(own > 0, 1.0, np.nan))
    return found


def replay(
    rewards: Mapping[str, ArrayLike],
    rulers: Mapping[str, ArrayLike],
    *,
    groups: Sequence[Sequence[int]],
    images: Sequence[Any],
    patients: Sequence[Any] | None = None,
    controls: Collection[str] = (),
    method: str = "spearman",
    seed: int = 0,
    track: Track = lambda title, items: items,
) -> Replay:
    """Compare what rewards say of the same answers, with each other and with rulers.

    Args:
        rewards: by name what each gives, ``(n,)``.
        rulers: by key, of :data:`RULERS`, ``(n,)``; NaN where the image has no such metric.
        groups: the numbers of the answers of each group, those of one answer among them.
        images: the image of each answer, hashable.
        patients: the patient of each answer, where known.
        controls: names of rewards that know nothing of the boxes, and are not worth a reversal.
        method: one of :data:`METHODS`.
        seed: of the parts that are left out for intervals, where there are many patients.
        track: goes through its second argument, and may show progress under its first.

    Raises:
        ValueError: there is no reward, arrays differ in length, a reward is not finite, or the method is unknown.

    Example:
        Two images, two answers each: both rewards prefer the same answer to the first, and not to the second.

        >>> found = replay({"R1": [0.0, 0.5, 0.9, 0.6], "R3": [0.1, 0.2, 0.3, 0.7]}, {"f1_50": [0.0, 1.0, 1.0, 0.5]},
        ...                groups=[[0, 1], [2, 3]], images=["a", "a", "b", "b"], method="kendall")
        >>> found.within["R1", "R3"].estimate.value, found.within["R1", "f1_50"].estimate.value
        (0.0, 1.0)
        >>> found.reversals[0].rewards, found.reversals[0].answers, round(found.reversals[0].size, 1)
        (('R1', 'R3'), (2, 3), 0.3)
    """
    check_word("method", method, METHODS)
    n = len(images)
    given = {name: np.asarray(values, dtype=np.float64) for name, values in rewards.items()}
    against = {key: np.asarray(values, dtype=np.float64) for key, values in rulers.items()}
    if not given or not n:
        raise ValueError(
            f"Expected one or more rewards of one or more answers for `rewards`, got {len(given)} of {n}. Name "
            "rewards, and give a log that has completions."
        )
    for name, values in {**given, **against}.items():
        if values.shape != (n,) or (name in given and not np.isfinite(values).all()):
            raise ValueError(
                f"Expected a finite number for each of {n} answers for `{name}`, got an array of shape {values.shape}. "
                "Give every answer its reward; of rulers, NaN where the image has none."
            )
    units = images if patients is None else patients
    several = [list(members) for members in groups if len(members) > 1]
    overall = _overall(given, against, Parts.of(units, n, seed), method, track)
    within, silent = _within(given, against, several, units, method, track)
    return Replay(
        method=method,
        answers=n,
        groups=len(several),
        images=len(set(images)),
        units=int(group_numbers(units, n).max()) + 1,
        by_patient=patients is not None,
        spreads={name: _spread(values, several, units) for name, values in given.items()},
        overall=overall,
        within=within,
        silent=silent,
        reversals=tuple(
            _reversals({name: values for name, values in given.items() if name not in controls}, several, images)
        ),
        rulers={key: RULERS[key] for key in against},
    )


def _spread(values: Array, groups: Sequence[Sequence[int]], units: Sequence[Any]) -> Spread:
    own = [np.round(values[members], _DECIMALS) for members in groups]
    mean = jackknifed_ratio(sum_by_group(np.column_stack([values, np.ones(len(values))]), units)).estimate
    return Spread(
        mean,
        float(values.std()),
        float(np.mean([one.std() for one in own])) if own else math.nan,
        float((values == 0).mean()),
        float(np.mean([np.ptp(one) == 0 for one in own])) if own else math.nan,
    )


def _overall(
    rewards: Mapping[str, Array], rulers: Mapping[str, Array], parts: Parts, method: str, track: Track
) -> dict[tuple[str, str], Correlation]:
    """Each reward with each other and with each ruler, on the answers that have the ruler."""
    found = {}
    names = list(rewards)
    everywhere = np.ones(len(parts.of_image), dtype=bool)
    # Most rulers are there for the same answers.
    masks = {mask.tobytes(): mask for mask in (everywhere, *(~np.isnan(values) for values in rulers.values()))}
    for mask in masks.values():
        columns = [*names, *(key for key, values in rulers.items() if np.array_equal(~np.isnan(values), mask))]
        table = np.array([{**rewards, **rulers}[name][mask] for name in columns])
        of_part = parts.of_image[mask]
        left = range(parts.parts) if len(set(of_part.tolist())) > 1 else ()
        whole = rank_correlations(table, method)
        without = [rank_correlations(table[:, of_part != part], method) for part in track("leaving out images", left)]
        left_out = np.array(without).reshape(-1, len(columns), len(columns))
        for i, name in enumerate(names):
            for j, other in enumerate(columns):
                if i == j or (j < len(names) and not mask.all()):
                    continue
                value = float(whole[i, j])
                units = min(parts.units, len(set(of_part.tolist())))
                estimate = Jackknifed(value, left_out[:, i, j], units, bounds=_CORRELATION).estimate
                found[name, other] = Correlation(
                    estimate,
                    int(mask.sum()),
                    _why_none((name, table[i]), (other, table[j])) if math.isnan(value) else "",
                )
    return found


def _why_none(*metrics: tuple[str, Array]) -> str:
    for name, values in metrics:
        if len(values) < 2:
            count = "one answer" if len(values) else "no answer"
            return f"there is {count} to be compared by {_heading(metrics[-1][0])}"
        if np.ptp(np.round(values, _DECIMALS)) == 0:
            return f"{_heading(name)} is {values[0]:.3g} for all answers"
    return "nothing to compare"


def _heading(name: str) -> str:
    return RULERS[name].heading if name in RULERS else name


def _within(
    rewards: Mapping[str, Array],
    rulers: Mapping[str, Array],
    groups: Sequence[Sequence[int]],
    units: Sequence[Any],
    method: str,
    track: Track,
) -> tuple[dict[tuple[str, str], Correlation], dict[tuple[str, str], float]]:
    names = [*rewards, *rulers]
    table = np.array([*rewards.values(), *rulers.values()])
    each = np.full((len(groups), len(names), len(names)), np.nan)
    for g, members in enumerate(track("comparing answers to one image", groups)):
        own = table[:, members]
        there = ~np.isnan(own).any(axis=1)
        each[g][np.ix_(there, there)] = rank_correlations(own[there], method)
    # NaN with itself: no order.
    ordered = ~np.isnan(np.diagonal(each, axis1=1, axis2=2))
    of_group = [units[members[0]] for members in groups]
    found, silent = {}, {}
    for i, name in enumerate(rewards):
        for j, other in enumerate(names):
            if i == j:
                continue
            one = each[:, i, j]
            there = ~np.isnan(one)
            sums = np.column_stack([np.where(there, one, 0.0), there.astype(np.float64)])
            if there.any():
                estimate = jackknifed_ratio(sum_by_group(sums, of_group), _CORRELATION).estimate
                found[name, other] = Correlation(estimate, int(there.sum()))
            else:
                same = next((_heading(names[k]) for k in (i, j) if not ordered[:, k].any()), None)
                reason = (
                    "no image has several answers"
                    if not groups
                    else f"in no group do both {name} and {_heading(other)} have an order"
                    if same is None
                    else f"{same} is the same for all answers of every group"
                )
                found[name, other] = Correlation(Estimate(math.nan, math.nan, math.nan), 0, reason)
            if other in rulers:
                asked = ordered[:, j]
                silent[name, other] = float((~ordered[asked, i]).mean()) if asked.any() else math.nan
    return found, silent


def _reversals(rewards: Mapping[str, Array], groups: Sequence[Sequence[int]], images: Sequence[Any]) -> list[Reversal]:
    """The largest reversal of each image."""
    largest: dict[Any, Reversal] = {}
    pairs = list(combinations(rewards, 2))
    for members in groups:
        own = {name: np.round(values[members], _DECIMALS) for name, values in rewards.items()}
        ahead = {name: values[:, None] - values for name, values in own.items()}
        for one, other in pairs:
            # How far one reward puts answer i ahead of j, and the other j ahead of i.
            both = np.minimum(ahead[one], -ahead[other])
            i, j = divmod(int(both.argmax()), len(members))
            found = Reversal((one, other), (members[i], members[j]), float(both[i, j]))
            before = largest.get(images[members[0]])
            if found.size > 0 and (before is None or found.size > before.size):
                largest[images[members[0]]] = found
    return sorted(largest.values(), key=lambda one: -one.size)

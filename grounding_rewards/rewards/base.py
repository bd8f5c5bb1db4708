"""What all rewards on boxes share: many completions at once, matching, the empty cases, the explanation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grounding_rewards.boxes import Boxes, as_box_array
from grounding_rewards.matching import MATCHERS, match_batch
from grounding_rewards.overlap import pairwise_iou

Array = NDArray[np.float64]

# Cells of the IoU array that are worked on at once: 2 MB of float64, so that the temporaries stay in cache.
_CELLS = 1 << 18


@dataclass(frozen=True)
class Explanation:
    """Why one completion earned its reward.

    Attributes:
        reward: the number that the trainer gets, in [0, 1].
        f_beta: F-beta of the matches (R1, which has no β: F1).
        quality: the second factor: product, mean or curve of the matched IoUs; for R1 the average precision.
        precision: tp / predictions; 0 without predictions.
        recall: tp / ground-truth boxes; 0 without ground truth.
        tp: matched predictions.
        fp: unmatched predictions.
        fn: unmatched ground-truth boxes.
        matches: ``(prediction, ground truth)`` index pairs, in the order of the predictions.
        ious: the IoU of each match.
    """

    reward: float
    f_beta: float
    quality: float
    precision: float
    recall: float
    tp: int
    fp: int
    fn: int
    matches: tuple[tuple[int, int], ...]
    ious: tuple[float, ...]


@dataclass(frozen=True)
class BoxBatch:
    """The boxes of many completions, one after the other: ``flat`` is (total, 4), ``counts`` says whose they are."""

    flat: Boxes
    counts: NDArray[np.int64]

    @staticmethod
    def of(box_arrays: Sequence[ArrayLike], argument: str) -> BoxBatch:
        arrays = [as_box_array(boxes, argument) for boxes in box_arrays]
        counts = np.array([len(array) for array in arrays], dtype=np.int64)
        return BoxBatch(np.concatenate([np.zeros((0, 4)), *arrays]), counts)

    def padded(self, rows: NDArray[np.intp]) -> Boxes:
        """Return (len(rows), most boxes, 4), filled up with NaN boxes, which overlap nothing."""
        return pad(self.flat, self.counts, rows)


def pad(flat: Array, counts: NDArray[np.int64], rows: NDArray[np.intp]) -> Array:
    """Lay the values of the chosen rows side by side, NaN where a row has fewer than the longest.

    Example:
        >>> pad(np.array([1.0, 2.0, 3.0]), np.array([2, 0, 1]), np.array([0, 2]))
        array([[ 1.,  2.],
               [ 3., nan]])
    """
    kept = counts[rows]
    longest = int(kept.max(initial=0))
    starts = (np.cumsum(counts) - counts)[rows]
    slots = np.arange(longest)
    dense = np.full((len(rows), longest, *flat.shape[1:]), np.nan)
    filled = slots < kept[:, None]
    dense[filled] = flat[(starts[:, None] + slots)[filled]]
    return dense


@dataclass(frozen=True)
class MatchedBatch:
    """Matched completions, side by side; the first dimension of every array is the completion.

    ``matched`` is (b, n) with the index of the ground truth or -1, ``iou`` (b, n) the IoU of the match or 0,
    ``best_iou`` (b, n) the best IoU with any ground truth, ``scores`` (b, n) the stated confidences or NaN,
    ``pred`` (b, n, 4) and ``gt`` (b, m, 4) the boxes.
    """

    pred: Boxes
    gt: Boxes
    n: NDArray[np.int64]
    m: NDArray[np.int64]
    matched: NDArray[np.int64]
    iou: Array
    best_iou: Array
    scores: Array

    @property
    def hit(self) -> NDArray[np.bool_]:
        return self.matched >= 0

    @property
    def tp(self) -> NDArray[np.int64]:
        return self.hit.sum(axis=1)

    @property
    def precision(self) -> Array:
        return ratio(self.tp, self.n)

    @property
    def recall(self) -> Array:
        return ratio(self.tp, self.m)

    def mean_over_matches(self, values: Array) -> Array:
        """Mean of a (b, n) array over the matched predictions; 0 without a match."""
        return ratio(row_sums(np.where(self.hit, values, 0.0)), self.tp)


@dataclass(frozen=True)
class Outcomes:
    """The rewards of many completions and what they are made of; the first dimension is the completion."""

    reward: Array
    f_beta: Array
    quality: Array
    precision: Array
    recall: Array
    mean_iou: Array
    n: NDArray[np.int64]
    m: NDArray[np.int64]
    tp: NDArray[np.int64]
    matched: NDArray[np.int64]
    iou: Array

    def explanation(self, k: int) -> Explanation:
        """The k-th completion as an :class:`Explanation`."""
        pairs = [(i, int(j)) for i, j in enumerate(self.matched[k]) if j >= 0]
        tp = int(self.tp[k])
        return Explanation(
            reward=float(self.reward[k]),
            f_beta=float(self.f_beta[k]),
            quality=float(self.quality[k]),
            precision=float(self.precision[k]),
            recall=float(self.recall[k]),
            tp=tp,
            fp=int(self.n[k]) - tp,
            fn=int(self.m[k]) - tp,
            matches=tuple(pairs),
            ious=tuple(float(self.iou[k, i]) for i, _ in pairs),
        )


@dataclass(frozen=True, kw_only=True)
class BoxReward(ABC):
    """A reward on boxes: predictions and ground truth in one common space, one number in [0, 1].

    Args:
        iou_threshold: τ, the IoU from which a pair matches, in (0, 1].
        no_box_bonus: δ, the reward for writing no box where there is none, in [0, 1].
        matching: ``"greedy"``, ``"hungarian"`` or ``"thresholded_hungarian"``.

    Raises:
        ValueError: a parameter is out of its range.
    """

    iou_threshold: float = 0.5
    no_box_bonus: float = 0.2
    matching: str = "greedy"

    def __post_init__(self) -> None:
        check_number(self, "iou_threshold", above=0.0, at_most=1.0)
        check_number(self, "no_box_bonus", at_least=0.0, at_most=1.0)
        check_choice(self, "matching", MATCHERS)

    @abstractmethod
    def _combine(self, batch: MatchedBatch) -> tuple[Array, Array, Array]:
        """Return F-beta, quality and reward, (b,) each, of completions that have both predictions and truth."""

    def score(self, pred: ArrayLike, gt: ArrayLike) -> float:
        """Reward of one completion.

        Args:
            pred: ``(n, 4)`` xyxy.
            gt: ``(m, 4)`` xyxy, in the same space.

        Returns:
            A finite number in [0, 1]; ``no_box_bonus`` if both are empty, 0 if one of them is.

        Raises:
            ValueError: ``pred`` or ``gt`` is not (n, 4).

        Example:
            >>> from grounding_rewards.rewards import MeanIoUReward
            >>> MeanIoUReward().score([[0, 0, 10, 8]], [[0, 0, 10, 10]])
            0.8
        """
        return float(self.score_batch([pred], [gt]).reward[0])

    def explain(self, pred: ArrayLike, gt: ArrayLike) -> Explanation:
        """Like :meth:`score`, with everything that led to the number.

        Example:
            >>> from grounding_rewards.rewards import MeanIoUReward
            >>> explained = MeanIoUReward().explain([[0, 0, 10, 8], [50, 50, 60, 60]], [[0, 0, 10, 10]])
            >>> explained.matches, explained.ious, explained.fp
            (((0, 0),), (0.8,), 1)
        """
        return self.score_batch([pred], [gt]).explanation(0)

    def score_batch(self, preds: Sequence[ArrayLike], gts: Sequence[ArrayLike]) -> Outcomes:
        """Score many completions at once, each against its own ground truth.

        Args:
            preds: one ``(n, 4)`` array per completion.
            gts: one ``(m, 4)`` array per completion, in the same space.

        Returns:
            The outcomes, in the order of the completions.

        Raises:
            ValueError: the lengths differ, or an array is not (n, 4).

        Example:
            >>> from grounding_rewards.rewards import MeanIoUReward
            >>> MeanIoUReward().score_batch([[[0, 0, 10, 8]], []], [[[0, 0, 10, 10]], []]).reward
            array([0.8, 0.2])
        """
        if len(preds) != len(gts):
            raise ValueError(
                f"Expected as many entries for `gts` as for `preds`, got {len(gts)} and {len(preds)}. "
                "Repeat the ground truth once per completion."
            )
        return self.score_flat(BoxBatch.of(preds, "pred"), BoxBatch.of(gts, "gt"))

    def score_flat(self, pred: BoxBatch, gt: BoxBatch, scores: Array | None = None) -> Outcomes:
        """Like :meth:`score_batch`, for boxes that already lie one after the other.

        Args:
            pred: the predictions of all completions.
            gt: their ground truth, in the same order.
            scores: ``(predictions,)`` stated confidences, NaN where none is stated; for R1's ``ranking="score"``.

        Example:
            >>> from grounding_rewards.rewards import AveragePrecisionReward
            >>> pred = BoxBatch.of([[[50, 50, 60, 60], [0, 0, 10, 10]]], "pred")
            >>> gt = BoxBatch.of([[[0, 0, 10, 10]]], "gt")
            >>> by_score = AveragePrecisionReward(ranking="score")
            >>> by_score.score_flat(pred, gt, np.array([0.1, 0.9])).reward
            array([1.])
        """
        b = len(pred.counts)
        longest = int(pred.counts.max(initial=0))
        matched = np.full((b, longest), -1, dtype=np.int64)
        iou = np.zeros((b, longest))
        parts = np.zeros((3, b))
        tp = np.zeros(b, dtype=np.int64)
        stated = np.full(len(pred.flat), np.nan) if scores is None else scores
        for rows in _chunks(pred.counts, gt.counts):
            batch = self._match(pred, gt, stated, rows)
            width = batch.matched.shape[1]
            matched[rows, :width] = batch.matched
            iou[rows, :width] = batch.iou
            parts[:, rows] = self._combine(batch)
            tp[rows] = batch.tp
        f_beta, quality, reward = parts
        # Both empty: δ. One of them empty: 0, which a reward without a match is in any case.
        reward = np.where((pred.counts == 0) & (gt.counts == 0), self.no_box_bonus, reward)
        return Outcomes(
            reward=np.clip(reward, 0.0, 1.0),
            f_beta=f_beta,
            quality=quality,
            precision=ratio(tp, pred.counts),
            recall=ratio(tp, gt.counts),
            mean_iou=ratio(row_sums(iou), tp),
            n=pred.counts,
            m=gt.counts,
            tp=tp,
            matched=matched,
            iou=iou,
        )

    def _match(self, pred: BoxBatch, gt: BoxBatch, scores: Array, rows: NDArray[np.intp]) -> MatchedBatch:
        p, g = pred.padded(rows), gt.padded(rows)
        iou = pairwise_iou(p, g)
        matched = match_batch(iou, self.iou_threshold, matching=self.matching)
        own = np.take_along_axis(iou, np.maximum(matched, 0)[..., None], axis=2)[..., 0]
        return MatchedBatch(
            pred=p,
            gt=g,
            n=pred.counts[rows],
            m=gt.counts[rows],
            matched=matched,
            iou=np.where(matched >= 0, own, 0.0),
            best_iou=iou.max(axis=2),
            scores=pad(scores, pred.counts, rows),
        )


def _chunks(n: NDArray[np.int64], m: NDArray[np.int64]) -> Iterator[NDArray[np.intp]]:
    """Cut the completions that have both kinds of boxes into groups that are small when padded.

    Sorted by the number of predictions, so that one endless completion does not make the others pay.
    """
    rows = np.flatnonzero((n > 0) & (m > 0))
    rows = rows[np.argsort(n[rows], kind="stable")]
    start = 0
    while start < len(rows):
        stop, most_gt = start, 0
        while stop < len(rows):
            most_gt = max(most_gt, int(m[rows[stop]]))
            if stop > start and (stop + 1 - start) * int(n[rows[stop]]) * most_gt > _CELLS:
                break
            stop += 1
        yield rows[start:stop]
        start = stop


def row_sums(values: Array) -> Array:
    """Sum each row from left to right, so that padding with zeros cannot change the last bit, as `sum` may.

    Example:
        >>> row_sums(np.array([[1.0, 2.0, 0.0], [3.0, 4.0, 0.0]]))
        array([3., 7.])
    """
    return values.cumsum(axis=1)[:, -1] if values.shape[1] else np.zeros(len(values))


def ratio(part: ArrayLike, whole: ArrayLike) -> Array:
    """Divide elementwise; 0 / 0 is 0.

    Example:
        >>> ratio([1, 0], [2, 0])
        array([0.5, 0. ])
    """
    part, whole = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole != 0)


def check_number(
    owner: object,
    name: str,
    *,
    above: float | None = None,
    at_least: float = 0.0,
    at_most: float,
) -> None:
    """Refuse a field that is not a number in (above, at_most] or [at_least, at_most], and store it as a float."""
    value = getattr(owner, name)
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else float("nan")
    high_enough = number > above if above is not None else number >= at_least
    if not (high_enough and number <= at_most):
        interval = f"({above:g}, {at_most:g}]" if above is not None else f"[{at_least:g}, {at_most:g}]"
        raise ValueError(f"Expected a number in {interval} for `{name}`, got {value!r}. Choose one in that range.")
    object.__setattr__(owner, name, number)


def check_numbers(owner: object, name: str) -> None:
    """Refuse a field that is not a row of numbers, and store it as a tuple of floats."""
    value = getattr(owner, name)
    try:
        numbers = None if isinstance(value, str) else tuple(float(number) for number in value)
    except (TypeError, ValueError):
        numbers = None
    if numbers is None:
        raise ValueError(f"Expected a list of numbers for `{name}`, got {value!r}. Write it as [0.3, 0.5, 0.7].")
    object.__setattr__(owner, name, numbers)


def check_choice(owner: object, name: str, legal: Collection[str]) -> None:
    """Refuse a field that is not one of the legal words."""
    value = getattr(owner, name)
    if not isinstance(value, str) or value not in legal:
        raise ValueError(f"Expected a known word for `{name}`, got {value!r}. Use one of: {', '.join(legal)}.")

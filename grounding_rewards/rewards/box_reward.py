"""Base of all rewards on boxes: many completions at once, matching, empty cases, the explanation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grounding_rewards.boxes import BoxBatch, Boxes, pad
from grounding_rewards.common.numeric import Array, ratio, row_counts, row_sums
from grounding_rewards.common.validation import SHARE, SOME_SHARE, Interval, check_number, check_word
from grounding_rewards.matching import LABEL_MATCHING, MATCHERS, Indices, LabelCodes, excused_boxes
from grounding_rewards.overlap import pairwise_iou

# Cells of the IoU array per chunk: 2 MB of float64, so that temporaries stay in cache.
_CELLS = 1 << 18


#: The numbers of every reward, in the order of logs, tables and explanations.
PARTS = ("f_beta", "quality", "precision", "recall", "mean_iou")
COUNTS = ("tp", "fp", "fn")
EXPLAINED = ("reward", *PARTS[:-1], *COUNTS)


@dataclass(frozen=True)
class Explanation:
    """Why one completion earned its reward.

    Attributes:
        reward: the number that the trainer gets, in [0, 1].
        f_beta: F-beta of the matches (R1, which has no β: F1).
        quality: the second factor: product, mean or curve of the matched IoUs; for R1 the average precision.
        precision: tp / predictions that count; 0 without predictions.
        recall: tp / ground-truth boxes; 0 without ground truth.
        tp: matched predictions.
        fp: unmatched predictions, ignored ones left out.
        fn: unmatched ground-truth boxes.
        matches: ``(prediction, ground truth)`` index pairs, in the order of the predictions.
        ious: the IoU of each match.
        ignored: indices of the predictions that an ignore region excuses, neither hit nor false positive.
        reason: of a text, one line for a person.
        parsed: of a text, its :class:`grounding_rewards.ParsedBoxes`: boxes, status and what was rejected.
        reader: of a text, the index of the reader in ``reader_boxes`` by whom it is best, and is explained; None where
            the row has one reference.
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
    ignored: tuple[int, ...] = ()
    reason: str = ""
    parsed: Any = field(default=None, compare=False)
    reader: int | None = None


@dataclass(kw_only=True, eq=False)
class Matches:
    """The matches of b completions, side by side; the first dimension of every array is the completion.

    ``n`` predictions count (ignored ones do not), ``m`` are the references, ``tp`` the matches, (b,) each. ``matched``
    is (b, n) with the index of the ground truth or -1, ``iou`` (b, n) the IoU of the match or 0, ``ignored`` (b, n) the
    predictions that do not count. ``gt_labels`` (b, m) are codes of ``label_texts`` and ``pred_labels`` (b, n) those
    for which the predictions count: the label of the finding that it matches, else the first of the image that agrees
    with its own, else its own; NaN without a label, None where labels play no part.
    """

    n: NDArray[np.int64]
    m: NDArray[np.int64]
    tp: NDArray[np.int64]
    matched: NDArray[np.int64]
    iou: Array
    ignored: NDArray[np.bool_]
    pred_labels: Array | None = None
    gt_labels: Array | None = None
    label_texts: tuple[str, ...] = ()

    # Cached: they are read once for each completion of the batch.
    @cached_property
    def precision(self) -> Array:
        """The share of predictions that match, (b,); 0 without predictions."""
        return ratio(self.tp, self.n)

    @cached_property
    def recall(self) -> Array:
        """The share of references that are matched, (b,); 0 without references."""
        return ratio(self.tp, self.m)

    @cached_property
    def mean_iou(self) -> Array:
        """Mean IoU of the matches of each completion, (b,); 0 without a match."""
        return ratio(row_sums(self.iou), self.tp)

    @property
    def fp(self) -> NDArray[np.int64]:
        """How many predictions count and match nothing, (b,)."""
        return self.n - self.tp

    @property
    def fn(self) -> NDArray[np.int64]:
        """How many references nothing matches, (b,)."""
        return self.m - self.tp

    @property
    def hit(self) -> NDArray[np.bool_]:
        """Which predictions match a reference, (b, n)."""
        return self.matched >= 0


_MATCHES = tuple(attribute.name for attribute in fields(Matches))


@dataclass(kw_only=True, eq=False)
class Matched(Matches):
    """What a reward combines: the matches of completions that have boxes of both kinds, and these boxes.

    ``pred`` (b, n, 4) and ``gt`` (b, m, 4) are padded with NaN. ``overlap`` (b, n) is what the matcher saw of each
    match or 0: the IoU, unless the reward says otherwise. ``every_iou`` (b, n, m) is the IoU with each ground truth, 0
    for boxes whose labels do not agree. ``scores`` (b, n) are the stated confidences, NaN without; None where none is
    stated.
    """

    pred: Boxes
    gt: Boxes
    overlap: Array
    every_iou: Array
    scores: Array | None = None

    def mean_over_matches(self, values: Array) -> Array:
        """Mean of a (b, n) array over the matched predictions; 0 without a match."""
        return ratio(row_sums(np.where(self.hit, values, 0.0)), self.tp)


@dataclass(kw_only=True, eq=False)
class Outcomes(Matches):
    """The matches of b completions with their rewards: ``reward``, ``f_beta`` and ``quality``, (b,) each."""

    reward: Array
    f_beta: Array
    quality: Array

    @classmethod
    def without_matches(cls, n: NDArray[np.int64], m: NDArray[np.int64]) -> Outcomes:
        """Outcomes of b completions where nothing matches and nothing is paid.

        Args:
            n: (b,), the predictions of each.
            m: (b,), the references of each.
        """
        b, longest = len(n), int(n.max(initial=0))
        return cls(
            n=n,
            m=m,
            tp=np.zeros(b, dtype=np.int64),
            matched=np.full((b, longest), -1, dtype=np.int64),
            iou=np.zeros((b, longest)),
            ignored=np.zeros((b, longest), dtype=np.bool_),
            reward=np.zeros(b),
            f_beta=np.zeros(b),
            quality=np.zeros(b),
        )

    def take(self, rows: NDArray[np.intp]) -> Outcomes:
        """The outcomes of the chosen completions."""
        columns = {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}
        # All but the texts of labels, and labels that play no part, have an entry for each completion.
        chosen_columns: dict[str, Any] = {
            name: column[rows] for name, column in columns.items() if isinstance(column, np.ndarray)
        }
        return replace(self, **chosen_columns)

    def explanations(self, *columns: Sequence[Any]) -> list[Explanation]:
        """An :class:`Explanation` of each completion.

        Args:
            *columns: the last three fields of an explanation, `reason`, `parsed` and `reader`, of all completions each;
                none where boxes were scored instead of texts.
        """
        # From arrays to lists all at once: asking numpy for a number costs as much as reading a box.
        numbers = [getattr(self, name).tolist() for name in EXPLAINED]
        b = len(self.tp)
        matches: list[tuple[tuple[int, int], ...]] = [()] * b
        ious: list[tuple[float, ...]] = [()] * b
        # The completion of each matched prediction, and the prediction's index in it.
        hit_places = np.nonzero(self.hit)
        hit_columns = (*hit_places, self.matched[hit_places], self.iou[hit_places])
        for row, prediction, gt, iou in zip(*(column.tolist() for column in hit_columns), strict=True):
            matches[row] += ((prediction, gt),)
            ious[row] += (iou,)
        ignored: list[tuple[int, ...]] = [()] * b
        for row, prediction in np.argwhere(self.ignored).tolist():
            ignored[row] += (prediction,)
        return list(map(Explanation, *numbers, matches, ious, ignored, *columns))


def parameter(default: Any, legal: Interval | Collection[str] | type[bool]) -> Any:
    """A field of a reward; its value must be legal, which :func:`check_fields` checks when the reward is made."""
    return field(default=default, metadata={"legal": legal})


def check_fields(reward: Any) -> None:
    """Refuse a reward whose value of a :func:`parameter` is not legal, and make its numbers floats."""
    for option in fields(reward):
        name, legal = option.name, option.metadata.get("legal")
        value = getattr(reward, name)
        if isinstance(legal, Interval):
            # Past the dataclass, which is frozen.
            object.__setattr__(reward, name, check_number(name, value, legal))
        elif legal is bool:
            if not isinstance(value, bool):
                raise ValueError(f"Expected true or false for `{name}`, got {value!r:.200}. Use one of them.")
        elif legal is not None:
            check_word(name, value, legal)


#: The labels of all boxes, one after the other; None where nobody gives any.
Labels = Iterable[str | None] | None


class BoxScorer(ABC):
    """`score`, `score_many` and `explain` of boxes, the same for rewards on boxes and for rewards on text."""

    @abstractmethod
    def _score_images(self, pred: BoxBatch, gt: BoxBatch, ignore: BoxBatch | None, *labels: Labels) -> Outcomes:
        """Score many images; `labels` are two, those of all predicted and those of all reference boxes."""

    def score(
        self,
        pred: ArrayLike,
        gt: ArrayLike,
        *,
        ignore: ArrayLike | None = None,
        pred_labels: Sequence[str | None] | None = None,
        gt_labels: Sequence[str] | None = None,
    ) -> float:
        """Reward of one completion.

        Args:
            pred: ``(n, 4)`` xyxy.
            gt: ``(m, 4)`` xyxy, in the same space.
            ignore: ``(k, 4)`` xyxy, in the same space: regions, each of which excuses one prediction that matches and
                touches nothing, if ``ignore_threshold`` of its area lies in it.
            pred_labels: n labels, None where a box has none; needed unless ``label_matching`` is ``"ignore"``.
            gt_labels: m labels; needed unless ``label_matching`` is ``"ignore"``.

        Returns:
            A finite number in [0, 1]; ``no_box_bonus`` if both are empty, 0 if one of them is, unless
            ``graded_negatives`` says otherwise.

        Raises:
            ValueError: an array is not (n, 4), or labels are needed and missing or not as many as the boxes.

        Example:
            >>> from grounding_rewards.rewards import MeanIoUReward
            >>> MeanIoUReward().score([[0, 0, 10, 8]], [[0, 0, 10, 10]])
            0.8
            >>> MeanIoUReward().score([[0, 0, 10, 8], [50, 50, 60, 60]], [[0, 0, 10, 10]], ignore=[[45, 45, 70, 70]])
            0.8
            >>> labels = {"pred_labels": ["mass"], "gt_labels": ["nodule"]}
            >>> MeanIoUReward(label_matching="exact").score([[0, 0, 10, 8]], [[0, 0, 10, 10]], **labels)
            0.0
        """
        return float(self._score_arrays(*_one_image(pred, gt, ignore, pred_labels, gt_labels)).reward[0])

    def score_many(
        self,
        pred: Sequence[ArrayLike],
        gt: Sequence[ArrayLike],
        *,
        ignore: Sequence[ArrayLike] | None = None,
        pred_labels: Sequence[Sequence[str | None]] | None = None,
        gt_labels: Sequence[Sequence[str]] | None = None,
    ) -> list[float]:
        """:meth:`score` for n images at once, each argument with one entry per image; far faster than one by one.

        Raises:
            ValueError: the arguments differ in length, or hold something that is no box array.

        Example:
            >>> from grounding_rewards import get_reward
            >>> get_reward("R3").score_many([[[0, 0, 10, 8]], []], [[[0, 0, 10, 10]], []])
            [0.8, 0.2]
        """
        return self._score_arrays(pred, gt, ignore, pred_labels, gt_labels).reward.tolist()

    def explain(
        self,
        pred: ArrayLike,
        gt: ArrayLike,
        *,
        ignore: ArrayLike | None = None,
        pred_labels: Sequence[str | None] | None = None,
        gt_labels: Sequence[str] | None = None,
    ) -> Explanation:
        """Like :meth:`score`, but with everything that led to the number.

        Example:
            >>> from grounding_rewards.rewards import MeanIoUReward
            >>> explained = MeanIoUReward().explain([[0, 0, 10, 8], [50, 50, 60, 60]], [[0, 0, 10, 10]])
            >>> explained.matches, explained.ious, explained.fp
            (((0, 0),), (0.8,), 1)
        """
        return self._score_arrays(*_one_image(pred, gt, ignore, pred_labels, gt_labels)).explanations()[0]

    def _score_arrays(self, pred: Sequence[ArrayLike], gt: Sequence[ArrayLike], ignore: Any, *labels: Any) -> Outcomes:
        """Score images whose boxes and labels come as a list for each image; `ignore` and labels may be None.

        `labels` are `pred_labels` and `gt_labels`.
        """
        for name, argument in zip(("gt", "ignore", "pred_labels", "gt_labels"), (gt, ignore, *labels), strict=True):
            if argument is not None and len(argument) != len(pred):
                raise ValueError(
                    f"Expected as many images for `{name}` as for `pred`, got {len(argument)} and {len(pred)}. "
                    "Give an entry for each image, empty where it has no box."
                )
        regions = None if ignore is None else BoxBatch.of(ignore, "ignore")
        flat_labels = [None if texts is None else chain.from_iterable(texts) for texts in labels]
        return self._score_images(BoxBatch.of(pred, "pred"), BoxBatch.of(gt, "gt"), regions, *flat_labels)


def _one_image(*arguments: Any) -> list[Any]:
    """Each argument of one image as a batch of one; None stays None."""
    return [None if argument is None else [argument] for argument in arguments]


@dataclass(frozen=True, kw_only=True)
class BoxReward(BoxScorer):
    """A reward on boxes: predictions and ground truth in one common space, one number in [0, 1].

    Args:
        no_box_bonus: δ, the reward for writing no box where there is none, in [0, 1]. Under TRL's ``scale_rewards:
            group`` its size hardly matters: change the share of images without findings instead.
        label_matching: ``"ignore"``, labels play no part; ``"exact"``, a box matches only a finding of the same label,
            whatever the case and the white space; ``"synonyms"``, only one whose label
            :func:`grounding_rewards.labels.are_synonyms` agrees with. Under the last two a predicted box without a
            label matches nothing, and so is a false positive.
        ignore_threshold: the share of a prediction's area, in (0, 1], that has to lie in an ignore region which
            excuses it, see :func:`grounding_rewards.matching.excused_boxes`.
        ignore_many: COCO's rule: a region excuses any number of predictions, also such as touch a reference box.
        graded_negatives: γ, in [0, 1): n false boxes where there is nothing earn ``γ δ / (1 + n)``, so that a group
            in which everybody hallucinates has something to learn from. 0, the specification, gives them nothing.
            Excused boxes do not count in n. The reward is less than δ / 2, so always below the no-finding statement. A
            miss on an image with findings earns 0, which no payment can be below; but it is below what as many boxes,
            one of which hits at τ, earn on an image with one finding: under the defaults of R1 to R4, and of soft_f1 at
            IoU 0.5, for every δ and γ, under those of R5 where γ δ < 0.6. Between one box and none a policy chooses as
            if δ were ``δ (1 - γ / 2)``.

    Attributes:
        normalised_boxes: whether a call with completions hands over boxes as fractions of the image's width and height.

    Raises:
        ValueError: a parameter is out of its range.
    """

    normalised_boxes: ClassVar[bool] = False

    no_box_bonus: float = parameter(0.2, SHARE)
    label_matching: str = parameter("ignore", LABEL_MATCHING)
    ignore_threshold: float = parameter(0.5, SOME_SHARE)
    ignore_many: bool = parameter(False, bool)
    graded_negatives: float = parameter(0.0, Interval(0, 1, below=True))

    def __post_init__(self) -> None:
        """Refuse a parameter whose value is not among the legal ones of its field."""
        check_fields(self)

    def _overlap(self, pred: Boxes, gt: Boxes, iou: Array) -> Array:
        """What each pair is worth to the matcher, (b, n, m) in [0, 1]: its IoU; 0 for an impossible pair."""
        return iou

    @abstractmethod
    def _pair_up(self, overlap: Array) -> Indices:
        """Return the ground truth of each prediction or -1, (b, n), from overlaps (b, n, m)."""

    @abstractmethod
    def _combine(self, batch: Matched) -> tuple[Array, Array, Array]:
        """Return F-beta, quality and reward, (b,) each, of completions that have both predictions and ground truth."""

    def _on_normal_image(self, n: NDArray[Any]) -> Array:
        """The reward of n boxes on an image without findings: δ for none, else γ δ / (1 + n)."""
        return np.where(n == 0, 1.0, self.graded_negatives / (1 + n)) * self.no_box_bonus

    def label_codes(self, pred_labels: Labels, gt_labels: Labels) -> LabelCodes | None:
        """The labels of all boxes in the form that :meth:`match_and_score` takes; None where labels play no part.

        Raises:
            ValueError: labels are needed and missing.
        """
        if self.label_matching == "ignore":
            return None
        if pred_labels is None or gt_labels is None:
            raise ValueError(
                f"Expected `pred_labels` and `gt_labels` for label_matching={self.label_matching!r}, got none. "
                "Give one label per box, None for a predicted box that has none."
            )
        return LabelCodes.of(pred_labels, gt_labels, self.label_matching)

    def _score_images(self, pred: BoxBatch, gt: BoxBatch, ignore: BoxBatch | None, *labels: Labels) -> Outcomes:
        return self.match_and_score(pred, gt, ignore=ignore, labels=self.label_codes(*labels))

    def match_and_score(
        self,
        pred: BoxBatch,
        gt: BoxBatch,
        scores: Array | None = None,
        *,
        ignore: BoxBatch | None = None,
        labels: LabelCodes | None = None,
    ) -> Outcomes:
        """Match and score many completions at once, each against its own ground truth.

        Args:
            pred: the predictions of all completions.
            gt: their ground truth, in the same order.
            scores: ``(predictions,)`` stated confidences, NaN where none is stated; for R1's ``ranking="score"``.
            ignore: the ignore regions of all completions, in the same order.
            labels: the labels of all boxes, see :meth:`label_codes`.

        Returns:
            The matches and rewards, in the order of the completions.

        Raises:
            ValueError: labels are needed and missing, or are not as many as the boxes.

        Example:
            >>> from grounding_rewards.rewards import AveragePrecisionReward
            >>> pred = BoxBatch.of([[[50, 50, 60, 60], [0, 0, 10, 10]]], "pred")
            >>> gt = BoxBatch.of([[[0, 0, 10, 10]]], "gt")
            >>> by_score = AveragePrecisionReward(ranking="score")
            >>> by_score.match_and_score(pred, gt, np.array([0.1, 0.9])).reward
            array([1.])
        """
        labels = self._checked_labels(labels, pred, gt)
        all_rows = np.arange(len(pred.counts))
        if len(all_rows) == 1 and len(pred.flat) and len(gt.flat):
            # The fast path of one completion that has both kinds of boxes: no chunks, and no outcomes to fill in.
            batch = self._match(pred, gt, scores, all_rows, ignore, labels)
            f_beta, quality, reward = self._combine(batch)
            matches: dict[str, Any] = {name: getattr(batch, name) for name in _MATCHES}
            # For one number faster than `clip`.
            reward = np.minimum(np.maximum(reward, 0.0), 1.0)
            return Outcomes(**matches, reward=reward, f_beta=f_beta, quality=quality)
        # Completions with both kinds of boxes are scored in chunks; those that lack one keep the 0 of this.
        scored = Outcomes.without_matches(pred.counts, gt.counts)
        # The arrays with a value for each predicted box.
        box_columns = ["matched", "iou", "ignored"]
        if labels is not None:
            scored.pred_labels = pad(labels.pred, pred.counts, all_rows)
            scored.gt_labels = pad(labels.gt, gt.counts, all_rows)
            scored.label_texts = labels.texts
            box_columns.append("pred_labels")
        for rows in _chunks(pred.counts, gt.counts):
            batch = self._match(pred, gt, scores, rows, ignore, labels)
            for name in box_columns:
                # The arrays of a chunk are as long as its longest completion; the places behind it stay empty.
                getattr(scored, name)[rows, : batch.matched.shape[1]] = getattr(batch, name)
            scored.f_beta[rows], scored.quality[rows], scored.reward[rows] = self._combine(batch)
            scored.tp[rows] = batch.tp
        # Images where nothing is to find are in no chunk: there too ignore regions excuse false boxes, and what boxes
        # are left decides on the reward. Findings without a predicted box keep 0.
        normal_rows = np.flatnonzero(gt.counts == 0)
        scored.ignored[normal_rows] = self._ignored(pred, gt, ignore, scored.matched[normal_rows], normal_rows)
        scored.n = pred.counts - scored.ignored.sum(axis=1)
        reward = np.where(gt.counts == 0, self._on_normal_image(scored.n), scored.reward)
        scored.reward = np.clip(reward, 0.0, 1.0)
        return scored

    def _checked_labels(self, labels: LabelCodes | None, pred: BoxBatch, gt: BoxBatch) -> LabelCodes | None:
        """The labels if they are one for each box, None where labels play no part; else refused.

        Raises:
            ValueError: labels are needed and missing, not as many as the boxes, or a finding has none.
        """
        if labels is None or self.label_matching == "ignore":
            # None where labels play no part; raises where they are needed, and missing here.
            return self.label_codes(None, None)
        pred_count, gt_count = len(labels.pred), len(labels.gt)
        blank_count = int(np.isnan(labels.gt).sum())
        if (pred_count, gt_count) != (len(pred.flat), len(gt.flat)) or blank_count:
            raise ValueError(
                f"Expected one label per box, {len(pred.flat)} for `pred_labels` and {len(gt.flat)} for `gt_labels`, "
                f"got {pred_count} and {gt_count}, {blank_count} of these blank. Give None for a predicted box without "
                'one, name every finding, or use label_matching="ignore".'
            )
        return labels

    def _match(
        self,
        pred: BoxBatch,
        gt: BoxBatch,
        scores: Array | None,
        rows: NDArray[np.intp],
        ignore: BoxBatch | None,
        labels: LabelCodes | None,
    ) -> Matched:
        """Match the boxes of the completions whose indices are `rows`; each has predicted boxes and ground truth.

        All other arguments are those of :meth:`match_and_score`, with the boxes of all completions.
        """
        padded_pred, padded_gt = pred.padded(rows), gt.padded(rows)
        iou = pairwise_iou(padded_pred, padded_gt)
        overlap = self._overlap(padded_pred, padded_gt, iou)
        pred_labels = gt_labels = agree = None
        if labels is not None:
            pred_labels, gt_labels = pad(labels.pred, pred.counts, rows), pad(labels.gt, gt.counts, rows)
            agree = labels.agree(pred_labels[:, :, None], gt_labels[:, None, :])
            # Boxes of different labels overlap nothing. Where the overlap is the IoU, both stay one and the same array,
            # so that what matches is read out of it once below.
            is_iou = overlap is iou
            iou = np.where(agree, iou, 0.0)
            overlap = iou if is_iou else np.where(agree, overlap, 0.0)
        matched = self._pair_up(overlap)
        if pred_labels is not None and gt_labels is not None and agree is not None:
            # A predicted label becomes the reference label that it agrees with: that of its match, else the first one.
            # So synonyms of one finding count as one label, and not as a label that is only predicted.
            agreeing_gt = np.where(matched >= 0, matched, agree.argmax(axis=2))
            pred_labels = np.where(agree.any(axis=2), np.take_along_axis(gt_labels, agreeing_gt, axis=1), pred_labels)
        ignored = self._ignored(pred, gt, ignore, matched, rows)
        iou_of_matches = _of_matches(iou, matched)
        return Matched(
            pred=padded_pred,
            gt=padded_gt,
            n=pred.counts[rows] if ignore is None else pred.counts[rows] - ignored.sum(axis=1),
            m=gt.counts[rows],
            tp=row_counts(matched >= 0),
            matched=matched,
            iou=iou_of_matches,
            overlap=iou_of_matches if overlap is iou else _of_matches(overlap, matched),
            every_iou=iou,
            scores=None if scores is None else pad(scores, pred.counts, rows),
            ignored=ignored,
            pred_labels=pred_labels,
            gt_labels=gt_labels,
            label_texts=() if labels is None else labels.texts,
        )

    def _ignored(
        self, pred: BoxBatch, gt: BoxBatch, ignore: BoxBatch | None, matched: NDArray[np.int64], rows: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Which predictions of the chosen completions an ignore region excuses, of the shape of ``matched``.

        Args:
            pred: the predictions of all completions.
            gt: their ground truth.
            ignore: their ignore regions.
            matched: the index of the ground truth of each prediction of the chosen completions, or -1.
            rows: the indices of the chosen completions.
        """
        ignored = np.zeros(matched.shape, dtype=np.bool_)
        if ignore is None:
            return ignored
        # Where there are both regions and predictions; one by one, as few images have regions.
        for k in np.flatnonzero(ignore.counts[rows] * pred.counts[rows]):
            # An array of one row, whose only boxes are then taken.
            row = rows[[k]]
            pred_boxes = pred.padded(row)[0]
            ignored[k, : len(pred_boxes)] = excused_boxes(
                pred_boxes,
                gt.padded(row)[0],
                ignore.padded(row)[0],
                matched[k, : len(pred_boxes)] >= 0,
                ignore_threshold=self.ignore_threshold,
                ignore_many=self.ignore_many,
            )
        return ignored


def _of_matches(values: Array, matched: NDArray[np.int64]) -> Array:
    """The value of each prediction with its match, (b, n); 0 for a prediction without a match.

    Args:
        values: (b, n, m), of each prediction with each ground truth.
        matched: (b, n), the index of the ground truth that each prediction matches, or -1.
    """
    b, n, m = values.shape
    # With -1 the last ground truth is read, and then replaced by 0. A single one is read at once, which is faster.
    of_match = values[:, :, 0] if m == 1 else values[np.arange(b)[:, None], np.arange(n), matched]
    return np.where(matched >= 0, of_match, 0.0)


@dataclass(frozen=True, kw_only=True)
class ThresholdReward(BoxReward):
    """A reward on the pairs whose IoU reaches a threshold; the base of R1 to R5.

    It takes the parameters of :class:`BoxReward`, and:

    Args:
        iou_threshold: τ, the IoU from which a pair matches, in (0, 1].
        matching: ``"greedy"``, ``"hungarian"``, ``"thresholded_hungarian"`` or ``"most_hits"``, see
            :mod:`grounding_rewards.matching`.

    Raises:
        ValueError: a parameter is out of its range.
    """

    iou_threshold: float = parameter(0.5, SOME_SHARE)
    matching: str = parameter("greedy", MATCHERS)

    def _pair_up(self, overlap: Array) -> Indices:
        # What `match_batch` checks was checked when the reward was made.
        return MATCHERS[self.matching](overlap, self.iou_threshold)


def _chunks(n: NDArray[np.int64], m: NDArray[np.int64]) -> Iterator[NDArray[np.intp]]:
    """Cut the completions that have both kinds of boxes into groups that are small when padded.

    Args:
        n: (b,), the predictions of each completion.
        m: (b,), the ground-truth boxes of each.

    Yields:
        The indices of the completions of a chunk, which has at most `_CELLS` pairs of padded boxes, or is one
        completion.
    """
    rows = np.flatnonzero((n > 0) & (m > 0))
    # All fit into one chunk: nothing to sort. Without any row there is no chunk at all.
    if 0 < len(rows) * int(n.max(initial=0)) * int(m.max(initial=0)) <= _CELLS:
        yield rows
        return
    # By rising number of predictions, so that one very long completion does not pad the others.
    rows = rows[np.argsort(n[rows], kind="stable")]
    start = 0
    while start < len(rows):
        stop, most_gt = start, 0
        while stop < len(rows):
            most_gt = max(most_gt, int(m[rows[stop]]))
            # With one more row, which has the most predictions of all so far, the chunk would be too large.
            if stop > start and (stop + 1 - start) * int(n[rows[stop]]) * most_gt > _CELLS:
                break
            stop += 1
        yield rows[start:stop]
        start = stop

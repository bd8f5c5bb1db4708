"""From the text of completions to rewards: the callable that TRL takes.

A completion is read in its box format, its boxes are converted to original pixels, matched and scored. On model text
everything here is total; on a wrong dataset or configuration it raises at once and says what to do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grounding_rewards.boxes import frame_size, rescale, valid_boxes
from grounding_rewards.parsing import (
    BROKEN_BOXES,
    REJECT_REASONS,
    STATUSES,
    ParsedBoxes,
    RawBoxes,
    get_box_format,
    read_boxes,
)
from grounding_rewards.rewards.base import BoxBatch, Explanation, Outcomes, check_choice
from grounding_rewards.rewards.f_beta import MeanIoUReward
from grounding_rewards.rewards.registry import make_box_reward

#: What every call logs, each under the reward's name (``"R4/mean_iou"``): means over the completions of the call.
#: ``hallucination_rate`` alone is a mean over the completions on films without findings, NaN where there is none.
METRIC_KEYS: tuple[str, ...] = (
    "f_beta",
    "quality",
    "precision",
    "recall",
    "mean_iou",
    "boxes",
    *(f"status/{status}" for status in STATUSES),
    *(f"rejected/{reason}" for reason in REJECT_REASONS),
    "negatives",
    "hallucinated",
    "hallucination_rate",
)

_SIZES = ("width", "height", "resized_width", "resized_height")


@dataclass(frozen=True)
class ScoredCompletion:
    """One completion, read and scored.

    Attributes:
        reward: the number that the trainer gets.
        reason: one line for a person: why.
        parsed: the boxes that the text says, in original pixels, its status and what was rejected.
        explanation: matches, F-beta and quality.
    """

    reward: float
    reason: str
    parsed: ParsedBoxes
    explanation: Explanation


@dataclass(frozen=True)
class GroundingReward:
    """A reward on text: reads boxes out of completions and scores them. Made by :func:`get_reward`.

    Frozen, hashable and picklable, with ``__name__``, as TRL wants its reward functions.

    Attributes:
        name: the name under which TRL logs it.
        box_reward: the reward on boxes: an object with ``score(pred, gt)``.
        box_format: how the model writes boxes; None takes it from the ``box_format`` column.
        on_unparseable: what a text without boxes and without a stated negative earns on a film without findings:
            ``"zero"``, or ``"empty"``, the bonus for a correct negative.
        on_truncated: ``"keep"`` scores the complete boxes of a text that was cut off, ``"zero"`` gives it 0.
    """

    name: str
    box_reward: Any
    box_format: str | None = None
    on_unparseable: str = "zero"
    on_truncated: str = "keep"

    def __post_init__(self) -> None:
        if self.box_format is not None:
            get_box_format(self.box_format)
        check_choice(self, "on_unparseable", ("zero", "empty"))
        check_choice(self, "on_truncated", ("keep", "zero"))

    @property
    def __name__(self) -> str:
        return self.name

    def score(self, pred: ArrayLike, gt: ArrayLike) -> float:
        """Reward of predicted boxes ``(n, 4)`` against ground truth ``(m, 4)``, in one common space.

        Example:
            >>> get_reward("R3").score([[0, 0, 10, 8]], [[0, 0, 10, 10]])
            0.8
        """
        return float(self.box_reward.score(pred, gt))

    def explain(self, pred: ArrayLike, gt: ArrayLike) -> Explanation:
        """Like :meth:`score`, with the matches and the parts that led to the number.

        Example:
            >>> explained = get_reward("R3").explain([[0, 0, 10, 8], [50, 50, 60, 60]], [[0, 0, 10, 10]])
            >>> explained.tp, explained.fp, explained.fn, explained.matches, explained.ious
            (1, 1, 0, ((0, 0),), (0.8,))
        """
        return _score_boxes(self.box_reward, BoxBatch.of([pred], "pred"), BoxBatch.of([gt], "gt")).explanation(0)

    def __call__(
        self,
        completions: Sequence[Any],
        *,
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **columns: Any,
    ) -> list[float]:
        """Score one batch: TRL's protocol for reward functions.

        Args:
            completions: n texts, message lists (the last assistant message counts) or lists of content blocks.
            log_metric: called with each of :data:`METRIC_KEYS` under the reward's name.
            log_extra: called with the status and the reason of every completion.
            **columns: the dataset's columns, one entry per completion: ``boxes`` in original pixels, ``width`` and
                ``height`` (or ``image``), ``resized_width`` and ``resized_height`` for formats in resized pixels,
                ``box_format`` if the reward has none; or all of these in ``ground_truth``, one JSON string each.
                Other columns are ignored.

        Returns:
            n numbers in [0, 1].

        Raises:
            ValueError: a column is missing, has another length, or holds something that is no box or size.

        Example:
            >>> reward = get_reward("R3", box_format="qwen3-vl")
            >>> texts = ['[{"bbox_2d": [0, 0, 500, 400]}]', "[]", "no idea"]
            >>> reward(texts, boxes=[[[0, 0, 50, 50]], [], []], width=[100] * 3, height=[100] * 3)
            [0.8, 0.2, 0.0]
        """
        batch = self._score(completions, columns)
        if log_metric is not None:
            for key, value in _metrics(batch).items():
                log_metric(f"{self.name}/{key}", value)
        if log_extra is not None:
            log_extra(f"{self.name}/status", [raw.status for raw in batch.raws])
            log_extra(f"{self.name}/reason", [batch.reason(k) for k in range(len(batch.raws))])
        return batch.reward.tolist()

    def details(self, completions: Sequence[Any], **columns: Any) -> list[ScoredCompletion]:
        """Score one batch and say why; the same arguments as calling the reward.

        Example:
            >>> reward = get_reward("R3", box_format="qwen3-vl")
            >>> texts = ['[{"bbox_2d": [0, 0, 500, 400]}]', "[]"]
            >>> for scored in reward.details(texts, boxes=[[[0, 0, 50, 50]], []], width=[100] * 2, height=[100] * 2):
            ...     print(round(scored.reward, 2), scored.reason)
            0.8 1 of 1 found, mean IoU 0.80
            0.2 nothing to find, and says so
        """
        batch = self._score(completions, columns)
        return [
            ScoredCompletion(float(batch.reward[k]), batch.reason(k), parsed, batch.explanation(k))
            for k, parsed in enumerate(batch.parsed())
        ]

    def _score(self, completions: Sequence[Any], columns: Mapping[str, Any]) -> _ScoredBatch:
        columns = _with_ground_truth(columns, len(completions))
        gt = _ground_truth_boxes(columns, len(completions))
        formats = self._formats(columns, len(completions))
        raws = [
            read_boxes(completion_text(completion), get_box_format(name))
            for completion, name in zip(completions, formats, strict=True)
        ]
        if self.on_truncated == "zero":
            raws = [_without_boxes(raw) if raw.status == "truncated" else raw for raw in raws]
        pred = _predicted_boxes(raws, formats, columns)
        # numpy reads None as NaN
        scores = np.array(list(chain.from_iterable(raw.scores for raw in raws)), dtype=np.float64)
        counted, counted_scores = _with_broken_boxes(raws, pred, scores)
        outcomes = _score_boxes(self.box_reward, counted, gt, counted_scores)
        # A film without findings rewards only the text that says so, not one that merely holds no box.
        silent = ("empty", "unparseable") if self.on_unparseable == "empty" else ("empty",)
        credited = np.array([raw.status in silent for raw in raws], dtype=bool)
        reward = np.where((outcomes.n > 0) | (outcomes.m > 0) | credited, outcomes.reward, 0.0)
        return _ScoredBatch(raws, pred, outcomes, reward)

    def _formats(self, columns: Mapping[str, Any], n: int) -> Sequence[str]:
        if self.box_format is not None:
            return [self.box_format] * n
        formats = _column(columns, "box_format", n)
        if formats is None or None in formats:
            raise ValueError(
                f"Expected a box format for reward {self.name}, got none. "
                f'Build it with get_reward("{self.name}", box_format=...), or add a `box_format` column to the dataset.'
            )
        return formats


def get_reward(
    name: str,
    *,
    box_format: str | None = None,
    on_unparseable: str = "zero",
    on_truncated: str = "keep",
    **params: Any,
) -> GroundingReward:
    """Build a reward by name.

    Args:
        name: ``"R1"`` … ``"R5"``, a name given to :func:`grounding_rewards.register_reward`, or the dotted path of a
            class, a factory, or an object with ``score(pred, gt)``.
        box_format: how the model writes boxes, see :func:`grounding_rewards.list_box_formats`. None takes it from the
            ``box_format`` column of the dataset.
        on_unparseable: ``"zero"``: a text with neither boxes nor a stated negative earns 0 also on a film without
            findings; ``"empty"``: it counts as a negative there (specification §9.1 to the letter).
        on_truncated: ``"keep"`` scores the complete boxes of a text that was cut off; ``"zero"`` gives it 0.
        **params: parameters of the reward, such as ``beta``, ``iou_threshold``, ``no_box_bonus``, ``center_weight``.

    Returns:
        The reward, ready for ``GRPOTrainer(reward_funcs=...)``.

    Raises:
        ValueError: an unknown name, format or parameter, or a value out of range; the message lists what is legal.

    Example:
        >>> reward = get_reward("R4", beta=1.0, box_format="qwen2.5-vl")
        >>> reward.__name__
        'R4'
        >>> get_reward("R6")
        Traceback (most recent call last):
        ValueError: Expected a known name for `name`, got 'R6'. Use one of: R1, R2, R3, R4, R5; or a dotted path.
    """
    made = make_box_reward(name, params)
    if isinstance(made, GroundingReward):
        made = made.box_reward
    if not callable(getattr(made, "score", None)):
        raise ValueError(
            f"Expected an object with `score(pred, gt)` for reward {name!r}, got {made!r}. "
            "Give its class that method, or subclass BoxReward."
        )
    return GroundingReward(name.rpartition(".")[2], made, box_format, on_unparseable, on_truncated)


def completion_text(completion: Any) -> str:
    """Return what the model said, whatever TRL or another trainer wraps it in; anything else is an empty text.

    Args:
        completion: a string, a list of messages (the last assistant message counts), one message, or content blocks.

    Example:
        >>> completion_text([{"role": "assistant", "content": [{"type": "text", "text": "[]"}]}])
        '[]'
    """
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Mapping):
        content = completion.get("content", completion.get("text"))
        return completion_text(content) if isinstance(content, str | Sequence) else ""
    if isinstance(completion, Sequence) and not isinstance(completion, bytes | bytearray):
        messages = [item for item in completion if isinstance(item, Mapping) and "role" in item]
        if messages:
            said = [message for message in messages if message["role"] == "assistant"]
            return completion_text(said[-1]) if said else ""
        return "".join(completion_text(block) for block in completion)
    return ""


@dataclass(frozen=True)
class _ScoredBatch:
    raws: list[RawBoxes]
    pred: BoxBatch
    outcomes: Outcomes
    reward: NDArray[np.float64]

    def explanation(self, k: int) -> Explanation:
        made = self.outcomes.explanation(k)
        return Explanation(**{**vars(made), "reward": float(self.reward[k])})

    def parsed(self) -> list[ParsedBoxes]:
        ends = np.cumsum(self.pred.counts)
        return [
            ParsedBoxes(
                self.pred.flat[end - n : end], tuple(raw.labels), tuple(raw.scores), raw.status, dict(raw.rejected)
            )
            for raw, n, end in zip(self.raws, self.pred.counts, ends, strict=True)
        ]

    def reason(self, k: int) -> str:
        raw, n, m, tp = self.raws[k], int(self.pred.counts[k]), int(self.outcomes.m[k]), int(self.outcomes.tp[k])
        broken = int(self.outcomes.n[k]) - n
        if n == 0 and raw.status != "empty":
            found = ", ".join(f"{count} × {reason}" for reason, count in raw.rejected.items())
            return f"{raw.status}: {found or 'no complete box and no stated negative'}"
        if m == 0:
            return "nothing to find, and says so" if n == 0 else f"{n} {_boxes(n)} where there is nothing to find"
        if n == 0:
            return f"says there is nothing, misses {m}"
        parts = [f"{tp} of {m} found"]
        if n > tp:
            parts.append(f"{n - tp} false {_boxes(n - tp)}")
        if broken:
            parts.append(f"{broken} broken {_boxes(broken)}")
        if tp:
            parts.append(f"mean IoU {self.outcomes.mean_iou[k]:.2f}")
        return ", ".join(parts)


def _boxes(count: int) -> str:
    return "box" if count == 1 else "boxes"


def _with_broken_boxes(
    raws: list[RawBoxes], pred: BoxBatch, scores: NDArray[np.float64]
) -> tuple[BoxBatch, NDArray[np.float64]]:
    """Add an invalid box for everything that stands beside complete boxes where a box belongs, and is none.

    It matches nothing and counts as a false positive, as a well-formed wrong box would: breaking a box never pays.
    """
    broken = np.array(
        [
            sum(raw.rejected.get(reason, 0) for reason in BROKEN_BOXES) if raw.rejected and raw.coords else 0
            for raw in raws
        ],
        dtype=np.int64,
    )
    if not broken.any():
        return pred, scores
    ends = np.repeat(np.cumsum(pred.counts), broken)
    flat = np.insert(pred.flat, ends, np.nan, axis=0)
    return BoxBatch(flat, pred.counts + broken), np.insert(scores, ends, np.nan)


def _score_boxes(box_reward: Any, pred: BoxBatch, gt: BoxBatch, scores: NDArray[np.float64] | None = None) -> Outcomes:
    if hasattr(box_reward, "score_flat"):
        return box_reward.score_flat(pred, gt, scores)
    # Somebody's own reward gives the number; R3 gives the matches that are logged beside it.
    outcomes = MeanIoUReward().score_flat(pred, gt)
    ends_p, ends_g = np.cumsum(pred.counts), np.cumsum(gt.counts)
    own = [
        float(box_reward.score(pred.flat[end_p - n : end_p], gt.flat[end_g - m : end_g]))
        for end_p, n, end_g, m in zip(ends_p, pred.counts, ends_g, gt.counts, strict=True)
    ]
    if not np.isfinite(own).all():
        raise ValueError(
            f"Expected finite numbers for the score of {type(box_reward).__name__}, got {own!r:.200}. "
            "TRL would skip such a sample: return 0 where the reward is undefined."
        )
    return Outcomes(**{**vars(outcomes), "reward": np.array(own, dtype=np.float64)})


def _predicted_boxes(raws: list[RawBoxes], formats: Sequence[str], columns: Mapping[str, Any]) -> BoxBatch:
    counts = np.array([len(raw.coords) // 4 for raw in raws], dtype=np.int64)
    flat = np.array(list(chain.from_iterable(raw.coords for raw in raws)), dtype=np.float64).reshape(-1, 4)
    film, frame = _frames(formats, columns, len(raws))
    return BoxBatch(rescale(flat, np.repeat(film, counts, axis=0), np.repeat(frame, counts, axis=0)), counts)


def _frames(
    formats: Sequence[str], columns: Mapping[str, Any], n: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Each film's size in original pixels and in its format's own space, (n, 2) each; checked for every row."""
    film, frame = np.ones((n, 2)), np.ones((n, 2))
    spaces = {name: get_box_format(name).space for name in formats}
    if all(space.frame == "original" for space in spaces.values()):
        return film, frame
    sizes = _image_sizes(columns, n)
    for name, space in spaces.items():
        mine = np.array([other == name for other in formats], dtype=bool)
        # 1 in the rows of other formats, so that only this format's own rows are judged
        own = {side: np.where(mine, values, 1.0) for side, values in sizes.items()}
        of_film, of_frame = frame_size(space, **own)
        film[mine] = np.broadcast_to(of_film, (n, 2))[mine]
        frame[mine] = np.broadcast_to(of_frame, (n, 2))[mine]
    return film, frame


def _image_sizes(columns: Mapping[str, Any], n: int) -> dict[str, NDArray[np.float64]]:
    """The size columns that are there, (n,) each; width and height of the image where they are not columns."""
    given = {side: _column(columns, side, n) for side in _SIZES}
    images = _column(columns, "image", n)
    if given["width"] is None and given["height"] is None and images is not None:
        given["width"], given["height"] = zip(*map(_size_of_image, images), strict=True) if n else ([], [])
    for side in ("width", "height"):
        if given[side] is None:
            raise ValueError(
                f"Expected a column `{side}` with the film's original size, got none. "
                "Add `width` and `height` to the dataset, or pass `image`."
            )
    return {side: _numbers(side, values) for side, values in given.items() if values is not None}


def _size_of_image(image: Any) -> tuple[int, int]:
    size = getattr(image, "size", None)
    if not isinstance(size, tuple):
        raise ValueError(
            f"Expected PIL images for `image`, got {type(image).__name__}. Add the columns `width` and `height`."
        )
    return size


def _numbers(argument: str, values: Sequence[Any]) -> NDArray[np.float64]:
    try:
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"Expected numbers for `{argument}`, got {list(values)!r:.200}. Give sizes in pixels."
        ) from None


def _ground_truth_boxes(columns: Mapping[str, Any], n: int) -> BoxBatch:
    rows = _column(columns, "boxes", n)
    if rows is None:
        raise ValueError(
            "Expected a column `boxes` with the reference boxes, got none. "
            "Add it to the dataset as lists of [x1, y1, x2, y2] in original pixels, or pass `ground_truth`."
        )
    try:
        counts = np.array([len(row) for row in rows], dtype=np.int64)
        if any(isinstance(box, str) or len(box) != 4 for row in rows for box in row):
            raise ValueError
        numbers = chain.from_iterable(chain.from_iterable(rows))
        flat = np.fromiter(numbers, dtype=np.float64, count=4 * int(counts.sum())).reshape(-1, 4)
    except (TypeError, ValueError):
        raise ValueError(_bad_boxes(rows)) from None
    if not valid_boxes(flat).all():
        k = int(np.searchsorted(np.cumsum(counts), np.flatnonzero(~valid_boxes(flat))[0], side="right"))
        raise ValueError(
            f"Expected finite boxes with x1 < x2 and y1 < y2 for `boxes`, got {list(rows[k])!r:.200} in row {k}. "
            "Boxes are [x1, y1, x2, y2] in original pixels, not x, y, width, height."
        )
    return BoxBatch(flat, counts)


def _bad_boxes(rows: Sequence[Any]) -> str:
    for k, row in enumerate(rows):
        try:
            good = all(not isinstance(box, str) and len([float(value) for value in box]) == 4 for box in row)
        except (TypeError, ValueError):
            good = False
        if not good:
            return (
                f"Expected a list of [x1, y1, x2, y2] for `boxes`, got {row!r:.200} in row {k}. "
                "A film without findings has an empty list."
            )
    return "Expected numbers for `boxes`, got something else. Give every box as [x1, y1, x2, y2]."


def _column(columns: Mapping[str, Any], name: str, n: int) -> Sequence[Any] | None:
    values = columns.get(name)
    if values is None:
        return None
    if isinstance(values, str) or not hasattr(values, "__len__") or len(values) != n:
        got = len(values) if hasattr(values, "__len__") and not isinstance(values, str) else repr(values)
        raise ValueError(
            f"Expected one entry per completion ({n}) for column `{name}`, got {got}. "
            "Repeat the row once per completion, as GRPOTrainer does."
        )
    # TRL fills a column that only other rows have with None.
    return None if n and all(value is None for value in values) else values


def _with_ground_truth(columns: Mapping[str, Any], n: int) -> Mapping[str, Any]:
    """Unpack the column ``ground_truth``, for trainers that hand over one string a row."""
    packed = _column(columns, "ground_truth", n)
    if packed is None or columns.get("boxes") is not None:
        return columns
    rows = []
    for k, text in enumerate(packed):
        try:
            row = json.loads(text) if isinstance(text, str | bytes) else dict(text)
            row["boxes"]
        except (TypeError, ValueError, KeyError):
            raise ValueError(
                f"Expected a JSON object with `boxes` for `ground_truth`, got {text!r:.200} in row {k}. "
                'Write it as {"boxes": [[x1, y1, x2, y2]], "width": 640, "height": 480}.'
            ) from None
        rows.append(row)
    fields = dict.fromkeys(chain.from_iterable(rows))
    return {**columns, **{field: [row.get(field) for row in rows] for field in fields}}


def _without_boxes(raw: RawBoxes) -> RawBoxes:
    return raw._replace(coords=[], labels=[], scores=[])


def _metrics(batch: _ScoredBatch) -> dict[str, float]:
    """The numbers behind :data:`METRIC_KEYS`, in that order, for an empty batch as well."""
    out, raws = batch.outcomes, batch.raws
    n = max(len(raws), 1)
    negative = out.m == 0
    written = batch.pred.counts
    hallucinated = int((negative & (written > 0)).sum())
    negatives = int(negative.sum())
    rejected = [reason for raw in raws for reason in raw.rejected]
    statuses = [raw.status for raw in raws]
    return {
        "f_beta": float(out.f_beta.sum()) / n,
        "quality": float(out.quality.sum()) / n,
        "precision": float(out.precision.sum()) / n,
        "recall": float(out.recall.sum()) / n,
        "mean_iou": float(out.mean_iou.sum()) / n,
        "boxes": float(written.sum()) / n,
        **{f"status/{status}": statuses.count(status) / n for status in STATUSES},
        **{f"rejected/{reason}": rejected.count(reason) / n for reason in REJECT_REASONS},
        "negatives": negatives / n,
        "hallucinated": hallucinated / n,
        "hallucination_rate": hallucinated / negatives if negatives else float("nan"),
    }

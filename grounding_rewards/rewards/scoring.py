"""A batch of completions: read, judged and scored.

`ReadBatch` is the boxes of each text in pixels of its image, and what it will be scored against; judging settles broken
boxes, regions, labels, readers and texts without an answer; `ScoredBatch` is the number of each and why, for the
trainer, for a log and for a person.
"""

from __future__ import annotations

import functools
from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import BoxBatch, frame_to_pixel, positions
from grounding_rewards.columns import References, Sizes, column_of, frame_of_boxes, known_sizes
from grounding_rewards.parsing import (
    BoxFormat,
    BrokenBox,
    ParsedBoxes,
    RawBoxes,
    box_format_from_option,
    format_boxes,
    get_box_format,
    is_silent,
    read_boxes,
)
from grounding_rewards.parsing.results import with_broken
from grounding_rewards.rewards.box_reward import Explanation, Outcomes
from grounding_rewards.rewards.f_beta import MeanIoUReward
from grounding_rewards.rewards.label_matching import LabelCodes


def named_format(name: Any) -> BoxFormat:
    """The box format that an entry of the ``box_format`` column names.

    Raises:
        ValueError: it is no name of a format, nor the text of a declared one.
    """
    if not isinstance(name, str):
        raise ValueError(
            f"Expected the name of a box format for column `box_format`, got {name!r:.200}. "
            "Declare a format of your own with get_reward(..., box_format={...})."
        )
    return _format_of(name)


@functools.cache
def _format_of(name: str) -> BoxFormat:
    # A declared format is logged as the text of its mapping.
    return get_box_format(box_format_from_option(name))


@functools.cache
def has_labels(fmt: BoxFormat) -> bool:
    """Whether labels that are written in this format can be read back.

    Example:
        >>> has_labels(get_box_format("qwen3-vl")), has_labels(get_box_format("llava"))
        (True, False)
    """
    sizes = {"width": 100, "height": 100, "resized_width": 100, "resized_height": 100}
    return read_boxes(format_boxes([[20, 20, 60, 60]], fmt, labels=["mass"], **sizes), fmt).labels == ["mass"]


@dataclass(frozen=True)
class ReadBatch:
    """n completions: their texts, what was read in them and how, and what the dataset says of their images.

    ``sizes`` are None where the columns do not state them.
    """

    texts: list[str]
    raws: list[RawBoxes]
    pred: BoxBatch
    formats: list[BoxFormat]
    opened: list[bool]
    references: References
    ignore: BoxBatch | None
    columns: Mapping[str, Any]
    sizes: Sizes | None


def predicted_boxes(
    raws: list[RawBoxes], formats: Sequence[BoxFormat], columns: Mapping[str, Any], sizes: Sizes | None
) -> BoxBatch:
    """The boxes of all texts, in pixels of their images."""
    lengths = [len(raw.labels) for raw in raws]
    flat = np.fromiter(chain.from_iterable(raw.coords for raw in raws), np.float64, 4 * sum(lengths)).reshape(-1, 4)
    counts = np.array(lengths, dtype=np.int64)
    return BoxBatch(frame_to_pixel(flat, frame_of_boxes(formats, columns, counts, sizes)), counts)


def row_names(read: ReadBatch) -> list[str]:
    """What tells each row from others, whatever stands beside it in the batch: its id, or else its reference boxes."""
    n, references = len(read.raws), read.references
    rows = range(n) if references.rows is None else references.rows
    drawn: list[list[Any]] = [[] for _ in range(n)]
    parts = np.split(references.boxes.flat, np.cumsum(references.boxes.counts))[:-1]
    for row, boxes in zip(rows, parts, strict=True):
        drawn[row].append(boxes.tolist())
    ids = column_of(read.columns, "id", n) or [None] * n
    return [str(boxes if name is None else name) for boxes, name in zip(drawn, ids, strict=True)]


@dataclass(frozen=True)
class ScoredCompletion:
    """One completion, read and scored.

    Attributes:
        reward: the number that the trainer gets.
        reason: one line for a person: why.
        parsed: the boxes in the text, in original pixels, its status and what was rejected.
        explanation: matches, F-beta and quality.
        reader: index of the reader in ``reader_boxes`` by whom the answer is best, and is explained; None where the row
            has one reference.
    """

    reward: float
    reason: str
    parsed: ParsedBoxes
    explanation: Explanation
    reader: int | None = None


@dataclass(frozen=True)
class ScoredBatch(ReadBatch):
    """Beside what was read: what was matched, the rewards (n,), and the references and reader that suit each best."""

    outcomes: Outcomes
    reward: NDArray[np.float64]
    gt: BoxBatch
    readers: Sequence[int | None]

    def explanations(self) -> list[Explanation]:
        """What led to the number of each completion; indices are of the boxes that were read."""
        explained = replace(self.outcomes, reward=self.reward).explanations()
        for k, (raw, made) in enumerate(zip(self.raws, explained, strict=True)):
            if raw.broken:
                # Broken boxes count in the outcomes, and have no place among the boxes that were read.
                broken = [one.place + before for before, one in enumerate(raw.broken)]
                explained[k] = replace(
                    made,
                    matches=tuple((i - bisect(broken, i), j) for i, j in made.matches),
                    ignored=tuple(i - bisect(broken, i) for i in made.ignored),
                )
        return explained

    def parsed(self) -> list[ParsedBoxes]:
        """What was read in each completion, in pixels of its image."""
        counts = self.pred.counts
        return [
            ParsedBoxes(
                self.pred.flat[end - n : end],
                tuple(raw.labels),
                tuple(raw.scores),
                raw.status,
                dict(raw.rejected),
                raw.broken,
            )
            for raw, n, end in zip(self.raws, counts.tolist(), counts.cumsum().tolist(), strict=True)
        ]

    def reasons(self) -> list[str]:
        """One line for a person for each completion: why it earned what it did."""
        own = self.outcomes
        numbers = (self.pred.counts, own.n, own.m, own.tp, own.ignored.sum(axis=1), own.mean_iou)
        return list(map(_reason, self.raws, *(one.tolist() for one in numbers)))


def _reason(raw: RawBoxes, read: int, counted: int, m: int, tp: int, ignored: int, mean_iou: float) -> str:
    n = read - ignored
    broken = counted - n
    if not ignored and n == 0 and raw.status != "empty":
        found = ", ".join(f"{count} × {reason}" for reason, count in raw.rejected.items())
        return f"{raw.status}: {found or 'no complete box and no no-finding statement'}"
    aside = [f"{ignored} {_boxes(ignored)} ignored"] if ignored else []
    if m == 0:
        if n or broken:
            stray = f"{n} {_boxes(n)}" if n else f"{broken} broken {_boxes(broken)}"
            return ", ".join([f"{stray} where there is nothing to find", *aside])
        if ignored:
            return ", ".join(["nothing to find" if raw.status == "boxes" else raw.status, *aside])
        return "nothing to find, and says so"
    if n == 0 and not ignored:
        return f"says there is nothing, misses {m}"
    parts = [f"{tp} of {m} found"]
    if n > tp:
        parts.append(f"{n - tp} false {_boxes(n - tp)}")
    if broken:
        parts.append(f"{broken} broken {_boxes(broken)}")
    parts += aside
    if tp:
        parts.append(f"mean IoU {mean_iou:.2f}")
    return ", ".join(parts)


def _boxes(count: int) -> str:
    return "box" if count == 1 else "boxes"


def judge(read: ReadBatch, reward: Any) -> ScoredBatch:
    """Score a batch that was read.

    Args:
        read: n completions.
        reward: a :class:`grounding_rewards.rewards.grounding.GroundingReward`.
    """
    raws, pred, references, ignore = read.raws, read.pred, read.references, read.ignore
    box_reward = reward.box_reward
    counted = _with_broken_boxes(raws, pred)
    stated = _of_boxes(raws, attrgetter("scores"), attrgetter("score"))
    # None becomes NaN
    scores = None if {None}.issuperset(stated) else np.array(stated, dtype=np.float64)
    labels = None
    if reward.compares_labels:
        of_pred = _of_boxes(raws, attrgetter("labels"), attrgetter("label"))
        labels = box_reward.label_codes(of_pred, references.labels)
    # On an image without findings a text must say so, or hold boxes and be whole, to be rewarded; holding no box is
    # not enough. A text whose boxes all lie in ignore regions counts as saying so; one with something broken in the
    # place of a box never does, and one that was cut off earns nothing, lest breaking off be cheaper than a box.
    lenient = reward.on_unparseable == "empty"
    credited = [
        raw.status in ("empty", "boxes") or (lenient and raw.status == "unparseable" and is_silent(raw.rejected))
        for raw in raws
    ]
    gt, rows = references.boxes, references.rows
    if rows is not None:
        where = positions(counted.counts, rows)
        counted, credited = counted.take(rows), [credited[row] for row in rows.tolist()]
        scores = None if scores is None else scores[where]
        ignore = None if ignore is None else ignore.take(rows)
        labels = None if labels is None else replace(labels, pred=labels.pred[where])
    by_boxes = box_reward if reward.judges_boxes else MeanIoUReward()
    if getattr(box_reward, "in_shares", False):
        sizes = _known_sides(read, box_reward)
        sizes = sizes if rows is None else sizes[rows]
        judged, against = _shares_of_image(counted, sizes), _shares_of_image(gt, sizes)
        regions = None if ignore is None else _shares_of_image(ignore, sizes)
    else:
        judged, against, regions = counted, gt, ignore
    outcomes = score_boxes(by_boxes, judged, against, scores, ignore=regions, labels=labels)
    earned = outcomes.reward if all(credited) else np.where((outcomes.m > 0) | credited, outcomes.reward, 0.0)
    suited: Sequence[int | None] = [None] * len(raws)
    if rows is not None:
        best = _first_best(earned, rows)
        if reward.readers != "best":
            weights = np.ones(len(rows)) if reward.readers == "mean" else box_reward.reader_weights(outcomes)
            # Nothing was drawn where no box counts: by each reader it is right or wrong as a whole.
            weights = np.where((np.bincount(rows, weights=outcomes.n) == 0)[rows], 1.0, weights)
            mean = np.bincount(rows, weights=weights * earned) / np.bincount(rows, weights=weights)
            # Rounding must not lift it above the best.
            earned = np.minimum(mean, earned[best])
        else:
            earned = earned[best]
        outcomes, gt = outcomes.take(best), gt.take(best)
        suited = [references.readers[entry] for entry in best]
    if hasattr(box_reward, "of_batch"):
        earned = box_reward.of_batch(read)
    elif hasattr(box_reward, "of_text"):
        earned = np.array(list(map(box_reward.of_text, read.texts, raws, row_names(read))), dtype=np.float64)
    return ScoredBatch(**vars(read), outcomes=outcomes, reward=earned, gt=gt, readers=suited)


def _known_sides(read: ReadBatch, box_reward: Any) -> NDArray[np.float64]:
    """Width and height of each image, ``(n, 2)``.

    Raises:
        ValueError: one is not known.
    """
    sizes = known_sizes(read.columns, len(read.raws))[:, :2]
    if np.isnan(sizes).any():
        raise ValueError(
            f"Expected the sizes of all images for {type(box_reward).__name__}, which judges shares of the image, got "
            f"none for image {int(np.isnan(sizes).any(axis=1).argmax())}. Add the columns `width` and `height`."
        )
    return sizes


def _shares_of_image(boxes: BoxBatch, sizes: NDArray[np.float64]) -> BoxBatch:
    return BoxBatch(boxes.flat / np.repeat(np.tile(sizes, 2), boxes.counts, axis=0), boxes.counts)


def _with_broken_boxes(raws: list[RawBoxes], pred: BoxBatch) -> BoxBatch:
    """Add an invalid box for each broken one beside complete boxes, where it stood.

    It matches nothing and counts as a false positive, as a well-formed wrong box would: breaking a box never pays.
    """
    if not any(raw.broken for raw in raws):
        return pred
    broken = np.array([len(raw.broken) for raw in raws], dtype=np.int64)
    starts = np.repeat(np.cumsum(pred.counts) - pred.counts, broken)
    places = starts + np.array([one.place for raw in raws for one in raw.broken], dtype=np.int64)
    return BoxBatch(np.insert(pred.flat, places, np.nan, axis=0), pred.counts + broken)


_Value = TypeVar("_Value")


def _of_boxes(
    raws: list[RawBoxes], complete: Callable[[RawBoxes], list[_Value]], broken: Callable[[BrokenBox], _Value]
) -> list[_Value]:
    """What all boxes state, label or confidence, in the order of :func:`_with_broken_boxes`."""
    return list(
        chain.from_iterable(
            with_broken(complete(raw), raw.broken, broken) if raw.broken else complete(raw) for raw in raws
        )
    )


def score_boxes(
    box_reward: Any,
    pred: BoxBatch,
    gt: BoxBatch,
    scores: NDArray[np.float64] | None = None,
    *,
    ignore: BoxBatch | None = None,
    labels: LabelCodes | None = None,
) -> Outcomes:
    """The outcomes of many images under a reward on boxes, a third party's included.

    Raises:
        ValueError: a third party's reward is not finite.
    """
    if hasattr(box_reward, "score_flat"):
        return box_reward.score_flat(pred, gt, scores, ignore=ignore, labels=labels)
    # A third party's reward gives only the number, and knows nothing of ignore regions: R3 gives the matches that are
    # logged beside it, and the ignored boxes, which are taken out first.
    outcomes = MeanIoUReward().score_flat(pred, gt, ignore=ignore)
    ends_p, ends_g = np.cumsum(pred.counts), np.cumsum(gt.counts)
    own = [
        float(box_reward.score(pred.flat[end_p - n : end_p][~ignored[:n]], gt.flat[end_g - m : end_g]))
        for end_p, n, end_g, m, ignored in zip(ends_p, pred.counts, ends_g, gt.counts, outcomes.ignored, strict=True)
    ]
    if not np.isfinite(own).all():
        raise ValueError(
            f"Expected finite numbers for the score of {type(box_reward).__name__}, got {own!r:.200}. "
            "TRL would skip such a sample: return 0 where the reward is undefined."
        )
    return replace(outcomes, reward=np.array(own, dtype=np.float64))


def _first_best(reward: NDArray[np.float64], rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """The entry with the greatest reward in each row; the first among equals.

    Args:
        reward: ``(entries,)``.
        rows: ``(entries,)``, the row of each entry, ascending and without a gap.

    Example:
        >>> _first_best(np.array([0.2, 0.5, 0.5, 0.0]), np.array([0, 0, 0, 1]))
        array([1, 3])
    """
    # lexsort is stable: among equals the first stays in front
    order = np.lexsort((-reward, rows))
    return order[np.flatnonzero(np.diff(rows, prepend=-1))]

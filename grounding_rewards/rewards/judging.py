"""From a batch that was read to its rewards: broken boxes, regions, labels, readers and texts without an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import BoxBatch, positions
from grounding_rewards.columns import known_sizes
from grounding_rewards.parsing import BrokenBox, RawBoxes, is_silent
from grounding_rewards.parsing.results import with_broken
from grounding_rewards.rewards.base import Outcomes
from grounding_rewards.rewards.f_beta import MeanIoUReward
from grounding_rewards.rewards.label_matching import LabelCodes
from grounding_rewards.rewards.read_batch import ReadBatch, row_names
from grounding_rewards.rewards.scored_batch import ScoredBatch


def compares_labels(box_reward: Any) -> bool:
    """Whether a box with the wrong label matches nothing."""
    return getattr(box_reward, "label_matching", "ignore") != "ignore"


def judges_boxes(box_reward: Any) -> bool:
    """Whether boxes and references decide, and not the text or the other answers alone."""
    return not (hasattr(box_reward, "of_text") or hasattr(box_reward, "of_batch"))


def judge(read: ReadBatch, box_reward: Any, *, on_unparseable: str, readers: str) -> ScoredBatch:
    """Score a batch that was read.

    Args:
        read: n completions.
        box_reward: an object with ``score(pred, gt)``.
        on_unparseable: ``"zero"`` or ``"empty"``, as for :class:`grounding_rewards.rewards.grounding.GroundingReward`,
        readers: and ``"best"``, ``"mean"`` or ``"weighted"``, as there.
    """
    raws, pred, references, ignore = read.raws, read.pred, read.references, read.ignore
    counted = _with_broken_boxes(raws, pred)
    # None becomes NaN
    scores = np.array(_of_boxes(raws, attrgetter("scores"), attrgetter("score")), dtype=np.float64)
    labels = None
    if compares_labels(box_reward):
        of_pred = _of_boxes(raws, attrgetter("labels"), attrgetter("label"))
        labels = box_reward.label_codes(of_pred, references.labels)
    # On an image without findings a text must say so, or hold boxes and be whole, to be rewarded; holding no box is
    # not enough. A text whose boxes all lie in ignore regions counts as saying so; one with something broken in the
    # place of a box never does, and one that was cut off earns nothing, lest breaking off be cheaper than a box.
    lenient = on_unparseable == "empty"
    credited = np.array(
        [
            raw.status in ("empty", "boxes") or (lenient and raw.status == "unparseable" and is_silent(raw.rejected))
            for raw in raws
        ],
        dtype=bool,
    )
    gt, rows = references.boxes, references.rows
    if rows is not None:
        where = positions(counted.counts, rows)
        counted, scores, credited = counted.take(rows), scores[where], credited[rows]
        ignore = None if ignore is None else ignore.take(rows)
        labels = None if labels is None else replace(labels, pred=labels.pred[where])
    by_boxes = box_reward if judges_boxes(box_reward) else MeanIoUReward()
    if getattr(box_reward, "in_shares", False):
        sizes = _known_sides(read, box_reward)
        sizes = sizes if rows is None else sizes[rows]
        judged, against = _shares_of_image(counted, sizes), _shares_of_image(gt, sizes)
        regions = None if ignore is None else _shares_of_image(ignore, sizes)
    else:
        judged, against, regions = counted, gt, ignore
    outcomes = score_boxes(by_boxes, judged, against, scores, ignore=regions, labels=labels)
    reward = np.where((outcomes.m > 0) | credited, outcomes.reward, 0.0)
    suited: Sequence[int | None] = [None] * len(raws)
    if rows is not None:
        best = _first_best(reward, rows)
        if readers != "best":
            weights = np.ones(len(rows)) if readers == "mean" else _shares_of_readers(box_reward, outcomes, rows)
            mean = np.bincount(rows, weights=weights * reward) / np.bincount(rows, weights=weights)
            # Rounding must not lift it above the best.
            reward = np.minimum(mean, reward[best])
        else:
            reward = reward[best]
        outcomes, gt = outcomes.take(best), gt.take(best)
        suited = [references.readers[entry] for entry in best]
    if hasattr(box_reward, "of_batch"):
        reward = box_reward.of_batch(read)
    elif hasattr(box_reward, "of_text"):
        reward = np.array(list(map(box_reward.of_text, read.texts, raws, row_names(read))), dtype=np.float64)
    return ScoredBatch(**vars(read), outcomes=outcomes, reward=reward, gt=gt, readers=suited)


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


def _shares_of_readers(box_reward: Any, outcomes: Outcomes, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """What each reader's reward counts in that of a row, where findings are weighted."""
    # Nothing was drawn where no box counts: by each reader it is right or wrong as a whole.
    silent = np.bincount(rows, weights=outcomes.n) == 0
    return np.where(silent[rows], 1.0, box_reward.reader_weights(outcomes))


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
    return list(chain.from_iterable(with_broken(complete(raw), raw.broken, broken) for raw in raws))


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

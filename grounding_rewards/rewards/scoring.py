"""A batch of completions, read and scored; and what every call of a reward logs of it.

`Batch` is the boxes of each text in pixels of its image, and the references. :func:`score_batch` settles broken
boxes, ignore regions, labels, readers and texts without an answer. `Scored` is the number of each completion and
the reason, for the trainer, for a log and for a person.
"""

import functools
import json
import math
from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import BoxBatch, frame_to_pixel, positions, positive_sizes
from grounding_rewards.columns import BOX_COLUMNS, SIZE_COLUMNS, References, column_of, frame_of_boxes
from grounding_rewards.common.formatting import finite_or_none
from grounding_rewards.matching import LabelCodes
from grounding_rewards.parsing import STATUSES, BoxFormat, ParsedBoxes, RawBoxes, format_boxes, is_silent, read_boxes
from grounding_rewards.parsing.results import with_broken
from grounding_rewards.rewards.box_reward import PARTS, BoxReward, Explanation, Outcomes
from grounding_rewards.rewards.f_beta import MeanIoUReward
from grounding_rewards.rewards.published import PublishedReward


@functools.cache
def has_labels(fmt: BoxFormat) -> bool:
    """Whether labels that are written in this format can be read back.

    Example:
        >>> from grounding_rewards.parsing import get_box_format
        >>> has_labels(get_box_format("qwen3-vl")), has_labels(get_box_format("llava"))
        (True, False)
    """
    sizes = {"width": 100, "height": 100, "resized_width": 100, "resized_height": 100}
    return read_boxes(format_boxes([[20, 20, 60, 60]], fmt, labels=["mass"], **sizes), fmt).labels == ["mass"]


@dataclass(frozen=True)
class Batch:
    """n completions: their texts, the boxes read in them and how, and the dataset's references and columns.

    ``opened`` says of each text whether it begins inside its thinking; ``sizes`` are the width, the height, the resized
    width and the resized height of each image, ``(n, 4)``, NaN where unknown.
    """

    texts: list[str]
    raws: list[RawBoxes]
    pred: BoxBatch
    formats: list[BoxFormat]
    opened: list[bool]
    references: References
    ignore: BoxBatch | None
    columns: Mapping[str, Any]
    sizes: NDArray[np.float64]


def predicted_boxes(raws: list[RawBoxes], formats: Sequence[BoxFormat], sizes: NDArray[np.float64]) -> BoxBatch:
    """The boxes of all texts, in pixels of their images, whose `sizes` are as in a :class:`Batch`."""
    # A box has a label each, which may be None, and four coordinates.
    counts = np.array([len(raw.labels) for raw in raws], dtype=np.int64)
    coords = np.fromiter(chain.from_iterable(raw.coords for raw in raws), np.float64, 4 * counts.sum())
    frame = frame_of_boxes(formats, sizes, counts)
    return BoxBatch(frame_to_pixel(coords.reshape(-1, 4), frame), counts)


@dataclass(frozen=True)
class Scored(Batch):
    """A batch with its rewards and matches.

    ``gt`` and ``readers`` are the reference boxes of each completion and the index of the reader who drew them: of
    several readers the one by whom it is best; None for a row without readers.
    """

    outcomes: Outcomes
    gt: BoxBatch
    readers: Sequence[int | None]

    @property
    def reward(self) -> NDArray[np.float64]:
        """The reward of each completion, (n,)."""
        return self.outcomes.reward

    def explanations(self) -> list[Explanation]:
        """An explanation of each completion; indices of predictions are those of its complete boxes, as `parsed`."""
        explanations = self.outcomes.explanations(self.reasons(), self.parsed(), self.readers)
        for k, (raw, explanation) in enumerate(zip(self.raws, explanations, strict=True)):
            if raw.broken:
                # The outcomes count broken boxes among the others: each stands behind `place` complete boxes and the
                # broken ones before it. So the index of a complete box there is larger than among the complete ones,
                # by the number of broken boxes in front of it.
                broken_indices = [box.place + earlier for earlier, box in enumerate(raw.broken)]
                explanations[k] = replace(
                    explanation,
                    matches=tuple((pred - bisect(broken_indices, pred), gt) for pred, gt in explanation.matches),
                    ignored=tuple(pred - bisect(broken_indices, pred) for pred in explanation.ignored),
                )
        return explanations

    def parsed(self) -> list[ParsedBoxes]:
        """The boxes of each completion, in pixels of its image."""
        return [
            ParsedBoxes(boxes, tuple(raw.labels), tuple(raw.scores), raw.status, dict(raw.rejected), raw.broken)
            for raw, boxes in zip(self.raws, self.pred.split(), strict=True)
        ]

    def reasons(self) -> list[str]:
        """One line for a person for each completion: why it earned what it did."""
        outcomes = self.outcomes
        ignored = outcomes.ignored.sum(axis=1)
        numbers = (self.pred.counts, outcomes.n, outcomes.m, outcomes.tp, ignored, outcomes.mean_iou)
        return list(map(_reason, self.raws, *(column.tolist() for column in numbers)))


def _reason(raw: RawBoxes, complete: int, scored: int, findings: int, hits: int, ignored: int, mean_iou: float) -> str:
    """One line for a person: why a completion earned what it did.

    Args:
        raw: how the completion was read.
        complete: number of complete boxes in it.
        scored: number of boxes that count: complete ones without ignored ones, and broken ones.
        findings: number of findings.
        hits: number of findings that are found.
        ignored: number of complete boxes that an ignore region excuses.
        mean_iou: of the boxes that find something.
    """
    counted_boxes = complete - ignored
    broken = scored - counted_boxes
    if complete == 0 and raw.status != "empty":
        rejected = ", ".join(f"{count} × {reason}" for reason, count in raw.rejected.items())
        return f"{raw.status}: {rejected or 'no complete box and no no-finding statement'}"
    but_ignored = f", {_boxes(ignored)} ignored" if ignored else ""
    if findings == 0:
        if counted_boxes or broken:
            false_boxes = _boxes(counted_boxes) if counted_boxes else _boxes(broken, "broken ")
            return f"{false_boxes} where there is nothing to find{but_ignored}"
        if ignored:
            return ("nothing to find" if raw.status == "boxes" else raw.status) + but_ignored
        return "nothing to find, and says so"
    if complete == 0:
        return f"says there is nothing, misses {findings}"
    reason = f"{hits} of {findings} found"
    if counted_boxes > hits:
        reason += f", {_boxes(counted_boxes - hits, 'false ')}"
    if broken:
        reason += f", {_boxes(broken, 'broken ')}"
    reason += but_ignored
    if hits:
        reason += f", mean IoU {mean_iou:.2f}"
    return reason


def _boxes(count: int, kind: str = "") -> str:
    """This number of boxes of this kind in words, such as "2 false boxes"."""
    return f"{count} {kind}{'box' if count == 1 else 'boxes'}"


_LABEL_OF, _SCORE_OF = attrgetter("label"), attrgetter("score")


def score_batch(batch: Batch, reward: Any) -> Scored:
    """Score a batch that was read.

    Args:
        batch: n completions.
        reward: a :class:`grounding_rewards.rewards.grounding.GroundingReward`.
    """
    box_reward, raws = reward.box_reward, batch.raws
    pred, gt, ignore = _with_broken_boxes(raws, batch.pred), batch.references.boxes, batch.ignore
    stated_scores = list(chain.from_iterable(with_broken(raw.scores, raw.broken, _SCORE_OF) for raw in raws))
    # None, which becomes NaN, is a box without a confidence. Most texts state none: then there is no array of them.
    scores = None if {None}.issuperset(stated_scores) else np.array(stated_scores, dtype=np.float64)
    labels = None
    if reward.compares_labels:
        pred_labels = chain.from_iterable(with_broken(raw.labels, raw.broken, _LABEL_OF) for raw in raws)
        labels = box_reward.label_codes(pred_labels, batch.references.labels)
    earns_bonus = [_earns_bonus(raw, reward.on_unparseable) for raw in raws]
    # Where rows have several readers, an entry for each reader is scored, with the predictions of its row; of each
    # entry this is the index of its row.
    rows = batch.references.rows
    if rows is not None:
        box_positions = positions(pred.counts, rows)
        pred, earns_bonus = pred.take(rows), [earns_bonus[row] for row in rows.tolist()]
        scores = None if scores is None else scores[box_positions]
        ignore = None if ignore is None else ignore.take(rows)
        labels = None if labels is None else replace(labels, pred=labels.pred[box_positions])
    # The reference boxes as the reward takes them; `gt` stays in pixels, for the log.
    scored_gt = gt
    if isinstance(box_reward, BoxReward | PublishedReward) and box_reward.normalised_boxes:
        sides = _image_sides(batch, box_reward)
        sides = sides if rows is None else sides[rows]
        pred, scored_gt = _normalised(pred, sides), _normalised(gt, sides)
        ignore = None if ignore is None else _normalised(ignore, sides)
    outcomes = score_boxes(box_reward, pred, scored_gt, scores, ignore=ignore, labels=labels)
    if not all(earns_bonus):
        # On an image without findings texts that do not earn the bonus earn nothing.
        outcomes = replace(outcomes, reward=np.where((outcomes.m > 0) | earns_bonus, outcomes.reward, 0.0))
    readers: Sequence[int | None] = [None] * len(raws)
    if rows is not None:
        # Back to one entry for each row, that of the reader by whom it is best.
        best_entries = _first_best(outcomes.reward, rows)
        earned = outcomes.reward[best_entries]
        if reward.readers == "mean":
            # The mean over the entries of each row; rounding must not lift it above the best.
            earned = np.minimum(np.bincount(rows, weights=outcomes.reward) / np.bincount(rows), earned)
        outcomes = replace(outcomes.take(best_entries), reward=earned)
        gt = gt.take(best_entries)
        readers = [batch.references.readers[entry] for entry in best_entries]
    if reward.text_reward is not None:
        # A control judges the texts: of the boxes only the matches are kept, for the log.
        outcomes = replace(outcomes, reward=np.array(reward.text_reward(batch), dtype=np.float64))
    return Scored(**vars(batch), outcomes=outcomes, gt=gt, readers=readers)


def _earns_bonus(raw: RawBoxes, on_unparseable: str) -> bool:
    """Whether a text may be rewarded on an image without findings.

    It must say that there are none, or hold boxes and be whole; holding no box is not enough. A text whose boxes all
    lie in ignore regions counts as saying so; one with something broken in the place of a box never does; one that was
    cut off earns nothing, or breaking off would be cheaper than a box.
    """
    is_lenient = on_unparseable == "empty" and raw.status == "unparseable" and is_silent(raw.rejected)
    return raw.status in ("empty", "boxes") or is_lenient


def _image_sides(batch: Batch, box_reward: Any) -> NDArray[np.float64]:
    """Width and height of each image, ``(n, 2)``.

    Raises:
        ValueError: one is not known, or is no size.
    """
    sides = batch.sizes[:, :2]
    has_size = positive_sizes(sides).all(axis=1)
    if not has_size.all():
        # `argmin` gives the first image without.
        raise ValueError(
            f"Expected the sizes of all images for {type(box_reward).__name__}, which takes normalised boxes, got "
            f"none for image {int(has_size.argmin())}. Add the columns `width` and `height`."
        )
    return sides


def _normalised(boxes: BoxBatch, sides: NDArray[np.float64]) -> BoxBatch:
    """Boxes in pixels as fractions of the width and height of their images, which are `sides`, ``(n, 2)``."""
    return BoxBatch(boxes.flat / np.repeat(np.tile(sides, 2), boxes.counts, axis=0), boxes.counts)


def _with_broken_boxes(raws: list[RawBoxes], pred: BoxBatch) -> BoxBatch:
    """The predicted boxes, with an invalid one, of NaN, in the place of each broken one beside complete boxes.

    It matches nothing and counts as a false positive, as a well-formed wrong box would: breaking a box never pays.
    """
    if not any(raw.broken for raw in raws):
        return pred
    broken_counts = np.array([len(raw.broken) for raw in raws], dtype=np.int64)
    # For each broken box the index of its completion's first box, in the boxes of all completions.
    first_indices = np.repeat(np.cumsum(pred.counts) - pred.counts, broken_counts)
    indices = first_indices + np.array([box.place for raw in raws for box in raw.broken], dtype=np.int64)
    return BoxBatch(np.insert(pred.flat, indices, np.nan, axis=0), pred.counts + broken_counts)


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
    if isinstance(box_reward, BoxReward):
        return box_reward.match_and_score(pred, gt, scores, ignore=ignore, labels=labels)
    # A third party's reward gives only the number, and knows no ignore regions: R3 gives the matches that are logged
    # with it, and the ignored boxes, which are taken out first.
    outcomes = MeanIoUReward().match_and_score(pred, gt, ignore=ignore)
    values = []
    for pred_boxes, gt_boxes, is_ignored in zip(pred.split(), gt.split(), outcomes.ignored, strict=True):
        # `is_ignored` is as long as the longest completion.
        values.append(box_reward.score(pred_boxes[~is_ignored[: len(pred_boxes)]], gt_boxes))
    try:
        rewards = [float(value) for value in values]
    except (OverflowError, TypeError, ValueError):
        # Refused below, like a number that is not finite.
        rewards = [math.nan]
    if not np.isfinite(rewards).all():
        raise ValueError(
            f"Expected finite numbers for the score of {type(box_reward).__name__}, got {values!r:.200}. "
            "TRL would skip such a sample: return 0 where the reward is undefined."
        )
    return replace(outcomes, reward=np.array(rewards, dtype=np.float64))


def _first_best(reward: NDArray[np.float64], rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """The entry with the greatest reward in each row; the first among equals.

    Args:
        reward: ``(entries,)``.
        rows: ``(entries,)``, the row of each entry, ascending and without a gap.

    Example:
        >>> _first_best(np.array([0.2, 0.5, 0.5, 0.0]), np.array([0, 0, 0, 1]))
        array([1, 3])
    """
    # By row, and within a row by falling reward. lexsort is stable: among equals the first stays in front.
    order = np.lexsort((-reward, rows))
    # Where a new row begins.
    return order[np.flatnonzero(np.diff(rows, prepend=-1))]


def _has_status(batch: Scored, status: str) -> NDArray[np.bool_]:
    """Which texts of the batch have this status, (n,)."""
    return np.array([raw.status == status for raw in batch.raws], dtype=np.bool_)


#: The logged values by name, one of each completion, (n,): another one is a line here.
LOGGED_VALUES: dict[str, Callable[[Scored], NDArray[Any]]] = {
    **{part: attrgetter(f"outcomes.{part}") for part in PARTS},
    "boxes": attrgetter("pred.counts"),
    **{f"status/{status}": partial(_has_status, status=status) for status in STATUSES},
    "rejected": lambda batch: np.array([not is_silent(raw.rejected) for raw in batch.raws], dtype=np.bool_),
    "negatives": lambda batch: batch.outcomes.m == 0,
    "hallucinated": lambda batch: (batch.outcomes.m == 0) & (batch.outcomes.n > 0),
}
#: The keys of what every call logs under the reward's name (``"R4/mean_iou"``): means over the call's completions, but
#: ``hallucination_rate`` is the mean over those on images without findings, NaN where there are none.
METRIC_KEYS: tuple[str, ...] = (*LOGGED_VALUES, "hallucination_rate")


def metrics_of(batch: Scored) -> dict[str, float]:
    """The mean of each of :data:`METRIC_KEYS` over the completions of a batch; 0 where there are no completions."""
    n = max(len(batch.raws), 1)
    sums = {key: float(values_of(batch).sum()) for key, values_of in LOGGED_VALUES.items()}
    metrics = {key: total / n for key, total in sums.items()}
    # Not over all completions, but over those on images without findings.
    metrics["hallucination_rate"] = sums["hallucinated"] / sums["negatives"] if sums["negatives"] else math.nan
    return metrics


def columns_of(batch: Scored, texts: Sequence[str], scheduled: Mapping[str, float]) -> dict[str, list[Any]]:
    """The columns that are logged for each completion; the arguments are those of :func:`logged_rows`."""
    return {
        "status": [raw.status for raw in batch.raws],
        "reason": batch.reasons(),
        ROW_COLUMN: logged_rows(batch, texts, scheduled),
        # With the status these explain why all completions of an image have the same reward.
        "counted": batch.outcomes.n.tolist(),
        "findings": batch.outcomes.m.tolist(),
    }


#: The name, after the reward's, of the column that :func:`logged_rows` writes: `R4/row`.
ROW_COLUMN = "row"

_IMAGE_COLUMNS = ("id", "patient_id", *BOX_COLUMNS, *SIZE_COLUMNS)


def logged_rows(batch: Scored, texts: Sequence[str], scheduled: Mapping[str, float]) -> list[str]:
    """Write down what n completions were scored against, and what was read in them.

    Args:
        batch: what was scored.
        texts: of the completions, as the trainer has them.
        scheduled: the values at this step of the parameters that change in training, by `R3/iou_threshold`.

    Returns:
        n JSON objects. The image: ``id``, ``patient_id``, ``boxes``, ``labels``, ``width``, ``height``,
        ``resized_width``, ``resized_height``, ``ignore_boxes``, ``reader_boxes`` and ``reader_labels``, those that are
        known; how the text is read: ``box_format``, ``prompt_opens_thinking`` where it is true, and ``text`` where it
        is not the trainer's; ``scheduled``, each under its name; and, for people, ``pred``, boxes in pixels of the
        image, with ``pred_labels`` and ``pred_scores`` where the text states them. A corner that overflows is null.

    Example:
        >>> import grounding_rewards as gr
        >>> logged, columns = {}, {"boxes": [[[0, 0, 50, 50]]], "width": [100], "height": [100]}
        >>> reward = gr.get_reward("R3", box_format="qwen3-vl")
        >>> _ = reward(["[[0, 0, 500, 400]]"], log_extra=logged.setdefault, **columns)
        >>> print(logged["R3/row"][0])
        {"boxes":[[0,0,50,50]],"width":100,"height":100,"box_format":"qwen3-vl","pred":[[0.0,0.0,50.0,40.0]]}
    """
    columns, n = batch.columns, len(texts)
    image_columns = {name: column_of(columns, name, n) for name in _IMAGE_COLUMNS}
    if image_columns["width"] is None:
        # Without the column the sizes are those of the images themselves.
        for side, sizes in zip(SIZE_COLUMNS, batch.sizes.T.tolist(), strict=True):
            image_columns[side] = [None if math.isnan(size) else size for size in sizes]
    rows = []
    for k, parsed in enumerate(batch.parsed()):
        row = {
            **{name: values[k] for name, values in image_columns.items() if values is not None},
            "box_format": batch.formats[k].name,
            "prompt_opens_thinking": batch.opened[k] or None,
            # Decoded anew where the trainer's text lacks special tokens.
            "text": batch.texts[k] if batch.texts[k] != texts[k] else None,
            **scheduled,
            "pred": [list(map(finite_or_none, box)) for box in parsed.boxes.tolist()],
            # None where no box has one.
            "pred_labels": parsed.labels if any(label is not None for label in parsed.labels) else None,
            "pred_scores": parsed.scores if any(score is not None for score in parsed.scores) else None,
        }
        stated = {name: value for name, value in row.items() if value is not None}
        rows.append(json.dumps(stated, separators=(",", ":"), default=_json_value))
    return rows


def _json_value(value: Any) -> Any:
    """A value that JSON does not know: an array or a number of numpy as a list or a number, any other as its text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)

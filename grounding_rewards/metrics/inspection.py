"""The metrics of a log of completions: how many were read, why the others were not, and whether the space fits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.boxes import to_pixel, valid_boxes
from grounding_rewards.common.arithmetic import Array
from grounding_rewards.metrics.estimates import finite_or_none
from grounding_rewards.parsing import (
    REJECT_REASONS,
    STATUSES,
    BoxFormat,
    RawBoxes,
    box_format_from_option,
    get_box_format,
    list_box_formats,
    read_boxes,
)
from grounding_rewards.parsing.scope import THINKING_STATES, find_answer
from grounding_rewards.parsing.space_check import SpaceCheck, SpaceWarning, check_space, original_sizes
from grounding_rewards.parsing.thinking_check import count_thinking, thinking_suspicion
from grounding_rewards.rewards import SPECIFICATION_REWARDS
from grounding_rewards.rewards.completion_text import completion_text
from grounding_rewards.rewards.grounding import get_reward

#: A log with a larger share of unparseable completions is suspect.
MOST_UNPARSEABLE = 0.1

_SIZES = ("width", "height", "resized_width", "resized_height")
_CHUNK = 512
# Tolerance as a fraction of the image's sides: a box on the edge is on the image.
_ROUNDING = 1e-9

Track = Callable[[Sequence[Any]], Iterable[Any]]


@dataclass(frozen=True)
class Inspection:
    """The metrics of a log.

    Attributes:
        texts: the completions.
        answers: the part of each that counts, without the thinking for example.
        statuses: how many completions have each of `STATUSES`.
        reasons: how often each of `REJECT_REASONS` was met, those that were.
        boxes: of all completions.
        most_boxes: of one completion.
        upside_down: boxes with x1 >= x2 or y1 >= y2.
        located: boxes for which it is known whether they are on the image.
        off_image: those that reach off the image.
        scored: completions with reference boxes whose image's size is known where it is needed.
        metrics: means over those: of each reward, and of ``mean_iou``, the IoU of matched boxes where an image has any.
        space_checks: by the name of the box format.
        thinking: how many completions have marks of thinking that are ``paired``, ``unopened`` (closed, but never
            opened), ``unclosed``, or ``none``.
        thinking_suspicion: what is suspect about these counts, or None.
        examples: by status and by reason the numbers of the completions that have it.
        notes: warnings about the log.
    """

    texts: tuple[str, ...]
    answers: tuple[str, ...]
    statuses: dict[str, int]
    reasons: dict[str, int]
    boxes: int
    most_boxes: int
    upside_down: int
    located: int
    off_image: int
    scored: int
    metrics: dict[str, float]
    space_checks: dict[str, SpaceCheck]
    thinking: dict[str, int]
    thinking_suspicion: str | None
    examples: dict[str, list[int]]
    notes: tuple[str, ...]

    @property
    def is_suspect(self) -> bool:
        """Whether numbers or marks of thinking contradict what was declared, or more than a tenth is unparseable."""
        unparseable = self.statuses["unparseable"] > MOST_UNPARSEABLE * len(self.texts)
        return (
            unparseable
            or self.thinking_suspicion is not None
            or any(check.likely for check in self.space_checks.values())
        )

    def as_json(self) -> dict[str, Any]:
        """The metrics as plain values for JSON, without any text of the log; what was not measured is None."""
        return {
            "completions": len(self.texts),
            "statuses": self.statuses,
            "reasons": self.reasons,
            "boxes": self.boxes,
            "most_boxes": self.most_boxes,
            "upside_down": self.upside_down,
            "located": self.located,
            "off_image": self.off_image,
            "scored": self.scored,
            "metrics": self.metrics,
            "thinking": {**self.thinking, "suspicion": self.thinking_suspicion},
            "spaces": {name: _check_as_json(check) for name, check in self.space_checks.items()},
            "notes": list(self.notes),
        }


def inspect_completions(
    completions: Sequence[Any],
    rows: Sequence[Mapping[str, Any]],
    box_format: str | Mapping[str, Any] | BoxFormat | None = None,
    *,
    sizes: Mapping[str, float | None] | None = None,
    prompt_opens_thinking: bool = False,
    track: Track = iter,
) -> Inspection:
    """Read a log of completions, and score those with reference boxes.

    Args:
        completions: n texts or message lists.
        rows: n rows with any of the columns ``boxes``, ``width``, ``height``, ``resized_width``, ``resized_height``,
            ``box_format`` and ``prompt_opens_thinking``.
        box_format: how the model writes boxes; None takes it from the column.
        sizes: sizes for the rows that have none, by the name of the column.
        prompt_opens_thinking: as for :func:`grounding_rewards.get_reward`.
        track: iterates over its argument, and may show progress.

    Raises:
        ValueError: no or an unknown box format, or reference boxes or sizes that are none; never for a completion.

    Example:
        >>> inspection = inspect_completions(["[]", "no idea"], [{}, {}], "qwen3-vl")
        >>> inspection.statuses, inspection.reasons
        ({'boxes': 0, 'empty': 1, 'truncated': 0, 'unparseable': 1}, {'nothing_stated': 1})
    """
    formats = _formats(rows, box_format)
    texts = [completion_text(completion) for completion in completions]
    opened = [prompt_opens_thinking or bool(row.get("prompt_opens_thinking")) for row in rows]
    raws: list[RawBoxes] = []
    for start in track(range(0, len(texts), _CHUNK)):
        part = slice(start, start + _CHUNK)
        raws += [
            read_boxes(text, fmt, prompt_opens_thinking=one)
            for text, fmt, one in zip(texts[part], formats[part], opened[part], strict=True)
        ]
    log = _Log(texts, raws, opened, [row.get("boxes") for row in rows], _known_sizes(rows, sizes or {}))
    groups = [
        _Group(fmt, [k for k, other in enumerate(formats) if other is fmt])
        for fmt in {id(fmt): fmt for fmt in formats}.values()
    ]
    scored = [log.scorable(group) for group in groups]
    metrics, notes = _metrics(log, scored, track)
    unscored = sum(isinstance(boxes, list) for boxes in log.gt) - sum(len(group.members) for group in scored)
    if unscored:
        notes.append(
            f"{unscored} completions have reference boxes, but their images have no known size, and are not scored. "
            "Add columns `width` and `height`, or give --width and --height."
        )
    thinking = count_thinking(text for text, fmt in zip(texts, formats, strict=True) if fmt.scope != "all")
    suspicion = thinking_suspicion(thinking, prompt_opens_thinking=any(opened))
    places = np.array([_places(log, group) for group in groups], dtype=int).reshape(-1, 3).sum(axis=0).tolist()
    return Inspection(
        texts=tuple(texts),
        answers=tuple(
            find_answer(text, fmt.scope, prompt_opens_thinking=one).text
            for text, fmt, one in zip(texts, formats, opened, strict=True)
        ),
        statuses={status: sum(raw.status == status for raw in raws) for status in STATUSES},
        reasons=_reasons(raws),
        boxes=sum(len(raw.labels) for raw in raws),
        most_boxes=max((len(raw.labels) for raw in raws), default=0),
        upside_down=places[0],
        located=places[1],
        off_image=places[2],
        scored=sum(len(group.members) for group in scored),
        metrics=metrics,
        space_checks={
            group.fmt.name: _space_check(log, group, mine) for group, mine in zip(groups, scored, strict=True)
        },
        thinking={state: thinking[state] for state in THINKING_STATES},
        thinking_suspicion=suspicion,
        examples=_examples(raws),
        notes=tuple(notes),
    )


class _Group(NamedTuple):
    """The row numbers of the completions in one format."""

    fmt: BoxFormat
    members: list[int]


class _Log(NamedTuple):
    """n completions as read, their reference boxes and the sizes of their images, (n, 4), NaN where unknown."""

    texts: list[str]
    raws: list[RawBoxes]
    opened: list[bool]
    gt: list[Any]
    sizes: Array

    def scorable(self, group: _Group) -> _Group:
        members = [k for k in group.members if isinstance(self.gt[k], list)]
        if group.fmt.space.frame != "original":
            members = [k for k in members if np.isfinite(self.sizes[k, :2]).all()]
        return group._replace(members=members)

    def size_columns(self, members: list[int]) -> dict[str, Array]:
        """The sizes by column, without those that some image lacks."""
        columns = _by_side(self.sizes[members])
        return {side: values for side, values in columns.items() if np.isfinite(values).all()}


def _formats(rows: Sequence[Mapping[str, Any]], box_format: Any) -> list[BoxFormat]:
    if box_format is not None:
        return [get_box_format(box_format)] * len(rows)
    made: dict[str, BoxFormat] = {}
    for k, row in enumerate(rows):
        given = row.get("box_format")
        if given is None:
            raise ValueError(
                f"Expected a box format, got none for row {k}. Give --box-format, or add a column `box_format`; "
                f"known are {', '.join(list_box_formats())}."
            )
        if repr(given) not in made:
            made[repr(given)] = get_box_format(box_format_from_option(given))
    return [made[repr(row["box_format"])] for row in rows]


def _known_sizes(rows: Sequence[Mapping[str, Any]], sizes: Mapping[str, float | None]) -> Array:
    def number(k: int, side: str) -> float:
        value = rows[k].get(side)
        value = sizes.get(side) if value is None else value
        try:
            return math.nan if value is None else float(value)
        except (TypeError, ValueError):
            raise ValueError(
                f"Expected a number for `{side}`, got {value!r:.200} in row {k}. Give sizes in pixels."
            ) from None

    return original_sizes(len(rows), *([number(k, side) for k in range(len(rows))] for side in _SIZES))


def _by_side(sizes: Array) -> dict[str, Array]:
    return dict(zip(_SIZES, sizes.T, strict=True))


def _metrics(log: _Log, scored: Sequence[_Group], track: Track) -> tuple[dict[str, float], list[str]]:
    """Means of each reward and of `mean_iou` over the scored completions; and the warnings."""
    # On an image without findings nothing can match.
    positive = [group._replace(members=[k for k in group.members if log.gt[k]]) for group in scored]
    tasks = [("mean_iou", positive), *((name, list(scored)) for name in SPECIFICATION_REWARDS)]
    metrics = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # The verdict on the space is shown anyway.
        warnings.simplefilter("ignore", SpaceWarning)
        for name, groups in track(tasks):
            sums = np.sum([_sums(log, group, name) for group in groups if group.members], axis=0)
            if sums.any():
                metrics[name] = float(sums[0] / sums[1])
    return metrics, list(dict.fromkeys(str(warning.message) for warning in caught))


def _sums(log: _Log, group: _Group, name: str) -> tuple[float, int]:
    """The sum over completions of a reward, or of the mean IoU of matched boxes, and their number."""
    logged: dict[str, float] = {}
    columns: dict[str, Any] = {
        "boxes": [log.gt[k] for k in group.members],
        "prompt_opens_thinking": [log.opened[k] for k in group.members],
        **log.size_columns(group.members),
    }
    scorer = "R3" if name == "mean_iou" else name
    reward: Any = get_reward(scorer, box_format=group.fmt)
    rewards = reward([log.texts[k] for k in group.members], log_metric=logged.__setitem__, **columns)
    n = len(rewards)
    return (n * logged[f"{scorer}/mean_iou"] if name == "mean_iou" else sum(rewards)), n


def _space_check(log: _Log, group: _Group, scored: _Group) -> SpaceCheck:
    known = set(scored.members)
    gt = [log.gt[k] if k in known else [] for k in group.members]
    return check_space([log.raws[k] for k in group.members], group.fmt, gt, **_by_side(log.sizes[group.members]))


def _places(log: _Log, group: _Group) -> tuple[int, int, int]:
    """How many boxes are upside down, how many can be located on their image, and how many of these reach off it."""
    raws = [log.raws[k] for k in group.members]
    counts = [len(raw.labels) for raw in raws]
    boxes = np.array([value for raw in raws for value in raw.coords], dtype=np.float64).reshape(-1, 4)
    upside_down = int((~valid_boxes(boxes)).sum())
    columns = {side: np.repeat(sizes, counts) for side, sizes in log.size_columns(group.members).items()}
    if "width" not in columns or "height" not in columns:
        if group.fmt.space.frame != "image":
            return upside_down, 0, 0
        # For fractions of the image its size does not matter.
        columns = {"width": np.ones(len(boxes)), "height": np.ones(len(boxes))}
    if group.fmt.space.frame == "resized" and len(columns) < len(_SIZES):
        return upside_down, 0, 0
    edges = np.tile(np.stack([columns["width"], columns["height"]], axis=-1), 2)
    pixels = to_pixel(boxes, group.fmt.space, **columns)
    off_image = ((pixels < -_ROUNDING * edges) | (pixels > (1 + _ROUNDING) * edges)).any(axis=1)
    return upside_down, len(boxes), int(off_image.sum())


def _reasons(raws: Sequence[RawBoxes]) -> dict[str, int]:
    counts = {reason: sum(raw.rejected.get(reason, 0) for raw in raws) for reason in REJECT_REASONS}
    return {reason: count for reason, count in counts.items() if count}


def _examples(raws: Sequence[RawBoxes]) -> dict[str, list[int]]:
    examples: dict[str, list[int]] = {}
    for k, raw in enumerate(raws):
        for key in (raw.status, *raw.rejected):
            examples.setdefault(key, []).append(k)
    return examples


def _check_as_json(check: SpaceCheck) -> dict[str, Any]:
    return {
        "declared": check.declared._asdict(),
        "likely": check.likely._asdict() if check.likely is not None else None,
        "declared_iou": finite_or_none(check.declared_iou),
        "likely_iou": finite_or_none(check.likely_iou),
        "images": check.images,
        "boxes": check.boxes,
        "message": check.message,
    }

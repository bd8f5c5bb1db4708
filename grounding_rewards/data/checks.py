"""Refuse a dataset that cannot be learned from, before the first step and with every bad row named at once.

Two kinds of mistake cost days: boxes that do not fit the film, and boxes that fit but cannot be said in the model's
box format. The first is geometry. For the second every row's own ground truth is written in the box format and scored:
what the author knows to be right has to earn full marks from the very reward that will train the model.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from grounding_rewards.boxes import as_box_array, space_frame
from grounding_rewards.data.images import image_sizes
from grounding_rewards.data.prompts import gold_answer
from grounding_rewards.overlap import pairwise_ioa, pairwise_iou
from grounding_rewards.parsing import BoxFormat, get_box_format

if TYPE_CHECKING:
    from datasets import Dataset

    from grounding_rewards.boxes import Boxes
    from grounding_rewards.scoring import GroundingReward, ScoredCompletion

_REQUIRED_COLUMNS = ("prompt", "boxes")
_GEOMETRY_COLUMNS = ("width", "height", "resized_width", "resized_height")
_TOLERANCE = 1e-6
# Below this part of the full reward, what the rounding of a format costs is worth a warning.
_FINE_ENOUGH = 0.9

Row = Mapping[str, Any]


def check_dataset(dataset: Dataset, reward: GroundingReward, *, name: str = "train_dataset") -> None:
    """Raise one error that names every row on which `reward` could not be trained.

    A row is bad if its boxes are not four finite numbers each with `x1 < x2` and `y1 < y2` inside the film,
    its labels are not as many as its boxes, its sizes are missing or contradict the image, its box format is
    unknown, or its ground truth, written in that box format and scored, does not earn the full reward:
    `no_box_bonus` on a film without boxes; on others every box is found again and the reward is what the
    rounding of the format leaves of 1. A coarse format may leave little: one warning then says in how many rows the
    right answer earns less than 0.9 of the full reward, and the least that it earns.

    Args:
        dataset: Rows with the columns `prompt`, `boxes`, `width` and `height` (or `image`), and optionally
            `labels`, `resized_width`, `resized_height`, `box_format` and `id`.
        reward: The reward to train with; its own box format goes before the rows'.
        name: What to call the dataset in the error.

    Raises:
        ValueError: A column is missing, there are no rows, or rows are bad (number, `id` and reason of each).

    >>> from datasets import Dataset
    >>> import grounding_rewards as gr
    >>> film = {"prompt": "Where?", "boxes": [[10.1, 10, 10.2, 50]], "labels": ["tube"], "width": 400, "height": 600}
    >>> try:
    ...     check_dataset(Dataset.from_list([film]), gr.get_reward("R4", box_format="qwen3-vl"))
    ... except ValueError as error:
    ...     print(str(error).splitlines()[-1].partition(";")[0])
    row 0 (id -): box 0 (0.1 x 40 pixels) does not survive the rounding of qwen3-vl, IoU 0.25 with itself
    """
    _check_columns(dataset.column_names, name, needs_format=reward.box_format is None)
    rows = _all_rows(dataset, name)
    problems = {number: found for number, row in enumerate(rows) if (found := list(row_problems(row, reward)))}
    sound = [number for number in range(len(rows)) if number not in problems]
    scored = _score_gold([rows[number] for number in sound], reward)
    for number, one in zip(sound, scored, strict=True):
        if found := list(_gold_problems(rows[number], one, reward)):
            problems[number] = found
    if problems:
        raise ValueError(_message(rows, problems, f"ground truth that earns the full reward {reward.__name__}", name))
    _warn_of_coarse_rows(rows, scored, reward, name)


def check_films(dataset: Dataset, *, name: str = "train_dataset") -> None:
    """Raise one error that names every row whose sizes, boxes or labels cannot be right, whatever the reward.

    The part of :func:`check_dataset` that needs neither a reward nor a box format.

    Args:
        dataset: As for :func:`check_dataset`.
        name: What to call the dataset in the error.

    Raises:
        ValueError: A column is missing, there are no rows, or rows are bad (number, `id` and reason of each).

    >>> from datasets import Dataset
    >>> film = {"prompt": "Where?", "boxes": [[10, 10, 50, 50]], "labels": ["mass"], "width": 40, "height": 60}
    >>> try:
    ...     check_films(Dataset.from_list([film]))
    ... except ValueError as error:
    ...     print(str(error).splitlines()[-1])
    row 0 (id -): box 0 is [10, 10, 50, 50], outside the film of 40 x 60
    """
    _check_columns(dataset.column_names, name, needs_format=False)
    rows = _all_rows(dataset, name)
    problems = {number: found for number, row in enumerate(rows) if (found := list(row_problems(row)))}
    if problems:
        raise ValueError(_message(rows, problems, "sizes, boxes and labels that fit the film", name))


def row_problems(row: Row, reward: GroundingReward | None = None) -> Iterator[str]:
    """What is wrong with the columns and the geometry of one row, one sentence each; nothing for a sound row.

    Args:
        row: One row; `image_size` holds the size of its image where the dataset has images.
        reward: Decides the box format where the row does not; None leaves the box format aside.

    >>> list(row_problems({"boxes": [[5, 5, 2, 9]], "labels": [], "width": 40, "height": 60}))
    ['0 labels for 1 boxes', 'box 0 is [5, 5, 2, 9], which has no area as x1, y1, x2, y2']
    """
    width, height = row.get("width"), row.get("height")
    yield from _size_problems(row)
    boxes = row["boxes"]
    if not isinstance(boxes, Sequence):
        yield f"boxes is {boxes!r}, not a list"
        return
    labels = row.get("labels")
    if labels is not None and len(labels) != len(boxes):
        yield f"{len(labels)} labels for {len(boxes)} boxes"
    for index, box in enumerate(boxes):
        if problem := _box_problem(box, width, height):
            yield f"box {index} {problem}"
    if reward is not None:
        yield from _format_problems(row, reward)


def _all_rows(dataset: Dataset, name: str) -> list[dict[str, Any]]:
    rows = list(_rows(dataset))
    if not rows:
        raise ValueError(f"Expected at least one row for {name}, got none. Check the split and the path.")
    return rows


def _rows(dataset: Dataset) -> Iterator[dict[str, Any]]:
    """The rows without their images, but with the images' sizes, read from the headers."""
    light = dataset.with_format(None).remove_columns(
        [column for column in ("prompt", "image") if column in dataset.column_names]
    )
    if "image" not in dataset.column_names:
        yield from light
        return
    for row, size in zip(light, image_sizes(dataset), strict=True):
        row["image_size"] = size
        if row.get("width") is None and row.get("height") is None and size is not None:
            row["width"], row["height"] = size
        yield row


def _check_columns(columns: Iterable[str], name: str, *, needs_format: bool) -> None:
    columns = set(columns)
    missing = [column for column in _REQUIRED_COLUMNS if column not in columns]
    if "image" not in columns:
        missing += [column for column in ("width", "height") if column not in columns]
    if needs_format and "box_format" not in columns:
        missing.append("box_format")
    if missing:
        raise ValueError(
            f"Expected the columns {', '.join((*_REQUIRED_COLUMNS, 'width', 'height', 'box_format'))} "
            f"for {name}, got {', '.join(sorted(columns))}. Add {', '.join(missing)} "
            "(an image column may stand for width and height, the reward's own box_format for the last)."
        )


def _size_problems(row: Row) -> Iterator[str]:
    for column in _GEOMETRY_COLUMNS:
        value = row.get(column)
        if value is None:
            if column in ("width", "height"):
                yield f"{column} is missing"
        elif not _is_number(value) or value <= 0:
            yield f"{column} is {value!r}, not a size in pixels"
    size, width, height = row.get("image_size"), row.get("width"), row.get("height")
    if "image_size" in row and size is None:
        yield "image is missing"
    if size is None or width is None or height is None or not (_is_number(width) and _is_number(height)):
        return
    # A shrunken image has the film's shape up to the rounding of both sides
    if abs(size[0] * height - size[1] * width) > width + height:
        yield f"the image is {size[0]} x {size[1]}, which is not the shape of {width} x {height}"


def _box_problem(box: Any, width: Any, height: Any) -> str | None:
    if not isinstance(box, Sequence) or len(box) != 4:
        return f"is {box!r}, not four numbers"
    if not all(_is_number(value) for value in box):
        return f"is {list(box)!r}, not four finite numbers"
    x1, y1, x2, y2 = box
    if x1 >= x2 or y1 >= y2:
        return f"is {list(box)}, which has no area as x1, y1, x2, y2"
    if not (_is_number(width) and _is_number(height)):
        return None
    slack = _TOLERANCE * max(width, height)
    if x1 < -slack or y1 < -slack or x2 > width + slack or y2 > height + slack:
        return f"is {list(box)}, outside the film of {width} x {height}"
    return None


def _format_problems(row: Row, reward: GroundingReward) -> Iterator[str]:
    if reward.box_format is None and row.get("box_format") is None:
        yield "box_format is missing"
        return
    try:
        box_format = _box_format(row, reward)
    except ValueError as error:
        yield str(error)
        return
    if box_format.space.frame == "resized" and None in (
        row.get("resized_width"),
        row.get("resized_height"),
    ):
        yield f"resized_width and resized_height are missing, which the box format {box_format.name} counts in"


def _box_format(row: Row, reward: GroundingReward) -> BoxFormat:
    if reward.box_format is not None:
        return get_box_format(reward.box_format)
    if not isinstance(row["box_format"], str):
        raise ValueError(f"box_format is {row['box_format']!r:.200}, not a name")
    return get_box_format(row["box_format"])


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _score_gold(rows: Sequence[Row], reward: GroundingReward) -> list[ScoredCompletion]:
    """What each row's own ground truth earns, written in the box format and read back."""
    if not rows:
        return []
    columns = {key: [row.get(key) for row in rows] for key in rows[0] if key != "image_size"}
    return reward.details(completions=[gold_answer(row, _box_format(row, reward)) for row in rows], **columns)


def _gold_problems(row: Row, scored: ScoredCompletion, reward: GroundingReward) -> Iterator[str]:
    """What a row's own ground truth loses when it is written in the box format."""
    box_format = _box_format(row, reward)
    gt, read = as_box_array(row["boxes"]), as_box_array(scored.parsed.boxes)
    if len(read) != len(gt):
        yield f"its {len(gt)} boxes written in {box_format.name} are read back as {len(read)} ({scored.parsed.status})"
        return
    if len(gt) and scored.reward >= 1.0 - _TOLERANCE:
        return
    full = reward.score(gt, gt)
    earned = f"its own boxes written in {box_format.name} earn {scored.reward:.2g} of {full:.2g}"
    if scored.explanation.fn:
        for index in sorted(set(range(len(gt))) - {match[1] for match in scored.explanation.matches}):
            yield f"box {index} {_loss(row, gt[index : index + 1], read[index : index + 1], box_format)}"
        yield earned
    # Full marks are 1 for R1 to R5; somebody's own reward may have another maximum, but not none.
    elif len(gt) and full <= 0:
        yield f"its own boxes earn {full:.4g}, so that nothing could be learned from it"
    # What is lost beyond the rounding of the coordinates is lost in the text
    elif scored.reward < reward.score(read, gt) - _TOLERANCE:
        yield f"{earned} ({scored.reason})"


def _loss(row: Row, box: Boxes, read: Boxes, box_format: BoxFormat) -> str:
    """Why one box, (1, 4), is not found again."""
    size = " x ".join(f"{side:.3g}" for side in box[0, 2:] - box[0, :2])
    crop = _crop(row, box_format)
    outside = 0.0 if crop is None else 1.0 - pairwise_ioa(crop, box)[0, 0]
    if crop is not None and outside > _TOLERANCE:
        why = f"lies {outside:.0%} outside {crop[0].tolist()}, all that {box_format.name} sees of the film"
    else:
        why = f"does not survive the rounding of {box_format.name}"
    return f"({size} pixels) {why}, IoU {pairwise_iou(read, box)[0, 0]:.2f} with itself"


def _crop(row: Row, box_format: BoxFormat) -> Boxes | None:
    """The part of the film, (1, 4), outside which the format has no numbers; None where it has them for all of it."""
    if box_format.space.frame != "cropped":
        return None
    frame = space_frame(box_format.space, row["width"], row["height"])
    return np.broadcast_to(frame.origin, (1, 4)) + np.array([[0.0, 0.0, 1.0, 1.0]]) * frame.size


def _warn_of_coarse_rows(
    rows: Sequence[Row], scored: Sequence[ScoredCompletion], reward: GroundingReward, name: str
) -> None:
    """Say once what the rounding of the format costs, where it costs much although every box is found again."""
    coarse = [
        (one.reward / full, number, full)
        for number, (row, one) in enumerate(zip(rows, scored, strict=True))
        if row["boxes"] and one.reward < _FINE_ENOUGH * (full := reward.score(row["boxes"], row["boxes"]))
    ]
    if not coarse:
        return
    _, number, full = min(coarse)
    warnings.warn(
        f"The box format {_box_format(rows[number], reward).name} cannot hold some boxes of {name} closely: in "
        f"{len(coarse)} of {len(rows)} rows the right answer earns less than {_FINE_ENOUGH:.0%} of the full reward "
        f"{reward.__name__}, at worst {scored[number].reward:.2g} of {full:.2g} in row {number} "
        f"(id {rows[number].get('id', '-')}), where a box has IoU {min(scored[number].explanation.ious):.2f} with "
        "itself.",
        stacklevel=3,
    )


def _message(rows: Sequence[Row], problems: Mapping[int, Sequence[str]], expected: str, name: str) -> str:
    lines = [
        f"row {number} (id {rows[number].get('id', '-')}): {'; '.join(found)}" for number, found in problems.items()
    ]
    return (
        f"Expected {expected} in every row for {name}, "
        f"got {len(problems)} bad {'row' if len(problems) == 1 else 'rows'} of {len(rows)}. "
        "Correct or drop them:\n" + "\n".join(lines)
    )

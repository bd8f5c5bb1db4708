"""A batch of completions, read: the boxes of each text in pixels of its image, and what it will be scored against."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from grounding_rewards.boxes import BoxBatch, Frame, frame_to_pixel
from grounding_rewards.columns import References, column_of, frames_of_rows
from grounding_rewards.parsing import (
    BoxFormat,
    RawBoxes,
    box_format_from_option,
    format_boxes,
    get_box_format,
    read_boxes,
)


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
    """n completions: their texts, what was read in them and how, and what the dataset says of their images."""

    texts: list[str]
    raws: list[RawBoxes]
    pred: BoxBatch
    formats: list[BoxFormat]
    opened: list[bool]
    references: References
    ignore: BoxBatch | None
    columns: Mapping[str, Any]


def predicted_boxes(raws: list[RawBoxes], formats: Sequence[BoxFormat], columns: Mapping[str, Any]) -> BoxBatch:
    """The boxes of all texts, in pixels of their images."""
    counts = np.array([len(raw.coords) // 4 for raw in raws], dtype=np.int64)
    flat = np.array(list(chain.from_iterable(raw.coords for raw in raws)), dtype=np.float64).reshape(-1, 4)
    frames = frames_of_rows(formats, columns, len(raws))
    if len(raws) > 1:
        frames = np.repeat(frames, counts, axis=1)
    return BoxBatch(frame_to_pixel(flat, Frame(*frames)), counts)


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

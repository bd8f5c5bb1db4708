"""What makes a log of completions score itself: what each completion was scored against, beside it, as JSON.

A trainer's table of completions has their texts and rewards, and not the images' reference boxes. A row of this module
says the rest, in the words of a dataset's columns, so that every reward can be computed again from the table alone, to
the last digit. `grounding_rewards.logs.completion_logs` reads it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from grounding_rewards.columns import BOX_COLUMNS, SIZE_COLUMNS, column_of, known_sizes
from grounding_rewards.parsing import BoxFormat, ParsedBoxes

#: The name of the column, after the reward's: `R4/row`.
ROW_COLUMN = "row"

_IMAGE = ("id", "patient_id", *BOX_COLUMNS, *SIZE_COLUMNS)


def logged_rows(
    texts: Sequence[str],
    read_texts: Sequence[str],
    parsed: Sequence[ParsedBoxes],
    formats: Sequence[BoxFormat],
    opened: Sequence[bool],
    columns: Mapping[str, Any],
    scheduled: Mapping[str, float],
) -> list[str]:
    """Write down what n completions were scored against, and what was read in them.

    Args:
        texts: as the trainer has them.
        read_texts: as the reward read them: decoded anew where the trainer's text lacks special tokens.
        parsed: what was read.
        formats: how.
        opened: whether the prompt had opened a thinking.
        columns: of the dataset, with n entries each.
        scheduled: the values at this step of the parameters that change in training, by `R3/iou_threshold`.

    Returns:
        n JSON objects. The image: ``id``, ``patient_id``, ``boxes``, ``labels``, ``width``, ``height``,
        ``resized_width``, ``resized_height``, ``ignore_boxes``, ``reader_boxes`` and ``reader_labels``, those that are
        known; how the text is read: ``box_format``, ``prompt_opens_thinking`` where it is true, and ``text`` where it
        is not the trainer's; ``scheduled``, each under its name; and, for people, ``pred``, boxes in pixels of the
        image, with ``pred_labels`` and ``pred_scores`` where the text states them. A number that is not finite is null.

    Example:
        >>> from grounding_rewards.parsing import get_box_format, parse_boxes
        >>> size = {"width": 100, "height": 100}
        >>> parsed = parse_boxes("[[0, 0, 500, 400]]", box_format="qwen3-vl", **size)
        >>> columns = {"boxes": [[[0, 0, 50, 50]]], **{side: [pixels] for side, pixels in size.items()}}
        >>> logged_rows(["a"], ["a"], [parsed], [get_box_format("qwen3-vl")], [False], columns, {})[0]
        '{"boxes":[[0,0,50,50]],"width":100,"height":100,"box_format":"qwen3-vl","pred":[[0.0,0.0,50.0,40.0]]}'
    """
    n = len(texts)
    image = {name: values for name in _IMAGE if (values := column_of(columns, name, n)) is not None}
    if "width" not in image:
        sides = zip(SIZE_COLUMNS, known_sizes(columns, n).T.tolist(), strict=True)
        image |= {side: [None if math.isnan(one) else one for one in sizes] for side, sizes in sides}
    rows = []
    for k in range(n):
        said = {
            **{name: values[k] for name, values in image.items()},
            "box_format": formats[k].name,
            "prompt_opens_thinking": opened[k] or None,
            "text": read_texts[k] if read_texts[k] != texts[k] else None,
            **scheduled,
            "pred": [[one if math.isfinite(one) else None for one in box] for box in parsed[k].boxes.tolist()],
            "pred_labels": _if_any(parsed[k].labels),
            "pred_scores": _if_any(parsed[k].scores),
        }
        known = {name: value for name, value in said.items() if value is not None}
        rows.append(json.dumps(known, separators=(",", ":"), default=_plain))
    return rows


def _if_any(stated: Sequence[Any]) -> list[Any] | None:
    return None if all(one is None for one in stated) else list(stated)


def _plain(value: Any) -> Any:
    # Arrays and numbers of numpy; a name of any other type is its text.
    return value.tolist() if hasattr(value, "tolist") else str(value)

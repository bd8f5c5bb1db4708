"""The log of every call of a reward: means over its completions, and columns for each of them.

A trainer's table of completions has their texts and rewards, and not the images' reference boxes. A logged row
(:func:`logged_rows`) says the rest, in the words of a dataset's columns, so that every reward can be computed again
from the table alone, to the last digit. `grounding_rewards.logs.read` reads it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.columns import BOX_COLUMNS, SIZE_COLUMNS, column_of
from grounding_rewards.parsing import STATUSES, is_silent
from grounding_rewards.rewards.box_reward import PARTS
from grounding_rewards.rewards.scoring import Scored


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
    """The value of each of :data:`METRIC_KEYS` in a batch; a mean is 0 where there are no completions."""
    n = max(len(batch.raws), 1)
    sums = {key: float(values_of(batch).sum()) for key, values_of in LOGGED_VALUES.items()}
    metrics = {key: total / n for key, total in sums.items()}
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


#: The name of the column, after the reward's: `R4/row`.
ROW_COLUMN = "row"

_IMAGE = ("id", "patient_id", *BOX_COLUMNS, *SIZE_COLUMNS)


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
        image, with ``pred_labels`` and ``pred_scores`` where the text states them. A number that is not finite is null.

    Example:
        >>> import grounding_rewards as gr
        >>> logged, columns = {}, {"boxes": [[[0, 0, 50, 50]]], "width": [100], "height": [100]}
        >>> reward = gr.get_reward("R3", box_format="qwen3-vl")
        >>> _ = reward(["[[0, 0, 500, 400]]"], log_extra=logged.setdefault, **columns)
        >>> print(logged["R3/row"][0])
        {"boxes":[[0,0,50,50]],"width":100,"height":100,"box_format":"qwen3-vl","pred":[[0.0,0.0,50.0,40.0]]}
    """
    columns, n = batch.columns, len(texts)
    image_columns = {name: column_of(columns, name, n) for name in _IMAGE}
    if image_columns["width"] is None:
        for side, sizes in zip(SIZE_COLUMNS, batch.known_sizes.T.tolist(), strict=True):
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
            "pred": [[number if math.isfinite(number) else None for number in box] for box in parsed.boxes.tolist()],
            "pred_labels": _if_any(parsed.labels),
            "pred_scores": _if_any(parsed.scores),
        }
        stated = {name: value for name, value in row.items() if value is not None}
        rows.append(json.dumps(stated, separators=(",", ":"), default=_plain))
    return rows


def _if_any(values: Sequence[Any]) -> list[Any] | None:
    """The values as a list; None where all of them are None."""
    return None if all(value is None for value in values) else list(values)


def _plain(value: Any) -> Any:
    """A value that JSON does not know: an array or a number of numpy as a list or a number, any other as its text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)

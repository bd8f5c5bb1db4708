"""What every call of a reward logs: means over its completions, and columns beside each of them.

A trainer's table of completions has their texts and rewards, and not the images' reference boxes. A logged row
(:func:`logged_rows`) says the rest, in the words of a dataset's columns, so that every reward can be computed again
from the table alone, to the last digit. `grounding_rewards.logs.completion_logs` reads it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.columns import BOX_COLUMNS, SIZE_COLUMNS, column_of, known_sizes
from grounding_rewards.parsing import REJECT_REASONS, STATUSES, BoxFormat, ParsedBoxes
from grounding_rewards.rewards.base import PARTS
from grounding_rewards.rewards.judging import ScoredBatch


def metrics_of(batch: ScoredBatch) -> dict[str, float]:
    """The value of each of :data:`METRIC_KEYS`."""
    return {key: metric(batch) for key, metric in _METRICS.items()}


def columns_of(batch: ScoredBatch, given: Sequence[str], scheduled: Mapping[str, float]) -> dict[str, list[Any]]:
    """What stands beside each completion in a log.

    Args:
        batch: n completions.
        given: their texts as the trainer has them.
        scheduled: as for :func:`grounding_rewards.rewards.batch_log.logged_rows`.
    """
    return {
        "status": [raw.status for raw in batch.raws],
        "reason": batch.reasons(),
        ROW_COLUMN: logged_rows(
            given, batch.texts, batch.parsed(), batch.formats, batch.opened, batch.columns, scheduled
        ),
        # What tells why the completions of an image earn the same, beside the status.
        "counted": batch.outcomes.n.tolist(),
        "findings": batch.outcomes.m.tolist(),
    }


_Metric = Callable[[ScoredBatch], float]


def _mean(values: Callable[[ScoredBatch], NDArray[Any]]) -> _Metric:
    return lambda batch: float(values(batch).sum()) / max(len(batch.raws), 1)


def _with_status(status: str) -> _Metric:
    return _mean(lambda batch: np.array([raw.status == status for raw in batch.raws]))


def _with_rejected(reason: str) -> _Metric:
    return _mean(lambda batch: np.array([reason in raw.rejected for raw in batch.raws]))


def _hallucinated(batch: ScoredBatch) -> NDArray[np.bool_]:
    return (batch.outcomes.m == 0) & (batch.outcomes.n > 0)


def _hallucination_rate(batch: ScoredBatch) -> float:
    negatives = int((batch.outcomes.m == 0).sum())
    return int(_hallucinated(batch).sum()) / negatives if negatives else float("nan")


#: What every call logs, and how it is computed: another metric is one line here.
_METRICS: dict[str, _Metric] = {
    **{part: _mean(attrgetter(f"outcomes.{part}")) for part in PARTS},
    "boxes": _mean(lambda batch: batch.pred.counts),
    **{f"status/{status}": _with_status(status) for status in STATUSES},
    **{f"rejected/{reason}": _with_rejected(reason) for reason in REJECT_REASONS},
    "negatives": _mean(lambda batch: batch.outcomes.m == 0),
    "hallucinated": _mean(_hallucinated),
    "hallucination_rate": _hallucination_rate,
}
#: The keys of what every call logs under the reward's name (``"R4/mean_iou"``): means over the call's completions, but
#: ``hallucination_rate`` is the mean over those on images without findings, NaN where there are none.
METRIC_KEYS: tuple[str, ...] = tuple(_METRICS)


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

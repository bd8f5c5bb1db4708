"""What every call of a reward logs: means over its completions, and columns beside each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.parsing import REJECT_REASONS, STATUSES
from grounding_rewards.rewards.base import PARTS
from grounding_rewards.rewards.logged_rows import ROW_COLUMN, logged_rows
from grounding_rewards.rewards.scored_batch import ScoredBatch


def metrics_of(batch: ScoredBatch) -> dict[str, float]:
    """The value of each of :data:`METRIC_KEYS`."""
    return {key: metric(batch) for key, metric in _METRICS.items()}


def columns_of(batch: ScoredBatch, given: Sequence[str], scheduled: Mapping[str, float]) -> dict[str, list[Any]]:
    """What stands beside each completion in a log.

    Args:
        batch: n completions.
        given: their texts as the trainer has them.
        scheduled: as for :func:`grounding_rewards.rewards.logged_rows.logged_rows`.
    """
    return {
        "status": [raw.status for raw in batch.raws],
        "reason": [batch.reason(k) for k in range(len(batch.raws))],
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

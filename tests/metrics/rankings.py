"""The values of average precision, without what their intervals are made from."""

from collections.abc import Sequence

from grounding_rewards.metrics import average_precision as metric
from grounding_rewards.metrics.average_precision import RankedImages


def average_precision(
    ranked: RankedImages, iou_threshold: float = 0.5, *, label: str | None = None, interpolation: str = "101"
) -> float:
    return mean_average_precision(ranked.only(label), [iou_threshold], interpolation=interpolation)


def mean_average_precision(
    ranked: RankedImages, iou_thresholds: Sequence[float] | None = None, *, interpolation: str = "101"
) -> float:
    return metric.mean_average_precision(ranked, iou_thresholds, interpolation=interpolation).value

"""Rulers: metrics that judge every model alike, whatever reward trained it.

Each is a ratio of sums over images, so that the metric of any resampling of patients is a product of weights and sums
(of image dependence, which compares images with each other, its linear part). On the images as they are it is the
metric of :mod:`grounding_rewards.metrics`, whose functions read, pair and count here too.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from grounding_rewards.common.numeric import Array
from grounding_rewards.metrics.detection import MatchedImages
from grounding_rewards.metrics.image_dependence import dependence_sums
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.metrics.read_predictions import read_predictions
from grounding_rewards.parsing.space_check import SpaceWarning
from grounding_rewards.rewards import SPECIFICATION_REWARDS
from grounding_rewards.rewards.grounding import get_reward

#: The reward without a threshold, which judges every model beside R1 … R5.
SOFT = "soft_f1"


class Ruler(NamedTuple):
    """How a metric is called in tables, and whether less of it is better."""

    heading: str
    lower_is_better: bool = False


#: By key; a key that metrics/ has too is the same metric.
RULERS = {
    "mean_iou": Ruler("mean IoU"),
    "f1_50": Ruler("F1@0.5"),
    "image_dependence": Ruler("image dependence"),
    "precision_50": Ruler("precision@0.5"),
    "recall_50": Ruler("recall@0.5"),
    "hallucination_rate": Ruler("hallucination", lower_is_better=True),
    "dice": Ruler("Dice"),
    **{f"reward_{name}": Ruler(name.replace("_", " ")) for name in (*SPECIFICATION_REWARDS, SOFT)},
}


def read_model(rows: Sequence[Mapping[str, Any]], texts: Sequence[str], box_format: Any) -> list[Prediction]:
    """Read what a model answered to the images of a set, scored by every reward that is a ruler.

    Args:
        rows: of the images, with boxes, width and height.
        texts: the answer to each.
        box_format: how the model writes boxes; None where the rows say.

    Raises:
        ValueError: a row lacks what metrics are made of.
    """
    reward = get_reward(SOFT, box_format=box_format)
    with warnings.catch_warnings():
        # Training has said so, where it matters; a start that has learned little contradicts any space.
        warnings.simplefilter("ignore", SpaceWarning)
        return read_predictions(rows, [[text] for text in texts], reward)


def ruler_sums(images: Sequence[Prediction]) -> dict[str, Array]:
    """Numerators and denominators of every ruler by key, ``(images, 2)``.

    Example:
        >>> image = Prediction("a", 9, 9, gt=[[0, 0, 4, 4]], gt_labels=["x"], pred=[[0, 0, 4, 2]], rewards={})
        >>> ruler_sums([image])["mean_iou"]
        array([[0.5, 1. ]])
    """
    sums = {**MatchedImages(images).sums(), "image_dependence": dependence_sums(images).by_image}
    return {key: sums[key] for key in RULERS if key in sums}

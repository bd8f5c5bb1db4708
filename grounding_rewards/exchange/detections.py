"""supervision: the boxes of an image as `Detections`, for its annotators and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import Boxes
from grounding_rewards.exchange.names import pred_labels_of
from grounding_rewards.metrics.answered_image import AnsweredImage

if TYPE_CHECKING:
    from supervision import Detections


def reference_detections(image: AnsweredImage, names: Sequence[str]) -> Detections:
    """The reference boxes of an image as `supervision.Detections`, in pixels of the image.

    Args:
        image: whose boxes to convert.
        names: all labels, from :func:`grounding_rewards.exchange.names.label_names`; ``class_id`` counts them from 0.

    Raises:
        ImportError: supervision is not installed.

    Example:
        >>> image = AnsweredImage("a", 90, 60, gt=[[10, 20, 40, 50]], gt_labels=["mass"])
        >>> found = reference_detections(image, ["effusion", "mass"])
        >>> found.xyxy.tolist(), found.class_id.tolist(), found["class_name"].tolist()
        ([[10.0, 20.0, 40.0, 50.0]], [1], ['mass'])
    """
    return _detections(image.gt, image.gt_labels, names, None)


def predicted_detections(image: AnsweredImage, names: Sequence[str]) -> Detections:
    """The predicted boxes of an image as `supervision.Detections`, with invalid ones, so that metrics count them.

    ``confidence`` is None unless the answer states one for every box.

    Args:
        image: whose boxes to convert.
        names: as for :func:`reference_detections`.

    Raises:
        ImportError: supervision is not installed.

    Example:
        >>> image = AnsweredImage("a", 90, 60, pred=[[10, 20, 40, 50]], pred_labels=["mass"])
        >>> predicted_detections(image, ["mass"]).confidence is None
        True
    """
    stated = not np.isnan(image.pred_scores).any() and len(image.pred) > 0
    return _detections(image.pred, pred_labels_of(image, names), names, image.pred_scores if stated else None)


def _detections(
    boxes: Boxes, labels: Sequence[str], names: Sequence[str], scores: NDArray[np.float64] | None
) -> Detections:
    try:
        from supervision import Detections
    except ImportError as error:
        raise ImportError(
            "Expected supervision for Detections, got none. Install it with `pip install supervision`."
        ) from error
    number = {name: i for i, name in enumerate(names)}
    return Detections(
        xyxy=boxes.copy(),
        confidence=scores,
        class_id=np.array([number[label] for label in labels], dtype=np.int64),
        data={"class_name": np.array(labels, dtype=str)},
    )

"""Answered images with everything that detection metrics tell apart, from a seed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from grounding_rewards.metrics.prediction import Prediction

LABELS = ["effusion", "mass", "nodule"]
_SIZE = 400.0


def random_images(seed: int, n: int = 25, *, whole_numbers: bool = False) -> list[Prediction]:
    """Images with several labels, boxes of all of COCO's sizes, equal confidences, ignore regions, and no boxes."""
    rng = np.random.default_rng(seed)
    images = []
    for i in range(n):
        gt = _boxes(rng, int(rng.integers(0, 5)), whole_numbers)
        copies = gt[rng.integers(0, len(gt), int(rng.integers(0, 7)))] if len(gt) else gt
        junk = _boxes(rng, int(rng.integers(0, 4)), whole_numbers)
        pred = np.concatenate([_jittered(rng, copies, whole_numbers), junk])
        gt_labels, pred_labels = (tuple(map(str, rng.choice(LABELS, len(boxes)))) for boxes in (gt, pred))
        others: dict[str, Any] = {"gt_labels": gt_labels, "pred_labels": pred_labels, "patient": f"patient {i // 2}"}
        others |= {"pred_scores": rng.integers(0, 11, len(pred)) / 10, "status": "boxes" if len(pred) else "empty"}
        others["ignore"] = _boxes(rng, int(rng.integers(0, 3)), whole_numbers)
        images.append(Prediction(f"image {i}", _SIZE, _SIZE, gt=gt, pred=pred, **others))
    return images


def labelled(gt: Sequence[Any], pred: Sequence[Any], **others: Any) -> Prediction:
    """An image of 100 by 100 pixels from pairs of a box and its label."""
    labels = {"gt_labels": [label for _, label in gt], "pred_labels": [label for _, label in pred]}
    return Prediction("a", 100, 100, gt=[box for box, _ in gt], pred=[box for box, _ in pred], **labels, **others)


def without_confidences(images: list[Prediction]) -> list[Prediction]:
    return [replace(image, pred_scores=np.full(len(image.pred), np.nan)) for image in images]


def _boxes(rng: np.random.Generator, n: int, whole_numbers: bool) -> np.ndarray:
    side = np.exp(rng.uniform(np.log(8), np.log(250), (n, 2)))
    corner = rng.uniform(0, _SIZE - side)
    boxes = np.concatenate([corner, corner + side], axis=1)
    return boxes.round() if whole_numbers else boxes


def _jittered(rng: np.random.Generator, boxes: np.ndarray, whole_numbers: bool) -> np.ndarray:
    side = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    moved = boxes + rng.uniform(-0.2, 0.2, boxes.shape) * side
    return moved.round() if whole_numbers else moved

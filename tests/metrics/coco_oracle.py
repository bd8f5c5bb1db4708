"""COCO's own code, pycocotools and its C++ version faster-coco-eval, as the oracle of average precision."""

import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from grounding_rewards.boxes import valid_boxes
from grounding_rewards.metrics.average_precision import COCO_THRESHOLDS, label_name
from grounding_rewards.metrics.prediction import Prediction

ENGINES = ("pycocotools", "faster_coco_eval")
# A box that overlaps nothing: COCO's files hold no invalid one.
_OUTSIDE = [-2.0, -2.0, 0.0, 0.0]


def coco_average_precision(
    images: Sequence[Prediction],
    iou_thresholds: Sequence[float] = COCO_THRESHOLDS,
    *,
    label_matching: str = "exact",
    max_detections: int = 100,
    engine: str = "pycocotools",
) -> dict[str, np.ndarray]:
    """By label that some image has, AP at each threshold; NaN where no image has the label.

    Ignored regions are crowds of every label. Labels that are only predicted, and boxes without one, play no part.
    """
    names = sorted({label_name(label, label_matching) for annotated in images for label in annotated.gt_labels})
    if not names:
        return {}
    category = {name: i for i, name in enumerate(names, start=1)}
    boxes = []
    for image, annotated in enumerate(images, start=1):
        for box, label in zip(_xywh(annotated.gt), annotated.gt_labels, strict=True):
            boxes.append((image, category[label_name(label, label_matching)], box, 0))
        boxes += [(image, number, box, 1) for box in _xywh(annotated.ignore) for number in category.values()]
    truth = {
        "images": [{"id": image} for image in range(1, len(images) + 1)],
        "annotations": [
            {"id": i, "image_id": image, "category_id": number, "bbox": box, "area": box[2] * box[3], "iscrowd": crowd}
            for i, (image, number, box, crowd) in enumerate(boxes, start=1)
        ],
        "categories": [{"id": number, "name": name} for name, number in category.items()],
    }
    results = []
    for image, annotated in enumerate(images, start=1):
        scores = annotated.pred_scores.tolist()
        for box, label, score in zip(_xywh(annotated.pred), annotated.pred_labels, scores, strict=True):
            if (name := label_name(label, label_matching)) in category:
                results.append({"image_id": image, "category_id": category[name], "bbox": box, "score": score})
    params = {"iouThrs": np.asarray(iou_thresholds), "areaRng": [[0, 1e10]], "areaRngLbl": ["all"]}
    params["maxDets"] = [max_detections]
    # thresholds, recall levels, labels, areas, numbers of detections; -1 where there is nothing to find
    precision = np.asarray(coco_eval(truth, results, params, engine=engine).eval["precision"])[..., 0, 0].mean(axis=1)
    return dict(zip(names, np.where(precision < 0, np.nan, precision).T, strict=True))


def coco_mean_average_precision(images: Sequence[Prediction], *args: Any, **kwargs: Any) -> float:
    """The mean of :func:`coco_average_precision` over labels and thresholds."""
    measured = [one for one in coco_average_precision(images, *args, **kwargs).values() if not np.isnan(one).any()]
    return float(np.mean(measured)) if measured else np.nan


def coco_eval(
    truth: dict[str, Any],
    results: list[dict[str, Any]],
    params: Mapping[str, Any] | None = None,
    *,
    engine: str = "pycocotools",
) -> Any:
    """The evaluation of one engine, accumulated, with other parameters than COCO's where any are given."""
    if engine == "pycocotools":
        coco = pytest.importorskip("pycocotools.coco").COCO
        evaluator = pytest.importorskip("pycocotools.cocoeval").COCOeval
    else:
        module = pytest.importorskip("faster_coco_eval")
        coco, evaluator = module.COCO, module.COCOeval_faster
    with contextlib.redirect_stdout(io.StringIO()):
        references = coco()
        references.dataset = truth
        references.createIndex()
        evaluation = evaluator(references, references.loadRes(results), "bbox")
        for name, value in (params or {}).items():
            setattr(evaluation.params, name, value)
        evaluation.evaluate()
        evaluation.accumulate()
    return evaluation


def _xywh(boxes: np.ndarray) -> list[list[float]]:
    with np.errstate(all="ignore"):
        sized = np.column_stack([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]])
    return np.where(valid_boxes(boxes)[:, None], sized, _OUTSIDE).tolist()

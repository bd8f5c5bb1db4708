"""COCO: reference boxes and predictions as files for pycocotools and its kin, and for CVAT.

* Boxes are ``[x, y, width, height]`` in pixels of the image; images, annotations and categories are numbered from 1.
* ``image_id`` and, where known, ``patient_id`` of an image say where it comes from; other tools ignore them.
* A region to ignore is a crowd (``iscrowd`` 1). In COCO a crowd belongs to a category, so the file for metrics repeats
  the region for every category; files for viewers have it once, in a category of its own.
* COCO demands a score for every prediction. A box without a stated confidence gets 1: the boxes of an image then rank
  in the order in which they were written, and an AP from such a file depends on that order.
* An invalid predicted box becomes a box without area, which overlaps nothing and counts as a false positive. Files for
  viewers leave it out.

Source: https://cocodataset.org/#format-data and #format-results.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grounding_rewards.boxes import from_xyxy, valid_boxes
from grounding_rewards.common.whole_files import write_whole
from grounding_rewards.exchange.names import drawable_boxes, file_names, label_names, pred_labels_of, whole_number
from grounding_rewards.metrics.answered_image import AnsweredImage

#: The category of regions to ignore in files for viewers.
IGNORED = "region to ignore"

_CVAT_ANNOTATIONS = "annotations/instances_default.json"


def coco_ground_truth(images: Sequence[AnsweredImage]) -> dict[str, Any]:
    """The reference boxes of all images as COCO instances, with every label that occurs in references or predictions.

    Example:
        >>> image = AnsweredImage("a", 90, 60, gt=[[10, 20, 40, 50]], gt_labels=["mass"])
        >>> document = coco_ground_truth([image])
        >>> document["images"], document["categories"]
        ([{'id': 1, 'file_name': 'a', 'width': 90, 'height': 60, 'image_id': 'a'}], [{'id': 1, 'name': 'mass'}])
        >>> document["annotations"][0]["bbox"]
        [10.0, 20.0, 30.0, 30.0]
    """
    names = label_names(images)
    return _document(images, names, _references(images, names, ignored_as=names))


def coco_results(images: Sequence[AnsweredImage]) -> list[dict[str, Any]]:
    """The predicted boxes of all images as COCO results for :func:`coco_ground_truth` of the same images.

    Example:
        >>> image = AnsweredImage("a", 90, 60, pred=[[10, 20, 40, 50]], pred_labels=["mass"], pred_scores=[0.5])
        >>> coco_results([image])
        [{'image_id': 1, 'category_id': 1, 'bbox': [10.0, 20.0, 30.0, 30.0], 'score': 0.5}]
    """
    number = _numbers(label_names(images))
    return [
        {
            "image_id": image,
            "category_id": number[label],
            "bbox": bbox,
            "score": 1.0 if math.isnan(score) else float(score),
        }
        for image, annotated in enumerate(images, start=1)
        for bbox, label, score in zip(
            _as_written(annotated), pred_labels_of(annotated, list(number)), annotated.pred_scores, strict=True
        )
    ]


def write_coco(images: Sequence[AnsweredImage], out: Path) -> None:
    """Write ``ground_truth.json`` and ``results.json`` into a folder."""
    _write(out / "ground_truth.json", coco_ground_truth(images))
    _write(out / "results.json", coco_results(images))


def write_cvat(images: Sequence[AnsweredImage], out: Path) -> None:
    """Write ``reference.zip`` and ``predictions.zip`` for CVAT's format COCO 1.0, and ``labels.json`` for a new task.

    CVAT finds the images of the task by their names, so it needs none here.
    """
    names = [*label_names(images), IGNORED]
    parts = {
        "reference": _references(images, names, ignored_as=[IGNORED]),
        "predictions": _predictions(images, names),
    }
    out.mkdir(parents=True, exist_ok=True)
    for part, boxes in parts.items():
        with zipfile.ZipFile(out / f"{part}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(_CVAT_ANNOTATIONS, _as_json(_document(images, names, boxes)))
    _write(out / "labels.json", [{"name": name, "type": "rectangle", "attributes": []} for name in names])


def _document(
    annotated_images: Sequence[AnsweredImage],
    names: Sequence[str],
    annotations: Iterable[dict[str, Any]],
) -> dict[str, Any]:
    images = [
        {
            "id": image,
            "file_name": name,
            "width": whole_number(annotated.width),
            "height": whole_number(annotated.height),
            "image_id": annotated.id,
            **({} if annotated.patient is None else {"patient_id": annotated.patient}),
        }
        for image, (annotated, name) in enumerate(
            zip(annotated_images, file_names(annotated_images), strict=True), start=1
        )
    ]
    return {
        "info": {"description": "boxes of an evaluation by grounding_rewards"},
        "images": images,
        "annotations": [{"id": number, **one} for number, one in enumerate(annotations, start=1)],
        "categories": [{"id": number, "name": name} for name, number in _numbers(names).items()],
    }


def _references(
    images: Sequence[AnsweredImage], names: Sequence[str], *, ignored_as: Sequence[str]
) -> Iterable[dict[str, Any]]:
    number = _numbers(names)
    for image, annotated in enumerate(images, start=1):
        for bbox, label in zip(from_xyxy(annotated.gt, "xywh").tolist(), annotated.gt_labels, strict=True):
            yield _annotation(image, number[label], bbox)
        for bbox in from_xyxy(annotated.ignore, "xywh").tolist():
            for label in ignored_as:
                yield _annotation(image, number[label], bbox, iscrowd=1)


def _predictions(images: Sequence[AnsweredImage], names: Sequence[str]) -> Iterable[dict[str, Any]]:
    """Predicted boxes for viewers."""
    number = _numbers(names)
    for image, annotated in enumerate(images, start=1):
        labels = pred_labels_of(annotated, names)
        boxes, which = drawable_boxes(annotated.pred, annotated.width, annotated.height)
        for bbox, i in zip(from_xyxy(boxes, "xywh").tolist(), which, strict=True):
            annotation = _annotation(image, number[labels[i]], bbox)
            score = float(annotated.pred_scores[i])
            yield annotation if math.isnan(score) else {**annotation, "score": score}


def _annotation(image: int, category: int, bbox: list[float], *, iscrowd: int = 0) -> dict[str, Any]:
    return {
        "image_id": image,
        "category_id": category,
        "bbox": bbox,
        "area": bbox[2] * bbox[3],
        "segmentation": [],
        "iscrowd": iscrowd,
    }


def _as_written(image: AnsweredImage) -> list[list[float]]:
    """Every predicted box as ``[x, y, width, height]``, an invalid one without area."""
    boxes: list[list[float]] = from_xyxy(np.where(valid_boxes(image.pred)[:, None], image.pred, 0.0), "xywh").tolist()
    return boxes


def _numbers(names: Sequence[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names, start=1)}


def _write(path: Path, content: Any) -> None:
    write_whole(path, _as_json(content))


def _as_json(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n"

"""COCO: reference boxes and predictions as files for pycocotools and its kin.

* Boxes are ``[x, y, width, height]`` in pixels of the image; images, annotations and categories are numbered from 1.
* ``image_id`` and, where known, ``patient_id`` of an image say where it comes from; other tools ignore them.
* A region to ignore is a crowd (``iscrowd`` 1). In COCO a crowd belongs to a category, so the file repeats the region
  for every category.
* COCO demands a score for every prediction. A box without a stated confidence gets 1: the boxes of an image then rank
  in the order in which they were written, and an AP from such a file depends on that order.
* An invalid predicted box becomes a box without area, which overlaps nothing and counts as a false positive.

Source: https://cocodataset.org/#format-data and #format-results.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grounding_rewards.boxes import from_xyxy, valid_boxes
from grounding_rewards.common.whole_files import write_whole
from grounding_rewards.exchange.names import file_names, label_names, pred_labels_of, whole_number
from grounding_rewards.metrics.answered_image import AnsweredImage


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
    number = _numbers(images)
    annotations: list[dict[str, Any]] = []

    def add(image: int, label: str, bbox: list[float], iscrowd: int) -> None:
        annotations.append(
            {
                "id": len(annotations) + 1,
                "image_id": image,
                "category_id": number[label],
                "bbox": bbox,
                "area": bbox[2] * bbox[3],
                "segmentation": [],
                "iscrowd": iscrowd,
            }
        )

    for image, annotated in enumerate(images, start=1):
        for bbox, label in zip(from_xyxy(annotated.gt, "xywh").tolist(), annotated.gt_labels, strict=True):
            add(image, label, bbox, 0)
        for bbox in from_xyxy(annotated.ignore, "xywh").tolist():
            for label in number:
                add(image, label, bbox, 1)
    return {
        "info": {"description": "boxes of an evaluation by grounding_rewards"},
        "images": [
            {
                "id": image,
                "file_name": name,
                "width": whole_number(annotated.width),
                "height": whole_number(annotated.height),
                "image_id": annotated.id,
                **({} if annotated.patient is None else {"patient_id": annotated.patient}),
            }
            for image, (annotated, name) in enumerate(zip(images, file_names(images), strict=True), start=1)
        ],
        "annotations": annotations,
        "categories": [{"id": k, "name": name} for name, k in number.items()],
    }


def coco_results(images: Sequence[AnsweredImage]) -> list[dict[str, Any]]:
    """The predicted boxes of all images as COCO results for :func:`coco_ground_truth` of the same images.

    Example:
        >>> image = AnsweredImage("a", 90, 60, pred=[[10, 20, 40, 50]], pred_labels=["mass"], pred_scores=[0.5])
        >>> coco_results([image])
        [{'image_id': 1, 'category_id': 1, 'bbox': [10.0, 20.0, 30.0, 30.0], 'score': 0.5}]
    """
    number = _numbers(images)
    return [
        {
            "image_id": image,
            "category_id": number[label],
            "bbox": bbox,
            "score": 1.0 if math.isnan(score) else float(score),
        }
        for image, annotated in enumerate(images, start=1)
        for bbox, label, score in zip(
            # Every box, an invalid one without area.
            from_xyxy(np.where(valid_boxes(annotated.pred)[:, None], annotated.pred, 0.0), "xywh").tolist(),
            pred_labels_of(annotated, list(number)),
            annotated.pred_scores,
            strict=True,
        )
    ]


def write_coco(images: Sequence[AnsweredImage], out: Path) -> None:
    """Write ``ground_truth.json`` and ``results.json`` into a folder."""
    for name, content in (("ground_truth", coco_ground_truth(images)), ("results", coco_results(images))):
        write_whole(out / f"{name}.json", json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n")


def _numbers(images: Sequence[AnsweredImage]) -> dict[str, int]:
    return {name: number for number, name in enumerate(label_names(images), start=1)}

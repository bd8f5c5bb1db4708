"""Write reference boxes and predictions as COCO files, for pycocotools and similar tools.

* Boxes are ``[x, y, width, height]`` in pixels of the image; images, annotations and categories are numbered from 1.
* ``image_id`` and, if known, ``patient_id`` of an image say where it comes from; other tools ignore them.
* ``file_name`` is that of the image, or its id, without folders. If two would share one, all are numbered.
* Categories are the labels of reference boxes in alphabetical order, then those that only predictions have; `Mass` and
  `mass` are one, as in metrics. A predicted box without a label gets the label of the references if they have only one,
  else the category `unlabelled`, the last.
* A region to ignore is a crowd (``iscrowd`` 1). In COCO a crowd belongs to a category, so the file repeats the region
  for every category.
* COCO demands a score for every prediction. A box without a stated confidence gets 1: such boxes rank in the order in
  which they were written, and an AP from the file depends on that order.
* An invalid predicted box becomes a box without area, which overlaps nothing and counts as a false positive.

Source: https://cocodataset.org/#format-data and #format-results.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grounding_rewards.boxes import from_xyxy, valid_boxes
from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.matching import text_key
from grounding_rewards.metrics.prediction import Prediction

_UNLABELLED = "unlabelled"


def coco_ground_truth(images: Sequence[Prediction]) -> dict[str, Any]:
    """The reference boxes of all images as COCO instances, with every label that occurs in references or predictions.

    Example:
        >>> image = Prediction("a", 90, 60, gt=[[10, 20, 40, 50]], gt_labels=["mass"])
        >>> document = coco_ground_truth([image])
        >>> document["images"], document["categories"]
        ([{'id': 1, 'file_name': 'a', 'width': 90, 'height': 60, 'image_id': 'a'}], [{'id': 1, 'name': 'mass'}])
        >>> document["annotations"][0]["bbox"]
        [10.0, 20.0, 30.0, 30.0]
    """
    categories = _categories(images)
    image_entries = []
    annotations: list[dict[str, Any]] = []
    for image_number, (image, name) in enumerate(zip(images, _file_names(images), strict=True), start=1):
        # Other tools expect whole numbers where sides have whole pixels.
        width, height = (int(side) if side % 1 == 0 else side for side in (image.width, image.height))
        entry = {"id": image_number, "file_name": name, "width": width, "height": height, "image_id": image.id}
        if image.patient is not None:
            entry["patient_id"] = image.patient
        image_entries.append(entry)
        # Each region with its category, and 1 if it is a crowd. A region to ignore is one, in every category.
        regions = []
        for bbox, label in zip(from_xyxy(image.gt, "xywh").tolist(), image.gt_labels, strict=True):
            regions.append((bbox, categories[text_key(label)], 0))
        for bbox in from_xyxy(image.ignore, "xywh").tolist():
            regions += [(bbox, category, 1) for category in categories.values()]
        for bbox, category, iscrowd in regions:
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image_number,
                    "category_id": category["id"],
                    "bbox": bbox,
                    "area": bbox[2] * bbox[3],
                    "segmentation": [],
                    "iscrowd": iscrowd,
                }
            )
    return {
        "info": {"description": "boxes of an evaluation by grounding_rewards"},
        "images": image_entries,
        "annotations": annotations,
        "categories": list(categories.values()),
    }


def coco_results(images: Sequence[Prediction]) -> list[dict[str, Any]]:
    """The predicted boxes of all images as COCO results for :func:`coco_ground_truth` of the same images.

    Example:
        >>> image = Prediction("a", 90, 60, pred=[[10, 20, 40, 50]], pred_labels=["mass"], pred_scores=[0.5])
        >>> coco_results([image])
        [{'image_id': 1, 'category_id': 1, 'bbox': [10.0, 20.0, 30.0, 30.0], 'score': 0.5}]
    """
    categories = _categories(images)
    # The key of the category of boxes without a label: `unlabelled` if it is there. Else all references have a single
    # label, whose category is the first. Without any category there is no box either, and the key is not used.
    unlabelled = _UNLABELLED if _UNLABELLED in categories else next(iter(categories), _UNLABELLED)
    results = []
    for image_number, image in enumerate(images, start=1):
        # An invalid box becomes one without area, since other tools refuse what is not finite.
        boxes = from_xyxy(np.where(valid_boxes(image.pred)[:, None], image.pred, 0.0), "xywh")
        for bbox, label, score in zip(boxes.tolist(), image.pred_labels, image.pred_scores.tolist(), strict=True):
            results.append(
                {
                    "image_id": image_number,
                    "category_id": categories[unlabelled if label is None else text_key(label)]["id"],
                    "bbox": bbox,
                    "score": 1.0 if math.isnan(score) else score,
                }
            )
    return results


def write_coco(images: Sequence[Prediction], out: str | Path) -> None:
    """Write ``ground_truth.json`` and ``results.json`` into a folder."""
    for name, content in (("ground_truth", coco_ground_truth(images)), ("results", coco_results(images))):
        write_whole(Path(out, f"{name}.json"), json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n")


def _categories(images: Sequence[Prediction]) -> dict[str, dict[str, Any]]:
    """Every category, `{"id": ..., "name": ...}`, by the key that the spellings of its label share.

    Those of references come first in alphabetical order, then those that only predictions have. Predictions without a
    label have the last category, `unlabelled`; if references have a single label, that is theirs instead.
    """
    gt_labels: set[str] = set()
    pred_labels: set[str | None] = set()
    for image in images:
        gt_labels.update(image.gt_labels)
        pred_labels.update(image.pred_labels)
    labels = sorted(gt_labels) + sorted(label for label in pred_labels if label is not None)
    if None in pred_labels and len({*map(text_key, gt_labels)}) != 1:
        labels.append(_UNLABELLED)
    categories: dict[str, dict[str, Any]] = {}
    for label in labels:
        categories.setdefault(text_key(label), {"id": len(categories) + 1, "name": label})
    return categories


def _file_names(images: Sequence[Prediction]) -> list[str]:
    """A different name for every image: of its file, or its id, without folders; all are numbered if two are equal."""
    names = []
    for image in images:
        name = Path(image.image or image.id).name
        # An id such as `/` leaves no name for a file.
        names.append("image" if name in ("", "..") else name)
    if len(set(names)) == len(names):
        return names
    return [f"{number:06d}_{name}" for number, name in enumerate(names, start=1)]

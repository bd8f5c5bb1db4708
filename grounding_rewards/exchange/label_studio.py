"""Label Studio: one task per image, the reference boxes as its annotation and the answer as its prediction.

Boxes are in percent of the width and height of the image, clipped to its edges; what cannot be drawn is left out. The
image of a task is a path or URL that Label Studio can reach: ``image_root`` and the name of the file.

Source: https://labelstud.io/guide/predictions and https://labelstud.io/tags/rectanglelabels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import Boxes
from grounding_rewards.common.whole_files import write_whole
from grounding_rewards.exchange.names import drawable_boxes, file_names, label_names, pred_labels_of, whole_number
from grounding_rewards.metrics.answered_image import AnsweredImage

#: Where Label Studio serves the files of its local storage.
LOCAL_FILES = "/data/local-files/?d="

# The names of the two tags in the labelling configuration, which every region refers to.
_FROM, _TO = "label", "image"


def label_studio_tasks(
    images: Sequence[AnsweredImage], *, model: str = "model", image_root: str = LOCAL_FILES
) -> list[dict[str, Any]]:
    """The tasks to import.

    Args:
        images: with their answers.
        model: the name that the predictions bear as `model_version`.
        image_root: what goes before the name of an image.

    Returns:
        One task per image. An image without reference boxes has an annotation without regions: in Label Studio this
        means that somebody looked and found nothing.

    Example:
        >>> image = AnsweredImage("a", 200, 100, gt=[[50, 25, 100, 75]], gt_labels=["mass"], image="a.png")
        >>> (task,) = label_studio_tasks([image])
        >>> task["data"]["image"], task["annotations"][0]["result"][0]["value"]
        ('/data/local-files/?d=a.png', {'x': 25.0, 'y': 25.0, 'width': 25.0, 'height': 50.0, 'rotation': 0, \
'rectanglelabels': ['mass']})
    """
    names = label_names(images)
    return [
        _task(image, number, _address(image_root, name), names, model)
        for number, (image, name) in enumerate(zip(images, file_names(images), strict=True), start=1)
    ]


def labelling_config(names: Sequence[str]) -> str:
    """The labelling configuration of the project, in XML.

    Example:
        >>> print(labelling_config(["mass"]))
        <View>
          <Image name="image" value="$image"/>
          <RectangleLabels name="label" toName="image">
            <Label value="mass"/>
          </RectangleLabels>
        </View>
    """
    labels = [f"    <Label value={quoteattr(_in_xml(name))}/>" for name in names]
    return "\n".join(
        [
            "<View>",
            f'  <Image name="{_TO}" value="$image"/>',
            f'  <RectangleLabels name="{_FROM}" toName="{_TO}">',
            *labels,
            "  </RectangleLabels>",
            "</View>",
        ]
    )


def write_label_studio(
    images: Sequence[AnsweredImage], out: Path, *, model: str = "model", image_root: str = LOCAL_FILES
) -> None:
    """Write ``tasks.json`` to import and ``labelling_config.xml`` for the project into a folder."""
    tasks = label_studio_tasks(images, model=model, image_root=image_root)
    write_whole(out / "tasks.json", json.dumps(tasks, ensure_ascii=False, allow_nan=False) + "\n")
    write_whole(out / "labelling_config.xml", labelling_config(label_names(images)) + "\n")


def _address(root: str, name: str) -> str:
    """The address of an image: percent-encoded for a URL, as it is for the key of a bucket."""
    return root + (quote(name) if root.startswith(("/", "http://", "https://")) else name)


def _task(annotated: AnsweredImage, number: int, image: str, names: Sequence[str], model: str) -> dict[str, Any]:
    predicted = _regions(
        annotated, annotated.pred, pred_labels_of(annotated, names), annotated.pred_scores, f"{number}p"
    )
    reference = _regions(annotated, annotated.gt, annotated.gt_labels, np.full(len(annotated.gt), np.nan), f"{number}r")
    prediction: dict[str, Any] = {"model_version": model, "result": predicted}
    scores = annotated.pred_scores[~np.isnan(annotated.pred_scores)]
    if scores.size:
        prediction["score"] = float(np.clip(scores, 0, 1).mean())
    return {
        "data": {"image": image, "image_id": annotated.id, "status": annotated.status, "text": annotated.text},
        "annotations": [{"result": reference, "ground_truth": True}],
        "predictions": [prediction],
    }


def _regions(
    image: AnsweredImage, boxes: Boxes, labels: Sequence[str], scores: NDArray[np.float64], prefix: str
) -> list[dict[str, Any]]:
    drawn, which = drawable_boxes(boxes, image.width, image.height)
    percent = 100 * drawn / [image.width, image.height, image.width, image.height]
    regions = []
    for (x1, y1, x2, y2), i in zip(percent.tolist(), which.tolist(), strict=True):
        region = {
            "id": f"{prefix}{i}",
            "type": "rectanglelabels",
            "from_name": _FROM,
            "to_name": _TO,
            "image_rotation": 0,
            "original_width": whole_number(image.width),
            "original_height": whole_number(image.height),
            "value": {
                "x": x1,
                "y": y1,
                "width": x2 - x1,
                "height": y2 - y1,
                "rotation": 0,
                "rectanglelabels": [_in_xml(labels[i])],
            },
        }
        regions.append(region if math.isnan(scores[i]) else {**region, "score": float(np.clip(scores[i], 0, 1))})
    return regions


def _in_xml(label: str) -> str:
    """The label without characters that XML forbids, such as control characters that a model wrote."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in label).split())

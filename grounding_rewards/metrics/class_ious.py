"""Boxes seen as a segmentation of the image into classes: the findings, and the background where no box is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.areas import box_areas, foreground_iou
from grounding_rewards.metrics.confusion import NO_LABEL
from grounding_rewards.metrics.ranking import label_name

BACKGROUND = "background"


def class_ious(images: Sequence[AnsweredImage], *, synonyms: bool = False) -> dict[str, float]:
    """IoU of each class over all images, whose mean is the mean IoU over classes.

    The class of a label is what its boxes cover; boxes of two labels may overlap, so that a place can be in several
    classes. The areas of all images are summed: ``IoU = hit / (hit + false + missed)``. A class that answers alone have
    is 0; one that neither side has any area of is left out.

    Args:
        images: answered images.
        synonyms: whether other words for a finding are the finding, see :func:`grounding_rewards.labels.are_synonyms`;
            otherwise labels are compared without regard to case and white space.

    Returns:
        By label, in the order in which the images name them, those of the references first; ``"no label"`` for boxes of
        answers without one; and ``"background"``, last. In [0, 1].

    Example:
        >>> image = AnsweredImage("a", 20, 10, gt=[[0, 0, 10, 10]], gt_labels=["mass"],
        ...                     pred=[[0, 0, 10, 5], [10, 0, 20, 5]], pred_labels=["Mass", "nodule"])
        >>> found = class_ious([image])
        >>> {name: round(iou, 3) for name, iou in found.items()}
        {'mass': 0.5, 'nodule': 0.0, 'background': 0.333}
        >>> round(float(np.mean([*found.values()])), 3)
        0.278

    Source: specification, page on evaluation metrics, §3.2, which counts a class without any area as 0.
    """
    matching = "synonyms" if synonyms else "exact"
    gt_names = [[label_name(one, matching) for one in image.gt_labels] for image in images]
    pred_names = [[label_name(one, matching) or NO_LABEL for one in image.pred_labels] for image in images]
    areas = {name: np.zeros(4) for name in chain(*gt_names, *pred_names, [BACKGROUND])}
    for image, gt, pred in zip(images, map(np.array, gt_names), map(np.array, pred_names), strict=True):
        frame: dict[str, Any] = {"width": image.width, "height": image.height, "ignore": image.ignore}
        for name in {*gt, *pred}:
            areas[name] += box_areas(image.pred[pred == name], image.gt[gt == name], **frame)
        # Where neither side has a box the background is hit.
        areas[BACKGROUND] += box_areas(image.pred, image.gt, **frame)[::-1]
    ious = {name: float(foreground_iou(areas[name])) for name in areas}
    return {name: iou for name, iou in ious.items() if not np.isnan(iou)}

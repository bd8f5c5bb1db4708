"""Average precision of each query for itself, in the order in which the answer names its boxes: a published metric.

Models of chest radiographs that state no confidences are compared by it: a query is one finding that is present on one
image; the boxes that the answer gives under its name are ranked in the order of writing, and the all-point AP at IoU
0.5 of each query is averaged over all queries. A query without a box earns 0. Normal images ask nothing, so that what a
model invents on them costs nothing: read it beside the hallucination rate.

A box without a name answers the query of an image that has findings of one name only, as where the prompt asked for it.
Where the dataset names no findings, each image with a finding is one query.

Source: Gundersen et al., RadVLM-GRPO, arXiv 2512.10691, and Deperrois et al., RadVLM, arXiv 2502.03333.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from grounding_rewards.common.arithmetic import Array, ratio, row_sums
from grounding_rewards.metrics.answered_image import UNNAMED, AnsweredImage
from grounding_rewards.metrics.estimates import Metric
from grounding_rewards.metrics.ranking import RankedBoxes, label_name, place_within, rank_boxes
from grounding_rewards.rewards.average_precision import precision_envelope

QUERY_AP = "query_ap_50"
QUERY_METRICS: dict[str, Metric] = {
    QUERY_AP: Metric(
        "per-query AP@0.5 in writing order",
        "AP at IoU 0.5 of the boxes that an answer gives one finding of one image, in the order of writing; mean over "
        "findings that are present, normal images left out (RadVLM-GRPO, arXiv 2512.10691)",
    )
}


def query_ap_sums(images: Sequence[AnsweredImage], *, label_matching: str = "ignore") -> Array:
    """The APs of each image's queries added up, and their number.

    Args:
        images: answered images.
        label_matching: ``"synonyms"`` lets another word for the finding answer the query; under ``"exact"`` and
            ``"ignore"`` names agree up to case and white space.

    Returns:
        ``(images, 2)``, for :func:`grounding_rewards.metrics.jackknife.ratio_estimates`.

    Example:
        Two queries: of the mass the second box is right, of the nodule none is written.

        >>> image = AnsweredImage("a", 99, 99, gt=[[0, 0, 9, 9], [50, 50, 60, 60]], gt_labels=["mass", "nodule"],
        ...                     pred=[[20, 20, 30, 30], [0, 0, 9, 8]], pred_labels=["mass", "Mass"])
        >>> query_ap_sums([image])
        array([[0.5, 2. ]])
    """
    compared = _compared(images, label_matching)
    ranked = rank_boxes(
        [_asked(image, compared) for image in images], (0.5,), ranking="emission", label_matching=compared
    )
    sums = np.zeros((len(images), 2))
    for boxes in ranked.by_label.values():
        asked = boxes.references > 0
        sums[:, 0] += np.where(asked, image_average_precisions(boxes), 0.0)
        sums[:, 1] += asked
    return sums


def _compared(images: Sequence[AnsweredImage], label_matching: str) -> str:
    names = {label_name(label, "exact") for image in images for label in image.gt_labels}
    if "" in names or names <= {UNNAMED}:
        return "ignore"
    return "exact" if label_matching == "ignore" else label_matching


def _asked(image: AnsweredImage, compared: str) -> AnsweredImage:
    """The image with the name of its findings, if they have one name, for boxes without any."""
    names = {label_name(label, compared) for label in image.gt_labels}
    if len(names) != 1 or all(image.pred_labels):
        return image
    return replace(image, pred_labels=tuple(label or image.gt_labels[0] for label in image.pred_labels))


def image_average_precisions(boxes: RankedBoxes) -> Array:
    """All-point AP of each image for itself.

    Args:
        boxes: of one label, ranked and matched at one IoU.

    Returns:
        ``(images,)``; 0 without a right box.

    Example:
        >>> image = AnsweredImage("a", 99, 99, gt=[[0, 0, 9, 9]], gt_labels=["mass"],
        ...                     pred=[[20, 20, 30, 30], [0, 0, 9, 8]])
        >>> image_average_precisions(rank_boxes([image], (0.5,), ranking="emission").of_label(None))
        array([0.5])
    """
    order = np.lexsort((boxes.key, boxes.image))
    image = boxes.image[order]
    place = place_within(image)
    hit, counts = np.zeros((2, len(boxes.references), int(place.max(initial=-1)) + 1))
    hit[image, place], counts[image, place] = boxes.hit[0, order], boxes.counts[0, order]
    # P_k = Σ_{i ≤ k} hit_i / Σ_{i ≤ k} counts_i; AP = 1/m Σ_k P̃_k hit_k
    precision = ratio(hit.cumsum(axis=1), counts.cumsum(axis=1))
    return ratio(row_sums(precision_envelope(precision) * hit), boxes.references)

"""Boxes seen as a segmentation of the image into two classes: foreground, where a box is, and background.

The predicted foreground P is the union of the predicted boxes inside the image; the reference foreground G the union of
the reference boxes. Four areas say all: the hit ``|P ∩ G|``, the false ``|P \\ G|``, the missed ``|G \\ P|`` and the
rest of the image, in squared pixels.

    pixel accuracy = (hit + rest) / (hit + false + missed + rest)
    foreground IoU = hit / (hit + false + missed)
    background IoU = rest / (rest + false + missed)
    mean IoU       = the mean of the two
    Dice           = 2 hit / (2 hit + false + missed)

Conventions:

* Edges are real numbers, and areas are exact: the edges of all boxes cut the image into cells, each wholly inside or
  outside a box. No box is drawn on a raster, so that fractions of a pixel count as such.
* An invalid box covers nothing, and the part of a box outside the image does not count.
* In an ignored region, what is outside the reference foreground does not count.
* A class that neither side has cannot be measured: on an image without a box on either side, Dice is NaN and the mean
  IoU is that of the background alone, 1. (The specification's code counts such a class as 0, by which a rightly empty
  answer would have a mean IoU of 0.5.) A class that one side alone has is 0.
* Metrics are made of the summed areas of all images, as §3 sums pixels: a large image weighs more than a small one.

Source: specification §3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import BoxBatch, valid_boxes
from grounding_rewards.common.numeric import Array, ratio_or_nan
from grounding_rewards.metrics.average_precision import rows_of_one_shape
from grounding_rewards.metrics.intervals import Estimate, Jackknifed, Metric, sum_by_group
from grounding_rewards.metrics.prediction import Prediction, PredictionBatch


def segmentation_areas(images: Sequence[Prediction]) -> Array:
    """The hit, false, missed and remaining area of every image, ``(images, 4)``.

    Example:
        >>> image = Prediction("a", 20, 10, gt=[[0, 0, 10, 10]], gt_labels=["mass"], pred=[[0, 0, 10, 5]])
        >>> segmentation_areas([image])
        array([[ 50.,   0.,  50., 100.]])
    """
    batch, areas = PredictionBatch.of(images), np.zeros((len(images), 4))
    pred_gt_ignore = BoxBatch.of([image.pred for image in batch], "pred"), batch.gt, batch.ignore
    counts = np.column_stack([boxes.counts for boxes in pred_gt_ignore])
    for rows in rows_of_one_shape(counts, lambda n, m, k: (2 * (n + m + k) + 1) ** 2):
        pred, gt, ignore = (boxes.take(rows).flat.reshape(len(rows), -1, 4) for boxes in pred_gt_ignore)
        areas[rows] = _areas(pred, gt, ignore, batch.sizes[rows])
    return areas


def class_mean_iou(areas: Array) -> Array:
    """Mean of the IoUs of foreground and background; of the one class where the other has no area on either side.

    Example:
        >>> class_mean_iou(np.array([[50.0, 0.0, 50.0, 100.0], [0.0, 0.0, 0.0, 200.0]])).round(4)
        array([0.5833, 1.    ])
    """
    hit, false, missed, rest = np.moveaxis(areas, -1, 0)
    classes = np.stack([ratio_or_nan(hit, hit + false + missed), ratio_or_nan(rest, rest + false + missed)])
    return ratio_or_nan(np.nansum(classes, axis=0), np.sum(~np.isnan(classes), axis=0))


#: In the table of metrics.
CLASS_MEAN_IOU = {
    "class_mean_iou": Metric(
        "mean IoU of foreground and background",
        "IoU of the areas inside boxes and of the areas outside, all images pooled; the mean of the two",
    )
}


def class_mean_iou_estimate(areas: Array, *, groups: Sequence[Any] | None = None) -> Estimate:
    """:func:`class_mean_iou` of all images, which is no ratio of sums, with its 95 % interval.

    Args:
        areas: ``(images, 4)`` from :func:`segmentation_areas`.
        groups: the patient of each image, where known; the images of one patient are then left out together.

    Example:
        >>> areas = np.array([[50.0, 0.0, 50.0, 100.0], [100.0, 0.0, 0.0, 100.0], [0.0, 0.0, 0.0, 200.0]])
        >>> round(class_mean_iou_estimate(areas).value, 4)
        0.8194
    """
    units = areas if groups is None else sum_by_group(areas, groups)
    total = units.sum(axis=0)
    return Jackknifed(float(class_mean_iou(total)), class_mean_iou(total - units), len(units)).estimate


def _areas(pred: Array, gt: Array, ignore: Array, sizes: Array) -> Array:
    """Hit, false, missed and remaining area, ``(b, 4)``, of images with equally many boxes.

    Args:
        pred: ``(b, n, 4)`` predicted boxes.
        gt: ``(b, m, 4)`` reference boxes.
        ignore: ``(b, k, 4)`` ignored regions.
        sizes: ``(b, 2)`` widths and heights of the images.
    """
    ends = np.tile(sizes, 2)[:, None]
    image_box = np.concatenate([np.zeros_like(ends[..., :2]), ends[..., 2:]], axis=-1)
    boxes = np.concatenate([pred, gt, ignore, image_box], axis=1)
    # An invalid box lies in a corner, where it has no area.
    boxes = np.where(valid_boxes(boxes)[..., None], np.clip(boxes, 0.0, ends), 0.0)
    # The edges of all boxes cut the image into cells, each of which lies in or outside of every box.
    xs = np.sort(boxes[..., 0::2].reshape(len(boxes), -1), axis=1)
    ys = np.sort(boxes[..., 1::2].reshape(len(boxes), -1), axis=1)
    cells = np.diff(ys)[:, :, None] * np.diff(xs)[:, None, :]
    n, m = pred.shape[1], gt.shape[1]
    in_pred, in_gt = _covered(boxes[:, :n], xs, ys), _covered(boxes[:, n : n + m], xs, ys)
    in_ignore = _covered(boxes[:, n + m : -1], xs, ys)
    is_measured = in_gt | ~in_ignore
    masks = (in_pred & in_gt, in_pred & ~in_gt & is_measured, ~in_pred & in_gt, ~in_pred & ~in_gt & is_measured)
    return np.stack([(cells * mask).sum(axis=(1, 2)) for mask in masks], axis=1)


def _covered(boxes: Array, xs: Array, ys: Array) -> NDArray[np.bool_]:
    """Which cells between neighbouring edges, ``(b, ys - 1, xs - 1)``, lie in a box, which begins and ends at edges."""
    x1, y1, x2, y2 = np.moveaxis(boxes, -1, 0)[..., None]
    columns = (x1 <= xs[:, None, :-1]) & (xs[:, None, 1:] <= x2)
    rows = (y1 <= ys[:, None, :-1]) & (ys[:, None, 1:] <= y2)
    # Counted in float32, which matrix products are fast in.
    return np.swapaxes(rows, 1, 2).astype(np.float32) @ columns.astype(np.float32) > 0

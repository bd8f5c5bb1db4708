"""Boxes seen as a segmentation of the image into two classes: foreground, where a box is, and background.

The predicted foreground P is the union of the predicted boxes inside the image; the reference foreground G the union of
the reference boxes, or a mask. Four areas say all: the hit ``|P ∩ G|``, the false ``|P \\ G|``, the missed ``|G \\ P|``
and the rest of the image, in squared pixels.

    pixel accuracy = (hit + rest) / (hit + false + missed + rest)
    foreground IoU = hit / (hit + false + missed)
    background IoU = rest / (rest + false + missed)
    mean IoU       = the mean of the two
    Dice           = 2 hit / (2 hit + false + missed)

Conventions:

* Edges are real numbers, and areas are exact: the edges of all boxes cut the image into cells, each wholly inside or
  outside a box. No box is drawn on a raster, so that fractions of a pixel count as such. For boxes on whole pixels
  the areas are numbers of pixels. A mask is constant on each of its pixels.
* An invalid box covers nothing, and the part of a box outside the image does not count.
* In an ignored region, what is outside the reference foreground does not count.
* A class that neither side has cannot be measured: on an image without a box on either side, Dice and foreground IoU
are
  NaN and the mean IoU is that of the background alone, 1. (The specification's code counts such a class as 0, by which
  a rightly empty answer would have a mean IoU of 0.5.) A class that one side alone has is 0.
* Pooled metrics are made of the summed areas of all images, as §3 sums pixels: a large image weighs more than a small
  one. Metrics per image are averaged over the images on which they can be measured.

Source: specification §3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grounding_rewards.boxes import Boxes, as_box_array, valid_boxes
from grounding_rewards.common.arithmetic import Array, ratio_or_nan
from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.estimates import Estimate, Metric
from grounding_rewards.metrics.intervals import Jackknifed, jackknifed_ratio, sum_by_group


def box_areas(
    pred: ArrayLike,
    gt: ArrayLike,
    *,
    width: float,
    height: float,
    ignore: ArrayLike = (),
    mask: NDArray[np.bool_] | None = None,
) -> Array:
    """The hit, false, missed and remaining area of one image.

    Args:
        pred: ``(n, 4)`` xyxy in pixels of the image.
        gt: ``(m, 4)`` likewise; passed over where there is a mask.
        width: of the image in pixels.
        height: of the image in pixels.
        ignore: ``(k, 4)`` regions in which only the reference foreground counts.
        mask: ``(height, width)`` bool, the reference foreground.

    Returns:
        ``(4,)`` float64, never negative: hit, false, missed, rest.

    Raises:
        ValueError: the mask is not as large as the image, or not of bool.

    Example:
        >>> box_areas([[0, 0, 10, 4], [0, 2, 10, 5]], [[0, 0, 10, 10]], width=20, height=10)
        array([ 50.,   0.,  50., 100.])
        >>> mask = np.zeros((10, 20), dtype=bool)
        >>> mask[:, :10] = True
        >>> box_areas([[0, 0, 10.5, 5]], [], width=20, height=10, mask=mask)
        array([50. ,  2.5, 50. , 97.5])
    """
    inside = [_inside_image(boxes, name, width, height) for boxes, name in ((pred, "pred"), (gt, "gt"))]
    if mask is None and not any(map(len, (*inside, ignore))):  # type: ignore[arg-type]
        return np.array([0.0, 0.0, 0.0, width * height])
    p, g, void = *inside, _inside_image(ignore, "ignore", width, height)
    edges = np.concatenate([p, g, void, [[0.0, 0.0, width, height]]])
    xs, ys = np.unique(edges[:, ::2]), np.unique(edges[:, 1::2])
    cell = np.diff(ys)[:, None] * np.diff(xs)
    foreground = np.where(_covered(g, xs, ys), cell, 0.0) if mask is None else _mask_in_cells(mask, xs, ys)
    covered = _covered(p, xs, ys)
    # Rounding may make a sum of parts of pixels larger than the cell.
    background = np.where(_covered(void, xs, ys), 0.0, np.maximum(cell - foreground, 0.0))
    return np.array([part[cells].sum() for cells in (covered, ~covered) for part in (foreground, background)])


def segmentation_areas(
    images: Sequence[AnsweredImage], masks: Sequence[NDArray[np.bool_] | None] | None = None
) -> Array:
    """The hit, false, missed and remaining area of every image.

    Args:
        images: answered images.
        masks: for each image a ``(height, width)`` bool array that takes the place of its reference boxes, or None.

    Returns:
        ``(images, 4)``.

    Raises:
        ValueError: there are not as many masks as images, or one is not as large as its image.

    Example:
        >>> image = AnsweredImage("a", 20, 10, gt=[[0, 0, 10, 10]], gt_labels=["mass"], pred=[[0, 0, 10, 5]])
        >>> segmentation_areas([image])
        array([[ 50.,   0.,  50., 100.]])
    """
    if masks is not None and len(masks) != len(images):
        raise ValueError(
            f"Expected one entry per image for `masks`, got {len(masks)} for {len(images)} images. "
            "Give None for an image that has no mask."
        )
    areas = [
        box_areas(image.pred, image.gt, width=image.width, height=image.height, ignore=image.ignore, mask=mask)
        for image, mask in zip(images, masks or [None] * len(images), strict=True)
    ]
    return np.array(areas).reshape(-1, 4)


def pixel_accuracy(areas: Array) -> Array:
    """The part of the image that is rightly called foreground or background.

    Args:
        areas: ``(..., 4)`` hit, false, missed, rest.

    Returns:
        ``(...)`` in [0, 1].

    Example:
        >>> float(pixel_accuracy(np.array([50.0, 0.0, 50.0, 100.0])))
        0.75
    """
    return ratio_or_nan(*_pixel_accuracy(areas))


def foreground_iou(areas: Array) -> Array:
    """IoU of the predicted and the reference foreground, NaN where neither has any.

    Args:
        areas: ``(..., 4)`` hit, false, missed, rest.

    Returns:
        ``(...)`` in [0, 1].

    Example:
        >>> foreground_iou(np.array([[50.0, 0.0, 50.0, 100.0], [0.0, 0.0, 0.0, 200.0]]))
        array([0.5, nan])
    """
    hit, false, missed, _ = _parts(areas)
    return ratio_or_nan(hit, hit + false + missed)


def class_mean_iou(areas: Array) -> Array:
    """Mean of the IoUs of foreground and background; of the one class where the other has no area on either side.

    Args:
        areas: ``(..., 4)`` hit, false, missed, rest.

    Returns:
        ``(...)`` in [0, 1].

    Example:
        >>> class_mean_iou(np.array([[50.0, 0.0, 50.0, 100.0], [0.0, 0.0, 0.0, 200.0]])).round(4)
        array([0.5833, 1.    ])
    """
    hit, false, missed, rest = _parts(areas)
    classes = np.stack([ratio_or_nan(hit, hit + false + missed), ratio_or_nan(rest, rest + false + missed)])
    return ratio_or_nan(np.nansum(classes, axis=0), np.sum(~np.isnan(classes), axis=0))


def dice(areas: Array) -> Array:
    """Dice coefficient of the predicted and the reference foreground, NaN where neither has any.

    ``Dice = 2 |P ∩ G| / (|P| + |G|)``, which is ``2 IoU / (1 + IoU)``.

    Args:
        areas: ``(..., 4)`` hit, false, missed, rest.

    Returns:
        ``(...)`` in [0, 1].

    Example:
        >>> round(float(dice(np.array([50.0, 0.0, 50.0, 100.0]))), 4)
        0.6667
    """
    return ratio_or_nan(*_dice(areas))


def _dice(areas: Array) -> tuple[Array, Array]:
    hit, false, missed, _ = _parts(areas)
    return 2 * hit, 2 * hit + false + missed


def _pixel_accuracy(areas: Array) -> tuple[Array, Array]:
    hit, false, missed, rest = _parts(areas)
    return hit + rest, hit + false + missed + rest


#: `of` takes areas, ``(..., 4)``, to values, ``(...)``.
SEGMENTATION_METRICS: dict[str, Metric] = {
    "pixel_accuracy": Metric(
        "pixel accuracy", "part of the area of all images that is rightly inside or outside of boxes", pixel_accuracy
    ),
    "class_mean_iou": Metric(
        "mean IoU of foreground and background",
        "IoU of the areas inside boxes and of the areas outside, all images pooled; the mean of the two",
        class_mean_iou,
    ),
    "foreground_iou": Metric(
        "foreground IoU", "IoU of the union of predicted and the union of reference boxes, pooled", foreground_iou
    ),
    "dice": Metric("Dice", "of the union of predicted and the union of reference boxes, all images pooled", dice),
}


#: Those of them that are ratios of sums over images, with their numerators and denominators.
AREA_RATIOS: dict[str, Callable[[Array], tuple[Array, Array]]] = {"dice": _dice, "pixel_accuracy": _pixel_accuracy}


def segmentation_estimates(areas: Array, *, groups: Sequence[Any] | None = None) -> dict[str, Estimate]:
    """Every metric over all images, with its 95 % interval over images or groups of images, see :mod:`.intervals`.

    Args:
        areas: ``(images, 4)`` from :func:`segmentation_areas`.
        groups: the patient of each image, where known; the images of one patient are then left out together.

    Returns:
        By key of :data:`SEGMENTATION_METRICS` the pooled metric, and by the key with `_per_image` the mean over images.

    Example:
        >>> areas = np.array([[50.0, 0.0, 50.0, 100.0], [100.0, 0.0, 0.0, 100.0], [0.0, 0.0, 0.0, 200.0]])
        >>> found = segmentation_estimates(areas)
        >>> round(found["dice"].value, 4), round(found["dice_per_image"].value, 4)
        (0.8571, 0.8333)
    """
    per_image = {key: metric.of(areas) for key, metric in SEGMENTATION_METRICS.items()}
    table = np.concatenate([areas, *(_value_and_count(values) for values in per_image.values())], axis=1)
    units = table if groups is None else sum_by_group(table, groups)
    total = units.sum(axis=0)
    left_out = total - units
    found = {}
    for k, (key, metric) in enumerate(SEGMENTATION_METRICS.items()):
        found[key] = Jackknifed(float(metric.of(total[:4])), metric.of(left_out[:, :4]), len(units)).estimate
        found[f"{key}_per_image"] = jackknifed_ratio(units[:, 4 + 2 * k : 6 + 2 * k]).estimate
    return found


def _value_and_count(values: Array) -> Array:
    """A mean over those images on which there is something to measure, as ``(images, 2)`` sums."""
    return np.stack([np.nan_to_num(values), ~np.isnan(values)], axis=1)


def _parts(areas: Array) -> tuple[Array, Array, Array, Array]:
    return areas[..., 0], areas[..., 1], areas[..., 2], areas[..., 3]


def _inside_image(boxes: ArrayLike, argument: str, width: float, height: float) -> Boxes:
    array = as_box_array(boxes, argument)
    return np.clip(array[valid_boxes(array)], 0.0, [width, height, width, height])


def _covered(boxes: Boxes, xs: Array, ys: Array) -> NDArray[np.bool_]:
    """Which cells between neighbouring edges, (ys - 1, xs - 1), lie in a box; every box begins and ends at an edge."""
    x1, y1, x2, y2 = boxes.T[:, :, None]
    columns = (x1 <= xs[:-1]) & (xs[1:] <= x2)
    rows = (y1 <= ys[:-1]) & (ys[1:] <= y2)
    # Counted in float32, which matrix products are fast in.
    return rows.T.astype(np.float32) @ columns.astype(np.float32) > 0


def _mask_in_cells(mask: NDArray[np.bool_], xs: Array, ys: Array) -> Array:
    """The area of the mask in every cell, (ys - 1, xs - 1)."""
    shape = (int(ys[-1]), int(xs[-1]))
    given = np.asarray(mask)
    if given.dtype.kind != "b" or given.shape != shape or shape != (ys[-1], xs[-1]):
        raise ValueError(
            f"Expected a bool array of shape (height, width) = ({ys[-1]:g}, {xs[-1]:g}) for `mask`, got {given.dtype} "
            f"of shape {given.shape}. Scale the mask to the image with nearest neighbours, and compare it with a "
            "threshold."
        )
    return _parts_of_pixels(ys, shape[0]) @ given.astype(np.float64) @ _parts_of_pixels(xs, shape[1]).T


def _parts_of_pixels(edges: Array, n: int) -> Array:
    """How much of each of n pixels lies between each pair of neighbouring edges, (edges - 1, n)."""
    pixels = np.arange(n)
    low, high = edges[:-1, None], edges[1:, None]
    return np.clip(np.minimum(high, pixels + 1) - np.maximum(low, pixels), 0.0, None)

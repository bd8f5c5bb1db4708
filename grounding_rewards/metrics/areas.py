"""Boxes seen as a segmentation of the film into two classes: foreground, where a box is, and background.

The predicted foreground P is the union of the predicted boxes inside the film; the reference foreground G the union of
the reference boxes, or a mask. Four areas say all: the hit ``|P ∩ G|``, the false ``|P \\ G|``, the missed ``|G \\ P|``
and the rest of the film, in squared pixels.

    pixel accuracy = (hit + rest) / (hit + false + missed + rest)
    foreground IoU = hit / (hit + false + missed)
    background IoU = rest / (rest + false + missed)
    mean IoU       = the mean of the two
    Dice           = 2 hit / (2 hit + false + missed)

Conventions:

* Edges are real numbers, and areas are exact: the edges of all boxes cut the film into cells, each wholly inside or
  outside a box. No box is drawn on a raster, so that fractions of a pixel count as such. For boxes on whole pixels
  the areas are numbers of pixels. A mask is constant on each of its pixels.
* An invalid box covers nothing, and the part of a box outside the film does not count.
* In an ignored region, what is outside the reference foreground does not count.
* A class that neither side has cannot be measured: on a film without a box on either side, Dice and foreground IoU are
  NaN and the mean IoU is that of the background alone, 1. (The specification's code counts such a class as 0, by which
  a rightly empty answer would have a mean IoU of 0.5.) A class that one side alone has is 0.
* Pooled figures are made of the summed areas of all films, as §3 sums pixels: a large film weighs more than a small
  one. Figures per film are averaged over the films on which they can be measured.

Source: specification §3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grounding_rewards.arithmetic import Array, ratio_or_nan
from grounding_rewards.boxes import Boxes, as_box_array, valid_boxes
from grounding_rewards.metrics.answered_film import AnsweredFilm
from grounding_rewards.metrics.bootstrap import sum_by_group
from grounding_rewards.metrics.estimates import Estimate, Figure
from grounding_rewards.metrics.jackknife import Jackknifed, jackknifed_ratio


def box_areas(
    pred: ArrayLike,
    gt: ArrayLike,
    *,
    width: float,
    height: float,
    ignore: ArrayLike = (),
    mask: NDArray[np.bool_] | None = None,
) -> Array:
    """The hit, false, missed and remaining area of one film.

    Args:
        pred: ``(n, 4)`` xyxy in pixels of the film.
        gt: ``(m, 4)`` likewise; passed over where there is a mask.
        width: of the film in pixels.
        height: of the film in pixels.
        ignore: ``(k, 4)`` regions in which only the reference foreground counts.
        mask: ``(height, width)`` bool, the reference foreground.

    Returns:
        ``(4,)`` float64, never negative: hit, false, missed, rest.

    Raises:
        ValueError: the mask is not as large as the film, or not of bool.

    Example:
        >>> box_areas([[0, 0, 10, 4], [0, 2, 10, 5]], [[0, 0, 10, 10]], width=20, height=10)
        array([ 50.,   0.,  50., 100.])
        >>> mask = np.zeros((10, 20), dtype=bool)
        >>> mask[:, :10] = True
        >>> box_areas([[0, 0, 10.5, 5]], [], width=20, height=10, mask=mask)
        array([50. ,  2.5, 50. , 97.5])
    """
    inside = [_inside_film(boxes, name, width, height) for boxes, name in ((pred, "pred"), (gt, "gt"))]
    if mask is None and not any(map(len, (*inside, ignore))):  # type: ignore[arg-type]
        return np.array([0.0, 0.0, 0.0, width * height])
    p, g, void = *inside, _inside_film(ignore, "ignore", width, height)
    edges = np.concatenate([p, g, void, [[0.0, 0.0, width, height]]])
    xs, ys = np.unique(edges[:, ::2]), np.unique(edges[:, 1::2])
    cell = np.diff(ys)[:, None] * np.diff(xs)
    foreground = np.where(_covered(g, xs, ys), cell, 0.0) if mask is None else _mask_in_cells(mask, xs, ys)
    covered = _covered(p, xs, ys)
    # Rounding may make a sum of parts of pixels larger than the cell.
    background = np.where(_covered(void, xs, ys), 0.0, np.maximum(cell - foreground, 0.0))
    return np.array([part[cells].sum() for cells in (covered, ~covered) for part in (foreground, background)])


def segmentation_areas(films: Sequence[AnsweredFilm], masks: Sequence[NDArray[np.bool_] | None] | None = None) -> Array:
    """The hit, false, missed and remaining area of every film.

    Args:
        films: answered films.
        masks: for each film a ``(height, width)`` bool array that takes the place of its reference boxes, or None.

    Returns:
        ``(films, 4)``.

    Raises:
        ValueError: there are not as many masks as films, or one is not as large as its film.

    Example:
        >>> film = AnsweredFilm("a", 20, 10, gt=[[0, 0, 10, 10]], gt_labels=["mass"], pred=[[0, 0, 10, 5]])
        >>> segmentation_areas([film])
        array([[ 50.,   0.,  50., 100.]])
    """
    if masks is not None and len(masks) != len(films):
        raise ValueError(
            f"Expected one entry per film for `masks`, got {len(masks)} for {len(films)} films. "
            "Give None for a film that has no mask."
        )
    areas = [
        box_areas(film.pred, film.gt, width=film.width, height=film.height, ignore=film.ignore, mask=mask)
        for film, mask in zip(films, masks or [None] * len(films), strict=True)
    ]
    return np.array(areas).reshape(-1, 4)


def pixel_accuracy(areas: Array) -> Array:
    """The part of the film that is rightly called foreground or background.

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
SEGMENTATION_FIGURES: dict[str, Figure] = {
    "pixel_accuracy": Figure(
        "pixel accuracy", "part of the area of all films that is rightly inside or outside of boxes", pixel_accuracy
    ),
    "class_mean_iou": Figure(
        "mean IoU of foreground and background",
        "IoU of the areas inside boxes and of the areas outside, all films pooled; the mean of the two",
        class_mean_iou,
    ),
    "foreground_iou": Figure(
        "foreground IoU", "IoU of the union of predicted and the union of reference boxes, pooled", foreground_iou
    ),
    "dice": Figure("Dice", "of the union of predicted and the union of reference boxes, all films pooled", dice),
}


#: Those of them that are ratios of sums over films, with their numerators and denominators.
AREA_RATIOS: dict[str, Callable[[Array], tuple[Array, Array]]] = {"dice": _dice, "pixel_accuracy": _pixel_accuracy}


def segmentation_estimates(areas: Array, *, groups: Sequence[Any] | None = None) -> dict[str, Estimate]:
    """Every figure over all films, with its 95 % interval over films or groups of films, see :mod:`.jackknife`.

    Args:
        areas: ``(films, 4)`` from :func:`segmentation_areas`.
        groups: the patient of each film, where known; the films of one patient are then left out together.

    Returns:
        By key of :data:`SEGMENTATION_FIGURES` the pooled figure, and by the key with `_per_film` the mean over films.

    Example:
        >>> areas = np.array([[50.0, 0.0, 50.0, 100.0], [100.0, 0.0, 0.0, 100.0], [0.0, 0.0, 0.0, 200.0]])
        >>> found = segmentation_estimates(areas)
        >>> round(found["dice"].value, 4), round(found["dice_per_film"].value, 4)
        (0.8571, 0.8333)
    """
    per_film = {key: figure.of(areas) for key, figure in SEGMENTATION_FIGURES.items()}
    table = np.concatenate([areas, *(_value_and_count(values) for values in per_film.values())], axis=1)
    units = table if groups is None else sum_by_group(table, groups)
    total = units.sum(axis=0)
    left_out = total - units
    found = {}
    for k, (key, figure) in enumerate(SEGMENTATION_FIGURES.items()):
        found[key] = Jackknifed(float(figure.of(total[:4])), figure.of(left_out[:, :4]), len(units)).estimate
        found[f"{key}_per_film"] = jackknifed_ratio(units[:, 4 + 2 * k : 6 + 2 * k]).estimate
    return found


def _value_and_count(values: Array) -> Array:
    """A mean over those films on which there is something to measure, as ``(films, 2)`` sums."""
    return np.stack([np.nan_to_num(values), ~np.isnan(values)], axis=1)


def _parts(areas: Array) -> tuple[Array, Array, Array, Array]:
    return areas[..., 0], areas[..., 1], areas[..., 2], areas[..., 3]


def _inside_film(boxes: ArrayLike, argument: str, width: float, height: float) -> Boxes:
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
            f"of shape {given.shape}. Scale the mask to the film with nearest neighbours, and compare it with a "
            "threshold."
        )
    return _parts_of_pixels(ys, shape[0]) @ given.astype(np.float64) @ _parts_of_pixels(xs, shape[1]).T


def _parts_of_pixels(edges: Array, n: int) -> Array:
    """How much of each of n pixels lies between each pair of neighbouring edges, (edges - 1, n)."""
    pixels = np.arange(n)
    low, high = edges[:-1, None], edges[1:, None]
    return np.clip(np.minimum(high, pixels + 1) - np.maximum(low, pixels), 0.0, None)

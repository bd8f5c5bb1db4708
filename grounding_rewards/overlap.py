"""Overlap of every predicted box with every ground-truth box, and the removal of boxes that overlap each other.

Conventions, the same for the functions of pairs:

* ``f(pred, gt)`` takes ``(..., n, 4)`` and ``(..., m, 4)`` xyxy arrays in one common space and returns ``(..., n, m)``.
  Leading dimensions broadcast, so that the completions of a whole training step are one call.
* Edges are real numbers: a side is ``x2 - x1``, without the ``+ 1`` of pixel counting.
* No box raises. An invalid one (see :func:`grounding_rewards.boxes.valid_boxes`) overlaps nothing: IoU,
  IoA and NWD are 0, and GIoU, DIoU and CIoU are -1, the value of a pair that is infinitely far apart.
* No ratio has an epsilon. ``pairwise_iou(b, b)`` is exactly 1 for every valid box, however small or large.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grounding_rewards.boxes import as_box_array, valid_boxes
from grounding_rewards.common.numeric import Array
from grounding_rewards.common.validation import SHARE, check_number, check_word

# Up to so many pairs a loop in Python is faster than numpy.
_FEW_PAIRS = 16
# Below this area float64 loses bits; such pairs are measured in units of their own size.
_SMALLEST_AREA = 1e-290
# The axes of an image: along the first a box has its width, along the second its height.
_X, _Y = 0, 1


def pairwise_iou(pred: ArrayLike, gt: ArrayLike) -> Array:
    """Intersection over union.

    ``IoU = |P ∩ G| / |P ∪ G|``, in [0, 1].

    Args:
        pred: ``(..., n, 4)`` xyxy.
        gt: ``(..., m, 4)`` xyxy, in the same space.

    Returns:
        ``(..., n, m)`` float64.

    Raises:
        ValueError: the last dimension is not 4.

    Example:
        >>> pairwise_iou([[50, 50, 100, 100]], [[60, 60, 110, 110], [0, 0, 50, 50]]).round(4)
        array([[0.4706, 0.    ]])

    Source: specification §2.1; Everingham et al., The PASCAL VOC Challenge, IJCV 2010, §4.2.
    """
    p, g = _boxes(pred, "pred"), _boxes(gt, "gt")
    n, m = p.shape[-2], g.shape[-2]
    # All numbers are those of n or m boxes: leading dimensions, if there are any, are 1.
    is_one_image = p.size == 4 * n and g.size == 4 * m
    if is_one_image and n * m <= _FEW_PAIRS:
        ious = _iou_of_few(p.reshape(n, 4).tolist(), g.reshape(m, 4).tolist())
        if ious is not None:
            leading_ones = (1,) * (max(p.ndim, g.ndim) - 2)
            return np.array(ious, dtype=np.float64).reshape((*leading_ones, n, m))
    # numpy is slow along a short last axis. There are many images with a few boxes each, so they are laid out in
    # memory with the images last.
    p, g = np.asfortranarray(p), np.asfortranarray(g)
    return np.ascontiguousarray(_iou(p[..., :, None, :], g[..., None, :, :]))


def pairwise_giou(pred: ArrayLike, gt: ArrayLike) -> Array:
    """Generalised IoU, which also tells how far apart two boxes are that do not touch.

    ``GIoU = IoU - (|C| - |P ∪ G|) / |C|`` with C the smallest box around both, in [-1, 1].

    Arguments, shape and errors are those of :func:`pairwise_iou`.

    Example:
        >>> pairwise_giou([[0, 0, 1, 1]], [[0, 0, 1, 1], [2, 0, 3, 1]]).round(4)
        array([[ 1.    , -0.3333]])

    Source: Rezatofighi et al., Generalized Intersection over Union, CVPR 2019, algorithm 1.
    """
    p, g = _pairs(pred, gt)
    # In units of the enclosing box no product can overflow or vanish, and |C| = 1.
    _, union = _intersection_and_union(*_in_enclosing_units(p, g))
    return _of_valid_pairs(_iou(p, g) - (1.0 - union), p, g, otherwise=-1.0)


def pairwise_diou(pred: ArrayLike, gt: ArrayLike) -> Array:
    """Distance IoU, which charges the distance between the centres.

    ``DIoU = IoU - ρ² / c²`` with ρ the distance between the centres and c the diagonal of the smallest box around
    both, in [-1, 1].

    Arguments, shape and errors are those of :func:`pairwise_iou`.

    Example:
        >>> pairwise_diou([[0, 0, 2, 2]], [[0, 0, 2, 2], [2, 2, 4, 4]]).round(4)
        array([[ 1.  , -0.25]])

    Source: Zheng et al., Distance-IoU Loss, AAAI 2020, equation 7: both distances squared.
    """
    p, g = _pairs(pred, gt)
    return _of_valid_pairs(_iou(p, g) - _centre_penalty(p, g), p, g, otherwise=-1.0)


def pairwise_ciou(pred: ArrayLike, gt: ArrayLike) -> Array:
    """Complete IoU, which charges the distance between the centres and a difference in shape.

    ``CIoU = IoU - ρ² / c² - α v`` with ``v = 4/π² (arctan(w_g / h_g) - arctan(w_p / h_p))²`` and
    ``α = v / ((1 - IoU) + v)``, in (-1.5, 1].

    Arguments, shape and errors are those of :func:`pairwise_iou`.

    Example:
        >>> pairwise_ciou([[0, 0, 2, 2]], [[0, 0, 2, 2], [0, 0, 4, 2]]).round(4)
        array([[1.    , 0.4468]])

    Source: Zheng et al., Distance-IoU Loss, AAAI 2020, equations 8 to 11.
    """
    p, g = _pairs(pred, gt)
    iou = _iou(p, g)
    with np.errstate(all="ignore"):
        # The difference in shape, and its weight: 0 for equal shapes, where equal boxes would make it 0 / 0.
        v = 4 / np.pi**2 * (_aspect(g) - _aspect(p)) ** 2
        alpha = np.where(v > 0, v / ((1 - iou) + v), 0.0)
        ciou = iou - _centre_penalty(p, g) - alpha * v
    return _of_valid_pairs(ciou, p, g, otherwise=-1.0)


def pairwise_ioa(pred: ArrayLike, gt: ArrayLike) -> Array:
    """Intersection over the area of the ground-truth box: the part of each finding that a prediction covers.

    ``IoA = |P ∩ G| / |G|``, in [0, 1].

    Arguments, shape and errors are those of :func:`pairwise_iou`.

    Example:
        >>> pairwise_ioa([[10, 20, 50, 80], [20, 30, 60, 90]], [[20, 30, 60, 90], [30, 40, 70, 100]]).round(4)
        array([[0.625 , 0.3333],
               [1.    , 0.625 ]])
    """
    p, g = _pairs(pred, gt)
    with np.errstate(all="ignore"):
        ioa = _safe_ratio(_overlap(p, g, _X) * _overlap(p, g, _Y), _side(g, _X) * _side(g, _Y))
        # For areas that float64 cannot hold, whose ratio is NaN: each side relative to that of the ground truth.
        scaled = (_overlap(p, g, _X) / _side(g, _X)) * (_overlap(p, g, _Y) / _side(g, _Y))
    ioa = np.where(np.isnan(ioa), scaled, ioa)
    return _of_valid_pairs(np.clip(ioa, 0.0, 1.0), p, g, otherwise=0.0)


def pairwise_nwd(pred: ArrayLike, gt: ArrayLike) -> Array:
    """Normalised Wasserstein distance: how near two boxes are, also where they do not overlap.

    ``NWD = exp(-W / C)``, in [0, 1], with ``W² = Δx² + Δy² + (Δw² + Δh²) / 4`` of the centres and sides. C is the
    ground truth's own size, ``sqrt(w h)``, where the source takes the mean size of all objects of a data set: so a
    number means the same on images of all sizes, and needs nothing to be set.

    Arguments, shape and errors are those of :func:`pairwise_iou`.

    Example:
        >>> pairwise_nwd([[0, 0, 4, 4], [4, 0, 8, 4]], [[0, 0, 4, 4]]).round(4)
        array([[1.    ],
               [0.3679]])

    Source: Wang et al., A Normalized Gaussian Wasserstein Distance for Tiny Object Detection, arXiv 2110.13389,
    equations 5 and 6.
    """
    p, g = _pairs(pred, gt)
    with np.errstate(all="ignore"):
        # Differences of the corners in units of C, so that squares neither overflow nor vanish.
        size = (np.sqrt(_side(g, _X)) * np.sqrt(_side(g, _Y)))[..., None]
        start = (p[..., :2] - g[..., :2]) / size
        end = (p[..., 2:] - g[..., 2:]) / size
        # Δx = (start + end) / 2 and Δw = end - start along each axis, so Δx² + Δw² / 4 = (start² + end²) / 2
        distance = np.sqrt(((start**2 + end**2) / 2).sum(-1))
        nwd = np.exp(-distance)
    return _of_valid_pairs(nwd, p, g, otherwise=0.0)


def nms(boxes: ArrayLike, scores: ArrayLike, iou_threshold: float = 0.45, *, overlap: str = "iou") -> NDArray[np.int64]:
    """Non-maximum suppression: of boxes that overlap each other keep the highest-scoring.

    Boxes are taken in order of falling score, equal scores by index, NaN last. Each is kept unless its overlap with a
    box kept before exceeds the threshold. An invalid box overlaps nothing, so it is kept and removes nothing.

    Args:
        boxes: ``(n, 4)`` xyxy.
        scores: ``(n,)``.
        iou_threshold: of the overlap, in [0, 1].
        overlap: ``"iou"``; or ``"ioa"``, the part of the box itself that the kept one covers, which also removes small
            boxes inside a large one.

    Returns:
        ``(kept,)`` int64: indices into ``boxes``, by falling score.

    Raises:
        ValueError: ``boxes`` is not (n, 4), there is not one score per box, or the threshold is outside [0, 1].

    Example:
        >>> nms([[0, 0, 10, 10], [0, 0, 10, 9], [20, 20, 30, 30]], [0.5, 0.9, 0.1], 0.5)
        array([1, 2])
        >>> inside = [[0, 0, 10, 10], [2, 2, 5, 5]]
        >>> nms(inside, [0.9, 0.5]), nms(inside, [0.9, 0.5], overlap="ioa")
        (array([0, 1]), array([0]))

    Source: Felzenszwalb et al., Object Detection with Discriminatively Trained Part-Based Models, PAMI 2010, §5.2; the
    order of equals and the strict comparison are torchvision's.
    """
    array, confidences = as_box_array(boxes, "boxes"), np.asarray(scores, dtype=np.float64)
    if confidences.shape != (len(array),):
        raise ValueError(
            f"Expected {len(array)} numbers for `scores`, got shape {confidences.shape}. Give one for each box."
        )
    check_number("iou_threshold", iou_threshold, SHARE, "The usual value is 0.45.")
    check_word("overlap", overlap, _OVERLAPS)
    # Indices by falling score, NaN last.
    remaining = np.argsort(np.where(np.isnan(confidences), np.inf, -confidences), kind="stable")
    kept = []
    while len(remaining):
        best, others = remaining[0], remaining[1:]
        kept.append(best)
        overlap_with_best = _OVERLAPS[overlap](array[[best]], array[others])[0]
        remaining = others[overlap_with_best <= iou_threshold]
    return np.array(kept, dtype=np.int64)


#: What `nms` may measure of a kept box and another one.
_OVERLAPS = {"iou": pairwise_iou, "ioa": pairwise_ioa}


def _pairs(pred: ArrayLike, gt: ArrayLike) -> tuple[Array, Array]:
    """The boxes of both as arrays that broadcast to every pair: (..., n, 1, 4) and (..., 1, m, 4)."""
    return _boxes(pred, "pred")[..., :, None, :], _boxes(gt, "gt")[..., None, :, :]


def _boxes(boxes: ArrayLike, argument: str) -> Array:
    """Return boxes as :func:`as_box_array` does, but with any number of leading dimensions, (..., n, 4)."""
    try:
        shape = np.shape(boxes)
    except ValueError:
        # Lists of different lengths, which `as_box_array` refuses in words.
        shape = ()
    if len(shape) > 2 and shape[-1] == 4:
        return np.asarray(boxes, dtype=np.float64)
    return as_box_array(boxes, argument)


def _side(boxes: Array, axis: int) -> Array:
    """The width (axis `_X`) or the height (`_Y`) of each box."""
    return boxes[..., axis + 2] - boxes[..., axis]


def _overlap(p: Array, g: Array, axis: int) -> Array:
    """The width (axis `_X`) or the height (`_Y`) of the intersection of each pair; 0 where boxes are apart."""
    side = np.minimum(p[..., axis + 2], g[..., axis + 2])
    side -= np.maximum(p[..., axis], g[..., axis])
    return np.maximum(side, 0.0, out=side)


def _intersection_and_union(p: Array, g: Array) -> tuple[Array, Array]:
    """The area of the intersection and that of the union of each pair."""
    # In place, as arrays of many pairs are slow to allocate.
    with np.errstate(all="ignore"):
        inter = _overlap(p, g, _X)
        inter *= _overlap(p, g, _Y)
        union = _side(p, _X) * _side(p, _Y) + _side(g, _X) * _side(g, _Y)
        union -= inter
    return inter, union


def _iou(p: Array, g: Array) -> Array:
    """The IoU of each pair of boxes, whose arrays broadcast to pairs; 0 for an invalid box."""
    inter, union = _intersection_and_union(p, g)
    valid_p, valid_g = valid_boxes(p), valid_boxes(g)
    # The usual case: all boxes are valid, and float64 holds all areas. In place, which saves the steps below.
    if valid_p.all() and valid_g.all() and union.size and union.min() > _SMALLEST_AREA and union.max() < np.inf:
        inter /= union
        return np.minimum(inter, 1.0, out=inter)
    iou = _safe_ratio(inter, union)
    is_valid_pair = valid_p & valid_g
    # Valid boxes whose areas float64 cannot hold.
    is_extreme = np.isnan(iou) & is_valid_pair
    if is_extreme.any():
        iou = np.where(is_extreme, _iou_of_extreme_sizes(p, g), iou)
    return np.where(is_valid_pair, np.clip(iou, 0.0, 1.0), 0.0)


def _iou_of_few(pred: list[list[float]], gt: list[list[float]]) -> list[float] | None:
    """`_iou` of a few pairs, prediction by prediction, by the same operations, so to the same bit.

    None if any pair is so small or large that float64 cannot hold its area.
    """
    gt_with_sides = [(*box, box[2] - box[0], box[3] - box[1]) for box in gt]
    ious = []
    for px1, py1, px2, py2 in pred:
        pw, ph = px2 - px1, py2 - py1
        for gx1, gy1, gx2, gy2, gw, gh in gt_with_sides:
            # As `valid_boxes` tells of both: an invalid box overlaps nothing.
            if not (0 < pw < math.inf and 0 < ph < math.inf and 0 < gw < math.inf and 0 < gh < math.inf):
                ious.append(0.0)
                continue
            # Comparisons are faster than `min` and `max`.
            width = (px2 if px2 < gx2 else gx2) - (px1 if px1 > gx1 else gx1)
            height = (py2 if py2 < gy2 else gy2) - (py1 if py1 > gy1 else gy1)
            inter = width * height if width > 0 and height > 0 else 0.0
            union = (pw * ph + gw * gh) - inter
            if not _SMALLEST_AREA < union < math.inf:
                return None
            ious.append(min(inter / union, 1.0))
    return ious


def _safe_ratio(part: Array, total: Array) -> Array:
    """Divide where float64 holds the total to full precision; NaN elsewhere, also where the total is 0."""
    with np.errstate(all="ignore"):
        return np.where((total > _SMALLEST_AREA) & (total < np.inf), part / total, np.nan)


def _iou_of_extreme_sizes(p: Array, g: Array) -> Array:
    """IoU of pairs whose areas float64 cannot hold; along each axis the longer side of the two boxes is 1."""
    with np.errstate(all="ignore"):
        unit_x = np.maximum(_side(p, _X), _side(g, _X))
        unit_y = np.maximum(_side(p, _Y), _side(g, _Y))
        inter = (_overlap(p, g, _X) / unit_x) * (_overlap(p, g, _Y) / unit_y)
        area_p = (_side(p, _X) / unit_x) * (_side(p, _Y) / unit_y)
        area_g = (_side(g, _X) / unit_x) * (_side(g, _Y) / unit_y)
        return np.nan_to_num(inter / (area_p + area_g - inter), nan=0.0)


def _in_enclosing_units(p: Array, g: Array) -> tuple[Array, Array]:
    """Move and scale both boxes of each pair so that the smallest box around them is 0, 0, 1, 1."""
    with np.errstate(all="ignore"):
        origin = np.minimum(p[..., :2], g[..., :2])
        size = np.maximum(p[..., 2:], g[..., 2:]) - origin
        # x, y to x, y, x, y: the same for both corners.
        origin, size = np.tile(origin, 2), np.tile(size, 2)
        return (p - origin) / size, (g - origin) / size


def _centre_penalty(p: Array, g: Array) -> Array:
    """ρ² / c²: squared distance of the centres over the squared diagonal of the smallest box around both."""
    with np.errstate(all="ignore"):
        # Along both axes, (..., 2): the sides of that box, and how far the centres are apart.
        sides = np.maximum(p[..., 2:], g[..., 2:]) - np.minimum(p[..., :2], g[..., :2])
        offset = ((p[..., :2] - g[..., :2]) + (p[..., 2:] - g[..., 2:])) / 2
        # In units of its longer side, so that squares neither overflow nor vanish.
        unit = sides.max(axis=-1, keepdims=True)
        return ((offset / unit) ** 2).sum(-1) / ((sides / unit) ** 2).sum(-1)


def _aspect(boxes: Array) -> Array:
    """The angle whose tangent is width over height."""
    return np.arctan(_side(boxes, _X) / _side(boxes, _Y))


def _of_valid_pairs(values: Array, p: Array, g: Array, *, otherwise: float) -> Array:
    """The value of each pair; `otherwise` where a box is invalid or the pair is too large for float64."""
    return np.where(valid_boxes(p) & valid_boxes(g) & np.isfinite(values), values, otherwise)

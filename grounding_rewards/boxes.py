"""Box arrays and the coordinate spaces they live in.

A box array is ``(n, 4) float64`` in ``xyxy`` order: ``x1, y1, x2, y2``, origin in the top-left corner, x to the
right, y downwards, edges (not pixel centres), so that a box that covers a whole 640×480 film is ``0, 0, 640, 480``.
No box is ``(0, 4)``. A box is *valid* when its four numbers are finite and it has a positive width and height;
an invalid box is kept, overlaps nothing and counts as one prediction.

A coordinate space says what the numbers in a text mean. It is a value that is carried along and never guessed from
the numbers.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Boxes = NDArray[np.float64]


def as_box_array(boxes: ArrayLike, argument: str = "boxes") -> Boxes:
    """Return ``boxes`` as an ``(n, 4) float64`` array; an empty list becomes ``(0, 4)``.

    Args:
        boxes: anything that numpy reads as n rows of four numbers.
        argument: the name used in the error.

    Raises:
        ValueError: the rows are not four numbers each.

    Example:
        >>> as_box_array([[0, 0, 10, 20]])
        array([[ 0.,  0., 10., 20.]])
        >>> as_box_array([]).shape
        (0, 4)
    """
    try:
        array = np.asarray(boxes, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"Expected rows of four numbers for `{argument}`, got {boxes!r:.200}. Give every box as [x1, y1, x2, y2]."
        ) from None
    if array.shape in ((0,), (1, 0), (0, 4)):
        return np.zeros((0, 4))
    if array.ndim != 2 or array.shape[1] != 4:
        raise ValueError(
            f"Expected an array of shape (n, 4) for `{argument}`, got shape {array.shape}. "
            "Give every box as [x1, y1, x2, y2]; a single box is a list of one."
        )
    return array


def valid_boxes(boxes: Boxes) -> NDArray[np.bool_]:
    """Tell which boxes are finite and have a positive width and height.

    Args:
        boxes: ``(..., n, 4)`` xyxy.

    Returns:
        ``(..., n)`` bool.

    Example:
        >>> valid_boxes(np.array([[0, 0, 1, 1], [3, 3, 3, 9], [0, 0, np.nan, 1]]))
        array([ True, False, False])
    """
    with np.errstate(all="ignore"):
        width = boxes[..., 2] - boxes[..., 0]
        height = boxes[..., 3] - boxes[..., 1]
        # An infinite corner gives an infinite or NaN side, so the sides answer for the corners too.
        return (width > 0) & (height > 0) & np.isfinite(width) & np.isfinite(height)


def box_area(boxes: Boxes) -> NDArray[np.float64]:
    """Area of every box, in squared units of its coordinates; 0 for an invalid box.

    Args:
        boxes: ``(..., n, 4)`` xyxy.

    Returns:
        ``(..., n)`` float64, never negative.

    Example:
        >>> box_area(np.array([[0.0, 0.0, 4.0, 5.0], [4.0, 0.0, 0.0, 5.0]]))
        array([20.,  0.])
    """
    with np.errstate(all="ignore"):
        area = (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])
    return np.where(valid_boxes(boxes), area, 0.0)


def xywh_to_xyxy(boxes: Boxes) -> Boxes:
    """Convert left, top, width, height to xyxy, ``(..., 4)`` to ``(..., 4)``.

    Example:
        >>> xywh_to_xyxy(np.array([[10.0, 20.0, 30.0, 40.0]]))
        array([[10., 20., 40., 60.]])
    """
    return np.concatenate([boxes[..., :2], boxes[..., :2] + boxes[..., 2:]], axis=-1)


def xyxy_to_xywh(boxes: Boxes) -> Boxes:
    """Convert xyxy to left, top, width, height, ``(..., 4)`` to ``(..., 4)``.

    Example:
        >>> xyxy_to_xywh(np.array([[10.0, 20.0, 40.0, 60.0]]))
        array([[10., 20., 30., 40.]])
    """
    return np.concatenate([boxes[..., :2], boxes[..., 2:] - boxes[..., :2]], axis=-1)


def cxcywh_to_xyxy(boxes: Boxes) -> Boxes:
    """Convert centre, width, height to xyxy, ``(..., 4)`` to ``(..., 4)``.

    Example:
        >>> cxcywh_to_xyxy(np.array([[25.0, 40.0, 30.0, 40.0]]))
        array([[10., 20., 40., 60.]])
    """
    half = boxes[..., 2:] / 2
    return np.concatenate([boxes[..., :2] - half, boxes[..., :2] + half], axis=-1)


def xyxy_to_cxcywh(boxes: Boxes) -> Boxes:
    """Convert xyxy to centre, width, height, ``(..., 4)`` to ``(..., 4)``.

    Example:
        >>> xyxy_to_cxcywh(np.array([[10.0, 20.0, 40.0, 60.0]]))
        array([[25., 40., 30., 40.]])
    """
    size = boxes[..., 2:] - boxes[..., :2]
    return np.concatenate([boxes[..., :2] + size / 2, size], axis=-1)


@dataclass(frozen=True)
class CoordinateSpace:
    """What the numbers of a box mean.

    Attributes:
        name: the name used in configurations, ``"norm1000"`` for example.
        frame: ``"original"`` counts pixels of the film, ``"resized"`` pixels of the image that the processor
            fed to the model, ``"unit"`` fractions of the film's width and height.
        unit: for ``"unit"`` the number that stands for the right or bottom edge of the film.
    """

    name: str
    frame: Literal["original", "resized", "unit"]
    unit: float = 1.0


PIXEL = CoordinateSpace("pixel", "original")
RESIZED_PIXEL = CoordinateSpace("resized_pixel", "resized")
NORM1 = CoordinateSpace("norm1", "unit", 1.0)
NORM100 = CoordinateSpace("norm100", "unit", 100.0)
NORM999 = CoordinateSpace("norm999", "unit", 999.0)
NORM1000 = CoordinateSpace("norm1000", "unit", 1000.0)
BIN1024 = CoordinateSpace("bin1024", "unit", 1024.0)

SPACES = {space.name: space for space in (PIXEL, RESIZED_PIXEL, NORM1, NORM100, NORM999, NORM1000, BIN1024)}


def get_space(name: str) -> CoordinateSpace:
    """Look up a coordinate space by its name.

    Raises:
        ValueError: the name is unknown; the message lists the known ones.

    Example:
        >>> get_space("norm1000").unit
        1000.0
    """
    if not isinstance(name, str) or name not in SPACES:
        raise ValueError(f"Expected a known name for `space`, got {name!r}. Use one of: {', '.join(SPACES)}.")
    return SPACES[name]


def frame_size(
    space: CoordinateSpace,
    width: ArrayLike | None,
    height: ArrayLike | None,
    resized_width: ArrayLike | None = None,
    resized_height: ArrayLike | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the film's size and the size that the same film has in ``space``, as ``(..., 2)`` width and height.

    For ``pixel`` both are 1: its boxes are already in original pixels, whatever the film's size. For
    ``resized_pixel`` without resized sizes the film is taken to reach the model as it is, with a warning.

    Raises:
        ValueError: a size that this space needs is missing or not a positive finite number.

    Example:
        >>> frame_size(NORM1000, 640, 480)
        (array([640., 480.]), array([1000., 1000.]))
    """
    if space.frame == "original":
        return np.ones(2), np.ones(2)
    if space.frame == "resized" and resized_width is None and resized_height is None:
        warnings.warn(
            f"No `resized_width` and `resized_height` for boxes in {space.name}: taking the film to reach the model at "
            "its original size. If its processor resizes it, give both, or the boxes are off by that factor.",
            stacklevel=3,
        )
        return np.ones(2), np.ones(2)
    film = _sizes(space, width=width, height=height)
    if space.frame == "unit":
        return film, np.full(2, space.unit)
    return film, _sizes(space, resized_width=resized_width, resized_height=resized_height)


def _sizes(space: CoordinateSpace, **sides: ArrayLike | None) -> NDArray[np.float64]:
    sizes = []
    for argument, value in sides.items():
        try:
            numbers = np.array(np.nan if value is None else value, dtype=np.float64)
        except (TypeError, ValueError):
            numbers = np.array(np.nan)
        bad = ~((numbers > 0) & (numbers < np.inf))
        if bad.any():
            shown = repr(value) if numbers.ndim == 0 else f"{numbers[bad][0]} in row {np.flatnonzero(bad)[0]}"
            raise ValueError(
                f"Expected a positive number for `{argument}`, got {shown}. "
                f"Boxes in {space.name} cannot be converted without it: give the size in pixels."
            )
        sizes.append(numbers)
    return np.stack(np.broadcast_arrays(*sizes), axis=-1)


def rescale(boxes: Boxes, size: NDArray[np.float64], from_size: NDArray[np.float64]) -> Boxes:
    """Rescale boxes from an image of one size to the same image in another.

    Args:
        boxes: ``(n, 4)`` xyxy.
        size: ``(2,)`` or ``(n, 2)``: width and height to convert to.
        from_size: ``(2,)`` or ``(n, 2)``: width and height that the boxes are in.

    Example:
        >>> rescale(np.array([[1.0, 1.0, 2.0, 2.0]]), np.array([100.0, 50.0]), np.array([10.0, 10.0]))
        array([[10.,  5., 20., 10.]])
    """
    # x * W / unit, in this order: exact wherever the true product is
    return boxes * np.tile(size, 2) / np.tile(from_size, 2)


def to_pixel(
    boxes: Boxes,
    space: CoordinateSpace,
    *,
    width: ArrayLike | None = None,
    height: ArrayLike | None = None,
    resized_width: ArrayLike | None = None,
    resized_height: ArrayLike | None = None,
) -> Boxes:
    """Convert boxes from ``space`` to pixels of the original film.

    Args:
        boxes: ``(n, 4)`` xyxy in ``space``.
        space: what the numbers mean.
        width: width of the original film in pixels, one number or one per box; not needed for ``pixel``.
        height: height of the original film in pixels, likewise.
        resized_width: width of the image that the model saw; needed for ``resized_pixel`` only.
        resized_height: height of the image that the model saw; needed for ``resized_pixel`` only.

    Returns:
        ``(n, 4)`` xyxy in original pixels. Nothing is rounded or clipped.

    Raises:
        ValueError: a size that this space needs is missing.

    Example:
        The vector of Qwen's own conversion notebook, back from 0–1000 to a 640×428 image:

        >>> to_pixel(np.array([[228.0, 320.0, 961.0, 970.0]]), NORM1000, width=640, height=428).round()
        array([[146., 137., 615., 415.]])
    """
    film, frame = frame_size(space, width, height, resized_width, resized_height)
    return rescale(boxes, film, frame)


def from_pixel(
    boxes: Boxes,
    space: CoordinateSpace,
    *,
    width: ArrayLike | None = None,
    height: ArrayLike | None = None,
    resized_width: ArrayLike | None = None,
    resized_height: ArrayLike | None = None,
) -> Boxes:
    """Convert boxes from pixels of the original film to ``space``; the inverse of :func:`to_pixel`.

    Example:
        >>> from_pixel(np.array([[146.0, 137.0, 615.0, 415.0]]), RESIZED_PIXEL,
        ...            width=640, height=428, resized_width=644, resized_height=420).round()
        array([[147., 134., 619., 407.]])
    """
    film, frame = frame_size(space, width, height, resized_width, resized_height)
    return rescale(boxes, frame, film)

"""Box arrays and the coordinate spaces they live in.

A box array is ``(n, 4) float64`` in ``xyxy`` order: ``x1, y1, x2, y2``, origin in the top-left corner, x to the
right, y downwards, edges (not pixel centres), so that a box that covers a whole 640×480 image is ``0, 0, 640, 480``.
No box is ``(0, 4)``. A box is *valid* when its four numbers are finite and it has a positive width and height;
an invalid box is kept, overlaps nothing and counts as one prediction.

A coordinate space says what the numbers in a text mean. It is a value that is carried along and never guessed from
the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Literal, NamedTuple, TypeGuard, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grounding_rewards.common.validation import check_word

Boxes = NDArray[np.float64]

# Up to so many boxes a loop in Python is faster than numpy.
_FEW_BOXES = 8


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
    if isinstance(boxes, np.ndarray) and boxes.dtype == np.float64 and boxes.ndim == 2 and boxes.shape[1] == 4:
        return boxes
    if isinstance(boxes, np.ndarray) and boxes.dtype == object:
        # As pandas hands out a cell of a parquet file: an array of arrays, which numpy does not convert to numbers.
        boxes = list(boxes)
    try:
        array = np.asarray(boxes, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"Expected rows of four numbers for `{argument}`, got {boxes!r:.200}. Give every box as [x1, y1, x2, y2]."
        ) from None
    # "No boxes" may be written [], [[]] or as an array without rows.
    if array.shape in ((0,), (1, 0), (0, 4)):
        return np.zeros((0, 4))
    if array.ndim != 2 or array.shape[1] != 4:
        raise ValueError(
            f"Expected an array of shape (n, 4) for `{argument}`, got shape {array.shape}. "
            "Give every box as [x1, y1, x2, y2]; a single box is a list of one."
        )
    return array


def valid_boxes(boxes: Boxes) -> NDArray[np.bool_]:
    """Which boxes are finite and have a positive width and height.

    Args:
        boxes: ``(..., n, 4)`` xyxy.

    Returns:
        ``(..., n)`` bool.

    Example:
        >>> valid_boxes(np.array([[0, 0, 1, 1], [3, 3, 3, 9], [0, 0, np.nan, 1]]))
        array([ True, False, False])
    """
    # An infinite corner makes a side infinite or NaN, so checking the sides is enough. For a few boxes in plain Python.
    if boxes.ndim == 2 and 0 < len(boxes) <= _FEW_BOXES and boxes.dtype == np.float64:
        return np.array(
            [0 < x2 - x1 < math.inf and 0 < y2 - y1 < math.inf for x1, y1, x2, y2 in boxes.tolist()], dtype=np.bool_
        )
    with np.errstate(all="ignore"):
        sides = boxes[..., 2:] - boxes[..., :2]
        is_positive = (sides > 0) & (sides < np.inf)
        return is_positive[..., 0] & is_positive[..., 1]


def inside_image(boxes: Boxes, margin: float = 0.0) -> NDArray[np.bool_]:
    """Which boxes are valid and on the image.

    Args:
        boxes: ``(..., n, 4)`` xyxy, as fractions of the image.
        margin: how far a box may reach over an edge, as a fraction of the side.

    Returns:
        ``(..., n)`` bool.

    Example:
        >>> inside_image(np.array([[0, 0, 1, 1], [0.5, 0.5, 1.04, 1], [0.5, 0.5, 0.2, 1]]), margin=0.01)
        array([ True, False, False])
    """
    return valid_boxes(boxes) & (boxes.min(axis=-1) >= -margin) & (boxes.max(axis=-1) <= 1 + margin)


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


#: How far a box may stick out of the image by rounding, as a part of the longer side.
_EDGE = 1e-6


def is_box(box: object) -> bool:
    """Whether this is a sequence of four finite numbers.

    Example:
        >>> is_box([1, 2, 3, 4]), is_box([1, 2, 3]), is_box([1, 2, 3, float("nan")])
        (True, False, False)
    """
    return isinstance(box, Sequence) and len(box) == 4 and all(map(is_number, box))


def is_number(value: object) -> TypeGuard[float]:
    """Whether this is a finite number that a float can hold; True and False are no numbers here.

    >>> is_number(0.5), is_number(True), is_number(float("nan")), is_number(10**400), is_number("1")
    (True, False, False, False, False)
    """
    # The types of most values first: whether a value is Real takes ten times as long to ask, and a log has millions.
    is_real = type(value) in (int, float) or (isinstance(value, Real) and not isinstance(value, bool))
    try:
        return is_real and math.isfinite(cast("float", value))
    except OverflowError:
        return False


def reference_defect(box: Any, size: tuple[float, float] | None = None) -> str | None:
    """Name what keeps a box from being a reference box: that it is not valid, or not on the image; None if nothing.

    Args:
        box: what a dataset gives for a box.
        size: width and height of the image in pixels; None leaves the edges unchecked.

    Returns:
        ``"not-finite"`` (or not four numbers), ``"swapped-corners"``, ``"no-area"``, ``"off-image"`` (no part of it is
        on the image), ``"partly-off-image"``, or None.

    Example:
        >>> [reference_defect(box, (100, 200)) for box in ([0, 0, 100, 200], [9, 9, 4, 12], [90, 10, 110, 20])]
        [None, 'swapped-corners', 'partly-off-image']
    """
    if not is_box(box):
        return "not-finite"
    x1, y1, x2, y2 = box
    if x1 > x2 or y1 > y2:
        return "swapped-corners"
    if x1 == x2 or y1 == y2:
        return "no-area"
    if size is None:
        return None
    width, height = size
    # An unknown side is NaN: no comparison with it is true, so that it refuses nothing. `max` of (NaN, height) would be
    # NaN, and of (width, NaN) is the width.
    longer_side = height if math.isnan(width) else max(size)
    # What rounding may add.
    slack = _EDGE * longer_side
    if x1 >= width or y1 >= height or x2 <= 0 or y2 <= 0:
        return "off-image"
    if x1 < -slack or y1 < -slack or x2 > width + slack or y2 > height + slack:
        return "partly-off-image"
    return None


class Order(NamedTuple):
    """What the four numbers of a box are, in the order in which they stand.

    numbers: what a prompt calls them.
    to_xyxy: ``x1, y1, x2, y2`` of the four numbers, which may be arrays.
    from_xyxy: the four numbers of ``x1, y1, x2, y2``, which may be arrays.
    """

    numbers: tuple[str, str, str, str]
    to_xyxy: Callable[[Any, Any, Any, Any], tuple[Any, Any, Any, Any]]
    from_xyxy: Callable[[Any, Any, Any, Any], tuple[Any, Any, Any, Any]]


#: The orders by name, for reading, writing, prompts and the space check: another order is an entry here.
ORDERS: dict[str, Order] = {
    "xyxy": Order(
        ("x1", "y1", "x2", "y2"),
        lambda x1, y1, x2, y2: (x1, y1, x2, y2),
        lambda x1, y1, x2, y2: (x1, y1, x2, y2),
    ),
    "yxyx": Order(
        ("y1", "x1", "y2", "x2"),
        lambda y1, x1, y2, x2: (x1, y1, x2, y2),
        lambda x1, y1, x2, y2: (y1, x1, y2, x2),
    ),
    "xywh": Order(
        ("x", "y", "width", "height"),
        lambda x, y, w, h: (x, y, x + w, y + h),
        lambda x1, y1, x2, y2: (x1, y1, x2 - x1, y2 - y1),
    ),
    "cxcywh": Order(
        ("cx", "cy", "width", "height"),
        lambda cx, cy, w, h: (cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2),
        lambda x1, y1, x2, y2: ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1),
    ),
}


def to_xyxy(boxes: Boxes, order: str) -> Boxes:
    """Convert boxes from an order of :data:`ORDERS` to xyxy, ``(..., 4)`` to ``(..., 4)``.

    Example:
        >>> to_xyxy(np.array([[10.0, 20.0, 30.0, 40.0]]), "xywh")
        array([[10., 20., 40., 60.]])
        >>> to_xyxy(np.array([[25.0, 40.0, 30.0, 40.0]]), "cxcywh")
        array([[10., 20., 40., 60.]])
    """
    return np.stack(ORDERS[order].to_xyxy(*np.moveaxis(boxes, -1, 0)), axis=-1)


def from_xyxy(boxes: Boxes, order: str) -> Boxes:
    """Convert boxes from xyxy to an order of :data:`ORDERS`, ``(..., 4)`` to ``(..., 4)``.

    Example:
        >>> from_xyxy(np.array([[10.0, 20.0, 40.0, 60.0]]), "xywh")
        array([[10., 20., 30., 40.]])
        >>> from_xyxy(np.array([[10.0, 20.0, 40.0, 60.0]]), "yxyx")
        array([[20., 10., 60., 40.]])
    """
    return np.stack(ORDERS[order].from_xyxy(*np.moveaxis(boxes, -1, 0)), axis=-1)


@dataclass(frozen=True)
class CoordinateSpace:
    """What the numbers of a box mean.

    In every space and along each axis, ``pixel = (value + offset) * size / unit + origin``, where ``size`` and
    ``origin`` are those of the frame on the image.

    Attributes:
        name: the name used in configurations, ``"norm1000"`` for example.
        frame: the image that the numbers span: ``"image"``, the whole image; ``"padded"``, the image in the middle of
            the smallest square that holds it; ``"cropped"``, the largest square in the middle of the image;
            ``"resized"``, pixels of the image that the processor fed to the model; ``"original"``, pixels of the image
            as they are.
        unit: the number that stands for the right or bottom edge of the frame; unused for frames in pixels.
        offset: 0.5 for bins whose number stands for the middle of the bin, 0 where it stands for its left or top edge.
        meaning: what the numbers are, in words.

    Example:
        >>> get_space("bin1000")
        CoordinateSpace(name='bin1000', frame='image', unit=1000.0, offset=0.5)
    """

    name: str
    frame: Literal["image", "padded", "cropped", "resized", "original"]
    unit: float = 1.0
    offset: float = 0.0
    meaning: str = field(default="", compare=False, repr=False)


#: The spaces by name, the most common first: where several fit what a model writes, the space check names the first.
SPACES = {
    space.name: space
    for space in (
        CoordinateSpace("norm1000", "image", 1000.0, meaning="0 to 1000: x / 1000"),
        CoordinateSpace("pixel", "original", meaning="pixels of the image"),
        CoordinateSpace("resized_pixel", "resized", meaning="pixels of the image as the processor resized it"),
        CoordinateSpace("norm1", "image", meaning="fractions of width and height"),
        CoordinateSpace("norm100", "image", 100.0, meaning="0 to 100"),
        CoordinateSpace("norm999", "image", 999.0, meaning="0 to 999: x / 999"),
        CoordinateSpace("pad1", "padded", meaning="fractions of the image padded to a square"),
        CoordinateSpace("norm1023", "image", 1023.0, meaning="0 to 1023: x / 1023"),
        CoordinateSpace("bin1024", "image", 1024.0, meaning="bins: n / 1024"),
        CoordinateSpace("bin1000", "image", 1000.0, 0.5, meaning="bins, their centres: (n + 0.5) / 1000"),
        CoordinateSpace("pad999", "padded", 999.0, meaning="0 to 999 of the image padded to a square"),
        CoordinateSpace("pad1000", "padded", 1000.0, meaning="0 to 1000 of the image padded to a square"),
        CoordinateSpace("crop100", "cropped", 100.0, 0.5, "bins of the square in the image's centre: (n + 0.5) / 100"),
        CoordinateSpace("squash840", "image", 840.0, meaning="pixels of the image squashed to 840 × 840"),
    )
}


def get_space(name: str) -> CoordinateSpace:
    """Look up a coordinate space by its name.

    Raises:
        ValueError: the name is unknown; the message lists the known ones.

    Example:
        >>> get_space("norm1000").unit
        1000.0
    """
    check_word("space", name, SPACES)
    return SPACES[name]


def positive_sizes(sizes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each size is one that an image can have: positive and finite.

    Example:
        >>> positive_sizes(np.array([640.0, 0.0, np.nan, np.inf]))
        array([ True, False, False, False])
    """
    return (sizes > 0) & (sizes < np.inf)


class Convention(NamedTuple):
    """What four numbers mean: the name of a coordinate space, and their order in the text.

    Example:
        >>> print(Convention("norm1000", "yxyx"))
        norm1000, order yxyx
    """

    space: str
    order: str

    def __str__(self) -> str:
        return f"{self.space}, order {self.order}"


class Frame(NamedTuple):
    """A space on given images: along each axis, ``pixel = (value + offset) * size / unit + origin``.

    `size` is the width or height of the frame in pixels, `unit` the number that stands for it in the text, and `origin`
    where the frame begins on the image, in pixels. Every part broadcasts to ``(n, 4)``: one number for each coordinate
    of n boxes.
    """

    offset: NDArray[np.float64] | float
    size: NDArray[np.float64] | float
    unit: NDArray[np.float64] | float
    origin: NDArray[np.float64] | float


def space_frame(
    space: CoordinateSpace,
    width: ArrayLike | None = None,
    height: ArrayLike | None = None,
    resized_width: ArrayLike | None = None,
    resized_height: ArrayLike | None = None,
) -> Frame:
    """Return the :class:`Frame` of ``space``, its place on images of these sizes, one number each or one per box.

    Where the sides of an image differ by an odd number of pixels, the margin on the left or top of a padded or cropped
    square is rounded down, as by LLaVA's ``expand2square`` and MAIRA-2's ``adjust_box_for_original_image_size``.

    Raises:
        ValueError: a size that this space needs is missing or not a positive finite number.

    Example:
        >>> space_frame(get_space("crop100"), 640, 481)
        Frame(offset=0.5, size=array([481.]), unit=100.0, origin=array([79.,  0., 79.,  0.]))
    """
    if space.frame == "original":
        # Pixels already.
        return Frame(space.offset, size=1.0, unit=1.0, origin=0.0)
    image_size = _sizes(space, width=width, height=height)
    if space.frame == "resized":
        resized_size = _sizes(space, resized_width=resized_width, resized_height=resized_height)
        return Frame(space.offset, size=image_size, unit=resized_size, origin=0.0)
    if space.frame == "image":
        return Frame(space.offset, size=image_size, unit=space.unit, origin=0.0)
    # A square as long as the longer side, around the image, or as the shorter one, in its middle.
    side_of_square = np.max if space.frame == "padded" else np.min
    side = side_of_square(image_size, axis=-1, keepdims=True)
    # Half of what the image is longer than the square, rounded towards 0: negative for padding, positive for a crop.
    return Frame(space.offset, size=side, unit=space.unit, origin=np.trunc((image_size - side) / 2))


def _sizes(space: CoordinateSpace, **sizes: ArrayLike | None) -> NDArray[np.float64]:
    """Return the size that each coordinate of a box is measured on, (..., 4): width, height, width, height.

    Args:
        space: named in the error.
        sizes: two, a width and a height, each a number or an array of them, under the names that the error gives them.

    Raises:
        ValueError: a size is missing or not a positive finite number.
    """
    arrays = [_as_sizes(size) for size in sizes.values()]
    width, height = arrays
    if width.shape != height.shape:
        # A number beside an array holds for all of it.
        width, height = np.broadcast_arrays(width, height)
    # The first axis, of the four coordinates, becomes the last.
    coordinate_sizes = np.array((width, height, width, height)).transpose(*range(1, width.ndim + 1), 0)
    if positive_sizes(coordinate_sizes).all():
        return coordinate_sizes
    # The first size that cannot be used is named, with its row where there are several.
    for (argument, size), numbers in zip(sizes.items(), arrays, strict=True):
        unusable_rows = np.flatnonzero(~positive_sizes(numbers))
        if len(unusable_rows):
            row = unusable_rows[0]
            got = repr(size)
            if numbers.ndim:
                got = f"{'none' if np.isnan(numbers[row]) else numbers[row]} in row {row}"
            # Nothing is guessed: wherever the processor resizes, every box would be off by that factor.
            raise ValueError(
                f"Expected a positive number for `{argument}`, got {got}. Boxes in {space.name} need it: add "
                "`width` and `height` in pixels, or `image` to a dataset; the sizes behind the processor are filled in "
                "by `grounding_rewards.data.dataset_columns.add_columns(dataset, processor, box_format)`."
            )
    return coordinate_sizes


def _as_sizes(size: ArrayLike | None) -> NDArray[np.float64]:
    """Return a size, or the sizes of many images, as an array; NaN, no size, for None and for what is not a number."""
    try:
        return np.array(np.nan if size is None else size, dtype=np.float64)
    except (TypeError, ValueError):
        return np.array(np.nan)


def frame_to_pixel(boxes: Boxes, frame: Frame) -> Boxes:
    """Convert boxes ``(n, 4)`` from a frame to pixels of the image.

    Example:
        >>> frame_to_pixel(np.array([[0.0, 0.0, 1.0, 1.0]]), space_frame(get_space("pad1"), 100, 50))
        array([[  0., -25., 100.,  75.]])
    """
    # x * W / unit, in this order: exact wherever the true product is
    return (boxes + frame.offset) * frame.size / frame.unit + frame.origin


def pixel_to_frame(boxes: Boxes, frame: Frame) -> Boxes:
    """Convert boxes ``(n, 4)`` from pixels of the image to a frame; the inverse of :func:`frame_to_pixel`.

    Example:
        >>> pixel_to_frame(np.array([[0.0, 0.0, 100.0, 50.0]]), space_frame(get_space("pad1"), 100, 50))
        array([[0.  , 0.25, 1.  , 0.75]])
    """
    return (boxes - frame.origin) * frame.unit / frame.size - frame.offset


def to_pixel(boxes: Boxes, space: CoordinateSpace, **sizes: ArrayLike | None) -> Boxes:
    """Convert boxes from ``space`` to pixels of the original image.

    Args:
        boxes: ``(n, 4)`` xyxy in ``space``.
        space: what the numbers mean.
        sizes: ``width``, ``height``, ``resized_width`` and ``resized_height`` of the image as :func:`space_frame` takes
            them, those that this space needs.

    Returns:
        ``(n, 4)`` xyxy in original pixels. Nothing is rounded or clipped.

    Raises:
        ValueError: a size that this space needs is missing.

    Example:
        The vector of Qwen's own conversion notebook, back from 0–1000 to a 640×428 image:

        >>> to_pixel(np.array([[228.0, 320.0, 961.0, 970.0]]), get_space("norm1000"), width=640, height=428).round()
        array([[146., 137., 615., 415.]])
    """
    return frame_to_pixel(boxes, space_frame(space, **sizes))


def from_pixel(boxes: Boxes, space: CoordinateSpace, **sizes: ArrayLike | None) -> Boxes:
    """Convert boxes from pixels of the original image to ``space``; the inverse of :func:`to_pixel`.

    Nothing is rounded or clipped: the number of a bin is the rounded result, at least 0 and below the number of bins.

    Example:
        >>> from_pixel(np.array([[146.0, 137.0, 615.0, 415.0]]), get_space("resized_pixel"),
        ...            width=640, height=428, resized_width=644, resized_height=420).round()
        array([[147., 134., 619., 407.]])
    """
    return pixel_to_frame(boxes, space_frame(space, **sizes))


def patch_index_to_norm1(upper_left: int, lower_right: int, patches: int = 32) -> tuple[float, float, float, float]:
    """Convert the first and the last cell of a box, counted row by row, to fractions of the image, as Kosmos-2 does.

    The box runs from the middle of the first cell to the middle of the last one; where both are in one row or one
    column, it runs along their outer edges. Source: ``patch_index_to_coordinate`` in
    ``transformers/models/kosmos2/processing_kosmos2.py``.

    Args:
        upper_left: index of the cell in the upper left corner, 0 or more.
        lower_right: index of the cell in the lower right corner, 0 or more.
        patches: cells on each side of the image.

    Returns:
        ``x1, y1, x2, y2``, finite. An index from ``patches ** 2`` up is not refused: its cell lies in the row below the
        image.

    Example:
        >>> patch_index_to_norm1(44, 863)
        (0.390625, 0.046875, 0.984375, 0.828125)
        >>> patch_index_to_norm1(33, 35)
        (0.03125, 0.03125, 0.125, 0.0625)
    """
    row1, column1 = divmod(upper_left, patches)
    row2, column2 = divmod(lower_right, patches)
    # A model may write a cell far below the image, even a number that no float can hold.
    row1, row2 = min(row1, patches), min(row2, patches)
    # How far from their outer edges, in cells, the box begins in its first cell and ends in its last one.
    margin = 0.0 if row1 == row2 or column1 == column2 else 0.5
    return (
        (column1 + margin) / patches,
        (row1 + margin) / patches,
        (column2 + 1 - margin) / patches,
        (row2 + 1 - margin) / patches,
    )


def norm1_to_patch_index(box: tuple[float, float, float, float], patches: int = 32) -> tuple[int, int]:
    """Convert fractions of the image to the first and the last cell that the box covers, as Kosmos-2 does.

    What is outside the image counts as its edge. Source: ``coordinate_to_patch_index`` in
    ``transformers/models/kosmos2/processing_kosmos2.py``.

    Args:
        box: ``x1, y1, x2, y2`` as fractions of the image, of a valid box.
        patches: cells on each side of the image.

    Returns:
        The indices of the cells in the upper left and the lower right corner, 0 to ``patches ** 2 - 1``.

    Example:
        >>> norm1_to_patch_index((0.390625, 0.046875, 0.984375, 0.828125))
        (44, 863)
    """
    # In units of a cell.
    x1, y1, x2, y2 = (fraction * patches for fraction in box)
    last = patches - 1
    # The cell in which the box begins, and the one in which it ends: where an edge is on the border of two cells, the
    # one inside the box. What is outside the image is in the outermost cell.
    column1, row1 = min(max(math.floor(x1), 0), last), min(max(math.floor(y1), 0), last)
    column2, row2 = min(max(math.ceil(x2) - 1, 0), last), min(max(math.ceil(y2) - 1, 0), last)
    return row1 * patches + column1, row2 * patches + column2


# The boxes of many completions as one array, so that a whole training step is a few calls of numpy.


@dataclass(frozen=True)
class BoxBatch:
    """The boxes of many completions, one after the other: ``flat`` is (total, 4), ``counts`` how many each has."""

    flat: Boxes
    counts: NDArray[np.int64]

    @staticmethod
    def of(box_arrays: Sequence[ArrayLike], argument: str) -> BoxBatch:
        """Join the box arrays of completions; ``argument`` is the name in the error for what is no box array."""
        arrays = [as_box_array(boxes, argument) for boxes in box_arrays]
        counts = np.array([len(array) for array in arrays], dtype=np.int64)
        # numpy refuses to join no arrays at all, so an empty one stands in front.
        return BoxBatch(np.concatenate([np.zeros((0, 4)), *arrays]), counts)

    def split(self) -> list[Boxes]:
        """Return the boxes of each completion, (n, 4) each."""
        ends = self.counts.cumsum().tolist()
        return [self.flat[end - n : end] for n, end in zip(self.counts.tolist(), ends, strict=True)]

    def padded(self, rows: NDArray[np.intp]) -> Boxes:
        """Return the boxes of the chosen rows, (rows, most boxes, 4), filled up with NaN, which overlap nothing."""
        return pad(self.flat, self.counts, rows)

    def take(self, rows: NDArray[np.intp]) -> BoxBatch:
        """Return the boxes of the chosen rows, which may repeat."""
        return BoxBatch(self.flat[positions(self.counts, rows)], self.counts[rows])


def positions(counts: NDArray[np.int64], rows: NDArray[np.intp]) -> NDArray[np.int64]:
    """The indices of the values of the chosen rows in a flat array that holds the values of all rows.

    Args:
        counts: how many values each row has in the flat array.
        rows: indices of rows, which may repeat.

    Example:
        >>> positions(np.array([2, 0, 1]), np.array([2, 0, 0]))
        array([2, 0, 1, 0, 1])
    """
    lengths = counts[rows]
    # Where each chosen row begins in the flat array, and where in the result.
    flat_starts = (np.cumsum(counts) - counts)[rows]
    result_starts = np.cumsum(lengths) - lengths
    # The places in the result, 0, 1, 2, …, each moved by as much as its row begins further on in the flat array.
    return np.arange(lengths.sum()) + np.repeat(flat_starts - result_starts, lengths)


def pad(flat: NDArray[np.float64], counts: NDArray[np.int64], rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """The values of the chosen rows as an array with a row for each, NaN where it has fewer than the longest.

    Args:
        flat: the values of all rows, one row after the other: numbers, or boxes (total, 4).
        counts: how many values each row has.
        rows: indices of rows, which may repeat.

    Example:
        >>> pad(np.array([1.0, 2.0, 3.0]), np.array([2, 0, 1]), np.array([0, 2]))
        array([[ 1.,  2.],
               [ 3., nan]])
    """
    # A single completion, as many trainers score it, is the whole array.
    if len(counts) == len(rows) == 1:
        return flat[None].copy()
    lengths = counts[rows]
    longest = int(lengths.max(initial=0))
    values = flat[positions(counts, rows)]
    # Rows that are all as long as the longest need no NaN.
    if len(values) == len(rows) * longest:
        return values.reshape(len(rows), longest, *flat.shape[1:])
    padded = np.full((len(rows), longest, *flat.shape[1:]), np.nan)
    padded[np.arange(longest) < lengths[:, None]] = values
    return padded

"""The columns of a dataset as arrays: reference boxes, labels, ignored regions and image sizes of each completion.

The columns come from the author of the dataset, so everything here is strict: a missing column, a wrong length, a bad
box or size is an error that names the row.
"""

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import BoxBatch, Frame, reference_defect, space_frame, valid_boxes
from grounding_rewards.common.text_files import parse_json
from grounding_rewards.parsing import BoxFormat

#: The sizes of the image, and of the image that the model saw, in pixels.
SIZE_COLUMNS = ("width", "height", "resized_width", "resized_height")
#: What may belong to the reference boxes of an image: ignored regions, and what each reader drew.
OPTIONAL_BOX_COLUMNS = ("ignore_boxes", "reader_boxes", "reader_labels")
#: The reference boxes of an image, and what belongs to them.
BOX_COLUMNS = ("boxes", "labels", *OPTIONAL_BOX_COLUMNS)
#: What a row may say of the image that an answer is scored against, in its `ground_truth` too.
SCORED_COLUMNS = (*BOX_COLUMNS, *SIZE_COLUMNS, "box_format", "prompt_opens_thinking", "id")

# What JSON, pandas, R and people write where there is no name, in lower case.
_NOTHING = ("", "nan", "none", "null", "n/a", "na", "<na>", "nil")
# Boxes with fractions look normalised if no coordinate is larger …
_NORMALISED = 2.0
# … and some image has a side of more pixels: nothing that small is marked on it.
_SMALL = 16.0


def frame_of_boxes(formats: Sequence[BoxFormat], sizes: NDArray[np.float64], counts: NDArray[np.int64]) -> Frame:
    """The frame of each box, by the format and the image of its row; sizes that are missing or illegal are refused.

    Args:
        formats: the box format of each row.
        sizes: (rows, 4), from :func:`image_sizes`.
        counts: boxes of each row.

    Example:
        >>> from grounding_rewards.parsing import get_box_format
        >>> sizes = image_sizes({"width": [640], "height": [480]}, 1)
        >>> frame_of_boxes([get_box_format("qwen3-vl")], sizes, np.array([2]))
        Frame(offset=0.0, size=array([[640., 480., 640., 480.],
               [640., 480., 640., 480.]]), unit=1000.0, origin=0.0)
    """
    # Nearly always one; by identity, as comparing spaces is slow.
    spaces = list({id(fmt.space): fmt.space for fmt in formats}.values())
    if len(spaces) == 1:
        frame = space_frame(spaces[0], *sizes.T)
    else:
        # The four parts of a frame, offset, size, unit and origin, for each row and coordinate: each space fills in its
        # own rows.
        parts = np.empty((4, len(formats), 4))
        for space in spaces:
            in_space = np.array([fmt.space is space for fmt in formats], dtype=bool)
            # 1 in the rows of other spaces, which may lack a size that this space needs.
            checked_sizes = np.where(in_space[:, None], sizes, 1.0)
            for part, part_in_space in zip(parts, space_frame(space, *checked_sizes.T), strict=True):
                part[in_space] = np.broadcast_to(part_in_space, part.shape)[in_space]
        frame = Frame(*parts)
    # From one entry for each row to one for each box; a number alone holds for all of them.
    return Frame(*(np.repeat(part, counts, axis=0) if isinstance(part, np.ndarray) else part for part in frame))


def image_sizes(columns: Mapping[str, Any], n: int) -> NDArray[np.float64]:
    """The sizes of the images, (n, 4), as :data:`SIZE_COLUMNS` has them, NaN where unknown: some formats need none.

    Where a row has neither width nor height, they are those of its PIL image in `image`.

    Raises:
        ValueError: a column has another length, or holds something that is neither a number nor None.

    Example:
        >>> image_sizes({"width": [640, 512], "height": [480, None]}, 2)
        array([[640., 480.,  nan,  nan],
               [512.,  nan,  nan,  nan]])
    """
    size_columns = [column_of(columns, name, n) for name in SIZE_COLUMNS]
    images = column_of(columns, "image", n)
    if images is not None:
        # Copies of the first two columns, which the sizes of the images fill up.
        widths, heights = (list([None] * n if column is None else column) for column in size_columns[:2])
        for k in range(n):
            if widths[k] is None and heights[k] is None:
                # Only here, as a column of a dataset decodes each image that is looked at.
                size = getattr(images[k], "size", None)
                # A PIL image has a tuple; the `size` of an array is how many numbers it has.
                if isinstance(size, tuple):
                    widths[k], heights[k] = size
        size_columns[:2] = widths, heights
    unknown_sizes = [math.nan] * n
    try:
        # numpy makes NaN of None.
        return np.array([unknown_sizes if column is None else column for column in size_columns], dtype=np.float64).T
    except (TypeError, ValueError):
        raise ValueError(
            f"Expected numbers for {', '.join(f'`{name}`' for name in SIZE_COLUMNS)}, got "
            f"{[list(column) for column in size_columns if column is not None]!r:.200}. Give sizes in pixels."
        ) from None


@dataclass(frozen=True)
class References:
    """What completions are scored against.

    ``labels``, one per box, are None where they play no part. Where rows have several readers, each reader is an entry
    of its own: ``rows`` has the row of each entry, ``readers`` its reader's index, None for a row without readers.
    """

    boxes: BoxBatch
    labels: list[str] | None
    rows: NDArray[np.intp] | None = None
    readers: Sequence[int | None] = ()


def read_references(columns: Mapping[str, Any], n: int, *, labelled: bool) -> References:
    """The reference boxes of n completions, with their labels where these play a part.

    Raises:
        ValueError: a column is missing or has another length, or holds something that is not a valid box or label; or
            all boxes look normalised.

    Example:
        >>> read_references({"boxes": [[[1, 2, 3, 4]], []]}, 2, labelled=False).boxes.counts
        array([1, 0])
    """
    by_reader = column_of(columns, "reader_boxes", n)
    box_lists = column_of(columns, "boxes", n)
    if by_reader is not None:
        references = _references_of_readers(columns, by_reader, box_lists, labelled)
    elif box_lists is None:
        got = "none" if columns.get("boxes") is None else "None in row 0 and in all others"
        raise ValueError(
            f"Expected a column `boxes` with the reference boxes, got {got}. "
            "Add it to the dataset as lists of [x1, y1, x2, y2] in original pixels, or pass `ground_truth`."
        )
    else:
        boxes, labels = _checked_boxes(box_lists, lambda k: ("boxes", k)), None
        if labelled:
            label_lists = column_of(columns, "labels", n)
            if label_lists is None:
                raise ValueError(
                    "Expected a column `labels` with the label of every reference box, got none. "
                    'Add it to the dataset, or use label_matching="ignore".'
                )
            labels = _reference_labels(label_lists, boxes, lambda k: ("labels", k))
        references = References(boxes, labels)
    flat = references.boxes.flat
    # Coordinates of 0 to 1 would give 0 for every answer, and nobody would know why: they are all small and have
    # fractions. The right edge of the first box nearly always tells that they are pixels, without a look at the others.
    if len(flat) and flat[0, 2] <= _NORMALISED and flat.max() <= _NORMALISED and (flat % 1).any():
        sides = image_sizes(columns, n)[:, :2]
        # On images of a few pixels they may be pixels all the same.
        if (sides > _SMALL).any():
            raise ValueError(
                f"Expected reference boxes in original pixels, got none beyond {flat.max():g}, such as "
                f"{flat[0].tolist()}: they look normalised. Multiply them by width and height."
            )
    return references


def refuse_outside(references: References, sizes: NDArray[np.float64], columns: Mapping[str, Any]) -> None:
    """Refuse reference boxes beyond the edges of their image: commonly, an original's with the sizes of its copy.

    Args:
        references: of n completions.
        sizes: (n, 4), from :func:`image_sizes`; images of unknown size are passed over.
        columns: of the dataset.

    Raises:
        ValueError: a box reaches beyond its image by more than rounding.

    Example:
        >>> columns = {"boxes": [[[0, 0, 900, 50]]], "width": [640], "height": [480], "id": ["a"]}
        >>> refuse_outside(read_references(columns, 1, labelled=False), image_sizes(columns, 1), columns)
        Traceback (most recent call last):
        ValueError: Expected reference boxes inside the image of 640 x 480 for `boxes`, got [0.0, 0.0, 900.0, 50.0] in \
row 0 (id a). Give boxes and sizes of one image: `width` and `height` are those of the original.
    """
    flat, counts = references.boxes.flat, references.boxes.counts
    if not len(flat):
        return
    width, height = sizes[:, 0], sizes[:, 1]
    # Every completion comes here. So all edges are compared at once, and only where one is crossed `reference_defect`
    # says of each box whether that is more than rounding. Plain numbers are faster than arrays for a single row.
    if len(counts) == 1:
        x1, y1, x2, y2 = flat.T.tolist()
        if min(x1) >= 0 and min(y1) >= 0 and max(x2) <= width[0] and max(y2) <= height[0]:
            return
    # The row of each entry, as with several readers a row has an entry for each.
    rows = np.arange(len(width)) if references.rows is None else references.rows
    edges = np.repeat(sizes[rows, :2], counts, axis=0)
    if not ((flat[:, 2:] > edges).any() or (flat < 0).any()):
        return
    entry_of_box = np.repeat(np.arange(len(counts)), counts)
    for box, entry in zip(flat.tolist(), entry_of_box.tolist(), strict=True):
        row = int(rows[entry])
        size = width[row].item(), height[row].item()
        if reference_defect(box, size) is not None:
            ids = column_of(columns, "id", len(width))
            id_words = "" if ids is None else f" (id {ids[row]})"
            size_words = " x ".join("unknown" if math.isnan(side) else f"{side:g}" for side in size)
            is_of_reader = references.rows is not None and references.readers[entry] is not None
            column = "reader_boxes" if is_of_reader else "boxes"
            raise ValueError(
                f"Expected reference boxes inside the image of {size_words} for `{column}`, got {box} in row "
                f"{row}{id_words}. Give boxes and sizes of one image: `width` and `height` are those of the original."
            )


class _Entry(NamedTuple):
    """The boxes of one reader of a row, or those of a row without readers: then `reader` is None.

    `boxes` and `labels` are as they stand in the columns, `labels` None where they play no part.
    """

    row: int
    reader: int | None
    boxes: Any
    labels: Any


def _references_of_readers(
    columns: Mapping[str, Any], by_reader: Sequence[Any], box_lists: Sequence[Any] | None, labelled: bool
) -> References:
    """The references of rows with several readers: an entry for each reader, and one for a row without readers.

    Args:
        columns: of the dataset.
        by_reader: the column `reader_boxes`.
        box_lists: the column `boxes`, for rows without readers.
        labelled: whether labels play a part.
    """
    n = len(by_reader)
    labels_by_reader = column_of(columns, "reader_labels", n) if labelled else None
    labels = column_of(columns, "labels", n) if labelled else None
    entries: list[_Entry] = []
    for row, drawings in enumerate(by_reader):
        if drawings is None:
            if box_lists is None or box_lists[row] is None:
                raise ValueError(
                    f"Expected boxes in `reader_boxes` or `boxes`, got none in row {row}. Give one of them."
                )
            entries.append(_Entry(row, None, box_lists[row], None if labels is None else labels[row]))
            continue
        if isinstance(drawings, str) or not hasattr(drawings, "__len__") or not len(drawings):
            raise ValueError(
                f"Expected a list of box lists, one per reader, for `reader_boxes`, got {drawings!r:.200} in row "
                f"{row}. A reader who drew nothing has an empty list; leave None where the row has no readers."
            )
        label_lists = None if labels_by_reader is None else labels_by_reader[row]
        if labelled and (label_lists is None or len(label_lists) != len(drawings)):
            raise ValueError(
                f"Expected one list of labels per reader ({len(drawings)}) for `reader_labels`, got "
                f"{label_lists!r:.200} in row {row}. Give every reader's labels in the order of `reader_boxes`."
            )
        for reader, boxes in enumerate(drawings):
            entries.append(_Entry(row, reader, boxes, None if label_lists is None else label_lists[reader]))

    def source_of(column: str, k: int) -> tuple[str, int]:
        """The column and the row that the k-th entry comes from, for messages."""
        return column if entries[k].reader is None else f"reader_{column}", entries[k].row

    batch = _checked_boxes([entry.boxes for entry in entries], functools.partial(source_of, "boxes"))
    texts = None
    if labelled:
        texts = _reference_labels([entry.labels for entry in entries], batch, functools.partial(source_of, "labels"))
    rows = np.array([entry.row for entry in entries], dtype=np.intp)
    return References(batch, texts, rows, [entry.reader for entry in entries])


def ignore_regions(columns: Mapping[str, Any], n: int) -> BoxBatch | None:
    """The regions in the column ``ignore_boxes``, None without it; a row without regions may hold None.

    Raises:
        ValueError: the column has another length, or holds something that is not a valid box.

    Example:
        >>> ignore_regions({"ignore_boxes": [[[1, 2, 3, 4]], None]}, 2).flat
        array([[1., 2., 3., 4.]])
    """
    region_lists = column_of(columns, "ignore_boxes", n)
    if region_lists is None:
        return None
    region_lists = [() if regions is None else regions for regions in region_lists]
    return _checked_boxes(region_lists, lambda k: ("ignore_boxes", k))


#: A function that gives the column and the row from which the k-th of some lists comes, for error messages.
_SourceOf = Callable[[int], tuple[str, int]]


def _reference_labels(label_lists: Sequence[Any], boxes: BoxBatch, source_of: _SourceOf) -> list[str]:
    """Return the labels of all rows in one list, one per box; refuse a row that has not one label for every box."""
    texts: list[str] = []
    for k, (labels, count) in enumerate(zip(label_lists, boxes.counts, strict=True)):
        if labels is None and not count:
            # A normal image has nothing to name.
            continue
        is_one_each = not isinstance(labels, str) and hasattr(labels, "__len__") and len(labels) == count
        if not is_one_each or not all(isinstance(label, str) and label.strip() for label in labels):
            column, row = source_of(k)
            raise ValueError(
                f"Expected one label for each of {count} boxes for `{column}`, got {labels!r:.200} in row {row}. "
                'Name the finding of every box, or use label_matching="ignore".'
            )
        texts += labels
    return texts


def _checked_boxes(box_lists: Sequence[Any], source_of: _SourceOf) -> BoxBatch:
    """Return the lists of boxes of some rows as a batch; refuse what is no list of boxes, and an invalid box."""
    try:
        return _box_batch(box_lists)
    except (TypeError, ValueError):
        # Which list is wrong shows list by list: slow, so it is done only after an error.
        for k, boxes in enumerate(box_lists):
            try:
                _box_batch([boxes])
            except (TypeError, ValueError):
                column, row = source_of(k)
                raise ValueError(
                    f"Expected a list of finite boxes with x1 < x2 and y1 < y2 for `{column}`, got {boxes!r:.200} in "
                    f"row {row}. Boxes are [x1, y1, x2, y2] in original pixels, not x, y, width, height; where "
                    "there is none, the list is empty."
                ) from None
        # Each list alone is one of boxes: then the error is another, and stays what it is.
        raise


def _box_batch(box_lists: Sequence[Any]) -> BoxBatch:
    """Return lists of boxes as a batch. Errors have no message: `_checked_boxes` makes a sentence of them.

    Raises:
        TypeError: something is no list where one is expected.
        ValueError: something is no valid box.
    """
    counts = [len(boxes) for boxes in box_lists]
    boxes = list(chain.from_iterable(box_lists))
    # Asked of each distinct type, as these are few. A text of four digits has the length of a box, and is none.
    if any(issubclass(kind, str) for kind in set(map(type, boxes))) or not {4}.issuperset(map(len, boxes)):
        raise ValueError
    flat = np.fromiter(chain.from_iterable(boxes), dtype=np.float64, count=4 * sum(counts)).reshape(-1, 4)
    if not valid_boxes(flat).all():
        raise ValueError
    return BoxBatch(flat, np.array(counts, dtype=np.int64))


def column_of(columns: Mapping[str, Any], name: str, n: int) -> Sequence[Any] | None:
    """The column of this name, with an entry for each completion; None where it is missing or holds nothing but None.

    Raises:
        ValueError: it has another length.

    Example:
        >>> column_of({"width": [640]}, "width", 1), column_of({}, "width", 1)
        ([640], None)
    """
    values = columns.get(name)
    if values is None:
        return None
    is_list = hasattr(values, "__len__") and not isinstance(values, str)
    if not is_list or len(values) != n:
        got = len(values) if is_list else repr(values)
        raise ValueError(
            f"Expected one entry per completion ({n}) for column `{name}`, got {got}. "
            "Repeat the row once per completion, as GRPOTrainer does."
        )
    # TRL fills a column with None where only other rows have it: it is missing then. A column of no completions is
    # there, and empty.
    for value in values:
        if value is not None:
            return values
    return None if n else values


# A whole number: zeros in front, the number itself, and a fraction of 0.
_WHOLE_NUMBER = re.compile(r"0*([0-9]+)(\.0*)?")


def stated_name(value: Any) -> str | None:
    """The name of a patient, an image or a split as text; None where it is missing, or a word such as "nan" says so.

    A number that a table turned into a fraction, because another cell was empty, is the whole number that it was.

    Example:
        >>> stated_name(7), stated_name(7.0), stated_name(" p7 ")
        ('7', '7', 'p7')
        >>> [stated_name(nothing) for nothing in (None, "", float("nan"), "nan", "None", "<NA>")]
        [None, None, None, None, None, None]
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value).strip()
    return None if text.casefold() in _NOTHING else text


def image_id(row: Mapping[str, Any], default: object) -> str:
    """The id of a row's image as text; the default, such as the row's number, where it has none.

    Example:
        >>> image_id({"id": "a"}, 3), image_id({"id": None}, 3), image_id({}, "image 3")
        ('a', '3', 'image 3')
    """
    return str(default if row.get("id") is None else row["id"])


def patient_key(patient: object) -> str:
    """The id of a patient in one spelling: a number without zeros in front or behind its point, small letters.

    Tables lose the zeros in front of an id, or take it for a fraction; two patients whose ids differ in nothing else
    are rarer than one patient who would otherwise be in two splits.

    >>> [patient_key(one) for one in ("0003", 3, "3.0", 3.0, " P-07 ", "p-07", "0")]
    ['3', '3', '3', '3', 'p-07', 'p-07', '0']
    """
    text = str(patient).strip().casefold()
    number = _WHOLE_NUMBER.fullmatch(text)
    return number[1] if number else text


def patient_of(row: Mapping[str, Any]) -> str | None:
    """The patient of a row, by its column ``patient_id``, as `patient_key`; None where that is missing or empty.

    >>> patient_of({"patient_id": 7}), patient_of({"patient_id": "007"}), patient_of({"patient_id": ""})
    ('7', '7', None)
    """
    patient = stated_name(row.get("patient_id"))
    return None if patient is None else patient_key(patient)


def with_ground_truth(columns: Mapping[str, Any], n: int) -> Mapping[str, Any]:
    """The columns with those that ``ground_truth`` holds, a JSON object a row, for trainers that hand over that alone.

    Where the columns have `boxes` themselves they stay as they are.

    Raises:
        ValueError: an entry is not a JSON object with `boxes` or `reader_boxes`.

    Example:
        >>> with_ground_truth({"ground_truth": ['{"boxes": [], "width": 640}']}, 1)["width"]
        [640]
    """
    ground_truths = column_of(columns, "ground_truth", n)
    if ground_truths is None or column_of(columns, "boxes", n) is not None:
        return columns
    rows = []
    for k, truth in enumerate(ground_truths):
        try:
            row = parse_json(truth) if isinstance(truth, str) else dict(truth)
            # Looked up only to raise where there are no boxes: those of readers, or else those of the row.
            row["reader_boxes" if "reader_boxes" in row else "boxes"]
        except (TypeError, ValueError, KeyError) as error:
            raise ValueError(
                f"Expected a JSON object with `boxes` for `ground_truth`, got {truth!r:.200} in row {k} ({error}). "
                'Write it as {"boxes": [[x1, y1, x2, y2]], "width": 640, "height": 480}.'
            ) from None
        rows.append(row)
    # The fields of all rows become columns, None where a row lacks one.
    unpacked = dict(columns)
    for field in dict.fromkeys(chain.from_iterable(rows)):
        unpacked[field] = [row.get(field) for row in rows]
    return unpacked

"""The package's own folder of images: images, and `annotations.jsonl`, one image a line.

    {"file": "images/0001.jpg", "width": 512, "height": 418, "boxes": [[60, 40, 220, 330]], "labels": ["left lung"]}

`boxes` are xyxy in pixels of the image; `width` and `height` may both be left out, the image has them. Optional: `id`
(else the file), `split`, `patient_id` (else an image is its own patient), `prompt` (text or messages), `box_format`,
`resized_width` and `resized_height`, `ignore_boxes`, `phrases` (one per box). What several people drew stands in
`reader_boxes` and `reader_labels`, a list per reader, also of one who drew nothing. Any other key is carried along.
Negative: an image whose boxes are an empty list.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from grounding_rewards.boxes import is_box
from grounding_rewards.columns import stated_name
from grounding_rewards.common.text_files import json_lines
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.checks import is_size, row_problems
from grounding_rewards.data.prompts import prompt_problem
from grounding_rewards.data.splits import ALL, check_split_exists, in_usual_order, splits_of_rows
from grounding_rewards.sources.base import Images, register_source, sound_images, split_name
from grounding_rewards.sources.documents import JsonRow
from grounding_rewards.sources.tables import RowPlace, find_file

ANNOTATIONS = "annotations.jsonl"

KNOWN_KEYS = (
    "file", "id", "split", "patient_id", "prompt", "box_format", "boxes", "labels", "width", "height", "resized_width",
    "resized_height", "ignore_boxes", "phrases", "reader_boxes", "reader_labels",
)  # fmt: skip
"""The keys of a line that the package reads; any other key becomes a column."""

TRAINER_COLUMNS = (
    "image", "images", "looked_for", "prompts", "completion", "completions", "completion_ids", "trainer_state",
    "log_extra", "log_metric",
)  # fmt: skip
"""Names of columns that the trainer makes itself, or passes to rewards."""


@register_source("jsonl")
def read_jsonl(root: str | Path, *, split: str | None = None) -> Images:
    """Read the images of a folder with `annotations.jsonl`.

    Args:
        root: the folder.
        split: only images of this split, as training assigns them (`data.splits`); None takes all, each with the split
            of its line, `validation` for `val`, `valid` and `dev`.

    Returns:
        Images in the order of the lines.

    Raises:
        ValueError: no such file; while iterating, a line that cannot be read, or an unknown split.

    Example:
        >>> import json, tempfile
        >>> line = {"file": "a.png", "width": 40, "height": 30, "boxes": [[1, 2, 9, 9]], "labels": ["mass"], "age": 63}
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "annotations.jsonl").write_text(json.dumps(line))
        ...     [(image.file, image.boxes, image.labels, image.extra) for image in read_jsonl(root)]
        [('a.png', [[1.0, 2.0, 9.0, 9.0]], ['mass'], {'age': 63})]
    """
    return _images(find_file(root, ANNOTATIONS), split)


def _images(path: Path, split: str | None) -> Images:
    """Yield the errors of all lines first, as splits depend on all images; then the images.

    Without a wanted split each image keeps what its line says; with one, images without a split get theirs, as
    training gives it.
    """
    rows = []
    for row_or_error in sound_rows(path):
        if isinstance(row_or_error, ValueError):
            yield row_or_error
        else:
            _, row = row_or_error
            rows.append(row)
    if split is None:
        yield from map(annotated_image, rows)
        return
    assigned = splits_of_rows(rows, str(path.parent))
    check_split_exists(split, in_usual_order(assigned.splits), str(path.parent), f"Choose a split of {path}.")
    for row, image_split in zip(rows, assigned.splits, strict=True):
        if split in (ALL, image_split):
            yield annotated_image({**row, "split": image_split})


def sound_rows(path: Path) -> Iterator[JsonRow | ValueError]:
    """Yield the place and the row of each line of `annotations.jsonl`, or the error of a line that is no image."""

    def checked_row(line: int, content: Any, no_object: str) -> JsonRow:
        """The place and the row of a line; refuses one that is no image, or, as `no_object` says, no object."""
        if no_object:
            # A line that is no JSON has no content to show: the reason stands for it. The image is not known: a dash.
            raise RowPlace(path, line, "-").error("a JSON object", content or no_object, "Correct the line.")
        row = image_row(content)
        place = RowPlace(path, line, row["id"])
        # The first fault ends the loop: it is enough.
        for expected, got in row_faults(row):
            raise place.error(expected, got, "Correct the line.")
        return place, row

    return sound_images(checked_row, json_lines(path))


def image_row(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a line with its id and patient as texts, and its split under the package's name for it.

    A split or patient that is missing or empty is None; an id that is missing is the file, or a dash without one.

    Example:
        >>> image_row({"file": "a.png", "id": 7, "patient_id": "", "split": None})
        {'file': 'a.png', 'id': '7', 'patient_id': None, 'split': None}
    """
    file = content.get("file")
    split = stated_name(content.get("split"))
    return {
        **content,
        "id": stated_name(content.get("id")) or (file if isinstance(file, str) else "-"),
        "patient_id": stated_name(content.get("patient_id")),
        "split": None if split is None else split_name(split),
    }


def row_faults(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each fault of a row that is no image: what was expected, and what the row has.

    `data.checks` checks the geometry later.

    Example:
        >>> list(row_faults({"file": "a.png", "boxes": [[1, 2, 3]], "labels": ["mass"], "width": 40, "height": 30}))
        [('four numbers per box for boxes', [[1, 2, 3]])]
    """
    sides = (row.get("width"), row.get("height"))
    if not isinstance(row.get("file"), str) or not row["file"]:
        yield "a text for file", row.get("file")
    if sides != (None, None) and not all(map(is_size, sides)):
        yield "positive numbers for width and height", sides
    # Columns of boxes that are no lists cannot be looked at box by box.
    list_problems = list(row_problems(row, parts=["lists"]))
    if list_problems:
        yield "four numbers per box for boxes, ignore_boxes and reader_boxes", "; ".join(list_problems)
    else:
        # Each column of boxes, that of the readers once for each.
        drawings = [("boxes", row.get("boxes")), ("ignore_boxes", row.get("ignore_boxes"))]
        drawings += [("reader_boxes", reader_boxes) for reader_boxes in _listed(row.get("reader_boxes"))]
        for name, boxes in drawings:
            if not all(map(is_box, _listed(boxes))):
                yield f"four numbers per box for {name}", boxes
        label_problems = list(row_problems(row, parts=["labels"]))
        if label_problems:
            yield "one text per box for labels", "; ".join(label_problems)
    problem = prompt_problem(row.get("prompt"))
    if problem is not None:
        yield "a text or messages for prompt", problem
    yield from word_faults(row)


def word_faults(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the faults of a row in labels, phrases, resized sizes, box format and names of columns.

    Example:
        >>> list(word_faults({"boxes": [], "labels": [], "read_by": ["A", "B"]}))
        [('reader_boxes and reader_labels, a list per reader, instead of read_by', ['A', 'B'])]
    """
    if row.get("labels") is None:
        yield "one text per box for labels", None
    label_lists = [("labels", row.get("labels"))]
    label_lists += [("reader_labels", reader_labels) for reader_labels in _listed(row.get("reader_labels"))]
    for name, labels in label_lists:
        if not all(isinstance(label, str) for label in _listed(labels)):
            yield f"one text per box for {name}", labels
    # One phrase for each of `boxes`; no phrases at all are no fault.
    phrases = row.get("phrases")
    are_texts = all(isinstance(phrase, str) for phrase in _listed(phrases))
    if phrases and not (are_texts and isinstance(phrases, list) and len(phrases) == len(_listed(row.get("boxes")))):
        yield "one text per box for phrases", phrases
    # Side by side, boxes of several people would count findings several times.
    for name in ("readers", "read_by"):
        if row.get(name):
            yield f"reader_boxes and reader_labels, a list per reader, instead of {name}", row[name]
    for name in ("resized_width", "resized_height"):
        if row.get(name) is not None and not is_size(row[name]):
            yield f"a positive number for {name}", row[name]
    if not isinstance(row.get("box_format"), str | None):
        yield "a name for box_format", row["box_format"]
    reserved_names = [name for name in TRAINER_COLUMNS if name in row]
    if reserved_names:
        yield "columns under names that training leaves free", reserved_names[0]


def annotated_image(row: Mapping[str, Any]) -> AnnotatedImage:
    """The annotated image of a row without :func:`row_faults`; the boxes of all readers are side by side in it.

    Example:
        >>> row = {"file": "a.png", "boxes": [], "labels": [], "reader_boxes": [[[0, 0, 9, 9]], []],
        ...        "reader_labels": [["mass"], []]}
        >>> image = annotated_image(image_row(row))
        >>> image.boxes, image.readers, image.read_by
        ([[0.0, 0.0, 9.0, 9.0]], ('1',), ('1', '2'))
    """
    # `boxes` may be missing if those of each reader are given.
    boxes: Any = row.get("boxes")
    labels = row["labels"]
    readers: tuple[str, ...] = ()
    read_by: tuple[str, ...] = ()
    if row.get("reader_boxes") is not None:
        boxes = list(chain.from_iterable(row["reader_boxes"]))
        # `reader_labels` may be missing: then `labels` is all there is.
        labels = list(chain.from_iterable(row.get("reader_labels") or [row["labels"]]))
        # Readers have no names: their numbers from 1 on stand for them, once for each box.
        for number, reader_boxes in enumerate(row["reader_boxes"], start=1):
            read_by += (str(number),)
            readers += (str(number),) * len(reader_boxes)
    width, height = row.get("width"), row.get("height")
    return AnnotatedImage(
        id=row["id"],
        file=row["file"],
        boxes=[[float(value) for value in box] for box in boxes],
        labels=list(labels),
        width=None if width is None else int(width),
        height=None if height is None else int(height),
        patient_id=row["patient_id"],
        split=row["split"],
        readers=readers,
        read_by=read_by,
        phrases=tuple(row.get("phrases") or ()),
        ignored=tuple((float(x1), float(y1), float(x2), float(y2)) for x1, y1, x2, y2 in row.get("ignore_boxes") or ()),
        extra={name: value for name, value in row.items() if name not in KNOWN_KEYS and value is not None},
    )


def _listed(value: Any) -> Sequence[Any]:
    """A list as it is; empty for any other value."""
    return value if isinstance(value, list) else ()

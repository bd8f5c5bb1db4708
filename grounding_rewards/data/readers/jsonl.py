"""The package's own folder of films, which `data.film_folder` loads: images, and `annotations.jsonl`, one film a line.

    {"file": "images/0001.jpg", "width": 512, "height": 418, "boxes": [[60, 40, 220, 330]], "labels": ["left lung"]}

`boxes` are xyxy in pixels of the image. Optional: `id` (the file when left out), `split` (a film without it belongs to
every split), `patient_id`, `phrases` (one per box), `ignore_boxes`, `readers` (who drew each box), `read_by` (everybody
who read the film, those who drew nothing included), and `resized_width`, `resized_height` and `prompt`, which become
`extra`. With `readers` and `read_by`, the agreement of several readers can be measured.
Negative: a film whose boxes are an empty list.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grounding_rewards.boxes import is_box
from grounding_rewards.data.readers.base import FilmRecord, register_reader
from grounding_rewards.data.readers.documents import pixels, read_json_rows
from grounding_rewards.data.readers.tables import find_file, row_error

ANNOTATIONS = "annotations.jsonl"

_EXTRA = ("resized_width", "resized_height", "prompt")


@register_reader("jsonl")
def read_jsonl(root: str | Path, *, split: str | None = None) -> Iterator[FilmRecord]:
    """The films of a folder with `annotations.jsonl`.

    Args:
        root: the folder.
        split: films of this split and films without one; None takes all.

    Returns:
        Records in the order of the lines.

    Raises:
        ValueError: no such file; while iterating, a line that cannot be read, or no film of the split.

    Example:
        >>> import json, tempfile
        >>> line = {"file": "a.png", "width": 40, "height": 30, "boxes": [[1, 2, 11, 22]], "labels": ["mass"]}
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "annotations.jsonl").write_text(json.dumps(line))
        ...     [(film.file, film.boxes, film.labels) for film in read_jsonl(root)]
        [('a.png', [[1.0, 2.0, 11.0, 22.0]], ['mass'])]
    """
    return _films(find_file(root, ANNOTATIONS), split)


def _films(path: Path, split: str | None) -> Iterator[FilmRecord]:
    seen: dict[str, None] = {}
    found = False
    for line, row in read_json_rows(path):
        film = _film(path, line, row)
        if split is None or film.split in (None, split):
            found = True
            yield film
        elif film.split is not None:
            seen[film.split] = None
    if split is not None and not found:
        raise ValueError(
            f"Expected one of {', '.join(seen)} or None for split, got {split!r}. Choose a split of {path.parent}."
        )


def _film(path: Path, line: int, row: dict[str, Any]) -> FilmRecord:
    boxes, labels, phrases = row.get("boxes"), row.get("labels"), row.get("phrases") or []
    count = len(boxes) if isinstance(boxes, list) else None
    ignored = row.get("ignore_boxes") or []
    readers, read_by = row.get("readers") or [], row.get("read_by") or []
    width, height = pixels(row.get("width")), pixels(row.get("height"))
    name = str(row.get("id", row.get("file")))
    for expected, holds, got in (
        ("a text for file", isinstance(row.get("file"), str), row.get("file")),
        ("positive numbers for width and height", width and height, (row.get("width"), row.get("height"))),
        ("four numbers per box for boxes", _are_boxes(boxes), boxes),
        ("one text per box for labels", _are_texts(labels, count), labels),
        ("one text per box for phrases", not phrases or _are_texts(phrases, count), phrases),
        ("four numbers per box for ignore_boxes", _are_boxes(ignored), ignored),
        ("one text per box for readers", not readers or _are_texts(readers, count), readers),
        ("a list of different texts for read_by", _are_names(read_by), read_by),
        ("all of readers in read_by", _are_names(read_by) and _covers(read_by, readers), (readers, read_by)),
    ):
        if not holds:
            raise row_error(path, line, name, expected, got, "Correct the line.")
    return FilmRecord(
        id=name,
        file=row["file"],
        boxes=[[float(value) for value in box] for box in row["boxes"]],
        labels=list(row["labels"]),
        width=width,
        height=height,
        patient_id=_text(row.get("patient_id")),
        split=_text(row.get("split")),
        readers=tuple(readers),
        read_by=tuple(read_by),
        phrases=tuple(phrases),
        ignored=tuple((float(x1), float(y1), float(x2), float(y2)) for x1, y1, x2, y2 in ignored),
        extra={key: value if isinstance(value := row[key], str) else json.dumps(value) for key in _EXTRA if key in row},
    )


def _are_boxes(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_box, value))


def _are_texts(value: Any, count: int | None) -> bool:
    return isinstance(value, list) and len(value) == count and all(isinstance(text, str) for text in value)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and _are_texts(value, len(value)) and len(set(value)) == len(value)


def _covers(read_by: Any, readers: Any) -> bool:
    return not read_by or (isinstance(readers, list) and all(reader in read_by for reader in readers))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)

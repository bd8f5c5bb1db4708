"""JSON, JSON lines and XML files, with errors that name the file and the place; declarations in XML are refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.common.text_files import json_lines, object_problem, parse_json, read_text
from grounding_rewards.sources.tables import RowPlace, split_files

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

JsonRow = tuple[RowPlace, dict[str, Any]]
"""Where the line, or the entry of a list, is, counted from 1, and its object."""


def read_json(path: str | Path) -> Any:
    """What a JSON file holds; see `common.text_files.parse_json`.

    Raises:
        ValueError: there is no such file, or it is not JSON.
    """
    try:
        return parse_json(read_text(path))
    except ValueError as error:
        raise ValueError(f"Expected JSON in {path}, got {error}. Download the file again.") from error


def read_json_rows(path: str | Path, key: str) -> Iterator[JsonRow]:
    """The objects of a file of JSON lines, one after the other, or of a `.json` file that holds a list.

    Args:
        path: the file.
        key: where an object has the name of its image, for errors.

    Raises:
        ValueError: there is no such file, or a line is no JSON object; the first such line is named.
    """
    path = Path(path)
    numbered: Iterable[tuple[int, Any, str]] = ()
    if ".json" not in path.suffixes:
        numbered = json_lines(path)
    elif isinstance(rows := read_json(path), list):
        numbered = ((number, row, object_problem(row)) for number, row in enumerate(rows, start=1))
    else:
        raise ValueError(f"Expected a list of objects in {path}, got {type(rows).__name__}. Write one per sample.")
    for number, row, problem in numbered:
        if problem:
            raise RowPlace(path, number, "-").error("a JSON object", row or problem, "Correct the line.")
        image = row.get(key)
        yield RowPlace(path, number, image if isinstance(image, str) else "-"), row


def grouped_samples(
    root: str | Path, annotations: str, split: str | None, key: str
) -> Iterator[tuple[str | None, str, list[JsonRow]]]:
    """The objects of files of samples, grouped by their image, wherever they are: split, image, rows of the image.

    Args:
        root: the folder of the dataset.
        annotations: the pattern of the files, as `tables.split_files` takes it; it is looked for at the call.
        split: of this split; None takes all.
        key: where an object has its image, or a list of one.

    Raises:
        ValueError: as for `read_json_rows`; or an object has no image or several.
    """
    files = split_files(root, annotations, split)
    return chain.from_iterable(_samples_of_file(path, own_split, key) for own_split, _, path in files)


def _samples_of_file(path: Path, split: str | None, key: str) -> Iterator[tuple[str | None, str, list[JsonRow]]]:
    rows_of_images: dict[str, list[JsonRow]] = {}
    for place, row in read_json_rows(path, key):
        image = row.get(key)
        if isinstance(image, list) and len(image) == 1:
            image = image[0]
        if not isinstance(image, str) or not image:
            raise place.error("one image", image, "Drop the row, or keep the image that has the boxes.")
        rows_of_images.setdefault(image, []).append((place._replace(image=image), row))
    for image, rows in rows_of_images.items():
        yield split, image, rows


def objects_in(value: Any) -> list[dict[str, Any]]:
    """The objects in a list from a JSON file; empty where it is no list.

    Example:
        >>> objects_in([{"a": 1}, 2]), objects_in(None)
        ([{'a': 1}], [])
    """
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def pixels(value: Any) -> int | None:
    """A side of an image, in pixels, as a file states it; None where it is missing, 0 or no number.

    Example:
        >>> pixels("512"), pixels(512.0), pixels(0), pixels(None)
        (512, 512, None, None)
    """
    try:
        return int(float(value)) or None
    except (TypeError, ValueError, OverflowError):
        return None


def read_xml(path: str | Path) -> Element:
    """The root of an XML file that declares no document type.

    Entities can grow without bound or include other files, and only a document type can declare them; no annotation
    tool writes one.

    Raises:
        ValueError: there is no such file, it is no XML, or it has a document type.
    """
    from xml.etree import ElementTree

    try:
        data = Path(path).read_bytes()
        # All encodings that the parser knows contain ASCII, except UTF-16, which is full of zero bytes.
        if b"<!DOCTYPE" in data or b"\0" in data:
            raise ValueError("a document type, or UTF-16")
        return ElementTree.fromstring(data)
    except (OSError, ValueError, LookupError, ElementTree.ParseError) as error:
        raise ValueError(
            f"Expected XML in UTF-8 without a document type in {path}, got {error}. Export the annotations again."
        ) from error

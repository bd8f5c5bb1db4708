"""Read JSON, JSON lines and XML files, with errors that name the file and the line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.common.text_files import json_lines, object_problem, parse_json, read_text
from grounding_rewards.sources.tables import RowPlace, split_files

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

JsonRow = tuple[RowPlace, dict[str, Any]]
"""An object of a file, and its place: the number of its line, or of its entry in a list, from 1."""


def read_json_file(path: str | Path) -> Any:
    """The content of a JSON file; see `common.text_files.parse_json`.

    Raises:
        ValueError: there is no such file, or it is not JSON.
    """
    try:
        return parse_json(read_text(path))
    except ValueError as error:
        raise ValueError(f"Expected JSON in {path}, got {error}. Download the file again.") from error


def read_json_rows(path: str | Path, key: str) -> Iterator[JsonRow]:
    """Yield the objects of a file of JSON lines, or of a `.json` file with a list of objects.

    Args:
        path: the file.
        key: of the name of the image in an object, for errors.

    Raises:
        ValueError: there is no such file, or a line is no JSON object; the first such line is named.
    """
    path = Path(path)
    # The number of a line or entry, its content, and why that is no object.
    numbered_rows: Iterable[tuple[int, Any, str]]
    if ".json" in path.suffixes:
        rows = read_json_file(path)
        if not isinstance(rows, list):
            raise ValueError(f"Expected a list of objects in {path}, got {type(rows).__name__}. Write one per sample.")
        numbered_rows = ((number, row, object_problem(row)) for number, row in enumerate(rows, start=1))
    else:
        numbered_rows = json_lines(path)
    for number, row, problem in numbered_rows:
        if problem:
            # A line that is no JSON has no content to show: its problem says why.
            raise RowPlace(path, number, "-").error("a JSON object", row or problem, "Correct the line.")
        image = row.get(key)
        # A dash stands for an image that the object does not name; whether it may, the caller decides.
        yield RowPlace(path, number, image if isinstance(image, str) else "-"), row


def grouped_samples(
    root: str | Path, annotations: str, split: str | None, key: str
) -> list[tuple[str | None, str, list[JsonRow]]]:
    """The samples of each image, from files of samples that may name an image several times.

    Args:
        root: the folder of the dataset.
        annotations: the pattern of the files, as `tables.split_files` takes it.
        split: only this one; None takes all.
        key: in an object, of the name of its image, or of a list with this name alone.

    Returns:
        For each image of each file, the split of the file, the name of the image, and its rows.

    Raises:
        ValueError: as for `read_json_rows`; or an object has no image or several.
    """
    samples: list[tuple[str | None, str, list[JsonRow]]] = []
    for file_split, _, path in split_files(root, annotations, split):
        rows_of_images: dict[str, list[JsonRow]] = {}
        for place, row in read_json_rows(path, key):
            image = row.get(key)
            # ms-swift has a list of images in every row.
            if isinstance(image, list) and len(image) == 1:
                image = image[0]
            if not isinstance(image, str) or not image:
                raise place.error("one image", image, "Drop the row, or keep the image that has the boxes.")
            # The place does not have a name from a list yet.
            rows_of_images.setdefault(image, []).append((place._replace(image=image), row))
        samples += [(file_split, image, rows) for image, rows in rows_of_images.items()]
    return samples


def objects_in(value: Any) -> list[dict[str, Any]]:
    """The objects in a list from a JSON file; empty if the value is no list.

    Example:
        >>> objects_in([{"a": 1}, 2]), objects_in(None)
        ([{'a': 1}], [])
    """
    if not isinstance(value, list):
        return []
    return [entry for entry in value if isinstance(entry, dict)]


def pixels(value: Any) -> int | None:
    """Read a side of an image in pixels; None if it is missing, 0 or no number.

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
        # These bytes are the same in all encodings that the parser knows, except UTF-16, which is full of zero bytes.
        if b"<!DOCTYPE" in data or b"\0" in data:
            raise ValueError("a document type, or UTF-16")
        return ElementTree.fromstring(data)
    except (OSError, ValueError, LookupError, ElementTree.ParseError) as error:
        raise ValueError(
            f"Expected XML in UTF-8 without a document type in {path}, got {error}. Export the annotations again."
        ) from error

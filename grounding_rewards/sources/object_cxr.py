"""Object-CXR: 10,000 chest radiographs, half of them with foreign objects: buttons, clips, wires, coins.

Folder::

    train.csv, dev.csv, test.csv      image_name (or image_path), annotation; those that are there are read
    train/*.jpg, dev/*.jpg, test/*.jpg

`annotation` is a list separated by `;`: `0 x1 y1 x2 y2` is a rectangle, `1 x1 y1 x2 y2` an ellipse by its box, and
`2 x1 y1 ... xn yn` a polygon, whose box is taken. A polygon may begin outside the image: its box is clipped at the left
and upper edge, and where the image is there, whose header has the size, at the others too.
Boxes: pixels of the JPEG file, whose size no table has. One label: `foreign object`.
Negative: an empty cell. Each image was read by one of 12 radiologists, who is not named.
Access: open; mirrored by hlk-1135.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import inf
from pathlib import Path

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.base import register_source
from grounding_rewards.sources.passed_over import sound_images
from grounding_rewards.sources.source_splits import split_name
from grounding_rewards.sources.tables import (
    check_split,
    clipped_box,
    find_file,
    header_size,
    outline_box,
    read_numbers,
    read_rows,
    read_table,
    row_error,
)

LABEL = "foreign object"

_NAMES = ("train", "dev", "test")


@register_source(
    "object-cxr",
    title="Object-CXR",
    url="https://github.com/jfhealthcare/object-CXR",
    licence="scientific research and non-commercial use",
)
def read_object_cxr(root: str | Path, *, split: str | None = None) -> Iterator[AnnotatedImage]:
    """The images of Object-CXR, in the order of the rows; width and height are None where the image is not there.

    The split `validation` is `dev.csv`; without a split, the tables that are there are read.
    """
    check_split(split, map(split_name, _NAMES))
    wanted = [name for name in _NAMES if split in (None, split_name(name))]
    find_file(root, *(f"{name}.csv" for name in wanted))
    paths = {name: Path(root) / f"{name}.csv" for name in wanted}
    return chain.from_iterable([_images(path, name) for name, path in paths.items() if path.is_file()])


def _images(path: Path, name: str) -> Iterator[AnnotatedImage]:
    _, header = next(read_rows(path), (0, []))
    by_path = "image_path" in (column.strip() for column in header)
    rows = read_table(path, ("image_path" if by_path else "image_name", "annotation"))
    return (
        annotated
        for line, (image, annotation) in rows
        for annotated in sound_images(
            _image, path, line, image if by_path else f"{name}/{image}", annotation, split_name(name)
        )
    )


def _image(path: Path, line: int, file: str, annotation: str, split: str) -> AnnotatedImage:
    image = path.parent / file
    width, height = header_size(image) if image.is_file() else (None, None)
    frame = (width or inf, height or inf)
    boxes = [_box(shape.split(), frame, path, line, file) for shape in annotation.split(";") if shape.strip()]
    return AnnotatedImage(
        id=file, file=file, boxes=boxes, labels=[LABEL] * len(boxes), width=width, height=height, split=split
    )


def _box(fields: list[str], frame: tuple[float, float], path: Path, line: int, image: str) -> list[float]:
    kind, *cells = fields
    numbers = read_numbers(cells, path, line, image)
    if kind in ("0", "1") and len(numbers) == 4:
        return numbers
    if kind == "2" and len(numbers) >= 6 and len(numbers) % 2 == 0:
        return clipped_box(outline_box(numbers), *frame)
    raise row_error(
        path, line, image, "0 or 1 with four numbers, or 2 with three points or more,", " ".join(fields),
        "Correct the shape.",
    )  # fmt: skip

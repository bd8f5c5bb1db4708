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
from grounding_rewards.sources.base import register_source, sound_images, split_name
from grounding_rewards.sources.tables import (
    RowPlace,
    check_split,
    clipped_box,
    find_file,
    header_size,
    optional_file,
    outline_box,
    read_table,
    read_whole_table,
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
    paths = {name: optional_file(root, f"{name}.csv") for name in wanted}
    return chain.from_iterable([_images(path, name) for name, path in paths.items() if path is not None])


def _images(path: Path, name: str) -> Iterator[AnnotatedImage]:
    header, _ = read_whole_table(path)
    by_path = "image_path" in header
    rows = read_table(path, ("image_path" if by_path else "image_name", "annotation"))

    def image(place: RowPlace, cells: tuple[str, ...]) -> AnnotatedImage:
        file = cells[0] if by_path else f"{name}/{cells[0]}"
        there = path.parent / file
        width, height = header_size(there) if there.is_file() else (None, None)
        frame, shapes = (width or inf, height or inf), filter(str.strip, cells[1].split(";"))
        boxes = [_box(shape.split(), frame, place._replace(image=file)) for shape in shapes]
        labels, split = [LABEL] * len(boxes), split_name(name)
        return AnnotatedImage(id=file, file=file, boxes=boxes, labels=labels, width=width, height=height, split=split)

    return sound_images(image, rows)


def _box(fields: list[str], frame: tuple[float, float], place: RowPlace) -> list[float]:
    kind, *cells = fields
    numbers = place.numbers(cells)
    if kind in ("0", "1") and len(numbers) == 4:
        return numbers
    if kind == "2" and len(numbers) >= 6 and len(numbers) % 2 == 0:
        return clipped_box(outline_box(numbers), *frame)
    expected = "0 or 1 with four numbers, or 2 with three points or more,"
    raise place.error(expected, " ".join(fields), "Correct the shape.")

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

import math
from itertools import chain
from pathlib import Path

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources import tables
from grounding_rewards.sources.base import Images, register_source, split_name

_NAMES = ("train", "dev", "test")


@register_source(
    "object-cxr",
    title="Object-CXR",
    url="https://github.com/jfhealthcare/object-CXR",
    licence="scientific research and non-commercial use",
)
def read_object_cxr(root: str | Path, *, split: str | None = None) -> Images:
    """The images of Object-CXR, in the order of the rows; width and height are None where the image is not there.

    The split `validation` is `dev.csv`; without a split, the tables that are there are read.
    """
    tables.check_split(split, map(split_name, _NAMES))
    names = [name for name in _NAMES if split in (None, split_name(name))]
    # Refuses a folder in which none of the tables is.
    tables.find_file(root, *(f"{name}.csv" for name in names))
    paths = {name: tables.optional_file(root, f"{name}.csv") for name in names}
    return chain.from_iterable([_images(path, name) for name, path in paths.items() if path is not None])


def _images(path: Path, name: str) -> Images:
    """The images of one table, `name` of `name`.csv, which is also that of the folder of its images."""
    column = "image_path" if "image_path" in tables.read_header(path) else "image_name"
    # A name is relative to the folder of the split, a path to the folder of the table.
    prefix = f"{name}/" if column == "image_name" else ""

    def image(cell: str, rows: list[tables.TableRow]) -> AnnotatedImage:
        """The image that the cell names, with the boxes of the shapes in its rows."""
        file = f"{prefix}{cell}"
        size = tables.header_size(path.parent / file) if (path.parent / file).is_file() else None
        # An image with several shapes has them in one cell.
        shapes = [(place, shape) for place, (_, text) in rows for shape in text.split(";") if shape.strip()]
        boxes = [_box(shape.split(), size, place) for place, shape in shapes]
        width, height = size or (None, None)
        return AnnotatedImage(file, file, boxes, ["foreign object"] * len(boxes), width, height, split=split_name(name))

    return tables.table_images(image, path, (column, "annotation"))


def _box(fields: list[str], size: tables.Size | None, place: tables.RowPlace) -> list[float]:
    """The box around a shape: a rectangle (0), an ellipse (1) or a polygon (2), which is clipped to the image.

    Args:
        fields: the number of the kind, then the two corners of the box, or the points of the polygon.
        size: of the image; None clips at the left and upper edge alone.
        place: of the row, for errors.
    """
    kind, *cells = fields
    numbers = place.numbers(cells)
    if kind in ("0", "1") and len(numbers) == 4:
        return numbers
    if kind == "2" and len(numbers) >= 6 and len(numbers) % 2 == 0:
        # The right and the lower edge, for either corner.
        edges = (size or (math.inf, math.inf)) * 2
        return [min(max(value, 0.0), edge) for value, edge in zip(tables.outline_box(numbers), edges, strict=True)]
    expected = "0 or 1 with four numbers, or 2 with three points or more,"
    raise place.error(expected, " ".join(fields), "Correct the shape.")

"""A folder as `datasets` reads it with `imagefolder`: images with a `metadata.jsonl` beside them.

Folder::

    train/metadata.jsonl      {"file_name": "0001.png", "objects": {"bbox": [[302, 109, 73, 52]], "categories": [0]}}
    train/0001.png            relative to its table; also one table for all at the root
    validation/metadata.jsonl

`objects` also with `category`, `labels`, `label` or `category_id`, or as a list with an object for each box. Boxes: x,
y, width, height in pixels, as COCO has them, unless `order` says otherwise. Negative: no boxes.
Source: https://huggingface.co/docs/datasets/image_dataset.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from grounding_rewards.boxes import ORDERS, is_box
from grounding_rewards.columns import stated_name
from grounding_rewards.common.validation import check_word
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.splits import patient_column
from grounding_rewards.sources.base import Images, register_source, sound_images, split_name
from grounding_rewards.sources.documents import read_json_rows
from grounding_rewards.sources.tables import RowPlace, check_split, header_size

_TABLE = "metadata.jsonl"


@register_source("imagefolder")
def read_imagefolder(
    root: str | Path, *, split: str | None = None, classes: Sequence[str] = (), order: str = "xywh"
) -> Images:
    """The images of a folder with `metadata.jsonl`.

    Args:
        root: the folder.
        split: the name of a folder below it, `validation` for `val` and `valid` too; None takes all.
        classes: names of the categories where there are numbers, from 0.
        order: of the numbers of a box: xywh, xyxy, cxcywh or yxyx.

    Returns:
        Images in the order of the tables; `id` is the file, relative to the root.

    Raises:
        ValueError: no table; while iterating, a row that cannot be read, or a category without a name.

    Example:
        >>> import json, tempfile
        >>> from PIL import Image
        >>> row = {"file_name": "a.png", "objects": {"bbox": [[1, 2, 9, 9]], "categories": [0]}}
        >>> with tempfile.TemporaryDirectory() as root:
        ...     Image.new("L", (40, 30)).save(Path(root, "a.png"))
        ...     _ = Path(root, "metadata.jsonl").write_text(json.dumps(row))
        ...     [(image.file, image.boxes, image.labels) for image in read_imagefolder(root, classes=("mass",))]
        [('a.png', [[1, 2, 10, 11]], ['mass'])]
    """
    root = Path(root)
    check_word("order", order, tuple(ORDERS))
    tables = sorted([*root.glob(_TABLE), *root.glob(f"*/{_TABLE}")])
    if not tables:
        raise ValueError(
            f"Expected {_TABLE} in the folder for `root` or in folders of it, got {str(root)!r} without. Point to the "
            "folder that `load_dataset('imagefolder', data_dir=…)` takes; where it has metadata.csv, write JSON lines."
        )
    splits = {path: split_name(path.parent.name) if path.parent != root else None for path in tables}
    check_split(split, splits.values())

    def image(place: RowPlace, row: Mapping[str, Any]) -> AnnotatedImage:
        """The image of a row, with its boxes as corners."""
        table = Path(place.path)
        name = row.get("file_name")
        if not isinstance(name, str) or not (table.parent / name).is_file():
            raise place.error("the name of an image for file_name", name, "Add it, or drop the row.")
        boxes, categories = _objects(place, row.get("objects"))
        width, height = header_size(table.parent / name)
        file = (table.parent / name).relative_to(root).as_posix()
        xyxy_boxes = [list(ORDERS[order].to_xyxy(*box)) for box in boxes]
        labels = [place.class_name(category, classes) for category in categories]
        # Several columns may look like that of the patient, such as pid and mrn: the first that this row fills is it.
        filled_columns = [key for key, value in row.items() if value not in (None, "")]
        patient = stated_name(row.get(patient_column(filled_columns) or "patient_id"))
        return AnnotatedImage(file, file, xyxy_boxes, labels, width, height, patient, splits[table])

    tables_of_split = [path for path, table_split in splits.items() if split in (None, table_split)]
    return chain.from_iterable(sound_images(image, read_json_rows(path, "file_name")) for path in tables_of_split)


def _objects(place: RowPlace, value: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """The boxes and the categories of a row, as many, from its `objects`: a mapping of lists or a list of mappings."""
    objects = value or {}
    # Whatever else `objects` may be, it ends in the error below.
    with suppress(ValueError, AttributeError, TypeError):
        # A list of mappings, one for each box, becomes a mapping of lists.
        if isinstance(objects, list):
            objects = {key: [entry.get(key) for entry in objects] for key in set().union(*objects)}
        boxes = objects.get("bbox") or []
        keys = ("categories", "category", "labels", "label", "category_id")
        # Under the first of these keys that is there.
        categories: Sequence[Any] = next((objects[key] for key in keys if objects.get(key) is not None), [])
        if all(map(is_box, boxes)) and len(categories) == len(boxes):
            return boxes, categories
    fix = "Correct the row; `jsonl` and `csv` read other columns."
    raise place.error("bbox and categories, as many, in objects", value, fix)

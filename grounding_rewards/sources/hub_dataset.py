"""Datasets of the Hub with a column of objects; the caller states how boxes are written.

Columns: `image`; `objects` with `bbox` and `category`, either lists side by side or one mapping per object; optional
`image_id`, `width`, `height`, `patient_id`; all others are carried along. Source: the detection datasets of
https://huggingface.co/datasets. They share these names and differ in the order and the space of the numbers: each one's
card says which, and gives licence and access.
Negative: a row without objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from grounding_rewards.boxes import ORDERS, SPACES, as_box_array, get_space, to_pixel, to_xyxy
from grounding_rewards.columns import stated_name
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.images.decoding import image_size
from grounding_rewards.sources.documents import pixels

if TYPE_CHECKING:
    from datasets import Dataset

_READ = ("image", "image_id", "width", "height", "patient_id")


def hub_objects(
    dataset: Dataset,
    box_format: str,
    space: str,
    *,
    split: str | None = None,
    names: Sequence[str] | None = None,
    objects: str = "objects",
    bbox: str = "bbox",
    category: str = "category",
) -> Iterator[AnnotatedImage]:
    """The images of a `datasets.Dataset` with a column of objects.

    Args:
        dataset: rows with `objects`, and `image` or `width` and `height`.
        box_format: what the four numbers are: `xyxy`, `xywh` (left, top, width, height), `cxcywh` or `yxyx`.
        space: what they count: `pixel`, `norm1`, or another space of `grounding_rewards.boxes` of the original image.
        split: what the images say.
        names: name of every category, by its number; needed where the dataset holds numbers without names.
        objects: the column of objects.
        bbox: its key for the boxes.
        category: its key for the labels.

    Returns:
        Images in the order of the rows; `extra["row"]` is the number of the row, which finds the image again, other
        columns are in `extra` too, and `file` is the path of the image as the dataset has it, empty where it has none.

    Raises:
        ValueError: an unknown order or space, a column is missing; while iterating, a row that cannot be read, by its
            number.

    Example:
        >>> from datasets import Dataset
        >>> images = Dataset.from_dict({"width": [40], "height": [30],
        ...                            "objects": [{"bbox": [[1, 2, 10, 20]], "category": ["mass"]}]})
        >>> [(image.boxes, image.labels) for image in hub_objects(images, "xywh", "pixel")]
        [([[1.0, 2.0, 11.0, 22.0]], ['mass'])]
    """
    if box_format not in ORDERS:
        raise ValueError(
            f"Expected one of {', '.join(ORDERS)} for box_format, got {box_format!r}. The dataset's card says which."
        )
    original = [name for name, known in SPACES.items() if known.frame != "resized"]
    if space not in original:
        raise ValueError(
            f"Expected one of {', '.join(original)} for space, got {space!r}. The dataset's card says which."
        )
    if objects not in dataset.column_names:
        raise ValueError(
            f"Expected the column {objects} in dataset, got {', '.join(dataset.column_names)}. Name it in `objects`."
        )
    dataset, known_space = _undecoded(dataset), get_space(space)
    names = _declared_names(dataset.features[objects], category) if names is None else names

    def image(number: int, row: dict[str, Any]) -> AnnotatedImage:
        stored = row.get("image")
        width, height = pixels(row.get("width")), pixels(row.get("height"))
        try:
            if (width is None or height is None) and stored is not None:
                width, height = image_size(stored)
            boxes, categories = _columns(row[objects], bbox, category)
            array = to_pixel(to_xyxy(as_box_array(boxes), box_format), known_space, width=width, height=height)
            if not np.isfinite(array).all() or len(array) != len(categories):
                raise ValueError(
                    f"Expected finite boxes with one category each, got {boxes!r:.200} and {categories!r:.200}. "
                    "Correct or drop the row."
                )
            labels = [_label(value, names) for value in categories]
        except ValueError as error:
            raise ValueError(f"Row {number} of dataset: {error}") from error
        return AnnotatedImage(
            id=str(row.get("image_id", number)),
            file=(stored.get("path") or "") if isinstance(stored, dict) else "",
            boxes=array.tolist(),
            labels=labels,
            width=width,
            height=height,
            split=split,
            patient_id=stated_name(row.get("patient_id")),
            extra={name: value for name, value in row.items() if name not in (*_READ, objects)} | {"row": str(number)},
        )

    return (image(*numbered) for numbered in enumerate(dataset))


def _undecoded(dataset: Dataset) -> Dataset:
    from datasets import Image

    if isinstance(dataset.features.get("image"), Image):
        return dataset.cast_column("image", Image(decode=False))
    return dataset


def _columns(found: Any, bbox: str, category: str) -> tuple[list[Any], list[Any]]:
    """Boxes and categories of a row: of lists side by side, or of one mapping per object."""
    if found is None:
        return [], []
    entries = found if isinstance(found, list) else [found]
    if not all(isinstance(entry, Mapping) and bbox in entry and category in entry for entry in entries):
        raise ValueError(
            f"Expected {bbox} and {category} in every object, got {found!r:.200}. "
            "Name the keys in `bbox` and `category`."
        )
    if isinstance(found, list):
        return [entry[bbox] for entry in found], [entry[category] for entry in found]
    return list(found[bbox]), list(found[category])


def _declared_names(feature: Any, category: str) -> Sequence[str] | None:
    """The names of a `ClassLabel` inside lists."""
    feature = getattr(feature, "feature", feature)
    feature = feature[category] if isinstance(feature, Mapping) and category in feature else None
    return getattr(getattr(feature, "feature", feature), "names", None)


def _label(value: Any, names: Sequence[str] | None) -> str:
    if isinstance(value, str):
        return value
    if names is None or not isinstance(value, int) or not 0 <= value < len(names):
        raise ValueError(
            f"Expected a name, or the number of one of {len(names or ())} names, for every category, got {value!r}. "
            "Give all names in `names`, in the order of their numbers."
        )
    return names[value]

"""The columns that depend on the model and not on the dataset: its box format and resized sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grounding_rewards.data.checks import bad_rows_error
from grounding_rewards.data.images import image_sizes
from grounding_rewards.data.resize import has_resized_size, resized_size
from grounding_rewards.parsing import get_box_format

if TYPE_CHECKING:
    from collections.abc import Iterable

    from datasets import Dataset


def add_columns(dataset: Dataset, processor: Any, box_format: str | None) -> Dataset:
    """Add the columns `box_format`, `resized_width` and `resized_height`.

    Args:
        dataset: rows with `image`, or with `width` and `height`.
        processor: decides the resized sizes; the columns stay as they are where it is not of the Qwen2-VL
            kind.
        box_format: name for the `box_format` column; None leaves the column as it is.

    Returns:
        The dataset with the columns `box_format`, `resized_width` and `resized_height`, those that exist
        replaced.

    Raises:
        ValueError: an unknown box format, or films that the processor cannot resize (number, `id` and reason of each).

    Example:
        >>> from datasets import Dataset
        >>> films = Dataset.from_dict({"width": [512], "height": [400]})
        >>> add_columns(films, "a processor of another kind", "qwen3-vl")[0]
        {'width': 512, 'height': 400, 'box_format': 'qwen3-vl'}
    """
    if box_format is not None:
        get_box_format(box_format)
        dataset = _with_column(dataset, "box_format", [box_format] * dataset.num_rows)
    if has_resized_size(processor):
        sizes = _resized_sizes(dataset, processor)
        dataset = _with_column(dataset, "resized_width", [width for width, _ in sizes])
        dataset = _with_column(dataset, "resized_height", [height for _, height in sizes])
    return dataset


def _resized_sizes(dataset: Dataset, processor: Any) -> list[tuple[int, int]]:
    sizes: list[tuple[int, int]] = []
    problems: dict[int, list[str]] = {}
    for number, size in enumerate(_fed_sizes(dataset)):
        try:
            sizes.append(_resized_size(processor, size))
        except ValueError as error:
            problems[number] = [str(error)]
    if problems:
        ids = dataset["id"] if "id" in dataset.column_names else ["-"] * dataset.num_rows
        raise bad_rows_error(problems, ids, "a film that the processor can resize", "dataset")
    return sizes


def _resized_size(processor: Any, size: tuple[int | None, int | None] | None) -> tuple[int, int]:
    width, height = size or (None, None)
    if width is None or height is None:
        raise ValueError("Expected an image, or width and height, got none. Add it.")
    return resized_size(processor, width, height)


def _fed_sizes(dataset: Dataset) -> Iterable[tuple[int | None, int | None] | None]:
    """The sizes of the images that the processor gets, perhaps smaller than the films that boxes were drawn on."""
    if "image" in dataset.column_names:
        return image_sizes(dataset)
    return zip(dataset["width"], dataset["height"], strict=True)


def _with_column(dataset: Dataset, name: str, values: list[Any]) -> Dataset:
    if name in dataset.column_names:
        dataset = dataset.remove_columns(name)
    return dataset.add_column(name, values)

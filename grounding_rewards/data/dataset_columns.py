"""Columns of a dataset: those that depend on the model, those the package does not know, and rows without images.

* Of the model: box format, resized sizes and prompts (:func:`add_columns`, :func:`add_prompts`).
* Unknown, such as age, view or licence: kept, for subgroups and sources (:class:`ExtraColumns`).
* :func:`light_rows` leaves images out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.columns import column_of
from grounding_rewards.data.checks import apply_to_rows, is_list
from grounding_rewards.data.prompts import (
    LOOKED_FOR,
    conversation,
    prompt_order,
    prompt_problem,
    prompt_words,
    task_prompt,
)
from grounding_rewards.images.decoding import rows_without_images, stored_images, stored_sizes
from grounding_rewards.images.resize import has_resized_size, resized_size
from grounding_rewards.parsing import BoxFormat, get_box_format

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image
    from pyarrow import DataType


def add_columns(dataset: Dataset, processor: Any, box_format: str | None, *, bad_rows: str = "refuse") -> Dataset:
    """Add the columns `box_format`, `resized_width` and `resized_height`.

    Args:
        dataset: rows with `image`, or with `width` and `height`.
        processor: decides the resized sizes; the columns stay as they are where its way to resize is not known.
        box_format: name for the `box_format` column; None leaves the column as it is.
        bad_rows: `refuse` or `drop` images that the processor cannot resize.

    Returns:
        The dataset with the columns `box_format`, `resized_width` and `resized_height`, those that exist
        replaced.

    Raises:
        ValueError: an unknown box format, or images that the processor cannot resize (each reason and its first rows).

    Example:
        >>> from datasets import Dataset
        >>> images = Dataset.from_dict({"width": [512], "height": [400]})
        >>> add_columns(images, "a processor of another kind", "qwen3-vl")[0]
        {'width': 512, 'height': 400, 'box_format': 'qwen3-vl'}
    """
    if box_format is not None:
        get_box_format(box_format)
        dataset = with_column(dataset, "box_format", [box_format] * dataset.num_rows)
    if has_resized_size(processor):
        # The image that the processor gets may be smaller than the one that boxes were drawn on.
        has_images = "image" in dataset.column_names
        input_sizes = stored_sizes(dataset) if has_images else zip(dataset["width"], dataset["height"], strict=True)

        def resize(size: tuple[int | None, int | None] | None) -> tuple[int, int]:
            """The resized width and height of an image of this size."""
            width, height = size or (None, None)
            if width is None or height is None:
                raise ValueError("Expected an image, or width and height, got none. Add it.")
            return resized_size(processor, width, height)

        expected = "an image that the processor can resize"
        dataset, sizes = apply_to_rows(dataset, input_sizes, resize, expected, "dataset", bad_rows)
        dataset = with_column(dataset, "resized_width", [width for width, _ in sizes])
        dataset = with_column(dataset, "resized_height", [height for _, height in sizes])
    return dataset


def add_prompts(dataset: Dataset, box_format: str | Mapping[str, Any] | BoxFormat | None) -> Dataset:
    """Ask about the images that have no prompt of their own, and make texts conversational.

    Such an image is asked for everything that its column `looked_for` names, without that column for every label of the
    dataset, in the first wording of `grounding_rewards.data.prompts.task_prompt`.

    Args:
        dataset: rows with `prompt`, or `looked_for` or `labels`.
        box_format: how the model writes boxes, which the prompt states; None takes the column `box_format`.

    Returns:
        The dataset with a conversational column `prompt` and without `looked_for`. A row whose prompt or box format is
        wrong has the prompt None; the checks name it.

    Raises:
        ValueError: a row has no prompt, and neither names nor a box format to ask for.

    Example:
        >>> from datasets import Dataset
        >>> images = Dataset.from_list([{"labels": ["mass"]}, {"labels": ["nodule", "mass"]}])
        >>> add_prompts(images, "paligemma")[0]["prompt"][0]["content"][1]["text"]
        'detect mass ; nodule'
    """
    unformatted = dataset.with_format(None)
    columns = {
        name: unformatted[name][:]
        for name in ("prompt", LOOKED_FOR, "labels", "reader_labels", "box_format")
        if name in dataset.column_names
    }
    prompts = column_of(columns, "prompt", dataset.num_rows)
    images = dataset.remove_columns(LOOKED_FOR) if LOOKED_FOR in columns else dataset
    if prompts is not None and not any(prompt is None or isinstance(prompt, str) for prompt in prompts):
        # All are messages already.
        return images
    label_lists = [*columns.get("labels", ())]
    for lists_of_readers in filter(is_list, columns.get("reader_labels", ())):
        label_lists += lists_of_readers
    # Values that are no lists, and members that are no texts, are passed over here: the checks name them.
    labels = chain.from_iterable(filter(is_list, label_lists))
    all_labels = prompt_order(label for label in labels if isinstance(label, str) and label.strip())

    def row_prompt(number: int) -> Any:
        """The prompt of the row as messages: its own, or one that asks for its findings; None if it cannot be made."""
        stated_prompt = None if prompts is None else prompts[number]
        if stated_prompt is not None:
            return None if prompt_problem(stated_prompt) else conversation(stated_prompt)
        findings = columns[LOOKED_FOR][number] if LOOKED_FOR in columns else all_labels
        # An empty list of findings cannot be asked for.
        if not findings or (box_format is None and "box_format" not in columns):
            raise ValueError(
                "Expected a prompt, or labels and a box format to make one of, in every row, got none in row "
                f"{number}. Add the column prompt, or labels and box_format."
            )
        try:
            fmt = columns["box_format"][number] if box_format is None else box_format
            return task_prompt("detection", findings, fmt)
        except ValueError:
            # An unknown box format, or none in this row.
            return None

    return with_column(images, "prompt", [row_prompt(number) for number in range(dataset.num_rows)])


def with_column(dataset: Dataset, name: str, values: list[Any]) -> Dataset:
    """The dataset with this column, in place of one of that name."""
    if name in dataset.column_names:
        dataset = dataset.remove_columns(name)
    return dataset.add_column(name, values)


class ExtraColumns:
    """The columns of rows that the package does not know, each with a type that holds the values of every row.

    Texts, numbers and truth values keep their type, whole numbers beside fractions become fractions; lists, objects,
    and values of several types, become JSON text. A column without any value is left out.

    Args:
        rows: the values of each, by column.

    >>> columns = ExtraColumns([{"age": 63, "view": "PA"}, {"age": 41.5, "view": None}, {"view": ["AP", 2]}])
    >>> columns.values({"age": 63, "view": ["AP", 2]})
    {'age': 63, 'view': '["AP", 2]'}
    >>> columns.values({})
    {'age': None, 'view': None}
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Find the type of each column from its values in these rows."""
        values_by_name: dict[str, list[Any]] = {}
        for row in rows:
            for name, value in row.items():
                if value is not None:
                    values_by_name.setdefault(name, []).append(value)
        #: The arrow type of each column that has a value.
        self.types = {name: _type_of(values) for name, values in values_by_name.items()}

    def values(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The values of one row in the types of the columns, None where the row has none."""
        return {name: _as_type(row.get(name), arrow_type) for name, arrow_type in self.types.items()}

    def features(self) -> dict[str, Any]:
        """The types of the columns as `datasets` writes them."""
        from datasets.features.features import generate_from_arrow_type

        return {name: generate_from_arrow_type(arrow_type) for name, arrow_type in self.types.items()}


def _type_of(values: Sequence[Any]) -> DataType:
    """The arrow type of a column with these values; text, for JSON, if they are lists, objects or mixed."""
    import pyarrow as pa

    try:
        arrow_type = pa.array(values).type
    # The values have several types, or a number is too large.
    except (ValueError, TypeError, OverflowError):
        return pa.string()
    return pa.string() if pa.types.is_nested(arrow_type) else arrow_type


def _as_type(value: Any, arrow_type: DataType) -> Any:
    """The value as a column of this type takes it: a value that is no text becomes JSON in a column of texts."""
    from pyarrow.types import is_string

    if value is None or isinstance(value, str) or not is_string(arrow_type):
        return value
    return json.dumps(value, ensure_ascii=False)


def light_rows(dataset: Dataset) -> list[dict[str, Any]]:
    """The rows of a dataset without images and prompts, which take most of the memory.

    A row has the words of its prompt as `asked`, and if its image is a file the path of it as `image_path`.

    Example:
        >>> from datasets import Dataset
        >>> light_rows(Dataset.from_list([{"prompt": "Where?", "boxes": [], "id": "a"}]))
        [{'boxes': [], 'id': 'a', 'asked': 'Where?'}]
    """
    from datasets import Image

    rows = rows_without_images(dataset, "prompt")
    if "prompt" in dataset.column_names:
        for row, prompt_row in zip(rows, dataset.select_columns("prompt").to_list(), strict=True):
            if prompt_problem(prompt_row["prompt"]) is None and prompt_row["prompt"] is not None:
                # Many images are asked in the same words: equal texts are kept in memory once.
                row["asked"] = sys.intern(prompt_words(prompt_row["prompt"]))
    if isinstance(dataset.features.get("image"), Image):
        for row, image in zip(rows, stored_images(dataset), strict=True):
            # Images stored in a parquet file keep the name of a file that may be elsewhere.
            if image is not None and image["bytes"] is None and image["path"] and Path(image["path"]).is_file():
                row["image_path"] = image["path"]
    return rows


def load_dataset_image(dataset: Dataset, number: int) -> Image | None:
    """The image of the row of a number, counted from 0; None where the dataset has no images."""
    return dataset[number]["image"] if "image" in dataset.column_names else None

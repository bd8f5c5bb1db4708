"""The columns that depend on the model and not on the dataset alone: its box format, resized sizes, and prompts."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from grounding_rewards.columns import column_of
from grounding_rewards.data.checks import with_each
from grounding_rewards.data.prompts import LOOKED_FOR, conversation, prompt_order, prompt_problem, task_prompt
from grounding_rewards.images.decoding import stored_sizes
from grounding_rewards.images.resize import has_resized_size, resized_size
from grounding_rewards.parsing import BoxFormat, get_box_format

if TYPE_CHECKING:
    from collections.abc import Mapping

    from datasets import Dataset


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
        ValueError: an unknown box format, or images that the processor cannot resize (number, `id` and reason of each).

    Example:
        >>> from datasets import Dataset
        >>> images = Dataset.from_dict({"width": [512], "height": [400]})
        >>> add_columns(images, "a processor of another kind", "qwen3-vl")[0]
        {'width': 512, 'height': 400, 'box_format': 'qwen3-vl'}
    """
    if box_format is not None:
        get_box_format(box_format)
        dataset = _with_column(dataset, "box_format", [box_format] * dataset.num_rows)
    if has_resized_size(processor):
        # What the processor gets may be smaller than the images that boxes were drawn on.
        is_stored = "image" in dataset.column_names
        fed = stored_sizes(dataset) if is_stored else zip(dataset["width"], dataset["height"], strict=True)

        def resize(size: tuple[int | None, int | None] | None) -> tuple[int, int]:
            width, height = size or (None, None)
            if width is None or height is None:
                raise ValueError("Expected an image, or width and height, got none. Add it.")
            return resized_size(processor, width, height)

        expected = "an image that the processor can resize"
        dataset, sizes = with_each(dataset, fed, resize, expected, "dataset", bad_rows)
        dataset = _with_column(dataset, "resized_width", [width for width, _ in sizes])
        dataset = _with_column(dataset, "resized_height", [height for _, height in sizes])
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
    plain = dataset.with_format(None)
    columns = {
        name: plain[name][:]
        for name in ("prompt", LOOKED_FOR, "labels", "reader_labels", "box_format")
        if name in dataset.column_names
    }
    prompts = column_of(columns, "prompt", dataset.num_rows)
    rest = dataset.remove_columns(LOOKED_FOR) if LOOKED_FOR in columns else dataset
    if prompts is not None and not any(prompt is None or isinstance(prompt, str) for prompt in prompts):
        return rest
    found = [*columns.get("labels", ()), *chain.from_iterable(filter(None, columns.get("reader_labels", ())))]
    labels = chain.from_iterable(filter(None, found))
    # What is no label is left to the checks.
    everything = prompt_order(label for label in labels if isinstance(label, str) and label.strip())
    written: dict[str, Any] = {}

    def asked(number: int) -> Any:
        own = None if prompts is None else prompts[number]
        if own is not None:
            return None if prompt_problem(own) else conversation(own)
        wanted = columns[LOOKED_FOR][number] if LOOKED_FOR in columns else everything
        fmt = box_format if box_format is not None else columns.get("box_format", [None] * (number + 1))[number]
        if not wanted or (fmt is None and "box_format" not in columns):
            raise ValueError(
                "Expected a prompt, or labels and a box format to make one of, in every row, got none in row "
                f"{number}. Add the column prompt, or labels and box_format."
            )
        key = repr((wanted, fmt))
        if key not in written:
            try:
                written[key] = task_prompt("detection", wanted, fmt)
            except ValueError:
                written[key] = None
        return written[key]

    return _with_column(rest, "prompt", [asked(number) for number in range(dataset.num_rows)])


def _with_column(dataset: Dataset, name: str, values: list[Any]) -> Dataset:
    if name in dataset.column_names:
        dataset = dataset.remove_columns(name)
    return dataset.add_column(name, values)

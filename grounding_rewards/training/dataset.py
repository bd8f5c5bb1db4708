"""Prepare and check images for a trainer: prompts, the model's box format and sizes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from datasets import Dataset

from grounding_rewards.data.checks import check_dataset
from grounding_rewards.data.dataset_columns import add_columns, add_prompts
from grounding_rewards.images.image_column import with_full_image, with_image_column
from grounding_rewards.images.resize import fit_images
from grounding_rewards.models.generate import check_processor
from grounding_rewards.parsing import BoxFormat, box_formats_of
from grounding_rewards.rewards.grounding import GroundingReward


def prepare_examples(
    dataset: Any,
    rewards: Sequence[Any],
    processor: Any,
    *,
    box_format: str | Mapping[str, Any] | BoxFormat | None,
    model_format: Callable[[], str],
    name: str,
    bad_rows: str = "refuse",
    image_columns: Sequence[str] = ("image", "images"),
    keep_full: bool = False,
) -> Dataset:
    """Return a dataset that is ready for a trainer: with prompts and the rewards' columns, checked, its images shrunk.

    Args:
        dataset: rows with the package's columns.
        rewards: every :class:`GroundingReward` among them checks the rows.
        processor: the model's; decides the sizes.
        box_format: a name, for the column `box_format`; None leaves it to the dataset and the model. A declared format
            has no name for the column: the rewards carry it.
        model_format: returns the name of the model's own format; called if a reward and the dataset have none.
        name: the name of the dataset in errors.
        bad_rows: `refuse` rows that fail their check, or `drop` them, which a warning says.
        image_columns: columns that may have the images; `image` alone with `keep_full`.
        keep_full: add the column `full_image`, the images as they are stored.

    Returns:
        The good rows, with images in RGB.

    Raises:
        ValueError: a stream, a dataset without images, or rows that fail their check (each reason and
            its first rows).
    """
    if not isinstance(dataset, Dataset):
        raise ValueError(
            f"Expected a map-style datasets.Dataset for {name}, got {type(dataset).__name__}. A stream "
            "cannot be checked before the first step; load it, or use the reward with TRL's GRPOTrainer."
        )
    dataset = with_image_column(dataset)
    grounding_rewards = [reward for reward in rewards if isinstance(reward, GroundingReward)]
    stated_formats = [reward.box_format for reward in grounding_rewards if reward.box_format is not None]
    # The new value of the column `box_format`; None leaves the column as it is.
    column_value = box_format if isinstance(box_format, str) else None
    # A reward without a format of its own reads the column: where there is none, the model's own format fills it.
    if "box_format" not in dataset.column_names and len(stated_formats) < len(grounding_rewards):
        column_value = column_value or model_format()
    # Prompts come first, since they are checked too. They ask for the format that the first reward reads.
    prompt_format = stated_formats[0] if stated_formats else column_value
    dataset = add_prompts(dataset, prompt_format)
    dataset = check_dataset(dataset, name=name, bad_rows=bad_rows)
    if keep_full:
        # The images as they are stored are taken from this column.
        image_columns = ("image",)
    if not set(image_columns).intersection(dataset.column_names):
        raise ValueError(
            f"Expected a column image for {name}, got {', '.join(sorted(dataset.column_names))}. A model that is shown "
            "no image learns to guess where findings usually are: add the images."
        )
    # The rewards read boxes by the columns `box_format`, `resized_width` and `resized_height`.
    dataset = add_columns(dataset, processor, column_value, bad_rows=bad_rows)
    for reward in grounding_rewards:
        dataset = check_dataset(dataset, reward, name=name, bad_rows=bad_rows)
    # Images are shrunk last, so that no row that is dropped is shrunk. Some processors fail on grey images (LFM2-VL's);
    # the others make RGB of them themselves.
    fitted = with_image_column(fit_images(dataset, processor), mode="RGB")
    check_processor(processor, fitted, name)
    return with_full_image(fitted, dataset) if keep_full else fitted


def format_name(box_format: str | BoxFormat | None, images: Dataset) -> str:
    """The name of a reward's box format, or the names in the column `box_format`, joined by commas.

    Args:
        box_format: of a reward; None takes the column.
        images: the dataset, with or without the column.

    >>> format_name("qwen3-vl", Dataset.from_dict({"id": ["a"]}))
    'qwen3-vl'
    """
    column = images["box_format"] if "box_format" in images.column_names else ()
    return ", ".join(fmt.name for fmt in box_formats_of(box_format, column))

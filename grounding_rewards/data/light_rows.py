"""The rows of a dataset without what is large, and its images one by one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.data.prompts import prompt_problem, prompt_words
from grounding_rewards.images.decoding import rows_without_images, stored_images

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image


def light_rows(dataset: Dataset) -> list[dict[str, Any]]:
    """The rows of a dataset without images, with the column `image_path` where its images are files.

    Of a prompt its words stay, in the column `asked`.

    Example:
        >>> from datasets import Dataset
        >>> light_rows(Dataset.from_list([{"prompt": "Where?", "boxes": [], "id": "a"}]))
        [{'boxes': [], 'id': 'a', 'asked': 'Where?'}]
    """
    from datasets import Image

    rows = rows_without_images(dataset, "prompt")
    if "prompt" in dataset.column_names:
        for row, asked in zip(rows, dataset.select_columns("prompt").to_list(), strict=True):
            if prompt_problem(asked["prompt"]) is None and asked["prompt"] is not None:
                # Many images are asked in the same words.
                row["asked"] = sys.intern(prompt_words(asked["prompt"]))
    if isinstance(dataset.features.get("image"), Image):
        for row, image in zip(rows, stored_images(dataset), strict=True):
            # Images stored in a parquet file keep the name of a file that may be elsewhere.
            if image is not None and image["bytes"] is None and image["path"] and Path(image["path"]).is_file():
                row["image_path"] = image["path"]
    return rows


def load_dataset_image(dataset: Dataset, k: int) -> Image | None:
    """The k-th image of a dataset, None where it has no images."""
    return dataset[k]["image"] if "image" in dataset.column_names else None

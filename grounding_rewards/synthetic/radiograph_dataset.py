"""Drawn radiographs as a dataset whose splits share no image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grounding_rewards.common.legal import check_word
from grounding_rewards.data.prompts import prompt_messages
from grounding_rewards.synthetic.radiographs import PRESETS, draw_radiograph

if TYPE_CHECKING:
    from datasets import Dataset

SPLITS = ("train", "validation", "test")

# Each split has a range of indices of its own, so that no image is in two splits.
_PER_SPLIT = 10_000_000


def image_indices(split: str, n: int) -> range:
    """The indices of the first images of a split; splits share none.

    Args:
        split: One of `SPLITS`.
        n: Number of images, from 1 to ten million.

    Raises:
        ValueError: Unknown split, or a number out of range.

    >>> image_indices("test", 2)
    range(20000000, 20000002)
    """
    check_word("split", split, SPLITS)
    if not 0 < n <= _PER_SPLIT:
        raise ValueError(f"Expected 1 to {_PER_SPLIT} for n, got {n}. Ask for a number in this range.")
    first = SPLITS.index(split) * _PER_SPLIT
    return range(first, first + n)


def synthetic_dataset(split: str, n: int, *, preset: str = "pa-112", seed: int = 0) -> Dataset:
    """The first `n` images of a split with the columns that the package uses.

    Args:
        split: One of `SPLITS`.
        n: Number of images, from 1 to ten million.
        preset: One of `PRESETS`.
        seed: Of all images.

    Returns:
        Columns prompt, image, boxes (xyxy pixels), labels, phrases, width, height, view, spacing (millimetres per
        pixel) and id.

    Raises:
        ValueError: Unknown split or preset, or a number out of range.

    >>> synthetic_dataset("validation", 2).column_names
    ['prompt', 'image', 'boxes', 'labels', 'phrases', 'width', 'height', 'view', 'spacing', 'id']
    """
    from datasets import Dataset, Image

    check_word("preset", preset, PRESETS)
    images = [draw_radiograph(index, preset, seed=seed) for index in image_indices(split, n)]
    columns = {
        "prompt": [prompt_messages(PRESETS[preset].labels)] * n,
        "image": [image.image for image in images],
        "boxes": [[[float(value) for value in box] for box in image.boxes] for image in images],
        "labels": [list(image.labels) for image in images],
        "phrases": [list(image.phrases) for image in images],
        "width": [image.image.width for image in images],
        "height": [image.image.height for image in images],
        "view": [image.view for image in images],
        "spacing": [image.spacing for image in images],
        "id": [image.id for image in images],
    }
    return Dataset.from_dict(columns).cast_column("image", Image())

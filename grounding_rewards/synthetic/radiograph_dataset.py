"""Drawn radiographs as a dataset, drawn on access or at once."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grounding_rewards.common.legal import check_word
from grounding_rewards.data.prompts import prompt_messages
from grounding_rewards.synthetic.findings import FINDINGS
from grounding_rewards.synthetic.radiographs import PRESETS, Radiograph, draw_radiograph
from grounding_rewards.synthetic.square_images import image_seeds

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class SyntheticImages:
    """The first `n` radiographs of a split, each drawn when it is asked for: a map-style dataset for `DataLoader`.

    The same index gives the same image, in any order and process; no image is in two splits.

    Attributes:
        split: One of `SPLITS`.
        n: Number of images, from 1 to ten million.
        preset: One of `PRESETS`.
        seed: Of all images.

    Raises:
        ValueError: Unknown split or preset, or a number out of range.

    >>> images = SyntheticImages("test", 1_000_000, preset="pa-256")
    >>> len(images), images[999_999]["id"]
    (1000000, 'pa-256-0-20999999')
    """

    split: str
    n: int
    preset: str = "mixed-512"
    seed: int = 0

    def __post_init__(self) -> None:
        image_seeds(self.split, self.n)
        check_word("preset", self.preset, PRESETS)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> dict[str, Any]:
        """The row of one image, with the columns of `radiograph_dataset`."""
        number = image_seeds(self.split, self.n)[operator.index(index)]
        return _row(draw_radiograph(number, self.preset, seed=self.seed))


def radiograph_dataset(split: str, n: int, *, preset: str = "mixed-512", seed: int = 0) -> Dataset:
    """The images of `SyntheticImages`, drawn at once; arguments and errors as there.

    Returns:
        Columns prompt, image, boxes (xyxy pixels), labels, phrases, width, height, view, spacing (millimetres per
        pixel) and id.

    >>> radiograph_dataset("validation", 2, preset="pa-256").column_names
    ['prompt', 'image', 'boxes', 'labels', 'phrases', 'width', 'height', 'view', 'spacing', 'id']
    """
    from datasets import Dataset, Image

    images = SyntheticImages(split, n, preset, seed)
    rows = [images[index] for index in range(n)]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return Dataset.from_dict(columns).cast_column("image", Image())


def _row(image: Radiograph) -> dict[str, Any]:
    return {
        "prompt": prompt_messages(FINDINGS),
        "image": image.image,
        "boxes": [[float(value) for value in box] for box in image.boxes],
        "labels": list(image.labels),
        "phrases": list(image.phrases),
        "width": image.image.width,
        "height": image.image.height,
        "view": image.view,
        "spacing": image.spacing,
        "id": image.id,
    }

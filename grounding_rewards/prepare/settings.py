"""The settings of a preparation: with the same images they give the same bytes."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grounding_rewards.common.validation import check_word
from grounding_rewards.data.checks import BAD_ROWS
from grounding_rewards.data.prompts import TASKS, check_template
from grounding_rewards.data.readers import STRATEGIES
from grounding_rewards.data.splits import SHARES
from grounding_rewards.parsing import get_box_format


@dataclass(frozen=True)
class PrepareSettings:
    """All settings that the output depends on.

    Attributes:
        dataset: Name of the source, for the card.
        box_format: How the model writes boxes: a name, or a mapping as `get_box_format` takes.
        task: `detection` asks for all findings of an image, `finding` for one, `phrase` for what a phrase describes.
        labels: The findings of interest; None takes all. Boxes of other findings are left out.
        negatives: The share of rows without boxes, in [0, 1); less where there are not that many images. For the task
            `finding`: of the rows of each finding, 0.5 if None. For `detection`: of the rows of `train`; None keeps all
            images, as every other split does. No share for `phrase`.
        smallest_box: Boxes with a shorter side below this are left out, in pixels of the image that they were drawn on;
            None keeps all. An image, or a finding of it, that has no other box is not asked about.
        normalize_labels: Write the findings in the words of the shared vocabulary.
        readers: How the boxes of several readers become one reference, of `STRATEGIES`; None where one person read.
        split: The only split of the dataset's own that was read; None where all were.
        splits_from: `dataset` takes the dataset's own splits, unless it holds no image out: then, and with `hash`, all
            patients are drawn.
        shares: Names of the splits that patients are drawn into, and their shares, which sum to 1.
        seed: Of the splits, the wording of prompts and the choice of negatives.
        template: The words of every prompt, as `prompts.check_template` accepts them; None takes the package's own.
        side: Longest side of a stored image in pixels; larger ones are shrunk. None leaves the size.
        image_format: Of the stored images: `png`, or `jpeg`, which loses little.
        squeezed: The images are copies that were squeezed to another shape, often 1024 x 1024, and boxes are scaled
            along each axis. Otherwise an image of another shape than its image is refused.
        window: The stored values of a 16-bit PNG or TIFF file that become black and white; None takes the smallest and
            largest of each image.
        model: Folder or name of the model whose processor gives `resized_width` and `resized_height`; None leaves
            these columns to the trainer.
        bad_rows: `refuse` the first image that cannot be used, or `drop` it and list it in the card.

    Raises:
        ValueError: a value is out of range or unknown.

    >>> PrepareSettings("coco", "qwen3-vl", task="segmentation")
    Traceback (most recent call last):
    ...
    ValueError: Expected a known word for `task`, got 'segmentation'. Use one of: detection, finding, phrase.
    """

    dataset: str
    box_format: str | Mapping[str, Any]
    task: str = "detection"
    labels: tuple[str, ...] | None = None
    negatives: float | None = None
    smallest_box: float | None = None
    normalize_labels: bool = False
    readers: str | None = None
    split: str | None = None
    splits_from: str = "dataset"
    shares: tuple[tuple[str, float], ...] = tuple(SHARES.items())
    seed: int = 0
    template: str | None = None
    side: int | None = None
    image_format: str = "png"
    squeezed: bool = False
    window: tuple[float, float] | None = None
    model: str | None = None
    bad_rows: str = "refuse"

    def __post_init__(self) -> None:
        get_box_format(self.box_format)
        check_word("task", self.task, TASKS)
        check_word("splits_from", self.splits_from, ("dataset", "hash"))
        check_word("image_format", self.image_format, ("png", "jpeg"))
        check_word("bad_rows", self.bad_rows, BAD_ROWS)
        if self.readers is not None:
            check_word("readers", self.readers, STRATEGIES)
        if self.template is not None:
            check_template(self.template, self.task, self.box_format)
        if self.negatives is not None and self.task == "phrase":
            raise ValueError(
                f"Expected no share of negatives for the task phrase, got {self.negatives}. Leave it out: every row "
                "asks for a phrase that is there."
            )
        if self.negatives is not None and not 0 <= self.negatives < 1:
            raise ValueError(f"Expected 0 <= negatives < 1, got {self.negatives}. With 0.5 half the rows are negative.")
        if self.smallest_box is not None and not 0 < self.smallest_box < math.inf:
            raise ValueError(
                f"Expected a number of pixels above 0 for smallest_box, got {self.smallest_box}. The doctor says which "
                "boxes are too small; leave it out to keep all."
            )
        if self.side is not None and self.side < 1:
            raise ValueError(f"Expected at least 1 pixel for side, got {self.side}. 1024 is usual.")
        if self.window is not None and not self.window[0] < self.window[1]:
            raise ValueError(f"Expected low < high for window, got {self.window}. Give two stored values.")
        check_shares(dict(self.shares))


def check_split_name(name: str) -> None:
    """Refuse a name of a split that cannot be the name of a file and of a split of `datasets`.

    >>> check_split_name("fold 1")
    Traceback (most recent call last):
    ...
    ValueError: Expected letters, digits and _ for the name of a split, got 'fold 1'. Rename the split.
    """
    # As `datasets` accepts them.
    if not re.fullmatch(r"\w+(\.\w+)*", name):
        raise ValueError(f"Expected letters, digits and _ for the name of a split, got {name!r}. Rename the split.")


def check_shares(shares: Mapping[str, float]) -> None:
    """Refuse shares of splits that are not in [0, 1] or do not sum to 1, and illegal names of splits."""
    for name in shares:
        check_split_name(name)
    # A sum of decimal fractions is not exact. Written with `not`, as every comparison with nan is false.
    if not shares or min(shares.values()) < 0 or not abs(sum(shares.values()) - 1) <= 1e-9:
        texts = ", ".join(f"{name}={share:g}" for name, share in shares.items())
        raise ValueError(
            f"Expected shares that sum to 1 for shares, got {texts or 'none'}. Write train=0.8,validation=0.1,test=0.1."
        )

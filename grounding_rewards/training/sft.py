"""TRL's `SFTTrainer` for models that learn to write boxes: the warm start before GRPO.

The completion is the row's own ground truth in the model's box format, so a model that learns it earns the full reward.
Images and answers are augmented again in every epoch; the augmentation of an image depends on the seed, the epoch and
its row number alone: not on the order of the images, the number of processes, or where a run was resumed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from datasets import Dataset
from PIL import ImageStat
from trl import SFTConfig, SFTTrainer

from grounding_rewards.boxes import as_box_array, box_area
from grounding_rewards.data.prompts import gold_answer
from grounding_rewards.images.resize import has_resized_size, resized_size
from grounding_rewards.models.robustness import MIN_VISIBLE
from grounding_rewards.parsing import BoxFormat
from grounding_rewards.rewards.grounding import get_reward
from grounding_rewards.training.card import RunCard
from grounding_rewards.training.dataset import format_name, prepare_examples
from grounding_rewards.training.model import loading_kwargs, model_format
from grounding_rewards.training.resume import ExactResume
from grounding_rewards.training.sharding import SharedWeights

if TYPE_CHECKING:
    from PIL.Image import Image

# The column that keeps the row number when rows are shuffled.
_ROW = "row_number"


@dataclass(eq=False)
class GoldAnswers:
    """Augments every image of a dataset when it is read, and writes the right answer to it.

    Attributes:
        processor: the model's; decides the resized size that boxes in resized pixels refer to.
        box_format: how the model writes boxes: a name, or what else `get_box_format` takes; None takes the column.
        crop: cut up to this fraction off each side at random.
        contrast: scale contrast and mean brightness by a random factor from 1 - contrast to 1 + contrast.
        box_margin: widen boxes on each side by this fraction of their width or height.
        box_noise: move each side by a normal error of this fraction of the box's width or height.
        seed: of the augmentation.
    """

    processor: Any
    box_format: str | Mapping[str, Any] | BoxFormat | None = None
    _: KW_ONLY
    crop: float = 0.0
    contrast: float = 0.0
    box_margin: float = 0.0
    box_noise: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        # The workers of a loader get a copy of this object, but share this number.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def of(self, dataset: Dataset) -> Dataset:
        """The dataset that TRL's SFTTrainer expects: this object augments and answers its rows when they are read.

        Args:
            dataset: columns prompt, image, boxes and labels; width and height, or those of the image.

        Returns:
            A dataset with prompt, image and completion.

        Raises:
            ValueError: a row has no `boxes`, but those of several readers.
        """
        # Without the column no row has boxes, and the error names the first one.
        boxes_of_rows = dataset["boxes"] if "boxes" in dataset.column_names else [None]
        for number, boxes in enumerate(boxes_of_rows):
            # A reward may compare with several readers, but there is one answer to learn.
            if boxes is None:
                raise ValueError(
                    f"Expected boxes in every row to write answers from, got none in row {number}. Make one reference "
                    "of its readers' boxes with `grounding-rewards prepare --readers`."
                )
        # The augmentation of an image depends on its row number, which the column keeps when rows are shuffled.
        numbered = dataset.add_column(_ROW, list(range(dataset.num_rows)))
        # From now on `datasets` calls this object with each batch of rows that is read.
        return numbered.with_transform(self)

    def start_epoch(self, epoch: int) -> None:
        """Augment as in this epoch, counted from 0."""
        self._epoch.fill_(epoch)

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """The columns prompt, image and completion of rows, which `datasets` hands over column by column."""
        rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
        examples = list(map(self._example, rows))
        return {name: [example[name] for example in examples] for name in ("prompt", "image", "completion")}

    def _example(self, row: dict[str, Any]) -> dict[str, Any]:
        """Augment one row and return its prompt, image and completion."""
        # The same numbers on every process and after resuming, and others in each epoch.
        rng = np.random.default_rng([self.seed, int(self._epoch), row[_ROW]])
        if row.get("width") is None or row.get("height") is None:
            row = {**row, "width": row["image"].width, "height": row["image"].height}
        if self.crop:
            # The fractions of the width and height that are cut off, and as pixels.
            cuts = rng.uniform(0.0, self.crop, 4)
            width, height = row["width"], row["height"]
            left, top, right, bottom = (int(cut * side) for cut, side in zip(cuts, (width, height) * 2, strict=True))
            row = crop_row(row, (left, top, width - right, height - bottom))
        if self.contrast:
            row = {**row, "image": _change_contrast(row["image"], rng, self.contrast)}
        if self.box_margin or self.box_noise:
            row = {**row, "boxes": _draw_loosely(row, rng, self.box_margin, self.box_noise)}
        if has_resized_size(self.processor):
            # Boxes in resized pixels refer to the size to which the processor brings the stored image. That image may
            # already be smaller than the original.
            resized_width, resized_height = resized_size(self.processor, *row["image"].size)
            row = {**row, "resized_width": resized_width, "resized_height": resized_height}
        answer = gold_answer(row, self.box_format or row["box_format"])
        completion = [{"role": "assistant", "content": answer}]
        return {"prompt": row["prompt"], "image": row["image"], "completion": completion}


def crop_row(row: dict[str, Any], window: tuple[int, int, int, int]) -> dict[str, Any]:
    """Cut a window out of a row's image; boxes are moved and clipped, or dropped if less than half of one is left.

    Args:
        row: image, boxes, labels, width and height. The image may be smaller than width × height (shrunken).
        window: x1, y1, x2, y2 in pixels of the original image.

    Returns:
        The row with these five columns replaced.

    >>> from PIL import Image
    >>> image = {"image": Image.new("L", (100, 80)), "width": 100, "height": 80, "labels": ["mass", "tube"]}
    >>> cut = crop_row({**image, "boxes": [[10, 10, 50, 50], [0, 0, 12, 12]]}, (10, 10, 90, 80))
    >>> cut["boxes"], cut["labels"], cut["image"].size
    ([[0.0, 0.0, 40.0, 40.0]], ['mass'], (80, 70))
    """
    x1, y1, x2, y2 = window
    image = row["image"]
    # From pixels of the original image to those of the stored one.
    scale_x, scale_y = image.width / row["width"], image.height / row["height"]
    boxes = as_box_array(row["boxes"])
    # Clipped to the window, then counted from its upper left corner.
    moved_boxes = np.clip(boxes, (x1, y1, x1, y1), (x2, y2, x2, y2)) - (x1, y1, x1, y1)
    visible = np.flatnonzero(box_area(moved_boxes) >= MIN_VISIBLE * box_area(boxes))
    labels = row.get("labels")
    return {
        **row,
        "image": image.crop((round(x1 * scale_x), round(y1 * scale_y), round(x2 * scale_x), round(y2 * scale_y))),
        "boxes": moved_boxes[visible].tolist(),
        "labels": None if labels is None else [labels[index] for index in visible],
        "width": x2 - x1,
        "height": y2 - y1,
    }


def _draw_loosely(row: dict[str, Any], rng: np.random.Generator, margin: float, noise: float) -> list[list[float]]:
    """The boxes of a row with each side moved outwards by `margin` plus a normal error of standard deviation `noise`.

    Both are fractions of the box's width for its left and right side, of its height for the others.
    """
    boxes = as_box_array(row["boxes"])
    # Negative is inwards: at most a third from either side, so that x1 < x2 and y1 < y2.
    outwards = np.maximum(margin + rng.normal(0.0, noise, boxes.shape), -1 / 3)
    lengths = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    # Outwards is down for x1 and y1, and up for x2 and y2.
    moved_boxes = boxes + outwards * lengths * (-1, -1, 1, 1)
    return np.clip(moved_boxes, 0.0, np.tile((row["width"], row["height"]), 2)).tolist()


def _change_contrast(image: Image, rng: np.random.Generator, contrast: float) -> Image:
    """Scale brightness and contrast of an image by two random factors from 1 - contrast to 1 + contrast."""
    brightness, spread = rng.uniform(1.0 - contrast, 1.0 + contrast, 2)
    mean = np.mean(ImageStat.Stat(image).mean)
    # The new value of each value of a pixel from 0 to 255: `brightness` moves the mean, `spread` scales around it.
    table = mean * brightness + (np.arange(256) - mean) * spread
    # Pillow expects one table for each band of the image; all have the same.
    return image.point(np.clip(np.rint(table), 0, 255).astype(int).tolist() * len(image.getbands()))


class GroundingSFTTrainer(RunCard, ExactResume, SharedWeights, SFTTrainer):
    """`SFTTrainer` that writes the answers itself.

    Before the model is loaded every row is checked as before GRPO
    (`grounding_rewards.training.dataset.prepare_examples`). No text is cut: its end is the answer. A resumed
    run equals an uninterrupted one (`grounding_rewards.training.resume`).

    Args:
        model: name or folder of a model.
        args: TRL's configuration; `max_length` and `remove_unused_columns` are switched off.
        train_dataset: dataset with the package's columns.
        eval_dataset: one more, which is not augmented.
        processing_class: the model's processor.
        box_format: how the model writes boxes: a name, or what else `get_box_format` takes; None takes the column
            `box_format`, or what models of this `model_type` write.
        augmentation: `crop`, `contrast`, `box_margin` and `box_noise` of :class:`GoldAnswers`.
        bad_rows: `refuse` rows that fail their check, or `drop` them, which a warning says.
        **kwargs: handed on to `SFTTrainer`.

    Raises:
        ValueError: rows that fail their check.
    """

    method = "supervised fine-tuning"

    def __init__(
        self,
        model: str,
        args: SFTConfig,
        train_dataset: Dataset,
        eval_dataset: Dataset | None = None,
        processing_class: Any = None,
        *,
        box_format: str | Mapping[str, Any] | BoxFormat | None = None,
        augmentation: Mapping[str, float] | None = None,
        bad_rows: str = "refuse",
        **kwargs: Any,
    ) -> None:
        # The check of a row scores its own answer, and refuses the row if that does not earn the full reward. Training
        # needs no reward, so that any of ours will do.
        reward = get_reward("R3", box_format=box_format)
        args = copy.copy(args)
        # TRL would cut the end of longer texts, which is the answer, and drop the columns that it is written from.
        args.max_length = None
        args.remove_unused_columns = False
        prepare = partial(
            prepare_examples,
            rewards=[reward],
            processor=processing_class,
            box_format=box_format,
            model_format=lambda: model_format(model, loading_kwargs(args)),
            bad_rows=bad_rows,
            image_columns=("image",),
        )
        seed = args.data_seed if args.data_seed is not None else args.seed
        # The first process prepares before the others, which find its results in the cache.
        with args.main_process_first(desc="checking images"):
            images = prepare(train_dataset, name="train_dataset")
            if eval_dataset is not None:
                eval_images = prepare(eval_dataset, name="eval_dataset")
                eval_dataset = GoldAnswers(processing_class, reward.box_format).of(eval_images)
        self._answers = GoldAnswers(processing_class, reward.box_format, seed=seed, **(augmentation or {}))
        super().__init__(
            model=model,
            args=args,
            train_dataset=self._answers.of(images),
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            **kwargs,
        )
        self.box_format_name = format_name(reward.box_format, images)

    def start_epoch(self, epoch: int) -> None:
        """Augment with the random numbers of this epoch."""
        self._answers.start_epoch(epoch)

"""Supervised cold start: a model learns to write boxes in its own format before GRPO sharpens them.

The dataset has the package's columns. The completion is the row's own ground truth in the model's box format, so a
model that learns it earns the full reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import yaml
from PIL import ImageStat
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import SFTConfig, SFTTrainer, TrlParser

from grounding_rewards.boxes import as_box_array, box_area
from grounding_rewards.data.load import load_split
from grounding_rewards.data.prompts import gold_answer
from grounding_rewards.data.resize import has_resized_size, resized_size
from grounding_rewards.parsing import BoxFormat, box_format_for_model_type, box_format_from_option
from grounding_rewards.training.arguments import BOX_FORMAT_HELP, check_choices, check_types
from grounding_rewards.training.run import resolved_config

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image

_DESCRIPTION = """\
Teach a vision-language model to write boxes, with TRL's SFTTrainer: the cold start that GRPO needs.

  python scripts/train_sft.py --config configs/demo/sft.yaml
  python scripts/train_sft.py --config configs/demo/sft.yaml --max_steps 100 --output_dir runs/try

Every value of the YAML file can be overridden on the command line; beside the options below these are the options of
TRL's SFTConfig under their own names. The model, its processor and the resolved config.yaml are left in `output_dir`.
"""

_SAVE_DTYPES = ("float32", "float16", "bfloat16")

# A box of which less is left inside a crop is no longer a finding that can be seen.
_MIN_VISIBLE = 0.5


@dataclass
class SupervisedArguments:
    """Model, films and augmentation of a cold start; see `--help` for each.

    Raises:
        ValueError: A value has the wrong type or is none of the legal ones; lists what is legal.
    """

    model: str = field(metadata={"help": "Folder or hub name of the model to start from."})
    dataset: str = field(
        default="synthetic",
        metadata={"help": "`synthetic` for drawn films, a folder with annotations.jsonl, or a saved or hub dataset."},
    )
    train_split: str = field(default="train", metadata={"help": "Split to train on."})
    train_films: int | None = field(
        default=None, metadata={"help": "Train on the first so many films; all when left out."}
    )
    box_format: dict | str | None = field(default=None, metadata={"help": BOX_FORMAT_HELP})
    crop: float = field(
        default=0.0, metadata={"help": "Cut up to this fraction off each side at random; the boxes move along."}
    )
    contrast: float = field(
        default=0.0, metadata={"help": "Scale contrast and mean brightness at random by up to this fraction."}
    )
    box_margin: float = field(
        default=0.0,
        metadata={"help": "Widen boxes on each side by this fraction of their size: boxes as they are drawn loosely."},
    )
    box_noise: float = field(
        default=0.0,
        metadata={
            "help": "Move each side of a box by a normal error of this fraction of the box's own size, anew each time: "
            "boxes as several less careful readers draw them."
        },
    )
    save_dtype: str = field(
        default="float32", metadata={"help": f"Type of the saved weights: {', '.join(_SAVE_DTYPES)}."}
    )

    def __post_init__(self) -> None:
        self.box_format = box_format_from_option(self.box_format)
        check_types(self)
        check_choices(self, {"save_dtype": _SAVE_DTYPES})
        for name in ("crop", "contrast", "box_margin", "box_noise"):
            value = getattr(self, name)
            if not 0.0 <= value < 0.5:
                raise ValueError(f"Expected a fraction from 0 to below 0.5 for {name}, got {value}. Use 0 for none.")
        if self.train_films is not None and self.train_films < 1:
            raise ValueError(
                f"Expected a positive number for train_films, got {self.train_films}. Leave it out for all."
            )


@dataclass
class SupervisedConfig(SFTConfig):
    """TRL's `SFTConfig`, with types checked, and without the columns being dropped that the answers are made of."""

    remove_unused_columns: bool = False

    def __post_init__(self) -> None:
        check_types(self)
        if self.remove_unused_columns:
            raise ValueError(
                "Expected false for remove_unused_columns, got True. The answers are written from boxes and labels."
            )
        super().__post_init__()


def parse_sft_arguments(args: Sequence[str] | None = None) -> tuple[SupervisedArguments, SupervisedConfig]:
    """Read `--config` and the options after it, which override it.

    Args:
        args: The command line without the program's name; that of the process when left out.

    Raises:
        ValueError: A key of the YAML file is unknown, or a value has the wrong type or is none of the legal ones.
    """
    parser = TrlParser((SupervisedArguments, SupervisedConfig), description=_DESCRIPTION)
    arguments, config = parser.parse_args_and_config(args)
    return arguments, config


def train_supervised(arguments: SupervisedArguments, config: SupervisedConfig) -> SFTTrainer:
    """Train, and leave the model, its processor and `config.yaml` in `config.output_dir`.

    Args:
        arguments: Model, films and augmentation.
        config: TRL's configuration.

    Returns:
        The trainer after training; its model holds float32 weights whatever was saved.

    Raises:
        ValueError: The films cannot be loaded, or no box format is known for the model.
    """
    folder = Path(config.output_dir)
    processor = AutoProcessor.from_pretrained(arguments.model)
    model = AutoModelForImageTextToText.from_pretrained(arguments.model, dtype=torch.float32)
    box_format = arguments.box_format or box_format_for_model_type(model.config.model_type)
    films = load_split(arguments.dataset, arguments.train_split, films=arguments.train_films)
    trainer = SFTTrainer(
        model=model,
        args=config,
        processing_class=processor,
        train_dataset=with_answers(
            films,
            processor,
            box_format,
            crop=arguments.crop,
            contrast=arguments.contrast,
            box_margin=arguments.box_margin,
            box_noise=arguments.box_noise,
            seed=config.data_seed if config.data_seed is not None else config.seed,
        ),
    )
    trainer.train(resume_from_checkpoint=config.resume_from_checkpoint)
    if trainer.is_world_process_zero():
        folder.mkdir(parents=True, exist_ok=True)
        config_text = yaml.safe_dump(resolved_config(arguments, config), sort_keys=True)
        (folder / "config.yaml").write_text(config_text, encoding="utf-8")
        save_model(trainer.accelerator.unwrap_model(trainer.model), processor, folder, arguments.save_dtype)
    return trainer


def save_model(model: Any, processor: Any, folder: str | Path, save_dtype: str = "float32") -> None:
    """Write model and processor to a folder that `from_pretrained` reads.

    Args:
        model: A model with float32 weights, which it keeps.
        processor: Its processor.
        folder: Made if need be.
        save_dtype: Type of the weights in the file.
    """
    processor.save_pretrained(folder)
    model.to(getattr(torch, save_dtype)).save_pretrained(folder)
    model.to(torch.float32)


def with_answers(
    dataset: Dataset,
    processor: Any,
    box_format: str | Mapping[str, Any] | BoxFormat,
    *,
    crop: float = 0.0,
    contrast: float = 0.0,
    box_margin: float = 0.0,
    box_noise: float = 0.0,
    seed: int = 0,
) -> Dataset:
    """The dataset as TRL's SFTTrainer takes it, each film augmented anew whenever it is read.

    Args:
        dataset: Columns prompt, image, boxes, labels, width and height.
        processor: The model's; decides the resized size that boxes in resized pixels refer to.
        box_format: How the model writes boxes: a name, or what else `get_box_format` takes.
        crop: Cut up to this fraction off each side at random.
        contrast: Scale contrast and mean brightness by a random factor from 1 - contrast to 1 + contrast.
        box_margin: Widen boxes on each side by this fraction of their width or height.
        box_noise: Move each side by a normal error of this fraction of the box's width or height.
        seed: Of the augmentation.

    Returns:
        Rows with prompt, image and completion.
    """
    rng = np.random.default_rng(seed)

    def write(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
        if crop:
            rows = [_crop_at_random(row, rng, crop) for row in rows]
        if contrast:
            rows = [{**row, "image": _change_contrast(row["image"], rng, contrast)} for row in rows]
        if box_margin or box_noise:
            rows = [{**row, "boxes": _draw_loosely(row, rng, box_margin, box_noise)} for row in rows]
        return {
            "prompt": [row["prompt"] for row in rows],
            "image": [row["image"] for row in rows],
            "completion": [
                [{"role": "assistant", "content": gold_answer(_with_resized_size(row, processor), box_format)}]
                for row in rows
            ],
        }

    return dataset.with_transform(write)


def crop_row(row: dict[str, Any], window: tuple[int, int, int, int]) -> dict[str, Any]:
    """Cut a window out of a film; boxes move along and are clipped, those of which less than half is left are dropped.

    Args:
        row: image, boxes, labels, width and height. The image may be smaller than width × height (shrunken).
        window: x1, y1, x2, y2 in pixels of the original film.

    Returns:
        The row with these five columns replaced.

    >>> from PIL import Image
    >>> film = {"image": Image.new("L", (100, 80)), "width": 100, "height": 80, "labels": ["mass", "tube"]}
    >>> cut = crop_row({**film, "boxes": [[10, 10, 50, 50], [0, 0, 12, 12]]}, (10, 10, 90, 80))
    >>> cut["boxes"], cut["labels"], cut["image"].size
    ([[0.0, 0.0, 40.0, 40.0]], ['mass'], (80, 70))
    """
    x1, y1, x2, y2 = window
    image = row["image"]
    sx, sy = image.width / row["width"], image.height / row["height"]
    boxes = as_box_array(row["boxes"])
    moved = np.clip(boxes, (x1, y1, x1, y1), (x2, y2, x2, y2)) - (x1, y1, x1, y1)
    kept = np.flatnonzero(box_area(moved) >= _MIN_VISIBLE * box_area(boxes))
    return {
        **row,
        "image": image.crop((round(x1 * sx), round(y1 * sy), round(x2 * sx), round(y2 * sy))),
        "boxes": moved[kept].tolist(),
        "labels": [row["labels"][index] for index in kept],
        "width": x2 - x1,
        "height": y2 - y1,
    }


def _crop_at_random(row: dict[str, Any], rng: np.random.Generator, crop: float) -> dict[str, Any]:
    left, top, right, bottom = rng.uniform(0.0, crop, 4)
    width, height = row["width"], row["height"]
    window = (int(left * width), int(top * height), width - int(right * width), height - int(bottom * height))
    return crop_row(row, window)


def _draw_loosely(row: dict[str, Any], rng: np.random.Generator, margin: float, noise: float) -> list[list[float]]:
    boxes = as_box_array(row["boxes"])
    # At most a third inwards from either side, so that no box turns inside out.
    outwards = np.maximum(margin + rng.normal(0.0, noise, boxes.shape), -1 / 3)
    sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    moved = boxes + outwards * sides * (-1, -1, 1, 1)
    return np.clip(moved, 0.0, np.tile((row["width"], row["height"]), 2)).tolist()


def _change_contrast(image: Image, rng: np.random.Generator, contrast: float) -> Image:
    brightness, spread = rng.uniform(1.0 - contrast, 1.0 + contrast, 2)
    mean = np.mean(ImageStat.Stat(image).mean)
    # p' = mean * brightness + (p - mean) * spread
    table = mean * brightness + (np.arange(256) - mean) * spread
    return image.point(np.clip(np.rint(table), 0, 255).astype(int).tolist() * len(image.getbands()))


def _with_resized_size(row: dict[str, Any], processor: Any) -> dict[str, Any]:
    if not has_resized_size(processor):
        return row
    # Of the image that is fed, which may be smaller than the film that the boxes were drawn on.
    resized_width, resized_height = resized_size(processor, *row["image"].size)
    return {**row, "resized_width": resized_width, "resized_height": resized_height}

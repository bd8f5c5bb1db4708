"""The options of `grounding-rewards evaluate`: what they are, which exclude each other, and what was asked for."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from grounding_rewards.commands.options import (
    AllowOutside,
    Backend,
    BadRows,
    BoxFormat,
    Join,
    LabelMatching,
    MaxImages,
    Pixels,
    Reward,
    RewardKwargs,
    Shard,
    TextColumn,
    share_of,
    within,
)
from grounding_rewards.common.reuse import begun_otherwise
from grounding_rewards.metrics.average_precision import AP_THRESHOLDS
from grounding_rewards.metrics.evaluation import BAND_RESAMPLES, Measures, evaluation_file, read_evaluation

#: As --train-split: no images for the constant box.
NO_SPLIT = "none"
# Where and by how many it is done, and what is shown of it, changes nothing about what is evaluated.
_NOT_ASKED = ("out", "overwrite", "shard", "join", "all_metrics", "csv")


@Parameter(name="*")
@dataclass(kw_only=True)
class EvaluateOptions:
    """What is evaluated, on which images, how a model is asked, and how its answers are measured.

    Args:
        out: folder to write
        model: folder or name of a checkpoint or of a saved adapter
        completions: files or folders with completions
        dataset: `synthetic`, a folder of images, or a name on the hub
        split: of the dataset
        train_split: the constant box is its median box of each label; `none`: that of the images themselves
        overwrite: write also where the folder has another evaluation, or other answers
        label_matching: whether a box is right only under the finding's label; mAP always is by label
        nms: leave out boxes that overlap a higher-scoring one of their label by more than this IoU
        interpolation: of average precision: over all recalls (VOC since 2010), at 101 (COCO) or at 11 (VOC before)
        iou: thresholds of average precision, beside the mean over 0.5 to 0.95
        sizes: of boxes, as parts of the image's area, or COCO's in pixels
        resamples: of the bands around curves
        seed: of intervals, samples and attacks
        samples: so many sampled answers to each image beside the greedy one
        temperature: of the samples
        max_new_tokens: of an answer
        batch_size: images that are asked about together
        max_image_pixels: largest image that the model sees; default: what the processor of the model was saved with
        robustness: change the images: `corruptions`, `pgd` or both; each image is asked about 41 and 5 times
        robustness_images: the first so many
        all_metrics: print every metric, not the twelve that are asked for first
        csv: also write per_class.csv and per_image.csv
    """

    out: Path
    model: str | None = None
    completions: Sequence[Path] = ()
    dataset: str | None = None
    split: str = "test"
    max_images: MaxImages = None
    bad_rows: BadRows = "refuse"
    train_split: str = "train"
    text_column: TextColumn = None
    width: Pixels = None
    height: Pixels = None
    allow_outside: AllowOutside = False
    overwrite: bool = False
    box_format: BoxFormat = None
    reward: Reward = "R4"
    reward_kwargs: RewardKwargs = None
    label_matching: LabelMatching = "ignore"
    nms: Annotated[float | None, within(0, 1)] = None
    interpolation: Literal["all", "101", "11"] = "101"
    iou: tuple[float, ...] = AP_THRESHOLDS
    sizes: Literal["image", "coco"] = "image"
    resamples: Annotated[int, within(1)] = BAND_RESAMPLES
    seed: Annotated[int, within(0)] = 0
    samples: Annotated[int, within(0)] = 0
    temperature: Annotated[float, within(above=True)] = 1.0
    max_new_tokens: Annotated[int, within(1)] = 256
    batch_size: Annotated[int, within(1)] = 32
    max_image_pixels: Annotated[int | None, within(1)] = None
    backend: Backend = "transformers"
    shard: Shard = None
    join: Join = False
    robustness: Annotated[tuple[Literal["corruptions", "pgd"], ...], Parameter(consume_multiple=True)] = ()
    robustness_images: Annotated[int, within(1)] = 100
    all_metrics: Annotated[bool, Parameter(name="--all")] = False
    csv: bool = False

    def check(self) -> None:
        """Refuse what cannot be right before a model is loaded, or a log is read.

        Raises:
            ValueError: options exclude each other, a value is out of range, or `--out` has another evaluation.
        """
        if (self.model is None) == (not self.completions):
            raise ValueError(
                f"Expected --model or --completions, got {'both' if self.completions else 'neither'}. Name one of them."
            )
        if self.model is not None and self.dataset is None:
            raise ValueError("Expected images for --dataset, got none. A model needs images to look at; name some.")
        if self.model is None:
            for option in ("robustness", "max_image_pixels", "shard", "join"):
                if getattr(self, option):
                    raise ValueError(
                        f"Expected a model for --{option.replace('_', '-')}, got a log of completions. Leave it out."
                    )
        if self.robustness and self.backend == "vllm":
            raise ValueError(
                "Expected transformers for --backend beside --robustness, got vllm. Attacks need gradients, and "
                "changed images are asked about by transformers: leave --backend out."
            )
        share_of(self.shard, self.join)
        if self.overwrite and self.shard is not None:
            raise ValueError(
                "Expected --shard without --overwrite, got both. A share would remove the answers of another one: "
                "remove the files of the folder before the array is started."
            )
        # Raises for wrong values now, not after hours of generation.
        self.measures(self.reward)
        if self.out.exists() and not self.out.is_dir():
            raise ValueError(f"Expected a folder for --out, got the file {str(self.out)!r}. Give another name.")
        self._check_folder()

    def _check_folder(self) -> None:
        """Refuse a folder that has the evaluation of something else: it would be lost."""
        taken = [name for name in ("evaluation.json", "images.jsonl", "report.html") if (self.out / name).exists()]
        if self.overwrite or not taken:
            return
        before = read_evaluation(self.out).command if evaluation_file(self.out).is_file() else None
        if before != (asked := self.command()):
            found = f"{taken[0]} of another one" if before is None else f"`evaluate {before}`"
            remedy = "Name another folder, or replace what is there with --overwrite."
            raise begun_otherwise(self.out, [f"`evaluate {asked}` instead of {found}"], remedy)

    def command(self) -> str:
        """What was asked for: the options that are not at their defaults, without where it is written."""
        words = []
        for one in fields(self):
            value: Any = getattr(self, one.name)
            if one.name not in _NOT_ASKED and value != (None if one.default is MISSING else one.default):
                given = [] if value is True else value if isinstance(value, list | tuple) else [value]
                words += [f"--{one.name.replace('_', '-')}", *map(str, given)]
        return shlex.join(words)

    def measures(self, reward: str) -> Measures:
        """How the options say to measure.

        Raises:
            ValueError: a value is out of range.
        """
        iou = tuple(dict.fromkeys(self.iou))
        return Measures(reward, self.label_matching, self.interpolation, iou, self.sizes, self.resamples, self.seed)

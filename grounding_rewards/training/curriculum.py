"""A curriculum: easy images first, the others as the training goes on.

The training is cut into stages of equal length. Stage k of S draws from the easiest k/S of the images with findings and
from k/S of the images without any, so that the share of such images is the same in every stage, and the last stage
draws from all images, as a training without a curriculum does.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray
from transformers import TrainerCallback

from grounding_rewards.columns import read_references, with_ground_truth
from grounding_rewards.common.validation import SHARE, Interval
from grounding_rewards.data.checks import bad_rows_error, rows_with_sizes
from grounding_rewards.logs.read import read_blocks
from grounding_rewards.training.extras import Extra, Setup
from grounding_rewards.training.option_values import check_options
from grounding_rewards.training.training_images import batches_of_draw, images_of_draw

_BY = ("boxes", "area", "pass_rate")
_PASS_RATE = "pass_rate"


@dataclass(frozen=True, kw_only=True)
class Curriculum(Extra):
    """What makes an image difficult, and how many stages there are.

    Attributes:
        by: ``boxes``, images with fewer findings are easier; ``area``, those whose smallest one is larger are;
            ``pass_rate``, those on which a model was measured to be right more often.
        stages: how many, 2 or more.
        column: for ``pass_rate``: the column with shares from 0 to 1, of the dataset or of ``file``.
        file: for ``pass_rate``: a log with ``id`` and that column, one row or more for each image, whose mean counts.

    Raises:
        ValueError: a value is not legal, or belongs to another kind.
    """

    name = "curriculum"
    example = "{by: boxes, stages: 3}"

    by: str = "boxes"
    stages: int = 3
    column: str = _PASS_RATE
    file: str | None = None

    def __post_init__(self) -> None:
        check_options(self, {"stages": Interval(2)}, {"by": _BY}, self.name)
        if self.by != _PASS_RATE and (self.column, self.file) != (_PASS_RATE, None):
            raise ValueError(
                f"Expected by: {_PASS_RATE} beside column and file of curriculum, got by: {self.by}. Leave them out."
            )

    def begin(self, setup: Setup) -> None:
        """Draw images by stages, and log the stage of each step.

        Raises:
            ValueError: the first stage has too few images, or as :func:`entering_stages`.
        """
        images, args = setup.train_dataset, setup.args
        if images is None:
            return
        of_draw = images_of_draw(args)
        # How often the training generates completions.
        draws = args.num_train_epochs * (images.num_rows // of_draw)
        if args.max_steps > 0:
            draws = args.max_steps * args.gradient_accumulation_steps / batches_of_draw(args)
        seed = args.seed if args.shuffle_dataset else None
        entering = entering_stages(images, self, args.seed)
        stages = Stages(entering, self.stages, of_draw, max(math.ceil(draws), 1), seed)
        setup.drawn = stages.drawn
        setup.afterwards.append(lambda trainer: trainer.add_callback(_LogsStage(trainer, stages)))


class _LogsStage(TrainerCallback):
    def __init__(self, trainer: Any, stages: Stages) -> None:
        self.trainer, self.stages = trainer, stages

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        stage = self.stages.stage(state.global_step * args.gradient_accumulation_steps // batches_of_draw(args))
        self.trainer._metrics["train"]["curriculum/stage"].append(float(stage + 1))


def entering_stages(dataset: Dataset, curriculum: Curriculum, seed: int) -> NDArray[np.int64]:
    """The stage, from 0, from which on each image is drawn.

    Images of the same difficulty come in an order of chance. Those without findings have none of their own, unless it
    is measured, and are dealt out by chance.

    Args:
        dataset: rows with the package's columns.
        curriculum: what is difficult.
        seed: of the order of chance.

    Returns:
        ``(images,)``, 0 to stages − 1.

    Raises:
        ValueError: an image lacks its pass rate, or it is no share.

    >>> box = [0, 0, 9, 9]
    >>> images = Dataset.from_dict({"boxes": [[box] * 3, [box], []], "width": [9] * 3, "height": [9] * 3})
    >>> entering_stages(images, Curriculum(by="boxes", stages=2), seed=0).tolist()
    [1, 0, 0]
    """
    rows = list(rows_with_sizes(dataset))
    columns = with_ground_truth({name: [row.get(name) for row in rows] for name in rows[0]}, len(rows))
    references = read_references(columns, len(rows), labelled=False)
    owners = np.arange(len(rows)) if references.rows is None else references.rows
    counts = references.boxes.counts
    positive = np.bincount(owners, weights=counts) > 0
    by_chance = np.random.default_rng(seed).permutation(len(rows)).astype(np.float64)
    if curriculum.by == "pass_rate":
        difficulty = -_pass_rates(rows, curriculum)
    elif curriculum.by == "boxes":
        difficulty = np.bincount(owners, weights=counts) / np.bincount(owners)
    else:
        difficulty = -_areas(columns, references.boxes.flat, np.repeat(owners, counts))
    if curriculum.by != "pass_rate":
        difficulty = np.where(positive, difficulty, 0.0)
    entering = np.empty(len(rows), dtype=np.int64)
    for part in (np.flatnonzero(positive), np.flatnonzero(~positive)):
        order = part[np.lexsort((by_chance[part], difficulty[part]))]
        # Equal parts, the first the larger where they cannot be: image i of n enters with stage ⌊i S / n⌋.
        entering[order] = np.arange(len(part)) * curriculum.stages // max(len(part), 1)
    return entering


def _areas(columns: Mapping[str, Any], boxes: NDArray[np.float64], owners: NDArray[np.intp]) -> NDArray[np.float64]:
    """The area of the smallest box of each image, as a share of the image's; 0 without boxes."""
    images = np.asarray(columns["width"], dtype=np.float64) * np.asarray(columns["height"], dtype=np.float64)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) / images[owners]
    smallest = np.full(len(images), np.inf)
    np.minimum.at(smallest, owners, areas)
    return np.where(np.isinf(smallest), 0.0, smallest)


def _pass_rates(rows: Sequence[Mapping[str, Any]], curriculum: Curriculum) -> NDArray[np.float64]:
    column, file = curriculum.column, curriculum.file
    found = [row.get(column) for row in rows]
    remedy = f"Add the column {column}, or name a file with it: file: rates.jsonl"
    if file is not None:
        rates: dict[str, list[float]] = defaultdict(list)
        for block in read_blocks(Path(file)):
            for number, row in block.rows():
                if row.get("id") is None or row.get(column) not in SHARE:
                    raise ValueError(
                        f"Expected an id and a share from 0 to 1 as {column} in {block.place(number)}, got "
                        f"{row!r:.200}. Correct it, or name another `column` of curriculum."
                    )
                rates[str(row["id"])].append(float(row[column]))
        means = {name: sum(measured) / len(measured) for name, measured in rates.items()}
        found = [means.get(str(row.get("id"))) for row in rows]
        remedy = f"Measure these images too, or leave them out; images are found in {file} by id"
    if wrong := {k: [f"{column} {rate!r}"] for k, rate in enumerate(found) if rate not in SHARE}:
        ids = [row.get("id", "-") for row in rows]
        raise bad_rows_error(wrong, ids, f"a share from 0 to 1 as {column}", "train_dataset", remedy)
    return np.array(found, dtype=np.float64)


@dataclass(frozen=True)
class Stages:
    """Which images each draw of a training has: a pure function of its number, so that nothing has to be restored.

    Attributes:
        entering: the stage from which on each image is drawn, ``(images,)`` from 0.
        stages: how many there are.
        images: of one draw, all different.
        draws: of the whole training.
        seed: of the order within a stage; None for the order of the dataset.
    """

    entering: NDArray[np.int64]
    stages: int
    images: int
    draws: int
    seed: int | None

    def __post_init__(self) -> None:
        first = int((self.entering == 0).sum())
        if first < self.images:
            raise ValueError(
                f"Expected at least {self.images} images for the first of {self.stages} stages of curriculum, as many "
                f"as one step generates answers to, got {first}. Lower `stages`, add images, or make batches smaller."
            )

    def stage(self, draw: int) -> int:
        """The stage of a draw, from 0; after the last draw the last stage goes on."""
        return min(draw * self.stages // self.draws, self.stages - 1)

    def drawn(self, draw: int) -> list[int]:
        """The images of a draw: passes through those of the stage, each in another order."""
        stage = self.stage(draw)
        # the first draw of the stage
        begin = -(-stage * self.draws // self.stages)
        pool = np.flatnonzero(self.entering <= stage)
        number, place = divmod(draw - begin, len(pool) // self.images)
        if self.seed is not None:
            pool = np.random.default_rng((self.seed, stage, number)).permutation(pool)
        return pool[place * self.images :][: self.images].tolist()

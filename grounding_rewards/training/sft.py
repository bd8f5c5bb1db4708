"""TRL's `SFTTrainer` for models that learn to write boxes: the warm start before GRPO sharpens them.

The completion is the row's own ground truth in the model's box format, so a model that learns it earns the full reward.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from datasets import Dataset
from trl import SFTConfig, SFTTrainer

from grounding_rewards.data.checks import without_bad_rows
from grounding_rewards.parsing import BoxFormat
from grounding_rewards.rewards.grounding import get_reward
from grounding_rewards.training.card import RunCard
from grounding_rewards.training.gold_answers import GoldAnswers
from grounding_rewards.training.model import loading_kwargs, model_format
from grounding_rewards.training.resume import ExactResume
from grounding_rewards.training.training_images import answer_lengths, format_name, prepare_examples, prompt_lengths

# The checks need any reward that gives full marks to boxes that are read back.
_REWARD = "R3"


class GroundingSFTTrainer(RunCard, ExactResume, SFTTrainer):
    """`SFTTrainer` that writes the answers itself, and refuses images whose answer cannot be learned.

    Before the model is loaded every row is checked as before GRPO
    (`grounding_rewards.training.training_images.prepare_examples`), and against `max_length`. A resumed run equals an
    uninterrupted one (`grounding_rewards.training.resume`).

    Args:
        model: name or folder of a model.
        args: TRL's configuration; `remove_unused_columns` has to be false.
        train_dataset: dataset with the package's columns.
        eval_dataset: one more, which is not augmented.
        processing_class: the model's processor.
        box_format: how the model writes boxes: a name, or what else `get_box_format` takes; None takes the column
            `box_format`, or what models of this `model_type` write.
        augmentation: `crop`, `contrast`, `box_margin` and `box_noise` of :class:`GoldAnswers`.
        bad_rows: `refuse` rows that fail their check, or `drop` them, which a warning says.
        **kwargs: handed on to `SFTTrainer`.

    Raises:
        ValueError: rows that fail their check, or an answer that would be cut.
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
        reward = get_reward(_REWARD, box_format=box_format)

        def prepare(images: Dataset, name: str) -> Dataset:
            prepared = prepare_examples(
                images,
                [reward],
                processing_class,
                box_format=box_format,
                model_format=lambda: model_format(model, loading_kwargs(args)),
                name=name,
                bad_rows=bad_rows,
                image_columns=("image",),
            )
            return _whole_answers(prepared, reward.box_format, processing_class, args.max_length, name, bad_rows)

        seed = args.data_seed if args.data_seed is not None else args.seed
        with args.main_process_first(desc="checking images"):
            images = prepare(train_dataset, "train_dataset")
            if eval_dataset is not None:
                eval_dataset = GoldAnswers(processing_class, reward.box_format).of(
                    prepare(eval_dataset, "eval_dataset")
                )
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
        """Augment anew."""
        self._answers.start_epoch(epoch)


def _whole_answers(
    images: Dataset,
    box_format: str | BoxFormat | None,
    processor: Any,
    max_length: int | None,
    name: str,
    bad_rows: str,
) -> Dataset:
    """Refuse or drop texts longer than `max_length`: TRL would cut their end, which is the answer."""
    if max_length is None:
        return images
    answers = answer_lengths(images, box_format, processor.tokenizer)
    lengths = answers + prompt_lengths(images, processor)
    cut = np.flatnonzero(lengths > max_length)
    return without_bad_rows(
        images,
        {row: [f"{lengths[row]} tokens, {answers[row]} of them the answer"] for row in cut.tolist()},
        f"images whose prompt and answer fit into max_length {max_length}",
        name,
        bad_rows,
        f"Raise max_length to {lengths.max()}, lower max_image_pixels, leave max_length out",
    )

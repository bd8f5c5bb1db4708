"""A few evaluation images with the model's boxes, in the tracker of a training, every so many steps.

Images are patients' data: they leave the training for a tracker only where `show_images` asks for it, and then to this
machine's disk. TensorBoard writes there anyway; trackio does without a space; wandb does offline, which is set unless
the user has said by WANDB_MODE, or by a run of their own, where it writes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from datasets import Dataset
from transformers import TrainerCallback
from transformers.integrations import TensorBoardCallback
from trl.models.utils import unwrap_model_for_generation

from grounding_rewards.images.decoding import rows_without_images
from grounding_rewards.images.drawn_boxes import answer_picture
from grounding_rewards.metrics.answers import read_each
from grounding_rewards.models.generate import Sampling, generate, reads_special_tokens

#: Trackers that show images.
TRACKERS = ("tensorboard", "trackio", "wandb")

# Values of WANDB_MODE with which wandb sends nothing.
_NOT_SENDING = ("offline", "dryrun", "disabled")
# Of an answer where the trainer has no limit.
_MOST_TOKENS = 1024


def keep_images_here(trackers: Sequence[str], config: Any) -> list[str]:
    """Let no tracker send images to another machine; returns what a person should know about it.

    Args:
        trackers: as `report_to` names them.
        config: TRL's configuration.

    Raises:
        ValueError: no tracker shows images, or what they write would be uploaded.
    """
    shown = [name for name in TRACKERS if name in trackers]
    if not shown:
        raise ValueError(
            f"Expected some of {', '.join(TRACKERS)} for report_to beside show_images, got "
            f"{', '.join(trackers) or 'none'}. Name a tracker that shows images, or leave show_images out."
        )
    if config.push_to_hub:
        raise ValueError(
            "Expected push_to_hub: false beside show_images, got true. The whole folder of the run would be uploaded, "
            "with what trackers keep of the images: push checkpoint/ when the run is over."
        )
    notes = []
    space = config.trackio_space_id or os.environ.get("TRACKIO_SPACE_ID") or os.environ.get("TRACKIO_SERVER_URL")
    if "trackio" in shown and space:
        notes.append(f"Images are uploaded by trackio to {space}, as trackio_space_id or its environment says.")
    if "wandb" in shown:
        notes.append(_keep_wandb_offline())
    return notes


def _keep_wandb_offline() -> str:
    # A run can be open only where wandb is imported; that it is installed is checked later.
    if getattr(sys.modules.get("wandb"), "run", None) is not None:
        return "Images go where the open run of wandb goes."
    mode = os.environ.setdefault("WANDB_MODE", "offline")
    if mode not in _NOT_SENDING:
        return f"Images are uploaded by wandb, as WANDB_MODE={mode} says."
    return (
        f"wandb is {mode}, so that no image is uploaded: `wandb sync` would upload them, and WANDB_MODE=online at once."
    )


class ShownImages(TrainerCallback):
    """Lets the model answer a fixed set of images before the first step, every so many steps and after the last one.

    The answers are greedy, so that steps compare, and leave the random state of the training as it was: a run with
    shown images is the same run. Boxes are drawn in by outcome.

    Args:
        trainer: TRL's GRPO trainer, one of whose rewards is a grounding reward: the first of them reads the answers.
        images: rows that the trainer prepared.
        every: steps between two showings.
    """

    def __init__(self, trainer: Any, images: Dataset, every: int) -> None:
        self.trainer, self.images, self.every = trainer, images, every
        self.reward = trainer.step_rewards[0].final

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Show what the model answers before it is trained; a resumed run has shown it."""
        if state.global_step == 0:
            self._show(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Show the images every so many steps, and after the last one."""
        if state.global_step % self.every == 0 or state.global_step >= state.max_steps:
            self._show(state)

    def _show(self, state: Any) -> None:
        trainer = self.trainer
        keeps_tokens = reads_special_tokens(self.images, self.reward, trainer._tokenizer)
        limit = trainer.max_completion_length or _MOST_TOKENS
        sampling = Sampling(max_new_tokens=limit, skip_special_tokens=not keeps_tokens)
        # Of several processes all answer: where weights are shared between them, one alone would wait for ever.
        with unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model:
            texts = generate(model, trainer.processing_class, self.images, sampling, batch_size=len(self.images))
        if not state.is_world_process_zero:
            return
        answered = read_each(rows_without_images(self.images), [answers[0] for answers in texts], self.reward)
        matching = getattr(self.reward.box_reward, "label_matching", "ignore")
        pictures = {
            f"images/{k:02d}": answer_picture(one, row["image"], matching)
            for k, (one, row) in enumerate(zip(answered, self.images, strict=True), start=1)
        }
        for callback in trainer.callback_handler.callbacks:
            if isinstance(callback, TensorBoardCallback) and callback.tb_writer:
                for name, picture in pictures.items():
                    callback.tb_writer.add_image(name, picture, state.global_step, dataformats="HWC")
                callback.tb_writer.flush()
        for name in {"trackio", "wandb"}.intersection(trainer.args.report_to):
            tracker = import_module(name)
            shown = {key: tracker.Image(picture) for key, picture in pictures.items()}
            tracker.log({"train/global_step": state.global_step, **shown})

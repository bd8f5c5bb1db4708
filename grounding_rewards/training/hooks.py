"""What an extra of a GRPO training, such as `look_closer`, gets and may change; the trainer knows no extra."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from datasets import Dataset
from trl import GRPOConfig


@dataclass
class Setup:
    """The parts of a trainer, checked, before its model is loaded.

    Attributes:
        args: TRL's configuration, a copy.
        rewards: the reward functions, of which those on boxes have `details`.
        processor: the model's.
        train_dataset: prepared.
        options: further arguments of TRL's trainer.
        afterwards: called with the trainer when it is made.
    """

    args: GRPOConfig
    rewards: list[Any]
    processor: Any
    train_dataset: Dataset | None
    options: dict[str, Any]
    afterwards: list[Callable[[Any], None]] = field(default_factory=list)


class Extra:
    """Settings that change the set-up of a trainer.

    Attributes:
        full_images: whether rows keep the image at full resolution too, in the column `full_image`.
    """

    full_images: ClassVar[bool] = False

    def begin(self, setup: Setup) -> None:
        """Change the set-up in place, before the model is loaded; raise ValueError if the extra cannot work with it."""
        raise NotImplementedError

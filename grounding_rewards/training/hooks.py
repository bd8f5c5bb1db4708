"""Hooks for extras of a GRPO training: each is a separate module, which the trainer does not know."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from datasets import Dataset
from trl import GRPOConfig

from grounding_rewards.common.validation import check_keys


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
    """A dataclass of settings that changes the set-up of a trainer.

    Attributes:
        name: its option, for messages.
        example: how it is written in YAML, for messages.
        full_images: whether rows keep the image at full resolution too, in the column `full_image`.
    """

    name: ClassVar[str]
    example: ClassVar[str]
    full_images: ClassVar[bool] = False

    def begin(self, setup: Setup) -> None:
        """Refuse what cannot work before the model is loaded, and change the set-up."""
        raise NotImplementedError


_Kind = TypeVar("_Kind", bound=Extra)


def read_extra(kind: type[_Kind], settings: Any) -> _Kind | None:
    """The extra that an option describes: a mapping of its settings, or true for its defaults; None and false are none.

    Raises:
        ValueError: it is no mapping, has an unknown key, or a value is not legal.

    Example:
        >>> from grounding_rewards.training.look_closer import LookCloser
        >>> read_extra(LookCloser, {"cost": 0.02}).looks
        3
    """
    if settings is None or settings is False:
        return None
    settings = {} if settings is True else settings
    remedy = f"Write it like {kind.name}: {kind.example}."
    if not isinstance(settings, Mapping):
        raise ValueError(f"Expected a mapping for {kind.name}, got {settings!r:.200}. {remedy}")
    names = [option.name for option in dataclasses.fields(kind)]  # type: ignore[arg-type]
    check_keys(kind.name, settings, names, remedy)
    return kind(**settings)

"""`grounding-rewards train`: GRPO with a reward on boxes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

#: What a shell calls the end of a program that SIGTERM ended.
STOPPED = 128 + 15


def hush_old_names() -> None:
    """Leave out what transformers says of the older name of activation checkpointing, which TRL itself still uses."""
    warnings.filterwarnings("ignore", message=".*gradient_checkpointing", category=FutureWarning)


def run(words: Sequence[str]) -> int:
    """Train as the words after the command say; 143 where SIGTERM stopped the run before its end."""
    from grounding_rewards.training.arguments import parse_grpo_arguments
    from grounding_rewards.training.run import train_grpo, was_stopped

    hush_old_names()
    return STOPPED if was_stopped(train_grpo(*parse_grpo_arguments(words))) else 0

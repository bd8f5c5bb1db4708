"""`grounding-rewards train`: GRPO with a reward on boxes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

#: The exit code of a program that SIGTERM ended.
STOPPED = 128 + 15


def hide_name_warnings() -> None:
    """Hide the warning of transformers about the old name of activation checkpointing, which TRL still uses."""
    warnings.filterwarnings("ignore", message=".*gradient_checkpointing", category=FutureWarning)


def run(words: Sequence[str]) -> int:
    """Train with the options after the command; 143 if SIGTERM stopped the run before its end."""
    from grounding_rewards.training.arguments import parse_grpo_arguments
    from grounding_rewards.training.run import train_grpo, was_stopped

    hide_name_warnings()
    return STOPPED if was_stopped(train_grpo(*parse_grpo_arguments(words))) else 0

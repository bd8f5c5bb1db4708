"""`grounding-rewards train`: GRPO with a reward on boxes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

#: The exit code of a program that SIGTERM ended.
STOPPED = 128 + 15
DRY_RUN = ("--dry-run", "--dry_run")


def hide_name_warnings() -> None:
    """Hide the warning of transformers about the old name of activation checkpointing, which TRL still uses."""
    warnings.filterwarnings("ignore", message=".*gradient_checkpointing", category=FutureWarning)


def run(words: Sequence[str]) -> int:
    """Train with the options after the command; 143 if SIGTERM stopped the run before its end."""
    from grounding_rewards.training.arguments import parse_grpo_arguments
    from grounding_rewards.training.run import train_grpo

    return parse_and_train(words, parse_grpo_arguments, train_grpo)


def parse_and_train(words: Sequence[str], parse: Callable[..., Any], train: Callable[..., Any]) -> int:
    """Read the options and train; with `--dry-run` print every value of the run as YAML instead."""
    from grounding_rewards.training.run import was_stopped
    from grounding_rewards.training.run_folder import resolved_config

    hide_name_warnings()
    asked = [word for word in words if word not in DRY_RUN]
    parts = parse(asked)
    if len(asked) == len(words):
        return STOPPED if was_stopped(train(*parts)) else 0
    import yaml

    print(yaml.safe_dump(resolved_config(*parts), sort_keys=True), end="")
    return 0

"""`grounding-rewards sft`: the supervised warm start before GRPO."""

from __future__ import annotations

from collections.abc import Sequence

from grounding_rewards.commands.train import STOPPED, hide_name_warnings


def run(words: Sequence[str]) -> int:
    """Train with the options after the command; 143 if SIGTERM stopped the run before its end."""
    from grounding_rewards.training.arguments import parse_sft_arguments
    from grounding_rewards.training.run import train_supervised, was_stopped

    hide_name_warnings()
    return STOPPED if was_stopped(train_supervised(*parse_sft_arguments(words))) else 0

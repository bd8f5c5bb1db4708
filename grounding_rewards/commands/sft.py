"""`grounding-rewards sft`: the supervised warm start before GRPO."""

from __future__ import annotations

from collections.abc import Sequence

from grounding_rewards.commands.train import parse_and_train


def run(words: Sequence[str]) -> int:
    """Train with the options after the command; 143 if SIGTERM stopped the run before its end."""
    from grounding_rewards.training.arguments import parse_sft_arguments
    from grounding_rewards.training.run import train_supervised

    return parse_and_train(words, parse_sft_arguments, train_supervised)

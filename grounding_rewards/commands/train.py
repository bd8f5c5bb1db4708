"""`grounding-rewards train`, GRPO with a reward on boxes, and `sft`, the supervised warm start before it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from grounding_rewards.commands.console import say, say_loading

#: The exit code of a program that SIGTERM ended.
STOPPED = 128 + 15
DRY_RUN = ("--dry-run", "--dry_run")


def hide_name_warnings() -> None:
    """Hide the warning of transformers about the old name of activation checkpointing, which TRL still uses."""
    warnings.filterwarnings("ignore", message=".*gradient_checkpointing", category=FutureWarning)


def run(command: str, words: Sequence[str]) -> int:
    """Train with the options after the command; 143 if SIGTERM stopped the run before its end.

    Args:
        command: `train` or `sft`.
        words: options; with `--dry-run` every value of the run is printed as YAML instead, and adapters are tried on
            the model's layers where its configuration is on this machine.
    """
    say_loading("PyTorch, transformers and TRL")
    from grounding_rewards.training.arguments import parse_grpo_arguments, parse_sft_arguments

    hide_name_warnings()
    asked = [word for word in words if word not in DRY_RUN]
    parts: Any = (parse_sft_arguments if command == "sft" else parse_grpo_arguments)(asked)
    if len(asked) == len(words):
        from grounding_rewards.training.run import train_grpo, train_supervised, was_stopped

        done = train_supervised(*parts) if command == "sft" else train_grpo(*parts)
        return STOPPED if was_stopped(done) else 0
    import yaml

    from grounding_rewards.training.run_folder import resolved_config

    _, config, model = parts
    resolved = resolved_config(*parts)
    if model.use_peft:
        from grounding_rewards.training.model import adapter_note, check_model, is_here

        if is_here(model):
            say(adapter_note(check_model(model, trust_remote_code=config.trust_remote_code)), error=True)
    print(yaml.safe_dump(resolved, sort_keys=True), end="")
    return 0

"""Training with TRL: the GRPO trainer for models that answer with boxes."""

import os
from typing import TYPE_CHECKING, Any

# TRL reports usage over the network by default. Set before TRL is imported.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

if TYPE_CHECKING:
    from grounding_rewards.training.grpo import GroundingGRPOTrainer

__all__ = ["GroundingGRPOTrainer"]


def __getattr__(name: str) -> Any:
    # Options are read, and shown by --help and --dry-run, without the trainer, which takes seconds to load.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from grounding_rewards.training.grpo import GroundingGRPOTrainer

    return GroundingGRPOTrainer

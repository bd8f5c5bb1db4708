"""Training with TRL: the GRPO trainer for models that answer with boxes."""

import os

# TRL counts its runs over the network unless it is told not to; nothing leaves the machine unasked.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from grounding_rewards.training.grpo import GroundingGRPOTrainer

__all__ = ["GroundingGRPOTrainer"]

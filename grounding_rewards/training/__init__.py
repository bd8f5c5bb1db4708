"""Training with TRL: the GRPO trainer for models that answer with boxes."""

import os

# TRL reports usage over the network by default. Set before TRL is imported.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from grounding_rewards.training.grpo import GroundingGRPOTrainer

__all__ = ["GroundingGRPOTrainer"]

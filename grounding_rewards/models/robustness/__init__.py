"""Measure the answers of a model to changed images: corruptions, and attacks that use its gradients.

Source: spec/evaluation_metrics.md §4.
"""

from grounding_rewards.models.robustness.corruptions import CORRUPTIONS, STRENGTHS, corrupt
from grounding_rewards.models.robustness.run import EPSILONS, Changes, robustness

__all__ = ["CORRUPTIONS", "EPSILONS", "STRENGTHS", "Changes", "corrupt", "robustness"]

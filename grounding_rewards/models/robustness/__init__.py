"""How a model answers changed films: corruptions, and attacks that use its gradients.

Source: spec/evaluation_metrics.md §4.
"""

from grounding_rewards.metrics.robustness import (
    ROBUSTNESS_FIGURES,
    AnswerPair,
    is_right,
    is_same_answer,
    robustness_estimates,
    robustness_sums,
)
from grounding_rewards.models.robustness.corruptions import (
    CORRUPTIONS,
    STRENGTHS,
    Corrupted,
    corrupt,
    corrupt_boxes,
)
from grounding_rewards.models.robustness.pgd import (
    PGD,
    AttackingProcessor,
    answer_loss,
    pixel_scale,
    project_gradient,
)
from grounding_rewards.models.robustness.run import EPSILONS, FAMILIES, Changes, robustness

__all__ = [
    "CORRUPTIONS",
    "EPSILONS",
    "FAMILIES",
    "PGD",
    "ROBUSTNESS_FIGURES",
    "STRENGTHS",
    "AnswerPair",
    "AttackingProcessor",
    "Changes",
    "Corrupted",
    "answer_loss",
    "corrupt",
    "corrupt_boxes",
    "is_right",
    "is_same_answer",
    "pixel_scale",
    "project_gradient",
    "robustness",
    "robustness_estimates",
    "robustness_sums",
]

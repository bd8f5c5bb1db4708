"""R1 to R5, rewards on boxes, and the registry that maps names to them.

`R1` … `R5` are ready to use, with the default parameters of the specification: the stock command
``trl grpo --reward_funcs grounding_rewards.rewards.R4`` takes them as they are. The box format comes from the dataset's
``box_format`` column.
"""

from grounding_rewards.rewards.average_precision import AveragePrecisionReward
from grounding_rewards.rewards.base import BoxReward, Explanation
from grounding_rewards.rewards.f_beta import (
    FBetaReward,
    MeanIoUReward,
    PiecewiseIoUReward,
    ProductIoUReward,
    SplineIoUReward,
    f_beta_score,
)

# The instances read text, so their class lives one layer up: the only import that does not point downwards.
from grounding_rewards.rewards.grounding import get_reward
from grounding_rewards.rewards.registry import list_rewards, register_reward

R1 = get_reward("R1")
R2 = get_reward("R2")
R3 = get_reward("R3")
R4 = get_reward("R4")
R5 = get_reward("R5")

__all__ = [
    "R1",
    "R2",
    "R3",
    "R4",
    "R5",
    "AveragePrecisionReward",
    "BoxReward",
    "Explanation",
    "FBetaReward",
    "MeanIoUReward",
    "PiecewiseIoUReward",
    "ProductIoUReward",
    "SplineIoUReward",
    "f_beta_score",
    "list_rewards",
    "register_reward",
]

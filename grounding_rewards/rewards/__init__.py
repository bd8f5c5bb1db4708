"""R1 to R5, soft_f1, controls, and the registry that maps names to them.

`R1` … `R5` and `soft_f1` are ready to use, with default parameters: the stock command
``trl grpo --reward_funcs grounding_rewards.rewards.R4`` takes them as they are. The box format comes from the dataset's
``box_format`` column.
"""

from grounding_rewards.rewards.average_precision import AveragePrecisionReward
from grounding_rewards.rewards.box_reward import BoxReward, Explanation, ThresholdReward
from grounding_rewards.rewards.controls import PointingReward
from grounding_rewards.rewards.f_beta import (
    FBetaReward,
    MeanIoUReward,
    PiecewiseIoUReward,
    ProductIoUReward,
    SoftF1Reward,
    SplineIoUReward,
    f_beta_score,
)
from grounding_rewards.rewards.grounding import get_reward
from grounding_rewards.rewards.registry import CONTROLS, SPECIFICATION_REWARDS, list_rewards, register_reward

R1, R2, R3, R4, R5 = map(get_reward, SPECIFICATION_REWARDS)
soft_f1 = get_reward("soft_f1")

__all__ = [
    "CONTROLS",
    "R1",
    "R2",
    "R3",
    "R4",
    "R5",
    "SPECIFICATION_REWARDS",
    "AveragePrecisionReward",
    "BoxReward",
    "Explanation",
    "FBetaReward",
    "MeanIoUReward",
    "PiecewiseIoUReward",
    "PointingReward",
    "ProductIoUReward",
    "SoftF1Reward",
    "SplineIoUReward",
    "ThresholdReward",
    "f_beta_score",
    "list_rewards",
    "register_reward",
    "soft_f1",
]

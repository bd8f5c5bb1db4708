"""Rewards for vision-language models that answer with bounding boxes on radiology images.

Text in, boxes out, matched to the reference boxes, one number per completion:

>>> import grounding_rewards as gr
>>> reward = gr.get_reward("R4", box_format="qwen3-vl")
>>> answer = '[{"bbox_2d": [100, 100, 500, 500], "label": "nodule"}]'
>>> reward(completions=[answer], boxes=[[[64, 48, 320, 240]]], width=[640], height=[480])
[1.0]

Scoring needs numpy and scipy only; training, data and reports are in the subpackages. `gr.evaluate`, `gr.inspect`,
`gr.signal`, `gr.compare` and `gr.show` load what they need when they are first asked for.
"""

import importlib
from typing import TYPE_CHECKING, Any

from grounding_rewards import rewards
from grounding_rewards.overlap import nms, pairwise_iou
from grounding_rewards.parsing import ParsedBoxes, format_boxes, get_box_format, list_box_formats, parse_boxes
from grounding_rewards.parsing.space_check import SpaceWarning
from grounding_rewards.rewards import BoxReward, Explanation, list_rewards, register_reward
from grounding_rewards.rewards.grounding import GroundingReward, get_reward

if TYPE_CHECKING:
    from grounding_rewards.images.drawn_boxes import show
    from grounding_rewards.report.notebook import compare, evaluate, inspect, signal

__version__ = "0.1.0"

__all__ = [
    "BoxReward",
    "Explanation",
    "GroundingReward",
    "ParsedBoxes",
    "SpaceWarning",
    "compare",
    "evaluate",
    "format_boxes",
    "get_box_format",
    "get_reward",
    "inspect",
    "list_box_formats",
    "list_rewards",
    "nms",
    "pairwise_iou",
    "parse_boxes",
    "register_reward",
    "rewards",
    "show",
    "signal",
]

# Metrics, files and plots take longer to load than all rewards.
_LAZY = {
    **dict.fromkeys(("compare", "evaluate", "inspect", "signal"), "grounding_rewards.report.notebook"),
    "show": "grounding_rewards.images.drawn_boxes",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

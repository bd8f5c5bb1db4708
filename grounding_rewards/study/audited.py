"""Which dishonest policies the reward of each arm pays, on the images of the study, beside what the arm learned."""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

from grounding_rewards.audit.audit_images import images_of
from grounding_rewards.audit.play import audit
from grounding_rewards.parsing import get_box_format
from grounding_rewards.rewards.grounding import get_reward
from grounding_rewards.rewards.registry import REGISTRY
from grounding_rewards.study.results import ArmKey, Study

#: Images that policies answer.
IMAGES = 48


class Flagged(NamedTuple):
    """A policy that a reward pays although it should not, and what is wrong with that."""

    policy: str
    finding: str


def audit_arms(study: Study) -> dict[ArmKey, tuple[Flagged, ...]]:
    """Play the policies of :mod:`grounding_rewards.audit` against the reward of every arm.

    Args:
        study: whose declared set has the images, the first :data:`IMAGES` of them.

    Returns:
        What was flagged, by arm; an arm that has no single reward on boxes, such as a supervised one, is not there, nor
        is one whose reward a report alone would have to import, because the folder of a study may be somebody else's;
        and none is where each image has a box format of its own.
    """
    if study.box_format is None:
        return {}
    fmt = get_box_format(study.box_format)
    rewards: dict[str, Any] = {}
    own: dict[ArmKey, str] = {}
    for key, runs in study.arms.items():
        reward = runs[0].reward
        if reward is None or not isinstance(reward.get("name"), str) or not _is_known(reward["name"]):
            continue
        name = json.dumps(reward, sort_keys=True)
        own[key] = name
        rewards[name] = get_reward(reward["name"], box_format=fmt, **(reward.get("kwargs") or {})).final()
    if not rewards:
        return {}
    played = audit(rewards, images_of(study.sets[study.declared.on][:IMAGES]), fmt)
    return {
        key: tuple(Flagged(one.policy, one.finding) for one in played.found if one.reward == name)
        for key, name in own.items()
    }


def _is_known(name: str) -> bool:
    """Whether a reward is ours, or was imported because one's own configuration names it."""
    return name in REGISTRY or name.rpartition(".")[0] in sys.modules

"""The rewards of a run from its configuration: ours by name, others by dotted path."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from grounding_rewards.parsing import BoxFormat, get_box_format
from grounding_rewards.rewards.grounding import GroundingReward, get_reward
from grounding_rewards.rewards.registry import REGISTRY, check_parameters, look_up, spread_kwargs, takes_completions
from grounding_rewards.rewards.schedules import schedule_lines

Reward = str | Callable[..., list[float]]


def build_rewards(
    reward: Reward | Sequence[Reward],
    reward_kwargs: Any = None,
    box_format: str | Mapping[str, Any] | BoxFormat | None = None,
) -> list[Callable[..., list[float]]]:
    """Turn names into rewards and set their box format; other reward functions are left as they are.

    A dotted path is a reward on boxes (with `score(pred, gt)`, or a class or factory of one), a reward function as TRL
    takes it (its first argument that is not `prompts` is `completions`), or a class whose objects are such functions.

    Args:
        reward: one name or reward function, or a list of them.
        reward_kwargs: parameters of the named rewards, see `spread_kwargs`.
        box_format: for every grounding reward, anything that `get_box_format` takes; with None, rewards without one
            take the dataset's column.

    Raises:
        ValueError: no reward, an unknown name, parameter or box format, parameters for a ready reward, another box
            format for a reward that has one, or two rewards of one name.

    >>> [one.__name__ for one in build_rewards(["R4", "R1"], [{"beta": 2.0}, None])]
    ['R4', 'R1']
    """
    rewards: list[Any] = list(reward) if isinstance(reward, (list, tuple)) else [reward]
    if not rewards:
        raise ValueError("Expected at least one reward for reward, got none. Name one, for example R4.")
    built: list[Any] = []
    for one, parameters in zip(rewards, spread_kwargs(rewards, reward_kwargs), strict=True):
        if isinstance(one, str):
            one = _named(one, parameters)
        elif parameters:
            raise _not_for_ready(one, parameters)
        if box_format is not None and isinstance(one, GroundingReward):
            one = _with_format(one, box_format)
        built.append(one)
    names = [reward_name(one) for one in built]
    if len(set(names)) < len(names):
        raise ValueError(
            f"Expected different names for reward, got {', '.join(names)}. TRL logs rewards by name; "
            "give the second one a name of its own in its reward_kwargs, such as log_as: R3_low."
        )
    return built


def reward_name(reward: Any) -> str:
    """The name under which TRL logs a reward.

    >>> reward_name(get_reward("R2"))
    'R2'
    """
    return getattr(reward, "__name__", type(reward).__name__)


def reward_with_parameters(reward: Any) -> str:
    """A reward with its parameters, for a model card.

    >>> reward_with_parameters(get_reward("R3", beta=2))[:31]
    'R3: MeanIoUReward(no_box_bonus='
    """
    if isinstance(reward, GroundingReward):
        return "; ".join([f"{reward.name}: {reward.box_reward!r}", *schedule_lines(reward.schedules)])
    return reward_name(reward)


def _named(name: str, parameters: Mapping[str, Any]) -> Any:
    if name in REGISTRY or "." not in name:
        return get_reward(name, **parameters)
    found = look_up(name)
    if isinstance(found, GroundingReward) and not parameters:
        return found
    if takes_completions(found) and not isinstance(found, GroundingReward):
        if parameters:
            raise _not_for_ready(name, parameters)
        return found
    if inspect.isclass(found) and takes_completions(found.__call__):
        check_parameters(name, found, parameters)
        return found(**parameters)
    return get_reward(name, **parameters)


def _not_for_ready(reward: object, parameters: Mapping[str, Any]) -> ValueError:
    return ValueError(
        f"Expected no reward_kwargs for the ready reward {reward!r}, got {dict(parameters)!r}. "
        "Give its name, or set the parameters when making it."
    )


def _with_format(reward: GroundingReward, box_format: str | Mapping[str, Any] | BoxFormat) -> GroundingReward:
    wanted = get_box_format(box_format)
    own = wanted if reward.box_format is None else get_box_format(reward.box_format)
    if own != wanted:
        raise ValueError(
            f"Expected one box format for reward {reward.__name__}, got {own.name} for the reward and {wanted.name} "
            "for box_format. State it once."
        )
    given: Any = box_format
    return replace(reward, box_format=given)

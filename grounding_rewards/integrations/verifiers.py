"""verifiers: `fn = "grounding_rewards.integrations.verifiers:r4"` of a reward, and `…:r4_components` of a metric.

By `v1/utils/loaders.py` and `v1/task.py` of verifiers 0.4.0, read in 2026-11. It hides the error of a function in the
trace, so that `samples` prints it.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from grounding_rewards.integrations.samples import Scores, image_columns, reward_of, scored


def functions_of(reward: str, **parameters: Any) -> tuple[Callable[..., Awaitable[Any]], Callable[..., Awaitable[Any]]]:
    """Make two functions of a task and the trace of a rollout: the reward, and its components.

    Args:
        reward: as for :func:`grounding_rewards.get_reward`.
        **parameters: of the reward.

    Returns:
        A function that returns a number in [0, 1], and one that returns `samples.COMPONENTS` under the reward's name.
        The task has ``ground_truth``, a JSON string or a mapping with ``boxes``, ``width``, ``height``, ``box_format``
        …

    Example:
        >>> import asyncio, types
        >>> number, _ = functions_of("R3", box_format="qwen3-vl")
        >>> task = types.SimpleNamespace(ground_truth='{"boxes": [], "width": 100, "height": 100}')
        >>> asyncio.run(number(task, types.SimpleNamespace(last_reply="[]")))
        0.2
    """

    def score(task: Any, trace: Any) -> Scores:
        """The scores of the last reply of a trace."""
        columns = image_columns([task.ground_truth])
        return scored(reward_of(reward, **parameters), [trace.last_reply], columns)

    async def number(task: Any, trace: Any) -> float:
        """The reward of the last reply of a trace."""
        return score(task, trace).rewards[0]

    async def components(task: Any, trace: Any) -> dict[str, float]:
        """The components of that reward by name."""
        return {name: values[0] for name, values in score(task, trace).components.items()}

    number.__name__, components.__name__ = reward, f"{reward}_components"
    return number, components


r1, r1_components = functions_of("R1")
r2, r2_components = functions_of("R2")
r3, r3_components = functions_of("R3")
r4, r4_components = functions_of("R4")
r5, r5_components = functions_of("R5")
soft_f1, soft_f1_components = functions_of("soft_f1")

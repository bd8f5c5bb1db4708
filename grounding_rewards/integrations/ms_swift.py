"""ms-swift: a class for each reward, which a file given to `--external_plugins` registers.

By `swift/rewards/orm.py` and `rl_core/grpo_algorithm.py` of ms-swift 4.6.0, read in 2026-11: it logs the name of the
class, and passes it arguments of the training, but no parameters of the reward.
"""

from typing import Any

from grounding_rewards.integrations.samples import reward_of


def register(reward: str, **parameters: Any) -> type:
    """Register a reward with ms-swift under its ``__name__``, for ``--reward_funcs``.

    Args:
        reward: as for :func:`grounding_rewards.get_reward`.
        **parameters: of the reward.

    Returns:
        The class, whose objects take ms-swift's columns: ``ground_truth``, or the fields of one.

    Raises:
        ValueError: an unknown reward or parameter.
    """
    from swift.rewards import ORM, orms

    grounding_reward = reward_of(reward, **parameters)

    def score(self: Any, completions: list[Any], **columns: Any) -> list[float]:
        """The rewards of a batch, as calling the reward gives them."""
        return grounding_reward(completions, **columns)

    # ms-swift makes an object of the class that stands here under its name, and calls the object.
    name = grounding_reward.__name__
    orms[name] = type(name, (ORM,), {"__call__": score, "__doc__": f"{name} of grounding_rewards."})
    return orms[name]

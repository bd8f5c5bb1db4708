"""EasyR1: `worker.reward.reward_function=FILE.py:compute_score`, where the file may be this one.

By `verl/workers/reward/function.py` of hiyouga/EasyR1 at 46c6c21, read in 2026-11. It logs the mean of each number.
Since its pull request 558 the file itself says whether it takes a batch (`REWARD_TYPE`), and no option does.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from grounding_rewards.integrations.samples import image_columns, reward_of, scored


def compute_score(
    reward_inputs: Sequence[Mapping[str, Any]], reward: str = "R4", **parameters: Any
) -> list[dict[str, float]]:
    """The rewards of a batch as ``overall``, in [0, 1], with `samples.COMPONENTS` under the reward's name.

    Args:
        reward_inputs: a list of mappings with ``response`` and ``ground_truth``, a JSON string with ``boxes``,
            ``width``, ``height``, ``box_format`` …
        reward: as for :func:`grounding_rewards.get_reward`.
        **parameters: of the reward; EasyR1 takes them from ``reward_function_kwargs``.

    Raises:
        ValueError: an unknown reward or parameter, or a ground truth that cannot be used.

    Example:
        >>> truth = '{"boxes": [[0, 0, 50, 50]], "width": 100, "height": 100, "box_format": "qwen3-vl"}'
        >>> sample = {"response": '[{"bbox_2d": [0, 0, 500, 400]}]', "response_length": 9, "ground_truth": truth}
        >>> compute_score([sample], reward="R3")[0]["overall"]
        0.8
    """
    columns = image_columns([sample["ground_truth"] for sample in reward_inputs])
    responses = [sample["response"] for sample in reward_inputs]
    return scored(reward_of(reward, **parameters), responses, columns).samples("overall")

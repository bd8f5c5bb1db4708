"""verl: functions for `reward.custom_reward_function`, and a reward manager.

By the sources of verl 0.9.1, read in 2026-11: it calls a function with one sample, in threads or in its event loop,
and expects the names of the first sample's numbers in all. It removes special tokens from the text: if they carry boxes
or mark thinking, the manager reads token ids. `reward.reward_manager.source=importlib`,
`.module.path=pkg://grounding_rewards.integrations.verl` and `.name=GroundingRewardManager` name it; its parameters are
those of `reward.custom_reward_function.reward_kwargs`.
"""

import asyncio
import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from grounding_rewards.integrations.samples import image_columns, offering, reward_of, scored


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    reward: str = "R4",
    reward_router_address: Any = None,
    reward_model_tokenizer: Any = None,
    **parameters: Any,
) -> dict[str, float]:
    """The reward of one sample as ``score``, in [0, 1], with `samples.COMPONENTS` under the reward's name.

    Args:
        data_source: not used.
        solution_str: the completion.
        ground_truth: a JSON string, or a mapping, with ``boxes``, ``width``, ``height``, ``box_format`` …
        extra_info: may have fields that the ground truth lacks.
        reward: as for :func:`grounding_rewards.get_reward`.
        reward_router_address: of a reward model; not used.
        reward_model_tokenizer: of a reward model; not used.
        **parameters: of the reward; verl takes them from ``reward_kwargs``.

    Raises:
        ValueError: an unknown reward or parameter, or a ground truth that cannot be used.

    Example:
        >>> truth = '{"boxes": [[0, 0, 50, 50]], "width": 100, "height": 100, "box_format": "qwen3-vl"}'
        >>> compute_score("images", '[{"bbox_2d": [0, 0, 500, 400]}]', truth, {}, reward="R3")["score"]
        0.8
    """
    columns = image_columns([ground_truth], [extra_info])
    return scored(reward_of(reward, **parameters), [solution_str], columns).samples("score")[0]


@functools.cache
def _reward_manager() -> type:
    """Make the class of the reward manager; its parent is there only where verl is."""
    from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

    class GroundingRewardManager(RewardManagerBase):
        """Scores one sample for verl's reward loop."""

        def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **reward_model: Any) -> None:
            super().__init__(config=config, tokenizer=tokenizer, compute_score=compute_score)
            parameters = config.reward.custom_reward_function.get("reward_kwargs") or {}
            self.reward = replace(reward_of(**parameters), tokenizer=tokenizer)

        async def run_single(self, data: Any) -> dict[str, Any]:
            """The reward and components of a sample; the last of its sequences is the whole conversation."""
            # As verl's own managers take the last one; in a thread, so that the loop goes on.
            return await asyncio.to_thread(self._score, data[-1:][0])

        def _score(self, item: Any) -> dict[str, Any]:
            """The reward and components of one sequence."""
            row = item.non_tensor_batch
            padded_ids = item.batch["responses"]
            # The mask covers prompt and response: its end has a 1 for each token of the response, a 0 for its padding.
            length = int(item.batch["attention_mask"][-len(padded_ids) :].sum())
            ids = padded_ids[:length].tolist()
            columns = image_columns([row["reward_model"]["ground_truth"]], [row.get("extra_info")])
            text = self.tokenizer.decode(ids, skip_special_tokens=True)
            sample = scored(self.reward, [text], {**columns, "completion_ids": [ids]}).samples("score")[0]
            return {"reward_score": sample["score"], "reward_extra_info": sample}

    return GroundingRewardManager


__getattr__ = offering(__name__, "GroundingRewardManager", _reward_manager)

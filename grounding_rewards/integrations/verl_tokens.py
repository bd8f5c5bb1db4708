"""verl with token ids, for boxes and thinking in special tokens: verl removes these from the text for functions.

`reward.reward_manager.source=importlib`, `.module.path=pkg://grounding_rewards.integrations.verl_tokens` and
`.name=GroundingRewardManager`; its parameters are those of `reward.custom_reward_function.reward_kwargs`.
"""

from __future__ import annotations

import asyncio
import functools
from dataclasses import replace
from typing import Any

from grounding_rewards.integrations.samples import image_columns, offering, reward_of, scored


@functools.cache
def _reward_manager() -> type:
    """Make the class of the reward manager."""
    from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

    class GroundingRewardManager(RewardManagerBase):
        """Scores one sample for verl's reward loop."""

        def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **reward_model: Any) -> None:
            super().__init__(config=config, tokenizer=tokenizer, compute_score=compute_score)
            parameters = config.reward.custom_reward_function.get("reward_kwargs") or {}
            self.reward = replace(reward_of(**parameters), tokenizer=tokenizer)

        async def run_single(self, data: Any) -> dict[str, Any]:
            """The reward and components of a sample; the last of its sequences is the whole conversation."""
            return await asyncio.to_thread(self._score, data[-1:][0])

        def _score(self, item: Any) -> dict[str, Any]:
            """The same for one sequence."""
            row = item.non_tensor_batch
            padded_ids = item.batch["responses"]
            length = int(item.batch["attention_mask"][-len(padded_ids) :].sum())
            ids = padded_ids[:length].tolist()
            columns = image_columns([row["reward_model"]["ground_truth"]], [row.get("extra_info")])
            text = self.tokenizer.decode(ids, skip_special_tokens=True)
            sample = scored(self.reward, [text], {**columns, "completion_ids": [ids]}).samples("score")[0]
            return {"reward_score": sample["score"], "reward_extra_info": sample}

    return GroundingRewardManager


__getattr__ = offering(__name__, "GroundingRewardManager", _reward_manager)

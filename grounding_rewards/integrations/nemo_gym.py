"""NeMo-Gym: the server of a folder `resources_servers/…`, whose `app.py` names it.

By `nemo_gym/base_resources_server.py` of NVIDIA-NeMo/Gym at 011c338, read in 2026-11. Its metrics are the fields of an
answer, so that the names of components have `_` for `/`.
"""

# Without `from __future__ import annotations`: FastAPI could not find classes that are made in a function by name.
import functools
from collections.abc import Sequence
from typing import Any

from grounding_rewards.integrations.samples import image_columns, offering, reward_of, scored


def last_message(output: Sequence[Any]) -> str:
    """The text of the assistant's last message among the items of a response; empty without a message."""
    messages = [item for item in output if item.type == "message" and item.role == "assistant"]
    if not messages:
        return ""
    return "".join(part.text for part in messages[-1].content if part.type == "output_text")


@functools.cache
def _server() -> type:
    """Make the class of the server; its parents are in libraries that are there only where NeMo-Gym is."""
    from nemo_gym import base_resources_server as gym
    from pydantic import ConfigDict, Field

    class GroundingConfig(gym.BaseResourcesServerConfig):
        reward: str = "R4"
        reward_kwargs: dict[str, Any] = Field(default_factory=dict)

    class GroundingRequest(gym.BaseVerifyRequest):
        ground_truth: dict[str, Any] | str

    class GroundingResponse(gym.BaseVerifyResponse):
        # The components, whose names depend on the reward, are fields that no class declares.
        model_config = ConfigDict(extra="allow")

    class GroundingResourcesServer(gym.SimpleResourcesServer):
        """Scores the last message of a rollout by the row's ``ground_truth``."""

        config: GroundingConfig

        async def verify(self, body: GroundingRequest) -> GroundingResponse:
            """The request with the reward of its response and the components."""
            reward = reward_of(self.config.reward, **self.config.reward_kwargs)
            columns = image_columns([body.ground_truth])
            [sample] = scored(reward, [last_message(body.response.output)], columns).samples("reward")
            # A field has a name of Python; the reward itself is one of these numbers.
            components = {name.replace("/", "_"): number for name, number in sample.items()}
            return GroundingResponse(**body.model_dump(), **components)

    return GroundingResourcesServer


__getattr__ = offering(__name__, "GroundingResourcesServer", _server)

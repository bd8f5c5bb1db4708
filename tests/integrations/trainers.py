"""What the modules of the trainers need of them, in a few lines each, and how each trainer calls."""

from __future__ import annotations

import asyncio
import sys
import types
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from grounding_rewards.integrations import easyr1, nemo_gym, nemo_rl, openrlhf, verifiers, verl, verl_tokens
from tests.integrations.hard_cases import Case

EXAMPLE = 'Answer as [{"bbox_2d": [1, 2, 3, 4], "label": "nodule"}].'
PROMPT = f"<|im_start|>user\n<|image_pad|>{EXAMPLE}<|im_end|>\n<|im_start|>assistant\n"
# The prompt, as OpenRLHF decodes it: the image takes more room.
GROWN = PROMPT.replace("<|image_pad|>", "<|image_pad|>" * 40)


def stand_in(monkeypatch: Any, name: str, **contents: Any) -> None:
    """A module of a trainer, and the packages around it."""
    parts = name.split(".")
    for k in range(1, len(parts) + 1):
        dotted = ".".join(parts[:k])
        module = sys.modules.get(dotted) or types.ModuleType(dotted)
        module.__path__ = []  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, dotted, module)
        if k > 1:
            monkeypatch.setattr(sys.modules[".".join(parts[: k - 1])], parts[k - 1], module, raising=False)
    for key, value in contents.items():
        monkeypatch.setattr(sys.modules[name], key, value, raising=False)


def with_swift(monkeypatch: Any) -> dict[str, Any]:
    """ms-swift's registry of rewards."""
    orms: dict[str, Any] = {}

    class ORM:
        def __init__(self, args: Any = None, **_: Any) -> None:
            self.args = args

    class AsyncORM(ORM):
        pass

    stand_in(monkeypatch, "swift.rewards", ORM=ORM, AsyncORM=AsyncORM, orms=orms)
    return orms


def with_verl(monkeypatch: Any) -> None:
    class RewardManagerBase:
        def __init__(self, config: Any, tokenizer: Any, compute_score: Any) -> None:
            self.config, self.tokenizer, self.compute_score = config, tokenizer, compute_score

    verl_tokens._reward_manager.cache_clear()
    stand_in(monkeypatch, "verl.experimental.reward_loop.reward_manager.base", RewardManagerBase=RewardManagerBase)


def with_nemo_rl(monkeypatch: Any) -> dict[str, str]:
    class EnvironmentReturn(NamedTuple):
        observations: Any
        metadata: Any
        next_stop_strings: Any
        rewards: Any
        terminateds: Any
        answers: Any = None

    registered: dict[str, str] = {}
    nemo_rl._environment.cache_clear()
    stand_in(monkeypatch, "ray", remote=lambda made: made)
    stand_in(
        monkeypatch,
        "nemo_rl.environments.interfaces",
        EnvironmentInterface=object,
        EnvironmentReturn=EnvironmentReturn,
    )
    stand_in(monkeypatch, "nemo_rl.environments.utils", register_env=registered.__setitem__)
    stand_in(monkeypatch, "nemo_rl.distributed.ray_actor_environment_registry", ACTOR_ENVIRONMENT_REGISTRY=registered)
    stand_in(monkeypatch, "nemo_rl.distributed.virtual_cluster", PY_EXECUTABLES=types.SimpleNamespace(SYSTEM="system"))
    return registered


def with_nemo_gym(monkeypatch: Any) -> None:
    from pydantic import BaseModel

    class BaseResourcesServerConfig(BaseModel):
        name: str = "grounding"

    class BaseVerifyRequest(BaseModel):
        response: Any

    class BaseVerifyResponse(BaseVerifyRequest):
        reward: float

    class SimpleResourcesServer(BaseModel):
        config: BaseResourcesServerConfig

    nemo_gym._server.cache_clear()
    stand_in(
        monkeypatch,
        "nemo_gym.base_resources_server",
        BaseResourcesServerConfig=BaseResourcesServerConfig,
        BaseVerifyRequest=BaseVerifyRequest,
        BaseVerifyResponse=BaseVerifyResponse,
        SimpleResourcesServer=SimpleResourcesServer,
    )


def gym_response(text: str) -> Any:
    """What NeMo-Gym hands over: reasoning, a call of a tool, and messages."""
    part = types.SimpleNamespace(type="output_text", text=text)
    early = types.SimpleNamespace(type="output_text", text='[{"bbox_2d": [0, 0, 9, 9]}]')
    return types.SimpleNamespace(
        output=[
            types.SimpleNamespace(type="message", role="assistant", content=[early]),
            types.SimpleNamespace(type="function_call", name="zoom", arguments='{"bbox_2d": [1, 2, 3, 4]}'),
            types.SimpleNamespace(type="message", role="assistant", content=[part]),
        ]
    )


def by_verl(_: Any, reward: str, cases: Sequence[Case]) -> list[float]:
    return [verl.compute_score("images", one.text, one.ground_truth, {}, reward=reward)["score"] for one in cases]


def by_verl_mapping(_: Any, reward: str, cases: Sequence[Case]) -> list[float]:
    call = partial(asyncio.run)
    return [
        call(verl.compute_score_async("images", one.text, one.fields, None, reward=reward))["score"] for one in cases
    ]


def by_verl_batch(_: Any, reward: str, cases: Sequence[Case]) -> list[float]:
    truths = [one.ground_truth for one in cases]
    told = verl.compute_score_batch(
        ["images"] * len(cases), [one.text for one in cases], truths, [{}] * len(cases), reward
    )
    return [one["score"] for one in told]


def by_easyr1(_: Any, reward: str, cases: Sequence[Case]) -> list[float]:
    inputs = [{"response": one.text, "response_length": 9, "ground_truth": one.ground_truth} for one in cases]
    return [one["overall"] for one in easyr1.compute_score(inputs, reward=reward)]


def by_easyr1_one(_: Any, reward: str, cases: Sequence[Case]) -> list[float]:
    inputs = [{"response": one.text, "response_length": 9, "ground_truth": one.ground_truth} for one in cases]
    return [easyr1.compute_score(one, reward=reward)["overall"] for one in inputs]


def by_ms_swift(monkeypatch: Any, reward: str, cases: Sequence[Case]) -> list[float]:
    from grounding_rewards.integrations.ms_swift import register

    orms = with_swift(monkeypatch)
    register(reward)
    scorer = orms[reward](args=None)
    rows = {"ground_truth": [one.ground_truth for one in cases], "messages": [[]] * len(cases), "trainer_state": None}
    return scorer([one.text for one in cases], **rows)


def by_openrlhf(_: Any, reward: str, cases: Sequence[Case]) -> list[float]:
    queries, labels = [GROWN + one.text for one in cases], [one.ground_truth for one in cases]
    found = [openrlhf.reward_func([q], [PROMPT], [label], reward) for q, label in zip(queries, labels, strict=True)]
    assert all(one["rewards"].shape == (1,) for one in found)
    return [one["rewards"].item() for one in found]


def by_nemo_rl(monkeypatch: Any, reward: str, cases: Sequence[Case]) -> list[float]:
    with_nemo_rl(monkeypatch)
    environment = nemo_rl.GroundingEnvironment({"reward": reward})
    logs = [
        [
            {"role": "user", "content": EXAMPLE},
            {"role": "assistant", "content": '[{"bbox_2d": [0, 0, 9, 9]}]'},
            {"role": "environment", "content": "look again"},
            {"role": "assistant", "content": one.text, "token_ids": [1]},
        ]
        for one in cases
    ]
    return environment.step(logs, [{"ground_truth": one.ground_truth} for one in cases]).rewards.tolist()


def by_nemo_gym(monkeypatch: Any, reward: str, cases: Sequence[Case]) -> list[float]:
    with_nemo_gym(monkeypatch)
    server = nemo_gym.GroundingResourcesServer
    kinds = server.verify.__annotations__
    made = server(config=server.model_fields["config"].annotation(reward=reward))
    bodies = [kinds["body"](response=gym_response(one.text), ground_truth=one.ground_truth) for one in cases]
    return [asyncio.run(made.verify(body)).reward for body in bodies]


def by_verifiers(_: Any, reward: str, cases: Sequence[Case]) -> list[float]:
    number, _components = verifiers.functions_of(reward)
    return [
        asyncio.run(
            number(
                task=types.SimpleNamespace(ground_truth=one.ground_truth),
                trace=types.SimpleNamespace(last_reply=one.text),
            )
        )
        for one in cases
    ]


#: How each trainer calls: a function of monkeypatch, the name of a reward, and cases.
CALLS: dict[str, Callable[[Any, str, Sequence[Case]], list[float]]] = {
    name.removeprefix("by_"): call for name, call in list(globals().items()) if name.startswith("by_")
}
#: Trainers that keep rewards in single precision, whose tensors the modules make.
SINGLE = {"openrlhf", "nemo_rl"}

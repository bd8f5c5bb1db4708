"""What the modules of the trainers need of them, in a few lines each, and how each trainer calls."""

import asyncio
import sys
import types
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any

from grounding_rewards.integrations import easyr1, ms_swift, nemo_gym, nemo_rl, openrlhf, verifiers, verl
from tests.integrations.hard_cases import Case

EXAMPLE = 'Answer as [{"bbox_2d": [1, 2, 3, 4], "label": "nodule"}].'
PROMPT = f"<|im_start|>user\n<|image_pad|>{EXAMPLE}<|im_end|>\n<|im_start|>assistant\n"
# The prompt, as OpenRLHF decodes it: the image takes more room.
GROWN = PROMPT.replace("<|image_pad|>", "<|image_pad|>" * 40)


def stand_in(monkeypatch: Any, name: str, **contents: Any) -> None:
    """A module of a trainer, and the packages around it."""
    parts = name.split(".")
    for dotted in (".".join(parts[: k + 1]) for k in range(len(parts))):
        package, _, own = dotted.rpartition(".")
        module = sys.modules.get(dotted) or types.ModuleType(dotted)
        module.__path__ = []  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, dotted, module)
        if package:
            monkeypatch.setattr(sys.modules[package], own, module, raising=False)
    for key, value in contents.items():
        monkeypatch.setattr(sys.modules[name], key, value, raising=False)


def with_swift(monkeypatch: Any) -> dict[str, Any]:
    """ms-swift's registry of rewards."""
    orms: dict[str, Any] = {}

    class ORM:
        def __init__(self, args: Any = None, **_: Any) -> None:
            self.args = args

    stand_in(monkeypatch, "swift.rewards", ORM=ORM, orms=orms)
    return orms


def with_verl(monkeypatch: Any) -> None:
    class RewardManagerBase:
        def __init__(self, config: Any, tokenizer: Any, compute_score: Any) -> None:
            self.config, self.tokenizer, self.compute_score = config, tokenizer, compute_score

    verl._reward_manager.cache_clear()
    stand_in(monkeypatch, "verl.experimental.reward_loop.reward_manager.base", RewardManagerBase=RewardManagerBase)


def with_nemo_rl(monkeypatch: Any) -> dict[str, str]:
    told = ["observations", "metadata", "next_stop_strings", "rewards", "terminateds", "answers"]
    registered: dict[str, str] = {}
    nemo_rl._environment.cache_clear()
    stand_in(monkeypatch, "ray", remote=lambda made: made)
    parts = {"EnvironmentInterface": object, "EnvironmentReturn": namedtuple("EnvironmentReturn", told)}
    stand_in(monkeypatch, "nemo_rl.environments.interfaces", **parts)
    stand_in(monkeypatch, "nemo_rl.environments.utils", register_env=registered.__setitem__)
    stand_in(monkeypatch, "nemo_rl.distributed.ray_actor_environment_registry", ACTOR_ENVIRONMENT_REGISTRY=registered)
    stand_in(monkeypatch, "nemo_rl.distributed.virtual_cluster", PY_EXECUTABLES=types.SimpleNamespace(SYSTEM="system"))
    return registered


def with_nemo_gym(monkeypatch: Any) -> None:
    from pydantic import BaseModel

    class Config(BaseModel):
        name: str = "grounding"

    class Request(BaseModel):
        response: Any

    class Response(Request):
        reward: float

    class Server(BaseModel):
        config: Config

    nemo_gym._server.cache_clear()
    parents = {"BaseResourcesServerConfig": Config, "BaseVerifyRequest": Request, "BaseVerifyResponse": Response}
    stand_in(monkeypatch, "nemo_gym.base_resources_server", SimpleResourcesServer=Server, **parents)


def gym_response(text: str) -> Any:
    """What NeMo-Gym hands over: reasoning, a call of a tool, and messages."""
    parts = [types.SimpleNamespace(type="output_text", text=said) for said in ('[{"bbox_2d": [0, 0, 9, 9]}]', text)]
    early, last = (types.SimpleNamespace(type="message", role="assistant", content=[part]) for part in parts)
    call = types.SimpleNamespace(type="function_call", name="zoom", arguments='{"bbox_2d": [1, 2, 3, 4]}')
    return types.SimpleNamespace(output=[early, call, last])


def by_verl(_: Any, reward: str, cases: Sequence[Case]) -> list[float]:
    return [verl.compute_score("images", one.text, one.ground_truth, {}, reward=reward)["score"] for one in cases]


def by_verl_mapping(_: Any, reward: str, cases: Sequence[Case]) -> list[float]:
    return [verl.compute_score("images", one.text, one.fields, None, reward=reward)["score"] for one in cases]


def by_easyr1(_: Any, reward: str, cases: Sequence[Case]) -> list[float]:
    inputs = [{"response": one.text, "response_length": 9, "ground_truth": one.ground_truth} for one in cases]
    return [one["overall"] for one in easyr1.compute_score(inputs, reward=reward)]


def by_ms_swift(monkeypatch: Any, reward: str, cases: Sequence[Case]) -> list[float]:
    orms = with_swift(monkeypatch)
    ms_swift.register(reward)
    rows = {"ground_truth": [one.ground_truth for one in cases], "messages": [[]] * len(cases), "trainer_state": None}
    return orms[reward](args=None)([one.text for one in cases], **rows)


def by_openrlhf(_: Any, reward: str, cases: Sequence[Case]) -> list[float]:
    queries, labels = [GROWN + one.text for one in cases], [one.ground_truth for one in cases]
    return openrlhf.reward_func(queries, [PROMPT] * len(cases), labels, reward)["rewards"].tolist()


def by_nemo_rl(monkeypatch: Any, reward: str, cases: Sequence[Case]) -> list[float]:
    with_nemo_rl(monkeypatch)
    environment = nemo_rl.GroundingEnvironment({"reward": reward})
    asked, early = {"role": "user", "content": EXAMPLE}, '[{"bbox_2d": [0, 0, 9, 9]}]'
    before = [asked, {"role": "assistant", "content": early}, {"role": "environment", "content": "look again"}]
    logs = [[*before, {"role": "assistant", "content": one.text, "token_ids": [1]}] for one in cases]
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
    tasks = [types.SimpleNamespace(ground_truth=one.ground_truth) for one in cases]
    traces = [types.SimpleNamespace(last_reply=one.text) for one in cases]
    return [asyncio.run(number(task=task, trace=trace)) for task, trace in zip(tasks, traces, strict=True)]


#: How each trainer calls: a function of monkeypatch, the name of a reward, and cases.
CALLS: dict[str, Callable[[Any, str, Sequence[Case]], list[float]]] = {
    name.removeprefix("by_"): call for name, call in list(globals().items()) if name.startswith("by_")
}
#: Trainers that keep rewards in single precision, whose tensors the modules make.
SINGLE = {"openrlhf", "nemo_rl"}

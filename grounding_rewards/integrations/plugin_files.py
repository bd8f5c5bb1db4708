"""The files that trainers want, and the lines of their configurations, for a reward with its parameters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from grounding_rewards.integrations.samples import ENVIRONMENT_VARIABLE, reward_of
from grounding_rewards.parsing import get_box_format
from grounding_rewards.rewards.grounding import GroundingReward

_PACKAGE = "grounding_rewards.integrations"
# Modules that a file in the working directory would hide.
_TAKEN = {"trl", "axolotl", "unsloth", "verl", "swift", "openrlhf", "nemo_rl", "nemo_gym", "verifiers", "ray", "torch"}


class Plugin(NamedTuple):
    """A trainer's file, None where it wants none, and the lines that name it."""

    content: str | None
    lines: str


def plugin(trainer: str, reward: str, parameters: Mapping[str, Any], path: Path | None = None) -> Plugin:
    """What a trainer needs to train with a reward.

    Args:
        trainer: of :data:`TRAINERS`.
        reward: as for :func:`grounding_rewards.get_reward`.
        parameters: of the reward, JSON values.
        path: where the file is going to be.

    Raises:
        ValueError: an unknown trainer, reward or parameter; a file is missing where the trainer wants one, or given
            where it wants none.

    Example:
        >>> print(plugin("verl", "R4", {"beta": 2}).lines)
        reward.custom_reward_function.path=pkg://grounding_rewards.integrations.verl
        reward.custom_reward_function.name=compute_score
        '+reward.custom_reward_function.reward_kwargs={reward: "R4", beta: 2}'
    """
    if trainer not in TRAINERS:
        raise ValueError(f"Expected a known trainer, got {trainer!r}. Use one of: {', '.join(TRAINERS)}.")
    kind = TRAINERS[trainer]
    if kind.body is None and path is not None:
        raise ValueError(f"Expected no --out for {trainer}, got {path}. It takes the package as it is: leave it out.")
    if kind.body is not None and path is None:
        raise ValueError(f"Expected a file for --out, got none. {trainer} reads its reward from one: give its place.")
    if path is not None and (path.suffix != ".py" or not path.stem.isidentifier() or path.stem in _TAKEN):
        raise ValueError(
            f"Expected a name such as boxes.py for --out, got {path.name!r}. It is imported: give it letters, digits "
            "and _, the ending .py, and not the name of a trainer."
        )
    asked = _Asked(reward, dict(parameters), reward_of(reward, **parameters), path)
    content = None
    if kind.body is not None:
        content = (
            f'"""{asked.made.__name__} for {kind.title}, written by `grounding-rewards plugin`."""\n\n'
            + kind.body(asked)
        )
    return Plugin(content, kind.lines(asked))


@dataclass(frozen=True)
class _Asked:
    reward: str
    parameters: dict[str, Any]
    made: GroundingReward
    path: Path | None

    @property
    def place(self) -> str:
        return "" if self.path is None else str(self.path.resolve())

    @property
    def given(self) -> str:
        """The arguments as source code."""
        return "".join([repr(self.reward), *(f", {name}={value!r}" for name, value in self.parameters.items())])

    @property
    def hydra(self) -> str:
        """The arguments as Hydra reads them on a command line."""
        return _hydra({"reward": self.reward, **self.parameters})

    @property
    def word(self) -> str:
        """The reward's name as a name in Python."""
        return "".join(sign if sign.isalnum() else "_" for sign in self.made.__name__)

    @property
    def in_tokens(self) -> bool:
        """Whether special tokens carry the boxes, or their labels."""
        return self.made.box_format is not None and get_box_format(self.made.box_format).from_token_ids


def _hydra(value: Any) -> str:
    """A value in Hydra's grammar, in which keys have no quotation marks."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_hydra(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_hydra, value)) + "]"
    return json.dumps(value)


class _Kind(NamedTuple):
    title: str
    body: Callable[[_Asked], str] | None
    lines: Callable[[_Asked], str]


def _trl_file(asked: _Asked) -> str:
    return f"from grounding_rewards import get_reward\n\n{asked.word} = get_reward({asked.given})\n"


def _verl_lines(asked: _Asked) -> str:
    lines = [
        f"reward.custom_reward_function.path=pkg://{_PACKAGE}.verl",
        "reward.custom_reward_function.name=compute_score",
        f"'+reward.custom_reward_function.reward_kwargs={asked.hydra}'",
    ]
    if asked.in_tokens:
        lines += [
            "reward.reward_manager.source=importlib",
            "reward.reward_manager.name=GroundingRewardManager",
            f"reward.reward_manager.module.path=pkg://{_PACKAGE}.verl_tokens",
        ]
    return "\n".join(lines)


def _easyr1_file(asked: _Asked) -> str:
    return (
        f"from {_PACKAGE}.easyr1 import compute_score as score\n\n"
        # EasyR1 asks the file whether it takes a batch.
        'REWARD_TYPE = "batch"\n'
        f"PARAMETERS = { ({'reward': asked.reward, **asked.parameters})!r}\n\n\n"
        "def compute_score(reward_inputs, **parameters):\n"
        "    return score(reward_inputs, **{**PARAMETERS, **parameters})\n"
    )


def _easyr1_lines(asked: _Asked) -> str:
    lines = [f"worker.reward.reward_function={asked.place}:compute_score"]
    return "\n".join([*lines, "worker.reward.skip_special_tokens=false"] if asked.in_tokens else lines)


def _ms_swift_file(asked: _Asked) -> str:
    return f"from {_PACKAGE}.ms_swift import register\n\nregister({asked.given})\n"


def _openrlhf_file(asked: _Asked) -> str:
    return (
        f"from {_PACKAGE}.openrlhf import reward_func as score\n\n\n"
        "def reward_func(queries, prompts, labels):\n"
        f"    return score(queries, prompts, labels, {asked.given})\n"
    )


def _nemo_rl_file(asked: _Asked) -> str:
    return (
        f"import runpy\nimport sys\n\nfrom {_PACKAGE}.nemo_rl import register\n\n"
        'if __name__ == "__main__":\n    register("grounding")\n'
        "    # The script of NeMo-RL that is to run, and its arguments.\n"
        '    sys.argv = sys.argv[1:]\n    runpy.run_path(sys.argv[0], run_name="__main__")\n'
    )


def _nemo_rl_lines(asked: _Asked) -> str:
    return (
        f"# uv run {asked.place} examples/run_vlm_grpo.py --config CONFIG.yaml\n"
        f"env:\n  grounding:\n    reward: {json.dumps(asked.reward)}\n"
        f"    reward_kwargs: {json.dumps(asked.parameters)}\n"
        "data:\n  default:\n    env_name: grounding"
    )


def _nemo_gym_file(asked: _Asked) -> str:
    return (
        f"from {_PACKAGE}.nemo_gym import GroundingResourcesServer\n\n"
        'if __name__ == "__main__":\n    GroundingResourcesServer.run_webserver()\n'
    )


def _nemo_gym_lines(asked: _Asked) -> str:
    return (
        "grounding_resources_server:\n  resources_servers:\n    grounding:\n"
        f"      entrypoint: {Path(asked.place).name}\n      domain: other\n"
        f"      reward: {json.dumps(asked.reward)}\n      reward_kwargs: {json.dumps(asked.parameters)}"
    )


def _verifiers_file(asked: _Asked) -> str:
    return (
        f"from {_PACKAGE}.verifiers import functions_of\n\n"
        f"{asked.word}, {asked.word}_components = functions_of({asked.given})\n"
    )


def _verifiers_lines(asked: _Asked) -> str:
    return (
        f'[env.taskset.task.rewards.{asked.word}]\nfn = "{asked.place}:{asked.word}"\n\n'
        f'[env.taskset.task.metrics.{asked.word}_components]\nfn = "{asked.place}:{asked.word}_components"'
    )


def _path_lines(option: str) -> Callable[[_Asked], str]:
    def lines(asked: _Asked) -> str:
        folder, module = Path(asked.place).parent, Path(asked.place).stem
        return f"# with PYTHONPATH={folder}\n" + option.format(path=f"{module}.{asked.word}")

    return lines


#: The trainers that `grounding-rewards plugin` knows; another is one line here.
TRAINERS: dict[str, _Kind] = {
    "trl": _Kind("TRL", _trl_file, _path_lines("trl grpo --reward_funcs {path} …")),
    "axolotl": _Kind("Axolotl", _trl_file, _path_lines("trl:\n  reward_funcs: [{path}]")),
    "unsloth": _Kind(
        "Unsloth",
        _trl_file,
        lambda asked: (
            f"from {Path(asked.place).stem} import {asked.word}\n\n"
            f"trainer = GRPOTrainer(reward_funcs=[{asked.word}], …)"
        ),
    ),
    "verl": _Kind("verl", None, _verl_lines),
    "easyr1": _Kind("EasyR1", _easyr1_file, _easyr1_lines),
    "ms-swift": _Kind(
        "ms-swift",
        _ms_swift_file,
        lambda asked: (
            f"--external_plugins {asked.place}\n--reward_funcs {asked.made.__name__}\n"
            f"# other parameters without another file: {ENVIRONMENT_VARIABLE}='{{\"beta\": 1.0}}'"
        ),
    ),
    "openrlhf": _Kind(
        "OpenRLHF", _openrlhf_file, lambda asked: f"--reward.remote_url {asked.place}\n--data.label_key label"
    ),
    "nemo-rl": _Kind("NeMo-RL", _nemo_rl_file, _nemo_rl_lines),
    "nemo-gym": _Kind("NeMo-Gym", _nemo_gym_file, _nemo_gym_lines),
    "verifiers": _Kind("verifiers", _verifiers_file, _verifiers_lines),
}

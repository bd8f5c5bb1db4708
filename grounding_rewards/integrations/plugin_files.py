"""The files that trainers want, and the lines of their configurations, for a reward with its parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from grounding_rewards.common.text_files import packaged_tables
from grounding_rewards.integrations.samples import reward_of
from grounding_rewards.parsing import get_box_format

# Modules that a file in the working directory would hide.
_TAKEN = {"trl", "axolotl", "unsloth", "verl", "swift", "openrlhf", "nemo_rl", "nemo_gym", "verifiers", "ray", "torch"}


class Plugin(NamedTuple):
    """A trainer's file, None where it wants none, and the lines that name it."""

    content: str | None
    lines: str


#: The trainers that `grounding-rewards plugin` knows, and what it writes for each; another is a table in the file.
TRAINERS: dict[str, dict[str, str]] = packaged_tables("grounding_rewards.integrations", "plugin_files.toml")


def plugin(trainer: str, reward: str, parameters: Mapping[str, Any], out: str | Path | None = None) -> Plugin:
    """The file and the lines of configuration with which a trainer uses a reward.

    Args:
        trainer: of :data:`TRAINERS`.
        reward: as for :func:`grounding_rewards.get_reward`.
        parameters: of the reward, JSON values.
        out: where the file is going to be.

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
    trainer_files, path = TRAINERS[trainer], None if out is None else Path(out)
    if "file" not in trainer_files and path is not None:
        raise ValueError(f"Expected no --out for {trainer}, got {path}. It takes the package as it is: leave it out.")
    if "file" in trainer_files and path is None:
        raise ValueError(f"Expected a file for --out, got none. {trainer} reads its reward from one: give its place.")
    if path is not None and (path.suffix != ".py" or not path.stem.isidentifier() or path.stem in _TAKEN):
        raise ValueError(
            f"Expected a name such as boxes.py for --out, got {path.name!r}. It is imported: give it letters, digits "
            "and _, the ending .py, and not the name of a trainer."
        )
    grounding_reward = reward_of(reward, **parameters)
    place = Path() if path is None else path.resolve()
    fields = {
        "name": grounding_reward.__name__,
        # The name as a name in Python.
        "word": "".join(sign if sign.isalnum() else "_" for sign in grounding_reward.__name__),
        "arguments": "".join([repr(reward), *(f", {name}={value!r}" for name, value in parameters.items())]),
        "mapping": repr({"reward": reward, **parameters}),
        "hydra": _hydra({"reward": reward, **parameters}),
        "reward": json.dumps(reward),
        "parameters": json.dumps(dict(parameters)),
        "path": str(place),
        "folder": str(place.parent),
        "module": place.stem,
    }
    lines = trainer_files["lines"]
    if grounding_reward.box_format is not None and get_box_format(grounding_reward.box_format).from_token_ids:
        lines += trainer_files.get("in_tokens", "")
    content = None
    if "file" in trainer_files:
        title = f"{grounding_reward.__name__} for {trainer_files['title']}"
        docstring = f'"""{title}, written by `grounding-rewards plugin`."""\n\n'
        content = docstring + Template(trainer_files["file"]).substitute(fields)
    return Plugin(content, Template(lines).substitute(fields).rstrip("\n"))


def _hydra(value: Any) -> str:
    """A value in Hydra's grammar, in which keys have no quotation marks."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_hydra(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_hydra, value)) + "]"
    return json.dumps(value)

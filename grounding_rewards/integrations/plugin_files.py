"""Write the file from which a trainer takes a reward, and the lines of the trainer's configuration that name it."""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from grounding_rewards.common.text_files import packaged_tables
from grounding_rewards.integrations.samples import refuse_schedules, reward_of
from grounding_rewards.parsing import get_box_format

# Names of modules that a file of the same name in the working directory would hide.
_HIDDEN = {"trl", "axolotl", "unsloth", "verl", "swift", "openrlhf", "nemo_rl", "nemo_gym", "verifiers", "ray", "torch"}
# Trainers that call a reward as TRL does, and tell it how far the training is.
_TELL_STEPS = {"trl", "axolotl", "unsloth", "ms-swift"}


class Plugin(NamedTuple):
    """The content of a trainer's file, None if it needs no file; and the lines of its configuration."""

    content: str | None
    lines: str


#: For each trainer that `grounding-rewards plugin` knows, the templates of its file and lines.
TRAINERS: dict[str, dict[str, str]] = packaged_tables("grounding_rewards.integrations", "plugin_files.toml")


def plugin(trainer: str, reward: str, parameters: Mapping[str, Any], out: str | Path | None = None) -> Plugin:
    """Make the content of a file, and the lines of configuration, with which a trainer uses a reward.

    Args:
        trainer: a key of :data:`TRAINERS`.
        reward: as for :func:`grounding_rewards.get_reward`.
        parameters: of the reward, JSON values.
        out: the path of the file; None for a trainer that needs none.

    Raises:
        ValueError: an unknown trainer, reward or parameter; a schedule, for a trainer that passes no step; or a path is
            missing, or given without need.

    Example:
        >>> print(plugin("verl", "R4", {"beta": 2}).lines)
        reward.custom_reward_function.path=pkg://grounding_rewards.integrations.verl
        reward.custom_reward_function.name=compute_score
        '+reward.custom_reward_function.reward_kwargs={reward: "R4", beta: 2}'
    """
    if trainer not in TRAINERS:
        raise ValueError(f"Expected a known trainer, got {trainer!r}. Use one of: {', '.join(TRAINERS)}.")
    templates = TRAINERS[trainer]
    path = None if out is None else Path(out)
    if "file" not in templates and path is not None:
        raise ValueError(f"Expected no --out for {trainer}, got {path}. It takes the package as it is: leave it out.")
    if "file" in templates and path is None:
        raise ValueError(f"Expected a file for --out, got none. {trainer} reads its reward from one: give its place.")
    if path is not None and (path.suffix != ".py" or not path.stem.isidentifier() or path.stem in _HIDDEN):
        raise ValueError(
            f"Expected a name such as boxes.py for --out, got {path.name!r}. It is imported: give it letters, digits "
            "and _, the ending .py, and not the name of a trainer."
        )
    grounding_reward = reward_of(reward, **parameters)
    if trainer not in _TELL_STEPS:
        refuse_schedules(grounding_reward)
    resolved_path = Path() if path is None else path.resolve()
    arguments = [repr(reward)] + [f"{name}={value!r}" for name, value in parameters.items()]
    # What `$name`, `$word` and so on stand for in the templates, each of which uses some of them.
    fields = {
        "name": grounding_reward.__name__,
        # The name as one that Python takes, such as `R3_low` for `R3-low`.
        "word": re.sub(r"[\W_]", "_", grounding_reward.__name__),
        "arguments": ", ".join(arguments),
        "mapping": repr({"reward": reward, **parameters}),
        "hydra": _hydra({"reward": reward, **parameters}),
        "reward": json.dumps(reward),
        "parameters": json.dumps(dict(parameters)),
        "path": str(resolved_path),
        "shell_path": shlex.quote(str(resolved_path)),
        "shell_folder": shlex.quote(str(resolved_path.parent)),
        "module": resolved_path.stem,
    }
    lines = templates["lines"]
    # Some models write boxes as special tokens, which trainers drop when they decode; the lines of `in_tokens`, if the
    # trainer has an option for it, tell it to keep them.
    if grounding_reward.box_format is not None and get_box_format(grounding_reward.box_format).from_token_ids:
        lines += templates.get("in_tokens", "")
    content = None
    if "file" in templates:
        title = f"{grounding_reward.__name__} for {templates['title']}"
        docstring = f'"""{title}, written by `grounding-rewards plugin`."""\n\n'
        content = docstring + Template(templates["file"]).substitute(fields)
    return Plugin(content, Template(lines).substitute(fields).rstrip("\n"))


def _hydra(value: Any) -> str:
    """A value as Hydra's command line reads it: JSON, but keys have no quotation marks, and letters no escapes.

    Hydra would take `\\u00fc` for these six characters, not for ü.
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_hydra(entry)}" for name, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_hydra, value)) + "]"
    return json.dumps(value, ensure_ascii=False)

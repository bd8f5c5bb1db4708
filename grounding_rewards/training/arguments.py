"""What `scripts/train_grpo.py` takes, from YAML and the command line, refused early when it is wrong.

TRL's `TrlParser` knows every field of TRL's own configuration; the few that are ours stand in
`GroundingArguments`. The parser checks neither types nor choices of YAML values, so that a slip would
surface after the model is loaded, or never. The `__post_init__` of the three classes here do.
"""

from __future__ import annotations

import argparse
import json
import types
import typing
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from trl import GRPOConfig, ModelConfig, TrlParser

from grounding_rewards.parsing import box_format_from_option
from grounding_rewards.scoring import get_reward

_DESCRIPTION = """\
Train a vision-language model to point at findings, with GRPO and a reward on its boxes.

  accelerate launch scripts/train_grpo.py --config configs/demo/grpo.yaml
  accelerate launch scripts/train_grpo.py --config configs/demo/grpo.yaml --reward R2 --max_steps 50

Every value of the YAML file can be overridden on the command line. Which reward to use and how it is set is
`reward` and `reward_kwargs`; the rest are the options of TRL's GRPOConfig and ModelConfig under their own
names. The run leaves checkpoint/, config.yaml, versions.json and log.jsonl in `output_dir`.
"""

BOX_FORMAT_HELP = (
    "How the model writes boxes: a name, for example qwen2.5-vl; or a format of your own, in YAML a mapping, on the "
    'command line JSON: \'{"syntax": "json", "keys": ["box"], "order": "yxyx", "space": "norm1000"}\'. Left out, it is '
    "derived from the model."
)

# Words that TRL compares a field with; it notices others only in mid-run
_GRPO_CHOICES: Mapping[str, tuple[object, ...]] = {
    "importance_sampling_level": ("token", "sequence"),
    "loss_type": ("grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "scale_rewards": ("group", "batch", "none", True, False),
    "vllm_importance_sampling_mode": ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
    "vllm_mode": ("colocate", "server"),
}


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Defaults behind every option, and the description as it is written."""


@dataclass
class GroundingArguments:
    """Reward, box format and films of a run; see `--help` for each.

    Raises:
        ValueError: Unknown reward, parameter or box format, or a number that is not positive; lists what is
            legal.

    >>> GroundingArguments(reward="R2", reward_kwargs='{"beta": 2}').reward_kwargs
    {'beta': 2}
    """

    reward: list[str] = field(
        default_factory=lambda: ["R4"],
        metadata={"help": "R1 to R5, a registered name or a dotted path. Several are summed, with `reward_weights`."},
    )
    reward_kwargs: dict | str | None = field(
        default=None,
        metadata={
            "help": "Parameters of the reward, in YAML a mapping, on the command line JSON: "
            "'{\"beta\": 1.5}'. For several rewards a list with one mapping each."
        },
    )
    box_format: dict | str | None = field(default=None, metadata={"help": BOX_FORMAT_HELP})
    dataset: str = field(
        default="synthetic",
        metadata={
            "help": "`synthetic` for drawn films, a folder with annotations.jsonl, a folder that "
            "`save_to_disk` wrote, or the name of a dataset on the hub."
        },
    )
    train_split: str = field(default="train", metadata={"help": "Split to train on."})
    eval_split: str = field(
        default="validation",
        metadata={"help": "Split to evaluate on; only read when `eval_strategy` asks for it."},
    )
    train_films: int | None = field(
        default=None,
        metadata={"help": "Train on the first so many films; all (of drawn films, 1024) when left out."},
    )
    eval_films: int | None = field(default=None, metadata={"help": "Evaluate on the first so many films."})
    max_image_pixels: int | None = field(
        default=None,
        metadata={
            "help": "Shrink films with more pixels when they are loaded; boxes stay in original pixels. "
            "The way to limit the image tokens of a prompt with vLLM, which has a processor of its own."
        },
    )

    def __post_init__(self) -> None:
        if isinstance(self.reward, str):
            self.reward = [self.reward]
        if isinstance(self.reward_kwargs, str):
            self.reward_kwargs = _from_json(self.reward_kwargs)
        self.box_format = box_format_from_option(self.box_format)
        check_types(self)
        for name in ("train_films", "eval_films", "max_image_pixels"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"Expected a positive number for {name}, got {value}. Leave it out to take all.")
        for name, parameters in zip(self.reward, spread_kwargs(self.reward, self.reward_kwargs), strict=True):
            get_reward(name, **parameters)


@dataclass
class GRPOArguments(GRPOConfig):
    """TRL's `GRPOConfig`, with types and choices checked."""

    def __post_init__(self) -> None:
        check_choices(self, _GRPO_CHOICES)
        check_types(self, but=_GRPO_CHOICES)
        super().__post_init__()


@dataclass
class ModelArguments(ModelConfig):
    """TRL's `ModelConfig`, with types and choices checked and a model required."""

    def __post_init__(self) -> None:
        check_types(self)
        check_choices(self, {f.name: f.metadata["choices"] for f in fields(self) if "choices" in f.metadata})
        if self.model_name_or_path is None:
            raise ValueError(
                "Expected a folder or a name on the hub for model_name_or_path, got nothing. "
                "Name the model to start from."
            )
        super().__post_init__()


def parse_grpo_arguments(
    args: Sequence[str] | None = None,
) -> tuple[GroundingArguments, GRPOArguments, ModelArguments]:
    """Read `--config` and the options after it, which override it.

    Args:
        args: The command line without the program's name; that of the process when left out.

    Raises:
        ValueError: A key of the YAML file is unknown, or a value has the wrong type or is none of the legal
            ones.
    """
    parser = TrlParser(
        (GroundingArguments, GRPOArguments, ModelArguments),
        usage="train_grpo.py --config FILE [--OPTION VALUE ...]",
        description=_DESCRIPTION,
        formatter_class=_HelpFormatter,
    )
    arguments, config, model = parser.parse_args_and_config(args)
    return arguments, config, model


def spread_kwargs(rewards: Sequence[object], kwargs: object) -> list[dict[str, Any]]:
    """One dict of parameters for each reward.

    Args:
        rewards: The rewards.
        kwargs: None; a dict, for a single reward; or a list with a dict or None for each.

    Raises:
        ValueError: `kwargs` is something else or of another length.

    >>> spread_kwargs(["R4", "R5"], [{"beta": 2}, None])
    [{'beta': 2}, {}]
    """
    if kwargs is None:
        return [{} for _ in rewards]
    each: Sequence[Any] = kwargs if isinstance(kwargs, (list, tuple)) else [kwargs]
    if len(each) == len(rewards) and all(one is None or isinstance(one, Mapping) for one in each):
        return [dict(one or {}) for one in each]
    wanted = "a mapping" if len(rewards) == 1 else f"a list of {len(rewards)} mappings"
    raise ValueError(
        f"Expected {wanted} for reward_kwargs, got {kwargs!r}. "
        "Write parameters by name, for example beta: 1.5; for several rewards one mapping each."
    )


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"Expected JSON for reward_kwargs, got {text!r} ({error}). Write it like '{{\"beta\": 1.5}}'."
        ) from None


def check_choices(owner: Any, choices: Mapping[str, Iterable[object]]) -> None:
    """Refuse fields of a dataclass that are none of the legal words; None counts as left out.

    Args:
        owner: The dataclass.
        choices: The legal values of each field by name.

    Raises:
        ValueError: A field has another value; the message lists the legal ones.
    """
    for name, legal in choices.items():
        value = getattr(owner, name)
        if value is not None and value not in legal:
            words = ", ".join(str(word) for word in legal if isinstance(word, str))
            raise ValueError(f"Expected one of {words} for {name}, got {value!r}. Choose one of these.")


def check_types(owner: Any, but: Container[str] = ()) -> None:
    """Refuse fields of a dataclass whose value does not fit their annotation; None counts as left out.

    Only int, float, bool, str, lists of these and unions are compared; an int passes for a float.

    Args:
        owner: The dataclass.
        but: Names of fields to pass over.

    Raises:
        ValueError: The first field that does not fit.
    """
    hints = typing.get_type_hints(type(owner))
    for one in fields(owner):
        value = getattr(owner, one.name)
        if value is not None and one.name not in but and not _fits(value, hints[one.name]):
            raise ValueError(
                f"Expected {_words(hints[one.name])} for {one.name}, got {value!r}. Correct the value's type."
            )


def _fits(value: object, hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in typing.get_args(hint))
    if origin is list:
        return isinstance(value, list) and all(_fits(item, typing.get_args(hint)[0]) for item in value)
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return isinstance(value, hint) if hint in (bool, str, types.NoneType) else True


def _words(hint: Any) -> str:
    return str(hint).replace("<class '", "").replace("'>", "").replace("typing.", "")

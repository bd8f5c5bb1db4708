"""Legal values of our own options, and types of all: the parser compares no value of a YAML file with its type.

The numbers of TRL's options are refused by what is built of them, see `grounding_rewards.training.model`.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from grounding_rewards.common.legal import Interval

_COUNT = Interval(1)

#: Of both commands, beside those of TRL.
IMAGE_NUMBERS: Mapping[str, Interval] = {
    "train_images": _COUNT,
    "eval_images": _COUNT,
    "max_image_pixels": _COUNT,
    "early_stopping_patience": _COUNT,
    "show_images": _COUNT,
    "show_images_every": _COUNT,
}

#: How a warm start changes images; see `grounding_rewards.training.gold_answers.GoldAnswers`.
AUGMENTATION: Mapping[str, Interval] = dict.fromkeys(
    ("crop", "contrast", "box_margin", "box_noise"), Interval(0, 0.5, below=True)
)

#: Words of GRPOConfig that TRL compares a field with; it notices others only in mid-run.
GRPO_CHOICES: Mapping[str, tuple[object, ...]] = {
    "importance_sampling_level": ("token", "sequence"),
    "loss_type": ("grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "scale_rewards": ("group", "batch", "none", True, False),
    "vllm_importance_sampling_mode": ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
    "vllm_mode": ("colocate", "server"),
}


def check_options(
    owner: Any,
    numbers: Mapping[str, Interval] = types.MappingProxyType({}),
    choices: Mapping[str, Iterable[object]] = types.MappingProxyType({}),
) -> None:
    """Refuse fields of a dataclass whose value is not legal; None counts as left out.

    Of types only int, float, bool, str, lists of these and unions are compared; an int passes for a float.

    Args:
        owner: the dataclass.
        numbers: the legal range of each field by name; a field that it does not have is passed over.
        choices: the legal values of each field by name, whatever its type.

    Raises:
        ValueError: a field has another value or type, or a number that is not finite; the message says what is legal.
    """
    for name, words in choices.items():
        value = getattr(owner, name)
        if value is not None and value not in words:
            listed = ", ".join(word for word in words if isinstance(word, str))
            raise ValueError(f"Expected one of {listed} for {name}, got {value!r}. Choose one of these.")
    hints = typing.get_type_hints(type(owner))
    values = {one.name: getattr(owner, one.name) for one in fields(owner)}
    for name, value in values.items():
        if value is not None and name not in choices and not _fits(value, hints[name]):
            raise ValueError(f"Expected {_words(hints[name])} for {name}, got {value!r}. Correct the value's type.")
    for name, value in values.items():
        legal = numbers.get(name)
        if legal is not None and value is not None and value not in legal:
            raise ValueError(f"Expected {legal} for {name}, got {value!r}. Choose one of these.")
        if any(isinstance(number, float) and not math.isfinite(number) for number in _numbers(value)):
            raise ValueError(f"Expected finite numbers for {name}, got {value!r}. Correct the value.")


def _numbers(value: object) -> Iterable[object]:
    return value if isinstance(value, list) else (value,)


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

"""Legal values of the options of a training run: `--help` of TRL names the options, not their ranges.

What has no range here is tried by `grounding_rewards.training.model.check_optimization`, which builds it. Building
alone is not enough: of 60 values just outside these ranges, TRL, transformers and the optimizer refuse 11.
"""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from torch.utils.checkpoint import checkpoint
from transformers.trainer_pt_utils import AcceleratorConfig

from grounding_rewards.common.legal import SHARE, SOME_SHARE, Interval

_POSITIVE = Interval(above=True)
_COUNT = Interval(1)
_NOT_NEGATIVE = Interval()

#: Of both commands, beside those of TRL.
IMAGE_NUMBERS: Mapping[str, Interval] = {
    "train_images": _COUNT,
    "eval_images": _COUNT,
    "max_image_pixels": _COUNT,
    "early_stopping_patience": _COUNT,
    "show_images": _COUNT,
    "show_images_every": _COUNT,
}

#: How a warm start changes images; see `grounding_rewards.training.sft.GoldAnswers`.
AUGMENTATION: Mapping[str, Interval] = dict.fromkeys(
    ("crop", "contrast", "box_margin", "box_noise"), Interval(0, 0.5, below=True)
)

#: Of transformers' TrainingArguments, which GRPOConfig and SFTConfig extend.
TRAINING_NUMBERS: Mapping[str, Interval] = {
    "per_device_train_batch_size": _COUNT,
    "per_device_eval_batch_size": _COUNT,
    "gradient_accumulation_steps": _COUNT,
    "num_train_epochs": _POSITIVE,
    "learning_rate": _POSITIVE,
    "warmup_steps": _NOT_NEGATIVE,
    "weight_decay": _NOT_NEGATIVE,
    "adam_beta1": Interval(0, 1, below=True),
    "adam_beta2": Interval(0, 1, below=True),
    "adam_epsilon": _POSITIVE,
    "max_grad_norm": _NOT_NEGATIVE,
    "label_smoothing_factor": Interval(0, 1, below=True),
    "logging_steps": _POSITIVE,
    "eval_steps": _POSITIVE,
    "eval_delay": _NOT_NEGATIVE,
    "save_steps": _POSITIVE,
    "save_total_limit": _COUNT,
    "seed": Interval(0, 2**32, below=True),
    "data_seed": Interval(0, 2**32, below=True),
    "dataloader_num_workers": _NOT_NEGATIVE,
    "dataloader_prefetch_factor": _COUNT,
    "ddp_timeout": _COUNT,
}

#: Of TRL's GRPOConfig.
GRPO_NUMBERS: Mapping[str, Interval] = {
    **TRAINING_NUMBERS,
    "num_generations": Interval(2),
    "num_generations_eval": _COUNT,
    "max_completion_length": _COUNT,
    "generation_batch_size": _COUNT,
    "steps_per_generation": _COUNT,
    "num_iterations": _COUNT,
    # At 0 all completions of an image are the same, and there is nothing to compare.
    "temperature": _POSITIVE,
    "top_p": SOME_SHARE,
    "top_k": _NOT_NEGATIVE,
    "min_p": SHARE,
    "repetition_penalty": _POSITIVE,
    "beta": _NOT_NEGATIVE,
    "epsilon": _POSITIVE,
    "epsilon_high": _POSITIVE,
    "delta": _POSITIVE,
    "ref_model_mixup_alpha": SHARE,
    "ref_model_sync_steps": _COUNT,
    "top_entropy_quantile": SOME_SHARE,
    "vllm_gpu_memory_utilization": SOME_SHARE,
    "vllm_tensor_parallel_size": _COUNT,
    "vllm_max_model_length": _COUNT,
    "vllm_server_timeout": _POSITIVE,
}

#: Of TRL's SFTConfig.
SFT_NUMBERS: Mapping[str, Interval] = {**TRAINING_NUMBERS, "max_length": _COUNT}

#: Of TRL's ModelConfig.
MODEL_NUMBERS: Mapping[str, Interval] = {
    "lora_r": _COUNT,
    "lora_alpha": _COUNT,
    "lora_dropout": Interval(0, 1, below=True),
}

#: Words of GRPOConfig that TRL compares a field with; it notices others only in mid-run.
GRPO_CHOICES: Mapping[str, tuple[object, ...]] = {
    "importance_sampling_level": ("token", "sequence"),
    "loss_type": ("grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "scale_rewards": ("group", "batch", "none", True, False),
    "vllm_importance_sampling_mode": ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
    "vllm_mode": ("colocate", "server"),
}

_CHECKPOINTING = tuple(
    name for name, one in inspect.signature(checkpoint).parameters.items() if one.kind is inspect.Parameter.KEYWORD_ONLY
)
#: Keys of options that hold a mapping, where the library that reads it would end with a traceback, or pass them over.
MAPPING_KEYS: Mapping[str, tuple[str, ...]] = {
    "accelerator_config": tuple(one.name for one in fields(AcceleratorConfig)),
    "activation_checkpointing_kwargs": (*_CHECKPOINTING, "every_n_layers", "offload"),
    "gradient_checkpointing_kwargs": (*_CHECKPOINTING, "every_n_layers", "offload"),
    "dataset_kwargs": ("skip_prepare_dataset",),
}


def check_options(
    owner: Any,
    numbers: Mapping[str, Interval],
    choices: Mapping[str, Iterable[object]] = types.MappingProxyType({}),
    where: str = "",
) -> None:
    """Refuse fields of a dataclass whose value is not legal; None counts as left out.

    Of types only int, float, bool, str, lists of these and unions are compared; an int passes for a float.

    Args:
        owner: the dataclass.
        numbers: the legal range of each field by name; a field that it does not have is passed over.
        choices: the legal values of each field by name, whatever its type.
        where: the option that holds the fields, for messages.

    Raises:
        ValueError: a field has another value or type, or a number that is not finite; the message says what is legal.
    """
    hints = typing.get_type_hints(type(owner))
    for name in (one.name for one in fields(owner)):
        value = getattr(owner, name)
        if value is None:
            continue
        if name in choices:
            listed = ", ".join(word for word in choices[name] if isinstance(word, str))
            right, expected, remedy = value in choices[name], f"one of {listed}", "Choose one of these."
        elif not _fits(value, hints[name]):
            right, expected, remedy = False, _words(hints[name]), "Correct the value's type."
        elif name in numbers:
            right, expected, remedy = value in numbers[name], str(numbers[name]), "Choose one of these."
        else:
            given = value if isinstance(value, list) else [value]
            right = all(math.isfinite(number) for number in given if isinstance(number, float))
            expected, remedy = "finite numbers", "Correct the value."
        if not right:
            raise ValueError(f"Expected {expected} for {name}{where and f' of {where}'}, got {value!r}. {remedy}")


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

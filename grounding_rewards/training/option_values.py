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

from grounding_rewards.common.validation import SHARE, SOME_SHARE, Interval

#: How a warm start changes images; see `grounding_rewards.training.sft.GoldAnswers`.
AUGMENTATION = ("crop", "contrast", "box_margin", "box_noise")

#: The legal range of each option, of TRL, transformers and ours.
NUMBERS: Mapping[str, Interval] = {
    name: legal
    for legal, names in (
        # counts
        (
            Interval(1),
            "train_images eval_images max_image_pixels early_stopping_patience "
            "per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps save_total_limit "
            "dataloader_prefetch_factor ddp_timeout num_generations_eval max_completion_length generation_batch_size "
            "steps_per_generation num_iterations ref_model_sync_steps vllm_tensor_parallel_size vllm_max_model_length "
            "lora_r lora_alpha",
        ),
        # Answers to an image are compared with one another.
        (Interval(2), "num_generations"),
        # At temperature 0 all completions of an image are the same, and there is nothing to compare.
        (
            Interval(above=True),
            "num_train_epochs adam_epsilon logging_steps eval_steps save_steps temperature repetition_penalty epsilon "
            "epsilon_high delta vllm_server_timeout",
        ),
        (
            Interval(),
            "warmup_steps weight_decay max_grad_norm eval_delay dataloader_num_workers top_k beta",
        ),
        (Interval(0, 1, below=True), "adam_beta1 adam_beta2 label_smoothing_factor lora_dropout"),
        (SHARE, "min_p ref_model_mixup_alpha"),
        # A rate above 1 is a slip of the exponent: usual are 1e-6 for all weights and 1e-5 for adapters.
        (SOME_SHARE, "learning_rate top_p top_entropy_quantile vllm_gpu_memory_utilization"),
        (Interval(0, 2**32, below=True), "seed data_seed"),
        (Interval(0, 0.5, below=True), " ".join(AUGMENTATION)),
    )
    for name in names.split()
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

#: Keys of `generation_kwargs`, of transformers and of vLLM, and the options of TRL that say the same.
GENERATION_OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(("max_length", "max_new_tokens", "max_tokens"), "max_completion_length"),
    **{name: name for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "cache_implementation")},
}


def check_options(
    owner: Any,
    numbers: Mapping[str, Interval] = NUMBERS,
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
    for name, default in ((one.name, one.default) for one in fields(owner)):
        value = getattr(owner, name)
        if value is None:
            continue
        if value == "" and default != "":
            raise ValueError(f"Expected a value for {name}, got ''. Write one, or leave the option out.")
        if name in choices:
            listed = ", ".join(word for word in choices[name] if isinstance(word, str))
            right, expected = value in choices[name], f"one of {listed}"
        elif not _fits(value, hints[name]):
            kind = str(hints[name]).replace("<class '", "").replace("'>", "").replace("typing.", "")
            right, expected = False, kind
        elif name in numbers:
            right, expected = value in numbers[name], str(numbers[name])
        else:
            given = value if isinstance(value, list) else [value]
            right = all(math.isfinite(number) for number in given if isinstance(number, float))
            expected = "finite numbers"
        if not right:
            of = f"{name} of {where}" if where else name
            raise ValueError(f"Expected {expected} for {of}, got {value!r}. Correct the value.")


def _fits(value: object, hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in typing.get_args(hint))
    if origin is list:
        return isinstance(value, list) and all(_fits(item, typing.get_args(hint)[0]) for item in value)
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return isinstance(value, hint) if hint in (bool, str, types.NoneType) else True

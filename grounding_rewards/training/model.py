"""Check the model of a run before its weights are loaded, and translate its options for TRL."""

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from huggingface_hub import try_to_load_from_cache
from peft import inject_adapter_in_model
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers import (
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AutoConfig,
    AutoModelForImageTextToText,
    AutoProcessor,
    Trainer,
    get_scheduler,
)
from transformers.integrations import get_available_reporting_integrations
from trl import get_peft_config, get_quantization_config

from grounding_rewards.models.load import adapter_config, check_place, check_weights
from grounding_rewards.parsing import BoxFormat, box_format_for_model_type, box_formats_of, get_box_format
from grounding_rewards.rewards.grounding import GroundingReward
from grounding_rewards.training.arguments import ModelArguments
from grounding_rewards.training.sharding import without_zero3


def load_run_processor(model: ModelArguments, *, trust_remote_code: bool = False) -> Any:
    """The processor of the model that a run starts from.

    Args:
        model: which model.
        trust_remote_code: as in transformers.

    Raises:
        ValueError: there is no processor, or it has no tokenizer or no chat template.
    """
    try:
        processor = AutoProcessor.from_pretrained(
            model.model_name_or_path,
            revision=model.model_revision,
            trust_remote_code=trust_remote_code,
            truncation_side="left",
            padding_side="left",
        )
    except (OSError, ValueError) as error:
        raise _loading_error("a processor", model, error) from error
    tokenizer = getattr(processor, "tokenizer", processor)
    # transformers makes an empty tokenizer where a folder has none.
    if not tokenizer("boxes")["input_ids"]:
        raise ValueError(
            f"Expected a processor with a tokenizer for model_name_or_path, got {model.model_name_or_path!r} without "
            "one. Copy tokenizer.json and tokenizer_config.json of the model into its folder."
        )
    if getattr(processor, "chat_template", None) is None:
        raise ValueError(
            f"Expected a processor with a chat template for model_name_or_path, got {model.model_name_or_path!r} "
            "without one. Begin with the instruction-tuned model, or copy its chat_template.jinja into the folder."
        )
    return processor


def is_local(model: ModelArguments) -> bool:
    """Whether the configuration of a model is on this machine, so that nothing is downloaded to look at its layers."""
    path = str(model.model_name_or_path)
    cached_file = try_to_load_from_cache(path, "config.json", revision=model.model_revision)
    # Only a text is a path: None says that the file was never asked for, an object that the hub has none.
    return Path(path).is_dir() or isinstance(cached_file, str)


def training_obstacle(config: Any) -> str | None:
    """Return why TRL cannot train models with this configuration; None if no obstacle is known.

    Args:
        config: of transformers.

    Example:
        >>> training_obstacle(AutoConfig.for_model("qwen3_vl")) is None
        True
        >>> training_obstacle(AutoConfig.for_model("llama"))
        'transformers has no image-text-to-text model of it'
    """
    if type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        return "transformers has no image-text-to-text model of it"
    if config.is_encoder_decoder:
        # Florence-2: TRL computes the log-probabilities of one sequence, of which the decoder has only the answer.
        return "it has a decoder for the answer alone, and TRL reads answers behind their prompt"
    if getattr(config, "image_token_id", None) is None:
        # Kosmos-2 and 2.5: TRL's GRPO reads `image_token_id`, and its collator for SFT lengthens tokens alone.
        return "it finds images by a mask, which TRL's trainers do not carry on over the answer"
    if config.model_type == "paligemma":
        # PaliGemma's attention runs both ways where token_type_ids are 0, and is causal where they are 1. It generates
        # with 1 (`_update_model_kwargs_for_generation`); TRL 1.16 computes its loss with 0 over the answer
        # (`GRPOTrainer._generate_and_score_completions`), so that each token sees those behind it. TRL's SFTTrainer
        # gives the processor the answers without images, which PaliGemma's refuses. Gemma 3 has token_type_ids too,
        # but there 1 marks the tokens of an image: 0 is right.
        return (
            "TRL's GRPO lets each token of an answer see the later ones, and TRL's SFT hands its processor answers "
            "without their images, which it refuses"
        )
    return None


def check_model(model: ModelArguments, *, trust_remote_code: bool = False) -> Any:
    """Build a model and its adapter without weights, and refuse what cannot be built.

    Args:
        model: the model, its attention and its adapter. The matrices of experts that a pattern of
            `lora_target_modules` matches are added to its `lora_target_parameters`: they are parameters, and no layers.
        trust_remote_code: as in transformers.

    Returns:
        The model without weights, with its adapter.

    Raises:
        ValueError: there is no such model, its weights are cut, TRL cannot train it, it needs a library that is not
            there, its attention is not known or not installed, a name of a layer for the adapter fits none, or the path
            holds an adapter.
    """
    path = str(model.model_name_or_path)
    check_place(path, "model_name_or_path")
    check_weights(path)
    if adapter_config(path) is not None:
        raise ValueError(
            f"Expected whole weights for model_name_or_path, got the adapter {path!r}. A new adapter on top of it "
            "could not be loaded again: merge it first, as `grounding-rewards sft` does in checkpoint/."
        )
    try:
        config = AutoConfig.from_pretrained(path, revision=model.model_revision, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        raise _loading_error("a configuration", model, error) from error
    obstacle = training_obstacle(config)
    # Only the model's own code knows the class of such a configuration.
    runs_own_code = trust_remote_code and type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    if obstacle is not None and not runs_own_code:
        raise ValueError(
            f"Expected a vision-language model that TRL can train for model_name_or_path, got {path!r} of model_type "
            f"{config.model_type!r}: {obstacle}. Name another model."
        )
    try:
        with torch.device("meta"), without_zero3():
            empty = AutoModelForImageTextToText.from_config(
                config, attn_implementation=model.attn_implementation, trust_remote_code=trust_remote_code
            )
    except (ImportError, ValueError) as error:
        raise ValueError(
            f"Expected all that {path!r} needs, and an attention of it for attn_implementation, got "
            f"{model.attn_implementation!r} ({_short(error)}). Use sdpa or eager, or install what is missing."
        ) from error
    if model.use_peft:
        _check_adapter(empty, model)
    return empty


def check_optimization(config: Any, empty: Any) -> None:
    """Build the optimizer and the schedule that the options describe, and refuse what cannot be built.

    Args:
        config: TRL's configuration.
        empty: the model without weights, of :func:`check_model`.

    Raises:
        ValueError: one of them cannot be built.
    """
    # Without `max_steps` the number follows from the dataset, which is not known yet: for a check any number will do.
    steps = config.max_steps if config.max_steps > 0 else 100
    try:
        optimizer_class, options = Trainer.get_optimizer_cls_and_kwargs(config, empty)
        # One weight that has a value: those of the model have none, which fused optimizers refuse.
        weights = [torch.nn.Parameter(torch.zeros(1))]
        is_class = isinstance(optimizer_class, type) and issubclass(optimizer_class, torch.optim.Optimizer)
        needs_model = not {"params", "model", "optimizer_dict"}.isdisjoint(options)
        if is_class and not needs_model:
            optimizer = optimizer_class(weights, **options)
        else:
            # It needs the model itself, and cannot be built yet. To try the schedule, another one stands in its place.
            optimizer = torch.optim.SGD(weights, config.learning_rate)
        get_scheduler(
            config.lr_scheduler_type,
            optimizer,
            num_warmup_steps=config.get_warmup_steps(steps),
            num_training_steps=steps,
            scheduler_specific_kwargs=config.lr_scheduler_kwargs,
        )
    except (ValueError, TypeError, KeyError, ImportError) as error:
        raise ValueError(
            f"Expected an optimizer and a schedule that can be built of optim {config.optim.value}, learning_rate "
            f"{config.learning_rate:g} and the options beside them, got {type(error).__name__}: {_short(error)}. "
            "Correct the option that it names."
        ) from error


def check_installed(config: Any, model: ModelArguments) -> None:
    """Refuse settings that need a library that is not installed.

    Args:
        config: TRL's configuration.
        model: the model and its precision.

    Raises:
        ValueError: a library is missing; says which option needs it.
    """
    requirements = (
        ("use_vllm", getattr(config, "use_vllm", False), "vllm"),
        ("use_liger_kernel", config.use_liger_kernel, "liger_kernel"),
        ("load_in_4bit", model.load_in_4bit, "bitsandbytes"),
        ("load_in_8bit", model.load_in_8bit, "bitsandbytes"),
    )
    missing = [(option, library) for option, is_on, library in requirements if is_on and find_spec(library) is None]
    trackers = get_available_reporting_integrations()
    missing += [("report_to", tracker) for tracker in config.report_to if tracker not in trackers]
    if missing:
        option, library = missing[0]
        raise ValueError(
            f"Expected {library} to be installed for {option}, got none. Install it with `pip install {library}`, or "
            f"leave {option} out."
        )


def model_init_kwargs(model: ModelArguments, init_kwargs: dict[str, Any] | str | None) -> dict[str, Any]:
    """The arguments of `from_pretrained` for a model.

    Args:
        model: the model and its precision.
        init_kwargs: the option `model_init_kwargs`, which overrides these; TRL has read a text into a mapping.
    """
    kwargs = {
        "revision": model.model_revision,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
        # A pickled checkpoint may hold a program.
        "use_safetensors": True,
    }
    if isinstance(init_kwargs, dict):
        kwargs |= init_kwargs
    return kwargs


def loading_kwargs(args: Any) -> dict[str, Any]:
    """The arguments of `from_pretrained` for the configuration and the processor of a model.

    Args:
        args: TRL's configuration.
    """
    kwargs = {"trust_remote_code": args.trust_remote_code}
    revision = (args.model_init_kwargs or {}).get("revision")
    if revision:
        kwargs["revision"] = revision
    return kwargs


def model_format(model: Any, loading: Mapping[str, Any]) -> str:
    """The name of the box format that a model writes, by its `model_type`.

    Args:
        model: name or folder of a model, or the model itself.
        loading: from :func:`loading_kwargs`.

    Raises:
        ValueError: no format is known for it.
    """
    config = AutoConfig.from_pretrained(model, **loading) if isinstance(model, str) else model.config
    return box_format_for_model_type(config.model_type)


def warn_of_another_family(dataset: Dataset, rewards: Sequence[Any], model: Any, loading: Mapping[str, Any]) -> None:
    """Warn if the rewards read boxes in another space, order or syntax than the model writes.

    Args:
        dataset: with the column `box_format`, which rewards without a format of their own read.
        rewards: reward functions of any kind; only grounding rewards read boxes.
        model: as for :func:`model_format`.
        loading: from :func:`loading_kwargs`.
    """
    try:
        native = get_box_format(model_format(model, loading))
    except ValueError:
        # No format is known of such models, so that this one may have been taught any.
        return
    column = dataset["box_format"] if "box_format" in dataset.column_names else ()
    reward_formats: list[BoxFormat] = []
    for reward in rewards:
        if isinstance(reward, GroundingReward):
            reward_formats += box_formats_of(reward.box_format, column)
    for box_format in reward_formats:
        contract = (box_format.space, box_format.order, box_format.syntax)
        if contract != (native.space, native.order, native.syntax):
            warnings.warn(
                f"box_format {box_format.name} is not the one that models of this model_type write, {native.name}: "
                "unless this model was taught it, its boxes are misread. Leave box_format out, or begin with "
                "`grounding-rewards sft` in this format.",
                stacklevel=4,
            )
            # One warning is enough, however many rewards there are.
            return


def adapter_and_quantisation(model: ModelArguments) -> dict[str, Any]:
    """The keyword arguments of TRL's trainers for LoRA and quantisation; None for what the model does without."""
    return {"peft_config": get_peft_config(model), "quantization_config": get_quantization_config(model)}


def _check_adapter(empty: Any, model: ModelArguments) -> None:
    """Add the adapter to the model without weights, and refuse names in its options that fit no part of the model.

    Some models keep the matrices of all experts of a layer in one weight. PEFT adapts such a weight only if the option
    `lora_target_parameters` names it: those that the pattern of `lora_target_modules` fits are added there.
    """
    targets = model.lora_target_modules
    # Listed now, before the adapter adds modules and parameters of its own.
    modules = dict(empty.named_modules())
    parameters = dict(empty.named_parameters())
    try:
        if isinstance(targets, str) and targets != "all-linear":
            # A weight of three dimensions holds a matrix for each expert.
            experts = [name for name, weight in parameters.items() if weight.ndim == 3 and re.fullmatch(targets, name)]
            named_parameters = list(model.lora_target_parameters or ())
            # Each name once, in this order.
            model.lora_target_parameters = list(dict.fromkeys(named_parameters + experts)) or None
        adapter = get_peft_config(model)
        inject_adapter_in_model(adapter, empty, low_cpu_mem_usage=True)
    except (ValueError, re.error) as error:
        # PEFT names the option in this one error.
        if "lora_dropout" in str(error):
            raise ValueError(
                f"Expected 0 for lora_dropout beside lora_target_parameters, got {model.lora_dropout:g} "
                f"({_short(error)}). PEFT cannot drop the inputs of experts that are one weight: set lora_dropout: 0."
            ) from error
        raise ValueError(
            f"Expected names or a pattern of layers of this model for lora_target_modules, got {targets!r} "
            f"({_short(error)}). Use all-linear, or names such as q_proj v_proj."
        ) from error
    # PEFT ignores a name that fits nothing as long as another one fits.
    if isinstance(targets, list):
        # PEFT itself replaces the names of some layers of experts: a name that it no longer has did fit.
        layers = [name for name in targets if name in adapter.target_modules]
        _check_path_ends("lora_target_modules", layers, modules)
    _check_path_ends("lora_target_parameters", model.lora_target_parameters or (), parameters)
    # PEFT finds these by any end of their paths, so that `proj` finds `q_proj` too.
    _check_path_ends("lora_modules_to_save", model.lora_modules_to_save or (), modules, separator="")
    if isinstance(empty.get_output_embeddings(), BaseTunerLayer):
        raise ValueError(
            f"Expected layers other than lm_head for lora_target_modules, got {targets!r}. TRL reads that layer's own "
            "weights, so that an adapter on it would never be trained."
        )


def _check_path_ends(option: str, names: Iterable[str], paths: Iterable[str], separator: str = ".") -> None:
    """Refuse names with which no path of the model ends.

    Args:
        option: the option that has the names.
        names: such as `q_proj`.
        paths: of modules or parameters, such as `model.layers.0.q_proj`.
        separator: has to stand before the name in a path; empty where a name such as `proj` may be the end of a longer
            one.
    """
    # With a dot at the beginning a whole path, too, has the separator before it.
    dotted_paths = [f".{path}" for path in paths]
    unknown = []
    for name in names:
        if not any(path.endswith(f"{separator}{name}") for path in dotted_paths):
            unknown.append(name)
    if unknown:
        raise ValueError(
            f"Expected names of parts of this model for {option}, got {', '.join(map(repr, unknown))}, which fits "
            "none. Correct it, or leave it out."
        )


def _loading_error(part: str, model: ModelArguments, error: Exception) -> ValueError:
    """The error to raise where a part of a model, such as "a processor", could not be loaded."""
    return ValueError(
        f"Expected {part} of a model for model_name_or_path, got {model.model_name_or_path!r} ({_short(error)}). "
        "Check the path and the spelling."
    )


def _short(error: Exception) -> str:
    """The message of an error in one line of at most 200 characters."""
    text = " ".join(str(error).split())
    return f"{text[:200]}…" if len(text) > 200 else text

"""Options of `grounding-rewards train` and `sft`, from YAML and the command line, checked before anything is loaded.

TRL's `TrlParser` knows every field of TRL's own configuration; ours are in `GroundingArguments` and
`SupervisedArguments`. The parser checks neither types nor choices nor ranges of YAML values, so a mistake would surface
after the model is loaded, or never: of 60 values just outside the ranges here, TRL, transformers and the optimizer
refuse 11. The `__post_init__` of the classes here check them; what has no range is tried by
`grounding_rewards.training.model.check_optimization`, which builds it.
"""

import argparse
import inspect
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NoReturn

from torch.utils.checkpoint import checkpoint
from transformers import GenerationConfig, training_args
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from transformers.trainer_pt_utils import AcceleratorConfig
from trl import GRPOConfig, ModelConfig, SFTConfig, TrlParser

import grounding_rewards.training.run_options as run_options
from grounding_rewards.common.config_files import check_known, find_shipped, read_config
from grounding_rewards.common.formatting import capitalised
from grounding_rewards.common.validation import Interval, check_keys
from grounding_rewards.data.checks import BAD_ROWS
from grounding_rewards.parsing import get_box_format
from grounding_rewards.rewards.registry import REGISTRY, ParameterError
from grounding_rewards.training.look_closer import LookCloser
from grounding_rewards.training.rewards import build_rewards

#: The legal range of each option, of TRL, transformers and ours.
NUMBERS: dict[str, Interval] = {}
for _row in run_options.TABLES["numbers"]:
    _range = dict(_row)
    NUMBERS |= dict.fromkeys(_range.pop("names").split(), Interval(**_range))

_CHECKPOINTING = tuple(
    parameter.name
    for parameter in inspect.signature(checkpoint).parameters.values()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
)
#: Keys of options that hold a mapping, where the library that reads it would end with a traceback, or pass them over.
MAPPING_KEYS: Mapping[str, tuple[str, ...]] = {
    "accelerator_config": tuple(option.name for option in fields(AcceleratorConfig)),
    "activation_checkpointing_kwargs": (*_CHECKPOINTING, "every_n_layers", "offload"),
    "gradient_checkpointing_kwargs": (*_CHECKPOINTING, "every_n_layers", "offload"),
    "dataset_kwargs": ("skip_prepare_dataset",),
}


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows the default of every option, and keeps the line breaks of the description."""


class _Parser(TrlParser):
    """TRL's parser, which raises ValueError instead of exiting: only the first process prints errors."""

    def error(self, message: str) -> NoReturn:
        """Raise ValueError where argparse would print a message and exit."""
        raise ValueError(f"{capitalised(message)}. --help lists the options and their values.")


@dataclass
class _ImageArguments(run_options.ImageOptions):
    """The checks that the options of both commands need."""

    def __post_init__(self) -> None:
        if self.box_format is not None:
            get_box_format(self.box_format)
        run_options.check_options(self, NUMBERS, choices={"bad_rows": BAD_ROWS, "save_dtype": run_options.SAVE_DTYPES})


@dataclass
class GroundingArguments(run_options.GroundingOptions, _ImageArguments):
    """Reward, box format and images of a run; see `--help` for each.

    Raises:
        ValueError: unknown reward, parameter or box format, or a number that is not positive; lists what is
            legal.

    >>> GroundingArguments(reward="R2", reward_kwargs='{"beta": 2}').reward_kwargs
    {'beta': 2}
    """

    _argument_group_name: ClassVar[str] = "reward and images"

    def __post_init__(self) -> None:
        if isinstance(self.reward, str):
            self.reward = [self.reward]
        if isinstance(self.reward_kwargs, str):
            self.reward_kwargs = _from_json("reward_kwargs", self.reward_kwargs, '{"beta": 1.5}')
        if isinstance(self.look_closer, str):
            self.look_closer = _from_json("look_closer", self.look_closer, '{"looks": 3}')
        look_closer = LookCloser.of(self.look_closer)
        super().__post_init__()
        # These two are attributes, and no fields, which would be saved in the configuration of the run.
        self.extras = [] if look_closer is None else [look_closer]
        try:
            self.rewards = build_rewards(self.reward, self.reward_kwargs, self.box_format)
        except ParameterError as error:
            # Commonly the file has parameters of its own reward, and the command line names another reward.
            raise ValueError(
                f"{error} reward_kwargs, on the command line or in the YAML, is {self.reward_kwargs}; "
                "another reward needs its own, for example --reward_kwargs '{\"no_box_bonus\": 0.2}'."
            ) from error


@dataclass
class SupervisedArguments(run_options.SupervisedOptions, _ImageArguments):
    """Images and augmentation of a warm start; see `--help` for each.

    Raises:
        ValueError: a value has the wrong type or is none of the legal ones; lists what is legal.
    """

    _argument_group_name: ClassVar[str] = "images and augmentation"


@dataclass
class GRPOArguments(GRPOConfig):
    """TRL's `GRPOConfig`, checked; completions are not printed, and by default logged without their images."""

    _argument_group_name: ClassVar[str] = "options of TRL's GRPOConfig"

    log_multimodal: bool = run_options.documented(
        False, "Log the images beside the completions. Images of patients stay out of logs."
    )
    num_completions_to_print: int | None = run_options.documented(
        0, "Stays 0: printed rows name patients. Read completions/."
    )

    def __post_init__(self) -> None:
        # A choice that does not exist would be noticed by TRL only in mid-run.
        run_options.check_options(self, NUMBERS, choices=run_options.TABLES["choices"])
        _check_common_options(self)
        if self.num_completions_to_print != 0:
            raise ValueError(
                f"Expected 0 for num_completions_to_print, got {self.num_completions_to_print}: printed rows name "
                "patients. Leave it out; completions/ in output_dir has all rows."
            )
        if self.load_best_model_at_end:
            # Where nothing is named transformers would take the loss, which says little of the rewards.
            self.metric_for_best_model: str | None = self.metric_for_best_model or "reward"
        if self.reward_weights is not None and not any(self.reward_weights):
            raise ValueError(
                f"Expected a weight other than 0 for reward_weights, got {self.reward_weights}. Weigh at least one "
                "reward."
            )
        super().__post_init__()
        _check_generation(self)


@dataclass
class SupervisedConfig(SFTConfig):
    """TRL's `SFTConfig`, checked; answers are not truncated."""

    _argument_group_name: ClassVar[str] = "options of TRL's SFTConfig"

    max_length: int | None = run_options.documented(None, "Stays empty: TRL would cut the answer.")
    remove_unused_columns: bool = False

    def __post_init__(self) -> None:
        run_options.check_options(self, NUMBERS)
        _check_common_options(self)
        if self.max_length is not None:
            raise ValueError(
                f"Expected null for max_length, got {self.max_length}. TRL would cut answers: lower max_image_pixels, "
                "or shorten prompts."
            )
        super().__post_init__()


@dataclass
class ModelArguments(ModelConfig):
    """TRL's `ModelConfig`, with types, choices and ranges checked and a model required."""

    _argument_group_name: ClassVar[str] = "model and adapters, options of TRL's ModelConfig"

    def __post_init__(self) -> None:
        # The file of an earlier run has a list of one name as a text, which TRL would not read again as a list.
        for name in ("lora_target_modules", "lora_target_parameters", "lora_modules_to_save"):
            if isinstance(getattr(self, name), str):
                setattr(self, name, [getattr(self, name)])
        choices = {option.name: option.metadata["choices"] for option in fields(self) if "choices" in option.metadata}
        run_options.check_options(self, NUMBERS, choices=choices)
        if self.model_name_or_path is None:
            raise ValueError(
                "Expected a folder or a name on the hub for model_name_or_path, got nothing. "
                "Name the model to start from."
            )
        self.model_name_or_path: str = find_shipped(self.model_name_or_path)
        super().__post_init__()
        # TRL turns a list of one name into a text, which PEFT reads as a pattern for whole paths. A plain name fits no
        # path: make it a list again.
        targets = self.lora_target_modules
        if isinstance(targets, str) and targets != "all-linear" and targets.replace(".", "_").isidentifier():
            self.lora_target_modules: list[str] | str | None = [targets]


def parse_grpo_arguments(
    args: Sequence[str] | None = None, options: Mapping[str, Any] | None = None
) -> tuple[GroundingArguments, GRPOArguments, ModelArguments]:
    """Read the options of `train` from the files of `--config` and the command line, which overrides the files.

    Args:
        args: the command line without the program's name; that of the process when left out.
        options: values by name, as if they stood in a first file; the files of `--config` override them.

    Returns:
        Our options, TRL's configuration, and the model.

    Raises:
        ValueError: a file cannot be read; an option is unknown, or has the wrong type or is none of the legal ones.
    """
    arguments, config, model = _parse((GroundingArguments, GRPOArguments, ModelArguments), "train", args, options)
    weights = config.reward_weights
    if weights is not None and len(weights) != len(arguments.reward):
        raise ValueError(
            f"Expected {len(arguments.reward)} for the number of reward_weights, one for each reward, got "
            f"{len(weights)}. Write one number for each of {', '.join(arguments.reward)}."
        )
    if config.sync_ref_model and (config.beta == 0 or model.use_peft):
        cause = "beta 0" if config.beta == 0 else "use_peft: true"
        raise ValueError(
            f"Expected a reference model to renew for sync_ref_model, got {cause}, with which TRL keeps none. Leave "
            "sync_ref_model out, or train all weights with beta above 0."
        )
    return arguments, config, model


def parse_sft_arguments(
    args: Sequence[str] | None = None, options: Mapping[str, Any] | None = None
) -> tuple[SupervisedArguments, SupervisedConfig, ModelArguments]:
    """Read the options of `sft`, as :func:`parse_grpo_arguments` those of `train`."""
    return _parse((SupervisedArguments, SupervisedConfig, ModelArguments), "sft", args, options)


def _parse(
    types: Iterable[type], command: str, args: Sequence[str] | None, options: Mapping[str, Any] | None
) -> tuple[Any, Any, Any]:
    """Return an object of each of three types, and set the environment variables under `env`.

    Args:
        types: of our options, TRL's configuration and the model.
        command: `train` or `sft`.
        args: as for :func:`parse_grpo_arguments`, like the next.
        options: values that files and command line override.
    """
    parser = _Parser(
        types,
        prog=f"grounding-rewards {command}",
        usage=run_options.USAGE.format(command=command),
        description=run_options.DESCRIPTIONS[command].format(rewards=", ".join(REGISTRY)),
        formatter_class=_HelpFormatter,
    )
    # The files are read first: the command line overrides them.
    file_parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    file_parser.add_argument("--config", action="append", default=[])
    try:
        files, words = file_parser.parse_known_args(args)
    except argparse.ArgumentError as error:
        raise ValueError("Expected a file after --config, got none. Name the YAML file of the run.") from error
    # Beside the options, a file may have environment variables under `env`, as with TRL's own commands.
    names = {"env", *(action.dest for action in parser._actions)}
    values = dict(options or {})
    check_known(values, names, command)
    values |= read_config(files.config, option_names=names, command=command)
    environment = values.pop("env", {})
    if not isinstance(environment, Mapping):
        raise ValueError(f"Expected a mapping for env, got {environment!r}. Write NAME: value below it.")
    os.environ.update({name: str(value) for name, value in environment.items()})
    parser.set_defaults_with_config(**values)
    arguments, config, model = parser.parse_args_into_dataclasses(args=words)
    _check_evaluation(arguments, config)
    # Whoever writes `use_peft: false` has switched the adapter off, and may keep its options. Whoever does not mention
    # it may have forgotten to switch it on.
    if "use_peft" not in values and not any(word.startswith("--use_peft") for word in words):
        _refuse_adapter_options(model)
    return arguments, config, model


def _refuse_adapter_options(model: ModelArguments) -> None:
    """Refuse options of an adapter, and of quantised weights, which only an adapter can train."""
    for option in fields(ModelConfig):
        name, value = option.name, getattr(model, option.name)
        is_of_adapter = name.startswith(("lora_", "use_rslora", "use_dora", "load_in_"))
        if is_of_adapter and value != option.default:
            raise ValueError(
                f"Expected use_peft: true beside {name}, got {value!r} alone, which would train all weights, and "
                f"quantised ones cannot be. Set use_peft, or leave {name} out."
            )


def _check_common_options(config: Any) -> None:
    """Refuse options of both trainers that transformers would refuse late, in obscure words, or not at all."""
    for name, legal in MAPPING_KEYS.items():
        mapping = getattr(config, name, None)
        # On the command line a mapping is JSON; any other text is the path of a file.
        if isinstance(mapping, str) and mapping[:1] == "{":
            mapping = _from_json(name, mapping, "{...}")
        check_keys(name, mapping, legal)
    if config.max_steps != -1 and config.max_steps < 1:
        raise ValueError(
            f"Expected at least 1 for max_steps, got {config.max_steps}. Leave it out to train num_train_epochs."
        )
    _check_precision(config)
    reporters = [config.report_to] if isinstance(config.report_to, str) else config.report_to or ()
    check_keys("report_to", dict.fromkeys(reporters), ("none", "all", *sorted(INTEGRATION_TO_CALLBACK)))
    if len(reporters) > 1 and {"none", "all"} & {*reporters}:
        raise ValueError(
            f"Expected none or all by itself for report_to, got {', '.join(reporters)}. Leave it out, or the others."
        )


def _check_generation(config: Any) -> None:
    """Refuse keys of `generation_kwargs` that are options of TRL: only the generation, not the loss, would use them."""
    settings = config.generation_kwargs or {}
    # Keys of transformers and of vLLM, and the options of TRL that say the same.
    for key, option in run_options.TABLES["generation"].items():
        if key in settings:
            raise ValueError(
                f"Expected {option} as an option alone, got {key} {settings[key]!r} in generation_kwargs "
                f"beside it, which the training would not know of. Set {option}, and leave {key} out there."
            )
    # vLLM has options of its own.
    if not config.use_vllm:
        check_keys("generation_kwargs", settings, vars(GenerationConfig()))


def _check_precision(config: Any) -> None:
    """Refuse bfloat16 without a GPU for it, and name all options to change, which transformers names one by one."""
    bf16_options = []
    # TRL takes bf16 by default.
    if config.bf16 or (config.bf16 is None and not config.fp16):
        bf16_options.append("bf16")
    if config.bf16_full_eval:
        bf16_options.append("bf16_full_eval")
    has_bf16 = training_args.is_torch_bf16_gpu_available() or training_args.is_torch_xla_available()
    if not bf16_options or config.use_cpu or has_bf16:
        return
    # These need a GPU too, so that without one all have to be off.
    gpu_options = bf16_options + [name for name in ("tf32", "use_vllm") if getattr(config, name, False)]
    switches = " ".join(f"--{name} false" for name in gpu_options)
    raise ValueError(
        f"Expected a GPU that computes in bfloat16 for {bf16_options[0]}, got none that torch can use. "
        f"`grounding-rewards env` says what torch sees. For an older GPU give --{bf16_options[0]} false --fp16 true; "
        f"for a small model on the processor, --use_cpu true {switches}."
    )


def _check_evaluation(arguments: _ImageArguments, config: Any) -> None:
    """Refuse an evaluation on the images of the training, and early stopping that would not keep the best model."""
    if config.eval_strategy != "no" and arguments.eval_split == arguments.train_split:
        raise ValueError(
            f"Expected another split than that of training for eval_split, got {arguments.eval_split!r}. "
            "Evaluate on images that are not trained on."
        )
    if arguments.early_stopping_patience is not None and not config.load_best_model_at_end:
        raise ValueError(
            "Expected load_best_model_at_end: true beside early_stopping_patience, got false. "
            "The last model is not the best one then."
        )


def _from_json(name: str, text: str, example: str) -> Any:
    """Parse the JSON of an option; the error for anything else shows the example."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"Expected JSON for {name}, got {text!r} ({error}). Write it like '{example}'.") from None

"""The options of a training that `--help` shows, with defaults and help: ours, and the most important ones of TRL.

Nothing here loads TRL. `grounding_rewards.training.arguments` reads and checks the options.
"""

import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from grounding_rewards.common.text_files import packaged_tables
from grounding_rewards.common.validation import Interval
from grounding_rewards.images.decoding import ALLOW_OUTSIDE_HELP

#: Texts and legal values: the tables of `legal_values.toml`.
TABLES: dict[str, Any] = packaged_tables("grounding_rewards.training", "legal_values.toml")
USAGE: str = TABLES["usage"]
#: The text above the options of each command; `{rewards}` is replaced by the list of rewards.
DESCRIPTIONS: dict[str, str] = {
    command: text.replace("{files}", TABLES["files"]) for command, text in TABLES["descriptions"].items()
}
SAVE_DTYPES = ("float32", "float16", "bfloat16")

#: How a warm start changes images; see `grounding_rewards.training.sft.GoldAnswers`.
AUGMENTATION = ("crop", "contrast", "box_margin", "box_noise")


def documented(default: Any, text: str) -> Any:
    """Make a field of a dataclass with its default and its text for `--help`."""
    return field(default=default, metadata={"help": text})


@dataclass
class ImageOptions:
    """Options of both `train` and `sft`."""

    dataset: str = documented(
        "synthetic",
        "`synthetic` for drawn images, a folder with annotations.jsonl, a folder that `save_to_disk` wrote, or the "
        "name of a dataset on the hub. Where it holds no image out, patients are drawn for train, validation and "
        "test.",
    )
    train_split: str = documented("train", "Split to train on.")
    eval_split: str = documented(
        "validation", "Split to evaluate on, another one; only read when `eval_strategy` asks for it."
    )
    train_images: int | None = documented(
        None, "Train on the first images, up to this number; left out, on all (on 1024 synthetic ones)."
    )
    eval_images: int | None = documented(None, "Evaluate on the first images, up to this number.")
    bad_rows: str = documented(
        "refuse",
        "What is done with rows that cannot be learned from, such as one with a box outside its image: `refuse` "
        "names each problem with the first rows that have it and ends, `drop` goes on without these rows and says "
        "as much.",
    )
    box_format: dict | str | None = documented(None, TABLES["box_format"])
    allow_outside: bool = documented(False, ALLOW_OUTSIDE_HELP)
    max_image_pixels: int | None = documented(
        None,
        "Largest image that the model sees, in pixels; boxes stay in pixels of the original image. Saved in the "
        "processor, so that every later command feeds images of the same size. Left out, the processor's own.",
    )
    overwrite: bool = documented(False, "Remove the run that `output_dir` holds, and start another one there.")
    early_stopping_patience: int | None = documented(
        None,
        "Stop after this number of evaluations in a row that were not better than the best, by "
        "`metric_for_best_model`; needs `load_best_model_at_end`.",
    )


@dataclass
class GroundingOptions(ImageOptions):
    """Options of `train`."""

    reward: list[str] = field(
        default_factory=lambda: ["R4"],
        metadata={"help": "R1 to R5, a registered name or a dotted path. Several are summed, with `reward_weights`."},
    )
    reward_kwargs: dict | str | None = documented(
        None,
        "Parameters of the reward, in YAML a mapping, on the command line JSON: '{\"beta\": 1.5}'. For several rewards "
        "a list with one mapping each. In the place of a number may stand a schedule: "
        '\'{"iou_threshold": {"schedule": "linear", "from": 0.1, "to": 0.5, "over": 0.4}}\'.',
    )
    look_closer: dict | str | None = documented(
        None,
        "Let the model zoom into the image before it answers: in YAML a mapping, on the command line JSON: "
        '\'{"looks": 3, "cost": 0.02}\'. `looks` pictures at most; a part below `min_side` is widened, one above '
        "`max_pixels` shrunk. The chat template has to render tools.",
    )
    parity_check: bool = documented(
        True,
        "Check before the first step that the trainer sees what the model saw. Off where the check itself does not "
        "suit a set-up.",
    )


@dataclass
class SupervisedOptions(ImageOptions):
    """Options of `sft`."""

    crop: float = documented(0.0, "Cut up to this fraction off each side at random; the boxes move along.")
    contrast: float = documented(0.0, "Scale contrast and mean brightness at random by up to this fraction.")
    box_margin: float = documented(
        0.0, "Widen boxes on each side by this fraction of their size: boxes as they are drawn loosely."
    )
    box_noise: float = documented(
        0.0,
        "Move each side of a box by a normal error of this fraction of the box's own size, anew each time: boxes as "
        "several less careful readers draw them.",
    )
    save_dtype: str | None = documented(
        None, f"Type of the saved weights: {', '.join(SAVE_DTYPES)}. Left out, that of training."
    )


#: TRL's options that most runs set: by command and name, the default that they have here, and the text for `--help`.
COMMON_OPTIONS: dict[str, dict[str, tuple[Any, str]]] = {}
for _command in DESCRIPTIONS:
    _options = TABLES["common"]["both"] | TABLES["common"][_command]
    COMMON_OPTIONS[_command] = {name: (option.get("default"), option["help"]) for name, option in _options.items()}
OUR_OPTIONS = {"train": GroundingOptions, "sft": SupervisedOptions}


def check_options(
    owner: Any,
    numbers: Mapping[str, Interval],
    choices: Mapping[str, Iterable[object]] = types.MappingProxyType({}),
    owner_name: str = "",
) -> None:
    """Refuse fields of a dataclass whose value is not legal; None counts as left out.

    Of types only int, float, bool, str, lists of these and unions are compared; an int passes for a float.

    Args:
        owner: an object of the dataclass.
        numbers: the legal range of each field by name; a field that it does not have is passed over.
        choices: the legal values of each field by name, whatever its type.
        owner_name: the option that holds the fields, for messages.

    Raises:
        ValueError: a field has another value or type, or a number that is not finite; the message says what is legal.
    """
    hints = typing.get_type_hints(type(owner))
    for option in fields(owner):
        name, value = option.name, getattr(owner, option.name)
        if value is None:
            continue
        # An empty text passes for any str, but is a value left out by mistake.
        if value == "" and option.default != "":
            raise ValueError(f"Expected a value for {name}, got ''. Write one, or leave the option out.")
        legal_values = _missed_values(value, hints[name], numbers.get(name), choices.get(name))
        if legal_values is not None:
            full_name = f"{name} of {owner_name}" if owner_name else name
            raise ValueError(f"Expected {legal_values} for {full_name}, got {value!r}. Correct the value.")


def _missed_values(value: Any, hint: Any, interval: Interval | None, choices: Iterable[object] | None) -> str | None:
    """The legal values in words if the value is not one of them; None if it is.

    Args:
        value: of an option.
        hint: the type of the option.
        interval: its legal range, if it has one.
        choices: its legal values, if they are listed: then neither type nor range matter.
    """
    if choices is not None:
        words = ", ".join(choice for choice in choices if isinstance(choice, str))
        return None if value in choices else f"one of {words}"
    if not _has_type(value, hint):
        # Python writes some types as <class 'int'> and typing.Optional[int]: the user is shown int and Optional[int].
        return str(hint).replace("<class '", "").replace("'>", "").replace("typing.", "")
    if interval is not None:
        return None if value in interval else str(interval)
    # Without a range a number may have any value but infinity and NaN.
    numbers = value if isinstance(value, list) else [value]
    if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
        return "finite numbers"
    return None


def _has_type(value: object, hint: Any) -> bool:
    """Whether a value has the type of an option; types other than those of `check_options` take any value."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_has_type(value, option) for option in typing.get_args(hint))
    if origin is list:
        return isinstance(value, list) and all(_has_type(item, typing.get_args(hint)[0]) for item in value)
    if hint in (int, float):
        # An int passes for a float. True and False are ints in Python, but no numbers here.
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return isinstance(value, hint) if hint in (bool, str, types.NoneType) else True

"""The options of several commands, with type and help; rewards by words; answers of a log or of a model."""

# No `from __future__ import annotations`: cyclopts looks for the types of inherited options where they are inherited.

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from cyclopts import Parameter

from grounding_rewards.columns import SIZE_COLUMNS
from grounding_rewards.commands.console import say, stage_progress
from grounding_rewards.common.text_files import parse_json
from grounding_rewards.common.validation import Interval
from grounding_rewards.images.decoding import ALLOW_OUTSIDE_HELP
from grounding_rewards.logs.run_log import model_name

if TYPE_CHECKING:
    from datasets import Dataset

    from grounding_rewards.logs.join import ImageAnswers
    from grounding_rewards.models.ask import AskedModel
    from grounding_rewards.rewards.grounding import GroundingReward


def option(help: str, name: str | None = None, repeated: bool = False) -> Parameter:
    """Describe an option of a command line.

    Args:
        help: its text.
        name: its name, if that is not the parameter's.
        repeated: whether it is given once for each of several values, not once before all of them.
    """
    return Parameter(help=help, name=name, consume_multiple=not repeated)


def in_range(low: float = 0, high: float = math.inf, *, above: bool = False) -> Parameter:
    """A cyclopts ``Parameter`` for an option whose number, or each of whose numbers, must be in an :class:`Interval`.

    With `above` the number must be larger than `low`, not equal to it.
    """
    legal = Interval(low, high, above=above)

    def check(_: Any, option_value: Any) -> None:
        """Raise a ValueError if a number of the option's value lies outside the range; None is an option left out."""
        values = option_value if isinstance(option_value, tuple | list) else [option_value]
        for value in values:
            if value is not None and value not in legal:
                raise ValueError(f"Expected {legal}, got {value}.")

    return Parameter(validator=check)


def _refuse_folder(_: Any, path: Path | None) -> None:
    """Refuse a folder where a file is to be written, before the work and not after it."""
    if path is not None and path.is_dir():
        raise ValueError(f"Expected a file, got the folder {str(path)!r}.")


AllowOutside = Annotated[bool, option(ALLOW_OUTSIDE_HELP)]
BadRows = Annotated[
    Literal["refuse", "drop"],
    option(
        "images that cannot be right, such as one with a box outside it: name each problem and the first that have it "
        "and end, or go on without them and say as much"
    ),
]
BoxFormat = Annotated[
    str | None,
    option("how the model writes boxes: a name, or a mapping as in a configuration; default: what the data say"),
]
OutputFile = Annotated[Path | None, Parameter(validator=_refuse_folder)]
Json = Annotated[OutputFile, option("write every number there, without any text or image")]
MaxImages = Annotated[int | None, option("the first so many; default: all"), in_range(1)]
Reward = Annotated[str, option("R1 … R5, soft_f1, or a dotted path")]
Rewards = Annotated[
    Sequence[str],
    option(
        "R1 … R5, soft_f1, a control such as random, a dotted path, or one of them with parameters: "
        """R3:iou_threshold=0.3,beta=1 or R3:{"beta": 1}"""
    ),
]
RewardKwargs = Annotated[str | None, option("""parameters in JSON, such as '{"iou_threshold": 0.4}'""")]
SourceOption = Annotated[
    Sequence[str],
    option("NAME=VALUE, an option of the source, may be repeated: see grounding-rewards prepare --help", repeated=True),
]
TextColumn = Annotated[str | None, option("column of the log with the completions")]
LabelMatching = Literal["ignore", "exact", "synonyms"]
Pixels = Annotated[float | None, option("in pixels, of images that state none"), in_range(above=True)]
ResizedPixels = Annotated[
    float | None, option("in pixels, of the image that the model saw, for formats in its pixels"), in_range(above=True)
]


@Parameter(name="*")
@dataclass(kw_only=True)
class AnswerOptions:
    """The options of commands that measure answers, of a log of completions or of a model, to the images of a dataset.

    Args:
        model: folder or name of a checkpoint or of a saved adapter
        dataset: `synthetic`, a folder of images, or a name on the hub
        split: of the dataset
        by_order: the rows of the log are in the order of the dataset's images, which no column names
        max_new_tokens: of an answer
        batch_size: images that are asked about together
        max_image_pixels: largest image that the model sees; default: what the processor of the model was saved with
        backend: what runs the model; auto is vLLM where it is installed and there is a GPU
        vllm_options: how vLLM holds the model, in JSON, such as '{"max_model_len": 4096}'; also dtype,
            gpu_memory_utilization, tensor_parallel_size
        seed: of the samples
        temperature: of the samples
    """

    # Options that have no effect on a log, and those that have none on a model.
    only_model: ClassVar[tuple[str, ...]] = (
        *("max_new_tokens", "batch_size", "max_image_pixels", "backend", "vllm_options", "samples", "temperature"),
    )
    only_log: ClassVar[tuple[str, ...]] = ("text_column", "by_order", "width", "height")
    # By option the other one without which it has no effect.
    needed_options: ClassVar[Mapping[str, str]] = {"by_order": "dataset", "split": "dataset", "max_images": "dataset"}

    model: str | None = None
    dataset: str | None = None
    split: str = "test"
    max_images: MaxImages = None
    bad_rows: BadRows = "refuse"
    text_column: TextColumn = None
    by_order: bool = False
    width: Pixels = None
    height: Pixels = None
    allow_outside: AllowOutside = False
    box_format: BoxFormat = None
    reward_kwargs: RewardKwargs = None
    max_new_tokens: Annotated[int, in_range(1)] = 256
    batch_size: Annotated[int, in_range(1)] = 32
    max_image_pixels: Annotated[int | None, in_range(1)] = None
    backend: Literal["transformers", "vllm", "auto"] = "transformers"
    vllm_options: str | None = None
    seed: Annotated[int, in_range(0)] = 0
    temperature: Annotated[float, in_range(above=True)] = 1.0

    def check_subject(self, logs: Sequence[Path]) -> None:
        """Refuse a command that names no answers, both a log and a model, or an option that has no effect.

        Args:
            logs: files or folders of the log of completions; none where a model is asked.

        Raises:
            ValueError: both or neither of log and model are given, a model has no images, a log is not there, or an
                option is for the other one.
        """
        from grounding_rewards.logs.read import log_files

        if (self.model is None) == (not logs):
            subjects = "both" if logs else "neither"
            raise ValueError(f"Expected a log of completions or --model, got {subjects}. Name one of them.")
        if self.model is not None and self.dataset is None:
            raise ValueError("Expected images for --dataset, got none. A model needs images to look at; name some.")
        if self.model is None:
            subject, other_subject, useless_options = "a log of completions", "a model", self.only_model
        else:
            subject, other_subject, useless_options = "a model", "a log of completions", self.only_log
        for field in fields(self):
            # Only an option that was given can be refused.
            if getattr(self, field.name) == field.default:
                continue
            name = f"--{field.name.replace('_', '-')}"
            if field.name in useless_options:
                raise ValueError(f"Expected {other_subject} for {name}, got {subject}. Leave it out: it has no effect.")
            needed = self.needed_options.get(field.name)
            if needed and not getattr(self, needed):
                raise ValueError(f"Expected --{needed} beside {name}, got none. Leave {name} out: it has no effect.")
        # Refuses files that are not there now: images, which take long, are loaded before the log is read.
        log_files(logs)

    def words(self, hidden: Sequence[str] = ()) -> str:
        """The options that differ from their defaults, as they are typed on a command line, except the hidden ones."""
        words = []
        for field in fields(self):
            value: Any = getattr(self, field.name)
            # An option without a default must be given, and so differs from None.
            default = None if field.default is MISSING else field.default
            if field.name in hidden or value == default:
                continue
            words.append(f"--{field.name.replace('_', '-')}")
            # A switch has no value.
            if value is not True:
                values = value if isinstance(value, list | tuple) else [value]
                words += map(str, values)
        return shlex.join(words)

    def judge(self, name: str, run_parameters: Mapping[str, Any] | None = None) -> "GroundingReward":
        """The reward that reads and scores the answers.

        Args:
            name: of the reward.
            run_parameters: those with which a run trained it; where an option gives another value, that counts.
        """
        from grounding_rewards.rewards.grounding import get_reward

        parameters = dict(run_parameters or {})
        if self.box_format is not None:
            parameters["box_format"] = self.box_format
        return final_reward(get_reward(name, **{**parameters, **parameters_from_option(self.reward_kwargs)}))

    def images(self, split: str, max_images: int | None = None) -> "Dataset | None":
        """Load the images that `--dataset` names; None without it, as a log may have them itself."""
        from grounding_rewards.prepare.load import load_split

        if self.dataset is None:
            return None
        return load_split(
            self.dataset, split, max_images=max_images, allow_outside=self.allow_outside, bad_rows=self.bad_rows
        )

    def read_log(
        self, logs: Sequence[Path], judge: "GroundingReward", images: "Dataset | None", **grouping: Any
    ) -> "ImageAnswers":
        """The answers of the logs, joined with the images that they are about.

        Args:
            logs: files or folders.
            judge: reads the answers.
            images: of the dataset; None if the logs have what must be known of them.
            **grouping: further arguments of :func:`grounding_rewards.logs.join.read_log`.
        """
        from grounding_rewards.logs.join import read_log

        # `--resized-width` and `--resized-height` are options of some commands alone.
        sizes = {name: getattr(self, name, None) for name in SIZE_COLUMNS}
        return read_log(
            logs,
            judge,
            dataset=images,
            text_column=self.text_column,
            by_order=self.by_order,
            sizes=sizes,
            bad_rows=self.bad_rows,
            **grouping,
        )

    def prepare_asking(
        self, images: "Dataset", reward: "GroundingReward", *, backend: str, label_matching: str
    ) -> "AskedModel":
        """Prepare to ask the model about images; what is wrong is refused before the weights of the model are loaded.

        Args:
            images: that it is asked about.
            reward: reads its answers.
            backend: `transformers`, `vllm` or `auto`.
            label_matching: how the measurement compares labels.
        """
        from grounding_rewards.models.ask import prepare_asking

        vllm_options = None
        if self.vllm_options is not None:
            vllm_options = object_from_option("--vllm-options", self.vllm_options)
        return prepare_asking(
            str(self.model),
            images,
            reward,
            source=str(self.dataset),
            backend=backend,
            vllm_options=vllm_options,
            bad_rows=self.bad_rows,
            label_matching=label_matching,
            max_image_pixels=self.max_image_pixels,
        )

    def ask(self, asked_model: "AskedModel", file: Path, title: str, **sampling: Any) -> list[list[str]]:
        """Generate the answers of the model to each image into a file, with a progress bar.

        Args:
            asked_model: the model and the images.
            file: the file of the answers.
            title: what the bar says after the name of the model.
            **sampling: further arguments of :meth:`AskedModel.answer`.

        Returns:
            For each image its answers.
        """
        title = f"{model_name(str(self.model))}, {title}"
        with stage_progress(title) as on_stage:

            def on_progress(images: int, total: int, _: int) -> None:
                """Show the images that are answered."""
                on_stage(title, images, total)

            return asked_model.answer(
                file,
                max_new_tokens=self.max_new_tokens,
                batch_size=self.batch_size,
                seed=self.seed,
                on_progress=on_progress,
                **sampling,
            )


def parameters_from_option(text: str | None) -> dict[str, Any]:
    """Read the parameters of a reward from --reward-kwargs; errors as :func:`object_from_option`.

    Example:
        >>> parameters_from_option('{"iou_threshold": 0.4}')
        {'iou_threshold': 0.4}
    """
    return object_from_option("--reward-kwargs", text or "{}", '{"iou_threshold": 0.4}')


def object_from_option(name: str, text: str, example: str = '{"max_model_len": 4096}') -> dict[str, Any]:
    """Read the value of an option that must be a JSON object.

    Args:
        name: of the option, for the error.
        text: its value.
        example: a right value, for the error.

    Raises:
        ValueError: it is no JSON object.

    Example:
        >>> object_from_option("--vllm-options", '{"dtype": "float32"}')
        {'dtype': 'float32'}
    """
    parsed = _from_json_or_text(text)
    if not isinstance(parsed, dict):
        raise ValueError(f"Expected a JSON object for {name}, got {text!r}. Write it as '{example}'.")
    return parsed


def rewards_from_words(words: Sequence[str], box_format: Any = None, *, functions: bool = False) -> dict[str, Any]:
    """Build the rewards that a command line names, each with parameters after a colon.

    Args:
        words: `R3`, `R3:iou_threshold=0.3,matching=greedy`, where a value is JSON or a word, or `R3:{"beta": 2}`.
        box_format: how the model writes boxes; None leaves it to the rows.
        functions: whether any function that scores completions, as TRL takes them, may be among them.

    Returns:
        By name, which includes the parameters: each reward, with scheduled parameters at their final values, or
        function.

    Raises:
        ValueError: an unknown name or parameter, parameters that are written in another way, or a reward twice.

    Example:
        >>> rewards = rewards_from_words(["R3", "R3:iou_threshold=0.3"], "qwen3-vl")
        >>> [(name, reward.box_reward.iou_threshold) for name, reward in rewards.items()]
        [('R3', 0.5), ('R3:iou_threshold=0.3', 0.3)]
    """
    from grounding_rewards.rewards.grounding import GroundingReward, get_reward
    from grounding_rewards.rewards.registry import REGISTRY, look_up, takes_completions

    rewards: dict[str, Any] = {}
    for word in words:
        name, colon, text = word.partition(":")
        parameters = _parameters_of_reward(name, text)
        # Of a dotted path the last part is short enough for tables.
        key = f"{name.rpartition('.')[2]}{colon}{text}"
        if key in rewards:
            raise ValueError(
                f"Expected different rewards for --rewards, got {key!r} twice. "
                "Give each once, or with other parameters: R3:iou_threshold=0.3."
            )
        reward = look_up(name)
        # A grounding reward takes completions too, but has parameters and a box format, as those in the registry have.
        is_function = takes_completions(reward) and not isinstance(reward, GroundingReward)
        if functions and is_function and name not in REGISTRY:
            if parameters:
                raise ValueError(
                    f"Expected no parameters for the function `{name}`, got {text}. Set them where it is defined."
                )
            rewards[key] = reward
        else:
            grounding_reward = get_reward(name, **{"box_format": box_format, **parameters})
            rewards[key] = final_reward(replace(grounding_reward, name=key))
    return rewards


def _parameters_of_reward(name: str, text: str) -> dict[str, Any]:
    """Read the parameters of a reward, JSON or name=value,… after the colon, into a mapping; empty without any."""
    if text.startswith("{"):
        return object_from_option(f"the reward {name!r}", text, example='R3:{"iou_threshold": 0.3}')
    parameters = {}
    # Empty parts: of no text at all, or beside a comma too many.
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        if not key or not value or key in parameters:
            raise ValueError(
                f"Expected parameters as name=value, each once, with commas between them, for the reward {name!r}, got "
                f"{text!r}. Write it as R3:iou_threshold=0.3,beta=1."
            )
        parameters[key] = _from_json_or_text(value)
    return parameters


def _from_json_or_text(text: str) -> Any:
    """The value that a text has as JSON; the text itself if it is none."""
    try:
        return parse_json(text)
    except ValueError:
        return text


def final_reward(reward: "GroundingReward") -> "GroundingReward":
    """The reward with every scheduled parameter at its final value; a line on the standard error reports each."""
    for name, schedule in reward.schedules:
        say(f"{reward.name}: {name} is {schedule.to:g}, where its schedule ends: nothing is trained here.", stderr=True)
    return reward.final()

"""Options that several commands take, each with its type and help."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from grounding_rewards.columns import SIZE_COLUMNS
from grounding_rewards.common.legal import Interval
from grounding_rewards.images.decoding import ALLOW_OUTSIDE_HELP


def option(help: str, name: str | None = None, repeated: bool = False) -> Parameter:
    """The help of an option, its name where that is no name in Python, and whether it is given once for each value."""
    return Parameter(help=help, name=name, consume_multiple=not repeated)


def within(low: float = 0, high: float = math.inf, *, above: bool = False) -> Parameter:
    """The range of an option's number, or of every number where it takes several."""
    legal = Interval(low, high, above=above)

    def check(_: Any, given: Any) -> None:
        for value in given if isinstance(given, tuple | list) else [given]:
            if value is not None and value not in legal:
                raise ValueError(f"Expected {legal}, got {value:g}.")

    return Parameter(validator=check)


AllowOutside = Annotated[bool, option(ALLOW_OUTSIDE_HELP)]
BadRows = Annotated[
    Literal["refuse", "drop"],
    option(
        "images that cannot be right, such as one with a box outside it: name them all and end, or go on without "
        "them and say which"
    ),
]
BoxFormat = Annotated[
    str | None,
    option("how the model writes boxes: a name, or a mapping as in a configuration; default: what the data say"),
]
Json = Annotated[Path | None, option("write every number there, without any text or image")]
MaxImages = Annotated[int | None, option("the first so many; default: all"), within(1)]
Reward = Annotated[str, option("R1 … R5, soft_f1, or a dotted path")]
Rewards = Annotated[
    Sequence[str],
    option(
        "R1 … R5, soft_f1, a control such as random, a dotted path, or one of them with parameters: "
        "R3:iou_threshold=0.3,beta=1"
    ),
]
RewardKwargs = Annotated[
    str | None, option("""parameters in JSON, such as '{"iou_threshold": 0.4}'; of several rewards also a list""")
]
SourceOption = Annotated[
    Sequence[str],
    option("NAME=VALUE, an option of the source, may be repeated: see grounding-rewards prepare --help", repeated=True),
]
TextColumn = Annotated[str | None, option("column of the log with the completions")]
Backend = Annotated[
    Literal["transformers", "vllm", "auto"],
    option("what runs the model; auto is vLLM where it is installed and there is a GPU"),
]
LabelMatching = Literal["ignore", "exact", "synonyms"]
Pixels = Annotated[float | None, option("in pixels, of images that state none"), within(above=True)]
ResizedPixels = Annotated[
    float | None, option("in pixels, of the image that the model saw, for formats in its pixels"), within(above=True)
]


def stated_sizes(*sizes: float | None) -> dict[str, float | None]:
    """Sizes of images that state none, by column: width and height, and those of the image that the model saw.

    Example:
        >>> stated_sizes(640.0, 480.0)
        {'width': 640.0, 'height': 480.0}
    """
    return dict(zip(SIZE_COLUMNS, sizes, strict=False))


def check_subject(completions: object, model: str | None, dataset: str | None, named: str) -> None:
    """Refuse a command about answers that is given none, or a model without images.

    Args:
        completions: the log.
        model: that is asked.
        dataset: the images.
        named: what the log is called.

    Raises:
        ValueError: both or neither of log and model are given, or a model has no images.
    """
    if (model is None) == (not completions):
        both = "both" if completions else "neither"
        raise ValueError(f"Expected {named} or --model, got {both}. Name one of them.")
    if model is not None and dataset is None:
        raise ValueError("Expected images for --dataset, got none. A model needs images to look at; name some.")

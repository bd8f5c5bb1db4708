"""What a source is: the function that reads one public layout, and what is declared of its dataset.

A source makes its images with `sound_images`, which `tables.table_images` does for it: one that cannot be read is an
error, or, with `--bad-rows drop`, left out and listed in the `Faults` that the source is given. A fault that belongs to
no image, such as a row of boxes that names none, stays an error: otherwise an image would lose one of its boxes.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from grounding_rewards.data.annotated_image import AnnotatedImage

Images = Iterator[AnnotatedImage]
"""What a source yields."""

CREDENTIALED = "PhysioNet Credentialed Health Data License 1.5.0; not redistributable"
RESTRICTED = "PhysioNet Restricted Health Data License 1.5.0; not redistributable"
KAGGLE = "rules of the competition; academic and non-commercial use; not redistributable"


class Source(NamedTuple):
    """What reads one public layout, and where its dataset comes from, for the card of a prepared folder.

    read: takes the folder and, by keyword, a split (None takes all), and yields one annotated image per image, in
        pixels of the original; whatever else it takes has a default. Given `faults`, a :class:`Faults`, it leaves out
        images that cannot be read. It raises `ValueError` where a file, column or
        split is missing, and, while iterating, where a row or an image cannot be read or contradicts another one. The
        top of its module shows the folder.
    title, url: name and home of the dataset; empty for a format that any dataset may be written in.
    licence: in words.
    note: what is easily done wrong with it; may be empty.
    """

    read: Callable[..., Images]
    title: str = ""
    url: str = ""
    licence: str = ""
    note: str = ""


#: By name of the dataset or format.
SOURCES: dict[str, Source] = {}

_Read = TypeVar("_Read", bound=Callable[..., Images])
_Made = TypeVar("_Made")

_SPELLINGS = {
    "train": "train",
    **dict.fromkeys(("val", "valid", "validation", "validate", "dev"), "validation"),
    "test": "test",
}
#: The spellings that are known.
SPLIT_NAMES = tuple(_SPELLINGS)


def register_source(name: str, **declared: Any) -> Callable[[_Read], _Read]:
    """Register the function that reads a layout under the name by which commands know it.

    Args:
        name: of the dataset or format, such as `vindr-cxr`.
        declared: `title`, `url`, `licence` and `note` of a `Source`; a general format has none of them.

    Example:
        >>> @register_source("my-images", title="My images", url="https://example.org", licence="CC BY 4.0")
        ... def read_my_images(root, *, split=None):
        ...     yield AnnotatedImage("1", "1.png", [[10, 20, 110, 220]], ["mass"])
        >>> SOURCES.pop("my-images").licence
        'CC BY 4.0'
    """

    def register(read: _Read) -> _Read:
        SOURCES[name] = Source(read, **declared)
        return read

    return register


def split_name(spelling: str) -> str:
    """The one name of a split for its spellings; an unusual one stays as it is.

    Example:
        >>> split_name("val"), split_name("Validate"), split_name("Train"), split_name("train2017")
        ('validation', 'validation', 'train', 'train2017')
    """
    return _SPELLINGS.get(spelling.lower(), spelling)


class Faults:
    """What a source could not read; given to a source, it leaves out the image alone instead of raising.

    Attributes:
        messages: one sentence each, without repetition.
        images: the first cells of rows with too few or too many cells: what else such a row says is not certain.

    Example:
        >>> def image(name):
        ...     raise ValueError(f"Expected a box for {name}, got none. Draw it.")
        >>> faults = Faults()
        >>> list(sound_images(image, [("a",)], faults)), list(faults.messages)
        ([], ['Expected a box for a, got none. Draw it.'])
    """

    def __init__(self) -> None:
        self.messages: dict[str, None] = {}
        self.images: set[str] = set()

    def add(self, error: ValueError) -> None:
        """Keep the message of an error."""
        self.messages[" ".join(str(error).split())] = None


def sound_images(
    make: Callable[..., _Made | None], arguments_of_images: Iterable[tuple[Any, ...]], faults: Faults | None = None
) -> Iterator[_Made]:
    """Call a function for every image and yield its results but for None; a `ValueError` of it goes into `faults`.

    Without `faults` the error is raised.
    """
    for arguments in arguments_of_images:
        try:
            image = make(*arguments)
        except ValueError as error:
            if faults is None:
                raise
            faults.add(error)
        else:
            if image is not None:
                yield image


def own_options(read: Callable[..., Any]) -> dict[str, Any]:
    """The arguments that a source alone takes, and their defaults."""
    parameters = inspect.signature(read).parameters.values()
    return {parameter.name: parameter.default for parameter in list(parameters)[2:] if parameter.name != "faults"}


def source_options(read: Callable[..., Any], texts: Sequence[str]) -> dict[str, Any]:
    """The options of a source on the command line, checked against the names of its arguments after `root` and `split`.

    `true` and `false` become booleans; several names are separated by commas; a mapping is written in JSON.

    Args:
        read: what a source reads with.
        texts: texts such as `sizes=sizes.csv`.

    Raises:
        ValueError: no `NAME=VALUE`, a name that the source does not have, or a mapping that is no JSON.

    Example:
        >>> from grounding_rewards.sources import get_source
        >>> source_options(get_source("nih-chestxray14").read, ["negatives=false"])
        {'negatives': False}
    """
    parameters = own_options(read)
    options = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"Expected NAME=VALUE for --option, got {text!r}. Write sizes=sizes.csv, for example.")
        if name not in parameters:
            raise ValueError(
                f"Expected one of the source's own options for --option, got {name!r}. It has: "
                f"{', '.join(parameters) or 'none'}."
            )
        options[name] = _value(value, parameters[name])
    return options


def describe_options() -> str:
    """The options of every source that has any, one line each, as their docstrings say.

    Example:
        >>> print(describe_options().partition("coco:")[2].splitlines()[1].strip())
        annotations: the annotation file relative to the root; `{split}` stands for the name of the split.
    """
    lines: list[str] = []
    for name, source in sorted(SOURCES.items()):
        documented = _documented(inspect.getdoc(source.read) or "")
        options = own_options(source.read)
        if options:
            lines.append(f"{name}:")
        lines += [f"  {option}: {documented.get(option, 'see its module')}" for option in options]
    return "\n".join(lines)


def _documented(docstring: str) -> dict[str, str]:
    """The first sentence about each argument."""
    listed = re.search(r"^Args:\n((?:    .*\n?|\n)+)", docstring, re.MULTILINE)
    entries = re.findall(r"^    (\w+): ((?:.*)(?:\n {8}.*)*)", listed[1], re.MULTILINE) if listed else []
    return {name: re.split(r"(?<=\.) (?=[A-Z])", " ".join(words.split()))[0] for name, words in entries}


def _value(text: str, default: Any) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.startswith('{"'):
        try:
            return json.loads(text)
        except ValueError as error:
            raise ValueError(f"Expected JSON for --option, got {text!r} ({error}). Correct the mapping.") from None
    return tuple(text.split(",")) if isinstance(default, tuple) else text

"""What a source is: the function that reads one public layout, and what is declared of its dataset.

A source makes its images with `sound_images`, which `tables.table_images` does for it: in place of an image that cannot
be read stands the error. Who reads the source gets it as an error, or, with `--bad-rows drop`, in a list. A fault that
belongs to no image, such as a row of boxes that names none, is raised by the source: otherwise an image would lose one
of its boxes.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from grounding_rewards.data.annotated_image import AnnotatedImage

_Made = TypeVar("_Made")

Images = Iterator[AnnotatedImage | ValueError]
"""What a source yields: its images, and the error in place of one that cannot be read."""

CREDENTIALED = "PhysioNet Credentialed Health Data License 1.5.0; not redistributable"
RESTRICTED = "PhysioNet Restricted Health Data License 1.5.0; not redistributable"
KAGGLE = "rules of the competition; academic and non-commercial use; not redistributable"


class Source(NamedTuple):
    """What reads one public layout, and where its dataset comes from, for the card of a prepared folder.

    read: takes the folder and, by keyword, a split (None takes all), and yields one annotated image per image, in
        pixels of the original; whatever else it takes has a default. It raises `ValueError` where a file, column or
        split is missing, and, while iterating, where a row or an image cannot be read or contradicts another one. To a
        list `faults` it appends what is wrong with images that cannot be read, instead of raising. The top of its
        module shows the folder.
    title, url: name and home of the dataset; empty for a format that any dataset may be written in.
    licence: in words.
    note: what is easily done wrong with it; may be empty.
    """

    read: Callable[..., Iterator[AnnotatedImage]]
    title: str = ""
    url: str = ""
    licence: str = ""
    note: str = ""


#: By name of the dataset or format.
SOURCES: dict[str, Source] = {}

_SPELLINGS = {
    "train": "train",
    **dict.fromkeys(("val", "valid", "validation", "validate", "dev"), "validation"),
    "test": "test",
}
#: The spellings that are known.
SPLIT_NAMES = tuple(_SPELLINGS)


def register_source(
    name: str, **declared: Any
) -> Callable[[Callable[..., Images]], Callable[..., Iterator[AnnotatedImage]]]:
    """Register the function that reads a layout under the name by which commands know it.

    The function yields an image, or the error of one that cannot be read. After it is registered it yields images
    alone: it raises the first error, or, where its caller passes the list `faults`, adds all of them there and goes on.

    Args:
        name: of the dataset or format, such as `vindr-cxr`.
        declared: `title`, `url`, `licence` and `note` of a `Source`; a general format has none of them.

    Example:
        >>> @register_source("my-images", title="My images", url="https://example.org", licence="CC BY 4.0")
        ... def read_my_images(root, *, split=None):
        ...     yield AnnotatedImage("1", "1.png", [[10, 20, 110, 220]], ["mass"])
        ...     yield ValueError("Expected a box for 2, got none. Draw it.")
        >>> faults = []
        >>> [image.id for image in read_my_images("", faults=faults)], faults
        (['1'], ['Expected a box for 2, got none. Draw it.'])
        >>> SOURCES.pop("my-images").licence
        'CC BY 4.0'
    """

    def register(read: Callable[..., Images]) -> Callable[..., Iterator[AnnotatedImage]]:
        @functools.wraps(read)
        def read_sound(*args: Any, faults: list[str] | None = None, **options: Any) -> Iterator[AnnotatedImage]:
            return _without_faults(read(*args, **options), faults)

        SOURCES[name] = Source(read_sound, **declared)
        return read_sound

    return register


def _without_faults(images: Images, faults: list[str] | None) -> Iterator[AnnotatedImage]:
    for image in images:
        if isinstance(image, AnnotatedImage):
            yield image
        elif faults is None:
            raise image
        else:
            faults.append(" ".join(str(image).split()))


def sound_images(
    make: Callable[..., _Made | None], arguments_of_images: Iterable[tuple[Any, ...]]
) -> Iterator[_Made | ValueError]:
    """Call a function for every image and yield its results but for None, or the `ValueError` that it raises."""
    for arguments in arguments_of_images:
        try:
            image = make(*arguments)
        except ValueError as error:
            yield error
        else:
            if image is not None:
                yield image


def split_name(spelling: str) -> str:
    """The one name of a split for its spellings; an unusual one stays as it is.

    Example:
        >>> split_name("val"), split_name("Validate"), split_name("Train"), split_name("train2017")
        ('validation', 'validation', 'train', 'train2017')
    """
    return _SPELLINGS.get(spelling.lower(), spelling)


def is_misspelt(split: str) -> bool:
    """Whether the name of a split is nearly that of another: with `ing` behind, two letters exchanged, or one lost.

    Example:
        >>> [is_misspelt(split) for split in ("training", "tets", "vaildation", "tran", "test", "testA", "train2017")]
        [True, True, True, True, False, False, False]
    """
    word = split.casefold()
    if word in SPLIT_NAMES:
        return False
    for name in SPLIT_NAMES:
        slips = [f"{name}ing"]
        for k in range(len(name)):
            slips.append(name[:k] + name[k + 1 :])
            slips.append(name[:k] + name[k + 1 : k + 2] + name[k] + name[k + 2 :])
        if word in slips:
            return True
    return False


def _own_options(read: Callable[..., Any]) -> dict[str, Any]:
    """The arguments that a source alone takes, and their defaults."""
    _root, _split, *parameters = inspect.signature(read).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters}


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
    defaults = _own_options(read)
    options = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"Expected NAME=VALUE for --option, got {text!r}. Write sizes=sizes.csv, for example.")
        if name not in defaults:
            raise ValueError(
                f"Expected one of the source's own options for --option, got {name!r}. It has: "
                f"{', '.join(defaults) or 'none'}."
            )
        options[name] = _option_value(value, defaults[name])
    return options


def _option_value(text: str, default: Any) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.startswith('{"'):
        try:
            return json.loads(text)
        except ValueError as error:
            raise ValueError(f"Expected JSON for --option, got {text!r} ({error}). Correct the mapping.") from None
    return tuple(text.split(",")) if isinstance(default, tuple) else text


def describe_options() -> str:
    """The options of every source that has any, one line each, as their docstrings say.

    Example:
        >>> print(describe_options().partition("coco:")[2].splitlines()[1].strip())
        annotations: the annotation file relative to the root; `{split}` stands for the name of the split.
    """
    lines: list[str] = []
    for name, source in sorted(SOURCES.items()):
        options = _own_options(source.read)
        if options:
            lines.append(f"{name}:")
        for option in options:
            # The first sentence about the argument.
            described = re.search(
                rf"^    {option}: (.*(?:\n {{8}}.*)*)", inspect.getdoc(source.read) or "", re.MULTILINE
            )
            words = " ".join(described[1].split()) if described else "see its module"
            lines.append(f"  {option}: {re.split(r'(?<=[.]) (?=[A-Z])', words)[0]}")
    return "\n".join(lines)

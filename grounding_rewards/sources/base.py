"""Register sources: each is a function that reads one public layout, and declarations about its dataset.

A source makes its images with `sound_images`, which `tables.table_images` does for it: instead of an image that cannot
be read it yields the error. The caller gets it raised, or, with `--bad-rows drop`, in a list. A source raises an error
that belongs to no image, such as a row of boxes without a name: otherwise an image would lose one of its boxes.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from grounding_rewards.data.annotated_image import AnnotatedImage

_Made = TypeVar("_Made")

Images = Iterator[AnnotatedImage | ValueError]
"""The images of a source, with an error instead of each one that cannot be read."""

CREDENTIALED = "PhysioNet Credentialed Health Data License 1.5.0; not redistributable"
RESTRICTED = "PhysioNet Restricted Health Data License 1.5.0; not redistributable"
KAGGLE = "rules of the competition; academic and non-commercial use; not redistributable"


class Source(NamedTuple):
    """The function that reads one public layout, and declarations about its dataset for the card of a prepared folder.

    Attributes:
        read: takes the folder and, by keyword, a split (None takes all), and yields the annotated images, in pixels of
            the original; other arguments have defaults. It raises `ValueError` if a file, column or split is missing,
            and, while iterating, if a row or an image cannot be read or contradicts another one. With a list `faults`
            it appends errors of images to the list instead. The docstring of its module shows the folder.
        title: name of the dataset; empty for a general format.
        url: home of the dataset; empty for a general format.
        licence: in words.
        note: a mistake that is easily made with the dataset; may be empty.
    """

    read: Callable[..., Iterator[AnnotatedImage]]
    title: str = ""
    url: str = ""
    licence: str = ""
    note: str = ""


#: All sources by the name of their dataset or format.
SOURCES: dict[str, Source] = {}

_SPELLINGS = {
    "train": "train",
    **dict.fromkeys(("val", "valid", "validation", "validate", "dev"), "validation"),
    "test": "test",
}
#: The spellings of the usual splits.
SPLIT_NAMES = tuple(_SPELLINGS)


def register_source(
    name: str, **declared: Any
) -> Callable[[Callable[..., Images]], Callable[..., Iterator[AnnotatedImage]]]:
    """Decorate the function that reads a layout, and register it under the name that commands use.

    The function yields images, and errors of images that cannot be read. The decorated one yields only images: it
    raises the first error, or appends all errors to the list `faults` if its caller passes one.

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
    """Yield the images of a source without its errors: the list takes them, or the first is raised if there is none."""
    for image_or_error in images:
        if isinstance(image_or_error, AnnotatedImage):
            yield image_or_error
        elif faults is None:
            raise image_or_error
        else:
            # On one line: the card of a prepared folder lists them so.
            faults.append(" ".join(str(image_or_error).split()))


def sound_images(
    make: Callable[..., _Made | None], arguments_of_images: Iterable[tuple[Any, ...]]
) -> Iterator[_Made | ValueError]:
    """Call a function with the arguments of each image; yield its results except None, and a `ValueError` it raises."""
    for arguments in arguments_of_images:
        try:
            image = make(*arguments)
        except ValueError as error:
            yield error
        else:
            if image is not None:
                yield image


def split_name(spelling: str) -> str:
    """The usual name of a split: `validation` for `val`, for example; an unusual name stays as it is.

    Example:
        >>> split_name("val"), split_name("Validate"), split_name("Train"), split_name("train2017")
        ('validation', 'validation', 'train', 'train2017')
    """
    return _SPELLINGS.get(spelling.lower(), spelling)


def source_options(read: Callable[..., Any], texts: Sequence[str]) -> dict[str, Any]:
    """Read the options of a source from the command line: the arguments of its function after `root` and `split`.

    `true` and `false` become booleans; several names are separated by commas, also with spaces.

    Args:
        read: the function of the source.
        texts: such as `sizes=sizes.csv`.

    Raises:
        ValueError: no `NAME=VALUE`; a name that the source does not have, or that is given twice; or another word
            where only `true` and `false` are legal.

    Example:
        >>> from grounding_rewards.sources import get_source
        >>> source_options(get_source("voc").read, ["one_based=false"])
        {'one_based': False}
    """
    _root, _split, *parameters = inspect.signature(read).parameters.values()
    parameters_by_name = {parameter.name: parameter for parameter in parameters}
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"Expected NAME=VALUE for --option, got {text!r}. Write sizes=sizes.csv, for example.")
        if name not in parameters_by_name:
            raise ValueError(
                f"Expected one of the source's own options for --option, got {name!r}. It has: "
                f"{', '.join(parameters_by_name) or 'none'}."
            )
        if name in options:
            raise ValueError(
                f"Expected each option of the source once for --option, got {name} again in {text!r}. Several names "
                "stand in one, with commas between them."
            )
        options[name] = _option_value(name, value, parameters_by_name[name])
    return options


def _option_value(name: str, text: str, parameter: inspect.Parameter) -> Any:
    """The value of an option's text: a boolean, a tuple of texts where the parameter's default is one, or the text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    # The function takes `bool` or `bool | None`; as a text any other word would count as true.
    if "bool" in str(parameter.annotation):
        raise ValueError(f"Expected true or false for --option {name}=, got {text!r}. Write one of these words.")
    return tuple(map(str.strip, text.split(","))) if isinstance(parameter.default, tuple) else text

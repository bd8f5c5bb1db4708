"""What a source is: the function that reads one public layout, and what is declared of its dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from grounding_rewards.data.annotated_image import AnnotatedImage

CREDENTIALED = "PhysioNet Credentialed Health Data License 1.5.0; not redistributable"
RESTRICTED = "PhysioNet Restricted Health Data License 1.5.0; not redistributable"
KAGGLE = "rules of the competition; academic and non-commercial use; not redistributable"


class Source(NamedTuple):
    """What reads one public layout, and where its dataset comes from, for the card of a prepared folder.

    read: takes the folder and, by keyword, a split (None takes all), and yields one annotated image per image, in
        pixels of the original; whatever else it takes has a default. It raises `ValueError` where a file, column or
        split is missing, and, while iterating, where a row or an image cannot be read or contradicts another one. The
        top of its module shows the folder.
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

_Read = TypeVar("_Read", bound=Callable[..., Iterator[AnnotatedImage]])


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

"""What a reader gives, one record per image in pixels of the original image, and what it declares of its dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeVar

from grounding_rewards.data.annotated_image import AnnotatedImage

CREDENTIALED = "PhysioNet Credentialed Health Data License 1.5.0; not redistributable"
RESTRICTED = "PhysioNet Restricted Health Data License 1.5.0; not redistributable"
KAGGLE = "rules of the competition; academic and non-commercial use; not redistributable"


class Reader(Protocol):
    """A function that reads one dataset from its folder; the top of its module shows the folder."""

    def __call__(self, root: str, *, split: str | None = None) -> Iterator[AnnotatedImage]:
        """The images of a split, or of all. Whatever else a reader takes has a default.

        Args:
            root: the folder of the dataset.
            split: one of the dataset's splits; None takes all.

        Raises:
            ValueError: a file, column or split is missing; while iterating, a row or an image that cannot be read, or
                that contradicts another one.
        """
        ...


class Source(NamedTuple):
    """Where a dataset comes from and under which licence, for the card of a prepared folder.

    title, url: name and home.
    licence: in words.
    note: what is easily done wrong with it; may be empty.
    """

    title: str
    url: str
    licence: str
    note: str = ""


#: By name of the dataset or format; a format has no source.
READERS: dict[str, Reader] = {}
SOURCES: dict[str, Source] = {}

_AnyReader = TypeVar("_AnyReader", bound=Reader)


def register_reader(
    name: str, *, title: str = "", url: str = "", licence: str = "", note: str = ""
) -> Callable[[_AnyReader], _AnyReader]:
    """Give a reader the name by which commands know its dataset, and say where that comes from.

    Args:
        name: of the dataset or format, such as `vindr-cxr`.
        title: of the dataset; a format that any dataset may be written in has neither this nor what follows.
        url: its home.
        licence: in words.
        note: what is easily done wrong with it.

    Example:
        >>> @register_reader("my-images", title="My images", url="https://example.org", licence="CC BY 4.0")
        ... def read_my_images(root, *, split=None):
        ...     yield AnnotatedImage("1", "1.png", [[10, 20, 110, 220]], ["mass"])
        >>> READERS.pop("my-images") is read_my_images, SOURCES.pop("my-images").licence
        (True, 'CC BY 4.0')
    """

    def register(reader: _AnyReader) -> _AnyReader:
        READERS[name] = reader
        if title:
            SOURCES[name] = Source(title, url, licence, note)
        return reader

    return register

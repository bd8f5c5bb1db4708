"""What a reader gives, one record per image in pixels of the original image, and what it declares of its dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

CREDENTIALED = "PhysioNet Credentialed Health Data License 1.5.0; not redistributable"
RESTRICTED = "PhysioNet Restricted Health Data License 1.5.0; not redistributable"
KAGGLE = "rules of the competition; academic and non-commercial use; not redistributable"


class AnnotatedImage(NamedTuple):
    """One image and what its readers drew.

    id: unique in the dataset.
    file: the image, relative to the root.
    boxes: xyxy in pixels of the original image; empty where nothing was found.
    labels: the dataset's own name of the finding, one per box.
    width, height: size of the original image in pixels; None where the dataset's tables don't say (the image does).
    patient_id: None where the dataset has none.
    split: `train`, `validation`, `test` or another name that the dataset uses; None where it has no splits.
    readers: who drew each box, one per box; empty where the dataset doesn't say.
    read_by: everybody who read the image, including those who drew nothing; empty where the dataset doesn't say.
    phrases: the phrase that each box belongs to, one per box; empty where the dataset has none.
    ignored: regions in which a prediction is neither hit nor false positive (crowds, regions that were not judged).
    extra: other columns of the dataset, such as view or age, which rows carry along; `pixel_spacing` has a meaning.
    """

    id: str
    file: str
    boxes: list[list[float]]
    labels: list[str]
    width: int | None = None
    height: int | None = None
    patient_id: str | None = None
    split: str | None = None
    readers: tuple[str, ...] = ()
    read_by: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    ignored: tuple[tuple[float, float, float, float], ...] = ()
    extra: Mapping[str, Any] = {}


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

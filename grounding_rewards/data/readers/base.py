"""What every reader gives: one record per film, in pixels of the original image, streamed in the order of the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol


class FilmRecord(NamedTuple):
    """One film and what its readers drew, before prompts and images.

    id: unique in the dataset.
    file: the image, relative to the root.
    boxes: xyxy in pixels of the original image; empty where nothing was found.
    labels: the dataset's own name of the finding, one per box.
    width, height: size of the original image in pixels; None where the dataset's tables don't say (the image does).
    patient_id: None where the dataset has none.
    split: `train`, `validation`, `test` or another name that the dataset uses; None where it has no splits.
    readers: who drew each box, one per box; empty where the dataset doesn't say.
    read_by: everybody who read the film, those who drew nothing included; empty where the dataset doesn't say.
    phrases: the phrase that each box belongs to, one per box; empty where the dataset has none.
    ignored: boxes that are neither hit nor false positive (crowds, regions that were not judged).
    extra: further columns of the dataset that are worth keeping, such as pixel spacing or view.
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
    extra: Mapping[str, str] = {}


class Reader(Protocol):
    """A function that reads one dataset from its folder."""

    def __call__(self, root: str, *, split: str | None = None) -> Iterator[FilmRecord]:
        """The films of a split, or of all; `ValueError` names a file that is missing or a row that cannot be read."""
        ...

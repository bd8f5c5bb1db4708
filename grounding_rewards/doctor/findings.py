"""What the doctor looks for and what it reports: checks, problems of single rows, and findings over a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

SEVERITIES = ("error", "warning", "note")
#: Examples of each finding.
EXAMPLES = 3


class FilmPicture(NamedTuple):
    """A film to show: a small JPEG (no bytes where it can't be read), its size, and its boxes as they are given."""

    jpeg: bytes
    width: float
    height: float
    boxes: Sequence[Any]
    labels: Sequence[Any]
    title: str


class Example(NamedTuple):
    """Where a finding was met: split, number of the row in it, its id, what is there; `film` where films are kept."""

    split: str
    row: int
    id: str
    detail: str
    film: FilmPicture | None = None


class Problem(NamedTuple):
    """What is wrong with one row: the name of the check, what is there, and in which drawing if not in `boxes`."""

    name: str
    detail: str
    drawing: str = ""


@dataclass(frozen=True)
class Finding:
    """What a check found in the dataset.

    Attributes:
        name: a key of :data:`~grounding_rewards.doctor.checks.CHECKS`.
        severity: one of :data:`SEVERITIES`.
        title: what it is called.
        count: how many `unit` it concerns.
        of: how many there are; 0 where there is no such number.
        unit: what is counted.
        found: what was found beyond the count, a sentence; may be empty.
        why: why it matters.
        fix: what to do.
        examples: the first three.
    """

    name: str
    severity: str
    title: str
    count: int
    of: int
    unit: str
    found: str
    why: str
    fix: str
    examples: tuple[Example, ...]

    @property
    def share(self) -> float | None:
        """The part of all that it concerns; None where there is no such number."""
        return self.count / self.of if self.of else None

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON, without films."""
        examples = [{"split": one.split, "row": one.row, "id": one.id, "detail": one.detail} for one in self.examples]
        return {**vars(self), "of": self.of or None, "share": self.share, "examples": examples}


class Check(NamedTuple):
    """A mistake that is looked for.

    name: what programs know it by.
    title: what it is called.
    why: why it matters.
    fix: what to do about it; empty where it depends on what is found.
    severity: one of :data:`SEVERITIES`.
    unit: what is counted: boxes, films, labels, …
    follows: whether boxes in another order or frame cause it, so that it is no finding of its own beside that one.
    """

    name: str
    title: str
    why: str
    fix: str = ""
    severity: str = "error"
    unit: str = "boxes"
    follows: bool = False

    def finding(self, count: int, of: int, found: str = "", examples: Sequence[Example] = ()) -> Finding:
        """The finding of this check, with its first examples."""
        first = tuple(examples[:EXAMPLES])
        return Finding(self.name, self.severity, self.title, count, of, self.unit, found, self.why, self.fix, first)

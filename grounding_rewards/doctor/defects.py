"""Checks, problems of single rows, and defects over a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from configparser import ConfigParser
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, NamedTuple

SEVERITIES = ("error", "warning", "note")
#: Examples of each defect.
EXAMPLES = 3


class ImagePicture(NamedTuple):
    """An image to show: a small JPEG (empty if unreadable), its size, its boxes as the dataset gives them, and as they
    are proposed to be where the dataset gives them in another order.
    """

    jpeg: bytes
    width: float
    height: float
    boxes: Sequence[Any]
    labels: Sequence[Any]
    title: str
    proposed: Sequence[Any] = ()


class Example(NamedTuple):
    """One place of a defect: split, row number in the split, id, what is there, and the image if images are kept."""

    split: str
    row: int
    id: str
    detail: str
    image: ImagePicture | None = None


@dataclass(frozen=True)
class Defect:
    """What one check found in the dataset.

    Attributes:
        name: a key of :data:`CHECKS`.
        severity: one of :data:`SEVERITIES`.
        title: a short description.
        count: number of units affected.
        of: number of units in the dataset; 0 if that has no meaning.
        unit: what is counted: boxes, images, labels, …
        found: details in a sentence; may be empty.
        why: why it matters.
        fix: what to do.
        examples: the first three.
        rows: all of them, without their images.
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
    rows: tuple[Example, ...] = ()

    @property
    def share(self) -> float | None:
        """`count` through `of`; None if `of` is 0."""
        return self.count / self.of if self.of else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without images."""
        examples = [{"split": one.split, "row": one.row, "id": one.id, "detail": one.detail} for one in self.examples]
        plain = {name: value for name, value in vars(self).items() if name != "rows"}
        return {**plain, "of": self.of or None, "share": self.share, "examples": examples}


class Check(NamedTuple):
    """A mistake to look for.

    name: its key in :data:`CHECKS` and in JSON.
    title: a short description.
    why: why it matters.
    fix: what to do; empty if it depends on what is found.
    severity: one of :data:`SEVERITIES`.
    unit: what is counted: boxes, images, labels, …
    follows: whether boxes in a wrong order or frame cause it; it is then not reported beside that mistake.
    needs: what it takes: `pixels`, several `splits` or `sources`, `patients`, a box `format`.
    """

    name: str
    title: str
    why: str
    fix: str = ""
    severity: str = "error"
    unit: str = "boxes"
    follows: bool = False
    needs: tuple[str, ...] = ()


def _read_checks() -> dict[str, Check]:
    table = ConfigParser(interpolation=None)
    table.read_string((files("grounding_rewards.doctor") / "checks.ini").read_text(encoding="utf-8"))
    checks = {}
    for name in table.sections():
        texts = {key: " ".join(text.split()) for key, text in table[name].items()}
        other = {"follows": "follows" in texts, "needs": tuple(texts.get("needs", "").split())}
        checks[name] = Check(name, **{**texts, **other})  # type: ignore[arg-type]
    return checks


#: All checks by name, in the order of reports.
CHECKS = _read_checks()

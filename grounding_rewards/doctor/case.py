"""A dataset under examination: what the examiners of all topics share, and what each of them does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from grounding_rewards.data.images import has_shape
from grounding_rewards.data.raw_rows import IGNORED, Drawing, FilmRow, RowSource
from grounding_rewards.doctor.box_defects import BoxFit, Diagnosis
from grounding_rewards.doctor.findings import EXAMPLES, Check, Example, FilmPicture, Finding, Problem
from grounding_rewards.doctor.histograms import Figures
from grounding_rewards.doctor.model import Model


@dataclass
class Case:
    """What the examiners share. Of a film no more is kept than counters.

    Attributes:
        source: the rows.
        model: what is known of the model.
        thumbnails: longer side in pixels of the films that are kept; 0 keeps none.
        totals: how many there are of each unit that checks count.
        figures: counts over all films.
        fits: how the boxes of each :func:`group` fit on their films.
    """

    source: RowSource
    model: Model
    thumbnails: int = 0
    totals: Counter[str] = field(default_factory=Counter)
    figures: Figures = field(default_factory=Figures)
    fits: dict[str, BoxFit] = field(default_factory=dict)

    @cached_property
    def diagnoses(self) -> dict[tuple[str, ...], Diagnosis]:
        """The mistakes that all boxes of a group share, by groups; to be asked once all rows have been seen."""
        found: dict[tuple[str, ...], Diagnosis] = {}
        # Regions to ignore may well be in one corner, such as a marker of the side.
        ignored = {name for name in self.fits if name.endswith(f", {IGNORED}")}
        for name, fit in self.fits.items():
            diagnosis = fit.diagnose(corners=name not in ignored)
            if diagnosis is not None and (diagnosis.whole or diagnosis.certain):
                found[name,] = diagnosis
        # Groups that are too small to show a mistake alone may show it together.
        rest = tuple(name for name in self.fits if (name,) not in found and name not in ignored)
        if diagnosis := sum((self.fits[name] for name in rest), BoxFit()).diagnose():
            found[rest] = diagnosis
        return found

    def is_explained(self, check: Check, name: str) -> bool:
        """Whether a mistake that all boxes of the group share says this already."""
        for names, diagnosis in self.diagnoses.items():
            if name in names:
                if diagnosis.whole:
                    return check.follows
                return diagnosis.name == "box-order" and check.name in ("swapped-corners", "no-area")
        return False

    def example(self, row: FilmRow, detail: str) -> Example:
        """A row as an example, with its film where films are kept."""
        return Example(row.split, row.number, row.id, detail, self.picture(row) if self.thumbnails else None)

    def picture(self, row: FilmRow) -> FilmPicture:
        """A row's film with all its boxes."""
        width, height = row.size or row.image_size or (1, 1)
        title = f"{row.split} {row.number} · {row.id}"
        boxes = [box for drawing in row.drawings for box in drawing.boxes]
        labels = [_caption(drawing, k) for drawing in row.drawings for k in range(len(drawing.boxes))]
        return FilmPicture(row.thumbnail(self.thumbnails), width, height, boxes, labels, title)


@dataclass
class Bucket:
    """How often something was met, and the first times."""

    count: int = 0
    examples: list[Example] = field(default_factory=list)

    def add(self, case: Case, row: FilmRow, detail: str) -> None:
        """Count it once more."""
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(case.example(row, detail))


class Examiner:
    """Examines one topic: looks at row after row, and at the end at what they have in common.

    Attributes:
        checks: what it looks for.
        met: the problems of single rows, by check and by :func:`group`.
    """

    checks: ClassVar[tuple[Check, ...]]

    def __init__(self, case: Case) -> None:
        self.case = case
        self.met: dict[str, dict[str, Bucket]] = {check.name: {} for check in self.checks}

    def look(self, row: FilmRow) -> Iterator[Problem]:
        """What is wrong with this row."""
        return iter(())

    def findings(self) -> Iterator[Finding]:
        """What was found: the problems of all rows, unless a mistake that all boxes share explains them."""
        for check in self.checks:
            buckets = [one for name, one in self.met[check.name].items() if not self.case.is_explained(check, name)]
            if buckets:
                examples = [example for bucket in buckets for example in bucket.examples]
                count = sum(bucket.count for bucket in buckets)
                yield check.finding(count, self.case.totals[check.unit], examples=examples)

    def unchecked(self) -> dict[str, str]:
        """What could not be looked for, and why, by the name of the check."""
        return {}

    def assumptions(self) -> Iterator[str]:
        """What was assumed, a sentence each."""
        return iter(())

    def add(self, row: FilmRow) -> bool:
        """Look at a row and count its problems; whether one of them is an error."""
        is_error = False
        severities = {check.name: check.severity for check in self.checks}
        for problem in self.look(row):
            bucket = self.met[problem.name].setdefault(group(row, problem.drawing), Bucket())
            bucket.add(self.case, row, problem.detail)
            is_error |= severities[problem.name] == "error"
        return is_error


def group(row: FilmRow, drawing: str) -> str:
    """Boxes that one hand may have written in another way: of a split, and of a reader where there are several."""
    return f"{row.split}, {drawing}" if drawing else row.split


def trusted_size(row: FilmRow) -> tuple[float, float] | None:
    """The size of a film in pixels, where its image does not contradict it; None otherwise."""
    if row.size is None or (row.image_size is not None and not has_shape(row.image_size, row.size)):
        return None
    return row.size


def _caption(drawing: Drawing, index: int) -> str:
    label = drawing.label(index)
    return ": ".join(filter(None, (drawing.name, "" if label is None else str(label))))

"""The state of an examination, and the base class of the examiners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from grounding_rewards.doctor.box_defects import BoxFit, Diagnosis, NeighbourFit
from grounding_rewards.doctor.defects import EXAMPLES, Check, Defect, Example, ImagePicture, Problem
from grounding_rewards.doctor.histograms import Metrics
from grounding_rewards.doctor.model import Model
from grounding_rewards.doctor.raw_rows import IGNORED, Drawing, ImageRow, RowSource

#: Why what needs pixels was not looked for.
QUICK = "--quick reads the headers of images, not their pixels"


@dataclass
class Case:
    """What the examiners share: counters, but no images beyond the examples.

    Attributes:
        source: the rows.
        model: what is known of the model.
        thumbnails: longer side in pixels of the images in examples; 0 keeps no images.
        is_quick: whether only the headers of images are read.
        lists_rows: whether all rows of a defect are kept, not only the first.
        totals: how many images, boxes and patients there are.
        metrics: counts over all images.
        fits: how the boxes of each :func:`group` fit on their images.
        neighbours: whether boxes fit the images of their neighbours better.
        unmerged: groups that hold the boxes of several readers as one; known after the last row.
    """

    source: RowSource
    model: Model
    thumbnails: int = 0
    is_quick: bool = False
    lists_rows: bool = False
    totals: Counter[str] = field(default_factory=Counter)
    metrics: Metrics = field(default_factory=Metrics)
    fits: dict[str, BoxFit] = field(default_factory=dict)
    neighbours: NeighbourFit = field(default_factory=NeighbourFit)
    unmerged: set[str] = field(default_factory=set)

    @cached_property
    def diagnoses(self) -> dict[tuple[str, ...], Diagnosis]:
        """Mistakes that all boxes of a group share, by the names of the groups. Cached: ask after the last row."""
        if diagnosis := self.neighbours.diagnose():
            return {tuple(self.fits): diagnosis}
        found: dict[tuple[str, ...], Diagnosis] = {}
        # Regions to ignore may all be in one corner, such as side markers.
        ignored = {name for name in self.fits if name.endswith(f", {IGNORED}")}
        for name, fit in self.fits.items():
            diagnosis = fit.diagnose(corners=name not in ignored, parts=False)
            if diagnosis is not None and (diagnosis.whole or diagnosis.certain):
                found[name,] = diagnosis
        # Groups too small to show a mistake by themselves may show it together, and a mistake in a part of the images
        # shows best over all of them.
        rest = tuple(name for name in self.fits if (name,) not in found and name not in ignored)
        if diagnosis := sum((self.fits[name] for name in rest), BoxFit()).diagnose():
            found[rest] = diagnosis
        return found

    def is_explained(self, check: Check, name: str) -> bool:
        """Whether problems of this group follow from a mistake that its boxes share."""
        if name in self.unmerged and check.name in ("duplicate-boxes", "near-duplicate-boxes"):
            return True
        for names, diagnosis in self.diagnoses.items():
            if name in names:
                return check.follows if diagnosis.whole else check.name in diagnosis.explains
        return False

    def keep(self, examples: list[Example], row: ImageRow, detail: str) -> None:
        """Add a row to the first examples, with its image if images are kept; or to all of them if rows are listed."""
        is_first = len(examples) < EXAMPLES
        if is_first or self.lists_rows:
            for name in row.hidden:
                detail = detail.replace(name, "…")
            picture = self.picture(row) if is_first and self.thumbnails else None
            examples.append(Example(row.split, row.number, row.id, detail, picture))

    def picture(self, row: ImageRow) -> ImagePicture:
        """A row's image with all its boxes."""
        width, height = row.size or row.image_size or (1, 1)
        title = f"{row.split} {row.number} · {row.id}"
        boxes = [box for drawing in row.drawings for box in drawing.boxes]
        labels = [_caption(drawing, k) for drawing in row.drawings for k in range(len(drawing.boxes))]
        return ImagePicture(row.thumbnail(self.thumbnails), width, height, boxes, labels, title)


@dataclass
class Bucket:
    """A count, and the first examples, or all."""

    count: int = 0
    examples: list[Example] = field(default_factory=list)

    def add(self, case: Case, row: ImageRow, detail: str) -> None:
        """Count one more."""
        self.count += 1
        case.keep(self.examples, row, detail)


class Examiner:
    """Base class of the examiners, one per topic.

    `look` is called for every row, `defects` once after the last row.

    Attributes:
        checks: what it looks for.
        met: problems of rows, by check and :func:`group`.
    """

    checks: ClassVar[tuple[Check, ...]]

    def __init__(self, case: Case) -> None:
        self.case = case
        self.met: dict[str, dict[str, Bucket]] = {check.name: {} for check in self.checks}
        self._errors = {check.name for check in self.checks if check.severity == "error"}

    def look(self, row: ImageRow) -> Iterator[Problem]:
        """The problems of one row."""
        return iter(())

    def defects(self) -> Iterator[Defect]:
        """The problems of all rows as defects, without those that a mistake of all boxes explains."""
        for check in self.checks:
            buckets = [one for name, one in self.met[check.name].items() if not self.case.is_explained(check, name)]
            if buckets:
                examples = [example for bucket in buckets for example in bucket.examples]
                count = sum(bucket.count for bucket in buckets)
                yield check.defect(count, self.case.totals[check.unit], examples=examples)

    def unchecked(self) -> dict[str, str]:
        """Names of checks that could not be made, and why."""
        return {}

    def assumptions(self) -> Iterator[str]:
        """Assumptions, one sentence each."""
        return iter(())

    def add(self, row: ImageRow) -> bool:
        """Look at a row and count its problems. Returns whether one of them is an error."""
        return self.count(row, self.look(row))

    def count(self, row: ImageRow, problems: Iterable[Problem]) -> bool:
        """Count the problems of a row. Returns whether one of them is an error."""
        is_error = False
        for problem in problems:
            bucket = self.met[problem.name].setdefault(group(row, problem.drawing), Bucket())
            bucket.add(self.case, row, problem.detail)
            is_error |= problem.name in self._errors
        return is_error


def group(row: ImageRow, drawing: str) -> str:
    """The name of boxes that are likely from one source: those of a split, or of one reader in a split."""
    return f"{row.split}, {drawing}" if drawing else row.split


def _caption(drawing: Drawing, index: int) -> str:
    label = drawing.label(index)
    return ": ".join(filter(None, (drawing.name, "" if label is None else str(label))))

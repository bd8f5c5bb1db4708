"""What the checks look at: all rows without their images, all boxes side by side, and how a defect is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.boxes import is_box
from grounding_rewards.doctor.box_content import FEWEST, BoxContent
from grounding_rewards.doctor.box_defects import BoxFit, Diagnosis, box_defect, is_placeholder, on_frame, shifted_rows
from grounding_rewards.doctor.defects import CHECKS, EXAMPLES, Defect, Example, ImagePicture
from grounding_rewards.doctor.model import Model
from grounding_rewards.doctor.raw_rows import IGNORED, Drawing, ImageRow, RowSource

# A region to ignore of at least this part of the image leaves nothing to be judged.
WHOLE_IMAGE = 0.95
_NO_BOX = [np.nan] * 4
# Boxes whose content is compared.
_MOST_COMPARED = 1000


class Problem(NamedTuple):
    """A problem of one row: the name of the check, what is there, and the drawing (empty for the column `boxes`)."""

    name: str
    row: ImageRow
    detail: str
    drawing: str = ""


class Place(NamedTuple):
    """Where a box stands: the row, the drawing, and its place in it."""

    row: ImageRow
    drawing: Drawing
    number: int

    @property
    def box(self) -> Any:
        """The box as it is given."""
        return self.drawing.boxes[self.number]

    @property
    def label(self) -> Any:
        """Its label; None where it has none."""
        return self.drawing.label(self.number)

    @property
    def group(self) -> str:
        """The name of boxes that are likely from one source: those of a split, or of one reader in a split."""
        return group(self.row, self.drawing.name)

    def problem(self, name: str, words: str) -> Problem:
        """A problem of this box; the words follow its number."""
        return Problem(name, self.row, f"{self.drawing.prefix}box {self.number} {words}", self.drawing.name)


@dataclass(frozen=True)
class BoxTable:
    """All boxes of all rows side by side; arrays have a row for each.

    Attributes:
        places: where each stands.
        defects: the first thing that is wrong with each; None where nothing is.
        numbers: (n, 4), nan where a box is not four finite numbers.
        sizes: (n, 2), width and height of the image; nan where they are unknown or not of the image's shape.
        seen: (n, 2), width and height at which the model sees the image.
        resized: as `seen`, nan where it is an assumption.
        drawing: counts drawings from 0.
        answers: whether it is part of a right answer.
        first: whether it is part of the row's first right answer.
    """

    places: list[Place]
    defects: list[str | None]
    numbers: np.ndarray
    sizes: np.ndarray
    seen: np.ndarray
    resized: np.ndarray
    drawing: np.ndarray
    answers: np.ndarray
    first: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[ImageRow], model: Model) -> BoxTable:
        """The boxes of these rows."""
        places: list[Place] = []
        defects: list[str | None] = []
        columns: list[tuple[Any, ...]] = []
        drawings = 0
        unknown = (np.nan, np.nan)
        for row in rows:
            size, resized = row.trusted_size, model.resized(row)
            sides = (*(size or unknown), *(model.seen_size(row) if size else unknown), *(resized or unknown))
            for drawing in row.drawings:
                drawings += bool(drawing.boxes)
                is_answer = drawing.name != IGNORED and bool(drawing.name) == bool(row.readers)
                is_first = is_answer and drawing.name == row.answers[0].name
                for index, box in enumerate(drawing.boxes):
                    places.append(Place(row, drawing, index))
                    defects.append(_defect(drawing, index, size))
                    columns.append((*(box if is_box(box) else _NO_BOX), *sides, drawings, is_answer, is_first))
        table = np.array(columns, dtype=np.float64).reshape(-1, 13)
        numbers, sizes, seen, resizes, (drawing_of, answers, first) = (
            *np.split(table[:, :10], (4, 6, 8), axis=1),
            table[:, 10:].T,
        )
        return cls(places, defects, numbers, sizes, seen, resizes, drawing_of, answers > 0, first > 0)

    @cached_property
    def sound(self) -> np.ndarray:
        """Which boxes nothing is wrong with, on an image of known size."""
        return np.array([defect is None for defect in self.defects], dtype=bool) & ~np.isnan(self.sizes[:, 0])

    @cached_property
    def parts(self) -> np.ndarray:
        """The boxes in parts of the image, (n, 4)."""
        return self.numbers / np.tile(self.sizes, 2)

    @cached_property
    def groups(self) -> np.ndarray:
        """The :func:`group` of each box whose order and frame can be told; empty for others."""
        left_out = ("normalised-boxes", "negative-placeholder")
        whose = [
            "" if defect in left_out else place.group for place, defect in zip(self.places, self.defects, strict=True)
        ]
        return np.where(np.isnan(self.numbers[:, 0] + self.sizes[:, 0]), "", np.array(whose, dtype=np.str_))

    def fit(self, chosen: np.ndarray, frame: tuple[float, float] | None = None) -> BoxFit:
        """How these boxes fit on their images, or on one frame."""
        _, first, image = np.unique(self.drawing[chosen], return_index=True, return_inverse=True)
        sizes = self.sizes[chosen][first] if frame is None else np.tile(frame, (len(first), 1))
        labels = {self.places[k].label for k in np.flatnonzero(chosen) if isinstance(self.places[k].label, str)}
        return BoxFit(self.numbers[chosen], image, sizes, self.resized[chosen][first], len(labels))


@dataclass
class Case:
    """What the checks share.

    Attributes:
        source: where the rows come from.
        model: what is known of the model.
        rows: those that could be read, without their images.
        damaged: those that could not.
        images: images by split, of all rows.
        is_quick: whether only the headers of images were read.
        has_pictures: whether examples have images.
        bad: the keys of rows with an error.
        longest_gold: tokens of the longest right answer; 0 without a box format.
        found: the names of defects so far.
    """

    source: RowSource
    model: Model
    rows: list[ImageRow] = field(default_factory=list)
    damaged: list[Problem] = field(default_factory=list)
    images: Counter[str] = field(default_factory=Counter)
    is_quick: bool = False
    has_pictures: bool = False
    bad: set[tuple[str, int]] = field(default_factory=set)
    longest_gold: int = 0
    found: set[str] = field(default_factory=set)

    @cached_property
    def table(self) -> BoxTable:
        """All boxes."""
        return BoxTable.of(self.rows, self.model)

    @cached_property
    def counts(self) -> list[int]:
        """Boxes of each row, of the reader with most; a box that stands for an image without findings is none."""
        return [
            max(sum(not is_placeholder(box, one.label(k)) for k, box in enumerate(one.boxes)) for one in row.answers)
            for row in self.rows
        ]

    def labelled(self) -> Iterator[Place]:
        """The boxes of right answers that have a label and do not stand for an image without findings."""
        for place, is_answer in zip(self.table.places, self.table.answers, strict=True):
            if is_answer and isinstance(place.label, str) and not is_placeholder(place.box, place.label):
                yield place

    @cached_property
    def labels(self) -> Counter[str]:
        """Boxes of right answers by label."""
        return Counter(place.label for place in self.labelled())

    @cached_property
    def diagnoses(self) -> dict[tuple[str, ...], Diagnosis]:
        """Mistakes that all boxes of a group share, by the names of the groups."""
        names = tuple(dict.fromkeys(name for name in self.table.groups.tolist() if name))
        found = self._diagnosed_by_numbers(names)
        # Numbers that show a mistake in a part of the images may follow from one in all of them.
        if not any(one.whole for one in found.values()) and self.content and (one := self.content[0].diagnose()):
            return {names: one}
        # Groups of one frame, of which some do not reach its edges.
        framed = [whose for whose, one in found.items() if one.name == "wrong-frame" and one.whole]
        groups = tuple(name for whose in framed for name in whose)
        joint = self.table.fit(np.isin(self.table.groups, groups)).diagnose(parts=False) if framed else None
        if joint is not None and joint.name == "wrong-frame":
            # What is compared are the boxes of one reader.
            whose = {self.table.places[k].group for k in self.content[1]} if self.content else {""}
            if (
                joint.side is not None
                and self.content
                and whose <= {*groups}
                and (better := self.content[0].frame(joint.side))
            ):
                joint = on_frame(joint, *better)
            found = {groups: joint, **{whose: one for whose, one in found.items() if whose not in framed}}
        return found

    def _diagnosed_by_numbers(self, names: tuple[str, ...]) -> dict[tuple[str, ...], Diagnosis]:
        whose = self.table.groups
        if diagnosis := self._shifted():
            return {names: diagnosis}
        found: dict[tuple[str, ...], Diagnosis] = {}
        # Regions to ignore may all be in one corner, such as side markers.
        ignored = {name for name in names if name.endswith(f", {IGNORED}")}
        for name in names:
            diagnosis = self.table.fit(whose == name).diagnose(corners=name not in ignored, parts=False)
            if diagnosis is not None and (diagnosis.whole or diagnosis.certain):
                found[name,] = diagnosis
        # Groups too small to show a mistake by themselves may show it together, and a mistake in a part of the images
        # shows best over all of them.
        rest = tuple(name for name in names if (name,) not in found and name not in ignored)
        if diagnosis := self.table.fit(np.isin(whose, rest)).diagnose():
            found[rest] = diagnosis
        return found

    @cached_property
    def content(self) -> tuple[BoxContent, np.ndarray] | None:
        """What images show in and around boxes, and the places of these boxes in the table; None without pixels."""
        table = self.table
        number = {row.key: k for k, row in enumerate(self._in_file)}
        shown = [row.facts.small if row.facts and row.facts.greys else b"" for row in self._in_file]
        fit = ("off-image", "partly-off-image", None)
        chosen = [
            k
            for k in np.flatnonzero(table.first & ~np.isnan(table.sizes[:, 0])).tolist()
            if table.defects[k] in fit and shown[number[table.places[k].row.key]]
        ]
        if len(chosen) < FEWEST:
            return None
        places = np.array(chosen)[np.linspace(0, len(chosen) - 1, min(len(chosen), _MOST_COMPARED)).astype(int)]
        rows = np.array([number[table.places[k].row.key] for k in places])
        # With the rows beside them.
        beside = np.unique(np.clip(rows[:, None] + (-1, 0, 1), 0, len(shown) - 1))
        beside = beside[[bool(shown[k]) for k in beside]]
        images = np.array([np.frombuffer(shown[k], dtype=np.uint8) for k in beside], dtype=np.float32)
        images -= images.mean(axis=1, keepdims=True)
        images /= images.std(axis=1, keepdims=True) + 1e-6
        _, labels = np.unique([str(table.places[k].label) for k in places], return_inverse=True)
        side = round(images.shape[1] ** 0.5)
        content = BoxContent(
            images.reshape(-1, side, side),
            table.numbers[places],
            table.sizes[places],
            np.searchsorted(beside, rows),
            labels,
        )
        return content, places

    @property
    def _in_file(self) -> list[ImageRow]:
        """The rows in the order in which their file has them, where a join slips."""
        return sorted(self.rows, key=lambda row: row.line)

    def _shifted(self) -> Diagnosis | None:
        rows = [row for row in self._in_file if row.trusted_size is not None]
        boxes = [[box for box in row.answers[0].boxes if is_box(box)] for row in rows]
        reach = [(max(box[2] for box in one), max(box[3] for box in one)) if one else (0, 0) for one in boxes]
        sizes = [row.trusted_size for row in rows]
        return shifted_rows(*(np.array(one, dtype=np.float64).reshape(-1, 2) for one in (reach, sizes)))

    def collect(self, problems: Iterable[Problem]) -> Iterator[Defect]:
        """The problems of rows as defects, without those that a mistake of all boxes explains."""
        met: dict[str, list[Problem]] = {}
        for problem in problems:
            if CHECKS[problem.name].severity == "error":
                self.bad.add(problem.row.key)
            if not self._is_explained(problem.name, group(problem.row, problem.drawing)):
                met.setdefault(problem.name, []).append(problem)
        for name, here in met.items():
            yield self.defect(name, [(one.row, one.detail) for one in here])

    def _is_explained(self, name: str, whose: str) -> bool:
        """Whether problems of this group follow from a mistake that its boxes share."""
        return any(
            CHECKS[name].follows if diagnosis.whole else name in diagnosis.explains
            for names, diagnosis in self.diagnoses.items()
            if whose in names
        )

    def defect(
        self,
        name: str,
        rows: Iterable[tuple[ImageRow | None, str]] = (),
        *,
        count: int | None = None,
        of: int | None = None,
        found: str = "",
        fix: str = "",
        diagnosis: Diagnosis | None = None,
    ) -> Defect:
        """A defect.

        Args:
            name: of the check.
            rows: that show it, each with what is there; None for what is no row's.
            count: of units affected; the rows without it.
            of: how many there are; all of the check's unit without it.
            found: details in a sentence.
            fix: what to do, where it depends on what is found.
            diagnosis: the mistake that all boxes share, which may propose other boxes.
        """
        self.found.add(name)
        check, shown = CHECKS[name], list(rows)
        examples = [_example(row, detail) for row, detail in shown]
        first = examples[:EXAMPLES]
        if self.has_pictures:
            first = [
                example if row is None else example._replace(image=picture(row, diagnosis))
                for example, (row, _) in zip(first, shown, strict=False)
            ]
        if of is None:
            of = {"images": self.images.total(), "boxes": len(self.table.places)}.get(check.unit, 0)
        count = len(examples) if count is None else count
        texts = check.title, count, of, check.unit, found, check.why, fix or check.fix
        return Defect(name, check.severity, *texts, tuple(first), tuple(examples))


def _example(row: ImageRow | None, detail: str) -> Example:
    if row is None:
        return Example("", -1, "", detail)
    for name in row.hidden:
        detail = detail.replace(name, "…")
    return Example(row.split, row.number, row.id, detail)


def picture(row: ImageRow, diagnosis: Diagnosis | None = None) -> ImagePicture:
    """A row's image, still empty, with all its boxes, and beside them as a mistake in their order proposes them."""
    width, height = row.size or row.image_size or (1, 1)
    boxes = [box for drawing in row.drawings for box in drawing.boxes]
    labels = [
        ": ".join(filter(None, (drawing.name, "" if drawing.label(k) is None else str(drawing.label(k)))))
        for drawing in row.drawings
        for k in range(len(drawing.boxes))
    ]
    proposed: Sequence[Any] = ()
    if diagnosis is not None and diagnosis.order is not None:
        given = np.array([box for box in boxes if is_box(box)], dtype=np.float64).reshape(-1, 4)
        proposed = diagnosis.order.to_xyxy(given).tolist()
    return ImagePicture(b"", width, height, boxes, labels, f"{row.split} {row.number} · {row.id}", proposed)


def group(row: ImageRow, drawing: str) -> str:
    """The name of boxes that are likely from one source: those of a split, or of one reader in a split."""
    return f"{row.split}, {drawing}" if drawing else row.split


def _defect(drawing: Drawing, index: int, size: tuple[float, float] | None) -> str | None:
    """The first thing that is wrong with a box of a drawing, or None."""
    box = drawing.boxes[index]
    if drawing.name != IGNORED:
        return "negative-placeholder" if is_placeholder(box, drawing.label(index)) else box_defect(box, size)
    if (defect := box_defect(box, size)) or size is None:
        return defect
    covered = (box[2] - box[0]) * (box[3] - box[1]) / (size[0] * size[1])
    return "ignored-image" if covered >= WHOLE_IMAGE else None

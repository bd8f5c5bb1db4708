"""What the checks look at: all rows without their images, all boxes side by side, and how a defect is made."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from configparser import ConfigParser
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.boxes import is_box
from grounding_rewards.doctor.box_content import FEWEST, BoxContent
from grounding_rewards.doctor.box_defects import BoxFit, Diagnosis, box_defect, is_placeholder, on_frame, shifted_rows
from grounding_rewards.doctor.model import Model
from grounding_rewards.doctor.raw_rows import IGNORED, Drawing, ImageRow, RowSource

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
    needs: what it takes: `pixels`, several `splits`, `patients`, a box `format`.
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

# Columns that say where rows come from, or who made them.
_ORIGIN = re.compile(
    r"(source|site|hospital|institut\w*|cent(er|re)|scanner|device|vendor|manufacturer|machine|annotat(or|ed_by)|reader|"
    r"radiologist|rater|labell?er|batch|round)(_?(id|name))?",
    re.IGNORECASE,
)
#: The column of the parts of a file, so many, that are compared with the rest of it.
PART_OF_FILE, _PARTS = "part of the file", 8
#: That of the beginnings of their names. Of more kinds of names, or values of another column, none is compared.
NAME_OF_FILE, _MOST_KINDS = "name of the file", 12
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
        rows: (n,), the number of the row of each.
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
    rows: np.ndarray
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
        for number, row in enumerate(rows):
            size, resized = row.trusted_size, model.resized(row)
            sides = (*(size or unknown), *(model.seen_size(row) if size else unknown), *(resized or unknown))
            for drawing in row.drawings:
                drawings += bool(drawing.boxes)
                is_answer = drawing.name != IGNORED and bool(drawing.name) == bool(row.readers)
                is_first = is_answer and drawing.name == row.answers[0].name
                for index, box in enumerate(drawing.boxes):
                    places.append(Place(row, drawing, index))
                    defects.append(_defect(drawing, index, size))
                    columns.append((*(box if is_box(box) else _NO_BOX), *sides, drawings, is_answer, is_first, number))
        table = np.array(columns, dtype=np.float64).reshape(-1, 14)
        numbers, sizes, seen, resizes, (drawing_of, answers, first, number_of) = (
            *np.split(table[:, :10], (4, 6, 8), axis=1),
            table[:, 10:].T,
        )
        return cls(
            places, number_of.astype(int), defects, numbers, sizes, seen, resizes, drawing_of, answers > 0, first > 0
        )

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
        odd: the keys of rows whose images are inverted, turned or of something else, so that they say nothing of boxes.
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
    odd: set[tuple[str, int]] = field(default_factory=set)

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

    @cached_property
    def columns(self) -> dict[str, np.ndarray]:
        """The group of each row, by the columns whose groups should not differ; empty for a row without."""
        return _columns_of(self.rows)

    @cached_property
    def other_columns(self) -> dict[str, np.ndarray]:
        """The group of each row, by columns that tell kinds of images apart, such as the view, and by their shape."""
        return _other_columns(self.rows)

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

    @property
    def misread(self) -> bool:
        """Whether boxes are in another order or frame, so that neither sizes nor places say more."""
        return any(one.name != "one-corner" for one in self.diagnoses.values())

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
            if table.defects[k] in fit
            and shown[number[table.places[k].row.key]]
            and table.places[k].row.key not in self.odd
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


def _columns_of(rows: list[ImageRow]) -> dict[str, np.ndarray]:
    names = {"split", *(name for row in rows for name in row.columns if _ORIGIN.fullmatch(name))}
    values = {name: [str(_stated(row, name)) for row in rows] for name in sorted(names)}
    # What the names of files begin with, before a number.
    values[NAME_OF_FILE] = [re.match(r"\D*", Path(row.file).stem)[0] for row in rows]  # type: ignore[index]
    if len(set(values[NAME_OF_FILE])) > _MOST_KINDS:
        del values[NAME_OF_FILE]
    part = np.empty(len(rows), dtype=int)
    part[np.argsort([row.line for row in rows], kind="stable")] = np.arange(len(rows)) * _PARTS // max(1, len(rows))
    values[PART_OF_FILE] = [f"{k + 1} of {_PARTS}" for k in part]
    return {name: np.array(mine, dtype=np.str_) for name, mine in values.items() if len(set(mine)) > 1}


def _other_columns(rows: list[ImageRow]) -> dict[str, np.ndarray]:
    names = {name for row in rows for name, value in row.columns.items() if isinstance(value, str)}
    values = {
        name: [str(_stated(row, name)) for row in rows]
        for name in sorted(names - {"split", "file", "id", "prompt", "box_format"})
    }
    sizes = [row.size or (1, 1) for row in rows]
    values["shape"] = ["lying" if width > height else "standing" if width < height else "" for width, height in sizes]
    kinds = {name: set(mine) for name, mine in values.items() if not _ORIGIN.fullmatch(name)}
    return {name: np.array(values[name], dtype=np.str_) for name, mine in kinds.items() if 1 < len(mine) <= _MOST_KINDS}


def _stated(row: ImageRow, column: str) -> object:
    value = row.split if column == "split" else row.columns.get(column)
    return "" if value is None or isinstance(value, list | tuple | Mapping) else value


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

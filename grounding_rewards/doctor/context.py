"""The context of the checks: all rows without their images, all boxes side by side, the model to be trained as far as
it is known (its box format, the size at which it sees images, its tokenizer); and how a defect is made."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from configparser import ConfigParser
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.boxes import is_box
from grounding_rewards.data.box_defects import MistakenConvention, box_defect, find_convention, is_placeholder
from grounding_rewards.data.checks import row_problems
from grounding_rewards.doctor.rows import IGNORED, Drawing, ImageRow, Owner, RowSource, owners
from grounding_rewards.images.resize import resized_size
from grounding_rewards.parsing import BoxFormat, get_box_format

SEVERITIES = ("error", "warning", "note")
#: Examples of each defect.
EXAMPLES = 3
#: Largest area of an image in pixels, assumed without a processor: 1280 patches of 28 x 28, a usual limit.
ASSUMED_MAX_PIXELS = 1280 * 28 * 28


class Fault(NamedTuple):
    """A row that shows a defect.

    Attributes:
        row: without its image; None for a defect that no row shows.
        detail: what is wrong, in words.
    """

    row: ImageRow | None
    detail: str

    @property
    def place(self) -> tuple[str, int, str]:
        """Split, number and id of the row; the number is -1 without one."""
        return ("", -1, "") if self.row is None else (self.row.split, self.row.number, self.row.id)


@dataclass(frozen=True)
class Defect:
    """The result of one check that found something.

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
        rows: that show it.
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
    rows: tuple[Fault, ...] = ()

    @property
    def share(self) -> float | None:
        """`count` divided by `of`; None if `of` is 0."""
        return self.count / self.of if self.of else None

    @property
    def examples(self) -> tuple[Fault, ...]:
        """The first rows."""
        return self.rows[:EXAMPLES]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without images."""
        values = {name: value for name, value in vars(self).items() if name != "rows"}
        columns = ("split", "row", "id", "detail")
        examples = [dict(zip(columns, (*fault.place, fault.detail), strict=True)) for fault in self.examples]
        return {**values, "of": self.of or None, "share": self.share, "examples": examples}


class Check(NamedTuple):
    """A kind of mistake, from `checks.ini`.

    Attributes:
        name: its key in :data:`CHECKS` and in JSON.
        title: a short description.
        why: why it matters.
        fix: what to do; empty if it depends on the dataset.
        severity: one of :data:`SEVERITIES`.
        unit: what is counted: boxes, images, labels, …
        follows: whether boxes in another order or frame cause it; with these it is not reported.
        needs: what the check needs: several `splits`, `patients`, a box `format`, the model's `tokens`.
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
    """The checks of `checks.ini` by name."""
    table = ConfigParser(interpolation=None)
    table.read_string((files("grounding_rewards.doctor") / "checks.ini").read_text(encoding="utf-8"))
    checks = {}
    for name in table.sections():
        # Long texts go on in the next line.
        values: dict[str, Any] = {key: " ".join(text.split()) for key, text in table[name].items()}
        values["follows"] = "follows" in values
        values["needs"] = tuple(values.get("needs", "").split())
        checks[name] = Check(name, **values)
    return checks


#: All checks by name, in the order of reports.
CHECKS = _read_checks()


class Problem(NamedTuple):
    """A problem of one row: the name of the check, the row, and what is wrong in words."""

    name: str
    row: ImageRow
    detail: str


class Place(NamedTuple):
    """The place of a box: its row, its drawing, and its number in that."""

    row: ImageRow
    drawing: Drawing
    number: int

    @property
    def box(self) -> Any:
        """The box as the dataset has it."""
        return self.drawing.boxes[self.number]

    @property
    def label(self) -> Any:
        """The label of the box; None if it has none."""
        return self.drawing.label(self.number)

    def problem(self, name: str, words: str) -> Problem:
        """A problem of this box; the words follow its number."""
        return Problem(name, self.row, f"{self.drawing.prefix}box {self.number} {words}")


@dataclass(frozen=True)
class Model:
    """The model to be trained, as far as it is known.

    Attributes:
        box_format: how it writes boxes; None takes the column `box_format`.
        processor: its `transformers` processor; without it sizes are assumed, and tokens are not counted.
        max_completion_length: tokens that a completion may have.
    """

    box_format: BoxFormat | None = None
    processor: Any = None
    max_completion_length: int = 256

    def format_of(self, row: ImageRow) -> BoxFormat | None:
        """The box format for the answer to a row, the model's or its column's; None if it is missing or unknown."""
        if self.box_format is not None:
            return self.box_format
        name = row.columns.get("box_format")
        return None if name is None else _known_format(str(name))

    def resized(self, row: ImageRow) -> tuple[float, float] | None:
        """Width and height at which the model sees the image, by the row or the processor; None if neither says it."""
        if row.resized_size:
            return row.resized_size
        size = row.image_size or row.size
        if self.processor is None or size is None:
            return None
        try:
            return resized_size(self.processor, int(size[0]), int(size[1]))
        except ValueError:
            # A processor of an unknown kind, or an image that it refuses.
            return None

    def seen_size(self, row: ImageRow) -> tuple[float, float]:
        """As :meth:`resized`, but with an assumed size instead of None; the size of the image must be known."""
        size = self.resized(row)
        if size is None:
            width, height = row.image_size or row.size or (1, 1)
            scale = min(1.0, math.sqrt(ASSUMED_MAX_PIXELS / (width * height)))
            size = max(1.0, round(width * scale)), max(1.0, round(height * scale))
        return size

    @property
    def has_tokenizer(self) -> bool:
        """Whether answers can be measured in tokens."""
        return getattr(self.processor, "tokenizer", None) is not None

    def count_tokens(self, answer: str) -> int:
        """The number of tokens of an answer, the end token included."""
        return len(self.processor.tokenizer(answer, add_special_tokens=False)["input_ids"]) + 1


@lru_cache(maxsize=64)
def _known_format(name: str) -> BoxFormat | None:
    """The box format of a name; None if there is none."""
    try:
        return get_box_format(name)
    except ValueError:
        return None


@dataclass(frozen=True)
class BoxTable:
    """All n boxes of all rows side by side.

    Attributes:
        places: of each box.
        defects: the name of the first defect of each box; None for a box without any.
        rows: (n,), the index of the row of each box, rising.
        numbers: (n, 4), the box; nan if it is not four finite numbers.
        sizes: (n, 2), width and height of the image; nan if they are unknown or not of the image's shape.
        seen: (n, 2), width and height at which the model sees the image.
        resized: as `seen`, but nan if that is an assumption.
        answers: (n,), whether the box is part of a right answer.
    """

    places: list[Place]
    defects: list[str | None]
    rows: np.ndarray
    numbers: np.ndarray
    sizes: np.ndarray
    seen: np.ndarray
    resized: np.ndarray
    answers: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[ImageRow], model: Model) -> BoxTable:
        """The table of the boxes of these rows, for a model to be trained."""
        places: list[Place] = []
        defects: list[str | None] = []
        row_numbers, numbers, answers = array("l"), array("d"), array("b")
        # Width and height of the image of each row.
        sizes, seen, resized = array("d"), array("d"), array("d")
        unknown = (np.nan, np.nan)
        for row_number, row in enumerate(rows):
            size = row.trusted_size
            sizes.extend(size or unknown)
            seen.extend(model.seen_size(row) if size else unknown)
            resized.extend(model.resized(row) or unknown)
            answer_names = {drawing.name for drawing in row.answers}
            for drawing in row.drawings:
                for index, box in enumerate(drawing.boxes):
                    defect = box_defect(box, size)
                    if drawing.name != IGNORED and is_placeholder(box, drawing.label(index), size):
                        defect = "negative-placeholder"
                    places.append(Place(row, drawing, index))
                    defects.append(defect)
                    row_numbers.append(row_number)
                    answers.append(drawing.name in answer_names)
                    numbers.extend(box if is_box(box) else (np.nan,) * 4)
        row_of_box = np.array(row_numbers, dtype=int)
        boxes, is_answer = np.array(numbers).reshape(-1, 4), np.array(answers, dtype=bool)
        # Those of the rows, once for each of their boxes.
        image_sizes, seen_sizes, resized_sizes = (
            np.array(values).reshape(-1, 2)[row_of_box] for values in (sizes, seen, resized)
        )
        return cls(places, defects, row_of_box, boxes, image_sizes, seen_sizes, resized_sizes, is_answer)

    @cached_property
    def sound(self) -> np.ndarray:
        """Whether a box has no defect and its image a known size, (n,)."""
        return np.array([defect is None for defect in self.defects], dtype=bool) & ~np.isnan(self.sizes[:, 0])

    @property
    def fractions(self) -> np.ndarray:
        """The boxes as fractions of width and height of the image, (n, 4)."""
        return self.numbers / np.tile(self.sizes, 2)

    def convention(self, selection: np.ndarray, **limits: int) -> MistakenConvention | None:
        """The result of :func:`find_convention` for the boxes where `selection`, (n,), is true."""
        selection = selection & ~np.isnan(self.numbers[:, 0] + self.sizes[:, 0])
        sizes, resized = self.sizes[selection], self.resized[selection]
        return find_convention(self.numbers[selection], self.rows[selection], sizes, resized, **limits)


@dataclass
class Context:
    """Everything that the checks share.

    Attributes:
        source: where the rows come from.
        model: the model to be trained, as far as it is known.
        names: whether ids, patients and files are named; else rows have their numbers alone.
        rows: those that could be read, without their images.
        damaged: a problem for each row that could not be read.
        images: images by split, of all rows.
        leaked: keys of the rows whose image another split has.
        longest_gold: tokens of the longest right answer; 0 if they are not counted.
    """

    source: RowSource
    model: Model
    names: bool = True
    rows: list[ImageRow] = field(default_factory=list)
    damaged: list[Problem] = field(default_factory=list)
    images: Counter[str] = field(default_factory=Counter)
    leaked: set[tuple[str, int]] = field(default_factory=set)
    longest_gold: int = 0

    @cached_property
    def table(self) -> BoxTable:
        """All boxes."""
        return BoxTable.of(self.rows, self.model)

    @cached_property
    def owners(self) -> list[Owner | None]:
        """The patient or study of each row."""
        return owners(self.rows)

    @cached_property
    def box_counts(self) -> list[int]:
        """The number of boxes of each row; of several readers that of the one with most.

        A box that stands for "no finding" does not count.
        """
        most_boxes: Counter[tuple[str, int]] = Counter()
        drawing_counts = Counter((place.row.key, place.drawing.name) for place in self.answer_places())
        for (row_key, _), count in drawing_counts.items():
            most_boxes[row_key] = max(most_boxes[row_key], count)
        return [most_boxes[row.key] for row in self.rows]

    def answer_places(self) -> Iterator[Place]:
        """Yield the places of boxes of right answers that do not stand for "no finding"."""
        table = self.table
        for place, defect, is_answer in zip(table.places, table.defects, table.answers, strict=True):
            if is_answer and defect != "negative-placeholder":
                yield place

    def labelled_places(self) -> Iterator[Place]:
        """The places of boxes of right answers that have a label and do not stand for "no finding"."""
        return (place for place in self.answer_places() if isinstance(place.label, str))

    @cached_property
    def labels(self) -> Counter[str]:
        """The number of boxes of right answers by label."""
        return Counter(place.label for place in self.labelled_places())

    @cached_property
    def conventions(self) -> dict[str, MistakenConvention]:
        """The convention of each split whose boxes are not x1, y1, x2, y2 in pixels."""
        # The split of each box; empty for a box that plays no part.
        box_splits = []
        for place, defect in zip(self.table.places, self.table.defects, strict=True):
            is_excluded = defect in ("normalised-boxes", "negative-placeholder") or place.drawing.name == IGNORED
            box_splits.append("" if is_excluded else place.row.split)
        splits = np.array(box_splits, dtype=np.str_)
        by_split = {split: self.table.convention(splits == split) for split in self.images}
        conventions = {split: convention for split, convention in by_split.items() if convention is not None}
        if not conventions:
            # Each split may be too small to show a convention that all splits together show.
            convention = self.table.convention(splits != "")
            return {} if convention is None else dict.fromkeys(self.images, convention)
        orders = {convention.order for convention in conventions.values()}
        for split in self.images:
            # A single image is enough for what another split shows.
            convention = self.table.convention(splits == split, min_images=1)
            if convention is not None and convention.order in orders:
                conventions[split] = convention
        return conventions

    def add(self, row: ImageRow) -> None:
        """Count a row, and keep it if it could be read."""
        self.images[row.split] += 1
        damage = row.damage or "; ".join(row_problems(row.columns, parts=["lists"]))
        if damage:
            self.damaged.append(Problem("unreadable-row", row, damage))
        else:
            self.rows.append(row)

    def collect(self, problems: Iterable[Problem], **about: Any) -> Iterator[Defect]:
        """Yield a defect for each check that has problems, without those that a convention of their split explains.

        Args:
            problems: of rows, of any checks.
            **about: further arguments of :meth:`defect`.
        """
        faults_by_check: dict[str, list[Fault]] = {}
        for problem in problems:
            if not (CHECKS[problem.name].follows and problem.row.split in self.conventions):
                faults_by_check.setdefault(problem.name, []).append(Fault(problem.row, problem.detail))
        for name, faults in faults_by_check.items():
            yield self.defect(name, faults, **about)

    def defect(
        self,
        name: str,
        faults: Sequence[Fault] = (),
        *,
        count: int | None = None,
        of: int | None = None,
        found: str = "",
    ) -> Defect:
        """Make a defect of a check.

        Args:
            name: of the check.
            faults: the rows that show it.
            count: number of units affected; None for the number of faults.
            of: number of units in the dataset; None for all of the check's unit.
            found: details in a sentence.
        """
        check = CHECKS[name]
        if not self.names:
            # What is said of boxes and labels names nobody; a row without columns has no id, patient or file.
            is_nameless = check.unit in ("boxes", "labels")
            faults = [Fault(row and replace(row, columns={}), detail if is_nameless else "") for row, detail in faults]
        if count is None:
            count = len(faults)
        if of is None:
            of = {"images": self.images.total(), "boxes": len(self.table.places)}.get(check.unit, 0)
        return Defect(
            name, check.severity, check.title, count, of, check.unit, found, check.why, check.fix, tuple(faults)
        )

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
        # `of` is 0 where a total has no meaning: null in JSON, as is the share of it.
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
        # The texts of the file are wrapped: each becomes a single line.
        values: dict[str, Any] = {key: " ".join(text.split()) for key, text in table[name].items()}
        # A flag: the file has the word without a value, or not at all.
        values["follows"] = "follows" in values
        values["needs"] = tuple(values.get("needs", "").split())
        checks[name] = Check(name, **values)
    return checks


#: All checks by name, in the order of reports.
CHECKS = _read_checks()


class Problem(NamedTuple):
    """A problem of one row: the name of the check, the row, and what is wrong in words."""

    check: str
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

    def problem(self, check: str, words: str) -> Problem:
        """The problem that a check finds in this box; the words follow the number of the box."""
        return Problem(check, self.row, f"{self.drawing.prefix}box {self.number} {words}")


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
        # The processor resizes the image itself, which may be a smaller copy of the one that the columns measure.
        size = row.image_size or row.size
        if self.processor is None or size is None:
            return None
        try:
            return resized_size(self.processor, int(size[0]), int(size[1]))
        except ValueError:
            # A processor of an unknown kind, or an image that it refuses.
            return None

    def seen_size(self, row: ImageRow) -> tuple[float, float]:
        """As :meth:`resized`, but where that is None the image shrunk to an area of at most `ASSUMED_MAX_PIXELS`.

        Args:
            row: of an image whose size is known.
        """
        size = self.resized(row)
        if size is None:
            width, height = row.image_size or row.size or (1, 1)
            # The square root, since the limit is one of area; an image is never enlarged.
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
        row_indices: (n,), the index of the row of each box, rising.
        boxes: (n, 4), xyxy in pixels; nan if the box is not four finite numbers.
        image_sizes: (n, 2), width and height of the image; nan if they are unknown or not of the image's shape.
        seen_sizes: (n, 2), width and height at which the model sees the image, assumed where nothing states them.
        resized_sizes: as `seen_sizes`, but nan if that is an assumption.
        is_answer: (n,), whether the box is part of a right answer.
    """

    places: list[Place]
    defects: list[str | None]
    row_indices: np.ndarray
    boxes: np.ndarray
    image_sizes: np.ndarray
    seen_sizes: np.ndarray
    resized_sizes: np.ndarray
    is_answer: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[ImageRow], model: Model) -> BoxTable:
        """The table of the boxes of these rows, for a model to be trained."""
        places: list[Place] = []
        defects: list[str | None] = []
        # Flat arrays, all numbers one after the other: a dataset may have millions of boxes.
        row_indices, coordinates, answer_flags = array("l"), array("d"), array("b")
        # Width and height of each row's image: its own, that which the model sees, and that without an assumption.
        image_sides, seen_sides, resized_sides = array("d"), array("d"), array("d")
        unknown = (np.nan, np.nan)
        for row_index, row in enumerate(rows):
            size = row.trusted_size
            image_sides.extend(size or unknown)
            seen_sides.extend(model.seen_size(row) if size else unknown)
            resized_sides.extend(model.resized(row) or unknown)
            answer_names = {drawing.name for drawing in row.answers}
            for drawing in row.drawings:
                for index, box in enumerate(drawing.boxes):
                    defect = box_defect(box, size)
                    if drawing.name != IGNORED and is_placeholder(box, drawing.label(index), size):
                        defect = "negative-placeholder"
                    places.append(Place(row, drawing, index))
                    defects.append(defect)
                    row_indices.append(row_index)
                    answer_flags.append(drawing.name in answer_names)
                    coordinates.extend(box if is_box(box) else (np.nan,) * 4)
        row_of_box = np.array(row_indices, dtype=int)
        return cls(
            places,
            defects,
            row_indices=row_of_box,
            boxes=np.array(coordinates).reshape(-1, 4),
            # A row's size stands once for each of its boxes.
            image_sizes=np.array(image_sides).reshape(-1, 2)[row_of_box],
            seen_sizes=np.array(seen_sides).reshape(-1, 2)[row_of_box],
            resized_sizes=np.array(resized_sides).reshape(-1, 2)[row_of_box],
            is_answer=np.array(answer_flags, dtype=bool),
        )

    @cached_property
    def is_sound(self) -> np.ndarray:
        """Whether a box has no defect and its image a known size, (n,)."""
        return np.array([defect is None for defect in self.defects], dtype=bool) & ~np.isnan(self.image_sizes[:, 0])

    @property
    def fractions(self) -> np.ndarray:
        """The boxes as fractions of width and height of the image, (n, 4)."""
        return self.boxes / np.tile(self.image_sizes, 2)

    def convention(self, selection: np.ndarray, **limits: int) -> MistakenConvention | None:
        """The result of :func:`find_convention` for the boxes where `selection`, (n,), is true.

        Boxes that are not four finite numbers, and those on images of unknown size, are left out.
        """
        chosen = selection & ~np.isnan(self.boxes[:, 0] + self.image_sizes[:, 0])
        image_sizes, resized_sizes = self.image_sizes[chosen], self.resized_sizes[chosen]
        return find_convention(self.boxes[chosen], self.row_indices[chosen], image_sizes, resized_sizes, **limits)


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
        # By the key of the row. A row without boxes is not in it, and counts 0.
        most_boxes: Counter[tuple[str, int]] = Counter()
        drawing_counts = Counter((place.row.key, place.drawing.name) for place in self.answer_places())
        for (row_key, _), count in drawing_counts.items():
            most_boxes[row_key] = max(most_boxes[row_key], count)
        return [most_boxes[row.key] for row in self.rows]

    def answer_places(self) -> Iterator[Place]:
        """Yield the places of boxes of right answers that do not stand for "no finding"."""
        table = self.table
        for place, defect, is_answer in zip(table.places, table.defects, table.is_answer, strict=True):
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
        """The mistaken convention of each split, by its name; a split whose boxes are xyxy in pixels is not in it."""
        # The split of each box; empty for boxes that say nothing of a convention: normalised ones and placeholders have
        # checks of their own, and regions to ignore are no findings.
        names = []
        for place, defect in zip(self.table.places, self.table.defects, strict=True):
            is_excluded = defect in ("normalised-boxes", "negative-placeholder") or place.drawing.name == IGNORED
            names.append("" if is_excluded else place.row.split)
        split_of_box = np.array(names, dtype=np.str_)
        found = {split: self.table.convention(split_of_box == split) for split in self.images}
        conventions = {split: convention for split, convention in found.items() if convention is not None}
        if not conventions:
            # Each split may be too small to show a convention that all splits together show.
            convention = self.table.convention(split_of_box != "")
            return {} if convention is None else dict.fromkeys(self.images, convention)
        # A split too small to show an order alone has the one that another split shows: one image is enough then.
        shown_orders = {convention.order for convention in conventions.values()}
        for split in self.images:
            convention = self.table.convention(split_of_box == split, min_images=1)
            if convention is not None and convention.order in shown_orders:
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
        """Yield a defect for each check that has problems.

        Where the boxes of a split are in a mistaken convention, problems that merely follow from it are left out.

        Args:
            problems: of rows, of any checks.
            **about: further arguments of :meth:`defect`.
        """
        faults_by_check: dict[str, list[Fault]] = {}
        for problem in problems:
            if not (CHECKS[problem.check].follows and problem.row.split in self.conventions):
                faults_by_check.setdefault(problem.check, []).append(Fault(problem.row, problem.detail))
        for check, faults in faults_by_check.items():
            yield self.defect(check, faults, **about)

    def defect(
        self,
        name: str,
        faults: Sequence[Fault] = (),
        *,
        count: int | None = None,
        of: int | None = None,
        found: str = "",
    ) -> Defect:
        """The defect that a check reports, with the check's texts; without ids, patients and files if none are named.

        Args:
            name: of the check.
            faults: the rows that show it.
            count: number of units affected; None for the number of faults.
            of: number of units in the dataset; None for all of the check's unit.
            found: details in a sentence.
        """
        check = CHECKS[name]
        if not self.names:
            # A row without columns has no id, patient or file. Details of boxes and labels name nobody, and stay.
            has_safe_details = check.unit in ("boxes", "labels")
            nameless_rows = [None if fault.row is None else replace(fault.row, columns={}) for fault in faults]
            details = [fault.detail if has_safe_details else "" for fault in faults]
            faults = list(map(Fault, nameless_rows, details))
        if count is None:
            count = len(faults)
        if of is None:
            # Other units, such as folders and labels, have no total here.
            of = {"images": self.images.total(), "boxes": len(self.table.places)}.get(check.unit, 0)
        return Defect(
            name, check.severity, check.title, count, of, check.unit, found, check.why, check.fix, tuple(faults)
        )

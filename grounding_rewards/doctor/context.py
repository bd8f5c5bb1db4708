"""What the checks look at: all rows without their images, all boxes side by side, and how a defect is made."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from configparser import ConfigParser
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.boxes import is_box
from grounding_rewards.doctor.box_defects import MistakenConvention, box_defect, find_convention, is_placeholder
from grounding_rewards.doctor.rows import IGNORED, Drawing, ImageRow, RowSource
from grounding_rewards.doctor.target_model import Model

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
    """One place of a defect: split, row number in the split, id, what is there, and the image if images are kept.

    Of a leak `partner` is the row of the other split.
    """

    split: str
    row: int
    id: str
    detail: str
    image: ImagePicture | None = None
    partner: Example | None = None


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
        values = {name: value for name, value in vars(self).items() if name != "rows"}
        examples = [dict(zip(Example._fields[:4], example, strict=False)) for example in self.examples]
        return {**values, "of": self.of or None, "share": self.share, "examples": examples}


class Check(NamedTuple):
    """A mistake to look for.

    name: its key in :data:`CHECKS` and in JSON.
    title: a short description.
    why: why it matters.
    fix: what to do; empty if it depends on what is found.
    severity: one of :data:`SEVERITIES`.
    unit: what is counted: boxes, images, labels, …
    follows: whether boxes in another order or frame cause it; it is then not reported beside that mistake.
    needs: what it takes: `pixels`, several `splits`, a box `format`.
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
        texts: dict[str, Any] = {key: " ".join(text.split()) for key, text in table[name].items()}
        texts["follows"] = "follows" in texts
        texts["needs"] = tuple(texts.get("needs", "").split())
        checks[name] = Check(name, **texts)
    return checks


#: All checks by name, in the order of reports.
CHECKS = _read_checks()


#: Checks of one image in two splits.
LEAKS = ("image-leak", "copy-leak")


class Problem(NamedTuple):
    """A problem of one row: the name of the check, and what is there."""

    name: str
    row: ImageRow
    detail: str


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

    def problem(self, name: str, words: str) -> Problem:
        """A problem of this box; the words follow its number."""
        return Problem(name, self.row, f"{self.drawing.prefix}box {self.number} {words}")


@dataclass(frozen=True)
class BoxTable:
    """All boxes of all rows side by side; arrays have a row for each.

    Attributes:
        places: where each stands.
        defects: the first thing that is wrong with each; None where nothing is.
        rows: (n,), the number of the row of each, rising.
        numbers: (n, 4), nan where a box is not four finite numbers.
        sizes: (n, 2), width and height of the image; nan where they are unknown or not of the image's shape.
        seen: (n, 2), width and height at which the model sees the image.
        resized: as `seen`, nan where it is an assumption.
        answers: whether it is part of a right answer.
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
        """The boxes of these rows."""
        places: list[Place] = []
        defects: list[str | None] = []
        numbers, sizes, seen, resized = array("d"), array("d"), array("d"), array("d")
        row_numbers, answers = array("l"), array("b")
        unknown = (np.nan, np.nan)
        for row_number, row in enumerate(rows):
            size = row.trusted_size
            seen_size = model.seen_size(row) if size else unknown
            resized_size = model.resized(row) or unknown
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
                    sizes.extend(size or unknown)
                    seen.extend(seen_size)
                    resized.extend(resized_size)
        return cls(
            places,
            defects,
            rows=np.array(row_numbers, dtype=int),
            numbers=np.array(numbers).reshape(-1, 4),
            sizes=np.array(sizes).reshape(-1, 2),
            seen=np.array(seen).reshape(-1, 2),
            resized=np.array(resized).reshape(-1, 2),
            answers=np.array(answers, dtype=bool),
        )

    @cached_property
    def sound(self) -> np.ndarray:
        """Which boxes nothing is wrong with, on an image of known size."""
        return np.array([defect is None for defect in self.defects], dtype=bool) & ~np.isnan(self.sizes[:, 0])

    @property
    def parts(self) -> np.ndarray:
        """The boxes in parts of the image, (n, 4)."""
        return self.numbers / np.tile(self.sizes, 2)

    def convention(self, selection: np.ndarray, **limits: int) -> MistakenConvention | None:
        """The convention that the chosen boxes follow, as :func:`find_convention`."""
        selection = selection & ~np.isnan(self.numbers[:, 0] + self.sizes[:, 0])
        sizes, resized = self.sizes[selection], self.resized[selection]
        return find_convention(self.numbers[selection], self.rows[selection], sizes, resized, **limits)


@dataclass
class Context:
    """What the checks share.

    Attributes:
        source: where the rows come from.
        model: what is known of the model.
        rows: those that could be read, without their images.
        damaged: those that could not.
        images: images by split, of all rows.
        is_quick: whether only the headers of images were read.
        has_pictures: whether examples have images.
        partners: by key of a row whose image leaks, the row of the other split.
        longest_gold: tokens of the longest right answer; 0 without a box format.
    """

    source: RowSource
    model: Model
    rows: list[ImageRow] = field(default_factory=list)
    damaged: list[Problem] = field(default_factory=list)
    images: Counter[str] = field(default_factory=Counter)
    is_quick: bool = False
    has_pictures: bool = False
    partners: dict[tuple[str, int], ImageRow] = field(default_factory=dict)
    longest_gold: int = 0

    @cached_property
    def table(self) -> BoxTable:
        """All boxes."""
        return BoxTable.of(self.rows, self.model)

    @cached_property
    def counts(self) -> list[int]:
        """Boxes of each row, of the reader with most; a box that stands for an image without findings is none."""
        counts = []
        for row in self.rows:
            size = row.trusted_size
            for_readers = []
            for drawing in row.answers:
                stand_ins = [is_placeholder(box, drawing.label(k), size) for k, box in enumerate(drawing.boxes)]
                for_readers.append(stand_ins.count(False))
            counts.append(max(for_readers))
        return counts

    def labelled(self) -> Iterator[Place]:
        """The boxes of right answers that have a label and do not stand for an image without findings."""
        table = self.table
        for place, defect, is_answer in zip(table.places, table.defects, table.answers, strict=True):
            if is_answer and defect != "negative-placeholder" and isinstance(place.label, str):
                yield place

    @cached_property
    def labels(self) -> Counter[str]:
        """Boxes of right answers by label."""
        return Counter(place.label for place in self.labelled())

    @cached_property
    def conventions(self) -> dict[str, MistakenConvention]:
        """Conventions other than x1, y1, x2, y2 in pixels, by split."""
        exceptions = ("normalised-boxes", "negative-placeholder")
        splits = np.array(
            [
                "" if defect in exceptions or place.drawing.name == IGNORED else place.row.split
                for place, defect in zip(self.table.places, self.table.defects, strict=True)
            ],
            dtype=np.str_,
        )
        conventions = {}
        for split in self.images:
            if convention := self.table.convention(splits == split):
                conventions[split] = convention
        orders = {convention.order for convention in conventions.values()}
        for split in self.images if orders else ():
            # What other splits show needs fewer images.
            convention = self.table.convention(splits == split, min_images=1)
            if convention and convention.order in orders:
                conventions[split] = convention
        if not conventions and (convention := self.table.convention(splits != "")):
            # Each split is too small to show it.
            conventions = dict.fromkeys(self.images, convention)
        return conventions

    def collect(self, problems: Iterable[Problem], **about: Any) -> Iterator[Defect]:
        """The problems of rows by :meth:`defect`, without those that a convention of their split explains."""
        by_check: dict[str, list[tuple[ImageRow | None, str]]] = {}
        for problem in problems:
            if not (CHECKS[problem.name].follows and problem.row.split in self.conventions):
                by_check.setdefault(problem.name, []).append((problem.row, problem.detail))
        for name, rows in by_check.items():
            yield self.defect(name, rows, **about)

    def defect(
        self,
        name: str,
        rows: Iterable[tuple[ImageRow | None, str]] = (),
        *,
        count: int | None = None,
        of: int | None = None,
        found: str = "",
        fix: str = "",
        order: Any = None,
    ) -> Defect:
        """A defect.

        Args:
            name: of the check.
            rows: that show it, each with what is there; None for what is no row's.
            count: of units affected; the rows without it.
            of: how many there are; all of the check's unit without it.
            found: details in a sentence.
            fix: what to do, where it depends on what is found.
            order: a :class:`MistakenOrder`, in which pictures propose the boxes.
        """
        check, entries = CHECKS[name], list(rows)
        examples = [_example(row, detail) for row, detail in entries]
        first = examples[:EXAMPLES]
        if self.has_pictures:
            for k, (row, _) in enumerate(entries[:EXAMPLES]):
                if row is not None:
                    first[k] = first[k]._replace(image=picture(row, order))
                    if name in LEAKS:
                        partner = self.partners[row.key]
                        shown_partner = _example(partner, "the same image")._replace(image=picture(partner))
                        first[k] = first[k]._replace(partner=shown_partner)
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


def picture(row: ImageRow, order: Any = None) -> ImagePicture:
    """A row's image, still without its pixels, with all its boxes.

    Args:
        row: of the dataset.
        order: a :class:`MistakenOrder`, by which the same boxes are proposed beside those of the dataset.
    """
    # Boxes are in pixels of the stated size; without any size the page can still show the picture.
    width, height = row.size or row.image_size or (1, 1)
    boxes, labels = [], []
    for drawing in row.drawings:
        for k, box in enumerate(drawing.boxes):
            label = drawing.label(k)
            boxes.append(box)
            parts = drawing.name, "" if label is None else str(label)
            labels.append(": ".join(part for part in parts if part))
    proposed: Sequence[Any] = ()
    if order is not None:
        numbers = np.array([box for box in boxes if is_box(box)], dtype=np.float64).reshape(-1, 4)
        proposed = order.to_xyxy(numbers).tolist()
    return ImagePicture(b"", width, height, boxes, labels, f"{row.split} {row.number} · {row.id}", proposed)

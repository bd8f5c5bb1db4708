"""Checks for repeats: boxes on an image, images in a split, images and patients in several splits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from grounding_rewards.boxes import as_box_array
from grounding_rewards.data.copies import find_copies
from grounding_rewards.data.patients import patient_column, patient_in_name
from grounding_rewards.doctor.box_checks import shown
from grounding_rewards.doctor.box_defects import box_defect
from grounding_rewards.doctor.case import QUICK, Case, Examiner
from grounding_rewards.doctor.defects import CHECKS, Defect, Example, Problem, named
from grounding_rewards.doctor.raw_rows import Drawing, ImageRow
from grounding_rewards.overlap import pairwise_iou

# Boxes of one label with a larger IoU are taken for two drawings of one finding.
_NEAR_DUPLICATE = 0.95
# Where more boxes than this part have two labels, they are meant to.
_MOST_SHARED = 0.1


class _Seen(NamedTuple):
    """What is kept of an image to recognise it: split and row, hashes of image and prompt."""

    split: str
    row: int
    image: bytes | None
    prompt: int


class RepeatExaminer(Examiner):
    """Repeated boxes, images and patients."""

    checks = named(
        *(
            "duplicate-boxes",
            "near-duplicate-boxes",
            "shared-box",
            "repeated-id",
            "repeated-image",
            "image-leak",
            "image-copy",
        ),
        *("copy-leak", "patient-leak", "patient-name-leak", "patient-spelling"),
        "patient-column",
    )

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._by_id: dict[str, _Seen] = {}
        self._by_image: dict[bytes, _Seen] = {}
        # The first split of each patient, and how it is spelt there.
        self._of_patient: dict[str, tuple[str, str]] = {}
        self._of_name: dict[str, tuple[str, str]] = {}
        self._leaked: set[str] = set()
        # The first split and spelling of what is read the same without zeros and marks.
        self._read_alike: dict[tuple[str, ...], tuple[str, str]] = {}
        self._first: list[Example] = []
        self._signatures: list[bytes | None] = []

    def look(self, row: ImageRow) -> Iterator[Problem]:
        for drawing in row.answers:
            yield from find_duplicates(drawing)
        this = _Seen(row.split, row.number, row.image_hash, hash(row.prompt))
        by_image = None if this.image is None else self._by_image.setdefault(this.image, this)
        by_id = None if row.id == "-" else self._by_id.setdefault(row.id, this)
        # One id for two images in two splits: ids are probably counters that restart with each split.
        if by_id is not None and by_id.split != row.split and None not in (by_id.image, this.image):
            by_id = None
        if by_image is this and row.pixels is not None:
            self._first.append(Example(row.split, row.number, row.id, ""))
            self._signatures.append(row.pixels.signature)
        is_leak = False
        for how, before in (("image", by_image), ("id", by_id)):
            if before is None or before is this:
                continue
            where = f"row {before.row} of {before.split} has the same {how}"
            if before.split != row.split:
                is_leak = True
                yield Problem("image-leak", where)
                break
            if before.prompt == this.prompt:
                yield Problem("repeated-image" if how == "image" else "repeated-id", where)
                break
        stated = [name for name, value in row.columns.items() if value is not None]
        if not self.met["patient-column"] and (column := patient_column(stated)) is not None:
            yield Problem("patient-column", f"column {column}")
        patient, known = row.patient_id, self._of_patient
        if patient is None:
            patient, known = patient_in_name(row.file), self._of_name
        if patient is None:
            return
        spelling = str(row.columns.get(patient_column(stated) or "patient_id") or row.file)
        split, other = known.setdefault(patient, (row.split, spelling))
        self.case.totals["patients"] = len(self._of_patient) + len(self._of_name)
        if split != row.split and not is_leak and patient not in self._leaked:
            self._leaked.add(patient)
            also = f"is also in {split}" + (f", as {other}" if other != spelling else "")
            if known is self._of_name:
                yield Problem("patient-name-leak", f"{spelling} is by its name of patient {patient}, who {also}")
            else:
                yield Problem("patient-leak", f"patient {spelling} {also}")
        alike = tuple(part.lstrip("0") for part in re.findall(r"[^\W\d_]+|\d+", patient))
        split, other = self._read_alike.setdefault(alike, (row.split, patient))
        if known is self._of_patient and split != row.split and other != patient and patient not in self._leaked:
            self._leaked.add(patient)
            yield Problem("patient-spelling", f"patient {spelling}, in {split} one is called {other}")

    def defects(self) -> Iterator[Defect]:
        for defect in super().defects():
            # Where many boxes have several labels, that is how the dataset is made.
            if defect.name != "shared-box" or defect.count <= _MOST_SHARED * defect.of:
                yield defect
        found: dict[str, dict[int, Example]] = {"image-copy": {}, "copy-leak": {}}
        several = len({one.split for one in self._first}) > 1
        mirrored = find_copies(self._signatures, mirrored=True) if several else ()
        for what, pairs in (("copy", find_copies(self._signatures)), ("mirrored copy", mirrored)):
            for first, later in pairs:
                before, example = self._first[first], self._first[later]
                where = f"a {what} of row {before.row} of {before.split} (id {before.id})"
                name = "image-copy" if before.split == example.split else "copy-leak"
                # In one split, a mirrored image is one more to learn from.
                if name == "copy-leak" or what == "copy":
                    found[name].setdefault(later, example._replace(detail=where))
        # An image that leaks is not listed as a mere copy too.
        for place in found["copy-leak"]:
            found["image-copy"].pop(place, None)
        for name, examples in found.items():
            if examples:
                yield CHECKS[name].defect(len(examples), self.case.totals["images"], examples=list(examples.values()))

    def unchecked(self) -> dict[str, str]:
        unchecked = dict.fromkeys(("image-copy", "copy-leak"), QUICK) if self.case.is_quick else {}
        if len(self.case.metrics.images) < 2:
            leaks = ("image-leak", "copy-leak", "patient-leak", "patient-name-leak")
            return unchecked | dict.fromkeys(leaks, "there is one split only")
        return unchecked | ({} if self._of_patient else {"patient-leak": "no column patient_id"})


def find_duplicates(drawing: Drawing) -> Iterator[Problem]:
    """Boxes that repeat an earlier one of the same label, exactly or almost.

    >>> image = Drawing("", [[0, 0, 50, 50], [0, 0, 50, 50], [0, 0, 50, 51]], ["mass", "mass", "cyst"])
    >>> list(find_duplicates(image))
    [Problem(name='duplicate-boxes', detail='boxes 0 and 1 are [0, 0, 50, 50]', drawing='')]
    """
    given = drawing.boxes
    sound = [index for index, box in enumerate(given) if box_defect(box, None) is None]
    if len(sound) < 2:
        return
    boxes = as_box_array([given[index] for index in sound])
    iou = np.triu(pairwise_iou(boxes, boxes), k=1)
    reported = set()
    for first, second in zip(*np.nonzero(iou > _NEAR_DUPLICATE), strict=True):
        a, b = sound[first], sound[second]
        if b in reported:
            continue
        if drawing.label(a) != drawing.label(b):
            if (boxes[first] == boxes[second]).all():
                both = f"{drawing.label(a)!r:.40} and {drawing.label(b)!r:.40}"
                yield Problem("shared-box", f"{drawing.prefix}{shown(given[a])} is {both}", drawing.name)
            continue
        reported.add(b)
        if (boxes[first] == boxes[second]).all():
            detail = f"{drawing.prefix}boxes {a} and {b} are {shown(given[a])}"
            yield Problem("duplicate-boxes", detail, drawing.name)
        else:
            both = f"IoU {iou[first, second]:.3f}: {shown(given[a])}, {shown(given[b])}"
            yield Problem("near-duplicate-boxes", f"{drawing.prefix}boxes {a} and {b}, {both}", drawing.name)

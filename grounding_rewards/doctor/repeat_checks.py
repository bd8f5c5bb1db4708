"""Checks for repeats: boxes on an image, images in a split, images and patients in several splits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from grounding_rewards.boxes import as_box_array
from grounding_rewards.data.copies import find_copies
from grounding_rewards.data.patients import patient_in_name
from grounding_rewards.doctor.box_checks import shown
from grounding_rewards.doctor.box_defects import box_defect
from grounding_rewards.doctor.case import QUICK, Case, Examiner
from grounding_rewards.doctor.defects import Check, Defect, Example, Problem
from grounding_rewards.doctor.raw_rows import Drawing, ImageRow
from grounding_rewards.overlap import pairwise_iou

# Boxes of one label with a larger IoU are taken for two drawings of one finding.
_NEAR_DUPLICATE = 0.95


class _Seen(NamedTuple):
    """What is kept of an image to recognise it: split and row, hashes of image and prompt."""

    split: str
    row: int
    image: bytes | None
    prompt: int


_COPY = Check(
    "image-copy",
    "The same image under another name",
    "Copies, encoded again or resized, count twice; if their boxes differ, the model is punished for either answer.",
    "Keep one of them, after a look at both.",
    severity="note",
    unit="images",
)
_COPY_LEAK = Check(
    "copy-leak",
    "Copies of an image in several splits",
    "The model has seen the image, and mostly its answer too: every metric on this split is too good.",
    "Take the copies out of the training split; `grounding-rewards prepare` keeps copies on one side.",
    unit="images",
)


class RepeatExaminer(Examiner):
    """Repeated boxes, images and patients."""

    checks = (
        Check(
            "duplicate-boxes",
            "The same box twice",
            "The right answer has to say the box as often as it is listed, and saying it once is punished.",
            "Keep one of each box and label on an image.",
            severity="warning",
        ),
        Check(
            "near-duplicate-boxes",
            "Almost the same box twice",
            f"Boxes of one label with an IoU above {_NEAR_DUPLICATE} are one finding drawn by several readers; the "
            "model would have to say it several times.",
            "Merge the readers before training: `grounding-rewards prepare … --readers consensus` (or majority, "
            "any-of).",
            follows=True,
            severity="warning",
        ),
        Check(
            "repeated-id",
            "The same id twice",
            "A row per box or per reader teaches that each box is all there is on the image, and punishes the others.",
            "Group the rows by image, so that one row has all boxes; give several questions about an image "
            "their own ids.",
            severity="warning",
            unit="images",
        ),
        Check(
            "repeated-image",
            "The same image twice",
            "The image counts twice, and if its boxes differ, the model is punished for either answer.",
            "Keep one row of each image and prompt, with all boxes; if the boxes differ, find out which are right.",
            severity="warning",
            unit="images",
        ),
        Check(
            "image-leak",
            "Images in several splits",
            "The model has seen the answers: every metric on this split is too good.",
            "Take these images out of the training split.",
            unit="images",
        ),
        _COPY,
        _COPY_LEAK,
        Check(
            "patient-leak",
            "Patients in several splits",
            "Images of one patient look alike, findings included: every metric on the held-out split is too good.",
            "Split by patient: `grounding-rewards prepare` does so wherever the source names patients.",
            unit="patients",
        ),
        Check(
            "patient-name-leak",
            "Patients in several splits, by the names of their files",
            "Names such as patient00003_study1.png tell the patient of rows without patient_id; such a leak is as bad.",
            "Add patient_id to the rows, and split by it; `grounding-rewards prepare` goes by such names too.",
            severity="warning",
            unit="patients",
        ),
    )

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._by_id: dict[str, _Seen] = {}
        self._by_image: dict[bytes, _Seen] = {}
        # The first split of each patient, and how it is spelt there.
        self._of_patient: dict[str, tuple[str, str]] = {}
        self._of_name: dict[str, tuple[str, str]] = {}
        self._leaked: set[str] = set()
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
        patient, known = row.patient_id, self._of_patient
        if patient is None:
            patient, known = patient_in_name(row.file), self._of_name
        if patient is None:
            return
        spelling = str(row.columns.get("patient_id") or row.file)
        split, other = known.setdefault(patient, (row.split, spelling))
        self.case.totals["patients"] = len(self._of_patient) + len(self._of_name)
        if split != row.split and not is_leak and patient not in self._leaked:
            self._leaked.add(patient)
            also = f"is also in {split}" + (f", as {other}" if other != spelling else "")
            if known is self._of_name:
                yield Problem("patient-name-leak", f"{spelling} is by its name of patient {patient}, who {also}")
            else:
                yield Problem("patient-leak", f"patient {spelling} {also}")

    def defects(self) -> Iterator[Defect]:
        yield from super().defects()
        found: dict[Check, dict[int, Example]] = {_COPY: {}, _COPY_LEAK: {}}
        for first, later in find_copies(self._signatures):
            before, example = self._first[first], self._first[later]
            check = _COPY if before.split == example.split else _COPY_LEAK
            where = f"a copy of row {before.row} of {before.split} (id {before.id})"
            found[check].setdefault(later, example._replace(detail=where))
        # An image that leaks is not listed as a mere copy too.
        copies = {place: one for place, one in found[_COPY].items() if place not in found[_COPY_LEAK]}
        for check, examples in ((_COPY, copies), (_COPY_LEAK, found[_COPY_LEAK])):
            if examples:
                yield check.defect(len(examples), self.case.totals["images"], examples=list(examples.values()))

    def unchecked(self) -> dict[str, str]:
        unchecked = dict.fromkeys((_COPY.name, _COPY_LEAK.name), QUICK) if self.case.is_quick else {}
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
        if b in reported or drawing.label(a) != drawing.label(b):
            continue
        reported.add(b)
        if (boxes[first] == boxes[second]).all():
            detail = f"{drawing.prefix}boxes {a} and {b} are {shown(given[a])}"
            yield Problem("duplicate-boxes", detail, drawing.name)
        else:
            both = f"IoU {iou[first, second]:.3f}: {shown(given[a])}, {shown(given[b])}"
            yield Problem("near-duplicate-boxes", f"{drawing.prefix}boxes {a} and {b}, {both}", drawing.name)

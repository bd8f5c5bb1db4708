"""Checks of boxes: single ones, and all boxes of a split or reader together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from grounding_rewards.boxes import is_box
from grounding_rewards.doctor.box_defects import BoxFit, OtherOrder, box_defect, is_placeholder
from grounding_rewards.doctor.case import Bucket, Case, Examiner, group
from grounding_rewards.doctor.defects import CHECKS, EXAMPLES, Check, Defect, Example, Problem, named
from grounding_rewards.doctor.raw_rows import IGNORED, Drawing, ImageRow

#: How boxes in parts of the image become pixels.
_TO_PIXELS = "boxes = [[x1 * width, y1 * height, x2 * width, y2 * height] for x1, y1, x2, y2 in boxes]"
# A region of at least this part of the image leaves nothing to be judged.
_WHOLE_IMAGE = 0.95
# One box on at least so many images, and so large a part of those with boxes; of boxes seen first, as many are counted.
_FEWEST_CONSTANT, _LEAST_CONSTANT, _MOST_DISTINCT = 10, 0.25, 2000
_FEWEST_TURNED = 10
# Boxes of this part of the image or more are giant; of so many sound boxes, half are too many.
_GIANT, _FEWEST_GIANT = 0.5, 10


class BoxExaminer(Examiner):
    """Defects of single boxes, and mistakes that all boxes of a split or reader share."""

    checks = named(
        *("shifted-rows", "box-order", "wrong-frame", "one-corner", "normalised-boxes", "negative-placeholder"),
        *("not-finite", "swapped-corners", "no-area", "off-image", "partly-off-image", "constant-box", "giant-boxes"),
        "ignored-image",
    )

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._any: dict[str, list[Example]] = {}
        self._giant, self._sound = Bucket(), 0
        self._normalised = BoxFit()
        # Images by box, in pixels and in thousandths of the image.
        self._images_of: tuple[Counter[tuple[float, ...]], Counter[tuple[float, ...]]] = (Counter(), Counter())

    def look(self, row: ImageRow) -> Iterator[Problem]:
        size = row.trusted_size
        image = "" if size is None else f" on {size[0]:g} x {size[1]:g}"
        for drawing in row.drawings:
            defects = [_defect(drawing, index, size) for index in range(len(drawing.boxes))]
            for index, (box, name) in enumerate(zip(drawing.boxes, defects, strict=True)):
                if name is not None:
                    on_image = image if name in ("off-image", "partly-off-image", "normalised-boxes") else ""
                    named = f", {drawing.label(index)!r:.40}" if name == "negative-placeholder" else ""
                    yield Problem(name, f"{drawing.prefix}box {index} is {shown(box)}{on_image}{named}", drawing.name)
            if size is not None and drawing.boxes:
                self._fit(row, drawing, defects, size)
                if drawing.name == row.answers[0].name:
                    sound = [box for box, name in zip(drawing.boxes, defects, strict=True) if not name]
                    self._count_image(sound, size)
                    self._sound += len(sound)
                    for box in sound:
                        if (box[2] - box[0]) * (box[3] - box[1]) >= _GIANT * size[0] * size[1]:
                            self._giant.add(self.case, row, f"{shown(box)}{image}")
        if size is not None:
            self.case.neighbours.add(row.answers[0].boxes, size)

    def defects(self) -> Iterator[Defect]:
        constant = list(self._constant())
        for check in self.checks:
            here = {groups: one for groups, one in self.case.diagnoses.items() if one.name == check.name}
            # A box that is everywhere the same lies in some corner.
            if not here or (check.name == "one-corner" and constant):
                continue
            found = " ".join(
                one.found if len(groups) == len(self.case.fits) else f"{' and '.join(groups)}: {one.found}"
                for groups, one in here.items()
            )
            examples = [
                _with_proposed(one, diagnosis.order)
                for groups, diagnosis in here.items()
                for name in groups
                for one in self._examples(name, check)
            ]
            count, of = sum(one.shown_by for one in here.values()), sum(one.of for one in here.values())
            fix = " ".join(dict.fromkeys(one.fix for one in here.values()))
            yield replace(check.defect(count, of, found, examples), fix=fix)
        for defect in super().defects():
            found, fix = self._details(defect.name)
            yield replace(defect, found=found or defect.found, fix=fix or defect.fix)
        yield from constant
        if not constant and self._giant.count > max(_FEWEST_GIANT, self._sound / 2):
            yield CHECKS["giant-boxes"].defect(self._giant.count, self._sound, examples=self._giant.examples)

    def _details(self, name: str) -> tuple[str, str]:
        """What all boxes with a defect show together, and what to do then; both may be empty."""
        if name == "normalised-boxes" and (order := self._normalised.other_order()):
            return order.found, f"{order.fix} Then to pixels: {_TO_PIXELS}."
        fit = sum(self.case.fits.values(), BoxFit())
        if name == "swapped-corners" and fit.turned == fit.turned_y >= _FEWEST_TURNED:
            found = f"In all {fit.turned} only y2 < y1: do their y count from the lower edge?"
            fix = (
                "Look at some of them. If y counts from the lower edge: boxes = [[x1, height - y1, x2, height - y2] "
                "for x1, "
                "y1, x2, y2 in boxes]; if the corners are only given in another order, take min and max of y1 and y2."
            )
            return found, fix
        return "", ""

    def _constant(self) -> Iterator[Defect]:
        images = sum(self.case.metrics.with_boxes.values())
        for images_of, unit in zip(self._images_of, ("pixels", "parts of the image"), strict=True):
            box, count = max(images_of.items(), key=lambda one: one[1], default=((), 0))
            if count >= max(_FEWEST_CONSTANT, _LEAST_CONSTANT * images):
                yield CHECKS["constant-box"].defect(
                    count, images, f"{shown(list(box))} in {unit} on {count} of {images} images with boxes."
                )
                return

    def _count_image(self, boxes: Sequence[Sequence[float]], size: tuple[float, float]) -> None:
        """Count an image for each of its sound boxes."""
        sides = (*size, *size)
        pixels = {tuple(box) for box in boxes}
        parts = {tuple(round(value / side, 3) for value, side in zip(box, sides, strict=True)) for box in boxes}
        for images_of, distinct in zip(self._images_of, (pixels, parts), strict=True):
            for box in distinct:
                if box in images_of or len(images_of) < _MOST_DISTINCT:
                    images_of[box] += 1

    def _fit(self, row: ImageRow, drawing: Drawing, defects: Sequence[str | None], size: tuple[float, float]) -> None:
        if "normalised-boxes" in defects:
            parts = [drawing.boxes[k] for k, one in enumerate(defects) if one == "normalised-boxes"]
            self._normalised.add(parts, (1, 1))
        plain = [k for k, one in enumerate(defects) if one not in ("normalised-boxes", "negative-placeholder")]
        if not plain:
            return
        name, boxes = group(row, drawing.name), [drawing.boxes[k] for k in plain]
        labels = [drawing.label(k) for k in plain]
        self.case.fits.setdefault(name, BoxFit()).add(boxes, size, row.resized_size, labels)
        examples = self._any.setdefault(name, [])
        if len(examples) < EXAMPLES or self.case.lists_rows:
            detail = f"{drawing.prefix}box {plain[0]} is {shown(boxes[0])} on {size[0]:g} x {size[1]:g}"
            self.case.keep(examples, row, detail)

    def _examples(self, name: str, check: Check) -> list[Example]:
        """Examples of a mistake that a group shares: boxes that are bad because of it, else any boxes of the group."""
        symptoms = ("swapped-corners",) if check.name == "box-order" else ()
        met = [
            example
            for symptom in (*symptoms, "off-image", "partly-off-image")
            if name in self.met[symptom]
            for example in self.met[symptom][name].examples
        ]
        return met or self._any.get(name, [])


def _with_proposed(example: Example, order: OtherOrder | None) -> Example:
    """The example with its boxes as they would be if they were given in this order."""
    if order is None or example.image is None:
        return example
    given = np.array([box for box in example.image.boxes if is_box(box)], dtype=np.float64).reshape(-1, 4)
    return example._replace(image=example.image._replace(proposed=order.to_xyxy(given).tolist()))


def _defect(drawing: Drawing, index: int, size: tuple[float, float] | None) -> str | None:
    """The first thing that is wrong with a box of a drawing, or None."""
    box = drawing.boxes[index]
    if drawing.name == IGNORED:
        if (defect := box_defect(box, size)) or size is None:
            return defect
        covered = (box[2] - box[0]) * (box[3] - box[1]) / (size[0] * size[1])
        return "ignored-image" if covered >= _WHOLE_IMAGE else None
    return "negative-placeholder" if is_placeholder(box, drawing.label(index)) else box_defect(box, size)


def shown(box: Any) -> str:
    """A box in short; anything else as its repr, cut off.

    >>> shown([1, 2.0, 3.25, 4]), shown("none")
    ('[1, 2, 3.25, 4]', "'none'")
    """
    if isinstance(box, list | tuple) and len(box) == 4 and all(isinstance(value, int | float) for value in box):
        return f"[{', '.join(f'{value:.6g}' for value in box)}]"
    return f"{box!r:.60}"

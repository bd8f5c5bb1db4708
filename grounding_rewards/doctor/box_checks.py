"""Checks of boxes: single ones, and all boxes of a split or reader together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from grounding_rewards.doctor.box_defects import BoxFit, box_defect
from grounding_rewards.doctor.case import Case, Examiner, group
from grounding_rewards.doctor.defects import EXAMPLES, Check, Defect, Example, Problem
from grounding_rewards.doctor.raw_rows import Drawing, FilmRow


class BoxExaminer(Examiner):
    """Defects of single boxes, and mistakes that all boxes of a split or reader share."""

    checks = (
        Check(
            "box-order",
            "Boxes in another order than x1, y1, x2, y2",
            "Every reward compares with the wrong place; the model is taught to miss.",
        ),
        Check(
            "wrong-frame",
            "Boxes drawn on another size than the film's",
            "All boxes lie in one corner of the film, or off it; the model is taught to miss.",
        ),
        Check(
            "one-corner",
            "All boxes in one corner of the film",
            "Boxes that were drawn on a smaller copy look like this, and findings of one kind may.",
        ),
        Check(
            "normalised-boxes",
            "Boxes in parts of the film instead of pixels",
            "Taken for pixels, such a box is smaller than the film's first pixel, and no prediction can match it.",
            "Multiply x by width and y by height: boxes are pixels of the original image, whatever the model writes.",
        ),
        Check(
            "not-finite",
            "Boxes that are not four finite numbers",
            "Such a box matches nothing, and counts as missed in every reward.",
            "Drop these boxes, or restore the missing coordinates from the source; if a film loses its only box, "
            "decide whether it is a negative film.",
        ),
        Check(
            "swapped-corners",
            "Boxes with x2 < x1 or y2 < y1",
            "Such a box has no area and matches nothing.",
            "Sort the corners: [min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)], after a look at some of them.",
            follows=True,
        ),
        Check(
            "no-area",
            "Boxes without area",
            "A point or a line matches nothing, and counts as missed in every reward.",
            "Drop these boxes; if points are meant, give them the size of the finding.",
            follows=True,
        ),
        Check(
            "off-film",
            "Boxes wholly outside the film",
            "Nothing can be seen there, and most formats can't say it.",
            "Check that the box belongs to this film and that width and height are the film's; else drop it.",
            follows=True,
        ),
        Check(
            "partly-off-film",
            "Boxes that reach over the edge of the film",
            "Most formats can't say coordinates outside the film, so that the right answer never earns the full "
            "reward.",
            "Clip: min(max(x, 0), width) and min(max(y, 0), height). If many reach far over, width and height are "
            "wrong.",
            follows=True,
        ),
    )

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._any: dict[str, list[Example]] = {}

    def look(self, row: FilmRow) -> Iterator[Problem]:
        size = row.trusted_size
        film = "" if size is None else f" on {size[0]:g} x {size[1]:g}"
        for drawing in row.drawings:
            for index, box in enumerate(drawing.boxes):
                if name := box_defect(box, size):
                    on_film = film if name in ("off-film", "partly-off-film", "normalised-boxes") else ""
                    yield Problem(name, f"{drawing.prefix}box {index} is {shown(box)}{on_film}", drawing.name)
            if size is not None:
                self._fit(row, drawing, size)

    def defects(self) -> Iterator[Defect]:
        for check in self.checks:
            here = {groups: one for groups, one in self.case.diagnoses.items() if one.name == check.name}
            if not here:
                continue
            found = " ".join(
                one.found if len(groups) == len(self.case.fits) else f"{' and '.join(groups)}: {one.found}"
                for groups, one in here.items()
            )
            examples = [one for groups in here for name in groups for one in self._examples(name, check)]
            count, of = sum(one.shown_by for one in here.values()), sum(one.of for one in here.values())
            is_doubtful = check.name == "one-corner" and not any(one.certain for one in here.values())
            yield replace(
                check.defect(count, of, found, examples),
                fix=" ".join(dict.fromkeys(one.fix for one in here.values())),
                severity="warning" if is_doubtful else check.severity,
            )
        yield from super().defects()

    def _fit(self, row: FilmRow, drawing: Drawing, size: tuple[float, float]) -> None:
        plain = [k for k, box in enumerate(drawing.boxes) if box_defect(box, size) != "normalised-boxes"]
        if not plain:
            return
        name, boxes = group(row, drawing.name), [drawing.boxes[k] for k in plain]
        labels = [drawing.label(k) for k in plain]
        self.case.fits.setdefault(name, BoxFit()).add(boxes, size, row.resized_size, labels)
        if len(self._any.setdefault(name, [])) < EXAMPLES:
            detail = f"{drawing.prefix}box {plain[0]} is {shown(boxes[0])} on {size[0]:g} x {size[1]:g}"
            self._any[name].append(self.case.example(row, detail))

    def _examples(self, name: str, check: Check) -> list[Example]:
        """Examples of a mistake that a group shares: boxes that are bad because of it, else any boxes of the group."""
        symptoms = ("swapped-corners",) if check.name == "box-order" else ()
        met = [
            example
            for symptom in (*symptoms, "off-film", "partly-off-film")
            if name in self.met[symptom]
            for example in self.met[symptom][name].examples
        ]
        return met or self._any.get(name, [])


def shown(box: Any) -> str:
    """A box in short; anything else as its repr, cut off.

    >>> shown([1, 2.0, 3.25, 4]), shown("none")
    ('[1, 2, 3.25, 4]', "'none'")
    """
    if isinstance(box, list | tuple) and len(box) == 4 and all(isinstance(value, int | float) for value in box):
        return f"[{', '.join(f'{value:.6g}' for value in box)}]"
    return f"{box!r:.60}"

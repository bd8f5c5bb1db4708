"""Checks for the boxes of several readers that stand in one row as if they were one person's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from grounding_rewards.boxes import as_box_array
from grounding_rewards.doctor.box_defects import box_defect
from grounding_rewards.doctor.case import Bucket, Case, Examiner, group
from grounding_rewards.doctor.defects import CHECKS, Defect, Problem, named
from grounding_rewards.doctor.raw_rows import Drawing, ImageRow
from grounding_rewards.overlap import pairwise_iou

# Two people who draw one finding agree so far; a higher IoU is a near duplicate.
_LEAST_OVERLAP, _MOST_OVERLAP = 0.3, 0.95
# Of the images with several boxes of one label, where one person draws them hardly any two overlap so far: 2 of 1,006
# images of VinDr-CXR by one reader each, 4,290 of 4,365 with the boxes of all three together.
_LEAST_SHARE, _FEWEST_IMAGES = 0.3, 5


class ReaderExaminer(Examiner):
    """Images on which boxes of one label overlap, over many images."""

    checks = named("unmerged-readers")

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._repeated: Counter[str] = Counter()
        self._overlapping: dict[str, Bucket] = {}

    def look(self, row: ImageRow) -> Iterator[Problem]:
        for drawing in row.answers:
            overlaps = label_overlaps(drawing)
            if overlaps is None:
                continue
            name = group(row, drawing.name)
            self._repeated[name] += 1
            if overlaps:
                first, second, iou = overlaps[0]
                detail = (
                    f"{drawing.prefix}boxes {first} and {second} are {drawing.label(first)!r:.60} with IoU {iou:.2f}"
                )
                self._overlapping.setdefault(name, Bucket()).add(self.case, row, detail)
        yield from ()

    def defects(self) -> Iterator[Defect]:
        for name, bucket in self._overlapping.items():
            if bucket.count >= max(_FEWEST_IMAGES, _LEAST_SHARE * self._repeated[name]):
                self.case.unmerged.add(name)
        if self.case.unmerged:
            here = [self._overlapping[name] for name in self._overlapping if name in self.case.unmerged]
            count, of = sum(one.count for one in here), sum(self._repeated[name] for name in self.case.unmerged)
            found = (
                f"On {count} of the {of} images with several boxes of one label, two of them overlap with an IoU of "
                f"{_LEAST_OVERLAP} to {_MOST_OVERLAP}."
            )
            examples = [example for bucket in here for example in bucket.examples]
            yield CHECKS["unmerged-readers"].defect(count, self.case.totals["images"], found, examples)


def label_overlaps(drawing: Drawing) -> list[tuple[int, int, float]] | None:
    """Pairs of boxes of one label that overlap as two readers' boxes of one finding do; None without such a label.

    >>> label_overlaps(Drawing("", [[0, 0, 50, 50], [0, 0, 50, 40]], ["mass", "mass"]))
    [(0, 1, 0.8)]
    >>> label_overlaps(Drawing("", [[0, 0, 50, 50], [0, 0, 50, 40]], ["mass", "cyst"])) is None
    True
    """
    places: dict[str, list[int]] = {}
    for index, box in enumerate(drawing.boxes):
        label = drawing.label(index)
        if isinstance(label, str) and box_defect(box, None) is None:
            places.setdefault(label, []).append(index)
    repeated = [indices for indices in places.values() if len(indices) > 1]
    if not repeated:
        return None
    pairs = []
    for indices in repeated:
        boxes = as_box_array([drawing.boxes[index] for index in indices])
        iou = np.triu(pairwise_iou(boxes, boxes), k=1)
        for first, second in np.argwhere((iou >= _LEAST_OVERLAP) & (iou <= _MOST_OVERLAP)):
            pairs.append((indices[first], indices[second], float(iou[first, second])))
    return pairs

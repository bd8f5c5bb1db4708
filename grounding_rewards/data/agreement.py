"""How well the readers of a dataset agree with each other: the human ceiling of a model that learns from them.

Definitions:

* A pair is two readers of one image. An image with three readers has three pairs; one with a single reader has none.
* F1@τ = 2·hits / (boxes of one + boxes of the other). Hits are pairs of boxes of one label with IoU ≥ τ, one to one, as
  many as there can be, as in an evaluation. Both sums run over all pairs of readers, and for all labels together also
  over the labels. So a box counts as missed against a reader who drew nothing, and two readers who both drew nothing
  add nothing.
* The mean IoU is over the boxes of one label that are paired so that the total IoU is greatest and overlap at all.
* A finding is a label on an image, drawn by at least one reader; the shares say by how many.
* The 95 % intervals are those of an evaluation, over images (:mod:`grounding_rewards.metrics.intervals`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.common.numeric import Array
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.merging import check_readers, image_readers
from grounding_rewards.matching import hungarian_match, most_hits_match
from grounding_rewards.metrics.estimates import Estimate, finite_or_none
from grounding_rewards.metrics.intervals import jackknifed_ratio
from grounding_rewards.overlap import pairwise_iou

IOU_THRESHOLDS = (0.4, 0.5)


class LabelAgreement(NamedTuple):
    """How well readers agree about one label, or about all.

    label: None for all together.
    findings: images on which at least one reader drew the label; for all together the sum over labels.
    drawn_by: of these findings, how many were drawn by one reader, by two, and so on.
    f1: F1 by IoU threshold.
    mean_iou: over assigned pairs of boxes that overlap.
    """

    label: str | None
    findings: int
    drawn_by: tuple[int, ...]
    f1: dict[float, Estimate]
    mean_iou: Estimate


class Agreement(NamedTuple):
    """How well the readers of a dataset agree.

    images: images that at least two people read; the others are in `single`.
    single: images that one person read, or whose readers the dataset does not name.
    pairs: pairs of readers of one image.
    overall: all labels together.
    labels: each label, the one with most findings first.
    """

    images: int
    single: int
    pairs: int
    overall: LabelAgreement
    labels: tuple[LabelAgreement, ...]

    def to_dict(self) -> dict[str, Any]:
        """The metrics as plain lists and mappings; None where there is nothing to measure."""
        return {
            "images": self.images,
            "images_with_one_reader": self.single,
            "pairs": self.pairs,
            "overall": _as_json(self.overall),
            "labels": [_as_json(one) for one in self.labels],
        }

    def to_dataframe(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each label; that of all labels has none."""
        import pandas

        rows = [
            {"label": one.label, "findings": one.findings, "mean_iou": one.mean_iou.value}
            | {f"f1_{threshold:g}": f1.value for threshold, f1 in one.f1.items()}
            for one in (self.overall, *self.labels)
        ]
        return pandas.DataFrame(rows)


def measure_agreement(
    images: Iterable[AnnotatedImage],
    *,
    iou_thresholds: Sequence[float] = IOU_THRESHOLDS,
) -> Agreement:
    """Compare every pair of readers of every image; the top of this module has the definitions.

    Args:
        images: with `readers` and `read_by`, of which only counts are kept. Where `read_by` is empty, only
            those who drew are known, and a reader who drew nothing is not counted.
        iou_thresholds: τ, each in (0, 1].

    Raises:
        ValueError: no image has two readers, a threshold is out of range, or `readers` does not fit the boxes.

    Example:
        >>> image = AnnotatedImage(
        ...     "1", "1.png", [[0, 0, 10, 10], [0, 0, 10, 8], [50, 50, 60, 60]], ["mass", "mass", "effusion"],
        ...     readers=("R1", "R2", "R2"), read_by=("R1", "R2", "R3"),
        ... )
        >>> found = measure_agreement([image])
        >>> round(found.overall.f1[0.5].value, 3), found.overall.mean_iou.value, found.overall.drawn_by
        (0.333, 0.8, (1, 1, 0))
    """
    for value in iou_thresholds:
        if not isinstance(value, Real) or not 0 < value <= 1:
            raise ValueError(f"Expected numbers in (0, 1] for `iou_thresholds`, got {value!r}. Usual are 0.4 and 0.5.")
    thresholds = tuple(dict.fromkeys(map(float, iou_thresholds)))
    count = single = pairs = most = 0
    numbers: dict[str, list[int]] = defaultdict(list)
    sums: dict[str, list[Array]] = defaultdict(list)
    drawn_by: dict[str, Counter[int]] = defaultdict(Counter)
    for image in images:
        readers = image_readers(image)
        if len(readers) < 2:
            single += 1
            continue
        most = max(most, len(readers))
        pairs += len(readers) * (len(readers) - 1) // 2
        check_readers(image)
        # For every label that somebody drew, the boxes of every reader.
        by_label: dict[str, list[list[list[float]]]] = {}
        for box, label, reader in zip(image.boxes, image.labels, image.readers, strict=True):
            by_label.setdefault(label, [[] for _ in readers])[readers.index(reader)].append(box)
        for label, sets in by_label.items():
            numbers[label].append(count)
            sums[label].append(np.sum([_pair_sums(*two, thresholds) for two in combinations(sets, 2)], axis=0))
            drawn_by[label][sum(bool(one) for one in sets)] += 1
        count += 1
    if not count:
        raise ValueError(
            f"Expected images that at least two people read for `images`, got {single} with one reader or none. "
            "Agreement can be measured only where several readers' boxes are kept apart."
        )
    order = sorted(numbers, key=lambda label: (-len(numbers[label]), label))
    # All labels together come first.
    table = np.zeros((count, 1 + len(order), 3 + len(thresholds)))
    for k, label in enumerate(order, 1):
        table[numbers[label], k] = sums[label]
    table[:, 0] = table[:, 1:].sum(axis=1)
    found = []
    for k, which in enumerate([None, *order]):
        counter = sum(drawn_by.values(), Counter[int]()) if which is None else drawn_by[which]
        drawn, ious, overlapping, *hits = table[:, k].T
        mean_iou, *f1 = (
            jackknifed_ratio(np.column_stack(sums)).estimate
            for sums in ((ious, overlapping), *((2 * hit, drawn) for hit in hits))
        )
        found.append(
            LabelAgreement(
                which,
                counter.total(),
                tuple(counter[number] for number in range(1, most + 1)),
                dict(zip(thresholds, f1, strict=True)),
                mean_iou,
            )
        )
    return Agreement(count, single, pairs, found[0], tuple(found[1:]))


def _pair_sums(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]], thresholds: Sequence[float]) -> Array:
    """Boxes of both, Σ IoU of the assigned pairs that overlap, their number, and the hits at every threshold."""
    overlaps, hits = [], [0] * len(thresholds)
    if one and other:
        iou = pairwise_iou(one, other)
        overlaps = [float(iou[pair]) for pair in hungarian_match(iou, 0.0)]
        hits = [len(most_hits_match(iou, threshold)) for threshold in thresholds]
    return np.array([len(one) + len(other), sum(overlaps), len(overlaps), *hits], dtype=np.float64)


def _as_json(row: LabelAgreement) -> dict[str, Any]:
    return {
        "label": row.label,
        "findings": row.findings,
        "drawn_by": list(row.drawn_by),
        "f1": {f"{threshold:g}": list(map(finite_or_none, estimate)) for threshold, estimate in row.f1.items()},
        "mean_iou": list(map(finite_or_none, row.mean_iou)),
    }

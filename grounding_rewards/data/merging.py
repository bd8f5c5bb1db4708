"""Merge several readers' boxes on one image into one reference.

Conventions, the same for all policies:

* Boxes are compared within one label and one phrase only. Bring the labels to one spelling first.
* Two boxes agree from the IoU threshold up (``>=``), but boxes that do not overlap never agree.
* The order of the readers and of their boxes changes only the order of what is kept.
* An image that one person read is taken as it is under every policy. Where fewer people read an image than must agree,
all
  of them must.
* Who read the image is `read_by`, those who drew nothing included; where the dataset doesn't say, those who drew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from math import fsum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import as_box_array
from grounding_rewards.common.arithmetic import Array
from grounding_rewards.common.legal import SHARE, check_number, check_word
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.matching import most_hits_match
from grounding_rewards.overlap import pairwise_iou


class Reference(NamedTuple):
    """What a model's answer on an image is compared with.

    boxes: xyxy in pixels of the original image.
    labels, phrases: one per box; phrases are empty where the image has none.
    ignore_boxes: regions in which a prediction is neither hit nor false positive.
    reader_boxes, reader_labels: under `any-of` one list per reader, in the order of :func:`image_readers`; empty
        otherwise.
    """

    boxes: list[list[float]]
    labels: list[str]
    phrases: list[str]
    ignore_boxes: list[list[float]]
    reader_boxes: list[list[list[float]]]
    reader_labels: list[list[str]]


class _Drawn(NamedTuple):
    box: list[float]
    label: str
    phrase: str | None

    @property
    def kind(self) -> tuple[str, str | None]:
        """Boxes are compared only if they have this in common."""
        return self.label, self.phrase


def reference_boxes(
    record: AnnotatedImage, policy: str, *, iou_threshold: float = 0.5, min_readers: int | None = None
) -> Reference:
    """Turn what several readers drew on an image into one reference.

    ========== ========================================================================================================
    policy     reference
    ========== ========================================================================================================
    union      every box of every reader.
    majority   of each group of boxes on which at least `min_readers` readers agree, the drawn box that overlaps best,
               on average, with the boxes of the others; see :func:`agreed_boxes`.
    consensus  weighted box fusion: each group of boxes becomes its mean; see :func:`fused_boxes`.
    any-of     the set of each reader, of which a reward takes the best. `boxes` is the set of the reader who agrees
               best with the others, by F1 at the threshold, so that a single answer can be written.
    ignore     as `majority`; the boxes with which too few others agree become `ignore_boxes`.
    ========== ========================================================================================================

    Args:
        record: an image; `readers` says who drew each box.
        policy: a key of :data:`POLICIES`.
        iou_threshold: τ, in [0, 1], from which two boxes agree.
        min_readers: how many readers must agree, the one who drew the box included; by default 2 for `majority` and
            `ignore`, and 1, which keeps all, for `consensus`. The other policies have no use for it.

    Returns:
        A :class:`Reference`. `ignore_boxes` begins with the image's own.

    Raises:
        ValueError: the policy is unknown, τ or the number is out of range, or `labels`, `phrases` or `readers` don't
            fit the boxes.

    Example:
        >>> image = AnnotatedImage(
        ...     "1", "1.png", [[0, 0, 10, 10], [0, 0, 10, 8], [50, 50, 60, 60]], ["mass"] * 3,
        ...     readers=("R1", "R2", "R2"), read_by=("R1", "R2", "R3"),
        ... )
        >>> reference_boxes(image, "majority").boxes
        [[0.0, 0.0, 10.0, 8.0]]
        >>> reference_boxes(image, "consensus", min_readers=2).boxes
        [[0.0, 0.0, 10.0, 9.0]]
        >>> reference_boxes(image, "ignore").ignore_boxes
        [[50.0, 50.0, 60.0, 60.0]]
        >>> reference_boxes(image, "any-of").reader_boxes
        [[[0.0, 0.0, 10.0, 10.0]], [[0.0, 0.0, 10.0, 8.0], [50.0, 50.0, 60.0, 60.0]], []]
    """
    check_word("policy", policy, POLICIES)
    check_number("iou_threshold", iou_threshold, SHARE, "The usual value is 0.5.")
    if min_readers is not None and (not isinstance(min_readers, int) or min_readers < 1):
        raise ValueError(
            f"Expected a whole number from 1 up for `min_readers`, got {min_readers!r}. Two of three readers are usual."
        )
    check_readers(record)
    return POLICIES[policy](record, float(iou_threshold), min_readers)


def image_readers(record: AnnotatedImage) -> list[str]:
    """Who read the image: `read_by`, or where the dataset doesn't say those who drew a box.

    Example:
        >>> image_readers(AnnotatedImage("1", "1.png", [[0, 0, 9, 9]], ["mass"], readers=("R2",), read_by=("R1", "R2")))
        ['R1', 'R2']
    """
    return list(record.read_by) or sorted(set(record.readers))


def check_readers(record: AnnotatedImage) -> None:
    """Refuse an image on which labels, phrases or readers do not fit the boxes.

    Raises:
        ValueError: they are not as many as the boxes, or `read_by` lacks somebody who drew a box.

    Example:
        >>> check_readers(AnnotatedImage("1", "1.png", [[0, 0, 9, 9]], ["mass"], readers=("R1",), read_by=("R1", "R2")))
    """
    n = len(record.boxes)
    for name in ("labels", "phrases", "readers"):
        given = getattr(record, name)
        if len(given) != n and (given or name == "labels"):
            raise ValueError(
                f"Expected one of `{name}` per box on image {record.id}, got {len(given)} for {n} boxes. "
                "Give one for each box, in their order."
            )
    if n and len(record.read_by) > 1 and not record.readers:
        raise ValueError(
            f"Expected who drew each box in `readers` on image {record.id}, got none although {len(record.read_by)} "
            "people read it. Name one of them for each box."
        )
    unknown = sorted(set(record.readers) - set(record.read_by)) if record.read_by else []
    if unknown:
        raise ValueError(
            f"Expected `read_by` to name everybody who drew on image {record.id}, got a box of {unknown[0]!r}. "
            f"Add them."
        )


def agreed_boxes(
    boxes: Array, readers: NDArray[np.int64], *, min_readers: int = 2, iou_threshold: float = 0.5
) -> tuple[list[int], list[int]]:
    """Boxes of one label on which several readers agree.

    Of all boxes, the one on which most readers agree is kept; among equals the one with the greatest mean IoU with
    the closest box of each of these readers, and then the first by its coordinates. It takes these closest boxes
    with it, one per reader, and the rest is treated in the same way until no box has `min_readers` readers. So the
    agreed box is one that a radiologist drew, and no box speaks for two findings.

    Args:
        boxes: ``(n, 4)`` xyxy.
        readers: ``(n,)``: who drew each box.
        min_readers: readers who must agree, the one who drew the box included.
        iou_threshold: τ, in [0, 1].

    Returns:
        The indices of the kept boxes, and those of the boxes that were neither kept nor taken along.

    Example:
        >>> boxes = np.array([[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 6], [50, 50, 60, 60]], dtype=float)
        >>> agreed_boxes(boxes, np.array([0, 1, 2, 2]))
        ([1], [3])
    """
    iou = pairwise_iou(boxes, boxes)
    agrees = (iou >= iou_threshold) & (iou > 0)
    free = list(range(len(boxes)))
    kept = []
    while free:
        candidates = []
        for i in free:
            companions = _closest_of_others(i, free, iou, agrees, readers, boxes)
            # An exact sum, so that the order of the boxes cannot change its last bit.
            overlap = fsum(iou[i, companions])
            candidates.append((-len(companions), -overlap, tuple(boxes[i]), readers[i], i, companions))
        number, *_, best, companions = min(candidates)
        if 1 - number < min_readers:
            break
        kept.append(best)
        free = [i for i in free if i != best and i not in companions]
    return kept, free


def fused_boxes(
    boxes: Array, readers: NDArray[np.int64], *, min_readers: int = 1, iou_threshold: float = 0.5
) -> list[list[float]]:
    """Weighted box fusion of boxes of one label, all with the same confidence.

    The boxes are taken one by one; each joins the group whose mean box it overlaps most, if that IoU reaches the
    threshold, else it starts a group. The result is the mean box of each group. The published algorithm takes boxes by
    confidence; as readers state none, the box with the greatest sum of IoUs with all others comes first, ties by
    coordinates, so that the order of the readers decides nothing. The published algorithm requires an IoU above the
    threshold; here, as everywhere in this package, reaching it is enough.

    Args:
        boxes: ``(n, 4)`` xyxy.
        readers: ``(n,)``: who drew each box.
        min_readers: groups with boxes of fewer readers are dropped.
        iou_threshold: τ, in [0, 1]. Solovyev et al. use 0.55 for detectors; 0.1 is in use for radiologists.

    Returns:
        The mean boxes, in the order in which their groups were started.

    Example:
        >>> fused_boxes(np.array([[0.0, 0, 10, 10], [0, 0, 10, 8]]), np.array([0, 1]))
        [[0.0, 0.0, 10.0, 9.0]]

    Source: Solovyev, Wang and Gabruseva, Weighted boxes fusion, Image and Vision Computing 107, 2021, §2.
    """
    # Exact sums, so that the order of the boxes cannot change their last bits.
    popularity = [fsum(row) for row in pairwise_iou(boxes, boxes)]
    order = sorted(range(len(boxes)), key=lambda i: (-popularity[i], tuple(boxes[i])))
    groups: list[list[int]] = []
    means: list[Array] = []
    for i in order:
        iou = pairwise_iou(boxes[i : i + 1], np.array(means).reshape(-1, 4))[0]
        best = int(iou.argmax()) if len(means) else -1
        if best >= 0 and iou[best] >= iou_threshold and iou[best] > 0:
            groups[best].append(i)
            means[best] = boxes[groups[best]].mean(axis=0)
        else:
            groups.append([i])
            means.append(boxes[i])
    return [mean.tolist() for mean, group in zip(means, groups, strict=True) if len(set(readers[group])) >= min_readers]


def _closest_of_others(
    i: int, free: list[int], iou: Array, agrees: NDArray[np.bool_], readers: NDArray[np.int64], boxes: Array
) -> list[int]:
    """For every other reader who agrees with box i, the free box of theirs that overlaps it most."""
    closest: dict[int, tuple[float, tuple[float, ...], int]] = {}
    for j in free:
        if readers[j] != readers[i] and agrees[i, j]:
            candidate = (-iou[i, j], tuple(boxes[j]), j)
            closest[readers[j]] = min(candidate, closest.get(readers[j], candidate))
    return [j for _, _, j in closest.values()]


def _union(record: AnnotatedImage, iou_threshold: float, min_readers: int | None) -> Reference:
    return _reference(record, _rows(record))


def _majority(record: AnnotatedImage, iou_threshold: float, min_readers: int | None) -> Reference:
    return _ignore(record, iou_threshold, min_readers)._replace(ignore_boxes=_own_ignored(record))


def _ignore(record: AnnotatedImage, iou_threshold: float, min_readers: int | None) -> Reference:
    n = len(image_readers(record))
    if n <= 1:
        return _reference(record, _rows(record))
    needed = min(n, 2 if min_readers is None else min_readers)
    chosen: list[_Drawn] = []
    doubtful = _own_ignored(record)
    for (label, phrase), boxes, readers in _by_kind(record):
        kept, rest = agreed_boxes(boxes, readers, min_readers=needed, iou_threshold=iou_threshold)
        chosen += [_Drawn(boxes[i].tolist(), label, phrase) for i in kept]
        doubtful += [boxes[i].tolist() for i in rest]
    return _reference(record, chosen)._replace(ignore_boxes=doubtful)


def _consensus(record: AnnotatedImage, iou_threshold: float, min_readers: int | None) -> Reference:
    n = len(image_readers(record))
    if n <= 1:
        return _reference(record, _rows(record))
    needed = min(n, 1 if min_readers is None else min_readers)
    chosen = [
        _Drawn(box, label, phrase)
        for (label, phrase), boxes, readers in _by_kind(record)
        for box in fused_boxes(boxes, readers, min_readers=needed, iou_threshold=iou_threshold)
    ]
    return _reference(record, chosen)


def _any_of(record: AnnotatedImage, iou_threshold: float, min_readers: int | None) -> Reference:
    names, rows = image_readers(record), _rows(record)
    if len(names) <= 1:
        sets, best = [rows], 0
    else:
        sets = [[row for row, reader in zip(rows, record.readers, strict=True) if reader == name] for name in names]
        agreement = [_mean_f1(one, sets[:i] + sets[i + 1 :], iou_threshold) for i, one in enumerate(sets)]
        # Ties go to the first reader by name, so that the order of the readers decides nothing.
        best = min(range(len(names)), key=lambda i: (-agreement[i], names[i]))
    return _reference(record, sets[best])._replace(
        reader_boxes=[[row.box for row in one] for one in sets],
        reader_labels=[[row.label for row in one] for one in sets],
    )


POLICIES: dict[str, Callable[[AnnotatedImage, float, int | None], Reference]] = {
    "union": _union,
    "majority": _majority,
    "consensus": _consensus,
    "any-of": _any_of,
    "ignore": _ignore,
}


def _mean_f1(one: list[_Drawn], others: list[list[_Drawn]], iou_threshold: float) -> float:
    """Mean F1 of one reader's boxes with those of each other; 1 where both drew nothing."""
    scores = []
    for other in others:
        hits = 0
        for kind in {row.kind for row in one} & {row.kind for row in other}:
            first, second = ([row.box for row in rows if row.kind == kind] for rows in (one, other))
            hits += len(most_hits_match(pairwise_iou(first, second), iou_threshold))
        total = len(one) + len(other)
        scores.append(2 * hits / total if total else 1.0)
    return fsum(scores) / len(scores)


def _rows(record: AnnotatedImage) -> list[_Drawn]:
    phrases: Iterable[str | None] = record.phrases or [None] * len(record.boxes)
    return [
        _Drawn([float(value) for value in box], label, phrase)
        for box, label, phrase in zip(record.boxes, record.labels, phrases, strict=True)
    ]


def _reference(record: AnnotatedImage, rows: list[_Drawn]) -> Reference:
    return Reference(
        boxes=[row.box for row in rows],
        labels=[row.label for row in rows],
        phrases=[row.phrase for row in rows if row.phrase is not None],
        ignore_boxes=_own_ignored(record),
        reader_boxes=[],
        reader_labels=[],
    )


def _own_ignored(record: AnnotatedImage) -> list[list[float]]:
    return [[float(value) for value in box] for box in record.ignored]


def _by_kind(record: AnnotatedImage) -> list[tuple[tuple[str, str | None], Array, NDArray[np.int64]]]:
    """For each label and phrase, sorted: ``(n, 4)`` boxes, and the number of the reader who drew each."""
    number = {name: i for i, name in enumerate(sorted(image_readers(record)))}
    grouped: dict[tuple[str, str | None], list[tuple[list[float], int]]] = defaultdict(list)
    for row, reader in zip(_rows(record), record.readers, strict=True):
        grouped[row.kind].append((row.box, number[reader]))
    return [
        (kind, as_box_array([box for box, _ in drawn]), np.array([reader for _, reader in drawn]))
        for kind, drawn in sorted(grouped.items(), key=lambda item: (item[0][0], item[0][1] or ""))
    ]

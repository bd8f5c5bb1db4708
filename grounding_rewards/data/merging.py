"""Merge several readers' boxes on one image into one reference.

Conventions, the same for all strategies:

* Boxes are compared within one label and one phrase only. Bring the labels to one spelling first.
* Two boxes agree from the IoU threshold up (``>=``), but boxes that do not overlap never agree.
* The order of the readers and of their boxes changes only the order of what is kept.
* An image that one person read is taken as it is under every strategy. Where fewer people read an image than must
  agree, all of them must.
* Who read the image is `read_by`, those who drew nothing included; where the dataset doesn't say, those who drew.
"""

from __future__ import annotations

from collections import defaultdict
from math import fsum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import as_box_array
from grounding_rewards.common.numeric import Array
from grounding_rewards.common.validation import SHARE, check_number, check_word
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.matching import most_hits_match
from grounding_rewards.overlap import pairwise_iou

STRATEGIES = ("union", "majority", "consensus", "any-of", "ignore")

# Label and phrase: boxes are compared only where both are the same.
_Kind = tuple[str, str | None]
_Drawn = tuple[list[float], _Kind]


def reference_boxes(
    image: AnnotatedImage, strategy: str, *, iou_threshold: float = 0.5, min_readers: int | None = None
) -> dict[str, Any]:
    """The columns of an example that say what several readers drew on its image.

    ========== ========================================================================================================
    strategy   columns
    ========== ========================================================================================================
    union      every box of every reader.
    majority   of each group of boxes on which at least `min_readers` readers agree, the drawn box that overlaps best,
               on average, with the boxes of the others; see :func:`agreed_boxes`.
    consensus  weighted box fusion: each group of boxes becomes its mean; see :func:`fused_boxes`.
    any-of     the set of each reader, in `reader_boxes` and `reader_labels`, in the order of :func:`image_readers`; a
               reward takes the best. `boxes` is the set of the reader who agrees best with the others, by F1 at the
               threshold, so that a single answer can be written.
    ignore     as `majority`; the boxes with which too few others agree become `ignore_boxes`.
    ========== ========================================================================================================

    Args:
        image: `readers` says who drew each box.
        strategy: one of :data:`STRATEGIES`.
        iou_threshold: τ, in [0, 1], from which two boxes agree.
        min_readers: how many readers must agree, the one who drew the box included; by default 2 for `majority` and
            `ignore`, and 1, which keeps all, for `consensus`. The other strategies have no use for it.

    Returns:
        `boxes`, `labels` and `ignore_boxes`, which begin with the image's own; of `any-of` the two others as well. All
        boxes are in the pixels of the image.

    Raises:
        ValueError: the strategy is unknown, τ or the number is out of range, or `labels`, `phrases` or `readers` don't
            fit the boxes.

    Example:
        >>> image = AnnotatedImage(
        ...     "1", "1.png", [[0, 0, 10, 10], [0, 0, 10, 8], [50, 50, 60, 60]], ["mass"] * 3,
        ...     readers=("R1", "R2", "R2"), read_by=("R1", "R2", "R3"),
        ... )
        >>> reference_boxes(image, "majority")["boxes"]
        [[0.0, 0.0, 10.0, 8.0]]
        >>> reference_boxes(image, "consensus", min_readers=2)["boxes"]
        [[0.0, 0.0, 10.0, 9.0]]
        >>> reference_boxes(image, "ignore")["ignore_boxes"]
        [[50.0, 50.0, 60.0, 60.0]]
        >>> reference_boxes(image, "any-of")["reader_boxes"]
        [[[0.0, 0.0, 10.0, 10.0]], [[0.0, 0.0, 10.0, 8.0], [50.0, 50.0, 60.0, 60.0]], []]
    """
    check_word("strategy", strategy, STRATEGIES)
    tau = check_number("iou_threshold", iou_threshold, SHARE, "The usual value is 0.5.")
    if min_readers is not None and (not isinstance(min_readers, int) or min_readers < 1):
        raise ValueError(
            f"Expected a whole number from 1 up for `min_readers`, got {min_readers!r}. Two of three readers are usual."
        )
    check_readers(image)
    names = image_readers(image)
    kinds = zip(image.labels, image.phrases or [None] * len(image.boxes), strict=True)
    drawn: list[_Drawn] = [(list(map(float, box)), kind) for box, kind in zip(image.boxes, kinds, strict=True)]
    ignored = [list(map(float, box)) for box in image.ignored]
    of_readers: dict[str, Any] = {}
    if strategy == "any-of":
        sets = [drawn]
        if len(names) > 1:
            sets = [[one for one, reader in zip(drawn, image.readers, strict=True) if reader == name] for name in names]
            agreement = [_mean_f1(one, sets[:i] + sets[i + 1 :], tau) for i, one in enumerate(sets)]
            # Ties go to the first reader by name, so that the order of the readers decides nothing.
            drawn = sets[min(range(len(names)), key=lambda i: (-agreement[i], names[i]))]
        of_readers = {
            "reader_boxes": [[box for box, _ in one] for one in sets],
            "reader_labels": [[label for _, (label, _) in one] for one in sets],
        }
    elif strategy != "union" and len(names) > 1:
        grouped: dict[_Kind, list[tuple[list[float], int]]] = defaultdict(list)
        for (box, kind), reader in zip(drawn, image.readers, strict=True):
            grouped[kind].append((box, sorted(names).index(reader)))
        needed = min(len(names), min_readers or (1 if strategy == "consensus" else 2))
        drawn = []
        for kind, group in sorted(grouped.items(), key=lambda item: (item[0][0], item[0][1] or "")):
            boxes, readers = as_box_array([box for box, _ in group]), np.array([reader for _, reader in group])
            if strategy == "consensus":
                fused = fused_boxes(boxes, readers, min_readers=needed, iou_threshold=tau)
                drawn += [(box, kind) for box in fused]
                continue
            kept, rest = agreed_boxes(boxes, readers, min_readers=needed, iou_threshold=tau)
            drawn += [(boxes[i].tolist(), kind) for i in kept]
            if strategy == "ignore":
                ignored += boxes[rest].tolist()
    return {
        "boxes": [box for box, _ in drawn],
        "labels": [label for _, (label, _) in drawn],
        "ignore_boxes": ignored,
        **of_readers,
    }


def image_readers(image: AnnotatedImage) -> list[str]:
    """Who read the image: `read_by`, or where the dataset doesn't say those who drew a box.

    Example:
        >>> image_readers(AnnotatedImage("1", "1.png", [[0, 0, 9, 9]], ["mass"], readers=("R2",), read_by=("R1", "R2")))
        ['R1', 'R2']
    """
    return list(image.read_by) or sorted(set(image.readers))


def check_readers(image: AnnotatedImage) -> None:
    """Refuse an image on which labels, phrases or readers do not fit the boxes.

    Raises:
        ValueError: they are not as many as the boxes, or `read_by` lacks somebody who drew a box.

    Example:
        >>> check_readers(AnnotatedImage("1", "1.png", [[0, 0, 9, 9]], ["mass"], readers=("R1",), read_by=("R1", "R2")))
    """
    n = len(image.boxes)
    for name in ("labels", "phrases", "readers"):
        given = getattr(image, name)
        if len(given) != n and (given or name == "labels"):
            raise ValueError(
                f"Expected one of `{name}` per box on image {image.id}, got {len(given)} for {n} boxes. "
                "Give one for each box, in their order."
            )
    if n and len(image.read_by) > 1 and not image.readers:
        raise ValueError(
            f"Expected who drew each box in `readers` on image {image.id}, got none although {len(image.read_by)} "
            "people read it. Name one of them for each box."
        )
    unknown = sorted(set(image.readers) - set(image.read_by)) if image.read_by else []
    if unknown:
        raise ValueError(
            f"Expected `read_by` to name everybody who drew on image {image.id}, got a box of {unknown[0]!r}. Add them."
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


def _mean_f1(one: list[_Drawn], others: list[list[_Drawn]], iou_threshold: float) -> float:
    """Mean F1 of one reader's boxes with those of each other; 1 where both drew nothing."""
    scores = []
    for other in others:
        hits = 0
        for kind in {kind for _, kind in one} & {kind for _, kind in other}:
            first, second = ([box for box, own in drawn if own == kind] for drawn in (one, other))
            hits += len(most_hits_match(pairwise_iou(first, second), iou_threshold))
        total = len(one) + len(other)
        scores.append(2 * hits / total if total else 1.0)
    return fsum(scores) / len(scores)

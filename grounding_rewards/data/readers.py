"""Several readers of one image: merge their boxes into one reference.

The same for all strategies:

* Boxes are compared within one label and one phrase only. Bring the labels to one spelling first.
* Two boxes agree from IoU 0.5 up (``>=``).
* The order of the readers and of their boxes changes only the order of what is kept.
* An image that one person read is taken as it is under every strategy.
* Who read the image is `read_by`, those who drew nothing included; where the dataset doesn't say, those who drew.
"""

from collections import defaultdict
from math import fsum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import as_box_array
from grounding_rewards.common.numeric import Array
from grounding_rewards.common.validation import check_word
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.matching import most_hits_match
from grounding_rewards.overlap import pairwise_iou

# Two boxes agree from this IoU up.
_AGREEMENT = 0.5

STRATEGIES = ("union", "majority", "any-of", "ignore")

# Label and phrase: boxes are compared only where both are the same.
_Kind = tuple[str, str | None]
# A box, with its label and phrase.
_Drawn = tuple[list[float], _Kind]


def reference_boxes(image: AnnotatedImage, strategy: str) -> dict[str, Any]:
    """The columns of an example that say what several readers drew on its image.

    ========== ========================================================================================================
    strategy   columns
    ========== ========================================================================================================
    union      every box of every reader.
    majority   of each group of boxes on which at least two readers agree, the drawn box that overlaps best, on
               average, with the boxes of the others; see :func:`agreed_boxes`.
    any-of     the set of each reader, in `reader_boxes` and `reader_labels`, in the order of :func:`image_readers`; a
               reward takes the best. `boxes` is the set of the reader who agrees best with the others, by F1, so that
               a single answer can be written.
    ignore     as `majority`; the boxes with which too few others agree become `ignore_boxes`.
    ========== ========================================================================================================

    Args:
        image: `readers` says who drew each box.
        strategy: one of :data:`STRATEGIES`.

    Returns:
        `boxes`, `labels` and `ignore_boxes`, which begin with the image's own; of `any-of` the two others as well. All
        boxes are in the pixels of the image.

    Raises:
        ValueError: the strategy is unknown, or `labels`, `phrases` or `readers` don't fit the boxes.

    Example:
        >>> image = AnnotatedImage(
        ...     "1", "1.png", [[0, 0, 10, 10], [0, 0, 10, 8], [50, 50, 60, 60]], ["mass"] * 3,
        ...     readers=("R1", "R2", "R2"), read_by=("R1", "R2", "R3"),
        ... )
        >>> reference_boxes(image, "majority")["boxes"]
        [[0.0, 0.0, 10.0, 8.0]]
        >>> reference_boxes(image, "ignore")["ignore_boxes"]
        [[50.0, 50.0, 60.0, 60.0]]
        >>> reference_boxes(image, "any-of")["reader_boxes"]
        [[[0.0, 0.0, 10.0, 10.0]], [[0.0, 0.0, 10.0, 8.0], [50.0, 50.0, 60.0, 60.0]], []]
    """
    check_word("strategy", strategy, STRATEGIES)
    check_readers(image)
    names = image_readers(image)
    kinds = zip(image.labels, image.phrases or [None] * len(image.boxes), strict=True)
    labelled_boxes: list[_Drawn] = [(list(map(float, box)), kind) for box, kind in zip(image.boxes, kinds, strict=True)]
    ignored = [list(map(float, box)) for box in image.ignored]
    reader_columns: dict[str, Any] = {}
    if strategy == "any-of":
        reader_sets = [labelled_boxes]
        if len(names) > 1:
            boxes_and_readers = list(zip(labelled_boxes, image.readers, strict=True))
            reader_sets = [[box for box, reader in boxes_and_readers if reader == name] for name in names]
            others = [reader_sets[:i] + reader_sets[i + 1 :] for i in range(len(names))]
            agreement = list(map(_mean_f1, reader_sets, others))
            # Ties go to the first reader by name, so that the order of the readers decides nothing.
            labelled_boxes = reader_sets[min(range(len(names)), key=lambda i: (-agreement[i], names[i]))]
        reader_columns = {
            "reader_boxes": [[box for box, _ in reader_set] for reader_set in reader_sets],
            "reader_labels": [[label for _, (label, _) in reader_set] for reader_set in reader_sets],
        }
    elif strategy != "union" and len(names) > 1:
        # By label and phrase: each box with the number of its reader in alphabetical order.
        groups: dict[_Kind, list[tuple[list[float], int]]] = defaultdict(list)
        for (box, kind), reader in zip(labelled_boxes, image.readers, strict=True):
            groups[kind].append((box, sorted(names).index(reader)))
        labelled_boxes = []
        # In the order of labels, then phrases, of which there may be none.
        for kind, group in sorted(groups.items(), key=lambda item: (item[0][0], item[0][1] or "")):
            boxes, readers = as_box_array([box for box, _ in group]), np.array([reader for _, reader in group])
            agreed, disputed = agreed_boxes(boxes, readers)
            labelled_boxes += [(boxes[i].tolist(), kind) for i in agreed]
            if strategy == "ignore":
                ignored += boxes[disputed].tolist()
    return {
        "boxes": [box for box, _ in labelled_boxes],
        "labels": [label for _, (label, _) in labelled_boxes],
        "ignore_boxes": ignored,
        **reader_columns,
    }


def image_readers(image: AnnotatedImage) -> list[str]:
    """The readers of an image: `read_by`, or, where the dataset doesn't say, those who drew a box.

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
    box_count = len(image.boxes)
    for name in ("labels", "phrases", "readers"):
        values = getattr(image, name)
        # A dataset may have no phrases and no readers, but every box has a label.
        if len(values) != box_count and (values or name == "labels"):
            raise ValueError(
                f"Expected one of `{name}` per box on image {image.id}, got {len(values)} for {box_count} boxes. "
                "Give one for each box, in their order."
            )
    if box_count and len(image.read_by) > 1 and not image.readers:
        raise ValueError(
            f"Expected who drew each box in `readers` on image {image.id}, got none although {len(image.read_by)} "
            "people read it. Name one of them for each box."
        )
    # An empty `read_by` says nothing of who read the image, and excludes nobody.
    unknown = sorted(set(image.readers) - set(image.read_by)) if image.read_by else []
    if unknown:
        raise ValueError(
            f"Expected `read_by` to name everybody who drew on image {image.id}, got a box of {unknown[0]!r}. Add them."
        )


def agreed_boxes(boxes: Array, readers: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """The indices of the boxes of one label on which several readers agree, and of those that nobody else drew.

    Of all boxes, the one on which most readers agree is kept; among equals the one with the greatest mean IoU with
    the closest box of each of these readers, and then the first by its coordinates. It takes these closest boxes
    with it, one per reader, and the rest is treated in the same way until no box has two readers. So the agreed box is
    one that a radiologist drew, and no box speaks for two findings.

    Args:
        boxes: ``(n, 4)`` xyxy.
        readers: ``(n,)``: who drew each box.

    Returns:
        The indices of the kept boxes, and those of the boxes that were neither kept nor taken along.

    Example:
        >>> boxes = np.array([[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 6], [50, 50, 60, 60]], dtype=float)
        >>> agreed_boxes(boxes, np.array([0, 1, 2, 2]))
        ([1], [3])
    """
    iou = pairwise_iou(boxes, boxes)
    # The indices of the boxes that are neither kept nor taken along.
    free = list(range(len(boxes)))
    agreed = []
    while free:
        companions = {i: _closest_of_others(i, free, iou, readers, boxes) for i in free}
        # Exact sums, so that the order of the boxes cannot change their last bits.
        overlaps = {i: fsum(iou[i, companions[i]]) for i in free}
        # Most readers first, then most overlap; then anything that the order of the boxes does not change.
        best = min(free, key=lambda i: (-len(companions[i]), -overlaps[i], tuple(boxes[i]), readers[i]))
        if not companions[best]:
            # No two readers agree on any of the boxes that are left.
            break
        agreed.append(best)
        free = [i for i in free if i != best and i not in companions[best]]
    return agreed, free


def _closest_of_others(i: int, free: list[int], iou: Array, readers: NDArray[np.int64], boxes: Array) -> list[int]:
    """The index of one box of every other reader who agrees with box i: the one that overlaps it most.

    Args:
        i: index of the box.
        free: indices of the boxes among which to choose.
        iou: of every pair of boxes, ``(n, n)``.
        readers: ``(n,)``: who drew each box.
        boxes: ``(n, 4)``; of boxes that overlap equally the first by its coordinates is taken.
    """
    # By reader: minus the IoU, the coordinates and the index of the best box so far, which is the least by these.
    closest: dict[int, tuple[float, tuple[float, ...], int]] = {}
    for j in free:
        if readers[j] != readers[i] and iou[i, j] >= _AGREEMENT:
            candidate = (-iou[i, j], tuple(boxes[j]), j)
            closest[readers[j]] = min(candidate, closest.get(readers[j], candidate))
    return [j for _, _, j in closest.values()]


def _mean_f1(reader_set: list[_Drawn], other_sets: list[list[_Drawn]]) -> float:
    """Mean F1 of one reader's boxes with those of each other reader; 1 with a reader where both drew nothing."""
    scores = []
    for other_set in other_sets:
        # Boxes are matched within one label and phrase only.
        hits = 0
        for kind in {kind for _, kind in reader_set} & {kind for _, kind in other_set}:
            boxes = [box for box, box_kind in reader_set if box_kind == kind]
            other_boxes = [box for box, box_kind in other_set if box_kind == kind]
            hits += len(most_hits_match(pairwise_iou(boxes, other_boxes), _AGREEMENT))
        total = len(reader_set) + len(other_set)
        scores.append(2 * hits / total if total else 1.0)
    return fsum(scores) / len(scores)

"""The images that scripts answer: reference boxes, sizes, readers and ignore regions, and what a script may know."""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.audit.render import Size
from grounding_rewards.boxes import as_box_array
from grounding_rewards.columns import patient_of
from grounding_rewards.common.numeric import Array
from grounding_rewards.overlap import pairwise_iou

_UNNAMED = "finding"
# A false box overlaps no finding by more, so that it is a hit under no usual threshold.
_STRAY = 0.05
_TRIES = 30
# A small finding: 40 pixels of 1024, as many nodules of the lung are.
_SMALL = 40 / 1024
#: Pixels of width and height of :func:`with_square_frames`.
SQUARE_SIDE = 1000


class Known(NamedTuple):
    """Facts that a script may use without looking at the image.

    labels: every label of the dataset, the most frequent first.
    median_boxes: by label of the image, which the prompt may ask for, the box of :func:`usual_boxes` as fractions of
        width and height; of a normal image by the most frequent label.
    """

    labels: tuple[str, ...]
    median_boxes: Mapping[str, Array]


@dataclass(frozen=True)
class AuditImage:
    """One image.

    Attributes:
        number: its row, which its random numbers depend on.
        boxes: ``(m, 4)`` xyxy in pixels of the image.
        labels: m names.
        size: of the image.
        known: what is known without looking.
        ignore: ``(k, 4)``, regions that excuse a box.
        readers: the boxes of every reader, ``(m_k, 4)`` each; empty where the image has one reference.
        patient: whose image it is; None where unknown.
        id: its name; None without one.
    """

    number: int
    boxes: Array
    labels: tuple[str, ...]
    size: Size
    known: Known
    ignore: Array
    readers: tuple[Array, ...] = ()
    patient: str | None = None
    id: str | None = None

    def draw(self, name: str) -> np.random.Generator:
        """Random numbers that are the same for every script that asks under this name."""
        return np.random.default_rng([zlib.crc32(name.encode()), self.number])


def images_of(rows: Sequence[Mapping[str, Any]]) -> list[AuditImage]:
    """The images of a dataset.

    Args:
        rows: with ``boxes`` or ``reader_boxes``, ``width`` and ``height``; as far as there are ``labels``,
            ``resized_width``, ``resized_height``, ``ignore_boxes``, ``id`` and ``patient_id``. Of several readers the
            first is the reference where there is no other.

    Raises:
        ValueError: there are no images, or one has no size; boxes are checked by the rewards.

    Example:
        >>> row = {"boxes": [[0, 0, 50, 50]], "labels": ["mass"], "width": 100, "height": 80}
        >>> image, normal = images_of([row, {**row, "boxes": [], "labels": []}])
        >>> image.labels, image.size.height, image.known.median_boxes, normal.known.median_boxes["mass"].tolist()
        (('mass',), 80.0, {}, [0.0, 0.0, 0.5, 0.625])
    """
    if not rows:
        raise ValueError("Expected images for the audit, got none. Name a split that holds some.")
    images = [_image(row, number) for number, row in enumerate(rows)]
    label_counts = Counter(label for image in images for label in image.labels).most_common()
    names = tuple(label for label, _ in label_counts) or (_UNNAMED,)
    patients = [image.number if image.patient is None else image.patient for image in images]
    references = [
        (patient, label, box / np.tile(image.size[:2], 2))
        for patient, image in zip(patients, images, strict=True)
        for box, label in zip(image.boxes, image.labels, strict=True)
    ]
    questions: list[tuple[Hashable, str]] = []
    for patient, image in zip(patients, images, strict=True):
        questions += [(patient, label) for label in dict.fromkeys(image.labels) or names[:1]]
    medians = dict(zip(questions, usual_boxes(references, questions), strict=True))
    completed = []
    for patient, image in zip(patients, images, strict=True):
        boxes = {label: medians[patient, label] for label in dict.fromkeys(image.labels) or names[:1]}
        boxes = {label: box for label, box in boxes.items() if not np.isnan(box).any()}
        completed.append(replace(image, known=Known(names, boxes)))
    return completed


def _image(row: Mapping[str, Any], number: int) -> AuditImage:
    """The image of a row, without the facts that are known without looking."""
    try:
        width, height = float(row["width"]), float(row["height"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"Expected `width` and `height` for the image in row {number}, got {row.get('width')!r} and "
            f"{row.get('height')!r}. Add the columns: without them no box can be written."
        ) from None
    readers = tuple(map(as_box_array, row.get("reader_boxes") or ()))
    boxes = as_box_array(row["boxes"] if row.get("boxes") is not None else readers[0] if readers else ())
    labels = row.get("labels")
    return AuditImage(
        number,
        boxes,
        tuple(labels) if labels is not None and len(labels) == len(boxes) else (_UNNAMED,) * len(boxes),
        Size(width, height, float(row.get("resized_width") or width), float(row.get("resized_height") or height)),
        Known((), {}),
        as_box_array(row.get("ignore_boxes") or ()),
        readers,
        patient_of(row),
        None if row.get("id") is None else str(row["id"]),
    )


def usual_boxes(references: Iterable[tuple[Hashable, str, Array]], questions: Iterable[tuple[Hashable, str]]) -> Array:
    """The median box of a label over other patients: all that a model without a look at the image can know.

    Args:
        references: patient, label and box ``(4,)`` of every finding of a dataset, all in one frame.
        questions: patient and label; the boxes of the patient are left out.

    Returns:
        ``(questions, 4)``, the median of each coordinate; NaN where no other patient has the label.

    Example:
        >>> boxes = [("p", "mass", np.array([0, 0, 8, 8])), ("q", "mass", np.array([2, 2, 4, 4]))]
        >>> usual_boxes(boxes, [("p", "mass"), ("r", "mass"), ("p", "nodule")])
        array([[ 2.,  2.,  4.,  4.],
               [ 1.,  1.,  6.,  6.],
               [nan, nan, nan, nan]])
    """
    of_label: dict[str, list[tuple[Hashable, Array]]] = defaultdict(list)
    for patient, label, box in references:
        of_label[label].append((patient, box))

    @cache
    def median(patient: Hashable, label: str) -> Array:
        boxes_of_others = [box for owner, box in of_label[label] if owner != patient]
        return np.median(boxes_of_others, axis=0) if boxes_of_others else np.full(4, np.nan)

    return np.array([median(*question) for question in questions]).reshape(-1, 4)


def stray_box(image: AuditImage, draw: np.random.Generator) -> Array:
    """A box of the usual size where no finding is, or a speck in the corner where all places are taken.

    Example:
        >>> image, = images_of([{"boxes": [[0, 0, 50, 50]], "labels": ["mass"], "width": 100, "height": 80}])
        >>> bool(pairwise_iou(stray_box(image, image.draw("junk"))[None], image.boxes).max() < 0.05)
        True
    """
    width, height = image.size[:2]
    occupied = np.concatenate([image.boxes, image.ignore, *image.readers])
    for _ in range(_TRIES):
        side = draw.uniform(0.08, 0.25, 2)
        corner = draw.uniform(0, 1 - side)
        box = np.concatenate([corner, corner + side]) * (width, height, width, height)
        if not len(occupied) or pairwise_iou(box[None], occupied).max() < _STRAY:
            return box
    return np.array([0.0, 0.0, 0.02 * width, 0.02 * height])


def cut_box(box: Array, iou: float, draw: np.random.Generator) -> Array:
    """A box cut from one side, so that it overlaps the whole one by this IoU.

    Example:
        >>> box = np.array([0.0, 0.0, 10.0, 10.0])
        >>> round(pairwise_iou(cut_box(box, 0.75, np.random.default_rng(0))[None], box[None]).item(), 6)
        0.75
    """
    side = int(draw.integers(4))
    cut = box.copy()
    cut[side] = box[(side + 2) % 4] + iou * (box[side] - box[(side + 2) % 4])
    return cut


def with_regions(images: Sequence[AuditImage]) -> list[AuditImage]:
    """Images with ignore regions; in a dataset without any they are made up.

    A region lies around the first finding, half as large again, as another reader's box may, and on every second normal
    image somewhere.

    Example:
        >>> row = {"boxes": [[0, 0, 50, 50]], "labels": ["mass"], "width": 100, "height": 80}
        >>> image, = with_regions(images_of([row]))
        >>> image.ignore.tolist()
        [[0.0, 0.0, 62.5, 62.5]]
    """
    if any(len(image.ignore) for image in images):
        return list(images)
    return [replace(image, ignore=_made_up_regions(image)) for image in images]


def with_square_frames(images: Sequence[AuditImage]) -> list[AuditImage]:
    """The images stretched to 1000 × 1000 pixels, so that most formats write whole pixels without rounding.

    Example:
        >>> image, = with_square_frames(images_of([{"boxes": [[0, 0, 50, 40]], "width": 100, "height": 80}]))
        >>> image.boxes.tolist(), image.size.width
        ([[0.0, 0.0, 500.0, 500.0]], 1000.0)
    """
    side = float(SQUARE_SIDE)
    size = Size(side, side, side, side)
    return [replace(image, size=size, boxes=side * image.boxes / np.tile(image.size[:2], 2)) for image in images]


def with_small_findings(images: Sequence[AuditImage]) -> list[AuditImage]:
    """Images whose findings are squares of 40 pixels where the shorter side has 1024, in the middle of the real ones.

    Example:
        >>> image, = with_small_findings(images_of([{"boxes": [[0, 0, 512, 512]], "labels": ["mass"], "width": 1024,
        ...     "height": 2048}]))
        >>> image.boxes.tolist()
        [[236.0, 236.0, 276.0, 276.0]]
    """
    changed = []
    for image in images:
        reach = _SMALL * min(image.size[:2]) / 2
        middle = np.clip((image.boxes[:, :2] + image.boxes[:, 2:]) / 2, reach, np.array(image.size[:2]) - reach)
        changed.append(replace(image, boxes=np.concatenate([middle - reach, middle + reach], axis=1)))
    return changed


def _made_up_regions(image: AuditImage) -> Array:
    if not len(image.boxes):
        return stray_box(image, image.draw("region"))[None] if image.number % 2 else np.zeros((0, 4))
    first = image.boxes[:1]
    margin = 0.25 * (first[:, 2:] - first[:, :2])
    image_size = np.array(image.size[:2])
    return np.concatenate([np.maximum(first[:, :2] - margin, 0), np.minimum(first[:, 2:] + margin, image_size)], axis=1)

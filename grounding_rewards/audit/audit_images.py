"""The images that scripts answer: reference boxes, sizes and readers, and what a script may know."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from grounding_rewards.audit.render import Size
from grounding_rewards.boxes import as_box_array
from grounding_rewards.columns import patient_of
from grounding_rewards.common.numeric import Array
from grounding_rewards.metrics.baselines import constant_boxes, patient_folds
from grounding_rewards.overlap import pairwise_iou

_UNNAMED = "finding"
# A false box overlaps no finding by more, so that it is a hit under no usual threshold.
_STRAY = 0.05
_TRIES = 30
# A small finding: 40 pixels of 1024, as many nodules of the lung are.
_SMALL = 40 / 1024
#: Pixels of width and height of :func:`with_square_frames`.
SQUARE_SIDE = 1000


@dataclass(frozen=True)
class AuditImage:
    """One image.

    Attributes:
        number: its row, which its random numbers depend on.
        boxes: ``(m, 4)`` xyxy in pixels of the image.
        labels: m names.
        size: of the image.
        readers: the boxes of every reader, ``(m_k, 4)`` each; empty where the image has one reference.
        patient: whose image it is; of an unknown patient its number.
        all_labels: every label of the dataset, the most frequent first.
        constant: by label the constant boxes of other patients as fractions of width and height, which a script may
            know without looking (:func:`grounding_rewards.metrics.baselines.constant_boxes`).
    """

    number: int
    boxes: Array
    labels: tuple[str, ...]
    size: Size
    readers: tuple[Array, ...]
    patient: str | int
    all_labels: tuple[str, ...] = (_UNNAMED,)
    constant: Mapping[str, Array] = field(default_factory=dict)

    def draw(self, name: str) -> np.random.Generator:
        """Random numbers that are the same for every script that asks under this name."""
        return np.random.default_rng([zlib.crc32(name.encode()), self.number])


def images_of(rows: Sequence[Mapping[str, Any]]) -> list[AuditImage]:
    """The images of a dataset.

    Args:
        rows: with ``boxes`` or ``reader_boxes``, ``width`` and ``height``; as far as there are ``labels``,
            ``resized_width``, ``resized_height`` and ``patient_id``. Of several readers the first is the reference
            where there is no other.

    Raises:
        ValueError: there are no images, or one has no size; boxes are checked by the rewards.

    Example:
        >>> row = {"boxes": [[0, 0, 50, 50]], "labels": ["mass"], "width": 100, "height": 80}
        >>> image, normal = images_of([row, {**row, "boxes": [], "labels": []}])
        >>> image.labels, image.size.height, image.constant, normal.constant["mass"].tolist()
        (('mass',), 80.0, {}, [0.0, 0.0, 0.5, 0.625])
    """
    if not rows:
        raise ValueError("Expected images for the audit, got none. Name a split that holds some.")
    images = [_image(row, number) for number, row in enumerate(rows)]
    label_counts = Counter(label for image in images for label in image.labels)
    all_labels = tuple(label for label, _ in label_counts.most_common()) or (_UNNAMED,)
    known_rows = [
        {"boxes": image.boxes, "labels": image.labels, "width": image.size.width, "height": image.size.height}
        for image in images
    ]
    constant_of_image: dict[int, Mapping[str, Array]] = {}
    for in_fold in patient_folds([image.patient for image in images], len(images)):
        constant = constant_boxes(row for row, is_left_out in zip(known_rows, in_fold, strict=True) if not is_left_out)
        constant_of_image |= dict.fromkeys(np.flatnonzero(in_fold).tolist(), constant)
    return [replace(image, all_labels=all_labels, constant=constant_of_image[image.number]) for image in images]


def _image(row: Mapping[str, Any], number: int) -> AuditImage:
    """The image of a row, still without `all_labels` and `constant`, which need all rows."""
    try:
        width, height = float(row["width"]), float(row["height"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"Expected `width` and `height` for the image in row {number}, got {row.get('width')!r} and "
            f"{row.get('height')!r}. Add the columns: without them no box can be written."
        ) from None
    readers = tuple(map(as_box_array, row.get("reader_boxes") or ()))
    boxes = row.get("boxes")
    if boxes is None:
        boxes = readers[0] if readers else ()
    labels = (_UNNAMED,) * len(boxes)
    # Labels that are not one for each box, as they may be beside a reader's boxes, say nothing of these.
    if row.get("labels") is not None and len(row["labels"]) == len(boxes):
        labels = tuple(row["labels"])
    patient = patient_of(row)
    return AuditImage(
        number=number,
        boxes=as_box_array(boxes),
        labels=labels,
        size=Size(width, height, float(row.get("resized_width") or width), float(row.get("resized_height") or height)),
        readers=readers,
        patient=number if patient is None else patient,
    )


def stray_box(image: AuditImage, draw: np.random.Generator) -> Array:
    """A box of the usual size where no finding is, or a speck in the corner where all places are taken.

    Example:
        >>> image, = images_of([{"boxes": [[0, 0, 50, 50]], "labels": ["mass"], "width": 100, "height": 80}])
        >>> bool(pairwise_iou(stray_box(image, image.draw("junk"))[None], image.boxes).max() < 0.05)
        True
    """
    width, height = image.size[:2]
    occupied = np.concatenate([image.boxes, *image.readers])
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

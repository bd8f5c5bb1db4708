"""The images that scripts answer: their boxes and sizes, and everything that a script may know of them."""

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.boxes import as_box_array
from grounding_rewards.columns import patient_of
from grounding_rewards.common.numeric import Array
from grounding_rewards.metrics.baselines import constant_boxes, patient_folds
from grounding_rewards.metrics.prediction import UNNAMED
from grounding_rewards.metrics.read_predictions import named_labels
from grounding_rewards.overlap import pairwise_iou

# Largest IoU of a false box with a finding, so that it is a hit under no usual threshold.
_STRAY = 0.05
# Random places that are tried for a false box.
_TRIES = 30
# Side of a small finding as a fraction of the shorter side: 40 pixels of 1024, as many nodules of the lung have.
_SMALL = 40 / 1024


class Size(NamedTuple):
    """The sizes of an image in pixels: its own, and of the image that the model saw."""

    width: float
    height: float
    resized_width: float
    resized_height: float


@dataclass(frozen=True)
class AuditImage:
    """One image.

    Attributes:
        number: of its row, which seeds its random numbers.
        boxes: ``(m, 4)`` xyxy in pixels of the image.
        labels: m names.
        size: of the image.
        patient: the patient; if unknown, the number of the row.
        all_labels: every label of the dataset, the most frequent first.
        constant: the constant box of each label, fitted on other patients, as fractions of width and height
            (:func:`grounding_rewards.metrics.baselines.constant_boxes`); a script may know it without looking.
    """

    number: int
    boxes: Array
    labels: tuple[str, ...]
    size: Size
    patient: str | int
    all_labels: tuple[str, ...] = (UNNAMED,)
    constant: Mapping[str, Array] = field(default_factory=dict)

    def draw(self, name: str) -> np.random.Generator:
        """A generator of random numbers, which are the same for every script that uses this name."""
        return np.random.default_rng([zlib.crc32(name.encode()), self.number])


def images_of(rows: Sequence[Mapping[str, Any]]) -> list[AuditImage]:
    """Make the images for an audit from the rows of a dataset.

    Args:
        rows: with ``boxes`` or ``reader_boxes``, ``width`` and ``height``; optional are ``labels``,
            ``resized_width``, ``resized_height`` and ``patient_id``. Without ``boxes`` the first reader is the
            reference.

    Returns:
        One image for each row, in their order.

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
    all_labels = tuple(label for label, _ in label_counts.most_common()) or (UNNAMED,)
    box_rows = [{"boxes": image.boxes, "labels": image.labels, **image.size._asdict()} for image in images]
    constant_of_image: dict[int, Mapping[str, Array]] = {}
    # A fold says of each image whether it is in it. All images of a patient are in one, so that the constant boxes,
    # which are fitted on the images outside of it, know nothing of that patient.
    for in_fold in patient_folds([image.patient for image in images], len(images)):
        outside_rows = [row for row, is_inside in zip(box_rows, in_fold, strict=True) if not is_inside]
        constant_of_image |= dict.fromkeys(np.flatnonzero(in_fold).tolist(), constant_boxes(outside_rows))
    return [replace(image, all_labels=all_labels, constant=constant_of_image[image.number]) for image in images]


def _image(row: Mapping[str, Any], number: int) -> AuditImage:
    """The image of the row with this number, still without `all_labels` and `constant`, which need all rows."""
    try:
        width, height = float(row["width"]), float(row["height"])
    except (KeyError, OverflowError, TypeError, ValueError):
        raise ValueError(
            f"Expected `width` and `height` for the image in row {number}, got {row.get('width')!r} and "
            f"{row.get('height')!r}. Add the columns: without them no box can be written."
        ) from None
    boxes = row.get("boxes")
    if boxes is None:
        # The first of several readers is the reference; without readers there are no boxes.
        reader_boxes = row.get("reader_boxes")
        boxes = () if reader_boxes is None else next(iter(reader_boxes), ())
    labels = named_labels({"boxes": boxes, "labels": row.get("labels")})
    if len(labels) != len(boxes):
        # The labels of the row are not for the boxes of this reader, which stay unnamed.
        labels = (UNNAMED,) * len(boxes)
    patient = patient_of(row)
    return AuditImage(
        number=number,
        boxes=as_box_array(boxes),
        labels=labels,
        # Without a resized size the model saw the image in its own.
        size=Size(width, height, float(row.get("resized_width") or width), float(row.get("resized_height") or height)),
        # An image of an unknown patient counts as the only one of its patient.
        patient=number if patient is None else patient,
    )


def stray_box(image: AuditImage, draw: np.random.Generator) -> Array:
    """A random box that overlaps no finding; a speck in the upper left corner if no try finds such a place.

    Example:
        >>> image, = images_of([{"boxes": [[0, 0, 50, 50]], "labels": ["mass"], "width": 100, "height": 80}])
        >>> bool(pairwise_iou(stray_box(image, image.draw("junk"))[None], image.boxes).max() < 0.05)
        True
    """
    width, height = image.size[:2]
    for _ in range(_TRIES):
        # As fractions of the image: width and height, as large as a finding may be, and the upper left corner.
        sides = draw.uniform(0.08, 0.25, 2)
        corner = draw.uniform(0, 1 - sides)
        box = np.concatenate([corner, corner + sides]) * (width, height, width, height)
        if not len(image.boxes) or pairwise_iou(box[None], image.boxes).max() < _STRAY:
            return box
    # A 50th of each side: too small to hit a finding there.
    return np.array([0.0, 0.0, 0.02 * width, 0.02 * height])


def cut_box(box: Array, iou: float, draw: np.random.Generator) -> Array:
    """The box with a random side moved inwards, so far that what is left has this IoU with the whole box.

    Example:
        >>> box = np.array([0.0, 0.0, 10.0, 10.0])
        >>> round(pairwise_iou(cut_box(box, 0.75, np.random.default_rng(0))[None], box[None]).item(), 6)
        0.75
    """
    # Numbers of sides in x1, y1, x2, y2, where the opposite side stands two places on.
    side = int(draw.integers(4))
    opposite = (side + 2) % 4
    cut = box.copy()
    # The part lies inside of the whole box, so that its IoU is the share of the length that is left.
    cut[side] = box[opposite] + iou * (box[side] - box[opposite])
    return cut


def with_small_findings(images: Sequence[AuditImage]) -> list[AuditImage]:
    """The images with each finding replaced by a small square in its middle, whose side is 40/1024 of the shorter side.

    Example:
        >>> image, = with_small_findings(images_of([{"boxes": [[0, 0, 512, 512]], "labels": ["mass"], "width": 1024,
        ...     "height": 2048}]))
        >>> image.boxes.tolist()
        [[236.0, 236.0, 276.0, 276.0]]
    """
    changed = []
    for image in images:
        # Width and height.
        size = np.array(image.size[:2])
        half_side = _SMALL * size.min() / 2
        middle = (image.boxes[:, :2] + image.boxes[:, 2:]) / 2
        # A finding at an edge has its square moved inwards, so that it is inside the image.
        middle = np.clip(middle, half_side, size - half_side)
        changed.append(replace(image, boxes=np.concatenate([middle - half_side, middle + half_side], axis=1)))
    return changed

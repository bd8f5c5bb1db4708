"""Counts and histograms of the boxes and labels of a dataset."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grounding_rewards.doctor.box_defects import box_defect, is_placeholder
from grounding_rewards.doctor.raw_rows import ImageRow

#: Edges of the histograms: share of the image's area, width / height, shorter side in pixels that the model sees.
AREA_EDGES = np.logspace(-6, 0, 25)
ASPECT_EDGES = np.logspace(-4, 4, 17, base=2)
SIDE_EDGES = np.logspace(0, 11, 23, base=2)
#: Images with this many boxes or more share one bin.
MOST_BOXES = 20

_AREAS, _ASPECTS, _SIDES = AREA_EDGES.tolist(), ASPECT_EDGES.tolist(), SIDE_EDGES.tolist()
_HEAT = 32
_MOST_HEAT_LABELS = 64
_MOST_LABELS = 5000


@dataclass
class Metrics:
    """Counts over all images. Histograms and centres hold sound boxes only.

    Attributes:
        images: images by split.
        splits: as `images`, of rows that could be read.
        with_boxes: images with a box by split; with `reader_boxes`, images on which some reader drew one. A box that
            stands for an image without findings is none.
        boxes: boxes of all right answers: those of each reader, or else `boxes`.
        per_image: images by number of boxes, at most :data:`MOST_BOXES`; of the reader with most boxes.
        areas: histogram of the share of the image, edges :data:`AREA_EDGES`.
        aspects: histogram of width / height, edges :data:`ASPECT_EDGES`.
        sides: histogram of the shorter side in pixels that the model sees, edges :data:`SIDE_EDGES`.
        labels: boxes by label.
        label_images: images by split and label.
        centres: counts of box centres by label, and of all boxes under None; (32, 32), rows from the top.
        longest_gold: tokens of the longest right answer; 0 without a box format.
    """

    images: Counter[str] = field(default_factory=Counter)
    splits: Counter[str] = field(default_factory=Counter)
    with_boxes: Counter[str] = field(default_factory=Counter)
    boxes: int = 0
    per_image: Counter[int] = field(default_factory=Counter)
    areas: np.ndarray = field(default_factory=lambda: np.zeros(len(AREA_EDGES) - 1, dtype=np.int64))
    aspects: np.ndarray = field(default_factory=lambda: np.zeros(len(ASPECT_EDGES) - 1, dtype=np.int64))
    sides: np.ndarray = field(default_factory=lambda: np.zeros(len(SIDE_EDGES) - 1, dtype=np.int64))
    labels: Counter[str] = field(default_factory=Counter)
    label_images: Counter[tuple[str, str]] = field(default_factory=Counter)
    centres: dict[str | None, np.ndarray] = field(default_factory=dict)
    longest_gold: int = 0

    @property
    def rows(self) -> int:
        """Images of all splits."""
        return sum(self.images.values())

    @property
    def negatives(self) -> int:
        """Images without a box."""
        return sum(self.splits.values()) - sum(self.with_boxes.values())

    def add(self, row: ImageRow, size: tuple[float, float] | None, seen: tuple[float, float]) -> None:
        """Count the boxes of one image.

        Args:
            row: the image.
            size: its width and height in pixels; None if they can't be trusted: boxes then enter no histogram.
            seen: width and height at which the model sees the image.
        """
        drawn = [
            [k for k, box in enumerate(drawing.boxes) if not is_placeholder(box, drawing.label(k))]
            for drawing in row.answers
        ]
        counts = list(map(len, drawn))
        self.boxes += sum(counts)
        self.splits[row.split] += 1
        self.with_boxes[row.split] += any(counts)
        self.per_image[min(max(counts), MOST_BOXES)] += 1
        given = [drawing.label(k) for drawing, kept in zip(row.answers, drawn, strict=True) for k in kept]
        labels = [label for label in given if isinstance(label, str)]
        for label in labels:
            if label in self.labels or len(self.labels) < _MOST_LABELS:
                self.labels[label] += 1
        for label in set(labels):
            if label in self.labels:
                self.label_images[row.split, label] += 1
        if size is None:
            return
        for drawing in row.answers:
            for index, box in enumerate(drawing.boxes):
                if box_defect(box, size) is None:
                    self._measure(box, drawing.label(index), size, seen)

    def _measure(self, box: Sequence[float], label: Any, size: tuple[float, float], seen: tuple[float, float]) -> None:
        """Count a sound box into the histograms."""
        x1, y1, x2, y2 = box[0] / size[0], box[1] / size[1], box[2] / size[0], box[3] / size[1]
        shorter = min((box[2] - box[0]) * seen[0] / size[0], (box[3] - box[1]) * seen[1] / size[1])
        _count(self.areas, _AREAS, (x2 - x1) * (y2 - y1))
        _count(self.aspects, _ASPECTS, (box[2] - box[0]) / (box[3] - box[1]))
        _count(self.sides, _SIDES, shorter)
        x, y = (min(max(int((low + high) / 2 * _HEAT), 0), _HEAT - 1) for low, high in ((x1, x2), (y1, y2)))
        for key in (None, label) if isinstance(label, str) else (None,):
            if key not in self.centres and len(self.centres) <= _MOST_HEAT_LABELS:
                self.centres[key] = np.zeros((_HEAT, _HEAT), dtype=np.int64)
            if key in self.centres:
                self.centres[key][y, x] += 1

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "images": dict(self.images),
            "negatives": self.negatives,
            "boxes": self.boxes,
            "boxes_per_image": {str(n): count for n, count in sorted(self.per_image.items())},
            "box_area_share": {"edges": AREA_EDGES.tolist(), "counts": self.areas.tolist()},
            "box_aspect": {"edges": ASPECT_EDGES.tolist(), "counts": self.aspects.tolist()},
            "shorter_side_seen": {"edges": SIDE_EDGES.tolist(), "counts": self.sides.tolist()},
            "labels": dict(self.labels.most_common()),
            "longest_gold_answer_tokens": self.longest_gold or None,
        }


def _count(counts: np.ndarray, edges: Sequence[float], value: float) -> None:
    """Add one to the bin of a value; what lies beyond the ends counts in the first or last. Few values: no numpy."""
    counts[min(max(bisect_right(edges, value) - 1, 0), len(counts) - 1)] += 1

"""Counts and histograms of the boxes and labels of a dataset."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grounding_rewards.doctor.case import Case

#: Edges of the histograms: share of the image's area, width / height, shorter side in pixels that the model sees.
AREA_EDGES = np.logspace(-6, 0, 25)
ASPECT_EDGES = np.logspace(-4, 4, 17, base=2)
SIDE_EDGES = np.logspace(0, 11, 23, base=2)
#: Images with this many boxes or more share one bin.
MOST_BOXES = 20

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

    @classmethod
    def of(cls, case: Case) -> Metrics:
        """The counts of a dataset."""
        table, metrics = case.table, cls(case.images, longest_gold=case.longest_gold)
        for row, count in zip(case.rows, case.counts, strict=True):
            metrics.splits[row.split] += 1
            metrics.with_boxes[row.split] += bool(count)
            metrics.per_image[min(count, MOST_BOXES)] += 1
        defects = np.array([defect == "negative-placeholder" for defect in table.defects], dtype=bool)
        metrics.boxes = int((table.answers & ~defects).sum())
        metrics.labels = Counter(dict(case.labels.most_common(_MOST_LABELS)))
        images = {(place.row.split, place.label, place.row.number) for place in case.labelled()}
        metrics.label_images = Counter((split, label) for split, label, _ in images if label in metrics.labels)
        # Of the sound boxes, in parts of the image.
        chosen = table.sound & table.answers
        start, sides = table.parts[chosen, :2], table.parts[chosen, 2:] - table.parts[chosen, :2]
        shape = table.numbers[chosen, 2:] - table.numbers[chosen, :2]
        metrics.areas = _histogram(sides.prod(axis=1), AREA_EDGES)
        metrics.aspects = _histogram(shape[:, 0] / shape[:, 1], ASPECT_EDGES)
        metrics.sides = _histogram((sides * table.seen[chosen]).min(axis=1), SIDE_EDGES)
        x, y = np.clip(((start + sides / 2) * _HEAT).astype(int), 0, _HEAT - 1).T
        labels = np.array([str(table.places[k].label) for k in np.flatnonzero(chosen)], dtype=np.str_)
        for label in (None, *(label for label, _ in metrics.labels.most_common(_MOST_HEAT_LABELS))):
            here = np.ones(len(x), dtype=bool) if label is None else labels == label
            if here.any():
                cells = np.bincount(y[here] * _HEAT + x[here], minlength=_HEAT**2)
                metrics.centres[label] = cells.reshape(_HEAT, _HEAT)
        return metrics

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


def _histogram(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """How many values are in each bin; what lies beyond the ends counts in the first or last."""
    return np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]

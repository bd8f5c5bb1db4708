"""Counts and histograms of the boxes and labels of a dataset."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grounding_rewards.doctor.context import Context

#: Edges of the histograms: share of the image's area, width / height, shorter side in pixels that the model sees.
AREA_EDGES = np.logspace(-6, 0, 25)
ASPECT_EDGES = np.logspace(-4, 4, 17, base=2)
SIDE_EDGES = np.logspace(0, 11, 23, base=2)
#: Images with this many boxes or more share one bin.
MOST_BOXES = 20

# Cells of a side of the maps, labels with maps, labels that are listed.
_CELLS = 32
_MAX_MAPS = 64
_MAX_LABELS = 5000


@dataclass
class Metrics:
    """Counts over all images. Histograms and centres hold sound boxes only.

    Attributes:
        images: images by split.
        negatives: images without a box of any reader; a box that stands for an image without findings is none.
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
    negatives: int = 0
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

    @classmethod
    def of(cls, context: Context) -> Metrics:
        """The counts of a dataset."""
        table, metrics = context.table, cls(context.images, longest_gold=context.longest_gold)
        metrics.labels = Counter(dict(context.labels.most_common(_MAX_LABELS)))
        metrics.negatives = context.counts.count(0)
        metrics.per_image.update(min(count, MOST_BOXES) for count in context.counts)
        for split, label, _ in {(place.row.split, place.label, place.row.number) for place in context.labelled()}:
            if label in metrics.labels:
                metrics.label_images[split, label] += 1
        is_placeholder = np.array([defect == "negative-placeholder" for defect in table.defects], dtype=bool)
        metrics.boxes = int((table.answers & ~is_placeholder).sum())
        # Of the sound boxes, in parts of the image.
        sound_boxes = table.sound & table.answers
        parts = table.parts[sound_boxes]
        sides = parts[:, 2:] - parts[:, :2]
        pixels = table.numbers[sound_boxes, 2:] - table.numbers[sound_boxes, :2]
        metrics.areas = _histogram(sides.prod(axis=1), AREA_EDGES)
        metrics.aspects = _histogram(pixels[:, 0] / pixels[:, 1], ASPECT_EDGES)
        metrics.sides = _histogram((sides * table.seen[sound_boxes]).min(axis=1), SIDE_EDGES)
        labels = np.array([str(table.places[k].label) for k in np.flatnonzero(sound_boxes)], dtype=np.str_)
        for label in (None, *(label for label, _ in metrics.labels.most_common(_MAX_MAPS))):
            is_shown = np.ones(len(parts), dtype=bool) if label is None else labels == label
            if is_shown.any():
                metrics.centres[label] = _cells(parts[is_shown, :2] + sides[is_shown] / 2)
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


def _cells(points: np.ndarray) -> np.ndarray:
    """How many of (x, y) in [0, 1] lie in each cell, rows from the top."""
    x, y = np.clip((points * _CELLS).astype(int), 0, _CELLS - 1).T
    return np.bincount(y * _CELLS + x, minlength=_CELLS**2).reshape(_CELLS, _CELLS)


def _histogram(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """How many values are in each bin; what lies beyond the ends counts in the first or last."""
    return np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]

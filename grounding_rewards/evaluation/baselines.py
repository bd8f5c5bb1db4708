"""Answers that need no look at the film: what a trained model must beat."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import as_box_array

#: The boxes and labels of one answer; the boxes in pixels of the film.
BoxAnswer = tuple[NDArray[np.float64], list[str]]


def mean_boxes(rows: Iterable[Mapping[str, Any]]) -> dict[str, NDArray[np.float64]]:
    """The mean training box of every label that at least half of the films carry.

    Where no label is that common (findings come and go), there is no constant answer worth giving, and the
    result is empty.

    Args:
        rows: training films with ``boxes``, ``labels``, ``width`` and ``height``.

    Returns:
        For each such label one box ``(4,)`` as a fraction of the film's width and height.

    Example:
        >>> row = {"boxes": [[0, 0, 50, 100]], "labels": ["right lung"], "width": 100, "height": 200}
        >>> mean_boxes([row, {**row, "boxes": [[0, 0, 30, 100]]}])
        {'right lung': array([0. , 0. , 0.4, 0.5])}
    """
    films = 0
    seen: dict[str, list[NDArray[np.float64]]] = defaultdict(list)
    carried: dict[str, int] = defaultdict(int)
    for row in rows:
        films += 1
        size = np.array([row["width"], row["height"]] * 2, dtype=np.float64)
        for box, label in zip(as_box_array(row["boxes"]), row["labels"], strict=True):
            seen[label].append(box / size)
        for label in set(row["labels"]):
            carried[label] += 1
    return {label: np.mean(boxes, axis=0) for label, boxes in seen.items() if 2 * carried[label] >= films}


def constant_answer(boxes: Mapping[str, NDArray[np.float64]], *, width: float, height: float) -> BoxAnswer:
    """The mean boxes put on one film.

    Args:
        boxes: from :func:`mean_boxes`.
        width: of the film in pixels.
        height: of the film in pixels.

    Example:
        >>> constant_answer({"heart": np.array([0.25, 0.5, 0.75, 1.0])}, width=100, height=200)
        (array([[ 25., 100.,  75., 200.]]), ['heart'])
    """
    size = np.array([width, height] * 2, dtype=np.float64)
    return np.array(list(boxes.values())).reshape(-1, 4) * size, list(boxes)


def whole_image_answer(label: str, *, width: float, height: float) -> BoxAnswer:
    """One box around everything.

    Args:
        label: that the box is given.
        width: of the film in pixels.
        height: of the film in pixels.

    Example:
        >>> whole_image_answer("nodule", width=100, height=200)
        (array([[  0.,   0., 100., 200.]]), ['nodule'])
    """
    return np.array([[0.0, 0.0, width, height]]), [label]

"""Sizes of boxes: parts of the image, or COCO's, in pixels of the image."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.common.arithmetic import Array


class Area(NamedTuple):
    """A range of box sizes: ``of`` is `pixels`, or `image` for fractions of the image's area.

    In pixels both ends belong to the range, as in COCO; in fractions ``high`` does not, so that neighbouring ranges
    share no box.
    """

    low: float
    high: float
    of: str = "pixels"

    def holds(self, areas: Array, image_areas: Array) -> NDArray[np.bool_]:
        """Which boxes have a size in this range.

        Args:
            areas: of boxes, in pixels of the image.
            image_areas: of the image of each box, in pixels.

        Example:
            >>> Area(0, 0.01, "image").holds(np.array([50.0, 200.0]), np.array([10_000.0, 10_000.0]))
            array([ True, False])
        """
        sizes = areas / image_areas if self.of == "image" else areas
        below = sizes < self.high if self.of == "image" else sizes <= self.high
        return np.asarray((sizes >= self.low) & below, dtype=bool)


#: COCO's sizes. On an image of 2500 by 3000 pixels nearly every finding is `large`.
COCO_AREAS: dict[str, Area] = {
    "all": Area(0, 1e10),
    "small": Area(0, 32**2),
    "medium": Area(32**2, 96**2),
    "large": Area(96**2, 1e10),
}

#: Sizes that do not depend on how many pixels an image has.
IMAGE_AREAS: dict[str, Area] = {
    "small, below 1 % of the image": Area(0, 0.01, "image"),
    "medium, 1 % to 10 % of the image": Area(0.01, 0.1, "image"),
    "large, above 10 % of the image": Area(0.1, float("inf"), "image"),
}

#: The sets of sizes by which metrics are split.
SIZES: dict[str, dict[str, Area]] = {
    "image": IMAGE_AREAS,
    "coco": {
        "small, below 32² pixels": COCO_AREAS["small"],
        "medium, 32² to 96² pixels": COCO_AREAS["medium"],
        "large, above 96² pixels": COCO_AREAS["large"],
    },
}

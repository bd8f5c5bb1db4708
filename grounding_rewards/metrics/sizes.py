"""Sizes of boxes: parts of the film, or COCO's, in pixels of the film."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.arithmetic import Array


class Area(NamedTuple):
    """A range of box sizes: ``of`` is `pixels`, or `film` for fractions of the film's area.

    In pixels both ends belong to the range, as in COCO; in fractions ``high`` does not, so that neighbouring ranges
    share no box.
    """

    low: float
    high: float
    of: str = "pixels"

    def holds(self, areas: Array, film_areas: Array) -> NDArray[np.bool_]:
        """Which boxes have a size in this range.

        Args:
            areas: of boxes, in pixels of the film.
            film_areas: of the film of each box, in pixels.

        Example:
            >>> Area(0, 0.01, "film").holds(np.array([50.0, 200.0]), np.array([10_000.0, 10_000.0]))
            array([ True, False])
        """
        sizes = areas / film_areas if self.of == "film" else areas
        below = sizes < self.high if self.of == "film" else sizes <= self.high
        return np.asarray((sizes >= self.low) & below, dtype=bool)


#: COCO's sizes. On a film of 2500 by 3000 pixels nearly every finding is `large`.
COCO_AREAS: dict[str, Area] = {
    "all": Area(0, 1e10),
    "small": Area(0, 32**2),
    "medium": Area(32**2, 96**2),
    "large": Area(96**2, 1e10),
}

#: Sizes that do not depend on how many pixels a film has.
FILM_AREAS: dict[str, Area] = {
    "small, below 1 % of the film": Area(0, 0.01, "film"),
    "medium, 1 % to 10 % of the film": Area(0.01, 0.1, "film"),
    "large, above 10 % of the film": Area(0.1, float("inf"), "film"),
}

#: The sets of sizes by which figures are split.
SIZES: dict[str, dict[str, Area]] = {
    "film": FILM_AREAS,
    "coco": {
        "small, below 32² pixels": COCO_AREAS["small"],
        "medium, 32² to 96² pixels": COCO_AREAS["medium"],
        "large, above 96² pixels": COCO_AREAS["large"],
    },
}

"""Pairs of predicted and reference boxes on one film.

Predicted and reference boxes are paired one to one so that the sum of their IoUs is largest, whatever their labels;
boxes that do not overlap are no partners. A pair is a hit from an IoU on; a predicted box that is no hit and has at
least that part of its area in one ignored region does not count, as in the rewards. The pairs are those of
:class:`grounding_rewards.metrics.counts.MatchedFilms`, here box by box.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.arithmetic import Array
from grounding_rewards.ignore_regions import covered_share, is_ignored
from grounding_rewards.metrics.answered_film import AnsweredFilm
from grounding_rewards.metrics.counts import MatchedFilms


class BoxPairs(NamedTuple):
    """Of one film with m reference and n predicted boxes.

    ious: ``(m,)`` IoU of each reference box with its partner, 0 without one.
    partners: ``(m,)`` index of the partner among the predicted boxes, -1 without one.
    covered: ``(n,)`` the largest part of each predicted box that lies in one ignored region.
    """

    ious: Array
    partners: NDArray[np.int64]
    covered: Array

    @property
    def pred_ious(self) -> Array:
        """The IoU of each predicted box with its partner, ``(n,)``, 0 without one.

        Example:
            >>> pair_film(AnsweredFilm("a", 9, 9, gt=[[0, 0, 4, 4]], gt_labels=["x"], pred=[[0, 0, 4, 2]])).pred_ious
            array([0.5])
        """
        ious, paired = np.zeros(len(self.covered)), self.partners >= 0
        ious[self.partners[paired]] = self.ious[paired]
        return ious

    def hits(self, iou_threshold: float) -> NDArray[np.bool_]:
        """Which reference boxes, ``(m,)``, have a partner of at least this IoU.

        Example:
            >>> pair_film(AnsweredFilm("a", 9, 9, gt=[[0, 0, 4, 4]], gt_labels=["x"], pred=[[0, 0, 4, 2]])).hits(0.5)
            array([ True])
        """
        return (self.partners >= 0) & (self.ious >= iou_threshold)

    def counted(self, iou_threshold: float) -> NDArray[np.bool_]:
        """Which predicted boxes, ``(n,)``, count: hits, and those that no ignored region covers.

        Example:
            >>> pair_film(AnsweredFilm("a", 9, 9, pred=[[0, 0, 4, 4]], ignore=[[0, 0, 4, 3]])).counted(0.5)
            array([False])
        """
        right = np.zeros(len(self.covered), dtype=bool)
        right[self.partners[self.hits(iou_threshold)]] = True
        return ~is_ignored(self.covered, right, iou_threshold)


# Every figure of a film asks for the pairs of that film before the next film comes.
@lru_cache(maxsize=2)
def pair_film(film: AnsweredFilm) -> BoxPairs:
    """Pair the predicted with the reference boxes of a film.

    Example:
        >>> film = AnsweredFilm("a", 9, 9, gt=[[0, 0, 4, 4]], gt_labels=["x"], pred=[[6, 6, 9, 9], [0, 0, 4, 2]])
        >>> pair_film(film)
        BoxPairs(ious=array([0.5]), partners=array([1]), covered=array([0., 0.]))
    """
    pairs = MatchedFilms([film]).pairs
    ious, partners = np.zeros(len(film.gt)), np.full(len(film.gt), -1, dtype=np.int64)
    (i,) = np.nonzero(pairs.matched[0] >= 0)
    ious[pairs.matched[0, i]], partners[pairs.matched[0, i]] = pairs.iou[0, i], i
    return BoxPairs(ious, partners, covered_share(film.pred, film.ignore))

"""Are boxes of a stated confidence right that often?

A predicted box is right when it is a hit from the threshold on (see :mod:`grounding_rewards.metrics.counts`). Boxes are
put in bins of equal width by their confidence; the expected calibration error is the mean over boxes of the distance
between the mean confidence and the share of right boxes of their bin:

    ECE = Σ_bins (boxes in the bin / all boxes) · |precision - mean confidence|

It says nothing about findings that were missed. It is never negative, so few boxes alone make it large: with 100 boxes
of a perfectly calibrated model an ECE of 0.1 is nothing unusual.

Source: Naeini et al., Obtaining Well Calibrated Probabilities Using Bayesian Binning, AAAI 2015.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.common.arithmetic import Array
from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.counts import MatchedImages

_BINS = 10


class Calibration(NamedTuple):
    """How often boxes of a stated confidence are right.

    ``confidence`` and ``precision`` are the means of each bin that has a box, ``counts`` their numbers of boxes;
    ``error`` is the expected calibration error.
    """

    confidence: Array
    precision: Array
    counts: NDArray[np.int64]
    error: float


def calibration(
    images: Iterable[AnsweredImage], *, iou_threshold: float = 0.5, label_matching: str = "ignore"
) -> Calibration | None:
    """How often boxes of a stated confidence are right, in ten bins.

    Left out are ignored boxes and boxes without a confidence in [0, 1].

    Args:
        images: answered images.
        iou_threshold: IoU from which a box is right.
        label_matching: ``"ignore"``, ``"exact"`` or ``"synonyms"``: whether a box is right only under the finding's
            label.

    Returns:
        The bins that have a box, by rising confidence; None where no box states a confidence in [0, 1].

    Example:
        >>> image = AnsweredImage("a", 99, 99, gt=[[0, 0, 9, 9]], gt_labels=["mass"],
        ...                     pred=[[0, 0, 9, 9], [20, 20, 30, 30]], pred_scores=[0.9, 0.6])
        >>> found = calibration([image])
        >>> found.confidence, found.precision, found.counts, round(found.error, 2)
        (array([0.6, 0.9]), array([0., 1.]), array([1, 1]), 0.35)
    """
    scores, right = [np.zeros(0)], [np.zeros(0, dtype=bool)]
    for image, found, counted in MatchedImages(tuple(images), label_matching=label_matching).by_image(iou_threshold):
        kept = counted & (image.pred_scores >= 0) & (image.pred_scores <= 1)
        scores.append(image.pred_scores[kept])
        right.append(found[kept] >= 0)
    score, is_right = np.concatenate(scores), np.concatenate(right)
    if not score.size:
        return None
    # A confidence of 1 belongs to the last bin.
    bins = np.minimum((score * _BINS).astype(np.int64), _BINS - 1)
    counts = np.bincount(bins, minlength=_BINS)
    used = counts > 0
    confidence = np.bincount(bins, score, _BINS)[used] / counts[used]
    precision = np.bincount(bins, is_right, _BINS)[used] / counts[used]
    error = float(np.abs(precision - confidence) @ counts[used] / score.size)
    return Calibration(confidence, precision, counts[used], error)

"""Hits of predicted and reference boxes on one image.

Hits from an IoU on are as many as there can be. A predicted box that is no hit and that an ignored region excuses does
not count, as in the rewards. These are the rules of :class:`grounding_rewards.metrics.detection.MatchedImages`, here
image by image, so that the two can be compared.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.common.numeric import Array
from grounding_rewards.common.validation import check_word
from grounding_rewards.matching import LABEL_MATCHING, LabelCodes, excused_boxes, match_batch
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.overlap import pairwise_iou


class BoxPairs(NamedTuple):
    """Of one image with m reference and n predicted boxes.

    image: with its answer.
    overlaps: ``(n, m)`` IoU of each predicted with each reference box, 0 where their labels are compared and disagree.
    """

    image: Prediction
    overlaps: Array

    def found(self, iou_threshold: float) -> NDArray[np.int64]:
        """The reference box, ``(n,)``, that each predicted box is right about from this IoU on, -1 for none."""
        return match_batch(self.overlaps[None], iou_threshold, matching="most_hits")[0]

    def hits(self, iou_threshold: float) -> NDArray[np.bool_]:
        """Which reference boxes, ``(m,)``, a predicted box is right about from this IoU on."""
        return np.isin(np.arange(len(self.image.gt)), self.found(iou_threshold))

    def counted(self, iou_threshold: float) -> NDArray[np.bool_]:
        """Which predicted boxes, ``(n,)``, count: hits, and those that no ignored region excuses."""
        image = self.image
        return ~excused_boxes(image.pred, image.gt, image.ignore, self.found(iou_threshold) >= 0)


def pair_image(image: Prediction, label_matching: str = "ignore") -> BoxPairs:
    """Pair the predicted with the reference boxes of an image."""
    check_word("label_matching", label_matching, LABEL_MATCHING)
    overlaps = pairwise_iou(image.pred, image.gt)
    if label_matching != "ignore":
        codes = LabelCodes.of(image.pred_labels, image.gt_labels, label_matching)
        overlaps = np.where(codes.agree(codes.pred[:, None], codes.gt), overlaps, 0.0)
    return BoxPairs(image, overlaps)

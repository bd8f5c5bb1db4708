"""Which boxes can be ranked."""

from __future__ import annotations

import numpy as np

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.ranking import states_confidences
from tests.metrics.random_images import random_images


def test_confidences_are_stated_for_all_boxes_or_not() -> None:
    images = random_images(0)
    assert states_confidences(images)
    assert states_confidences([])
    assert not states_confidences(
        [*images, AnsweredImage("a", 9, 9, pred=[[0, 0, 5, 5]] * 2, pred_scores=[0.5, np.nan])]
    )

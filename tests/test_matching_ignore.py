"""The rule of ignored regions on single images and on padded batches."""

import numpy as np
import pytest

from grounding_rewards.matching import covered_share, is_ignored
from tests.conftest import random_boxes


def test_the_share_is_of_one_region_not_of_their_union():
    # by hand: two halves of a box lie in two regions
    assert covered_share([[0, 0, 10, 10]], [[0, 0, 10, 5], [0, 5, 10, 10]]) == [0.5]


@pytest.mark.parametrize("regions", [np.zeros((0, 4)), np.full((2, 4), np.nan), [[5, 5, 0, 0]]])
def test_without_a_valid_region_nothing_is_covered(regions):
    assert covered_share([[0, 0, 10, 10], [0, 0, 0, 0]], regions).tolist() == [0.0, 0.0]


def test_a_padded_batch_is_its_images():
    rng = np.random.default_rng(0)
    images = [(random_boxes(rng, 3), random_boxes(rng, k)) for k in range(4)]
    regions = np.full((4, 3, 4), np.nan)
    for row, (_, own) in enumerate(images):
        regions[row, : len(own)] = own
    together = covered_share(np.stack([pred for pred, _ in images]), regions)
    assert together.tolist() == [covered_share(pred, own).tolist() for pred, own in images]


def test_the_threshold_itself_ignores_and_a_match_never_is():
    share, matched = np.array([0.5, 0.5, 0.49]), np.array([False, True, False])
    assert is_ignored(share, matched, 0.5).tolist() == [True, False, False]

"""Pairs of one image, and that they give what the rewards give."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards import get_reward
from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.overlap import pairwise_iou
from tests.conftest import box_lists, valid_box_lists
from tests.metrics.image_pairs import pair_image


def image(pred: Any, gt: Any, ignore: Any = ()) -> AnsweredImage:
    return AnsweredImage("a", 20, 20, gt=gt, gt_labels=["x"] * len(gt), pred=pred, ignore=ignore)


@given(box_lists(), valid_box_lists(max_size=4), valid_box_lists(max_size=2), st.sampled_from([0.3, 0.5, 0.75]))
def test_hits_and_false_boxes_are_those_of_the_reward(pred: Any, gt: Any, ignore: Any, threshold: float) -> None:
    reward = get_reward("R3", matching="most_hits", iou_threshold=threshold)
    explained = reward.explain(pred, gt, ignore=ignore)
    pairs = pair_image(image(pred, gt, ignore))
    assert pairs.hits(threshold).sum() == explained.tp
    assert pairs.counted(threshold).sum() == explained.tp + explained.fp
    found = pairs.found(threshold)
    assert [(i, j) for i, j in enumerate(found.tolist()) if j >= 0] == list(explained.matches)


@pytest.mark.parametrize(
    ("pred", "gt", "ignore", "hits", "counted"),
    [
        # half of the reference: IoU 0.5 counts
        ([[0, 0, 10, 5]], [[0, 0, 10, 10]], [], [True], [True]),
        # a hit counts also in an ignored region
        ([[0, 0, 10, 5]], [[0, 0, 10, 10]], [[0, 0, 20, 20]], [True], [True]),
        # a pair below the threshold is no hit, and its box touches a finding: no region excuses it
        ([[0, 0, 10, 4]], [[0, 0, 10, 10]], [[0, 0, 20, 20]], [False], [True]),
        # a region excuses one box
        ([[12, 12, 14, 14], [15, 15, 17, 17]], [[0, 0, 10, 10]], [[11, 11, 20, 20]], [False], [False, True]),
        # two regions that hold 0.4 of the box each ignore nothing: none holds half
        ([[0, 0, 10, 10]], [], [[0, 0, 4, 10], [6, 0, 10, 10]], [], [True]),
        # an invalid box lies nowhere
        ([[5, 5, 0, 0]], [], [[0, 0, 20, 20]], [], [True]),
        ([], [[0, 0, 10, 10]], [], [False], []),
    ],
)
def test_pairs_by_hand(pred: Any, gt: Any, ignore: Any, hits: list[bool], counted: list[bool]) -> None:
    pairs = pair_image(image(pred, gt, ignore))
    assert pairs.hits(0.5).tolist() == hits
    assert pairs.counted(0.5).tolist() == counted


@given(valid_box_lists(max_size=4), valid_box_lists(max_size=4))
def test_pairing_is_the_best_of_all(pred: list[list[float]], gt: list[list[float]]) -> None:
    pairs = pair_image(image(pred, gt))
    iou = pairwise_iou(np.reshape(pred, (-1, 4)), np.reshape(gt, (-1, 4)))
    few, many = sorted(iou.shape)
    wide = iou if iou.shape[0] == few else iou.T
    best = max(sum(wide[i, j] for i, j in enumerate(order)) for order in permutations(range(many), few))
    assert pairs.ious.sum() == pytest.approx(best)
    used = [partner for partner in pairs.partners if partner >= 0]
    assert len(set(used)) == len(used)
    for j, partner in enumerate(pairs.partners):
        assert pairs.ious[j] == (iou[partner, j] if partner >= 0 else 0)


def test_boxes_that_do_not_overlap_are_no_partners() -> None:
    pairs = pair_image(image([[0, 0, 10, 5], [15, 15, 16, 16]], [[0, 0, 10, 10], [11, 0, 14, 10]]))
    assert pairs.ious.tolist() == [0.5, 0.0]
    assert pairs.partners.tolist() == [0, -1]


def test_labels_that_disagree_are_no_partners() -> None:
    one = AnsweredImage("a", 9, 9, gt=[[0, 0, 4, 4]], gt_labels=["left lung"], pred=[[0, 0, 4, 4]] * 2)
    named = replace(one, pred_labels=("right lung", "Left  lung"))
    assert pair_image(named).partners.tolist() == [0]
    assert pair_image(named, "exact").partners.tolist() == [1]
    assert pair_image(replace(named, pred_labels=("right lung", None)), "exact").hits(0.5).tolist() == [False]
    with pytest.raises(ValueError, match="`label_matching`"):
        pair_image(named, "fuzzy")

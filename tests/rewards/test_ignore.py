"""Ignore regions: each excuses one prediction that matches and touches nothing."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import grounding_rewards as gr
from grounding_rewards.boxes import BoxBatch
from grounding_rewards.matching import MATCHERS
from grounding_rewards.rewards.average_precision import INTERPOLATIONS, RANKINGS
from tests.conftest import box_lists, valid_box_lists
from tests.rewards.test_rewards import NAMES
from tests.tables import table

GT = [[0, 0, 10, 10]]
HIT = [0, 0, 10, 8]
LONE = [50, 50, 60, 60]  # what one reader drew
REGION = [[50, 50, 60, 60]]
FAR = [[5000, 5000, 5100, 5100]]

#: Every option that decides what a box earns.
EVERY = [
    *(
        gr.get_reward("R1", ranking=ranking, interpolation=points, matching=matching)
        for ranking, points, matching in product(RANKINGS, INTERPOLATIONS, MATCHERS)
    ),
    *(gr.get_reward(name, matching=matching) for name, matching in product(NAMES[1:], MATCHERS)),
    *(gr.get_reward("R3", matching=matching, ignore_many=True) for matching in MATCHERS),
    *(gr.get_reward("R4", center_weight=0.5, iou_threshold=0.2, matching=matching) for matching in MATCHERS),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("pred", "gt", "ignore", "like"), table("rewards/by_hand", "ignore"))
def test_by_hand(name, pred, gt, ignore, like):
    reward = gr.get_reward(name)
    expected = reward.score(*like) if like else reward.score(pred, gt)
    assert reward.score(pred, gt, ignore=ignore) == expected


def test_the_share_that_has_to_lie_inside_is_the_rewards_own():
    reward = gr.get_reward("R3", iou_threshold=0.9, ignore_threshold=0.3)
    assert reward.score([[43, 50, 53, 60], *GT], GT, ignore=REGION) == 1
    assert reward.score([[42.9, 50, 52.9, 60], *GT], GT, ignore=REGION) < 1


def test_explanation():
    explained = gr.get_reward("R3").explain([LONE, HIT, [80, 80, 90, 90]], [*GT, [20, 20, 30, 30]], ignore=REGION)
    assert explained.ignored == (0,)
    assert (explained.tp, explained.fp, explained.fn) == (1, 1, 1)
    assert (explained.precision, explained.recall) == (1 / 2, 1 / 2)
    assert explained.matches == ((1, 0),)


def score(reward, pred, gt, ignore, scores):
    batch = {"pred": BoxBatch.of([pred], "pred"), "gt": BoxBatch.of([gt], "gt")}
    stated = np.array(scores[: len(pred)], dtype=float)
    return reward.box_reward.match_and_score(**batch, scores=stated, ignore=BoxBatch.of([ignore], "ignore"))


CONFIDENCES = st.lists(st.sampled_from([0.1, 0.5, 0.9, np.nan]), min_size=6, max_size=6)


@settings(max_examples=25)
@given(box_lists(), valid_box_lists(), valid_box_lists(max_size=3), valid_box_lists(1, 1), CONFIDENCES)
def test_another_region_never_lowers_a_reward(pred, gt, ignore, more, scores):
    for reward in EVERY:
        before = score(reward, pred, gt, ignore, scores)
        after = score(reward, pred, gt, [*ignore, *more], scores)
        assert after.reward >= before.reward - 1e-12, reward
        assert 0 <= after.reward <= 1
        assert after.matched.tolist() == before.matched.tolist()


@settings(max_examples=25)
@given(box_lists(), valid_box_lists(), CONFIDENCES)
def test_a_region_far_from_all_boxes_changes_nothing(pred, gt, scores):
    for reward in EVERY:
        near, far = score(reward, pred, gt, [], scores), score(reward, pred, gt, FAR, scores)
        assert far.explanations() == near.explanations(), reward


@given(box_lists(), valid_box_lists(max_size=3), st.sampled_from(EVERY))
def test_on_an_image_without_findings_no_box_earns_more_than_none(pred, ignore, reward):
    earned, silent = reward.score(pred, [], ignore=ignore), reward.score([], [], ignore=ignore)
    left = len(pred) - len(reward.explain(pred, [], ignore=ignore).ignored)
    assert silent == reward.score([], [])
    assert earned == (silent if left == 0 else 0.0)

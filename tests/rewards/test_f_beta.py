"""soft_f1: F-beta without a threshold, and its signal where boxes do not overlap."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

import grounding_rewards as gr
from grounding_rewards.rewards.f_beta import APART, OVERLAPS, QUALITIES
from tests.conftest import valid_box_lists
from tests.tables import table
from tests.test_overlap import scalar_iou


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("pred", "gt", "options", "expected"), table("rewards/by_hand", "soft_f1"))
def test_by_hand(pred, gt, options, expected):
    assert gr.get_reward("soft_f1", **options).score(pred, gt) == pytest.approx(expected, abs=1e-12)


@given(valid_box_lists(), valid_box_lists(), st.sampled_from([0.5, 1.0, 1.5]), st.sampled_from(sorted(QUALITIES)))
def test_equal_to_scipys_assignment(pred, gt, beta, quality):
    credit = QUALITIES[quality](np.array([[scalar_iou(p, g) for g in gt] for p in pred]).reshape(len(pred), len(gt)))
    mass = credit[linear_sum_assignment(credit, maximize=True)].sum()
    if not pred and not gt:
        expected = 0.2
    elif mass == 0:
        expected = 0.0
    else:
        p, r = mass / len(pred), mass / len(gt)
        expected = (1 + beta**2) * p * r / (beta**2 * p + r)
    reward = gr.get_reward("soft_f1", beta=beta, quality=quality)
    assert reward.score(pred, gt) == pytest.approx(expected, abs=1e-12)


@given(valid_box_lists(1, 1), valid_box_lists(1, 1), st.floats(0, 1), st.sampled_from(OVERLAPS))
def test_a_box_moved_straight_towards_the_finding_never_loses(pred, gt, way, overlap):
    box, finding = np.array(pred[0]), np.array(gt[0])
    to_centre = (finding[:2] + finding[2:] - box[:2] - box[2:]) / 2
    nearer = box + way * np.tile(to_centre, 2)
    # Rounding may flatten a small box that lies far out.
    assume((nearer[2:] > nearer[:2]).all())
    reward = gr.get_reward("soft_f1", overlap=overlap)
    assert reward.score([nearer], gt) >= reward.score(pred, gt) - 1e-9


@given(valid_box_lists(1, 1), valid_box_lists(1, 1), st.sampled_from(OVERLAPS[1:]))
def test_what_is_not_owed_to_iou_is_at_most_a_tenth(pred, gt, overlap):
    earned = gr.get_reward("soft_f1", overlap=overlap).score(pred, gt) - 0.9 * scalar_iou(pred[0], gt[0])
    assert -1e-12 <= earned <= APART + 1e-12


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_the_whole_image_earns_less_than_an_honest_near_miss_of_a_small_lesion(overlap):
    reward = gr.get_reward("soft_f1", overlap=overlap)
    lesion, beside = [[500, 500, 540, 540]], [[542, 500, 582, 540]]
    near, whole = reward.score(beside, lesion), reward.score([[0, 0, 1024, 1024]], lesion)
    if overlap == "iou":
        assert near == 0
    else:
        assert whole < 0.01 < 0.02 < near

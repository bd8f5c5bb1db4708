"""What docs/rewards.md states that an answer may earn without a look at the image, and when an extra box pays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grounding_rewards as gr
from grounding_rewards.rewards.soft_f1 import APART, OVERLAPS, QUALITIES
from tests.conftest import box_lists, valid_box_lists


@given(valid_box_lists(1, 4))
def test_the_whole_image(gt):
    side = 18  # the grid of the strategy ends there
    share = max((x2 - x1) * (y2 - y1) for x1, y1, x2, y2 in gt) / side**2
    whole = [[0, 0, side, side]]
    assert gr.get_reward("soft_f1").score(whole, gt) == pytest.approx(2 * share / (1 + len(gt)))
    for name in ("R1", "R2", "R3", "R4", "R5"):
        assert (gr.get_reward(name).score(whole, gt) > 0) == (share >= 0.5)


@given(valid_box_lists(1, 1), st.sampled_from(OVERLAPS), st.sampled_from(sorted(QUALITIES)))
def test_a_box_anywhere_under_soft_f1(gt, overlap, quality):
    most = float(QUALITIES[quality](APART)) if overlap != "iou" else 0.0
    assert gr.get_reward("soft_f1", overlap=overlap, quality=quality).score([[90, 90, 91, 91]], gt) <= most + 1e-12


def test_a_speck_points_as_well_as_the_finding():
    finding = [20.0, 20.0, 60.0, 80.0]
    middle = [39.9, 49.9, 40.1, 50.1]
    assert gr.get_reward("pointing").score([middle], [finding]) == 1
    assert gr.get_reward("soft_f1").score([middle], [finding]) < 0.001


@given(
    st.lists(st.floats(0.5, 1), min_size=1, max_size=4),
    st.floats(0.05, 1),
    st.sampled_from([0.5, 1.0, 1.5]),
    st.sampled_from(["R3", "R4", "R5", "soft_f1"]),
)
def test_when_an_extra_box_pays(ious, extra, beta, name):
    """Exactly where its credit exceeds r / (1 + β²): docs/rewards.md, what pays."""
    gt = [[20 * k, 0, 20 * k + 10, 10] for k in range(len(ious) + 1)]
    reward = gr.get_reward(name, beta=beta, **({} if name == "soft_f1" else {"iou_threshold": 0.01}))
    pred = [[20 * k, 0, 20 * k + 10, 10 * iou] for k, iou in enumerate(ious)]
    more = [[20 * len(ious), 0, 20 * len(ious) + 10, 10 * extra]]
    before, after = reward.score(pred, gt), reward.score([*pred, *more], gt)
    credit = reward.explain(more, [gt[-1]]).quality
    bar = before / (1 + beta**2)
    if not np.isclose(credit, bar, rtol=1e-6):
        assert (after > before) == (credit > bar)


@given(box_lists(), valid_box_lists(1, 1), st.sampled_from(["plain", "geometric"]))
def test_r2_is_r3_where_there_is_one_finding(pred, gt, product):
    r2, r3 = gr.get_reward("R2", product=product), gr.get_reward("R3")
    assert r2.score(pred, gt) == pytest.approx(r3.score(pred, gt), abs=1e-12)

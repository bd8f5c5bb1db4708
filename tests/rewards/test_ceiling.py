"""What a reward says that an answer of n boxes can earn at most is never exceeded, and is reached."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grounding_rewards as gr
from tests.tables import table

SETTINGS = table("rewards/cases", "ceilings")


def ids(setting):
    return " ".join([setting[0], *map(str, setting[1].values())])


def boxes(most):
    corner, side = st.integers(0, 6), st.integers(0, 4)
    box = st.builds(lambda x, y, w, h: [x, y, x + w, y + h], corner, corner, side, side)
    return st.lists(box, max_size=most)


@pytest.mark.parametrize("setting", SETTINGS, ids=ids)
@given(pred=boxes(6), gt=boxes(4), data=st.data())
def test_no_answer_is_above_it(setting, pred, gt, data):
    name, params = setting
    reward = gr.get_reward(name, **params)
    gt = [box for box in gt if box[0] < box[2] and box[1] < box[3]]
    labels = {}
    if "label_matching" in params:
        label = st.sampled_from("ab")
        labels = {"pred_labels": [data.draw(label) for _ in pred], "gt_labels": [data.draw(label) for _ in gt]}
    earned = reward.score(pred, gt, **labels)
    assert earned <= reward.box_reward.ceiling(len(pred), len(gt)) + 1e-9


@pytest.mark.parametrize("setting", [one for one in SETTINGS if "per_label" not in one[1]], ids=ids)
@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 2), (2, 0), (1, 1), (1, 3), (3, 3), (5, 2), (10, 1)])
def test_it_is_reached(setting, n, m):
    """By right boxes first, then copies of nothing that is there."""
    name, params = setting
    gt = [[20 * k, 0, 20 * k + 10, 10] for k in range(m)]
    # without area: a false box that every overlap counts as nothing
    pred = [gt[k] if k < m else [5, 5, 5, 5] for k in range(n)]
    reward = gr.get_reward(name, **params)
    assert reward.score(pred, gt) == pytest.approx(float(reward.box_reward.ceiling(n, m)))


@pytest.mark.parametrize(
    ("name", "n", "m", "expected"),
    # by hand: (1 + β²) hits / (n + β² m); recall; precision × recall
    [("R3", 2, 1, 3.25 / 4.25), ("soft_f1", 2, 1, 2 / 3), ("R1", 9, 1, 1.0), ("R1", 1, 4, 0.25), ("R3", 0, 0, 0.2)],
)
def test_values(name, n, m, expected):
    assert gr.get_reward(name).box_reward.ceiling(n, m) == pytest.approx(expected)


def test_a_reward_of_a_third_party_promises_no_less_than_1():
    class Mine(gr.rewards.BoxReward):
        _pair_up = _combine = None

    np.testing.assert_array_equal(Mine().ceiling([0, 1, 5, 0], [0, 1, 2, 3]), [0.2, 1, 1, 0])

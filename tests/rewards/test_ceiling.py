"""What docs/rewards.md says that an answer of n boxes can earn at most is never exceeded, and is reached."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grounding_rewards as gr
from grounding_rewards.rewards.average_precision import INTERPOLATIONS, AveragePrecisionReward
from tests.tables import table

SETTINGS = table("rewards/cases", "ceilings")


def ids(setting):
    return " ".join([setting[0], *map(str, setting[1].values())])


def ceiling(reward, n, m):
    """The most that n boxes earn on an image with m findings, as docs/rewards.md has it."""
    if m == 0 or n == 0:
        return reward.no_box_bonus * (n == m)
    hits = min(n, m)
    if not isinstance(reward, AveragePrecisionReward):
        return (1 + reward.beta**2) * hits / (n + reward.beta**2 * m)
    if reward.per_label:
        return 1.0
    if reward.ranking == "tied":
        return hits**2 / (n * m)
    levels = INTERPOLATIONS[reward.interpolation]
    return hits / m if levels is None else np.mean(levels <= hits / m)


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
    assert reward.score(pred, gt, **labels) <= ceiling(reward.box_reward, len(pred), len(gt)) + 1e-9


@pytest.mark.parametrize("setting", [one for one in SETTINGS if "per_label" not in one[1]], ids=ids)
@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 2), (2, 0), (1, 1), (1, 3), (3, 3), (5, 2), (10, 1)])
def test_it_is_reached(setting, n, m):
    """By right boxes first, then copies of nothing that is there."""
    name, params = setting
    gt = [[20 * k, 0, 20 * k + 10, 10] for k in range(m)]
    # without area: a false box that every overlap counts as nothing
    pred = [gt[k] if k < m else [5, 5, 5, 5] for k in range(n)]
    reward = gr.get_reward(name, **params)
    assert reward.score(pred, gt) == pytest.approx(ceiling(reward.box_reward, n, m))

"""Published rewards: against numbers by hand, against other code, on any text, and under their own names."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grounding_rewards as gr
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.rewards.published import PUBLISHED
from tests.metrics.coco_oracle import coco_mean_average_precision
from tests.tables import table


@pytest.mark.parametrize(("name", "pred", "gt", "expected"), table("rewards/by_hand", "published"))
def test_by_hand(name: str, pred: list, gt: list, expected: float) -> None:
    assert gr.get_reward(name).score(pred, gt) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", PUBLISHED)
@given(
    text=st.one_of(
        st.text(),
        st.lists(st.lists(st.integers(-5, 1100), min_size=4, max_size=4)).map(str),
        st.just('[{"bbox_2d": [NaN, 1, 2, 3]}, {"bbox_2d": [5, 5, 5, 5]}, {"bbox_2d": [1, 2, 3, 4]}]'),
    )
)
def test_any_text_earns_a_finite_number_in_range(name: str, text: str) -> None:
    reward = gr.get_reward(name, box_format="qwen3-vl")
    for boxes in ([[10, 20, 300, 400]], []):
        (value,) = reward([text], boxes=[boxes], width=[640], height=[480])
        assert 0 <= value <= 1


def test_they_have_names_of_their_own_and_are_no_default() -> None:
    assert not set(PUBLISHED) & set(gr.list_rewards())
    assert gr.list_rewards(published=True) == [*gr.list_rewards(), *PUBLISHED]
    for name, factory in PUBLISHED.items():
        assert factory.__doc__.startswith(f"{name}: ")
        assert "Source: " in factory.__doc__
        assert gr.get_reward(name, box_format="qwen3-vl").__name__ == name
    with pytest.raises(ValueError, match="a published reward: radvlm, medvision"):
        gr.get_reward("medvlm")
    with pytest.raises(ValueError, match="Expected a new name"):
        gr.register_reward("radvlm", dict)


def test_medloc_takes_a_schedule() -> None:
    raised = {"schedule": "linear", "from": 0.3, "to": 0.8, "over": 1.0}
    reward = gr.get_reward("medloc", box_format="qwen3-vl", iou_threshold=raised)
    columns = {"boxes": [[[0, 0, 500, 1000]]], "width": [1000], "height": [1000], "max_steps": 10}
    answer = ['[{"bbox_2d": [0, 0, 500, 500]}]']
    assert [reward(answer, step=step, **columns)[0] for step in (0, 3, 5)] == [1.0, 1.0, 0.0]


def test_vlm_r1_detection_is_cocos_map_with_a_length_factor() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        g = np.sort(rng.uniform(0, 100, (3, 2, 2)), axis=1).reshape(-1, 4)
        near = g[rng.permutation(3)] + rng.uniform(-6, 6, (3, 4))
        junk = rng.uniform([0, 0, 50, 50], [40, 40, 90, 90], (2, 4))
        p = np.sort(np.concatenate([near, junk]).reshape(-1, 2, 2), axis=1).reshape(-1, 4)
        p = p[rng.permutation(5)[: rng.integers(1, 6)]]
        image = Prediction("a", 100, 100, gt=g, gt_labels=[""] * 3, pred=p, pred_scores=np.ones(len(p)))
        expected = coco_mean_average_precision([image], label_matching="ignore") * min(1, len(g) / len(p))
        assert gr.get_reward("vlm_r1_detection").score(p, g) == pytest.approx(expected)

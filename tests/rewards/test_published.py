"""Published rewards: against numbers by hand, against other code, on any text, and under their own names."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

import grounding_rewards as gr
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.rewards.published import PUBLISHED
from tests.metrics.coco_oracle import coco_mean_average_precision
from tests.tables import table

RANGES = dict.fromkeys(PUBLISHED, (0.0, 1.0)) | {"vision_reasoner": (0.0, 2.0), "nemo_rl": (-1.0, 1.0)}
RANGES["perception_r1_detection"] = (0.0, 2.75)


@pytest.mark.parametrize(("name", "pred", "gt", "expected"), table("rewards/by_hand", "published"))
def test_by_hand(name: str, pred: list, gt: list, expected: float) -> None:
    assert gr.get_reward(name).score(pred, gt) == pytest.approx(expected, abs=1e-6)


def test_vision_reasoner_as_an_assignment_of_scipy() -> None:
    rng = np.random.default_rng(0)
    judge = gr.get_reward("vision_reasoner")
    for _ in range(100):
        p, g = (np.sort(rng.uniform(0, 1, (n, 2, 2)), axis=1).reshape(-1, 4) for n in rng.integers(1, 5, 2))
        g[: len(p)] = np.where(rng.random((min(len(p), len(g)), 1)) < 0.5, p[: len(g)] + 0.005, g[: len(p)])
        grown = [840 * boxes + [0, 0, 1, 1] for boxes in (p, g)]
        earned = (pairwise_iou(*grown) > 0.5) + (840 * np.abs(p[:, None] - g).mean(axis=2) < 10).astype(float)
        best = earned[linear_sum_assignment(earned, maximize=True)].sum() / max(len(p), len(g))
        assert judge.score(p, g) == pytest.approx(best)


@pytest.mark.parametrize("name", PUBLISHED)
@given(
    text=st.one_of(
        st.text(),
        st.lists(st.lists(st.integers(-5, 1100), min_size=4, max_size=4)).map(str),
        st.just('[{"bbox_2d": [NaN, 1, 2, 3]}, {"bbox_2d": [5, 5, 5, 5]}, {"bbox_2d": [1, 2, 3, 4]}]'),
    )
)
def test_any_text_earns_a_finite_number_in_range(name: str, text: str) -> None:
    low, high = RANGES[name]
    reward = gr.get_reward(name, box_format="qwen3-vl")
    for boxes in ([[10, 20, 300, 400]], []):
        (value,) = reward([text], boxes=[boxes], width=[640], height=[480])
        assert low <= value <= high


def test_shares_of_the_image_are_taken_from_its_size() -> None:
    text = ['[{"bbox_2d": [100, 100, 110, 110]}]']
    reward = gr.get_reward("nemo_rl", box_format="qwen3-vl")
    # 1 % of each side of any image: area 0.0001 over the least union of 0.001.
    for width, height in ((1000, 1000), (2000, 500)):
        box = [0.1 * width, 0.1 * height, 0.11 * width, 0.11 * height]
        assert reward(text, boxes=[[box]], width=[width], height=[height]) == pytest.approx([0.1])
    reward = gr.get_reward("nemo_rl", box_format="qwen2.5-vl")
    with pytest.raises(ValueError, match="Expected"):
        reward(text, boxes=[[[100, 100, 110, 110]]])
    # A format in pixels needs no size, and the reward does: infinity is none.
    reward = gr.get_reward("nemo_rl", box_format="kimi-k3")
    for width in (0, float("inf"), None):
        with pytest.raises(ValueError, match="Expected the sizes of all images for NeMoRLReward"):
            reward(text, boxes=[[[100, 100, 110, 110]]], width=[width], height=[1000])


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

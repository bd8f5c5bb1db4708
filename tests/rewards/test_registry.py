import pickle

import numpy as np
import pytest

import grounding_rewards as gr
from grounding_rewards.rewards import MeanIoUReward, registry
from grounding_rewards.rewards.registry import REGISTRY
from tests.tables import table

GT = [[0, 0, 10, 10]]


class Coverage:
    """Somebody's own reward: has the first prediction its corner inside the truth?"""

    def __init__(self, bonus=0.25):
        self.bonus = bonus

    def score(self, pred, gt):
        if len(pred) == 0 or len(gt) == 0:
            return self.bonus if len(pred) == len(gt) else 0.0
        return float((np.asarray(pred)[0, :2] < np.asarray(gt)[0, 2:]).all())


def same_count(pred, gt):
    return float(len(pred) == len(gt))


CONTROL = gr.get_reward("format_only")
READY = MeanIoUReward(beta=3.0)


def test_a_registered_class_is_built_with_its_parameters(monkeypatch):
    monkeypatch.setattr(registry, "REGISTRY", {**REGISTRY})
    gr.register_reward("coverage", Coverage)
    assert gr.list_rewards()[-1] == "coverage"
    reward = gr.get_reward("coverage", bonus=0.5, box_format="qwen3-vl")
    assert reward.__name__ == "coverage"
    texts = ['[{"bbox_2d": [0, 0, 500, 500], "label": "a"}]', "[]", "[]", "no idea"]
    assert reward(completions=texts, boxes=[GT, [], GT, []], width=[10] * 4, height=[10] * 4) == [1.0, 0.5, 0.0, 0.0]
    assert reward.explain(GT, GT).reward == 1.0


def test_dotted_paths_of_classes_and_objects():
    built = gr.get_reward("tests.rewards.test_registry.Coverage", bonus=0.75)
    assert built.__name__ == "Coverage"
    assert built.score([], []) == 0.75
    assert gr.get_reward("tests.rewards.test_registry.READY", box_format="qwen3-vl").box_reward is READY
    assert gr.get_reward("grounding_rewards.rewards.R4").box_reward == gr.rewards.R4.box_reward


@pytest.mark.parametrize(
    ("reward", "params", "name", "score"),
    [
        (Coverage, {}, "Coverage", 0.25),
        (Coverage, {"bonus": 0.75}, "Coverage", 0.75),
        (Coverage(0.5), {}, "Coverage", 0.5),
        (MeanIoUReward, {"no_box_bonus": 0.3}, "MeanIoUReward", 0.3),
        (READY, {"log_as": "mine"}, "mine", 0.2),
        (same_count, {}, "same_count", 1.0),
        ("tests.rewards.test_registry.same_count", {}, "same_count", 1.0),
    ],
)
def test_classes_instances_and_functions(reward, params, name, score):
    built = gr.get_reward(reward, **params)
    assert (built.__name__, built.score([], [])) == (name, score)
    assert pickle.loads(pickle.dumps(built)).score([], []) == score


def test_what_a_cell_of_a_notebook_defines_again_replaces_what_it_registered(monkeypatch):
    monkeypatch.setattr(registry, "REGISTRY", {**REGISTRY})
    for value in (0.25, 0.75):

        def mine(pred, gt, value=value):
            return value

        gr.register_reward("mine", mine)
        assert gr.get_reward("mine").score([], []) == value
    with pytest.raises(ValueError, match="registered"):
        gr.register_reward("mine", Coverage)


@pytest.mark.parametrize(
    ("name", "params", "named"),
    [
        *table("rewards/cases", "what_cannot_be_built_is_refused"),
        *table("rewards/wrong_parameters", "wrong"),
        *(("R5", {"iou_breakpoints": points}, "iou_breakpoints") for points in (None, [10**400])),
        (READY, {"beta": 1}, "A class takes them"),
        (lambda a, b: 0.0, {}, "missing a required argument: 'a'"),
        (gr.rewards.R4, {}, "reads texts already"),
        ("tests.rewards.test_registry.CONTROL", {}, "reads texts already"),
    ],
)
def test_what_cannot_be_built_is_refused(name, params, named):
    with pytest.raises(ValueError, match="Expected") as error:
        gr.get_reward(name, **params)
    assert named in str(error.value)


@pytest.mark.parametrize(("name", "factory"), [("R1", Coverage), ("a.b", Coverage), ("", Coverage)])
def test_what_cannot_be_registered_is_refused(name, factory):
    with pytest.raises(ValueError, match="Expected"):
        gr.register_reward(name, factory)
    assert REGISTRY["R1"] is not Coverage


@pytest.mark.parametrize("score", [None, "a", float("nan"), 10**400, [0.5, 0.5]])
def test_a_score_that_is_no_number_is_refused(score):
    reward = gr.get_reward(lambda pred, gt: score, box_format="qwen3-vl")
    with pytest.raises(ValueError, match=r"Expected finite numbers for the score of FunctionReward, got \["):
        reward(completions=["[]"], boxes=[GT], width=[10], height=[10])

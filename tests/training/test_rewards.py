"""Rewards by name, by dotted path and as they are: ours, TRL's kind, and classes of both."""

import functools
import pickle

import pytest
import torch

import grounding_rewards as gr
from grounding_rewards.rewards.grounding import GroundingReward
from grounding_rewards.training.rewards import (
    build_rewards,
    check_reward_functions,
    reward_name,
    reward_with_parameters,
)
from tests.tables import table

pytestmark = pytest.mark.training

MINE = __name__

TEXTS = [[{"role": "assistant", "content": "[]"}], [{"role": "assistant", "content": "nothing"}]]


def brevity(completions, **columns):
    return [1.0 / (1 + len(completion[0]["content"])) for completion in completions]


async def slow(prompts, completions, **columns):
    return [0.0 for _ in completions]


class Scaled:
    def __init__(self, scale=1.0):
        self.scale = scale

    def __call__(self, completions, **columns):
        return [self.scale for _ in completions]


class AnyHit:
    def score(self, pred, gt):
        return float(len(pred) > 0 and len(gt) > 0)


def any_hit():
    return AnyHit()


half = Scaled(0.5)
strict = gr.get_reward("R3", on_unparseable="empty")


@pytest.mark.parametrize("name", ["brevity", "slow", "half", "strict"])
def test_ready_ones_are_taken_as_they_are(name):
    (reward,) = build_rewards(f"{MINE}.{name}")
    assert reward is globals()[name]
    # An object without a name of its own is logged under that of its class.
    assert reward_name(reward) == {"half": "Scaled", "strict": "R3"}.get(name, name)


def test_a_class_of_trls_kind_is_made_with_its_parameters():
    (reward,) = build_rewards(f"{MINE}.Scaled", {"scale": 3.0})
    assert reward(completions=TEXTS) == [3.0, 3.0]


@pytest.mark.parametrize("path", [f"{MINE}.AnyHit", f"{MINE}.any_hit", "grounding_rewards.rewards.SplineIoUReward"])
def test_rewards_on_boxes_read_text(path):
    (reward,) = build_rewards(path, None, "qwen3-vl")
    assert isinstance(reward, GroundingReward)
    assert reward.box_format == "qwen3-vl"
    assert pickle.loads(pickle.dumps(reward)) == reward or path.startswith(MINE)


def test_several_have_names_of_their_own():
    rewards = build_rewards(["R4", f"{MINE}.brevity"], [{"beta": 2.0}, None], "qwen2.5-vl")
    assert [reward_name(one) for one in rewards] == ["R4", "brevity"]
    assert rewards[0].box_reward.beta == 2.0
    built = build_rewards(["R3", "R3"], [None, {"iou_threshold": 0.3, "log_as": "R3_low"}])
    assert [reward.__name__ for reward in built] == ["R3", "R3_low"]


@pytest.mark.parametrize(("reward", "kwargs", "message"), table("training/cases", "refused_rewards"))
def test_refused(reward, kwargs, message):
    with pytest.raises(ValueError, match=message):
        build_rewards(reward, kwargs)


def test_a_module_that_fails_says_why(tmp_path, monkeypatch):
    (tmp_path / "failing.py").write_text("1 / 0\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"got 'failing.reward' \(ZeroDivisionError: division by zero\)"):
        build_rewards("failing.reward")


def test_what_a_card_says():
    assert reward_with_parameters(gr.get_reward("R2", beta=2)).startswith("R2: ProductIoUReward(no_box_bonus=0.2")
    assert reward_with_parameters(brevity) == "brevity"


def fits(completions, **columns):
    return [0.0] * len(completions)


@functools.wraps(lambda completions: None)
def narrow_wrapper(*args, **kwargs):
    return fits(kwargs["completions"])


class Judge:
    def __call__(self, prompts, completions, boxes, **columns):
        return [0.0] * len(completions)


COLUMNS = ["prompt", "image", "boxes", "id"]


@pytest.mark.parametrize(
    "reward",
    [
        gr.get_reward("R4"),
        fits,
        Judge(),
        Judge().__call__,
        functools.partial(fits, unit="pixel"),
        # what is called is the wrapper, whatever it wraps
        narrow_wrapper,
        # each by its name, and no more
        lambda prompts, completions, completion_ids, trainer_state, log_extra, log_metric, image, boxes, id: [],
        # called by TRL in another way
        torch.nn.Linear(1, 1),
    ],
)
def test_reward_functions_that_trl_can_call(reward):
    check_reward_functions([reward], COLUMNS)


@pytest.mark.parametrize(
    ("reward", "columns", "said"),
    [
        (lambda completions: [], COLUMNS, r"got one with \(completions\)"),
        (lambda completions, boxes: [], COLUMNS, r"got one with \(completions, boxes\)"),
        (lambda completions, gt, **columns: [], COLUMNS, r"\(completions, gt, \*\*columns\). TRL passes boxes, comp"),
        (Judge(), ["prompt", "image"], r"reward Judge, got one with \("),
        (lambda completions, by_id={"patient 7": 1}: [], COLUMNS, r"got one with \(completions, by_id\)\."),
        (lambda completions, environments, **columns: [], COLUMNS, r"got one with \(completions, environments, "),
    ],
)
def test_reward_functions_that_trl_cannot_call(reward, columns, said):
    with pytest.raises(ValueError, match=f"Expected a function that takes what TRL passes for .*{said}"):
        check_reward_functions([fits, reward], columns)

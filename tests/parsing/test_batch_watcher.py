"""A reward that reads many completions notices, once, an open prompt that nobody declared."""

import pickle
import warnings

import pytest

import grounding_rewards as gr
from grounding_rewards.logs.inspection import inspect_completions
from grounding_rewards.parsing.space_check import thinking_suspicion
from tests.tables import table

WHOLE = '[{"bbox_2d": [100, 100, 500, 500]}]'
CLOSED, CUT, OWN = f"hm</think>{WHOLE}", f"Perhaps {WHOLE}", f"<think>hm</think>{WHOLE}"


@pytest.mark.parametrize(("states", "declared", "suspect"), table("parsing/format_cases", "suspicions"))
def test_suspicion(states, declared, suspect):
    assert (thinking_suspicion(states, prompt_opens_thinking=declared) is not None) == suspect


def columns(n):
    return {"boxes": [[[10, 10, 50, 50]]] * n, "width": [100] * n, "height": [100] * n}


def test_a_reward_warns_once():
    reward = gr.get_reward("R4", box_format="qwen3-vl")
    with pytest.warns(gr.SpaceWarning, match="R4: 5 of 8 completions close a thinking that they never opened"):
        reward([CLOSED] * 5 + [CUT] * 3, **columns(8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reward([CLOSED] * 5 + [CUT] * 3, **columns(8))
        declared = gr.get_reward("R4", box_format="qwen3-vl", prompt_opens_thinking=True)
        declared([CLOSED] * 5 + [CUT] * 3, **columns(8))


def test_the_option_of_a_reward():
    reward = gr.get_reward("R3", box_format="qwen3-vl", prompt_opens_thinking=True)
    assert pickle.loads(pickle.dumps(reward)) == reward != gr.get_reward("R3", box_format="qwen3-vl")
    assert reward([CLOSED, OWN, CUT, WHOLE], **columns(4)) == [1.0, 1.0, 0.0, 0.0]
    nothing = {"boxes": [[]] * 3, "width": [100] * 3, "height": [100] * 3}
    assert reward(["hm</think>[]", "No finding so far, but", "[]"], **nothing) == [0.2, 0.0, 0.0]
    assert gr.parse_boxes(WHOLE, "qwen3-vl", width=9, height=9, prompt_opens_thinking=True).status == "truncated"
    with pytest.raises(ValueError, match="Expected true or false for `prompt_opens_thinking`, got 'yes'"):
        gr.get_reward("R3", prompt_opens_thinking="yes")


def test_rewards_that_differ_in_it_are_not_scored_together():
    rewards = [gr.get_reward(name, box_format="qwen3-vl", prompt_opens_thinking=name == "R4") for name in ("R3", "R4")]
    with pytest.raises(ValueError, match="Expected one `prompt_opens_thinking` for all rewards"):
        gr.rewards.grounding.check_alike(rewards)


def test_inspect_names_the_suspicion():
    texts = [CLOSED] * 5 + [CUT] * 3
    found = inspect_completions(texts, [{}] * 8, "qwen3-vl")
    assert found.is_suspect
    assert "5 of 8 completions close a thinking" in found.thinking_suspicion
    assert found.thinking == {"none": 3, "paired": 0, "unopened": 5, "unclosed": 0}
    declared = inspect_completions(texts, [{}] * 8, "qwen3-vl", prompt_opens_thinking=True)
    assert not declared.is_suspect
    assert declared.statuses == {"boxes": 5, "empty": 0, "truncated": 3, "unparseable": 0}
    assert declared.answers[5] == ""

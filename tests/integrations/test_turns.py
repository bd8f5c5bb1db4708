"""Conversations in the forms in which trainers hand them over: the last turn of the assistant is the answer."""

from __future__ import annotations

import pytest

from grounding_rewards.integrations import openrlhf, verl
from tests.integrations.hard_cases import ONE, RIGHT, Case
from tests.integrations.trainers import GROWN, PROMPT

TRUTH = Case(RIGHT, ONE).ground_truth
LOOK = '<tool_call>\n{"name": "zoom", "arguments": {"bbox_2d": [0, 0, 300, 300]}}\n</tool_call>'
SEEN = "<|im_end|>\n<|im_start|>user\n<tool_response>a crop</tool_response><|im_end|>\n<|im_start|>assistant\n"


def test_openrlhf_keeps_the_marks_of_turns():
    pytest.importorskip("torch")
    queries = [GROWN + LOOK + SEEN + RIGHT + "<|im_end|>", GROWN + RIGHT + SEEN + "I am not sure."]
    found = openrlhf.reward_func(queries, [PROMPT] * 2, [TRUTH] * 2, "R3")
    assert found["rewards"].tolist() == [1.0, 0.0]


def test_verl_takes_the_marks_out():
    text = f"{LOOK}\nuser\n<tool_response>a crop</tool_response>\nassistant\n{RIGHT}"
    assert verl.compute_score("images", text, TRUTH, {}, reward="R3")["score"] == 1.0

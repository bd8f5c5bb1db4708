"""Which part of a completion is read."""

import pytest

from grounding_rewards.parsing.scope import Answer, find_answer

CASES = [
    # no tags at all: everything
    ("[1, 2, 3, 4]", Answer("[1, 2, 3, 4]")),
    # thinking holds drafts
    ("<think>[1]</think>[2]", Answer("[2]")),
    # the opening tag was part of the prompt
    ("draft [1]</think>[2]", Answer("[2]")),
    # several rounds of thinking: what follows the last
    ("<think>a</think>[1]<think>b</think>[2]", Answer("[2]")),
    # text before a second, unfinished round is an answer, and the completion was cut off
    ("<think>a</think>[1]<think>b", Answer("[1]", cut_off=True)),
    # thinking until the token limit
    ("<think>[1]", Answer("", cut_off=True)),
    # thinking and nothing else
    ("<think>[1]</think>", Answer("")),
    # tagged answer
    ("<think>[1]</think><answer>[2]</answer>", Answer("[2]", closed=True)),
    # text outside the tags is not the answer
    ("<answer>[2]</answer> I hope [3] helps", Answer("[2]", closed=True)),
    # the last answer wins
    ("<answer>[1]</answer><answer>[2]</answer>", Answer("[2]", closed=True)),
    # never closed: to the end
    ("<answer>[2]", Answer("[2]")),
    # the opening tag was part of the prompt
    ("[2]</answer>", Answer("[2]")),
    # an answer tag that is only mentioned while thinking
    ("<think>I will write <answer></think>[2]", Answer("[2]")),
    # all of it, answer included, inside the thinking
    ("<think><answer>[2]</answer></think>", Answer("[2]", closed=True)),
    # broken thinking tag, as in a public log
    ("<think> ... </think <answer>[2]", Answer("[2]")),
    # stated: nothing
    ("<answer> </answer>", Answer(" ", closed=True)),
    # cut off before the answer began
    ("<answer>", Answer("", cut_off=True)),
    # decoded with special tokens: end of text, then padding
    ("[2]<|im_end|><|endoftext|><|endoftext|>", Answer("[2]", ended=True)),
    # the next turn is not part of this answer
    ("[2]<|im_end|>\n<|im_start|>user [3]", Answer("[2]", ended=True)),
    # Florence-2 begins with the token that ends other answers
    ("</s><s>mass<loc_1></s><pad>", Answer("mass<loc_1>", ended=True)),
    # other spellings
    ("<THINK>[1]</THINK><ANSWER>[2]</ANSWER>", Answer("[2]", closed=True)),
    ("<thinking>[1]</thinking>[2]", Answer("[2]")),
    # Kimi-VL, MedGemma 1.5
    ("◁think▷[1]◁/think▷[2]", Answer("[2]")),
    ("<unused94>thought\n[1]<unused95>[2]", Answer("[2]")),
    # tags that only begin like these
    ("<answers>[1]</answers><rethink>", Answer("<answers>[1]</answers><rethink>")),
]
SCOPES = [
    ("answer", "<think>[1]</think>[2]<answer>[3]</answer>", "[3]"),
    ("after_think", "<think>[1]</think>[2]<answer>[3]</answer>", "[2]<answer>[3]</answer>"),
    ("all", "<think>[1]</think>[2]<answer>[3]</answer>", "<think>[1]</think>[2]<answer>[3]</answer>"),
    # thinking that never ends
    ("after_think", "<think>[1]", ""),
    ("all", "<think>[1]", "<think>[1]"),
]


@pytest.mark.parametrize(("scope", "completion", "text"), SCOPES)
def test_scope(scope, completion, text):
    assert find_answer(completion, scope).text == text


@pytest.mark.parametrize(("completion", "answer"), CASES)
def test_answer_of_completion(completion, answer):
    # what stands around it is for the test below
    assert find_answer(completion)[:4] == answer[:4]


@pytest.mark.parametrize(
    ("completion", "around", "thought"),
    [
        ("[1]", "", False),
        ("a <think>b</think> c <answer>d</answer> e", "a  c  e", True),
        # the opening tag was part of the prompt
        ("b</think> c <answer>d", " c ", True),
        ("<answer>a</answer> b <answer>c</answer>", "<answer>a</answer> b ", True),
        ("x</think>", "", True),
    ],
)
def test_what_stands_around_the_answer(completion, around, thought):
    assert find_answer(completion)[4:] == (around, thought)

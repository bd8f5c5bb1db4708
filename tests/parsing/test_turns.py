"""The answer is what the last turn of the assistant says: no drafts, nothing that a tool was asked or that it said."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import grounding_rewards as gr
from grounding_rewards.parsing import format_boxes, get_box_format, parse_boxes, read_boxes
from grounding_rewards.parsing.answer_span import MAX_TURN_MARKS, AnswerSpan, find_answer, last_turn
from tests.parsing.promises import check_promises
from tests.tables import table

CROP = '{"name": "zoom", "arguments": {"bbox_2d": [1, 2, 3, 4], "label": "apex"}}'
DRAFT = '[{"bbox_2d": [5, 6, 7, 8]}]'
FINAL = '```json\n[{"bbox_2d": [100, 200, 300, 400], "label": "nodule"}]\n```'
COORDS = [100, 200, 300, 400]
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
CALL = f"<tool_call>\n{CROP}\n</tool_call>"
TOLD = '<tool_response>\nThe crop shows [{"bbox_2d": [9, 9, 10, 10]}].\n</tool_response>'

PIECES = {"CROP": CROP, "DRAFT": DRAFT, "FINAL": FINAL, "IMAGE": IMAGE, "CALL": CALL, "TOLD": TOLD}


def filled(row):
    """A row of the table with the pieces in the places of their names."""
    return [re.sub("«([A-Z]+)»", lambda name: PIECES[name[1]], text) for text in row]


TALKS = {name: filled(talk) for name, talk in table("parsing/talks", "talks").items()}
QWEN = get_box_format("qwen3-vl")


@pytest.mark.parametrize("name", TALKS)
class TestTalks:
    def test_the_last_turn_is_read(self, name):
        before, behind = TALKS[name]
        for answer in (FINAL, f"<answer>{FINAL}</answer>", f"It is here: {FINAL}"):
            raw = check_promises(before + answer + behind, "qwen3-vl")
            assert (raw.coords, raw.labels, raw.status, raw.rejected) == (COORDS, ["nodule"], "boxes", {})

    def test_a_negative_in_it_is_read(self, name):
        before, behind = TALKS[name]
        for answer in ("[]", "No nodule is seen.", "<answer>[]</answer>"):
            raw = check_promises(before + answer + behind, "qwen3-vl")
            assert (raw.coords, raw.status, raw.rejected) == ([], "empty", {})

    def test_without_an_answer_nothing_counts(self, name):
        before, behind = TALKS[name]
        for text in (before, before + behind):
            for fmt in ("qwen3-vl", "radvlm", "paligemma"):
                raw = check_promises(text, fmt)
                assert (raw.coords, raw.status in ("truncated", "unparseable")) == ([], True)

    def test_a_cut_never_earns_more_than_the_answer(self, name):
        before, _ = TALKS[name]
        if DRAFT + "\n" not in before and not before.startswith(DRAFT):
            for end in range(0, len(before), 3):
                assert read_boxes(before[:end], QWEN).status != "empty", before[:end]


@pytest.mark.parametrize(("text", "status", "reason"), [*map(filled, table("parsing/talks", "none"))])
def test_what_is_no_answer(text, status, reason):
    raw = check_promises(text, "qwen3-vl")
    assert (raw.coords, raw.status, raw.rejected) == ([], status, {reason: 1} if reason else {})
    for option in ("zero", "empty"):
        reward = gr.get_reward("R4", box_format="qwen3-vl", on_unparseable=option)
        earned = reward([text] * 2, boxes=[[], [[5, 6, 7, 8]]], width=[1000] * 2, height=[1000] * 2)
        assert earned[1] == 0.0
        assert earned[0] == (0.2 if option == "empty" and reason == "no_answer" else 0.0)


@pytest.mark.parametrize(("text", "answer"), [*map(filled, table("parsing/talks", "whole"))])
def test_what_is_an_answer(text, answer):
    assert find_answer(text).text == answer


@pytest.mark.parametrize("scope", ["answer", "after_think", "all"])
def test_every_scope_reads_the_last_turn(scope):
    before, behind = TALKS["ChatML, three looks"]
    assert find_answer(before + DRAFT + behind, scope).text.strip() == DRAFT


def test_thinking_that_a_tool_interrupts_goes_on():
    # what it muses behind the tool's words is no answer
    assert find_answer(f"<think>a{CALL}{TOLD}b {DRAFT}")[:3] == ("", False, True)
    assert find_answer(f"a{CALL}{TOLD}b {DRAFT}", prompt_opens_thinking=True)[:3] == ("", False, True)
    assert find_answer(f"a{CALL}{TOLD}b</think>{DRAFT}", prompt_opens_thinking=True).text == DRAFT
    # thinking that was closed before is closed
    assert find_answer(f"a</think>{CALL}{TOLD}{DRAFT}", prompt_opens_thinking=True).text == DRAFT
    # a turn that a mark begins shows its own marks of thinking
    before, behind = TALKS["ChatML, an answer that the user doubts"]
    assert find_answer(f"hm</think>{before}{DRAFT}{behind}", prompt_opens_thinking=True).text.strip() == DRAFT


@pytest.mark.parametrize(
    "label", ["<tool_call>", "</tool_response>", "<|im_start|>user", "[INST]", "an USER: b", "✿RESULT✿", "```tool_code"]
)
def test_a_label_may_hold_a_mark_in_json(label):
    text = format_boxes([[10, 20, 30, 40]], "qwen3-vl", labels=[label], width=100, height=100)
    assert parse_boxes(text, "qwen3-vl", width=100, height=100).labels == (label,)
    with pytest.raises(ValueError, match="Expected labels without marks"):
        format_boxes([[10, 20, 30, 40]], "internvl", labels=[label], width=100, height=100)


@pytest.mark.parametrize(
    "mark", ["<|im_start|>assistant", "<tool_call></tool_call>", "[/INST]", "<tool_response>", "\nuser\n"]
)
def test_a_text_that_loops_over_marks_has_no_answer(mark):
    assert find_answer(mark * (MAX_TURN_MARKS + 1) + DRAFT) == AnswerSpan("", thought=True)


def test_padding_is_no_loop():
    assert find_answer(DRAFT + "<|im_end|>" + "<|endoftext|>" * 2 * MAX_TURN_MARKS) == AnswerSpan(DRAFT, ended=True)


fragments = st.text(max_size=8)
FRAGMENTS = """
<tool_call>|</tool_call>|<tool_response>|</tool_response>|<think>|</think>|<answer>|</answer>|```|[INST]|[/INST]|USER:
ASSISTANT:|Action: |✿RESULT✿|{"name": "zoom", "arguments": {|}|"|[]|No nodule.
"""
LINES = ["\nuser\n", "\nassistant\n", "```tool_code\n", "\nAction Input: ", "\nObservation: "]
marks = st.sampled_from(
    [
        *sorted({piece for talk in TALKS.values() for piece in talk}),
        *re.split(r"[|\n]", FRAGMENTS.strip()),
        *("<|im_end|>", "<|im_start|>assistant\n", "<|im_start|>user\n", CROP, DRAFT, FINAL, *LINES),
    ]
)


@given(
    st.lists(marks | fragments, max_size=12).map("".join),
    st.sampled_from(["qwen3-vl", "radvlm", "paligemma", "internvl"]),
)
@example("<|im_start|>", "qwen3-vl")
def test_any_talk_is_read(text, name):
    check_promises(text, name)
    turn = last_turn(text)
    # nothing is read that does not stand in the text
    assert len(turn.words) <= len(text)


@given(st.lists(marks | fragments, max_size=8).map("".join))
def test_earlier_turns_do_not_change_the_answer(text):
    after = f"{text}<|im_end|>\n<|im_start|>assistant\n{FINAL}"
    assert read_boxes(after, QWEN).coords == COORDS or last_turn(text + "<|im_end|>").has_too_many_marks


@given(st.text(st.characters(exclude_characters="<[`✿{:\n")).filter(lambda text: "\n" not in text))
def test_a_text_without_marks_is_read_as_it_stands(text):
    assert last_turn(text).words == text

"""The answer is what the last turn of the assistant says: no drafts, nothing that a tool was asked or that it said."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import grounding_rewards as gr
from grounding_rewards.parsing import format_boxes, get_box_format, parse_boxes, read_boxes
from grounding_rewards.parsing.answer_span import MAX_TURN_MARKS, AnswerSpan, find_answer, last_turn
from tests.parsing.promises import check_promises

CROP = '{"name": "zoom", "arguments": {"bbox_2d": [1, 2, 3, 4], "label": "apex"}}'
DRAFT = '[{"bbox_2d": [5, 6, 7, 8]}]'
FINAL = '```json\n[{"bbox_2d": [100, 200, 300, 400], "label": "nodule"}]\n```'
COORDS = [100, 200, 300, 400]
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
CALL = f"<tool_call>\n{CROP}\n</tool_call>"
TOLD = '<tool_response>\nThe crop shows [{"bbox_2d": [9, 9, 10, 10]}].\n</tool_response>'

# What stands before the answer, or (before it, behind it): talks of one form for each family and agent
WRITTEN = {
    # a tool, special tokens kept
    "ChatML": (
        f"<think>A dense spot {DRAFT}?</think>{CALL}<|im_end|>\n<|im_start|>user\n{TOLD}{IMAGE}<|im_end|>\n"
        "<|im_start|>assistant\n<think>It is one.</think>",
        "<|im_end|>",
    ),
    "ChatML, three looks": (
        f"{CALL}<|im_end|>\n<|im_start|>user\n{TOLD}<|im_end|>\n<|im_start|>assistant\n" * 3,
        "<|im_end|><|endoftext|><|endoftext|>",
    ),
    "ChatML, an answer that the user doubts": (
        f"{DRAFT}<|im_end|>\n<|im_start|>user\nLook again.<|im_end|>\n<|im_start|>assistant\n"
    ),
    "ChatML, role tool": (
        f"{CALL}<|im_end|>\n<|im_start|>tool\n{DRAFT}<|im_end|>\n<|im_start|>assistant\n",
        "<|im_end|>",
    ),
    "ChatML, the whole talk": (
        f"<|im_start|>system\nFor example {DRAFT}.<|im_end|>\n<|im_start|>user\n{IMAGE}Where?<|im_end|>\n"
        "<|im_start|>assistant\n",
        "<|im_end|>\n",
    ),
    "SmolVLM": (f"{DRAFT}<end_of_utterance>\nUser: Again.<end_of_utterance>\nAssistant:", "<end_of_utterance>"),
    "Kimi": (
        "Let me look.<|tool_calls_section_begin|><|tool_call_begin|>functions.zoom:0<|tool_call_argument_begin|>"
        '{"bbox_2d": [1, 2, 3, 4]}<|tool_call_end|><|tool_calls_section_end|><|im_end|>'
        f"<|im_system|>zoom<|im_middle|>## Return of functions.zoom:0\n{DRAFT}<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>",
        "<|im_end|>",
    ),
    "GLM": (
        "<think>Closer.</think>\n<tool_call>zoom\n<arg_key>bbox_2d</arg_key>\n<arg_value>[1, 2, 3, 4]</arg_value>\n"
        f"</tool_call><|observation|>\n{TOLD}<|assistant|>\n<think>So.</think>\n",
        "<|user|>",
    ),
    "Gemma 3": (
        "```tool_code\nzoom(x1=1, y1=2, x2=3, y2=4)\n```<end_of_turn>\n<start_of_turn>user\n```tool_output\n"
        f"{DRAFT}\n```<end_of_turn>\n<start_of_turn>model\n",
        "<end_of_turn>",
    ),
    "Gemma 4": (
        "<|channel>thought\nCloser.<channel|><|tool_call>call:zoom{bbox_2d:[1,2,3,4]}<tool_call|>"
        f"<|tool_response>response:zoom{{told:{DRAFT}}}<tool_response|>",
        "<turn|>",
    ),
    "FunctionGemma": (
        "<start_function_call>call:zoom{bbox_2d:[1,2,3,4]}<end_function_call>"
        f"<start_function_response>response:zoom{{{DRAFT}}}<end_function_response>",
        "<end_of_turn>",
    ),
    "Llama 3": (
        f"<|python_tag|>{CROP}<|eom_id|><|start_header_id|>ipython<|end_header_id|>\n\n{DRAFT}<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "<|eot_id|>",
    ),
    "Llama 4": (
        f"{CROP}<|eot|><|header_start|>ipython<|header_end|>\n\n{DRAFT}<|eot|>"
        "<|header_start|>assistant<|header_end|>\n\n",
        "<|eot|>",
    ),
    "Mistral": (
        f'[TOOL_CALLS][{CROP}]</s>[TOOL_RESULTS] {{"content": {DRAFT}}}[/TOOL_RESULTS]',
        "</s>",
    ),
    "Mistral, two questions": (f"{DRAFT}</s>[INST] And now? [/INST] ", "</s>"),
    "DeepSeek": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>zoom\n```json\n{"bbox_2d": [1, 2, 3, 4]}\n```'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜><｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>"
        f"{DRAFT}<｜tool▁output▁end｜><｜tool▁outputs▁end｜>",
        "<｜end▁of▁sentence｜>",
    ),
    "DeepSeek, two questions": (f"{DRAFT}<｜end▁of▁sentence｜><｜User｜>Sure?<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
    "DeepSeek-VL2": (f"{DRAFT}\n\n<|User|>: Sure?\n\n<|Assistant|>: ", "<｜end▁of▁sentence｜>"),
    "Phi": (f"{DRAFT}<|end|><|user|>\nSure?<|end|><|assistant|>\n", "<|end|>"),
    "Granite": (
        f"{DRAFT}<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>Sure?<|end_of_text|>\n"
        "<|start_of_role|>assistant<|end_of_role|>",
        "<|end_of_text|>",
    ),
    "Harmony": (
        "<|channel|>analysis<|message|>Closer.<|end|><|start|>assistant<|channel|>commentary to=functions.zoom "
        '<|constrain|>json<|message|>{"bbox_2d": [1, 2, 3, 4]}<|call|><|start|>functions.zoom to=assistant<|channel|>'
        f"commentary<|message|>{DRAFT}<|end|><|start|>assistant<|channel|>final<|message|>",
        "<|return|>",
    ),
    "Cohere": (
        f"<|START_ACTION|>[{CROP}]<|END_ACTION|><|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>"
        f"<|START_TOOL_RESULT|>{DRAFT}<|END_TOOL_RESULT|><|END_OF_TURN_TOKEN|>"
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        "<|END_OF_TURN_TOKEN|>",
    ),
    "Vicuna": (f"{DRAFT}</s>USER: Are you sure? ASSISTANT: ", "</s>"),
    "LFM2": (
        f"<|tool_call_start|>[zoom(x1=1, y1=2, x2=3, y2=4)]<|tool_call_end|><|im_end|>\n<|im_start|>tool\n{DRAFT}"
        "<|im_end|>\n<|im_start|>assistant\n",
        "<|im_end|>",
    ),
    "MiniMax, tools": (
        '<minimax:tool_call>\n<invoke name="zoom">[1, 2, 3, 4]</invoke>\n</minimax:tool_call>[e~[\n]~b]tool\n'
        f"<response>{DRAFT}</response>[e~[\n]~b]ai\n",
        "[e~[\n",
    ),
    "MiniMax, two questions": (f"{DRAFT}[e~[\n]~b]user\nSure?[e~[\n]~b]ai\n<think>So.</think>\n\n", "[e~["),
    "Seed": (
        "<seed:tool_call>\n<function=zoom>\n<parameter=bbox_2d>[1, 2, 3, 4]</parameter>\n</function>\n"
        f"</seed:tool_call><seed:eos><seed:bos>tool\n{DRAFT}<seed:eos><seed:bos>assistant\n",
        "<seed:eos>",
    ),
    "Exaone": (f"{DRAFT}[|endofturn|]\n[|user|]Sure?[|endofturn|]\n[|assistant|]", "[|endofturn|]"),
    "Nemotron": (f"{DRAFT}\n<SPECIAL_12>\n<SPECIAL_11>User\nSure?\n<SPECIAL_11>Assistant\n", "<SPECIAL_12>"),
    "Apertus": (
        f'<|tools_prefix|>[{{"zoom": {{"bbox_2d": [1, 2, 3, 4]}}}}]<|tools_suffix|>{DRAFT}<|assistant_end|>'
        "<|user_start|>Sure?<|user_end|><|assistant_start|>",
        "<|assistant_end|>",
    ),
    "dots": (f"{DRAFT}<|endofassistant|><|user|>Sure?<|endofuser|><|assistant|>", "<|endofassistant|>"),
    "first LLaVA": f"{DRAFT}###Human: Sure?###Assistant: ",
    "Alpaca": (f"{DRAFT}\n\n### Instruction:\nSure?\n\n### Response:\n", "</s>"),
    # the same without special tokens
    "Gemma 4, stripped": f"call:zoom{{bbox_2d:[1,2,3,4]}}response:zoom{{value:{DRAFT}}}",
    "Kimi, stripped": (
        'Let me look.functions.zoom:0{"bbox_2d": [1, 2, 3, 4]}functions.crop:1{"bbox_2d": [1, 2, 3, 4]}\n'
        f"## Return of functions.zoom:0\n{DRAFT}\nassistant\n"
    ),
    "LFM2, stripped": "[zoom(x1=1, y1=2, x2=3, y2=4), image_crop(x1=1, y1=2, x2=3, y2=4)]\n",
    "ChatML, stripped": f"<think>{DRAFT}?</think>{CALL}\nuser\n{TOLD}\nassistant\n<think>So.</think>\n",
    "ChatML, stripped, without tags": f"{DRAFT}\nuser\nHere is the crop.\nassistant\n",
    "Gemma, stripped": f"```tool_code\nzoom([1, 2, 3, 4])\n```\nuser\n{DRAFT}\nmodel\n",
    "Llama, stripped": f"{CROP}ipython\n\n{DRAFT}assistant\n\n",
    "tags of a tool alone": f"{DRAFT}{CALL}\n{TOLD}\n",
    "a call in JSON alone": f"Let me look.\n{CROP}\n",
    "a list of calls": f"```json\n[{CROP}, {CROP}]\n```\n{TOLD}\n",
    "OpenAI's calls": (
        f'{{"role": "assistant", "content": null, "tool_calls": [{{"id": "1", "type": "function", "function": {CROP}}}]'
        f"}}\n{TOLD}\n"
    ),
    "Anthropic's calls": '{"type": "tool_use", "id": "1", "name": "zoom", "input": {"bbox_2d": [1, 2, 3, 4]}}\n',
    "LangChain's calls": '{"action": "zoom", "action_input": {"bbox_2d": [1, 2, 3, 4]}}\n',
    "a tool named beside its arguments": '{"tool": "zoom", "bbox_2d": [1, 2, 3, 4]}\n',
    # agents
    "Qwen3-Coder and Qwen3.5": (
        "<tool_call>\n<function=zoom>\n<parameter=bbox_2d>\n[1, 2, 3, 4]\n</parameter>\n</function>\n</tool_call>"
        f"<|im_end|>\n<|im_start|>user\n{TOLD}<|im_end|>\n<|im_start|>assistant\n",
        "<|im_end|>",
    ),
    "older agents of Qwen": f'✿FUNCTION✿: zoom\n✿ARGS✿: {{"bbox_2d": [1, 2, 3, 4]}}\n✿RESULT✿: {DRAFT}\n✿RETURN✿: ',
    "Mini-o3": (
        '<think>Closer.</think><grounding>{"bbox_2d": [0.1, 0.2, 0.3, 0.4], "source": "original_image"}</grounding>'
        f"<|im_end|>\n<|im_start|>user\nObservation 1: {IMAGE}<|im_end|>\n<|im_start|>assistant\n<think>So.</think>",
        "<|im_end|>",
    ),
    "Python": f"<code>\n```python\ncrop([1, 2, 3, 4])\n```\n</code>\n<sandbox_output>{DRAFT}</sandbox_output>\n",
    "a search": f"<search>{DRAFT}</search><information>{DRAFT} {FINAL}</information>",
    "more names": f'<tool>{DRAFT}</tool><python>{DRAFT}</python><invoke name="zoom">{DRAFT}</invoke>',
    "other names": f"<image_zoom>{DRAFT}</image_zoom><observation>{DRAFT}</observation>",
    "MiniMax": f'<minimax:tool_call>\n<invoke name="zoom">{DRAFT}</invoke>\n</minimax:tool_call>{TOLD}',
    "ReAct": (
        'Thought: closer.\nAction: zoom\nAction Input: {"bbox_2d": [1, 2, 3, 4]}\n'
        f"Observation: {DRAFT}\nThought: perhaps {DRAFT}\nFinal Answer: "
    ),
    # tags in disorder
    "never closed before the next turn": (
        f"<tool_call>\n{CROP}<|im_end|>\n<|im_start|>user\n<tool_response>\n{DRAFT}<|im_end|>\n<|im_start|>assistant\n"
    ),
    "never opened": f"{CROP}\n</tool_call>\n{DRAFT}\n</tool_response>\n",
    "a call within a call": f"<tool_calls><tool_call>{CROP}</tool_call>{CROP}</tool_calls>",
    "a call while it thinks": f"<think>{DRAFT}{CALL}{TOLD} Yes. {DRAFT}</think>",
    "a call that the prompt declares": f"<tools>{CROP}</tools>",
    "marks within what a tool says": f"{CALL}<tool_response>ASSISTANT: {DRAFT}</tool_response>",
    "a brace within a string of a call": '{"name": "zoom", "arguments": {"why": "a } b", "bbox_2d": [1, 2, 3, 4]}}',
}
TALKS = {name: (talk, "") if isinstance(talk, str) else talk for name, talk in WRITTEN.items()}
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
                raw = read_boxes(before[:end], QWEN)
                assert raw.status != "empty", before[:end]


# What is no answer: text -> status, reasons
NONE = [
    # a call, whole, and the model waits
    (CALL, "unparseable", {"only_tools": 1}),
    (f"{CALL}<|im_end|>", "unparseable", {"only_tools": 1}),
    (f"<think>Closer.</think>\n{CALL}", "unparseable", {"only_tools": 1}),
    (CROP, "unparseable", {"only_tools": 1}),
    (f"[{CROP}]", "unparseable", {"only_tools": 1}),
    (f"```json\n[{CROP}]\n```", "unparseable", {"only_tools": 1}),
    # a tool answered last, and whatever the model said before was a draft
    (f"{DRAFT}{CALL}{TOLD}", "unparseable", {"only_tools": 1}),
    (f"{DRAFT}{CALL}<|im_end|>\n<|im_start|>user\n{TOLD}<|im_end|>", "unparseable", {"only_tools": 1}),
    (f"{DRAFT}{CALL}<|im_end|>\n<|im_start|>tool\nno<|im_end|>", "unparseable", {"only_tools": 1}),
    (f"<answer>{DRAFT}</answer>{TOLD}", "unparseable", {"only_tools": 1}),
    # cut off within a call
    ('<tool_call>{"name": "zoom", "arguments": {"bbox_2d": [1, 2, 3, 4]', "truncated", {}),
    ("call:zoom{bbox_2d:[1,2,3,4]", "truncated", {}),
    # what a tool said came last
    (f"{DRAFT}response:zoom{{value:{DRAFT}}}", "unparseable", {"only_tools": 1}),
    ('{"name": "zoom", "arguments": {"bbox_2d": [1, 2, 3, 4]', "truncated", {}),
    (f'{DRAFT}<tool_call>{{"bbox_2d": [1, 2', "truncated", {}),
    # cut off where the last turn begins
    (f"{DRAFT}<|im_end|>\n<|im_start|>assistant\n", "truncated", {}),
    # nothing but the question
    ("<|im_start|>user\nWhere?<|im_end|>\n", "unparseable", {"no_answer": 1}),
    # an empty last turn
    (f"{DRAFT}<|im_end|>\n<|im_start|>assistant\n<|im_end|>", "unparseable", {"no_answer": 1}),
]


@pytest.mark.parametrize(("text", "status", "reasons"), NONE)
def test_what_is_no_answer(text, status, reasons):
    raw = check_promises(text, "qwen3-vl")
    assert (raw.coords, raw.status, raw.rejected) == ([], status, reasons)
    for option in ("zero", "empty"):
        reward = gr.get_reward("R4", box_format="qwen3-vl", on_unparseable=option)
        earned = reward([text] * 2, boxes=[[], [[5, 6, 7, 8]]], width=[1000] * 2, height=[1000] * 2)
        assert earned[1] == 0.0
        assert earned[0] == (0.2 if option == "empty" and reasons == {"no_answer": 1} else 0.0)


# What is an answer: text -> what is read of it
WHOLE = [
    # an answer, and a call behind it that nobody answered
    (f"{DRAFT}{CALL}", DRAFT),
    (f'<answer>{DRAFT}</answer><tool_call>{{"bbox_2d": [1', DRAFT),
    # the user goes on, and the model is not asked any more
    (f"{DRAFT}<|im_end|>\n<|im_start|>user\nThanks for [1, 2, 3, 4].", DRAFT),
    ("[2]<|im_end|>\n<|im_start|>", "[2]"),
    # words of reports that agents use too
    ("Observation: a nodule [1, 2, 3, 4].\nAction: CT.", "Observation: a nodule [1, 2, 3, 4].\nAction: CT."),
    ("Answer: [1, 2, 3, 4]", "Answer: [1, 2, 3, 4]"),
    # Kosmos-2 begins so
    ("<grounding>a nodule", "<grounding>a nodule"),
    # words of reports and of code that tools have too
    ("Cropped image, zoom (2x): a nodule [1].", "Cropped image, zoom (2x): a nodule [1]."),
    ("## Findings\n[1, 2, 3, 4]", "## Findings\n[1, 2, 3, 4]"),
    ("On-call: seen. No response: none.", "On-call: seen. No response: none."),
    ('[{"label": "tool", "bbox_2d": [1]}]', '[{"label": "tool", "bbox_2d": [1]}]'),
    # marks of text, not of turns
    ("`<code>[1]</code>` </function>", "`<code>[1]</code>` </function>"),
    ("The user said\nno model is right.", "The user said\nno model is right."),
    ('{"label": "model", "bbox_2d": [1]}', '{"label": "model", "bbox_2d": [1]}'),
    # words in a string
    ('[{"bbox_2d": [1, 2, 3, 4], "label": "ASSISTANT: x"}]', '[{"bbox_2d": [1, 2, 3, 4], "label": "ASSISTANT: x"}]'),
    ('[{"label": "Final Answer: x"}]', '[{"label": "Final Answer: x"}]'),
]


@pytest.mark.parametrize(("text", "answer"), WHOLE)
def test_what_is_an_answer(text, answer):
    assert find_answer(text).text == answer


def test_perfect_answers_after_a_zoom_earn_everything():
    """Once 0.765, with the crop as a second prediction, and 0 with the tokens kept."""
    kept, stripped = TALKS["ChatML"][0], TALKS["ChatML, stripped"][0]
    reward = gr.get_reward("R4", box_format="qwen3-vl")
    texts = [kept + FINAL, stripped + FINAL]
    assert reward(texts, boxes=[[COORDS]] * 2, width=[1000] * 2, height=[1000] * 2) == [1.0, 1.0]


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
PIECES = """
<tool_call>|</tool_call>|<tool_response>|</tool_response>|<think>|</think>|<answer>|</answer>|```|[INST]|[/INST]|USER:
ASSISTANT:|Action: |✿RESULT✿|{"name": "zoom", "arguments": {|}|"|[]|No nodule.
"""
LINES = ["\nuser\n", "\nassistant\n", "```tool_code\n", "\nAction Input: ", "\nObservation: "]
marks = st.sampled_from(
    [
        *sorted({piece for talk in TALKS.values() for piece in talk}),
        *re.split(r"[|\n]", PIECES.strip()),
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
    assert len(turn.text) <= len(text)


@given(st.lists(marks | fragments, max_size=8).map("".join))
def test_earlier_turns_do_not_change_the_answer(text):
    after = f"{text}<|im_end|>\n<|im_start|>assistant\n{FINAL}"
    assert read_boxes(after, QWEN).coords == COORDS or last_turn(text + "<|im_end|>").loops


@given(st.text(st.characters(exclude_characters="<[`✿{:\n")).filter(lambda text: "\n" not in text))
def test_a_text_without_marks_is_read_as_it_stands(text):
    assert last_turn(text).text == text

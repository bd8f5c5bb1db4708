"""Which part of a completion is read, and the suspicion that the prompt opened the thinking."""

import pytest

from grounding_rewards.parsing import (
    RawBoxes,
    box_format_for_model_type,
    format_boxes,
    get_box_format,
    list_box_formats,
    parse_boxes,
    read_boxes,
)
from grounding_rewards.parsing.answer_span import (
    MAX_MARKS,
    AnswerSpan,
    find_answer,
    opens_thinking,
    thinking_state,
)

CASES = [
    # no tags at all: everything
    ("[1, 2, 3, 4]", AnswerSpan("[1, 2, 3, 4]")),
    # thinking holds drafts
    ("<think>[1]</think>[2]", AnswerSpan("[2]")),
    # the opening tag was part of the prompt
    ("draft [1]</think>[2]", AnswerSpan("[2]")),
    # several rounds of thinking: what follows the last
    ("<think>a</think>[1]<think>b</think>[2]", AnswerSpan("[2]")),
    # text before a second, unfinished round is an answer, and the completion was cut off
    ("<think>a</think>[1]<think>b", AnswerSpan("[1]", cut_off=True)),
    # thinking until the token limit
    ("<think>[1]", AnswerSpan("", cut_off=True)),
    # thinking and nothing else
    ("<think>[1]</think>", AnswerSpan("")),
    # tagged answer
    ("<think>[1]</think><answer>[2]</answer>", AnswerSpan("[2]", closed=True)),
    # text outside the tags is not the answer
    ("<answer>[2]</answer> I hope [3] helps", AnswerSpan("[2]", closed=True)),
    # the last answer wins
    ("<answer>[1]</answer><answer>[2]</answer>", AnswerSpan("[2]", closed=True)),
    # never closed: to the end
    ("<answer>[2]", AnswerSpan("[2]")),
    # the opening tag was part of the prompt
    ("[2]</answer>", AnswerSpan("[2]")),
    # an answer tag that is only mentioned while thinking
    ("<think>I will write <answer></think>[2]", AnswerSpan("[2]")),
    # all of it, answer included, inside the thinking
    ("<think><answer>[2]</answer></think>", AnswerSpan("[2]", closed=True)),
    # broken thinking tag, as in a public log
    ("<think> ... </think <answer>[2]", AnswerSpan("[2]")),
    # stated: nothing
    ("<answer> </answer>", AnswerSpan(" ", closed=True)),
    # what is asked of a tool, and what it says, is no answer
    ('<tool_call>{"boxes": [1]}</tool_call>[2]', AnswerSpan("[2]")),
    ("[1]<TOOL_CALL name=zoom>[2]</tool_call>", AnswerSpan("[1]")),
    (
        "<function_call>[1]</function_call><tool_response>[2]</tool_response><answer>[3]</answer>",
        AnswerSpan("[3]", closed=True),
    ),
    # nothing else, closed or not: the answer is missing
    ("<observation>[1]</observation>", AnswerSpan("")),
    ("<tool_call>[1]", AnswerSpan("", cut_off=True)),
    # another word that begins so is text
    ("<tool_callers>[1]", AnswerSpan("<tool_callers>[1]")),
    # cut off before the answer began
    ("<answer>", AnswerSpan("", cut_off=True)),
    # decoded with special tokens: end of text, then padding
    ("[2]<|im_end|><|endoftext|><|endoftext|>", AnswerSpan("[2]", ended=True)),
    # the next turn is not part of this answer
    ("[2]<|im_end|>\n<|im_start|>user [3]", AnswerSpan("[2]", ended=True)),
    # Florence-2 begins with the token that ends other answers
    ("</s><s>mass<loc_1></s><pad>", AnswerSpan("mass<loc_1>", ended=True)),
    # other spellings
    ("<THINK>[1]</THINK><ANSWER>[2]</ANSWER>", AnswerSpan("[2]", closed=True)),
    ("<thinking>[1]</thinking>[2]", AnswerSpan("[2]")),
    # Kimi-VL, MedGemma 1.5
    ("◁think▷[1]◁/think▷[2]", AnswerSpan("[2]")),
    ("<unused94>thought\n[1]<unused95>[2]", AnswerSpan("[2]")),
    # Magistral
    ("[THINK]draft [1][/THINK][2]", AnswerSpan("[2]")),
    ("[THINK]draft [1]", AnswerSpan("", cut_off=True)),
    # Gemma 4, its end token, and its empty thinking
    ("<|channel>thought\n[1]<channel|>[2]<turn|>", AnswerSpan("[2]", ended=True)),
    ("<|channel>thought\n<channel|>[2]", AnswerSpan("[2]")),
    ("<|channel>thought\n[1]", AnswerSpan("", cut_off=True)),
    # Harmony: each message ends by a token, and the answer is in the last channel
    (
        "<|channel|>analysis<|message|>[1]<|end|><|start|>assistant<|channel|>final<|message|>[2]<|return|>",
        AnswerSpan("[2]", ended=True),
    ),
    ("<|channel|>final <|constrain|>json<|message|>[2]", AnswerSpan("[2]")),
    ("<|channel|>commentary<|message|>[1]<|end|><|start|>assistant<|channel|>fin", AnswerSpan("", cut_off=True)),
    # the same without special tokens
    ("analysisWe see [1]assistantfinal[2]", AnswerSpan("[2]")),
    ("analysisWe see [1]", AnswerSpan("", cut_off=True)),
    # Cohere, Keye-VL, Seed-OSS, MiniMax, LongCat, Sky-T1, Apertus, Solar Open 2, openPangu
    (
        "<|START_THINKING|>[1]<|END_THINKING|><|START_RESPONSE|>[2]<|END_RESPONSE|>",
        AnswerSpan("<|START_RESPONSE|>[2]", ended=True),
    ),
    ("<analysis>easy</analysis><think>[1]</think><answer>[2]</answer>", AnswerSpan("[2]", closed=True)),
    ("<seed:think>[1]</seed:think>[2]", AnswerSpan("[2]")),
    ("<mm:think>[1]</mm:think>[2]", AnswerSpan("[2]")),
    ("<longcat_think>[1]</longcat_think>[2]", AnswerSpan("[2]")),
    ("<|begin_of_thought|>[1]<|end_of_thought|>[2]", AnswerSpan("[2]")),
    ("<|inner_prefix|>[1]<|inner_suffix|>[2]", AnswerSpan("[2]")),
    ("<|think:start|>[1]<|think:end|>[2]", AnswerSpan("[2]")),
    ("[unused16][1][unused17][2]", AnswerSpan("[2]")),
    # tags that only begin like these
    ("<answers>[1]</answers><unthink>", AnswerSpan("<answers>[1]</answers><unthink>")),
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
    assert find_answer(completion)[4:6] == (around, thought)


# what opens and closes thinking, in each family
PAIRS = [
    ("<think>\n", "\n</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("<analysis>", "</analysis>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("◁think▷", "◁/think▷"),
    ("[THINK]", "[/THINK]"),
    ("[unused16]", "[unused17]"),
    ("<unused94>thought\n", "<unused95>"),
    ("<|channel>thought\n", "<channel|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|think:start|>", "<|think:end|>"),
]
DRAFT = 'Perhaps [{"bbox_2d": [1, 2, 3, 4]}], or no finding.'
BOX = '[{"bbox_2d": [5, 6, 7, 8]}]'
#: formats whose labels stand in JSON
KEYED = [
    fmt.name for fmt in map(get_box_format, list_box_formats()) if fmt.syntax.keyed and "{label}" in fmt.layout.item
]


@pytest.mark.parametrize(("opening", "closing"), PAIRS)
class TestFamilies:
    def test_a_draft_is_skipped_and_a_later_negative_read(self, opening, closing):
        fmt = get_box_format("qwen3-vl")
        assert read_boxes(f"{opening}{DRAFT}{closing}{BOX}", fmt).coords == [5, 6, 7, 8]
        assert read_boxes(f"{opening}{DRAFT}{closing}No finding.", fmt).status == "empty"
        assert read_boxes(f"{opening}{DRAFT}", fmt) == RawBoxes([], [], [], "truncated", {})

    def test_a_thinking_that_the_prompt_opened(self, opening, closing):
        fmt = get_box_format("qwen3-vl")
        assert opens_thinking(f"<|im_start|>assistant\n{opening}")
        assert not opens_thinking(f"{opening}\n\n{closing}\n\n")
        assert not opens_thinking(f"Put your thoughts between {opening} and so on.")
        for inside in (DRAFT, BOX, "No finding.", "[]", f"<answer>{BOX}</answer>", ""):
            assert read_boxes(inside, fmt, prompt_opens_thinking=True) == RawBoxes([], [], [], "truncated", {})
        assert read_boxes(f"{DRAFT}{closing}{BOX}", fmt, prompt_opens_thinking=True).coords == [5, 6, 7, 8]
        assert read_boxes(f"{DRAFT}{closing}[]", fmt, prompt_opens_thinking=True).status == "empty"

    def test_what_the_marks_tell(self, opening, closing):
        assert thinking_state(f"{opening}hm{closing}[]") == "paired"
        assert thinking_state(f"hm{closing}[]") == "unopened"
        assert thinking_state(f"{opening}hm") == "unclosed"

    @pytest.mark.parametrize("name", KEYED)
    def test_a_label_may_hold_a_mark_in_json(self, name, opening, closing):
        sizes = {"width": 100, "height": 100, "resized_width": 100, "resized_height": 100}
        labels = (f"a {opening.strip()} b", f"{closing.strip()} c")
        text = format_boxes([[10, 20, 30, 40]] * 2, name, labels=labels, **sizes)
        assert parse_boxes(text, name, **sizes).labels == labels

    def test_elsewhere_it_is_refused(self, opening, closing):
        with pytest.raises(ValueError, match="Expected labels without marks such as <think>"):
            format_boxes([[10, 20, 30, 40]], "internvl", labels=[f"a {opening} b"], width=100, height=100)


def test_scope_all_ignores_an_open_prompt():
    assert find_answer("hm [1]", "all", prompt_opens_thinking=True).text == "hm [1]"


def test_ordinary_labels_are_written_as_they_are():
    text = format_boxes([[1, 2, 3, 4]], "qwen3-vl", labels=["nodule < 5 mm [x]"], width=1000, height=1000)
    assert '"label": "nodule < 5 mm [x]"' in text


@pytest.mark.parametrize("mark", ["<answer>", "</answer>", "<think>", "</think>", "<think></think>"])
def test_a_generation_that_loops_over_marks_has_no_answer(mark):
    # an answer behind it was not meant: nobody thinks ten thousand times
    assert find_answer(mark * (MAX_MARKS + 1) + "[1, 2, 3, 4]") == AnswerSpan("", thought=True)
    assert find_answer(mark * (MAX_MARKS // 4) + "</think>[1, 2, 3, 4]").text == "[1, 2, 3, 4]"


DRAWN = "[100, 100, 500, 500]"


@pytest.mark.parametrize(
    "text",
    [
        f"Reasoning: [1, 2, 30, 40]\n\nFinal answer: {DRAWN}",
        f"Perhaps [1, 2, 30, 40].\n\n**Final Answer:** {DRAWN}",
        f"So [1, 2, 30, 40]? The final answer is: {DRAWN}",
        f"## Thinking\n[1, 2, 30, 40]\n## Final Response\n{DRAWN}",
        f"**Thinking**\n[1, 2, 30, 40]\n**Final Response**\n{DRAWN}",
        f"First [1, 2, 30, 40]. The final answer is {DRAWN}",
        f"[1, 2, 30, 40] <final-answer>{DRAWN}</final-answer>",
        f"Final answer: [1, 2, 30, 40]. No. Final answer: {DRAWN}",  # the last one counts
        f"[1, 2, 30, 40] <final_answer>{DRAWN}</final_answer> as above, [5, 6, 70, 80]",
        f"Of [1, 2, 30, 40] this: \\boxed{{{DRAWN}}}",
        *(
            f"<{tag}>[1, 2, 30, 40]</{tag}>{DRAWN}"
            for tag in ("scratchpad", "reflection", "plan", "draft", "critique", "verify", "look", "caption", "summary")
        ),
        f"{DRAWN}<verify>[1, 2, 30, 40] fits too</verify>",  # a draft behind the answer
        f"<Plan>[1, 2, 30, 40]</plan><draft>[5, 6, 70, 80]</draft>{DRAWN}<critique>[1, 2, 30, 40]",
        # Radiology's own groups of four.
        f"Fractures of ribs (4, 5, 6, 7): {DRAWN}",
        f"Levels [2, 3, 4, 5]: {DRAWN}",
        f"ref. [1, 2, 3, 4] shows it at {DRAWN}",
        f"frame [0, 0, 1000, 1000]: {DRAWN}",
        f"The frame is [0, 0, 1000, 1000], image size: [0, 0, 1000, 1000]. {DRAWN}",
        f"(1, 2, 3, 4) lesions, the largest at {DRAWN}",
        f"Ribs {DRAWN}",  # the only list is the box
    ],
)
@pytest.mark.parametrize("name", ["qwen3-vl", "qwen2.5-vl"])
def test_what_announces_the_answer_and_what_is_no_box(text: str, name: str) -> None:
    side = dict.fromkeys(("width", "height", "resized_width", "resized_height"), 1000)
    found = parse_boxes(text, name, **side)
    assert found.boxes.tolist() == [[100, 100, 500, 500]]
    assert (found.status, found.rejected, found.broken) == ("boxes", {}, ())


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("I looked at [1, 2, 30, 40]. Final answer: No finding.", "empty"),
        ("I looked at [1, 2, 30, 40]. Final answer:", "truncated"),
        ("I looked at [1, 2, 30, 40]. Final answer: a mass.", "unparseable"),
        ("<plan>[1, 2, 30, 40]", "unparseable"),  # a draft that never ends
        ("Both: \\boxed{[1, 2, 30, 40]} and \\boxed{[5, 6, 70, 80]}", "boxes"),
    ],
)
def test_an_announced_answer_without_a_box(text: str, status: str) -> None:
    found = parse_boxes(text, "qwen3-vl", width=1000, height=1000)
    assert (found.status, len(found.boxes)) == (status, 2 if status == "boxes" else 0)


@pytest.mark.parametrize(
    "beside",
    [
        '[{"bbox_2d": [100, 100, 500, 500], "roi": [0, 0, 9, 9]}]',
        '[{"bbox_2d": [100, 100, 500, 500], "meta": {"roi": [0, 0, 9, 9], "deeper": {"size_mm": [1, 2, 3, 4]}}}]',
        '{"roi": [0, 0, 9, 9], "findings": [{"bbox_2d": [100, 100, 500, 500]}]}',
        '{"findings": [{"bbox_2d": [100, 100, 500, 500]}], "polygon": [[1, 2], [3, 4], [5, 6], [7, 8]]}',
        '[{"finding": {"bbox_2d": [100, 100, 500, 500]}, "points": [1, 2]}]',
        '[{"bbox_2d": [100, 100, 500, 500]}]\nFormat: {"bbox_2d": [x1, y1, x2, y2]}',
        'Format: [{"bbox_2d": [x1, y1, x2, y2], "label": "..."}] [{"bbox_2d": [100, 100, 500, 500]}]',
        '[{"bbox_2d": [100, 100, 500, 500]}]\n```json\n{"bbox_2d": [x1, y1, x2, y2]}\n```',
    ],
)
def test_what_stands_beside_a_complete_answer_costs_nothing(beside: str) -> None:
    found = parse_boxes(beside, "qwen3-vl", width=1000, height=1000)
    assert (found.boxes.tolist(), found.rejected, found.broken) == ([[100, 100, 500, 500]], {}, ())


@pytest.mark.parametrize(
    "item", ['{"bbox_2d": [x1, y1, x2, y2]}', '{"roi": [0, 0, 9, 9]}', '{"polygon": [1, 2, 3, 4]}', '{"point": [1, 2]}']
)
@pytest.mark.parametrize("around", ["{}", '{{"findings": {}}}'])
def test_a_list_item_counts_as_a_box_at_any_depth(item: str, around: str) -> None:
    text = around.format('[{"bbox_2d": [100, 100, 500, 500]}, ' + item + "]")
    found = parse_boxes(text, "qwen3-vl", width=1000, height=1000)
    assert (len(found.boxes), len(found.broken)) == (1, 1)


@pytest.mark.parametrize("counted", ["Levels [2, 3, 4, 5]", "ref. [1, 2, 3, 4]", "slices [1, 2, 3, 4],"])
def test_counts_in_a_plain_sentence_are_no_box(counted: str) -> None:
    found = parse_boxes(f"{counted}: a mass at [0.1, 0.2, 0.3, 0.4].", "radvlm", width=10, height=10)
    assert found.boxes.tolist() == [[1, 2, 3, 4]]


def test_words_before_a_box_tag_label_it_in_json_formats() -> None:
    # MedMO's answer in the format of its model type
    text = "Fractures <box>[[100, 100, 200, 200], [300, 300, 400, 400]]</box>"
    found = parse_boxes(text, box_format_for_model_type("qwen3_vl"), width=1000, height=1000)
    assert (len(found.boxes), found.labels) == (2, ("Fractures", "Fractures"))

"""Which part of a completion is read, and the suspicion that the prompt opened the thinking."""

import pytest

from grounding_rewards.parsing import RawBoxes, format_boxes, get_box_format, list_box_formats, parse_boxes, read_boxes
from grounding_rewards.parsing.answer_span import MAX_MARKS, AnswerSpan, find_answer, opens_thinking, thinking_state
from tests.tables import table


@pytest.mark.parametrize(("scope", "completion", "text"), table("parsing/answer_spans", "scopes"))
def test_scope(scope, completion, text):
    assert find_answer(completion, scope).text == text


@pytest.mark.parametrize(("completion", "text", "flags"), table("parsing/answer_spans", "cases"))
def test_the_answer_is_what_counts_of_a_completion(completion, text, flags):
    expected = AnswerSpan(text, **dict.fromkeys(flags.split(), True))
    # what stands around it is for the test below
    assert find_answer(completion)[:4] == expected[:4]


@pytest.mark.parametrize(("completion", "around", "thought"), table("parsing/cases", "what_stands_around_the_answer"))
def test_what_stands_around_the_answer(completion, around, thought):
    assert find_answer(completion)[4:6] == (around, thought)


# what opens and closes thinking, in each family
PAIRS = table("parsing/answer_spans", "pairs")
DRAFT = 'Perhaps [{"bbox_2d": [1, 2, 3, 4]}], or no finding.'
BOX = '[{"bbox_2d": [5, 6, 7, 8]}]'
#: formats whose labels stand in JSON
ALL = map(get_box_format, list_box_formats())
KEYED = [fmt.name for fmt in ALL if fmt.syntax.keyed and "{label}" in fmt.layout.item]


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

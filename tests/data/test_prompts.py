"""The gold answer is what the parser reads back, and the prompt asks for just that."""

import re

import numpy as np
import pytest

from grounding_rewards.boxes import ORDERS
from grounding_rewards.data import prompts
from grounding_rewards.parsing import get_box_format, list_box_formats, parse_boxes
from grounding_rewards.rewards.grounding import get_reward
from tests.tables import table

SIZES = {"width": 400, "height": 320, "resized_width": 200, "resized_height": 160}
ROW = {"boxes": [[100.0, 40.0, 300.0, 200.0], [50.0, 10.0, 90.0, 90.0]], "labels": ["mass", "effusion"], **SIZES}


@pytest.mark.parametrize("box_format", list_box_formats())
def test_every_format_reads_its_gold_answer_back(box_format):
    parsed = parse_boxes(prompts.gold_answer(ROW, box_format), box_format, **SIZES)
    # half a hundredth, or half of one of 32 cells, of 400 pixels
    np.testing.assert_allclose(parsed.boxes, ROW["boxes"], atol=6.25 if box_format == "kosmos-2" else 2)


def test_qwen_2_5_counts_in_resized_pixels():
    # By hand: the image is shrunk to half.
    assert '"bbox_2d": [50, 20, 150, 100], "label": "mass"' in prompts.gold_answer(ROW, "qwen2.5-vl")


WHAT = {"detection": ["mass", "pleural effusion"], "finding": "mass", "phrase": "Small left pleural effusion."}
DECLARED = [{"syntax": base, "order": order} for base in ("json", "brackets") for order in ("yxyx", "xywh", "cxcywh")]


def text_of(prompt):
    return prompt[0]["content"][1]["text"]


@pytest.mark.parametrize("box_format", [*list_box_formats(), *DECLARED], ids=str)
@pytest.mark.parametrize("task", prompts.TASKS)
def test_a_copied_prompt_earns_nothing(task, box_format):
    reward = get_reward("R4", box_format=box_format, no_box_bonus=1.0)
    for wording in range(prompts.wordings(task)):
        text = text_of(prompts.task_prompt(task, WHAT[task], box_format, wording=wording))
        assert parse_boxes(text, box_format, **SIZES).status == "unparseable", text
        sizes = {name: [value] * 2 for name, value in SIZES.items()}
        assert reward([text] * 2, boxes=[ROW["boxes"], []], **sizes) == [0.0, 0.0]


@pytest.mark.parametrize("box_format", [*list_box_formats(), *DECLARED], ids=str)
def test_the_example_of_the_instruction_is_what_the_parser_expects(box_format):
    """With numbers in place of its placeholders it is read as one box, and its words for nothing as a negative."""
    fmt = get_box_format(box_format)
    numbers = ["0.10", "0.20", "0.50", "0.60"] if fmt.decimals else ["10", "20", "50", "60"]
    if fmt.syntax.patches:
        numbers = ["0033", "0100", "", ""]
    parsed = parse_boxes(prompts.format_example(fmt, numbers), fmt, **SIZES)
    assert (parsed.status, len(parsed.boxes), parsed.rejected) == ("boxes", 1, {})
    assert prompts.format_instruction(fmt).endswith(prompts.format_example(fmt, ORDERS[fmt.order].numbers))
    assert fmt.layout.negative in prompts.format_instruction(fmt)
    assert parse_boxes(fmt.layout.negative, fmt, **SIZES).status == "empty"


@pytest.mark.parametrize(("box_format", "stated"), table("data/tables", "instructions"), ids=str)
def test_the_instruction_says_what_the_numbers_mean(box_format, stated):
    assert stated in prompts.format_instruction(box_format)


@pytest.mark.parametrize("task", prompts.TASKS)
def test_paligemma_is_asked_in_the_words_that_it_was_trained_on(task):
    named = WHAT[task] if isinstance(WHAT[task], str) else "mass ; pleural effusion"
    assert {text_of(prompts.task_prompt(task, WHAT[task], "paligemma", wording=k)) for k in range(4)} == {
        f"detect {named}"
    }


@pytest.mark.parametrize(("prompt", "problem"), table("data/tables", "prompts_that_ask_nothing"))
def test_prompts_that_ask_nothing(prompt, problem):
    assert re.search(problem, prompts.prompt_problem(prompt))


def test_the_image_is_asked_about_in_the_first_turn_of_the_user():
    asked = prompts.conversation([{"role": "system", "content": "Be brief."}, {"role": "user", "content": ["Where?"]}])
    assert [[part["type"] for part in turn["content"]] for turn in asked] == [["text"], ["image", "text"]]
    assert prompts.conversation(asked) == asked


@pytest.mark.parametrize("task", prompts.TASKS)
def test_every_wording_names_what_is_asked_for(task):
    texts = [
        text_of(prompts.task_prompt(task, WHAT[task], "qwen3-vl", wording=k)) for k in range(prompts.wordings(task))
    ]
    named = WHAT[task] if isinstance(WHAT[task], str) else "mass, pleural effusion"
    assert all(named in text for text in texts)
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    ("task", "what", "wording", "message"), table("data/tables", "prompts_that_cannot_be_asked_are_refused")
)
def test_prompts_that_cannot_be_asked_are_refused(task, what, wording, message):
    with pytest.raises(ValueError, match=message):
        prompts.task_prompt(task, what, "qwen3-vl", wording=wording)

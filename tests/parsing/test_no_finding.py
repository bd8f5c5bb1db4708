"""What counts as a no-finding statement, and what only sounds like one."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards import parse_boxes
from grounding_rewards.parsing.no_finding import MAX_STATEMENT, SENTENCES, echoes_prompt, states_nothing

HERE = Path(__file__).parent

STATEMENTS = [
    # words that published prompts ask for, wrapped
    "none",
    "No Objects",
    "No findings.",
    "**No findings.**",
    "```json\nnone\n```",
    "Answer: none",
    "No bounding boxes",
    # denials of findings of the vocabulary
    "No effusion or pneumothorax.",
    "There is no evidence of fracture.",
    "There are no signs of pneumonia in the left lower lobe.",
    "No focal consolidation, effusion, or pneumothorax.",
    "Pneumothorax: none.",
    "Pleural effusion is not seen.",
    "I do not see any abnormality in this image.",
    # normal structures, and both
    "Normal chest radiograph.",
    "The lungs are clear. Heart size is normal. No effusion.",
    "PA and lateral views of the chest. No pneumothorax.",
    "未见异常",
]
TRAPS = [
    # a disease in the form of a denial: what is denied is no finding
    "No excretion from the left kidney.",
    "No continuity of the cortex.",
    "No red reflex.",
    "No bowel sounds on the left.",
    "No lung markings on the right.",
    # old findings, doubt, exceptions
    "No change in the left effusion.",
    "No new effusion.",
    "No other abnormality.",
    "No fracture except of the radius.",
    "Cannot rule out pneumonia.",
    # the last of a list is asserted
    "No effusion, cardiomegaly.",
    "No effusion, consolidation, and a nodule.",
    "No effusion but a mass.",
    "No pneumothorax. Small left effusion.",
    "No effusion. In the left lower lobe.",
    # cut off, asked, echoed, stuck
    "No sign of a",
    "There are no",
    "Is there no effusion?",
    "If there is no finding, return 'No Objects'.",
    "No effusion. " * 3,
    "",
]


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_statement(text):
    assert states_nothing(text)
    assert parse_boxes(text, "qwen3-vl", width=9, height=9).status == "empty"


@pytest.mark.parametrize("text", sorted(SENTENCES))
def test_every_published_sentence_is_one_as_people_write_it(text):
    assert states_nothing(f"{text.capitalize()}.")


@pytest.mark.parametrize("text", TRAPS)
def test_a_trap(text):
    assert not states_nothing(text)


def _sentences(name):
    return [one.replace("\\n", "\n") for one in (HERE / name).read_text(encoding="utf-8").splitlines() if one.strip()]


def test_of_answers_about_the_chest_that_assert_something_none_passes():
    passing = [one for one in _sentences("heldout_others.txt") if states_nothing(one)]
    assert passing == []


def test_of_free_negatives_about_the_chest_three_of_four_count():
    texts = _sentences("heldout_negatives.txt")
    assert sum(map(states_nothing, texts)) >= 0.75 * len(texts)


def test_sentences_of_the_users_own():
    own = {"syntax": "qwen3-vl", "no_finding": ["Kein Befund."]}
    assert parse_boxes("kein befund", own, width=9, height=9).status == "empty"
    assert parse_boxes("Kein Befund", "qwen3-vl", width=9, height=9).status == "unparseable"
    with pytest.raises(ValueError, match="Expected a list of texts for `no_finding` of `box_format`, got 3"):
        parse_boxes("", {**own, "no_finding": 3}, width=9, height=9)


def test_an_instruction_is_an_echo():
    assert echoes_prompt("Return the boxes as JSON. If there is none, output [].")


@given(st.text(max_size=200))
def test_any_text_is_judged(text):
    assert states_nothing(text) in (True, False)


@pytest.mark.parametrize(
    "piece", ["no ", "no effusion, ", "and ", "the lungs are clear, ", "a" * 40, "no a or ", ", with "]
)
def test_the_time_is_bounded(piece):
    begun = time.process_time()
    states_nothing((piece * MAX_STATEMENT)[:MAX_STATEMENT])
    # A bound against growth beyond measure, not a measurement.
    assert time.process_time() - begun < 5

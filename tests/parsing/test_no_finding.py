"""What counts as a no-finding statement, and what only sounds like one."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards import parse_boxes
from grounding_rewards.parsing.no_finding import MAX_STATEMENT, SENTENCES, echoes_prompt, states_nothing
from tests.tables import table

HERE = Path(__file__).parent


@pytest.mark.parametrize("text", table("parsing/statements", "statements"))
def test_a_statement(text):
    assert states_nothing(text)
    assert parse_boxes(text, "qwen3-vl", width=9, height=9).status == "empty"


@pytest.mark.parametrize("text", sorted(SENTENCES))
def test_every_published_sentence_is_one_as_people_write_it(text):
    assert states_nothing(f"{text.capitalize()}.")


@pytest.mark.parametrize("text", table("parsing/statements", "traps"))
def test_a_trap(text):
    assert not states_nothing(text)


def _sentences(name):
    return [one.replace("\\n", "\n") for one in (HERE / name).read_text(encoding="utf-8").splitlines() if one.strip()]


def test_of_answers_about_the_chest_that_assert_something_none_passes():
    assert [one for one in _sentences("heldout_others.txt") if states_nothing(one)] == []


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

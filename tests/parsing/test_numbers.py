"""Four tokens to a box, or the name of what is wrong with them."""

import pytest

from grounding_rewards.parsing.numbers import box_or_reason, read_number, split_numbers
from tests.tables import table

TOO_LONG = (["1", "2", "3", "9" * 100_000], "number_too_large")


@pytest.mark.parametrize(("tokens", "read"), [*table("parsing/numbers", "boxes"), TOO_LONG])
def test_tokens_make_a_box_or_the_reason_for_none(tokens, read):
    assert box_or_reason(tokens) == read


@pytest.mark.parametrize(("token", "value"), [("0.9", 0.9), ("90%", None), ("1e300", None), ("nan", None)])
def test_a_number_is_read_or_none(token, value):
    assert read_number(token) == value


@pytest.mark.parametrize(("content", "lists"), table("parsing/numbers", "lists"))
def test_content_of_brackets_is_split_into_lists(content, lists):
    assert split_numbers(content) == lists

"""What `grounding-rewards inspect` prints, and that no completion can break it."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from grounding_rewards.commands.inspect import print_inspection
from grounding_rewards.logs.inspection import inspect_completions
from tests.logs.test_inspection import TEXTS, rows


def shown(texts, rows=None, *, box_format="qwen3-vl"):
    out = io.StringIO()
    inspection = inspect_completions(texts, rows or [{}] * len(texts), box_format)
    print_inspection(inspection, Console(file=out, width=120))
    return out.getvalue()


def test_the_page_shows_each_status_and_reason_with_its_meaning_and_an_example():
    page = shown(TEXTS, rows())
    assert "a list of numbers that is none of" in page
    assert '[{"bbox_2d": [1, 2, 3]}]' in page
    assert "Too little to judge norm1000, order xyxy" in page


def test_a_cut_off_text_is_shown_by_its_end_and_thinking_is_left_out():
    long = "<think>" + "hm " * 99 + "</think>" + json.dumps([{"bbox_2d": [k, 1, 900, 950]} for k in range(9)])
    page = shown([long, long[:-9] + "!"])
    assert "hm" not in page
    assert '[{"bbox_2d": [0, 1, 900, 950]}' in page
    assert "[8, 1, 90!" in page
    assert "thinking never closed" in page
    # Where the whole text counts, nobody looks for thinking.
    assert "thinking never closed" not in shown([long], box_format={"syntax": "json", "scope": "all"})


@pytest.mark.parametrize("text", ["[/nothing to close]", "\x1b[2J\x1b[31mclears the screen", "\ud800 half a character"])
def test_no_completion_can_break_the_page(text):
    assert text.encode("unicode_escape").decode()[:12] in shown([text])


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_any_completions_make_a_page(texts):
    page = shown(texts, [{"boxes": [], "width": 9, "height": 9}] * len(texts))
    page.encode("utf-8")
    assert all(character.isprintable() or character == "\n" for character in page)

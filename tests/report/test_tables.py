"""The same rows as Markdown, HTML and in the terminal."""

from __future__ import annotations

import io
import math

import pytest

from grounding_rewards.report.tables import (
    Row,
    format_interval,
    format_value,
    html_table,
    markdown_table,
    measured_columns,
    terminal_table,
)

NAN = float("nan")
HEADINGS = {"iou": "mean <IoU>", "label": "right label"}
ROWS = [
    Row("before", {"iou": (0.5, 0.4, 0.6), "label": (NAN, NAN, NAN)}),
    Row("after − before", {"iou": (-0.02, -0.05, 0.01), "label": (NAN, NAN, NAN)}, is_difference=True),
]


@pytest.mark.parametrize(
    ("value", "signed", "text"),
    [
        (0.12345, False, "0.123"),
        (0.0, True, "0.000"),
        (-0.0001, True, "0.000"),  # no sign on what rounds to nothing
        (-0.5, True, "-0.500"),
        (NAN, True, "–"),
    ],
)
def test_values(value: float, signed: bool, text: str) -> None:
    assert format_value(value, signed=signed) == text


def test_an_interval_without_ends_is_left_out() -> None:
    assert format_interval((0.5, NAN, NAN)) == ""


def test_columns_that_nobody_measured_are_left_out() -> None:
    assert list(measured_columns(ROWS, HEADINGS)) == ["iou"]
    assert "right label" not in html_table(ROWS, HEADINGS)


def test_html_marks_the_difference_and_escapes() -> None:
    html = html_table(ROWS, HEADINGS)
    assert "mean &lt;IoU&gt;" in html
    assert '<tr class="difference"><th scope="row">after − before</th><td>-0.020' in html
    assert "<small>[-0.050, +0.010]</small>" in html


def test_terminal_shows_brackets_as_they_are() -> None:
    from rich.console import Console

    buffer = io.StringIO()
    Console(file=buffer, width=80).print(terminal_table(ROWS, HEADINGS, title="R4"))
    text = buffer.getvalue()
    assert "[0.400, 0.600]" in text
    assert "[-0.050, +0.010]" in text


def test_markdown() -> None:
    assert markdown_table(["a", "b"], [["1", "2"]]) == "| a | b |\n|---|---|\n| 1 | 2 |"
    assert math.isnan(ROWS[0].figures["label"][0])

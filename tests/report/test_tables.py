"""Tables in the terminal, as Markdown and as HTML."""

from __future__ import annotations

import io
import math
from typing import Any

from grounding_rewards.metrics.robustness import RobustnessPoint
from grounding_rewards.report.render import _environment
from grounding_rewards.report.tables import (
    Row,
    markdown_table,
    measured_columns,
    robustness_rows,
    terminal_table,
)

NAN = float("nan")
HEADINGS = {"iou": "mean <IoU>", "label": "right label"}
ROWS = [
    Row("before", {"iou": (0.5, 0.4, 0.6), "label": (NAN, NAN, NAN)}),
    Row("after − before", {"iou": (-0.02, -0.05, 0.01), "label": (NAN, NAN, NAN)}, is_difference=True),
]


def html_table(rows: list[Row], headings: dict[str, str]) -> str:
    macros: Any = _environment().get_template("macros.html.jinja").module
    return str(macros.metric_table(rows, measured_columns(rows, headings), "system"))


def test_columns_that_nobody_measured_are_left_out() -> None:
    assert list(measured_columns(ROWS, HEADINGS)) == ["iou"]
    assert "right label" not in html_table(ROWS, HEADINGS)


def test_html_has_the_interval_beneath_the_value_and_escapes() -> None:
    html = html_table(ROWS, HEADINGS)
    assert "mean &lt;IoU&gt;" in html
    assert '<tr><th scope="row">before</th><td>0.500<small>[0.400, 0.600]</small></td></tr>' in html


def test_no_column_is_without_a_heading() -> None:
    assert '<th scope="col">system</th>' in html_table(ROWS, HEADINGS)


def test_terminal_shows_brackets_as_they_are() -> None:
    from rich.console import Console

    buffer = io.StringIO()
    rows = [*ROWS, Row("[red]", ROWS[0].metrics)]
    Console(file=buffer, width=80).print(terminal_table(rows, HEADINGS, title="R4"))
    text = buffer.getvalue()
    assert "[red]" in text
    assert "[0.400, 0.600]" in text
    assert "[-0.050, +0.010]" in text


def test_markdown() -> None:
    assert markdown_table(["a", "b"], [["1", "2"]]) == "| a | b |\n|---|---|\n| 1 | 2 |"
    assert math.isnan(ROWS[0].metrics["label"][0])


def test_the_table_of_robustness_has_the_image_as_it_is_once() -> None:
    share = (0.5, 0.4, 0.6)
    points = [RobustnessPoint("corruptions", n, s, share, share, share) for n in ("noise", "blur") for s in (0, 1)]
    rows = robustness_rows(points)
    assert [row.name for row in rows] == ["the image as it is", "noise, strength 1", "blur, strength 1"]

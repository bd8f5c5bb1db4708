"""Metrics and intervals as text."""

from __future__ import annotations

import pytest

from grounding_rewards.metrics.estimates import format_interval, format_value

NAN = float("nan")


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

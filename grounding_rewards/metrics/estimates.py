"""What a metric is, and its value with an interval: as numbers, as JSON, and as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

#: Stands in tables where nothing was measured.
NOTHING = "–"


#: The ends of a metric's scale; infinite without any.
Bounds = tuple[float, float]
UNIT: Bounds = (0.0, 1.0)
COUNT: Bounds = (0.0, math.inf)
SIGNED: Bounds = (-math.inf, math.inf)


class Metric(NamedTuple):
    """A metric of an evaluation; tables, pages and `diff` take from here all that they show of it.

    heading: for tables.
    definition: one sentence for a person.
    of: the function that computes it; its table says from what. None where several metrics are computed together.
    lower_is_better: None where 0 is best from both sides.
    is_share: how often something happens among things that are counted: its interval is that of
        :mod:`grounding_rewards.metrics.intervals`.
    bounds: the ends of its scale, which its interval does not cross: `UNIT`, `COUNT` or `SIGNED`.
    """

    heading: str
    definition: str
    of: Any = None
    lower_is_better: bool | None = False
    is_share: bool = False
    bounds: Bounds = UNIT


class Estimate(NamedTuple):
    """A metric and the ends of its 95 % interval; all three are NaN where there is nothing to measure."""

    value: float
    low: float
    high: float


#: Metrics by key.
Metrics = dict[str, Estimate]


def percent(share: float) -> str:
    """A share in per cent, rounded to 0 % or 100 % only where it is exactly that.

    Example:
        >>> percent(0.0004), percent(0.25), percent(0.9999), percent(0)
        ('< 1 %', '25 %', '> 99 %', '0 %')
    """
    if 0 < share < 0.01:
        return "< 1 %"
    return "> 99 %" if 0.99 < share < 1 else f"{share:.0%}".replace("%", " %")


def finite_or_none(value: float) -> float | None:
    """A number as JSON has it, which knows neither NaN nor infinity.

    Example:
        >>> finite_or_none(0.5), finite_or_none(float("nan"))
        (0.5, None)
    """
    return float(value) if math.isfinite(value) else None


def estimate_as_json(estimate: Sequence[float]) -> dict[str, float | None]:
    """A metric and the ends of its interval as plain values.

    Example:
        >>> estimate_as_json(Estimate(0.5, 0.4, float("nan")))
        {'value': 0.5, 'low': 0.4, 'high': None}
    """
    return dict(zip(Estimate._fields, map(finite_or_none, estimate), strict=True))


def estimate_from_json(stored: Mapping[str, float | None]) -> Estimate:
    """What :func:`estimate_as_json` wrote.

    Example:
        >>> estimate_from_json({"value": 0.5, "low": 0.4, "high": None})
        Estimate(value=0.5, low=0.4, high=nan)
    """
    ends = (stored.get(end) for end in Estimate._fields)
    return Estimate(*(math.nan if end is None else float(end) for end in ends))


def format_value(value: float, *, signed: bool = False) -> str:
    """Three decimals, or a dash for NaN.

    Example:
        >>> format_value(0.67), format_value(0.02, signed=True), format_value(float("nan"))
        ('0.670', '+0.020', '–')
    """
    if math.isnan(value):
        return NOTHING
    text = f"{value:+.3f}" if signed else f"{value:.3f}"
    return "0.000" if float(text) == 0 else text


def format_interval(estimate: tuple[float, float, float], *, signed: bool = False) -> str:
    """The ends of an interval, or nothing where nothing was measured.

    Example:
        >>> format_interval(Estimate(0.67, 0.64, 0.7)), format_interval(Estimate(0.02, -0.01, 0.05), signed=True)
        ('[0.640, 0.700]', '[-0.010, +0.050]')
    """
    _, low, high = estimate
    if math.isnan(low) or math.isnan(high):
        return ""
    return f"[{format_value(low, signed=signed)}, {format_value(high, signed=signed)}]"


def format_estimate(estimate: tuple[float, float, float], *, signed: bool = False) -> str:
    """The value and its interval, for a sentence or a cell.

    Example:
        >>> format_estimate(Estimate(0.67, 0.64, 0.7)), format_estimate((float("nan"),) * 3)
        ('0.670 [0.640, 0.700]', '–')
    """
    return f"{format_value(estimate[0], signed=signed)} {format_interval(estimate, signed=signed)}".rstrip()


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as a notebook shows it.

    Example:
        >>> html_table(["metric", "after"], [["F1 < 1", "0.5"]])
        '<table><tr><th>metric</th><th>after</th></tr><tr><td>F1 &lt; 1</td><td>0.5</td></tr></table>'
    """
    lines = [f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in header)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
    return f"<table>{''.join(lines)}</table>"


def format_p(p: float) -> str:
    """A p value for a sentence.

    Example:
        >>> format_p(0.03125), format_p(0.0005)
        ('p = 0.031', 'p < 0.001')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def counted(number: int, what: str) -> str:
    """A number of things in words.

    Example:
        >>> counted(1, "image"), counted(3, "image")
        ('1 image', '3 images')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def capitalised(sentence: str) -> str:
    """The sentence with a capital letter, the rest as it is.

    Example:
        >>> capitalised("mean IoU rose")
        'Mean IoU rose'
    """
    return sentence[:1].upper() + sentence[1:]

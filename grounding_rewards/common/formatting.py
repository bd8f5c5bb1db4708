"""Numbers and sentences for people: percentages, p values, counted things, a table for a notebook."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from html import escape
from typing import Any

import numpy as np

#: Stands in tables where nothing was measured.
NO_VALUE = "–"
# Names in a sentence.
_MOST_NAMED = 3


def percent(share: float) -> str:
    """A share as text in per cent, rounded to 0 % or 100 % only where it is exactly that.

    Example:
        >>> percent(0.0004), percent(0.25), percent(0.9999), percent(0)
        ('< 1 %', '25 %', '> 99 %', '0 %')
    """
    if 0 < share < 0.01:
        return "< 1 %"
    if 0.99 < share < 1:
        return "> 99 %"
    return f"{100 * share:.0f} %"


def finite_or_none(value: float) -> float | None:
    """A number for JSON, which knows neither NaN nor infinity: None for these.

    Example:
        >>> finite_or_none(0.5), finite_or_none(float("nan"))
        (0.5, None)
    """
    return float(value) if math.isfinite(value) else None


def as_json(value: Any) -> Any:
    """A value in the types of JSON: named tuples and dataclasses as objects, arrays as lists, NaN and infinity as null.

    Example:
        >>> as_json({"values": np.array([0.5, np.nan]), "name": "a"})
        {'values': [0.5, None], 'name': 'a'}
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    elif is_dataclass(value):
        value = vars(value)
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {key: as_json(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(member) for member in value]
    return finite_or_none(value) if isinstance(value, float) else value


def format_value(value: float, *, signed: bool = False) -> str:
    """A value as text with three decimals, or a dash for NaN.

    Example:
        >>> format_value(0.67), format_value(0.02, signed=True), format_value(float("nan"))
        ('0.670', '+0.020', '–')
    """
    if math.isnan(value):
        return NO_VALUE
    text = f"{value:+.3f}" if signed else f"{value:.3f}"
    return "0.000" if float(text) == 0 else text


def format_p(p: float) -> str:
    """A p value as text for a sentence.

    Example:
        >>> format_p(0.03125), format_p(0.0005)
        ('p = 0.031', 'p < 0.001')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def counted(number: int, noun: str) -> str:
    """A number of things in words, with an s behind the noun if they are not one.

    Example:
        >>> counted(1, "image"), counted(3, "image")
        ('1 image', '3 images')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def capitalised(sentence: str) -> str:
    """The sentence with a capital letter at its beginning, the rest as it is.

    Example:
        >>> capitalised("mean IoU rose")
        'Mean IoU rose'
    """
    return sentence[:1].upper() + sentence[1:]


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """A table as HTML, for a notebook.

    Example:
        >>> html_table(["metric"], [["F1 < 1"]], "better")
        '<table><caption>better</caption><tr><th>metric</th></tr><tr><td>F1 &lt; 1</td></tr></table>'
        >>> html_table(["metric"], [])
        '<table><tr><th>metric</th></tr></table>'
    """
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in header)]
    for row in rows:
        lines.append("".join(f"<td>{escape(cell)}</td>" for cell in row))
    heading = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{heading}<tr>{'</tr><tr>'.join(lines)}</tr></table>"


def first_of(names: Sequence[str]) -> str:
    """The first few names as text, and how many more there are.

    Example:
        >>> first_of(["a", "b"]), first_of(["a", "b", "c", "d", "e"])
        ('a, b', 'a, b, c and 2 more')
    """
    sentence = ", ".join(names[:_MOST_NAMED])
    return sentence if len(names) <= _MOST_NAMED else f"{sentence} and {len(names) - _MOST_NAMED} more"

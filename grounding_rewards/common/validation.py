"""Refuse illegal values, in the form of all errors of the package: expected what, got what, how to fix it."""

import math
from collections.abc import Collection, Mapping
from numbers import Real
from typing import NamedTuple


class Interval(NamedTuple):
    """Numbers from `low` to `high`; `above` and `below` leave out the ends.

    Example:
        >>> str(Interval(0, 1, above=True)), 0.0 in Interval(0, 1, above=True), str(Interval(1)), 10**400 in Interval(1)
        ('a number in (0, 1]', False, 'a number from 1 up', False)
    """

    low: float = 0.0
    high: float = math.inf
    above: bool = False
    below: bool = False

    def __contains__(self, value: object) -> bool:
        """Whether a value is a finite number, no bool, inside the interval; `above` and `below` leave out an end."""
        if not isinstance(value, Real) or isinstance(value, bool):
            return False
        try:
            number = float(value)
        except OverflowError:
            return False
        if (self.above and number == self.low) or (self.below and number == self.high):
            return False
        return self.low <= number <= self.high and math.isfinite(number)

    def __str__(self) -> str:
        """The interval in words for errors; a round bracket stands at an end that is excluded."""
        if math.isinf(self.high):
            return f"a number above {self.low:g}" if self.above else f"a number from {self.low:g} up"
        opening = "(" if self.above else "["
        closing = ")" if self.below else "]"
        return f"a number in {opening}{self.low:g}, {self.high:g}{closing}"


SHARE = Interval(0, 1)
SOME_SHARE = Interval(0, 1, above=True)


def check_number(name: str, value: object, legal: Interval, hint: str = "Choose one in that range.") -> float:
    """Return the value as a float; refuse one that is not a number in the interval.

    Example:
        >>> check_number("beta", 2, Interval(0, 1000, above=True))
        2.0
        >>> check_number("iou_threshold", 1.5, SHARE, "The usual value is 0.5.")
        Traceback (most recent call last):
        ValueError: Expected a number in [0, 1] for `iou_threshold`, got 1.5. The usual value is 0.5.
    """
    if not isinstance(value, Real) or value not in legal:
        raise ValueError(f"Expected {legal} for `{name}`, got {value!r}. {hint}")
    return float(value)


def check_keys(name: str, mapping: object, legal: Collection[str], hint: str = "Choose among these.") -> None:
    """Refuse a mapping with a key that is not legal; anything else is passed over.

    Example:
        >>> check_keys("look_closer", {"cost": 0.1, "look": 3}, ("looks", "cost"))
        Traceback (most recent call last):
        ValueError: Expected some of looks, cost in look_closer, got 'look'. Choose among these.
    """
    if not isinstance(mapping, Mapping):
        return
    unknown = [str(key) for key in mapping if key not in legal]
    if unknown:
        raise ValueError(f"Expected some of {', '.join(legal)} in {name}, got {', '.join(map(repr, unknown))}. {hint}")


def check_word(name: str, value: object, legal: Collection[str]) -> None:
    """Refuse a value that is not one of the legal words.

    Example:
        >>> check_word("matching", "best", ("greedy", "hungarian"))
        Traceback (most recent call last):
        ValueError: Expected a known word for `matching`, got 'best'. Use one of: greedy, hungarian.
    """
    if not isinstance(value, str) or value not in legal:
        raise ValueError(f"Expected a known word for `{name}`, got {value!r:.200}. Use one of: {', '.join(legal)}.")

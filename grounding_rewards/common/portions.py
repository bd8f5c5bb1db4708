"""Items and errors as values: an engine that is told of an error would log it, with what it says of images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any


def portions_of(items: Iterable[Any], size: int) -> Iterator[list[tuple[Any, Exception | None]]]:
    """Items, so many at once, each with no error; at last the error that ends them, if one does.

    Example:
        >>> list(portions_of((6 // k for k in (3, 2, 1, 0)), 2))
        [[(2, None), (3, None)], [(None, ZeroDivisionError('integer division or modulo by zero'))]]
    """
    left = iter(items)
    try:
        while portion := list(islice(left, size)):
            yield [(item, None) for item in portion]
    except Exception as error:
        yield [(None, error)]


def outcome_of(
    function: Callable[[Any], Any], item: Any, error: Exception | None = None
) -> tuple[Any, Exception | None]:
    """What a function makes of an item and no error, or the error that there is, or that it raises.

    Example:
        >>> outcome_of(abs, -1), outcome_of(int, "x")[0], outcome_of(abs, None, KeyError("a"))
        ((1, None), None, (None, KeyError('a')))
    """
    try:
        return (None, error) if error is not None else (function(item), None)
    except Exception as raised:
        return None, raised

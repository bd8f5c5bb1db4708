"""Films that a reader cannot read: an error at the first one, or, where the caller asked for it, passed over, listed.

A reader makes each film with `sound_films`. A fault that belongs to no film, such as a row of a table of boxes with too
few cells, stays an error: passed over, it would leave a film without one of its boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from grounding_rewards.data.readers.base import FilmRecord

_FAULTS: ContextVar[dict[str, None] | None] = ContextVar("faults", default=None)


@contextmanager
def passing_over() -> Iterator[dict[str, None]]:
    """Let readers pass over the films that they cannot read; yields their errors, each once, as keys.

    Example:
        >>> def film(name):
        ...     raise ValueError(f"Expected a box for {name}, got none. Draw it.")
        >>> with passing_over() as faults:
        ...     sound_films(film, "a")
        []
        >>> list(faults)
        ['Expected a box for a, got none. Draw it.']
    """
    faults: dict[str, None] = {}
    token = _FAULTS.set(faults)
    try:
        yield faults
    finally:
        _FAULTS.reset(token)


def sound_films(make: Callable[..., FilmRecord], *arguments: Any) -> list[FilmRecord]:
    """The film that a function makes of these arguments; none where it raises `ValueError` within `passing_over`."""
    try:
        return [make(*arguments)]
    except ValueError as error:
        faults = _FAULTS.get()
        if faults is None:
            raise
        faults[" ".join(str(error).split())] = None
        return []

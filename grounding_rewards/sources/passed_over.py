"""Images that a source cannot read: an error at the first one, or, where the caller asked for it, passed over, listed.

A source makes its images with `sound_images`. A fault that belongs to no image, such as a row of a table of boxes with
too few cells, stays an error: passed over, it would leave an image without one of its boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

_Made = TypeVar("_Made")

_FAULTS: ContextVar[dict[str, None] | None] = ContextVar("faults", default=None)


@contextmanager
def passing_over() -> Iterator[dict[str, None]]:
    """Let sources pass over the images that they cannot read; yields their errors, each once, as keys.

    Example:
        >>> def image(name):
        ...     raise ValueError(f"Expected a box for {name}, got none. Draw it.")
        >>> with passing_over() as faults:
        ...     list(sound_images(image, [("a",)]))
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


def passes_over() -> bool:
    """Whether what a source cannot read is passed over here."""
    return _FAULTS.get() is not None


def sound_images(make: Callable[..., _Made | None], each: Iterable[tuple[Any, ...]]) -> Iterator[_Made]:
    """What a function makes of each of these arguments, an image or a part of it, but for None; nothing where it raises
    `ValueError` within `passing_over`.
    """
    for arguments in each:
        try:
            made = make(*arguments)
        except ValueError as error:
            faults = _FAULTS.get()
            if faults is None:
                raise
            faults[" ".join(str(error).split())] = None
        else:
            if made is not None:
                yield made

"""May what lies at a place be gone on with, or written over? One rule for runs, answers, evaluations and datasets.

A new or empty place may be filled. Work that was begun there goes on with the settings it was begun with. Everything
else is refused, and the message names what differs: nothing is lost unless the user says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def check_new(place: Path, option: str, remedy: str = "Name another one.") -> None:
    """Refuse a file that is there, or a folder with files.

    Args:
        place: where something is to be written.
        option: that names it.
        remedy: what to do.

    Raises:
        ValueError: the place is taken.

    Example:
        >>> check_new(Path("."), "--out")
        Traceback (most recent call last):
        ValueError: Expected a new or empty place for --out, got the folder '.' with files. Name another one.
    """
    if place.is_dir():
        if any(place.iterdir()):
            raise ValueError(
                f"Expected a new or empty place for {option}, got the folder {str(place)!r} with files. {remedy}"
            )
    elif place.exists():
        raise ValueError(f"Expected a new or empty place for {option}, got the file {str(place)!r}. {remedy}")


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """What differs between two runs of a command, by name and in words; one that is absent counts as None.

    Example:
        >>> changed_settings({"seed": 1, "model": "a"}, {"seed": 2, "model": "a"})
        {'seed': 'seed 2 instead of 1'}
    """
    return {
        name: f"{name} {now.get(name)!r} instead of {before.get(name)!r}"
        for name in dict.fromkeys([*before, *now])
        if not _same(before.get(name), now.get(name))
    }


def begun_otherwise(place: object, differences: Iterable[str], remedy: str, what: str = "settings") -> ValueError:
    """The error of work that cannot be gone on with, because it was begun with other settings.

    Args:
        place: where it lies.
        differences: in words, as of :func:`changed_settings`.
        remedy: what to do.
        what: differs.
    """
    return ValueError(f"Expected the {what} that {str(place)!r} was begun with, got {', '.join(differences)}. {remedy}")


def _same(one: Any, other: Any) -> bool:
    if one == other:
        return True
    # One folder has many paths.
    both_paths = isinstance(one, str) and isinstance(other, str) and os.path.exists(one) and os.path.exists(other)
    return both_paths and os.path.realpath(one) == os.path.realpath(other)

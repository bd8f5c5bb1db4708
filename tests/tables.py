"""Tables of tests: texts or values, and what is made of them."""

import functools
import tomllib
from pathlib import Path
from typing import Any


def table(file: str, section: str) -> Any:
    """A section of `FILE.toml` in this folder; `<none>` is None, for which TOML has no word."""
    return _with_none(_sections(file)[section])


def _with_none(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_none(entry) for entry in value]
    if isinstance(value, dict):
        return {name: _with_none(entry) for name, entry in value.items()}
    return None if value == "<none>" else value


@functools.cache
def _sections(file: str) -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / f"{file}.toml").read_text(encoding="utf-8"))

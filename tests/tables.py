"""Tables of tests: texts or values, and what is made of them."""

import functools
import tomllib
from pathlib import Path
from typing import Any


def table(file: str, section: str) -> Any:
    """A section of `FILE.toml` in this folder."""
    return _sections(file)[section]


@functools.cache
def _sections(file: str) -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / f"{file}.toml").read_text(encoding="utf-8"))

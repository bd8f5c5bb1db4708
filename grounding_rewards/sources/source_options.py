"""Options of a source on the command line, `NAME=VALUE`."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from grounding_rewards.sources.base import SOURCES


def source_options(read: Callable[..., Any], given: Sequence[str]) -> dict[str, Any]:
    """The options of a source, checked against the names of its arguments after `root` and `split`.

    `true` and `false` become booleans; several names are separated by commas; a mapping is written in JSON.

    Args:
        read: what a source reads with.
        given: texts such as `sizes=sizes.csv`.

    Raises:
        ValueError: no `NAME=VALUE`, a name that the source does not have, or a mapping that is no JSON.

    Example:
        >>> from grounding_rewards.sources import get_source
        >>> source_options(get_source("nih-chestxray14").read, ["negatives=false"])
        {'negatives': False}
    """
    parameters = {one.name: one.default for one in list(inspect.signature(read).parameters.values())[2:]}
    options = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"Expected NAME=VALUE for --option, got {text!r}. Write sizes=sizes.csv, for example.")
        if name not in parameters:
            raise ValueError(
                f"Expected one of the source's own options for --option, got {name!r}. It has: "
                f"{', '.join(parameters) or 'none'}."
            )
        options[name] = _value(value, parameters[name])
    return options


def describe_options() -> str:
    """The options of every source that has any, one line each, as their docstrings say.

    Example:
        >>> print(describe_options().partition("coco:")[2].splitlines()[1].strip())
        annotations: the annotation file relative to the root; `{split}` stands for the name of the split.
    """
    lines: list[str] = []
    for name, source in sorted(SOURCES.items()):
        documented = _documented(inspect.getdoc(source.read) or "")
        own = list(inspect.signature(source.read).parameters)[2:]
        lines += [f"{name}:"] if own else []
        lines += [f"  {option}: {documented.get(option, 'see its module')}" for option in own]
    return "\n".join(lines)


def _documented(docstring: str) -> dict[str, str]:
    """The first sentence about each argument."""
    listed = re.search(r"^Args:\n((?:    .*\n?|\n)+)", docstring, re.MULTILINE)
    entries = re.findall(r"^    (\w+): ((?:.*)(?:\n {8}.*)*)", listed[1], re.MULTILINE) if listed else []
    return {name: re.split(r"(?<=\.) (?=[A-Z])", " ".join(words.split()))[0] for name, words in entries}


def _value(text: str, default: Any) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.startswith('{"'):
        try:
            return json.loads(text)
        except ValueError as error:
            raise ValueError(f"Expected JSON for --option, got {text!r} ({error}). Correct the mapping.") from None
    return tuple(text.split(",")) if isinstance(default, tuple) else text

"""Docstrings as the site shows them: examples are code, below a heading or not, and roles of Sphinx are plain names.

mkdocs.yml names this extension for griffe, which reads the docstrings of the pages on Python.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


class SiteDocstrings(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """griffe's event: an object was read, with its docstring if it has one."""
        if obj.docstring is not None:
            obj.docstring.value = for_site(obj.docstring.value)


def for_site(docstring: str) -> str:
    """A docstring whose examples at the left edge are fenced, and whose names have no roles."""
    # `Examples` is the word that griffe knows.
    docstring = re.sub(r"^Example:$", "Examples:", docstring, flags=re.MULTILINE)
    # A list needs an empty line before it.
    docstring = re.sub(r"^((?![ *]).*\S.*)\n(?=\* )", r"\1\n\n", docstring, flags=re.MULTILINE)
    named = re.sub(r":\w+:(`[^`]+`)", r"\1", docstring)
    return re.sub(
        r"^>>> (?:.+\n?)+", lambda code: f"```pycon\n{code[0].rstrip()}\n```\n", named, flags=re.MULTILINE
    ).rstrip()

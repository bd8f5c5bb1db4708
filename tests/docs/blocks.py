"""The blocks of code of the pages, and the commands in them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.conftest import REPOSITORY

PAGES = (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md")))
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^(?: {4}\S.*\n)(?: {4}.*\n)*", re.MULTILINE)
_INLINE = re.compile(r"`(grounding-rewards [^`]+)`")
CODE = re.compile(r"`([^`]+)`")


class Block(NamedTuple):
    page: Path
    language: str
    code: str


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page."""
    return [Block(page, *found) for found in FENCED.findall(page.read_text(encoding="utf-8"))]


def shell_commands(page: Path) -> Iterator[list[str]]:
    """The words of every command in the blocks of a page, fenced for bash or indented, comments left out."""
    outside = FENCED.sub("", page.read_text(encoding="utf-8"))
    shells = [one.code for one in blocks(page) if one.language == "bash"]
    shells += [found for found in _INDENTED.findall(outside) if re.match(r" +(grounding-rewards|python|make) ", found)]
    for code in shells:
        for line in code.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and re.match(r"[A-Z_]+=", words[0]):
                words = words[1:]
            # What comes after is the shell's: where the output goes.
            if words := words[: words.index(">")] if ">" in words else words:
                yield words


def inline_commands(page: Path) -> Iterator[list[str]]:
    """The words of every `grounding-rewards …` within a sentence; it may leave options out."""
    outside = FENCED.sub("", page.read_text(encoding="utf-8"))
    for code in _INLINE.findall(outside):
        yield shlex.split(" ".join(code.split()))


def ours(words: list[str]) -> list[str] | None:
    """Command and arguments of a line that runs `grounding-rewards`, also through a launcher; None of any other."""
    if words[0] == "srun":
        words = words[1:]
    if words[0] == "grounding-rewards":
        return words[1:]
    module = "grounding_rewards.cli"
    return words[words.index(module) + 1 :] if module in words else None

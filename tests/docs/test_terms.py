"""One word for one thing: what was renamed does not come back in the pages, the help texts and the docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import grounding_rewards
from tests.conftest import REPOSITORY
from tests.docs.blocks import FENCED

PACKAGE = Path(grounding_rewards.__file__).parent
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
MODULES = sorted(PACKAGE.rglob("*.py"))
# The word that must not come back, and what is said instead.
GONE = {
    r"\bfilms?\b|_films?\b|\bfilm_": "image",
    r"\bfigures?\b(?! \d)": "metric of a number, plot of a picture",
    r"\bstated negatives?\b": "no-finding statement",
    r"\bcold[- ]starts?\b|\bsupervised starts?\b": "warm start: SFT before GRPO",
    r"\b(?:same|strong|weak|early|saturated|each|kinds? of|of an?) starts?\b": "initial checkpoint: a run begins there",
    # What a renaming made of the figures of others
    r"\bmetric \d|\bfigure\.Metric\b": "Figure 1 of a paper, matplotlib's Figure",
}
# Code of matplotlib, keys of metrics that are kept, and a word that readers of reports write.
ALLOWED = re.compile(r"matplotlib\.figure\.Figure|\.figure\.axes|\bfalse_per_film\b|\bfilm_sensitivity\b")


def wrong(text: str) -> list[str]:
    """The words of a text that must not come back, each with what is said instead."""
    text = ALLOWED.sub("", " ".join(text.split()))
    return [f"{found[0]}: {said}" for term, said in GONE.items() for found in re.finditer(term, text, re.IGNORECASE)]


def texts(module: Path) -> Iterator[str]:
    """Docstrings, and in the commands, whose help is made of annotations too, every string."""
    helps = module.parent.name == "commands" or module.name in ("cli.py", "arguments.py")
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
        elif helps and isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_says_what_was_renamed(page: Path) -> None:
    assert wrong(FENCED.sub("", page.read_text(encoding="utf-8"))) == []


def test_no_docstring_or_help_says_what_was_renamed() -> None:
    found = {str(module.relative_to(PACKAGE)): wrong("\n".join(texts(module))) for module in MODULES}
    assert {name: words for name, words in found.items() if words} == {}

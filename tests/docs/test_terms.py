"""One word for one thing: what was renamed does not come back in the pages and the docstrings."""

import ast
import re
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.docs.blocks import FENCED

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
MODULES = sorted((REPOSITORY / "grounding_rewards").rglob("*.py"))
# The words that must not come back. What `--help` says stands in docs/commands.md.
GONE = re.compile(
    r"\bfilms?\b|_films?\b|\bfilm_"  # an image
    r"|\bfigures?\b(?! \d)"  # a metric, of a number; a plot, of a picture
    r"|\bstated negatives?\b"  # a no-finding statement
    r"|\bcold[- ]starts?\b|\bsupervised starts?\b"  # a warm start: SFT before GRPO
    r"|\b(?:same|strong|weak|early|saturated|each|kinds? of|of an?) starts?\b"  # an initial checkpoint
    r"|\bmetric \d|\bfigure\.Metric\b",  # what a renaming made of the figures of others
    re.IGNORECASE,
)
# Code of matplotlib, keys of metrics that are kept, and a word that readers of reports write.
ALLOWED = re.compile(r"matplotlib\.figure\.Figure|\.figure\.axes|\bfalse_per_film\b|\bfilm_sensitivity\b")


def text_of(path: Path) -> str:
    """A page without its blocks of code, or the docstrings of a module."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return FENCED.sub("", text)
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    return "\n".join(ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, kinds))


@pytest.mark.parametrize("path", PAGES + MODULES, ids=lambda path: path.name)
def test_what_was_renamed_does_not_come_back(path: Path) -> None:
    assert GONE.findall(ALLOWED.sub("", " ".join(text_of(path).split()))) == []


def test_the_first_page_stays_short() -> None:
    """As `wc -w` counts."""
    assert len((REPOSITORY / "README.md").read_text(encoding="utf-8").split()) <= 1400

"""The pages in docs/ that other scripts write, and parts of pages: each stands between two marks, comments that no
reader sees."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.report.tables import Cell, Table


def marks_of(name: str) -> tuple[str, str]:
    """The marks of a part, as pages have them.

    >>> marks_of("memory")
    ('<!-- memory: begin -->', '<!-- memory: end -->')
    """
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def between(page: str, marks: tuple[str, str]) -> str:
    """What stands between the marks, without the line ends beside them.

    Raises:
        ValueError: a mark is not there, or there more than once.

    >>> between("a\\n<!-- one: begin -->\\nold\\n<!-- one: end -->\\nb", marks_of("one"))
    'old'
    """
    begin, end = marks
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(end) < page.index(begin):
        raise ValueError(f"Expected {begin} and after it {end} once each in the page, got another number. Put them in.")
    return page.partition(begin)[2].partition(end)[0].strip("\n")


def replace_part(page: str, marks: tuple[str, str], part: str) -> str:
    """The page with another text between the marks.

    Raises:
        ValueError: as :func:`between`.

    >>> replace_part("a\\n<!-- one: begin -->\\nold\\n<!-- one: end -->\\nb", marks_of("one"), "new")
    'a\\n<!-- one: begin -->\\nnew\\n<!-- one: end -->\\nb'
    """
    between(page, marks)
    begin, end = marks
    return f"{page.partition(begin)[0]}{begin}\n{part}\n{end}{page.partition(end)[2]}"


def write_or_check(page: Path, text: str, *, check: bool) -> str | None:
    """Write a page; to check, change nothing, and give what is wrong where it is out of date, for `sys.exit`."""
    if not check:
        write_whole(page, text)
        return None
    if page.is_file() and page.read_text(encoding="utf-8") == text:
        return None
    return f"{page.name} is out of date: run python scripts/docs/{Path(sys.argv[0]).name}"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table.

    >>> print(markdown_table(["reward", "after"], [["R1", "0.5"]]))
    | reward | after |
    |---|---|
    | R1 | 0.5 |
    """
    lines = [f"| {' | '.join(row)} |" for row in (header, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def markdown_of(table: Table) -> str:
    """A table of a page in Markdown, in which no text of others is markup.

    >>> print(markdown_of(Table(["label", "IoU"], [["a|b", Cell("0.5", "[0.4, 0.6]")]])))
    | label | IoU |
    |---|---|
    | a\\|b | 0.5 \\[0.4, 0.6] |
    """
    rows = [[_escaped(cell) for cell in row] for row in table.rows]
    return markdown_table([cell if isinstance(cell, str) else cell.text for cell in table.header], rows)


def _escaped(cell: str | Cell) -> str:
    """A bar would end the cell, a tag would be a tag, and a bracket may fetch an image."""
    text = cell if isinstance(cell, str) else f"{cell.text} {cell.small}".strip()
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("[", "\\[").replace("<", "&lt;").replace("\n", " ")

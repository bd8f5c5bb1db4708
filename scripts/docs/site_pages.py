"""What mkdocs does to pages while it builds the site of docs/: the questions of README.md, and links out of docs/.

`<!-- questions -->` becomes README's table of questions. Links to files of the repository that are not pages become
their paths. mkdocs loads this file; `make docs` runs it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]

_LINK_OUT = re.compile(r"\[([^\]]*)\]\(\.\./([^)#\s]+)[^)]*\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """mkdocs' event: fill in the questions, and spell out links to files that are no pages."""
    markdown = re.sub(r"\[The README\].*\n\n<!-- questions -->", lambda _: questions(), markdown)
    return markdown if "/" in page.file.src_uri else _LINK_OUT.sub(_path_of, markdown)


def questions() -> str:
    """The table of README.md, with its links as from docs/."""
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    table = readme.partition("\n## Questions\n\n")[2].partition("\n\n")[0]
    return table.replace("](docs/", "](")


def _path_of(link: re.Match[str]) -> str:
    if not (REPOSITORY / link[2]).exists():
        raise FileNotFoundError(f"Expected a file of the repository for a link of docs/, got {link[2]}. Correct it.")
    return f"`{link[2]}`"

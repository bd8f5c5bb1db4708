"""Every symptom leads to a command; that each of them is legal is tests/docs/test_code_blocks.py's."""

from __future__ import annotations

import re

import pytest

from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (.+)\n((?:(?!^##).*\n)+)", PAGE, re.MULTILINE))


@pytest.mark.parametrize("title", SECTIONS)
def test_a_symptom_leads_to_a_command(title: str) -> None:
    assert re.search(r"^```bash\n(grounding-rewards|accelerate launch|make|pip) ", SECTIONS[title], re.MULTILINE)


def test_every_symptom_is_found_from_the_top() -> None:
    index = PAGE.partition("\n## ")[0]
    linked = re.findall(r"\(#([\w-]+)\)", index)
    anchors = [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in SECTIONS]
    assert sorted(linked) == sorted(anchors)

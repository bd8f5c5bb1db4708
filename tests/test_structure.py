"""The page that says where things are says where they are."""

import re
from pathlib import Path

import grounding_rewards
from tests.conftest import REPOSITORY

PACKAGE = Path(grounding_rewards.__file__).parent


def test_every_place_that_is_named_exists():
    page = (REPOSITORY / "docs" / "structure.md").read_text(encoding="utf-8")
    named = {place for place in re.findall(r"`([\w/]+(?:\.py|/))`", page) if not place.startswith("tests/")}
    assert len(named) > 20
    assert [place for place in sorted(named) if not (PACKAGE / place).exists()] == []

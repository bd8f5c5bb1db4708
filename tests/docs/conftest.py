"""What the commands of a page draw is drawn once, as in the tests of the commands; they run in a folder of theirs."""

import sys
from pathlib import Path

import pytest

from tests.commands.conftest import drawn_once

__all__ = ["drawn_once"]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which the command line puts on the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path

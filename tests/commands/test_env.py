"""`grounding-rewards env`: what a report of a problem needs, and nothing that should stay on this machine."""

import platform
import sys
from importlib.metadata import version
from pathlib import Path

from grounding_rewards.cli import main
from tests.conftest import REPOSITORY


def test_versions_of_what_matters_are_printed(capsys):
    assert main(["env"]) == 0
    words = [line.split() for line in capsys.readouterr().out.splitlines()]
    for row in (["python", platform.python_version()], ["numpy", version("numpy")], ["scipy", version("scipy")]):
        assert row in words


def test_it_can_be_pasted_anywhere(capsys):
    assert main(["env"]) == 0
    shown = capsys.readouterr().out
    for private in (str(Path.home()), str(REPOSITORY), sys.prefix, platform.node(), "/"):
        assert private not in shown

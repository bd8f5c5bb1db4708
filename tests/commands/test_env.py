"""`grounding-rewards env`: what a report of a problem needs, and nothing that should stay on this machine."""

import platform
import sys
from importlib.metadata import version
from pathlib import Path

from grounding_rewards.cli import main
from tests.conftest import REPOSITORY


def test_versions_are_printed_and_can_be_pasted_anywhere(capsys):
    assert main(["env"]) == 0
    shown = capsys.readouterr().out
    words = list(map(str.split, shown.splitlines()))
    for row in (["python", platform.python_version()], ["numpy", version("numpy")], ["scipy", version("scipy")]):
        assert row in words
    for private in (str(Path.home()), str(REPOSITORY), sys.prefix, platform.node(), "/"):
        assert private not in shown

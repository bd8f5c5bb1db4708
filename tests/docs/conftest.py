"""What the commands of a page draw is drawn once, as in the tests of the commands."""

from tests.commands.conftest import drawn_once

__all__ = ["drawn_once"]

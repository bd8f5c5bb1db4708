"""Images that the tests of a room below make, and what is drawn once for all commands."""

import io
from functools import cache
from pathlib import Path

import pytest

from grounding_rewards import synthetic
from grounding_rewards.cli import command_app
from grounding_rewards.report.plots import Plot
from tests.prepare.conftest import make_images

__all__ = ["make_images"]


def call(command, *words):
    """Run a command as the command line does, but let its errors through."""
    function, bound, _ = command_app(command).parse_args(list(map(str, words)))
    return int(function(*bound.args, **bound.kwargs))


_synthetic_dataset = cache(synthetic.synthetic_dataset)
_save = Plot.save
_drawn = {}


def _save_once(plot, target, file_format, **options):
    """The first plot of a name stands for all: what they show is tested in tests/report."""
    key = plot.name, file_format
    if key not in _drawn:
        file = io.BytesIO()
        _save(plot, file, file_format, **options)
        _drawn[key] = file.getvalue()
    if isinstance(target, io.BytesIO):
        target.write(_drawn[key])
    else:
        Path(target).write_bytes(_drawn[key])


@pytest.fixture(autouse=True)
def drawn_once(monkeypatch):
    """Plots, and the images that every evaluation has its constant box from: five seconds of each evaluation."""
    monkeypatch.setattr(synthetic, "synthetic_dataset", _synthetic_dataset)
    monkeypatch.setattr(Plot, "save", _save_once)

"""Wrong options of `score`."""

from __future__ import annotations

import pytest

from grounding_rewards.cli import main

SCORE = ("score", "log.jsonl", "--rewards", "R3", "--out", "scored.jsonl")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rewards", "R3"), "Expected different rewards for --rewards, got 'R3' twice"),
        (("--processes", "0"), "Expected at least 1 for --processes, got 0"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*SCORE, *words]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())

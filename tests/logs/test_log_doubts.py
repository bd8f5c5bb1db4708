"""What `score` and `inspect` say of a log that `evaluate` would refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grounding_rewards import cli
from grounding_rewards.logs import completion_logs

FORMAT = ("--box-format", "qwen3-vl")


def image(k: int, **change: Any) -> dict[str, Any]:
    return {"id": f"image {k}", "completion": "[]", "boxes": [[0, 0, 9, 9]], "width": 50, "height": 40, **change}


def sayings(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    """What both commands say, each as one line of single spaces."""
    assert cli.main(["score", str(path), "--rewards", "R3", "--out", str(path.parent / "out.jsonl"), *FORMAT]) == 0
    scored = capsys.readouterr().err
    assert cli.main(["inspect", str(path), *FORMAT, *options]) == 0
    return [" ".join(text.split()) for text in (scored, capsys.readouterr().out)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        # ids
        ({"id": None}, "1 of 30 rows has no `id`, the first line 12 of"),
        ({"id": ""}, "1 of 30 rows has no `id`, the first line 12 of"),
        # reference boxes
        ({"boxes": [[0, 0, 9, 99]]}, "box 0 is [0, 0, 9, 99], outside the image of 50 x 40"),
        ({"boxes": [], "ignore_boxes": [[60, 0, 90, 9]]}, "ignore_boxes: box 0 is [60, 0, 90, 9], outside the image"),
        ({"reader_boxes": [[], [[60, 0, 90, 9]]]}, "reader 1: box 0 is [60, 0, 90, 9], outside the image"),
        ({"boxes": [[0, 0, 9, 99]], "height": "40"}, "box 0 is [0, 0, 9, 99], outside the image of 50 x 40.0"),
    ],
)
def test_it_is_said_with_the_row(tmp_path, monkeypatch, capsys, change, said):
    # Several blocks: the first row in question is not in the first.
    monkeypatch.setattr(completion_logs, "_BYTES", 500)
    rows = [image(k, **(change if k == 11 else {})) for k in range(30)]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for text in sayings(path, capsys):
        assert said in text
        assert "1 of 30 rows has" in text
        assert "line 12 of" in text


@pytest.mark.parametrize(
    "change",
    [
        {},
        # Without any id rows are completions, and several may be of one image.
        {"id": None},
        {"id": "one image"},
        # Nothing to compare with.
        {"boxes": None},
    ],
)
def test_sound_logs_are_passed_over(tmp_path, capsys, change):
    path = tmp_path / "log.jsonl"
    rows = [{**image(k), **change} for k in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    if change == {"boxes": None}:
        assert cli.main(["inspect", str(path), *FORMAT]) == 0
        assert "rows ha" not in capsys.readouterr().out
        return
    scored, inspected = sayings(path, capsys)
    assert scored == ""
    assert "Note" not in inspected


def test_the_sizes_of_the_options_count(tmp_path, capsys):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"completion": "[]", "boxes": [[0, 0, 9, 99]]}), encoding="utf-8")
    assert cli.main(["inspect", str(path), *FORMAT, "--width", "50", "--height", "40"]) == 0
    assert "outside the image of 50.0 x 40.0" in " ".join(capsys.readouterr().out.split())

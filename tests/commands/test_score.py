"""`--shard` and `--join` as a user gives them, and what does not go together."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grounding_rewards.cli import main
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "exchange.md").read_text(encoding="utf-8")
FORMAT = ("--box-format", "qwen3-vl")


def log_of(folder: Path, count: int = 5) -> Path:
    rows = [{"completion": "[]", "boxes": [], "width": 9, "height": 9, "id": str(k)} for k in range(count)]
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_scoring_in_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["score", str(log_of(tmp_path)), "--rewards", "R3", *FORMAT, "--out"]
    assert main([*command, str(tmp_path / "whole.jsonl")]) == 0
    first, *in_one_go = capsys.readouterr().out.splitlines()
    assert in_one_go[-1] == "mean R3 0.2000"
    out = tmp_path / "scored.jsonl"
    for number in range(1, 8):
        assert main([*command, str(out), "--shard", f"{number}/7"]) == 0
    assert "no completions for shard 1/7: the file has fewer rows than there are shards" in capsys.readouterr().out
    assert main([*command, str(out), "--join"]) == 0
    # How long it took aside.
    joined, *rest = capsys.readouterr().out.splitlines()
    assert (joined.split(" in ")[0], rest) == (first.split(" in ")[0], in_one_go)
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert main([*command, str(out), "--join"]) == 2
    assert "Expected the parts of shards of" in capsys.readouterr().err


def test_the_array_of_the_page(tmp_path: Path) -> None:
    """The script is run as SLURM runs it, for two of two shards."""
    (script,) = re.findall(r"```bash\n(#!/bin/bash\n.*?)```", PAGE, re.DOTALL)
    log_of(tmp_path)
    (tmp_path / "array.sh").write_text(script.replace("/64", "/2").replace("--processes 4", ""), encoding="utf-8")
    (tmp_path / "grounding-rewards").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m grounding_rewards.cli "$@"\n', encoding="utf-8"
    )
    (tmp_path / "grounding-rewards").chmod(0o755)
    paths = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)}
    for task in ("1", "2"):
        environment = {**os.environ, **paths, "SLURM_ARRAY_TASK_ID": task}
        subprocess.run(["bash", "array.sh"], cwd=tmp_path, env=environment, check=True, capture_output=True)
    lines = [len(path.read_text().splitlines()) for path in sorted(tmp_path.glob("scored-*-of-00002.jsonl"))]
    assert lines == [2, 3]


SCORE = ("score", "log.jsonl", "--rewards", "R3", "--out", "scored.jsonl")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*SCORE, "--shard", "0/64"), "Shards count from 1: with SLURM, give --array=1-64"),
        ((*SCORE, "--shard", "65/64"), "Expected K/N with K from 1 to N for --shard, got '65/64'"),
        ((*SCORE, "--shard", "1/2", "--join"), "Expected --shard or --join, got both"),
        ((*SCORE, "--rewards", "R3"), "Expected different rewards for --rewards, got 'R3' twice"),
        ((*SCORE, "--processes", "0"), "Expected at least 1 for --processes, got 0"),
    ],
)
def test_what_does_not_go_together(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(list(words)) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())

"""The command `grounding-rewards diff` on two small runs."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pytest

from grounding_rewards.commands.diff import DESCRIPTION, EXAMPLES, add_arguments, run
from grounding_rewards.metrics.answered_film import AnsweredFilm, write_answered

HOSTILE = "<b>mass</b>|[red]x"


def write_run(folder: Path, part: float, facts: dict[str, Any] | None = None) -> Path:
    folder.mkdir()
    films = [
        AnsweredFilm(
            f"film {i}",
            100,
            100,
            gt=[[0, 0, 10, 10]],
            gt_labels=[HOSTILE],
            pred=[[0, 0, 10, 10 * part]],
            patient=f"p{i // 2}",
            rewards={"R4": part},
        )
        for i in range(14)
    ]
    write_answered(folder / "films.jsonl", films)
    if facts is not None:
        (folder / "evaluation.json").write_text(json.dumps({"facts": facts}), encoding="utf-8")
    return folder


def call(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(list(map(str, arguments))))


def test_two_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = write_run(tmp_path / "a", 0.4, {"model": "small", "reward": "R4", "decoding": {"samples": 16}})
    b = write_run(tmp_path / "b", 0.8, {"model": "small", "reward": "R5", "decoding": {"samples": 8}})
    written = tmp_path / "diff.json", tmp_path / "diff.md"
    assert call(a, b, "--json", written[0], "--markdown", written[1], "--seed", 3, "--resamples", 50) == 0
    printed = capsys.readouterr().out
    content = json.loads(written[0].read_text(encoding="utf-8"))
    page = written[1].read_text(encoding="utf-8")
    verdict = "B is better than A: F1 at IoU 0.5 is 1.000 against 0.000, +1.000 [+1.000, +1.000], "
    assert content["verdict"].startswith(verdict + "better on 7 and worse on 0 of 7 patients (p = 0.016)")
    assert (content["a"], content["b"], content["seed"], content["resamples"]) == (str(a), str(b), 3, 50)
    for shown in (printed, page):
        assert f"A = {a}" in shown
        assert "14 films of 7 patients in both; 0 only in A and 0 only in B play no part" in shown
        assert "50 resamplings of patients, seed 3" in shown
        assert "reward: A has R4, B has R5" in shown
        assert 'decoding: A has {"samples": 16}, B has {"samples": 8}' in shown
        assert "model: " not in shown
        assert "+0.400 [+0.400, +0.400]" in shown
    # a label is no markup, neither in the terminal nor in Markdown
    assert HOSTILE in printed
    assert "| &lt;b>mass&lt;/b>\\|[red]x (14 boxes), mean IoU | 0.400 | 0.800 |" in page
    assert page.startswith(content["verdict"] + "\n\n")
    # every line of a table has the same number of cells
    for table in re.findall(r"(?:^\|.*\n)+", page, flags=re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_files_and_the_figure_of_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write_run(tmp_path / "a", 0.6), write_run(tmp_path / "b", 0.8)
    assert call(a / "films.jsonl", b, "--figure", "reward_R4") == 0
    assert "B is better than A: reward R4 is 0.800 against 0.600" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ("{", r"Expected an object with `facts` in '.*evaluation.json', got JSONDecodeError"),
        ("{}", "got KeyError"),
        ('{"facts": 3}', "got TypeError"),
    ],
)
def test_a_broken_evaluation_is_named(tmp_path: Path, facts: str, message: str) -> None:
    a, b = write_run(tmp_path / "a", 0.6, {}), write_run(tmp_path / "b", 0.8, {})
    (b / "evaluation.json").write_text(facts, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        call(a, b)


def test_a_folder_without_films_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Expected the folder of an evaluation, got .* without films.jsonl"):
        call(tmp_path, tmp_path)


def test_help_is_plain() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert DESCRIPTION.splitlines()[0] in parser.format_help()
    assert "``" not in parser.format_help()
    for line in EXAMPLES.splitlines()[1:]:
        parser.parse_args(line.split("#")[0].split()[2:])


def test_labels_may_be_compared(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a", 0.4), write_run(tmp_path / "b", 0.8)
    assert call(a, b, "--label-matching", "exact", "--json", tmp_path / "diff.json") == 0
    # the answers state no labels
    found = json.loads((tmp_path / "diff.json").read_text(encoding="utf-8"))
    assert found["figures"]["f1_50"]["b"] == [0.0, 0.0, 0.0]

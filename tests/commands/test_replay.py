"""`grounding-rewards replay` from a log to tables, metrics and a page."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("rich", reason="needs the eval extra")

from grounding_rewards.cli import main
from grounding_rewards.rewards.grounding import get_reward
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "replay.md").read_text(encoding="utf-8")
IMAGE = {"width": 100, "height": 100, "box_format": "qwen3-vl"}
BOX = [0, 0, 50, 50]


def text(*shares):
    """Boxes with these shares of the reference box."""
    return json.dumps([{"bbox_2d": [0, 0, 500, round(500 * share)]} for share in shares])


@pytest.fixture
def log(tmp_path):
    """Three images with four answers each, the last image normal."""
    answers = {"a": (0.9, 0.6, 0.4, 0.2), "b": (0.3, 0.8, 0.55, 0.1)}
    rows = [
        *({"id": name, "boxes": [BOX], "completion": text(one)} for name, shares in answers.items() for one in shares),
        *({"id": "n", "boxes": [], "completion": one} for one in ("[]", "[]", text(1), "?")),
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({**IMAGE, **row}) + "\n" for row in rows), encoding="utf-8")
    return path


def test_tables_metrics_and_page(log, tmp_path, capsys):
    words = ["replay", str(log), "--rewards", "R3", "R3:iou_threshold=0.3", "soft_f1"]
    assert main([*words, "--json", str(tmp_path / "found.json"), "--html", str(tmp_path / "page.html")]) == 0
    out = capsys.readouterr().out
    assert "12 answers to 3 images, 3 groups of several answers to one image; intervals over 3 images" in out
    for words in (
        "R3:iou_threshold=0.3",
        "sensitivity at 1 false box",
        "Spearman of rewards, within groups",
        "silent",
    ):
        assert words in out
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["rewards"]["R3"]["zero"] == pytest.approx(6 / 12)
    assert found["within_groups"]["soft_f1"]["mean_iou"] == {"value": 1, "low": 1, "high": 1, "of": 2}
    # of both images with findings the answers differ in mean IoU, and in R3
    assert found["silent"]["R3"]["mean_iou"] == 0
    assert not {"a", "b", "n"} & set(json.dumps(found).split('"'))
    assert "Rewards on the same answers" in (tmp_path / "page.html").read_text()


def test_rewards_are_those_that_the_reward_itself_gives(log, tmp_path, capsys):
    assert main(["replay", str(log), "--rewards", "R4:iou_threshold=0.3", "--reward-kwargs", '{"beta": 1}']) == 0
    capsys.readouterr()
    assert main(["replay", str(log), "--rewards", "R4", "--json", str(tmp_path / "found.json")]) == 0
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    rewards = get_reward("R4")(columns.pop("completion"), **columns)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["rewards"]["R4"]["mean"]["value"] == pytest.approx(sum(rewards) / 12)


def test_controls_show_the_floor_and_no_disagreement(log, capsys):
    assert main(["replay", str(log), "--rewards", "R3", "random", "constant"]) == 0
    out = capsys.readouterr().out
    assert "constant is 0.5 for all answers" in out
    assert "opposite orders" not in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rewards", "R3", "R3"], "Expected one or more rewards of different names"),
        (["--rewards", "R6"], "Expected a known name for `name`, got 'R6'"),
        (
            ["--rewards", "R3:tau"],
            "Expected parameters as name=value, with commas between them, for the reward 'R3:tau'",
        ),
        (["--rewards", "R3:tau=1"], "Expected known parameters for reward `R3`, got 'tau'"),
        (["--rewards", "R3:{"], "Expected parameters as name=value"),
        (["--rewards", "R3:iou_threshold=7"], "Expected"),
        (["--rewards", "R3", "--images", "-1"], "Expected at least 0 for --images, got -1"),
        (["--rewards", "R3", "R4:on_truncated=zero"], "Expected one `on_truncated` for all rewards"),
    ],
)
def test_what_is_wrong_is_said(log, capsys, words, message):
    assert main(["replay", str(log), *words]) == 2
    assert message in capsys.readouterr().err


def test_a_wrong_space_is_a_warning_and_no_format_an_error(monkeypatch, capsys):
    monkeypatch.chdir(REPOSITORY)
    words = ["replay", "docs/examples/completions.jsonl", "--rewards", "R1", "soft_f1"]
    assert main([*words, "--box-format", "qwen3-vl"]) == 0
    said = capsys.readouterr().err
    assert said.count("warning: ") == 1
    assert "If the model writes that, declare `box_format: qwen2.5-vl`." in said
    assert main(words) == 2
    assert "Expected a box format, got none in the log. Say with --box-format" in capsys.readouterr().err


def test_one_answer_an_image_is_no_group_and_no_error(log, capsys):
    lines = log.read_text().splitlines()
    log.write_text("\n".join((lines[0], lines[5], lines[8])))
    assert main(["replay", str(log), "--rewards", "R3", "soft_f1", "--correlation", "kendall"]) == 0
    out = capsys.readouterr().out
    assert "Kendall of rewards, over all answers" in out
    assert "within groups, mean" not in out
    assert "No coefficient: no image has several answers." in out


def test_score_names_rewards_in_the_same_way(log, tmp_path, capsys):
    out = tmp_path / "scored.jsonl"
    assert main(["score", str(log), "--rewards", "R3", "R3:iou_threshold=0.3", "--out", str(out)]) == 0
    capsys.readouterr()
    row = json.loads(out.read_text().splitlines()[2])
    assert (row["R3"], round(row["R3:iou_threshold=0.3"], 2)) == (0, 0.4)


@pytest.mark.parametrize(
    ("command", "output"), re.findall(r"```console\n\$ grounding-rewards (.*)\n((?:.*\n)*?)```", PAGE)
)
def test_the_documentation_shows_what_is_printed(command, output, monkeypatch, capsys):
    monkeypatch.chdir(REPOSITORY)
    assert main(command.split()) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert "\n".join(printed).strip() == output.strip()


def test_the_documentation_shows_something():
    assert PAGE.count("```console") == 1

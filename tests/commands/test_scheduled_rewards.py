"""Commands that train nothing take a scheduled reward at its final values, and say so."""

from __future__ import annotations

import json

import pytest

from grounding_rewards.cli import main

KWARGS = json.dumps({"iou_threshold": {"schedule": "linear", "from": 0.1, "to": 0.5, "over": 0.4}})
# IoU 0.3: a hit at the beginning of the schedule, none at its end.
IMAGE = {
    **{"id": "a", "prompt": "Where?", "boxes": [[0, 0, 100, 100]], "labels": ["mass"], "width": 1000, "height": 1000},
    "completion": '[{"bbox_2d": [0, 0, 100, 30], "label": "mass"}]',
    "box_format": "qwen3-vl",
}


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(IMAGE) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "command",
    [
        ["score", "LOG", "--rewards", "R3", "--out", "OUT.jsonl"],
        ["evaluate", "--completions", "LOG", "--reward", "R3", "--resamples", "20", "--out", "OUT"],
    ],
    ids=["score", "evaluate"],
)
def test_final_values(command, log, tmp_path, capsys):
    words = [word.replace("LOG", str(log)).replace("OUT", str(tmp_path / "out")) for word in command]
    assert main([*words, "--reward-kwargs", KWARGS]) == 0
    assert "R3: iou_threshold is 0.5, where its schedule ends" in capsys.readouterr().err
    found = next(path for path in (tmp_path / "out.jsonl", tmp_path / "out/images.jsonl") if path.is_file())
    row = json.loads(found.read_text(encoding="utf-8").splitlines()[0])
    assert (row["R3"] if "R3" in row else row["rewards"]["R3"]) == 0


def test_a_wrong_schedule_is_refused(log, tmp_path, capsys):
    kwargs = '{"iou_threshold": {"schedule": "rising", "from": 0.1, "to": 0.5, "over": 0.4}}'
    out = tmp_path / "out.jsonl"
    assert main(["score", str(log), "--rewards", "R3", "--out", str(out), "--reward-kwargs", kwargs]) != 0
    assert "linear, cosine, step, self_paced" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    "command", [["signal", "LOG", "--reward", "R3"], ["audit", "--rewards", "R3", "--max-images", "2"]]
)
def test_commands_before_a_training_say_it_too(command, log, capsys):
    log.write_text(2 * log.read_text(encoding="utf-8"), encoding="utf-8")
    assert main([word.replace("LOG", str(log)) for word in command] + ["--reward-kwargs", KWARGS]) == 0
    assert "R3: iou_threshold is 0.5, where its schedule ends" in capsys.readouterr().err

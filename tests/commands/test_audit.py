"""`grounding-rewards audit`, as a user calls it."""

import json

import pytest

from grounding_rewards.cli import main
from grounding_rewards.rewards.registry import REGISTRY
from tests.conftest import write_image_folder
from tests.tables import table


@pytest.fixture
def images(tmp_path):
    row = {"split": "test", "width": 100, "height": 90}
    rows = []
    for k in range(6):
        drawn = {"boxes": [[10, 10, 60, 60]] * (k % 2), "labels": ["mass"] * (k % 2)}
        rows.append({**row, **drawn, "file": f"{k}.png"})
    return str(write_image_folder(tmp_path, rows))


def test_it_says_what_can_be_gamed_and_writes_it(images, tmp_path, capsys):
    page, numbers = tmp_path / "out" / "audit.html", tmp_path / "out" / "audit.json"
    words = ["audit", "--rewards", "R1", "R1:ranking=tied", "--dataset", images]
    assert main([*words, "--html", str(page), "--json", str(numbers)]) == 0
    printed = capsys.readouterr().out
    assert "Mean reward of each scripted answer, 6 images, 3 of them without a finding" in printed
    assert "Documented weaknesses" in printed
    stored = json.loads(numbers.read_text(encoding="utf-8"))
    assert stored["rewards"] == ["R1", "R1:ranking=tied"]
    assert {one["reward"] for one in stored["played"] if one["finding"] == "free"} == {"R1"}
    assert "<title>Can it be gamed?</title>" in page.read_text(encoding="utf-8")


def test_strict_tells_scripts(images, capsys):
    assert main(["audit", "--rewards", "R3", "--dataset", images, "--strict"]) == 0
    counts = ["audit", "--rewards", "tests.commands.test_audit.counts_boxes", "--dataset", images, "--strict"]
    assert main(counts) == 1
    assert main(["audit", "--rewards", "tests.commands.test_audit.says_nothing", "--dataset", images, "--strict"]) == 0
    assert "No scripted answer is paid too much." in capsys.readouterr().out


def counts_boxes(completions, **columns):
    return [float(text.count("bbox_2d") > 8) for text in completions]


def says_nothing(completions, **columns):
    return [0.0] * len(completions)


def test_rewards_of_third_parties(images, capsys, monkeypatch):
    class Mine:
        def score(self, pred, gt):
            return float(len(pred) == len(gt))

    monkeypatch.setitem(REGISTRY, "mine", Mine)
    words = ["tests.commands.test_audit.says_nothing", "mine", "grounding_rewards.rewards.MeanIoUReward"]
    assert main(["audit", "--rewards", *words, "--dataset", images, "--box-format", "qwen2.5-vl"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("says_nothing", "mine", "MeanIoUReward", "Written in qwen2.5-vl"))


@pytest.mark.parametrize(("words", "message"), table("commands/refusals", "audit"))
def test_wrong_options_are_refused(words, message, capsys):
    assert main(["audit", *words]) == 2
    assert message in capsys.readouterr().err

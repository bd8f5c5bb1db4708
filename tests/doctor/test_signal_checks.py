"""The doctor says whether a reward tells the model's answers apart, before the first step."""

from __future__ import annotations

import json

import pytest

import grounding_rewards as gr
from grounding_rewards.cli import main
from grounding_rewards.doctor.examine import examine
from grounding_rewards.doctor.model import Model
from grounding_rewards.doctor.raw_rows import ImageRow, RowSource
from grounding_rewards.metrics.signal_report import measure_signal

IMAGE = {"boxes": [[10, 10, 30, 30]], "labels": ["mass"], "width": 100, "height": 100, "prompt": "Where?"}


def checkup(*shifts):
    """Of one image whose answers lie so many thousandths beside the finding."""
    answers = [json.dumps([{"bbox_2d": [100 + by, 100, 300 + by, 300]}]) for by in shifts]
    report = measure_signal([{**IMAGE, "id": "a"}], [answers], gr.get_reward("R4", box_format="qwen3-vl"))
    return examine(RowSource("images", lambda: iter([ImageRow("train", 0, IMAGE)]), 1), Model(signal=report))


def signal_defects(found):
    return [defect for defect in found.defects if defect.name == "no-signal"]


def test_a_reward_that_tells_nothing_apart_is_a_warning_with_the_one_that_does():
    (defect,) = signal_defects(checkup(100, 120))
    assert (defect.severity, defect.count, defect.of) == ("warning", 1, 1)
    assert defect.found.startswith("Train with R4 at τ 0.3")
    assert "every answer earns 0" in defect.found


def test_a_reward_with_spread_is_no_defect_and_the_sample_is_said():
    found = checkup(0, 50)
    assert signal_defects(found) == []
    assert "no-signal" in found.passed
    assert any("R4 tells the model's answers apart on 1 of them" in one for one in found.assumptions)


def test_without_a_model_that_was_asked_it_is_not_looked_for():
    found = examine(RowSource("images", lambda: iter([ImageRow("train", 0, IMAGE)]), 1))
    assert found.unchecked["no-signal"] == "no --model and --reward"


@pytest.mark.training
def test_the_command_asks_the_model(tmp_path, capsys):
    datasets = pytest.importorskip("datasets", reason="needs the train extra")
    pytest.importorskip("trl", reason="needs the train extra")
    from grounding_rewards.synthetic import synthetic_dataset
    from tests.training.runs import ASSET

    folder, defects = str(tmp_path / "images"), tmp_path / "defects.json"
    splits = {split: synthetic_dataset(split, 3) for split in ("train", "test")}
    datasets.DatasetDict(splits).save_to_disk(folder)
    asked = ["--model", str(ASSET), "--reward", "R4", "--ask", "2", "--samples", "2", "--max-completion-length", "60"]
    main(["doctor", folder, *asked, "--json", str(defects)])
    found = json.loads(defects.read_text(encoding="utf-8"))
    assert "no-signal" not in found["unchecked"]
    assert any("2 images and 2 answers to each speak for all" in one for one in found["assumptions"])
    capsys.readouterr()
    assert main(["doctor", folder, "--reward", "R4"]) == 2
    assert "Expected --model beside --reward" in capsys.readouterr().err
    assert main(["doctor", folder, "--model", str(ASSET), "--reward", "R6"]) == 2
    assert "Expected a known name for `name`, got 'R6'" in capsys.readouterr().err

"""Every command is a function of a room first: called as in a notebook, with paths as texts and plain values."""

import importlib
import json
import os
import re

import pytest

pytest.importorskip("pandas", reason="needs the data extra")

import grounding_rewards as gr
from grounding_rewards.audit.audit_images import images_of
from grounding_rewards.audit.run import audit
from grounding_rewards.audit.scripted_answers import SCRIPTED_ANSWERS
from grounding_rewards.cli import COMMANDS
from grounding_rewards.common.config_files import shipped_names
from grounding_rewards.common.environment import environment
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.readers import measure_agreement
from grounding_rewards.doctor.examine import examine
from grounding_rewards.exchange.coco import write_coco
from grounding_rewards.integrations.plugin_files import plugin
from grounding_rewards.logs.inspection import inspect_completions
from grounding_rewards.logs.join import read_log
from grounding_rewards.logs.read import read_completions
from grounding_rewards.logs.score_file import score_file
from grounding_rewards.metrics.evaluation import Measures, evaluate
from grounding_rewards.metrics.prediction import Prediction, save_predictions
from grounding_rewards.metrics.read_predictions import read_predictions
from grounding_rewards.metrics.signal import measure_signal
from grounding_rewards.prepare import PrepareSettings, prepare_images
from grounding_rewards.report.comparison_tables import compare_evaluations
from grounding_rewards.sources import get_source
from tests.conftest import REPOSITORY

REWARD = gr.get_reward("R3", box_format="qwen3-vl")
ROW = {"id": "a", "boxes": [[0, 0, 50, 50]], "labels": ["mass"], "width": 100, "height": 100}
#: Commands of several steps, each of which is a function here; `study.run` makes whole trainings: tests/study.
OF_STEPS = {"demo", "study"}
#: Modes of `prepare`, which tests/prepare and tests/exchange walk.
OF_PREPARE = {"prepare-mix", "prepare-table", "prepare-verify"}


def prepared():
    manifest = prepare_images(
        get_source("jsonl").read("images"), "images", "prepared", PrepareSettings("jsonl", "qwen3-vl")
    )
    return manifest["splits"]["train"]["boxes"]


def agreement():
    boxes, readers = [[0, 0, 10, 10], [0, 0, 10, 8]], ("R1", "R2")
    return measure_agreement([AnnotatedImage("1", "1.png", boxes, ["mass", "mass"], readers=readers, read_by=readers)])


def evaluated():
    answers = read_log(["greedy.jsonl"])
    return evaluate({"model": read_predictions(answers.rows, answers.texts, REWARD)}, Measures("R3"))


def compared():
    for name, right in (("before", 0.5), ("after", 0.8)):
        pred = [[0, 0, 50, 100 * right]]
        image = Prediction("a", 100, 100, gt=[[0, 0, 50, 100]], gt_labels=["mass"], pred=pred, rewards={"R3": right})
        save_predictions(f"{name}/images.jsonl", [image])
    return compare_evaluations("before", "after", reward="R3")


def signal():
    groups = read_log(["samples.jsonl"], in_groups=True)
    return measure_signal(groups.rows, groups.texts, REWARD)


def inspected():
    log = read_completions(["greedy.jsonl"])
    return inspect_completions(log.completions, log.rows, "qwen3-vl")


def audited():
    return audit({"R3": REWARD}, images_of([ROW]), gr.get_box_format("qwen3-vl"), scripts=SCRIPTED_ANSWERS[:1])


def exported():
    write_coco([Prediction("a", 100, 100)], ".")
    with open("ground_truth.json") as file:
        return json.load(file)["images"][0]["width"]


#: For each command: its function, the line of the table that it gives, if it gives one, and what is to be found.
WALK = {
    "inspect": (inspected, None, {"completions": 2}),
    "prepare": (prepared, None, {"mass": 1}),
    "doctor": (lambda: examine("images", quick=True), {"check": "duplicate-boxes"}, {"id": "1"}),
    "agreement": (agreement, {"label": "mass"}, {"findings": 1, "mean_iou": 0.8, "f1_0.5": 1.0}),
    "evaluate": (evaluated, {"system": "model", "metric": "mean_iou"}, {"value": 1.0}),
    "signal": (signal, {"reward": "R3"}, {"mean": 0.5, "no_spread": 0.0, "effective_group_size": 2.0}),
    "audit": (audited, {"reward": "R3", "script": SCRIPTED_ANSWERS[0].name}, {"ceiling": 1.0, "finding": ""}),
    "score": (lambda: score_file("greedy.jsonl", "scored.jsonl", [REWARD]), None, {"completions": 2}),
    "diff": (compared, {"metric": "mean_iou"}, {"a": 0.5, "b": 0.8, "value": 0.3}),
    "plugin": (lambda: plugin("ms-swift", "R4", {}, "boxes.py").content is not None, None, True),
    "configs": (lambda: shipped_names("configs/demo/g*.yaml"), None, ["configs/demo/grpo.yaml"]),
    "env": (lambda: list(environment())[:1], None, ["grounding_rewards"]),
    "export": (exported, None, 100),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of two images, and logs of answers to them."""
    image = pytest.importorskip("PIL.Image", reason="needs the data extra")
    monkeypatch.chdir(tmp_path)
    os.mkdir("images")
    right = '[{"bbox_2d": [0, 0, 500, 500], "label": "mass"}]'
    rows = [{**ROW, "id": "0"}, {**ROW, "id": "1", "boxes": [], "labels": []}]
    for row in rows:
        image.new("L", (100, 100), 9).save(f"images/{row['id']}.png")
    twice = {"boxes": [ROW["boxes"][0]] * 2, "labels": ["mass"] * 2}
    for name, lines in {
        "images/annotations.jsonl": [
            {"file": "0.png", "split": "train", **rows[0]},
            {"file": "1.png", "split": "test", **rows[1], **twice},
        ],
        "greedy.jsonl": [{**row, "completion": text} for row, text in zip(rows, (right, "[]"), strict=True)],
        "samples.jsonl": [{**rows[0], "completion": text} for text in (right, "[]")],
    }.items():
        with open(name, "w") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in lines)


def test_every_command_is_walked():
    # Agreement is a part of `prepare`.
    assert {*WALK, *OF_STEPS, *OF_PREPARE} - {"agreement"} == set(COMMANDS)


def test_the_page_of_commands_names_the_function_of_each():
    page = (REPOSITORY / "docs" / "commands.md").read_text(encoding="utf-8")
    section = page.partition("## In a notebook")[2].partition("<!-- commands: begin")[0]
    rows = re.findall(r"^\| `(\w[\w-]*)` \| (.+) \|$", section, re.MULTILINE)
    assert {command for command, _ in rows} == {*COMMANDS} - {"demo"}
    for place in re.findall(r"`([\w.]+)`", " ".join(said for _, said in rows)):
        module, name = f"grounding_rewards.{place}".rsplit(".", 1)
        assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.parametrize("command", WALK)
def test_a_command_is_a_function(command, folder):
    call, line, expected = WALK[command]
    found = call()
    if hasattr(found, "to_dict"):
        plain = found.to_dict()
        assert json.dumps(plain)
    if line is not None:
        table = found.to_dataframe()
        for column, value in line.items():
            table = table[table[column] == value]
        assert len(table) == 1
        plain = table.iloc[0]
    if not isinstance(expected, dict):
        assert found == expected
        return
    got = found if isinstance(found, dict) else plain
    for key, value in expected.items():
        assert got[key] == (pytest.approx(value) if isinstance(value, float) else value)

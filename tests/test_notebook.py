"""Every command is a function of a room first, whose result is a table: called as in a notebook."""

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
from grounding_rewards.doctor.examine import examine
from grounding_rewards.metrics.prediction import Prediction
from tests.conftest import REPOSITORY, write_lines

FORMAT = "qwen3-vl"
ROW = {"id": "a", "boxes": [[0, 0, 50, 50]], "labels": ["mass"], "width": 100, "height": 100}


def compared():
    image = {"gt": [[0, 0, 50, 100]], "gt_labels": ["mass"]}
    return gr.compare(*([Prediction("a", 100, 100, **image, pred=[[0, 0, 50, 100 * iou]])] for iou in (0.5, 0.8)))


def audited():
    rewards = {"R3": gr.get_reward("R3", box_format=FORMAT)}
    return audit(rewards, images_of([ROW]), gr.get_box_format(FORMAT), scripts=SCRIPTED_ANSWERS[:1])


#: For each command whose result is a table: its function, one line of the table, and what is to be found there.
WALK = {
    "doctor": (lambda: examine("images"), {"check": "duplicate-boxes"}, {"id": "1"}),
    "evaluate": (
        lambda: gr.evaluate("greedy.jsonl", box_format=FORMAT),
        {"system": "greedy", "metric": "mean_iou"},
        {"value": 1.0},
    ),
    "signal": (
        lambda: gr.signal("samples.jsonl", box_format=FORMAT, reward="R3"),
        {"reward": "R3"},
        {"mean": 0.5, "no_spread": 0.0, "effective_group_size": 2.0},
    ),
    "audit": (audited, {"reward": "R3", "script": SCRIPTED_ANSWERS[0].name}, {"finding": "", "against": ""}),
    "diff": (compared, {"metric": "mean_iou"}, {"a": 0.5, "b": 0.8, "value": 0.3}),
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
    twice = {"boxes": ROW["boxes"] * 2, "labels": ["mass"] * 2}
    train, test = ({"file": f"{k}.png", "split": split, **rows[k]} for k, split in enumerate(("train", "test")))
    write_lines("images/annotations.jsonl", [train, test | twice])
    write_lines("greedy.jsonl", [{**row, "completion": text} for row, text in zip(rows, (right, "[]"), strict=True)])
    write_lines("samples.jsonl", [{**rows[0], "completion": text} for text in (right, "[]")])


def test_the_page_of_commands_names_the_function_of_each():
    page = (REPOSITORY / "docs" / "commands.md").read_text(encoding="utf-8")
    section = page.partition("## In a notebook")[2].partition("<!-- commands: begin")[0]
    rows = re.findall(r"^\| `(\w[\w-]*)` \| (.+) \|$", section, re.MULTILINE)
    assert {command for command, _ in rows} == {*COMMANDS} - {"demo"}
    for place in re.findall(r"`([\w.]+)`", " ".join(said for _, said in rows)):
        module, name = f"grounding_rewards.{place}".rsplit(".", 1)
        assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.parametrize("command", WALK)
def test_a_result_is_a_table_and_plain_values(command, folder):
    call, line, expected = WALK[command]
    found = call()
    assert json.dumps(found.to_dict())
    table = found.to_dataframe()
    for column, value in line.items():
        table = table[table[column] == value]
    assert len(table) == 1
    for key, value in expected.items():
        assert table.iloc[0][key] == (pytest.approx(value) if isinstance(value, float) else value)

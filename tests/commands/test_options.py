"""Commands that train nothing take a scheduled reward at its final values, and say so."""

import json
from dataclasses import fields

import pytest

from grounding_rewards.cli import main
from grounding_rewards.commands.evaluate import EvaluateOptions
from grounding_rewards.commands.signal import SignalOptions
from tests.tables import table

# IoU 0.3: a hit at the beginning of the schedule, none at its end.
IMAGE = {"id": "a", "prompt": "Where?", "boxes": [[0, 0, 100, 100]], "labels": ["mass"], "width": 1000, "height": 1000}
IMAGE |= {"completion": '[{"bbox_2d": [0, 0, 100, 30], "label": "mass"}]', "box_format": "qwen3-vl"}


@pytest.mark.parametrize("command", table("commands/tables", "final_values"), ids=lambda words: words[0])
@pytest.mark.parametrize(("schedule", "said"), [("linear", "is 0.5, where its schedule ends"), ("rising", "cosine, ")])
def test_final_values(command, schedule, said, tmp_path, capsys):
    log, out = tmp_path / "log.jsonl", tmp_path / "out"
    log.write_text((1 + (command[0] == "signal")) * f"{json.dumps(IMAGE)}\n", encoding="utf-8")
    kwargs = json.dumps({"iou_threshold": {"schedule": schedule, "from": 0.1, "to": 0.5, "over": 0.4}})
    words = [word.replace("LOG", str(log)).replace("OUT", str(out)) for word in command]
    words += [f"R3:{kwargs}"] if command[0] == "score" else ["--reward", "R3", "--reward-kwargs", kwargs]
    assert main(words) == (0 if schedule == "linear" else 2)
    assert said in capsys.readouterr().err
    for path in (tmp_path / "out.jsonl", out / "images.jsonl"):
        if path.is_file():
            row = json.loads(path.read_text(encoding="utf-8"))
            assert row.get("rewards", row)["R3" if "rewards" in row else words[-1]] == 0


@pytest.mark.parametrize("options", [EvaluateOptions, SignalOptions])
def test_options_that_are_for_a_model_or_for_a_log_exist(options):
    """They are named as texts: one that was renamed would be taken without an effect again."""
    assert {*options.only_model, *options.only_log} <= {one.name for one in fields(options)}

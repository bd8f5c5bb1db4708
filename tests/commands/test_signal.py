"""`grounding-rewards signal` as a user runs it: a log, the log of a training, a model; the page and the errors."""

import json
import re

import numpy as np
import pytest

from grounding_rewards.cli import main
from grounding_rewards.metrics.signal import CAUSES
from tests.conftest import REPOSITORY, write_lines
from tests.tables import table

PAGE = (REPOSITORY / "docs" / "signal.md").read_text(encoding="utf-8")
GT = [10, 10, 30, 30]
SIZE = {"width": 100, "height": 100, "box_format": "qwen3-vl"}


def write_log(path, **columns):
    """Six images of 100 x 100 with four answers each: below τ, spread, all unread, hallucinated, perfect, empty."""
    answers = [
        [[200, 100, 400, 300], [220, 100, 420, 300], [260, 100, 460, 300], [210, 100, 410, 300]],
        [[100, 100, 300, 300], [120, 100, 320, 300], [140, 100, 340, 300], [500, 500, 600, 600]],
        [None] * 4,
        [[0, 0, 200, 200]] * 4,
        ["[]"] * 4,
        ["[]"] * 4,
    ]
    rows = []
    for image, boxes in enumerate(answers):
        for k, box in enumerate(boxes):
            text = "what?" if box is None else box if isinstance(box, str) else json.dumps([{"bbox_2d": box}])
            found = [] if image in (3, 4) else [GT]
            row = {"id": f"image {image}", "completion": text, "boxes": found, "labels": ["mass"] * len(found)}
            rows.append({**row, **SIZE, "image": f"{image}.png", "sample": k, **columns})
    return write_lines(path, rows)


def test_a_log(tmp_path, capsys):
    log, found = write_log(tmp_path / "log.jsonl", R4=0.0), tmp_path / "signal.json"
    assert main(["signal", str(log), "--json", str(found), "--strict"]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "6 groups, 24 completions, 4 in most groups. Without spread under R4: 83 %" in printed
    assert "17 % all below τ" in printed
    assert (
        "No other reward is shown to be enough: 83 % of the groups are without spread under R4, 67 % under" in printed
    )
    metrics = json.loads(found.read_text(encoding="utf-8"))
    assert metrics["configured"]["causes"]["all_below_threshold"] == pytest.approx(1 / 6)
    assert [one["name"] for one in metrics["tried"]][:3:2] == ["R4 at τ 0.3", "soft_f1"]
    assert "image 0" not in found.read_text(encoding="utf-8")


def test_with_nothing_wrong_it_is_one_sentence(tmp_path, capsys):
    """Two images whose answers overlap their findings by different shares, each box in its own image alone."""
    rows = []
    for image, x in enumerate((100, 600)):
        for k in range(4):
            text = json.dumps([{"bbox_2d": [x, 100, x + 200 - 20 * k, 300]}])
            gt = [x / 10, 10, x / 10 + 20, 30]
            rows.append({"id": f"{image}", "completion": text, "boxes": [gt], "labels": ["mass"], **SIZE})
    log = tmp_path / "log.jsonl"
    write_lines(log, rows)
    sentence = "Keep R4: answers to the same image differ in reward in 100 % of the groups."
    assert main(["signal", str(log)]) == 0
    assert " ".join(capsys.readouterr().out.split()) == sentence
    assert main(["signal", str(log), "--all"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "2 groups, 8 completions" in printed
    assert "no spread because effective size" in printed


def test_where_the_space_is_contradicted_the_cause_comes_alone(capsys):
    log = str(REPOSITORY / "docs" / "examples" / "signal.jsonl")
    assert main(["signal", log, "--box-format", "qwen3-vl", "--strict"]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith("The answers are misread, so that no reward can be judged by them. Expected boxes in n")
    assert "no spread" not in printed


@pytest.mark.parametrize(("options", "message"), table("commands/refusals", "signal"))
def test_mistakes_are_named(tmp_path, capsys, options, message):
    log, single = write_log(tmp_path / "log.jsonl"), tmp_path / "single.jsonl"
    write_lines(single, [{"id": k, "completion": "[]", "boxes": [], **SIZE} for k in "ab"])
    files = {"LOG": str(log), "SINGLE": str(single)}
    assert main(["signal", *(files.get(word, word) for word in options)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.training
def test_the_log_of_a_training_as_it_is(tmp_path, capsys):
    """The share without spread is the one that TRL logged, over all steps."""
    pytest.importorskip("trl", reason="needs the train extra")
    from tests.training.runs import grpo

    trainer = grpo(tmp_path / "run", num_generations=4, max_completion_length=30, max_steps=4, log_completions="true")
    logged = [entry["frac_reward_zero_std"] for entry in trainer.state.log_history if "frac_reward_zero_std" in entry]
    found = tmp_path / "signal.json"
    assert main(["signal", str(tmp_path / "run" / "completions"), "--json", str(found)]) == 0
    metrics = json.loads(found.read_text(encoding="utf-8"))
    assert metrics["configured"]["no_spread"]["value"] == pytest.approx(np.mean(logged))


@pytest.mark.training
def test_a_model_answers_and_its_answers_are_kept(tmp_path, capsys):
    pytest.importorskip("trl", reason="needs the train extra")
    from tests.training.runs import ASSET

    options = ["--dataset", "synthetic", "--max-images", "3", "--samples", "2", "--max-new-tokens", "24"]
    options += ["--temperature", "0.5", "--keep", str(tmp_path / "kept")]
    assert main(["signal", "--model", str(ASSET), *options]) == 0
    printed = capsys.readouterr().out
    assert "3 groups, 6 completions" in printed
    assert [path.name for path in (tmp_path / "kept").glob("*.jsonl")] == ["samples.jsonl"]
    # What was kept is a log of its own.
    assert main(["signal", str(tmp_path / "kept")]) == 0
    again = capsys.readouterr().out
    assert again[again.index("groups") :] == printed[printed.index("groups") :]


@pytest.mark.parametrize(("config", "options", "judged"), table("commands/tables", "trained_rewards"))
def test_a_run_is_judged_by_the_reward_that_it_trained(tmp_path, capsys, config, options, judged):
    (tmp_path / "config.yaml").write_text(config, encoding="utf-8")
    (tmp_path / "completions").mkdir()
    log, found = write_log(tmp_path / "completions" / "log.jsonl"), tmp_path / "signal.json"
    assert main(["signal", str(log), "--json", str(found), *options]) == 0
    assert f"Without spread under {judged}: " in " ".join(capsys.readouterr().out.split())


def test_the_documentation_shows_what_is_printed(monkeypatch, capsys):
    ((command, output),) = re.findall(r"```console\n\$ grounding-rewards (.*)\n((?:.*\n)*?)```", PAGE)
    monkeypatch.chdir(REPOSITORY)
    assert main(command.split()) == 0
    printed = capsys.readouterr().out.rstrip("\n").split("\n")
    # Where the page has "…", rows are left out.
    rest = iter([line.rstrip() for line in printed])
    shown = [line for line in output.rstrip("\n").split("\n") if line.strip() != "…"]
    assert [line for line in shown if line not in rest] == []


def test_the_documentation_has_every_cause_in_its_order():
    rows = [f"| {one.title} | `{name}` | {one.meaning} | {one.remedy} |" for name, one in CAUSES.items()]
    assert "\n".join(rows) in PAGE

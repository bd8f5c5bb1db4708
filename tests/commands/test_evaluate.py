"""`grounding-rewards evaluate` as a user runs it: a model, an adapter, a log; the folder and the errors."""

import json
import re
from itertools import chain

import numpy as np
import pytest

from grounding_rewards.cli import main
from grounding_rewards.metrics.prediction import load_predictions
from tests.conftest import write_image_folder, write_lines
from tests.tables import table

SOUND = {"id": "a", "text": "[]", "boxes": [[0, 0, 5, 5]], "labels": ["mass"], "width": 9, "height": 9}


def evaluate(*arguments):
    return main(["evaluate", *map(str, arguments)])


def metrics(folder):
    return json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_model(checkpoint, tmp_path, capsys):
    options = ["--dataset", "synthetic", "--max-images", 6, "--max-new-tokens", 4, "--samples", 2, "--reward", "R2"]
    assert evaluate("--model", checkpoint, *options, "--out", tmp_path) == 0
    written = {"report.html", "evaluation.json", "images.jsonl", "metrics", "completions.jsonl", "samples.jsonl"}
    assert {path.name for path in tmp_path.iterdir()} >= written
    found = metrics(tmp_path)
    assert list(found["systems"]) == [checkpoint.name, "reference as answer", "constant box"]
    assert next(iter(found["headings"])) == "reward_R2"
    assert found["facts"]["box format"] == "qwen2.5-vl"
    assert found["facts"]["images"] == 6
    images = load_predictions(tmp_path)
    assert [len(image.sampled_rewards) for image in images] == [2] * 6
    assert set(images[0].rewards) == {"R1", "R2", "R3", "R4", "R5"}
    printed = capsys.readouterr().out
    assert "constant box" in printed
    assert (tmp_path / "report.html").as_uri() in printed


def folder_with_bad_images(root):
    """Six images: the second line has no labels, the third image a box outside, the fourth one without area."""
    line = {"split": "test", "width": 64, "height": 64, "boxes": [[8.0, 8.0, 40.0, 40.0]], "labels": ["mass"]}
    lines = [{**line, "file": f"{k}.png", "id": f"image {k}"} for k in range(6)]
    lines[1]["labels"] = []
    lines[2]["boxes"] = [[8.0, 8.0, 90.0, 40.0]]
    lines[3]["boxes"] = [[8.0, 8.0, 8.0, 40.0]]
    return write_image_folder(root, lines)


@pytest.mark.parametrize("of_a_log", [False, True])
def test_bad_images_are_refused_or_left_out_and_named(of_a_log, checkpoint, tmp_path, capsys):
    root = folder_with_bad_images(tmp_path / "images")
    options = ["--dataset", root, "--train-split", "none", "--out", tmp_path / "out"]
    if of_a_log:
        answer = '[{"bbox_2d": [125, 125, 625, 625], "label": "mass"}]'
        rows = [{"id": f"image {k}", "completion": answer} for k in range(6) if k != 1]
        log = write_lines(tmp_path / "answers.jsonl", rows)
        options += ["--completions", log, "--box-format", "qwen3-vl"]
    else:
        options += ["--model", checkpoint, "--max-new-tokens", 4]
    assert evaluate(*options) == 2
    said = capsys.readouterr().err
    assert "in line 2 of" in said
    assert "(id image 1)" in said
    assert not (tmp_path / "out").exists()
    with pytest.warns(UserWarning, match="dropped") as said:
        assert evaluate(*options, "--bad-rows", "drop") == 0
    words = " ".join(str(one.message) for one in said)
    assert all(f"image {k}" in words for k in (1, 2, 3))
    assert not any(f"image {k}" in words for k in (0, 4, 5))
    assert [image.id for image in load_predictions(tmp_path / "out")] == ["image 0", "image 4", "image 5"]
    facts = metrics(tmp_path / "out")["facts"]
    assert (facts["images"], facts["bad rows"]) == (3, "left out")
    assert "left out" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_the_same_command_again_asks_nothing_and_its_answers_can_be_evaluated_without_the_model(
    checkpoint, tmp_path, monkeypatch
):
    images, out = ["--dataset", "synthetic", "--max-images", 4], tmp_path / "out"
    options = ["--model", checkpoint, "--max-new-tokens", 4, *images, "--out", out]
    assert evaluate(*options) == 0
    before = contents(out)
    generating = "grounding_rewards.models.generate.generate_batch"
    monkeypatch.setattr(generating, lambda *_, **__: pytest.fail("the model was asked again"))
    assert evaluate(*options) == 0
    assert contents(out) == before
    assert evaluate("--completions", out / "completions.jsonl", *images, "--out", tmp_path / "again") == 0
    one, other = metrics(out)["systems"], metrics(tmp_path / "again")["systems"]
    assert other["completions"] == one[checkpoint.name]
    assert other["constant box"] == one["constant box"]


def test_an_adapter_and_a_bar_with_images(checkpoint, tmp_path, monkeypatch, capsys):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForImageTextToText, AutoProcessor

    model = AutoModelForImageTextToText.from_pretrained(checkpoint)
    adapter = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    adapter.save_pretrained(tmp_path / "adapter")
    AutoProcessor.from_pretrained(checkpoint).save_pretrained(tmp_path / "adapter")
    options = ["--dataset", "synthetic", "--max-images", 2, "--max-new-tokens", 4, "--out", tmp_path / "out"]
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    assert evaluate("--model", tmp_path / "adapter", *options) == 0
    assert re.search(r"greedy answers.*[02]/2", capsys.readouterr().err, re.DOTALL)
    assert next(iter(metrics(tmp_path / "out")["systems"])) == "adapter"


def test_how_fragile_a_model_is(checkpoint, tmp_path):
    options = ["--dataset", "synthetic", "--max-images", 2, "--max-new-tokens", 2, "--robustness", "corruptions", "pgd"]
    assert evaluate("--model", checkpoint, *options, "--robustness-images", 1, "--out", tmp_path) == 0
    points = metrics(tmp_path)["robustness"]
    assert [point["strength"] for point in points if point["name"] == "noise"] == [0, 1, 2, 3, 4, 5]
    at_zero = next(point for point in points if point["family"] == "pgd" and point["strength"] == 0)
    assert at_zero["attack_success_rate"]["value"] == 0
    assert metrics(tmp_path)["facts"]["robustness"] == "the first 1 images, seed 0"


def test_a_log_with_everything(tmp_path):
    rng = np.random.default_rng(0)
    rows = []
    for i in range(30):
        x, y = (int(value) for value in rng.integers(0, 500, 2))
        box = {"bbox_2d": [x, y, x + 300, y + 300], "label": "mass", "score": round(float(rng.uniform()), 2)}
        boxes = [[x, y, x + 300, y + int(rng.integers(150, 400))]] if i % 3 else []
        rows.append(
            {"id": f"image {i}", "completion": json.dumps([box, box]), "boxes": boxes, "labels": ["mass"] * len(boxes),
             "width": 1000, "height": 1000, "patient_id": f"p{i // 2}"}
        )  # fmt: skip
    log = write_lines(tmp_path / "log.jsonl", rows)
    options = ["--completions", log, "--box-format", "qwen3-vl", "--label-matching", "synonyms"]
    options += ["--iou", 0.5, 0.65]
    assert evaluate(*options, "--out", tmp_path / "out") == 0
    found = metrics(tmp_path / "out")
    assert next(iter(found["systems"])) == "log"
    assert "constant box of these images" in found["systems"]
    assert found["headings"]["map_50"] == "mAP at IoU 0.5"
    assert found["headings"]["ap_65"] == "AP at IoU 0.65"
    assert "ap_30" not in found["headings"]
    assert list(found["per_size"]) == ["medium, 1 % to 10 % of the image", "large, above 10 % of the image"]
    assert found["systems"]["log"]["hallucination_rate"]["value"] == 1
    assert found["facts"]["patients"] == 15
    assert {path.stem for path in (tmp_path / "out" / "metrics").iterdir()} == {"ious"}


def test_the_terminal_shows_twelve_metrics(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    text = '[{"bbox_2d": [0, 0, 500, 500], "label": "mass", "score": 0.5}]'
    rows = [{**SOUND, "text": text}, {**SOUND, "id": "b", "text": "[]", "boxes": [], "labels": []}]
    # image dependence needs another image with as many boxes
    log = write_lines(tmp_path / "log.jsonl", [*rows, {**SOUND, "id": "c", "text": text}])
    options = ["--completions", log, "--box-format", "qwen3-vl", "--out", tmp_path / "x"]
    assert evaluate(*options) == 0
    # Names of metrics stand at the left, below the heading of the column.
    lines = [line for line in capsys.readouterr().out.splitlines() if re.match(r"  \w", line)][1:]
    assert [line[2:].split("   ")[0].rstrip(" ↓") for line in lines] == [
        *("recall at IoU 0.5", "precision at IoU 0.5", "F1 at IoU 0.5", "false boxes per image"),
        *("hallucination on normal images", "specificity", "right label", "mean IoU"),
        *("image dependence (p = 1.000)", "AP at IoU 0.5", "AP at IoU 0.5 to 0.95", "reward R4"),
    ]


def test_metrics_by_source(tmp_path, images):
    """Also where the log alone knows the source."""
    from datasets import DatasetDict

    sources = ["clinic", "clinic", "<b>abroad", "<b>abroad"]
    DatasetDict({"test": images.add_column("source", sources)}).save_to_disk(str(tmp_path / "data"))
    log, out = write_lines(tmp_path / "log.jsonl", [{"text": "[]"}] * 4), tmp_path / "out"
    options = ["--dataset", tmp_path / "data", "--by-order", "--train-split", "none", "--out", out]
    assert evaluate(log, *options) == 0
    assert list(metrics(out)["per_source"]) == ["<b>abroad", "clinic"]
    assert "<b>abroad" not in (out / "report.html").read_text(encoding="utf-8")
    log = write_lines(tmp_path / "own.jsonl", [{**SOUND, "id": name, "source": name} for name in ("a", "b")])
    assert evaluate("--completions", log, "--box-format", "qwen3-vl", "--out", tmp_path / "own") == 0
    assert list(metrics(tmp_path / "own")["per_source"]) == ["a", "b"]


@pytest.mark.parametrize(("arguments", "expected"), table("commands/refusals", "evaluate"))
def test_mistakes_are_named_in_one_line(arguments, expected, tmp_path, capsys):
    log = write_lines(tmp_path / "log.jsonl", [SOUND])
    found = write_lines(tmp_path / "found.jsonl", [{name: SOUND[name] for name in SOUND if name != "labels"}])
    given = [argument.replace("{log}", str(log)).replace("{found}", str(found)) for argument in arguments]
    assert evaluate(*given, "--out", tmp_path / "out") == 2
    assert expected.replace("{found}", str(found)) in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("arguments", "expected"), table("commands/refusals", "evaluate_before_the_model_is_loaded"))
def test_nothing_is_wrong_when_the_model_is_loaded(arguments, expected, tmp_path, monkeypatch, capsys):
    from datasets import Dataset, DatasetDict

    monkeypatch.setattr("grounding_rewards.models.load.load_later", lambda *_, **__: pytest.fail("it was loaded"))
    changes = {"sound": {}, "off the image": {"boxes": [[], [[0, 0, 5, 11]]]}, "two of one name": {"id": ["a", "a"]}}
    for name, change in changes.items():
        columns = {"id": ["a", "b"], "boxes": [[], [[0, 0, 5, 5]]], "width": [9, 9], "height": [9, 9]} | change
        DatasetDict({"test": Dataset.from_dict(columns)}).save_to_disk(str(tmp_path / name))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "report.html").write_text("of something else")
    given = {"--dataset": "{sound}", "--train-split": "none", "--out": "{out}"}
    given |= dict(zip(arguments[::2], arguments[1::2], strict=True))
    words = [re.sub(r"^\{(\w[\w /.]*)\}$", rf"{tmp_path}/\1", word) for word in chain(*given.items())]
    assert evaluate("--model", "nowhere", *words) == 2
    assert expected in capsys.readouterr().err


def test_another_evaluation_is_not_written_over(tmp_path, capsys):
    log, out = write_lines(tmp_path / "log.jsonl", [SOUND]), tmp_path / "out"
    options = ["--completions", log, "--box-format", "qwen3-vl", "--out", out]
    assert evaluate(*options) == 0
    (out / "metrics" / "of_before.png").write_bytes(b"")
    before = contents(out)
    assert evaluate(*options) == 0
    assert contents(out) == before
    # plots of metrics that there are no more
    assert not (out / "metrics" / "of_before.png").exists()
    assert evaluate(*options, "--label-matching", "exact") == 2
    assert f"instead of '--box-format qwen3-vl --completions {log}'" in capsys.readouterr().err
    assert contents(out) == before
    assert evaluate(*options, "--label-matching", "exact", "--overwrite") == 0
    assert metrics(out)["facts"]["label matching"] == "exact"

"""The command `grounding-rewards diff` on two small runs."""

import json
import re
from functools import partial
from io import StringIO

import pytest
from rich.console import Console

from grounding_rewards.metrics.prediction import Prediction, save_predictions
from grounding_rewards.report.comparison import compare_evaluations
from tests.commands.conftest import call
from tests.conftest import write_image_folder
from tests.tables import table

HOSTILE = "<b>mass</b>|[red]x"


def write_run(folder, part, facts=None, count=14):
    folder.mkdir()
    boxes = {"gt": [[0, 0, 10, 10]], "gt_labels": [HOSTILE], "pred": [[0, 0, 10, 10 * part]], "rewards": {"R4": part}}
    images = [Prediction(f"image {i}", 100, 100, patient=f"p{i // 2}", **boxes) for i in range(count)]
    save_predictions(folder / "images.jsonl", images)
    if facts is not None:
        (folder / "evaluation.json").write_text(json.dumps({"facts": facts}), encoding="utf-8")
    return folder


diff = partial(call, "diff")


def test_two_folders(tmp_path, monkeypatch, capsys):
    a = write_run(tmp_path / "a", 0.4, {"model": "small", "reward": "R4", "decoding": {"samples": 16}})
    b = write_run(tmp_path / "b", 0.8, {"model": "small", "reward": "R5", "decoding": {"samples": 8}})
    assert diff(a, b, "--json", tmp_path / "diff.json", "--seed", 3, "--resamples", 200) == 0
    printed = capsys.readouterr().out
    content = json.loads((tmp_path / "diff.json").read_text(encoding="utf-8"))
    # seven patients: p = 2 / 2^7, which Holm's adjustment for the metrics shown leaves above 0.05
    verdict = "Mean IoU 0.40 → 0.80: no change shown. F1@0.5 0.00 → 1.00: no change shown. No metric "
    assert content["verdict"].startswith(verdict)
    assert content["metrics"]["f1_50"]["p"] == 2 / 2**7
    assert (content["a"], content["b"], content["seed"], content["resamples"]) == (str(a), str(b), 3, 200)
    differing = ("reward: R4 in a, R5 in b", "decoding: {'samples': 16} in a, {'samples': 8} in b")
    measured = ("Mean IoU 0.40 → 0.80: no change shown.", "14 images of 7 patients in both\n", "+0.400")
    for sentence in (*measured, f"a: {a}", "200 draws of patients, seed 3", *differing):
        assert sentence in printed
    assert "model: " not in printed
    # a label is no markup
    monkeypatch.chdir(tmp_path)
    assert diff("a", "b", "--all") == 0
    printed = capsys.readouterr().out
    assert HOSTILE in printed
    # The path says no more than the name.
    assert "a: a" not in printed


def test_images_of_one_run_alone_are_counted(tmp_path, capsys):
    assert diff(write_run(tmp_path / "a", 0.4), write_run(tmp_path / "b", 0.8, count=10), "--resamples", 200) == 0
    assert "10 images of 5 patients in both; 4 only in a and 0 only in b play no part\n" in capsys.readouterr().out


def test_the_terminal_shows_the_core_and_all_on_request(runs, capsys):
    assert diff(*runs, "--reward", "R4") == 0
    printed = capsys.readouterr().out
    names = ("recall at IoU 0.5", "F1 at IoU 0.5", "false boxes per image ↓", "AP at IoU 0.5 to 0.95", "reward R4")
    assert [name for name in names if name not in printed] == []
    rest = ("recall at IoU 0.75", "Dice", "Reference boxes by label")
    assert [name for name in rest if name in printed] == []
    assert "specificity" not in printed  # no image is normal
    assert "--all: every metric, labels and tests." in printed
    assert diff(*runs, "--all") == 0
    printed = capsys.readouterr().out
    assert [name for name in (*names, *rest) if name not in " ".join(printed.split())] == []
    assert "--all" not in printed
    assert diff(*runs, "--metrics", "f1_50", "mean_iou") == 0
    printed = capsys.readouterr().out
    assert re.search(r"F1 at IoU 0\.5 +0\.000 +1\.000 +\+1\.000", printed)
    assert "precision" not in printed


@pytest.mark.parametrize("every", [False, True])
def test_two_runs_fit_into_80_columns(runs, every):
    write_facts(runs[1])
    console = Console(file=StringIO(), width=80)
    compare_evaluations(*runs).print(console, every=every)
    printed = console.file.getvalue()
    assert max(map(len, printed.splitlines())) <= 80
    # nothing is cut, and no number is broken
    assert "…" not in printed
    heading = next(line for line in printed.splitlines() if "metric" in line)
    assert heading.split() == ["metric", "before", "after", "change"]
    assert re.search(r"mean IoU +0\.400 +0\.800 +\+0\.400 \[\+0\.400, \+0\.400\]", printed)
    assert ("<b>mass</b>|" in printed, "Holm 1.000" in printed or "Holm 0." in printed) == (every, every)


@pytest.mark.parametrize(
    ("rules", "option", "expected"), table("commands/tables", "labels_are_compared_as_in_the_evaluations")
)
def test_labels_are_compared_as_in_the_evaluations(tmp_path, rules, option, expected, capsys):
    facts = [None if rule is None else {"label matching": rule} for rule in rules]
    a, b = write_run(tmp_path / "a", 0.4, facts[0]), write_run(tmp_path / "b", 0.8, facts[1])
    given = [] if option is None else ["--label-matching", option]
    assert diff(a, b, *given, "--json", tmp_path / "diff.json") == 0
    found = json.loads((tmp_path / "diff.json").read_text(encoding="utf-8"))
    assert [found["label_matching"], found["metrics"]["f1_50"]["b"]["value"]] == expected
    assert f"labels of boxes: {expected[0]} (--label-matching)" in capsys.readouterr().out


@pytest.mark.parametrize(("facts", "options", "message"), table("commands/tables", "what_cannot_be_compared_is_named"))
def test_what_cannot_be_compared_is_named(facts, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    a, b = write_run(tmp_path / "a", 0.6, {"label matching": "ignore"}), write_run(tmp_path / "b", 0.8)
    if facts == "no images":
        (b / "images.jsonl").unlink()
    elif facts is not None:
        (b / "evaluation.json").write_text(facts, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        diff(a, b, *options)


def write_facts(folder, **facts):
    """Add the facts that `evaluate` writes beside the run."""
    content = {
        "facts": {"label matching": "ignore", **facts},
        "headings": {"reward_R4": "reward R4"},
        "definitions": {"f1_50": "<i>twice"},
        "systems": {"model": {}},
    }
    (folder / "evaluation.json").write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def runs(tmp_path):
    return write_run(tmp_path / "before", 0.4), write_run(tmp_path / "after", 0.8)


def test_the_page(runs, tmp_path, capsys):
    (tmp_path / "checkpoint").mkdir()
    lines = [json.dumps({"step": i, "reward": 0.1 * i, "R4/mean_iou": None}) for i in range(5)]
    (tmp_path / "log.jsonl").write_text("\n".join(lines), encoding="utf-8")
    write_facts(runs[1], model=str(tmp_path / "checkpoint"), dataset="/home/me/images", split="")
    assert diff(*runs, "--html", tmp_path / "out" / "page.html") == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"page.html"}
    page = (tmp_path / "out" / "page.html").read_text(encoding="utf-8")
    assert (tmp_path / "out" / "page.html").as_uri() in capsys.readouterr().out
    assert "<h1><bdi>after against before: mean IoU 0.40 → 0.80</bdi></h1>" in page
    assert "14 images of images" in page
    # of the log beside its checkpoint
    assert "<h3>Reward in training</h3>" in page
    # no address but data, and no markup of others
    assert not re.search(r"(?:href|src|srcset)=\"(?!data:|#)", page)
    assert "<b>mass" not in page
    assert "<i>twice" not in page
    # no image anywhere: the boxes alone
    assert "image/jpeg" not in page


def test_images_come_from_the_dataset(tmp_path, capsys):
    from PIL import Image

    from grounding_rewards.prepare.load import load_split

    def write(folder, reward, image):
        folder.mkdir()
        known, rows = {"image": image, "rewards": {"R4": reward}}, load_split("synthetic", "test", max_images=3)
        names = ("id", "width", "height", "boxes", "labels")
        images = [[row[name] for name in names] for row in rows]
        written = [Prediction(*size, gt=boxes, gt_labels=labels, **known) for *size, boxes, labels in images]
        save_predictions(folder / "images.jsonl", written)
        return folder

    def pictures(before, after, *options):
        """How many the page has."""
        assert diff(before, after, "--html", tmp_path / "page.html", *options) == 0
        return (tmp_path / "page.html").read_text(encoding="utf-8").count("data:image/jpeg")

    a, b = write(tmp_path / "a", 0.2, None), write(tmp_path / "b", 0.4, None)
    write_facts(b, dataset="synthetic", split="test", images=3)
    # of the three images those that the page shows
    assert pictures(a, b) == 2
    # without its dataset the images are drawn as boxes, and a warning names why
    write_facts(b, dataset=str(tmp_path / "a"), split="test", images=3)
    assert pictures(a, b) == 0
    assert "images are shown without their pixels: Expected annotations.jsonl" in capsys.readouterr().err
    # a log may name any file
    Image.new("L", (64, 64), 9).save(tmp_path / "image.png")
    c = write(tmp_path / "c", 0.4, str(tmp_path / "image.png"))
    write_facts(c, dataset="the log")
    assert pictures(a, c, "--allow-outside") == 0


def test_images_are_found_wherever_they_stand_in_a_dataset_with_bad_rows(tmp_path):
    row = {"width": 64, "height": 64, "split": "test", "boxes": [[8, 8, 40, 40]], "labels": ["mass"]}
    rows = [{**row, "file": f"{k}.png", "id": f"{k}"} for k in range(6)]
    root = write_image_folder(tmp_path / "images", [{**rows[0], "labels": []}, *rows[1:]])
    # The first line is no image; of the others the last three were evaluated.
    for name, rows, reward in (("a", "refused", 0.5), ("b", "left out", 0.7)):
        boxes = {"gt": [[8, 8, 40, 40]], "rewards": {"R4": reward}}
        images = [Prediction(f"{k}", 64, 64, gt_labels=[f"finding {k}"], **boxes) for k in (3, 4, 5)]
        (tmp_path / name).mkdir()
        save_predictions(tmp_path / name / "images.jsonl", images)
        write_facts(tmp_path / name, **{"dataset": str(root), "split": "test", "images": 3, "bad rows": rows})
    with pytest.warns(UserWarning, match="1 of 6 lines"):
        assert diff(tmp_path / "a", tmp_path / "b", "--html", tmp_path / "page.html") == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("data:image/jpeg") == 3
    assert "bad rows: refused in a, left out in b" in page

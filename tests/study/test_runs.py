"""Runs end to end: trained, measured, kept; finished ones are never made again; kill -9 changes no result."""

import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import yaml
from PIL import Image
from trl import GRPOConfig

import grounding_rewards.study
from grounding_rewards.cli import main
from grounding_rewards.metrics.read_predictions import read_predictions
from grounding_rewards.rewards.grounding import get_reward
from grounding_rewards.study import runs as study_runs
from grounding_rewards.study.measure import _corrupted_row
from grounding_rewards.study.results import Folder, read_json, write_json
from grounding_rewards.study.runs import curve_of
from tests.study.conftest import SMALL, called, called_here
from tests.training.forks import PATIENCE, Program, command, started, wait_until

pytestmark = [pytest.mark.training, pytest.mark.usefixtures("in_repository")]

SHARED = ("study.yaml", "images.json", "starts")


def study(folder, *more):
    return main(["study", str(folder.parent / "small.yaml"), "--out", str(folder), *more])


@pytest.fixture
def begun(made_study, tmp_path):
    """A folder of the same study, where the start alone is measured."""
    folder = tmp_path / "out"
    folder.mkdir()
    shutil.copy(made_study.parent / "small.yaml", tmp_path)
    for name in SHARED:
        source = made_study / name
        shutil.copytree(source, folder / name) if source.is_dir() else shutil.copy(source, folder)
    return folder


def test_a_run_leaves_one_small_file(made_study):
    found = read_json(made_study / "results" / "strong--R3--seed0.json.gz")
    assert (found["study"], found["start"], found["arm"], found["seed"]) == ("small", "strong", "R3", 0)
    assert (found["role"], found["kind"], found["reward"]) == ("arm", "train", {"name": "R3", "kwargs": {}})
    assert [one["step"] for one in found["checkpoints"]] == [3, 6]
    assert found["curve"]["step"] == [1, 2, 3, 4, 5, 6]
    assert set(found["curve"]) == {"step", "reward", "loss", "frac_reward_zero_std"}
    assert found["versions"]["trl"]
    assert [entry["step"] for entry in found["log"]][:6] == [1, 2, 3, 4, 5, 6]
    assert set(found["checkpoints"][-1]["sets"]["test"]) == {"answers"}
    assert not any((made_study / "runs").iterdir())


def test_a_supervised_run_counts_in_steps_of_equal_cost(made_study):
    """96 answers in batches of 16: 6 steps."""
    found = read_json(made_study / "results" / "strong--sft--seed0.json.gz")
    assert (found["role"], found["kind"], found["reward"]) == ("control", "sft", None)
    assert [one["step"] for one in found["checkpoints"]] == [3, 6]


def test_answers_are_read_with_the_images_that_are_kept(made_study):
    """The shipped model finds some of what is drawn; on changed images too there is an answer for every image."""
    images = read_json(made_study / "images.json")["sets"]
    start = read_json(made_study / "starts" / "strong.json.gz")
    assert {name: len(one) for name, one in images.items()} == {"test": 4, "other": 3}
    assert set(images["test"][0]) >= {"id", "patient", "width", "height", "boxes", "labels"}
    reward = get_reward("R3", box_format=start["box_format"])
    answered = read_predictions(images["test"], [[text] for text in start["sets"]["test"]["answers"]], reward)
    assert sum(image.rewards["R3"] for image in answered) / len(answered) > 0.2
    assert len(start["sets"]["other"]["answers"]) == 3


def test_finished_runs_are_never_made_again(made_study, capsys):
    before = {path: path.stat().st_mtime_ns for path in (made_study / "results").iterdir()}
    assert study(made_study, "--index", "0") == 0
    assert "1 of 1 run finished before" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in (made_study / "results").iterdir()} == before


def test_a_notebook_gets_what_a_whole_study_found(made_study, tmp_path):
    """The runs of the second seed are those of the first; nothing is left to be trained."""
    folder = shutil.copytree(made_study, tmp_path / "out")
    for path in list((folder / "results").glob("*seed0.json.gz")):
        write_json(path.with_name(path.name.replace("seed0", "seed1")), {**read_json(path), "seed": 1})
    found = grounding_rewards.study.run(made_study.parent / "small.yaml", out=folder)
    assert [row["arm"] for row in found.to_dict()["rows"][:3]] == [None, "R3", "sft"]
    assert (folder / "report" / "findings.csv").is_file()
    with pytest.raises(ValueError, match="the study in the folder was started with, 'small', got 'other'"):
        grounding_rewards.study.run({**SMALL, "name": "other"}, out=folder)


def test_the_same_result_after_kill_9(made_study, begun, monkeypatch):
    """Killed with all that it started when the first checkpoint stands, the same command gives the same file."""
    words = ["study", begun.parent / "small.yaml", "--out", begun, "--index", "0"]
    training, output = begun / "runs" / "strong--R3--seed0", begun.parent / "output.txt"
    with started(command, *words, output=output) as (process,):
        wait_until(lambda: (training / "checkpoint-3" / "trainer_state.json").is_file(), [process], output)
        alive = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
        for one in alive:
            one.kill()
        # A program that is not dead yet still holds the run.
        assert psutil.wait_procs(alive, timeout=PATIENCE)[1] == []
    assert not (training / "trained.json").is_file()
    monkeypatch.setattr(study_runs, "run_program", lambda words, log: called_here(words))
    assert study(begun, "--index", "0") == 0
    again, before = (read_json(folder / "results" / "strong--R3--seed0.json.gz") for folder in (begun, made_study))
    # Times of the two attempts differ.
    del again["log"], before["log"]
    assert again == before
    assert not training.exists()


def test_a_failed_run_is_named_and_the_others_go_on(made_study, begun, monkeypatch, capsys):
    """Its images are not there; one of the others is finished, the other is made."""

    def fork(words, *, stdout, **_):
        return SimpleNamespace(returncode=Program(called, words[1:], Path(stdout.name)).wait())

    # The programs of the test above are started by a fork.
    replaced = SimpleNamespace(run=fork, DEVNULL=subprocess.DEVNULL, STDOUT=subprocess.STDOUT)
    monkeypatch.setattr(study_runs, "subprocess", replaced)
    (begun / "results").mkdir()
    shutil.copy(made_study / "results" / "strong--sft--seed0.json.gz", begun / "results")
    content = {**SMALL, "arms": {"bad": {"reward": "R3", "dataset": "nowhere/images"}, **SMALL["arms"]}}
    (begun.parent / "small.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    assert study(begun, "--only", "bad", "sft", "--jobs", "2") == 1
    shown = capsys.readouterr()
    assert "1 of 4 runs finished before" in shown.out
    assert "4 runs: 2 failed" in shown.out
    assert "strong--sft--seed1: finished in" in shown.err
    assert "failed: strong--bad--seed0" in shown.err
    assert "nowhere/images" in shown.err
    assert (begun / "results" / "strong--sft--seed1.json.gz").is_file()
    assert not (begun / "results" / "strong--bad--seed0.json.gz").exists()


def test_what_was_begun_with_other_settings_is_kept_and_refused(begun, capsys):
    training = begun / "runs" / "strong--R3--seed0"
    training.mkdir(parents=True)
    (training / "run.yaml").write_text("learning_rate: 1.0", encoding="utf-8")
    assert study(begun, "--index", "0") == 1
    shown = " ".join(capsys.readouterr().err.split())
    assert "learning_rate 0.0003 instead of 1.0" in shown
    assert "Give the same again, or remove the folder." in shown
    assert (training / "run.yaml").read_text(encoding="utf-8") == "learning_rate: 1.0"


def test_other_images_than_before_are_refused(begun, capsys):
    """The references that all models are compared on have changed under the study."""
    images = read_json(begun / "images.json")
    next(image for image in images["sets"]["test"] if image["boxes"])["boxes"] = []
    (begun / "images.json").write_text(json.dumps(images), encoding="utf-8")
    (begun / "starts" / "strong.json.gz").unlink()
    assert study(begun) == 1
    assert "on which earlier models of the study were measured, got others" in capsys.readouterr().err


@pytest.mark.parametrize("labels", [{}, {"labels": ["mass", "tube"]}])
def test_a_changed_image_keeps_its_boxes(labels):
    """Of a stored image of half the size, whose boxes are in pixels of the whole one; with and without labels."""
    image = Image.new("L", (100, 80))
    row = {"image": image, "width": 200, "height": 160, "boxes": [[110, 10, 150, 50], [0, 0, 20, 20]], **labels}
    changed = _corrupted_row(row, {"noise": 1, "laterality_flip": 5}, seed=0)
    assert changed.pop("image").size == (100, 80)
    boxes = [[50.0, 10.0, 90.0, 50.0], [180.0, 0.0, 200.0, 20.0]]
    assert changed == {"width": 200, "height": 160, "boxes": boxes, **labels}


def test_answers_are_as_long_as_those_of_the_training(tmp_path, monkeypatch):
    monkeypatch.setattr(study_runs, "run_program", lambda words, log: (tmp_path / "answers.json").write_text("{}"))
    plan = SimpleNamespace(sets=[], train={}, batch_size=4)
    study_runs._measure(plan, Folder(tmp_path), tmp_path, [], {}, tmp_path / "log")
    assert read_json(tmp_path / "measure.json")["max_new_tokens"] == GRPOConfig.max_completion_length


def test_a_curve_has_every_step_and_not_the_whole_run():
    log = [{"step": 1, "reward": 0.1, "R3/mean_iou": 0.2}, {"step": 2, "reward": 0.3, "loss": 0.5}]
    curve = {"step": [1, 2], "reward": [0.1, 0.3], "loss": [None, 0.5]}
    assert curve_of([*log, {"train_runtime": 9.0, "step": 2}]) == curve

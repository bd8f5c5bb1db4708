"""A folder belongs to one study; arms and seeds may be added to it."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from grounding_rewards.study.folder import Folder, at_work, claim, fingerprint_of_run, fingerprint_of_start
from grounding_rewards.study.plan import Start, make_plan
from tests.conftest import REPOSITORY

pytestmark = [pytest.mark.training, pytest.mark.usefixtures("in_repository")]


def plan_of(content):
    return make_plan(content, "study.yaml", False)


@pytest.fixture
def begun(small, tmp_path):
    """The folder of the small study, with a result of its first run."""
    folder, plan = Folder(tmp_path), plan_of(small)
    claim(folder, plan)
    folder.result(plan.runs[0]).parent.mkdir()
    folder.result(plan.runs[0]).write_text("{}")
    return folder


def prints(plan):
    return {run.name: fingerprint_of_run(plan, run) for run in plan.runs}


def test_arms_seeds_and_starts_may_be_added(begun, small):
    before = prints(plan_of(small))
    small["arms"]["R4"] = {"reward": "R4"}
    small["seeds"] = 3
    small["starts"]["again"] = {"model": "assets/tiny_vlm"}
    plan = plan_of(small)
    claim(begun, plan)
    assert before.items() <= prints(plan).items()


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("name", "other", "Expected the study 'small', which the folder .* holds, got 'other'"),
        ("reference", "sft", "Expected the primary metrics and reference of the study .* declared before the runs"),
        ("primary", {"metric": "f1_50", "set": "test"}, "declared before the runs"),
        ("sets", {"test": {"split": "test", "images": 5}}, "Expected the sets of the study"),
        ("seeds", [1, 2], "Expected every run .* got none called strong--R3--seed0"),
        ("train", {"learning_rate": 1e-6}, "Expected the settings that strong--R3--seed0 .* got learning_rate 1e-06"),
        ("starts", {"strong": {"model": "somewhere/else"}}, "got another start"),
    ],
)
def test_another_study_is_refused_and_nothing_changes(begun, small, part, change, message):
    before = begun.plan.read_bytes()
    small[part] = {**small[part], **change} if part == "train" else change
    with pytest.raises(ValueError, match=message):
        claim(begun, plan_of(small))
    assert begun.plan.read_bytes() == before


def test_what_is_no_setting_may_change(begun, small):
    small["train"]["logging_steps"] = 2
    small["keep"] = True
    claim(begun, plan_of(small))


def test_before_the_first_result_anything_may_change(small, tmp_path):
    claim(Folder(tmp_path), plan_of(small))
    small["train"]["learning_rate"] = 1e-6
    small["reference"] = "sft"
    claim(Folder(tmp_path), plan_of(small))


def test_results_without_a_plan_are_not_ours(small, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "x.json").write_text("{}")
    with pytest.raises(ValueError, match=r"Expected study\.yaml beside the results"):
        claim(Folder(tmp_path), plan_of(small))


def test_a_run_is_made_by_one_process_at_a_time(tmp_path):
    """A program that inherited the lock holds it on when the study that started it is gone."""
    file = tmp_path / "locks" / "run"
    with at_work(file) as lock:
        assert lock is not None
        with at_work(file) as second:
            assert second is None
        waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        child = subprocess.Popen(waits, stdin=subprocess.PIPE, pass_fds=[lock.fileno()])
    with at_work(file) as while_it_runs:
        assert while_it_runs is None
    child.communicate()
    with at_work(file) as afterwards:
        assert afterwards is not None


def test_models_that_differ_in_one_weight_are_two(tmp_path):
    """Also where it stands in the middle of a file."""
    from safetensors.torch import load_file, save_file

    prints = []
    for name in ("one", "two"):
        folder = shutil.copytree(REPOSITORY / "assets" / "tiny_vlm", tmp_path / name)
        [file] = folder.glob("*.safetensors")
        weights = load_file(file)
        middle = sorted(weights)[len(weights) // 2]
        weights[middle] = weights[middle] + (name == "two")
        save_file(weights, file, {"format": "pt"})
        prints.append(fingerprint_of_start(Start("strong", str(folder), None, "strong")))
    assert prints[0] != prints[1]

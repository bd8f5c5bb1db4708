"""A folder belongs to one study; arms and seeds may be added to it."""

import pytest

from grounding_rewards.study.plan import claim_folder, fingerprint_of_run, read_plan
from grounding_rewards.study.results import Folder, write_json
from tests.tables import table

pytestmark = [pytest.mark.training, pytest.mark.usefixtures("in_repository")]


@pytest.fixture
def begun(small, tmp_path):
    """The folder of the small study, with a result of its first run."""
    folder, plan = Folder(tmp_path), read_plan(small)
    claim_folder(folder, plan)
    write_json(folder.result(plan.runs[0].name), {})
    return folder


def prints(plan):
    return {run.name: fingerprint_of_run(plan, run) for run in plan.runs}


def test_arms_seeds_and_starts_may_be_added(begun, small):
    before = prints(read_plan(small))
    small["arms"]["R4"] = {"reward": "R4"}
    small["seeds"] = 3
    small["starts"]["again"] = {"model": "assets/tiny_vlm"}
    plan = read_plan(small)
    claim_folder(begun, plan)
    assert before.items() <= prints(plan).items()


@pytest.mark.parametrize(
    ("part", "change", "message"), table("study/tables", "another_study_is_refused_and_nothing_changes")
)
def test_another_study_is_refused_and_nothing_changes(begun, small, part, change, message):
    before = begun.plan.read_bytes()
    small[part] = {**small[part], **change} if part == "train" else change
    with pytest.raises(ValueError, match=message):
        claim_folder(begun, read_plan(small))
    assert begun.plan.read_bytes() == before


def test_what_is_no_setting_may_change(begun, small):
    small["train"]["logging_steps"] = 2
    claim_folder(begun, read_plan(small))


def test_before_the_first_result_anything_may_change(small, tmp_path):
    claim_folder(Folder(tmp_path), read_plan(small))
    small["train"]["learning_rate"] = 1e-6
    small["reference"] = "sft"
    claim_folder(Folder(tmp_path), read_plan(small))


def test_results_without_a_plan_are_not_ours(small, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "x.json.gz").write_text("{}")
    with pytest.raises(ValueError, match="Expected the name that"):
        claim_folder(Folder(tmp_path), read_plan(small))

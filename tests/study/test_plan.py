"""A study's YAML is read whole before anything starts."""

import pytest
import yaml

from grounding_rewards.study.plan import CONTROL, GRPO, SFT, fingerprint_of_run, read_plan
from tests.conftest import REPOSITORY
from tests.tables import table

pytestmark = [pytest.mark.training, pytest.mark.usefixtures("in_repository")]

FILES = sorted((REPOSITORY / "configs" / "study").glob("*.yaml"))
WITH_ARMS = [path for path in FILES if "arms" in yaml.safe_load(path.read_text(encoding="utf-8"))]
STUDIES = [path.relative_to(REPOSITORY).as_posix() for path in WITH_ARMS]
TAUGHT = {"config": "configs/demo/sft.yaml"}
#: Seeds of the studies that declare fewer than five.
FEW_SEEDS = {"drawn": 3, "faults": 4, "faults_long": 2, "faults_real": 3, "quick": 3, "moonshot": 2, "moonshot_long": 2}


def test_there_are_studies():
    assert {f"configs/study/{name}.yaml" for name in FEW_SEEDS} < set(STUDIES)


@pytest.mark.parametrize("path", STUDIES)
def test_every_run_of_the_shipped_studies_has_legal_arguments(path):
    """Each configuration is read by the parser of `train` or `sft`, schedules and all."""
    plan = read_plan(path, elsewhere=True)
    assert len({run.name for run in plan.runs}) == len(plan.runs)
    assert {run.role for run in plan.runs} == {"arm", "control"}
    assert len({run.seed for run in plan.runs}) >= FEW_SEEDS.get(plan.name, 5)
    assert len({run.config["max_steps"] * run.equivalent for run in plan.runs}) == 1


def test_seeds_take_turns_at_several_checkpoints(small):
    small["seeds"] = [5, 7, 2, 3]
    small["starts"]["own"] = {"model": "assets/tiny_vlm", "sft": TAUGHT, "checkpoints": 2}
    plan = read_plan(small)
    begun = {run.seed: run.start for run in plan.runs if run.start.startswith("own")}
    assert begun == {5: "own.5", 7: "own.7", 2: "own.5", 3: "own.7"}
    taught = {name: one.sft["seed"] for name, one in plan.starts.items() if one.kind == "own"}
    assert taught == {"own.5": 5, "own.7": 7}


def test_a_start_is_taught_on_from_another_seed_by_seed(small):
    taught = {"sft": TAUGHT, "checkpoints": 2}
    small["starts"] |= {"clean": {"model": "assets/tiny_vlm", **taught}, "loose": {"model": "clean", **taught}}
    plan = read_plan(small)
    parents = {name: start.parent for name, start in plan.starts.items() if start.kind == "loose"}
    assert parents == {"loose.0": "clean.0", "loose.1": "clean.1"}
    assert plan.with_parents(["loose.1", "strong"]) == ["clean.1", "loose.1", "strong"]
    run = next(run for run in plan.runs if run.start == "loose.0")
    small["starts"]["clean"]["sft"] = {"config": "configs/demo/sft.yaml", "learning_rate": 1e-5}
    assert fingerprint_of_run(plan, run) != fingerprint_of_run(read_plan(small), run)


def test_a_primary_metric_may_decide_for_one_start(small):
    small["starts"]["again"] = {"model": "assets/tiny_vlm"}
    small["primary"] = [{"metric": "recall_50", "set": "test", "start": "strong"}]
    with pytest.raises(ValueError, match="Expected a primary metric for start again"):
        read_plan(small)
    small["primary"].append({"metric": "mean_iou", "set": "test"})
    assert [primary.start for primary in read_plan(small).primary] == ["strong", None]


def test_seeds_come_one_after_another(small):
    """A study that is stopped half way has something of every arm."""
    small["starts"]["again"] = {"model": "assets/tiny_vlm"}
    names = ["strong--R3--seed0", "again--R3--seed0", "strong--sft--seed0", "again--sft--seed0", "strong--R3--seed1"]
    assert [run.name for run in read_plan(small).runs][:5] == names


def test_an_arm_overrides_any_option_of_train(small):
    small["arms"]["slow"] = {"reward": "R3", "learning_rate": 1e-6}
    runs = {run.arm: run for run in read_plan(small).runs}
    assert runs["slow"].config["learning_rate"] == 1e-6
    assert runs["R3"].config["learning_rate"] == 3.0e-4
    assert runs["R3"].config["dataset"] == "synthetic"


def test_parameters_of_another_reward_are_not_inherited(small):
    """configs/demo/grpo.yaml has no_box_bonus for its own reward."""
    small["arms"]["constant"] = {"control": True, "reward": "constant"}
    runs = {run.arm: run for run in read_plan(small).runs}
    assert runs["constant"].reward == {"name": "constant", "kwargs": {}}
    assert runs["constant"].role == CONTROL


def test_supervised_runs_learn_from_as_many_answers(small):
    """6 steps of 16 completions are 96 answers; in batches of 4 that is 24 steps, each worth a quarter of one."""
    small["arms"]["sft"]["sft"]["per_device_train_batch_size"] = 4
    grpo, sft = read_plan(small).runs[:2]
    assert (grpo.kind, grpo.config["max_steps"], grpo.config["save_steps"]) == (GRPO, 6, 3)
    assert (sft.kind, sft.config["max_steps"], sft.config["save_steps"]) == (SFT, 24, 12)
    assert sft.equivalent == 0.25
    assert sft.role == CONTROL


def test_a_folder_can_be_named_for_all(tmp_path, small):
    file = tmp_path / "study.yaml"
    del small["arms"]["sft"]
    file.write_text(yaml.safe_dump(small), encoding="utf-8")
    plan = read_plan(file, dataset="mine")
    assert {run.config["dataset"] for run in plan.runs} == {one.dataset for one in plan.sets} == {"mine"}


@pytest.mark.parametrize(("change", "message"), table("study/tables", "a_wrong_study_is_refused"))
def test_a_wrong_study_is_refused(small, change, message):
    with pytest.raises(ValueError, match=message):
        read_plan({**small, **change})


def test_images_of_a_training_without_a_dataset_are_drawn(small):
    """They are those of `train`'s default, so that they cannot be measured on."""
    del small["dataset"], small["arms"]["sft"]
    small["train"]["dataset"] = None
    small["sets"] = {"test": {"dataset": "synthetic", "split": "test"}}
    assert read_plan(small).runs
    small["sets"]["bad"] = {"dataset": "synthetic", "split": "train"}
    with pytest.raises(ValueError, match="Expected a split that no run is trained on for set bad, got 'train'"):
        read_plan(small)


def test_several_files_of_options(small, tmp_path):
    over = tmp_path / "over.yaml"
    over.write_text("learning_rate: 0.125", encoding="utf-8")
    small["train"]["config"] = [small["train"]["config"], str(over)]
    assert {run.config["learning_rate"] for run in read_plan(small).runs if run.kind == "train"} == {0.125}


@pytest.mark.parametrize(
    ("part", "entry", "message"),
    [
        *table("study/tables", "a_wrong_arm_set_or_start_is_refused"),
        *(("starts", {"model": "m", "sft": TAUGHT, "checkpoints": n}, "of start bad") for n in (1, 3, "each")),
        ("starts", {"model": "m", "sft": {**TAUGHT, "lerning_rate": 1}}, "got lerning_rate"),
    ],
)
def test_a_wrong_arm_set_or_start_is_refused(small, part, entry, message):
    small[part]["bad"] = entry
    with pytest.raises(ValueError, match=message):
        read_plan(small)

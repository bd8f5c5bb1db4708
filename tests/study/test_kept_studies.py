"""What README and docs/study.md say of the kept studies, reckoned again from the answers of every run."""

import csv
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from grounding_rewards.metrics.baselines import constant_answer, constant_boxes
from grounding_rewards.metrics.intervals import ratios
from grounding_rewards.metrics.read_predictions import read_predictions
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.rewards.grounding import get_reward
from grounding_rewards.study.analysis import METRICS, START, analyse, metric_sums, model_predictions
from grounding_rewards.study.results import ArmKey, StudyRun, read_study
from tests.conftest import REPOSITORY, read_lines
from tests.tables import table

_read = cache(lambda name: read_study(REPOSITORY / "docs" / "study" / name, fewest=1))


@cache
def metrics_of(study: str, start: str, checkpoint: str, arm: str, seed: int, on: str) -> dict[str, float]:
    """The metrics of a run, or, where no arm is named, of its checkpoint."""
    found = _read(study)
    answers = found.starts[start][checkpoint]
    for run in found.arms.get(ArmKey(start, arm), ()):
        if (run.start, run.seed) == (checkpoint, seed):
            answers = run.checkpoints[run.last_step]
    predictions = model_predictions(found.sets[on], answers[on], found.box_format)
    return {key: float(ratios(sums.sum(axis=0))) for key, sums in metric_sums(predictions).items()}


def runs(study: str, start: str, arm: str, on: str = "test", key: str = "mean_iou") -> np.ndarray:
    """A metric of every run of an arm."""
    of_arm = _read(study).arms[ArmKey(start, arm)]
    return np.array([metrics_of(study, start, run.start, arm, run.seed, on)[key] for run in of_arm])


def checkpoints(study: str, start: str, arm: str, on: str = "test", key: str = "mean_iou") -> np.ndarray:
    """A metric of the checkpoints that the runs of an arm began from."""
    of_arm = _read(study).arms[ArmKey(start, arm)]
    return np.array([metrics_of(study, start, run.start, "", run.seed, on)[key] for run in of_arm])


@pytest.mark.parametrize(
    ("study", "start", "arms", "key"), table("study/tables", "the_tables_have_the_changes_of_the_answers")
)
def test_the_tables_have_the_changes_of_the_answers(study, start, arms, key):
    on = "validation" if study.startswith("moonshot") else "test"
    page = (REPOSITORY / "docs" / "study_tables.md").read_text(encoding="utf-8")
    table = page[page.index(f"## {study}\n") :].partition(f"| the {start} checkpoint |")[2]
    table = table.partition("\n\n")[0].partition("| the ")[0]
    rows = {row.split(" | ")[0].removesuffix(" ◦"): row.split(" | ")[1] for row in table.split("\n| ")[1:]}
    for arm in arms:
        change = runs(study, start, arm, on, key) - checkpoints(study, start, arm, on, key)
        assert float(rows[arm].split()[0]) == pytest.approx(change.mean(), abs=6e-4), arm


@pytest.mark.parametrize(
    ("study", "section", "declared", "arms"), table("study/tables", "the_page_has_the_runs_and_gains_of_the_faults")
)
def test_the_page_has_the_runs_and_gains_of_the_faults(study, section, declared, arms):
    page = (REPOSITORY / "docs" / "study.md").read_text(encoding="utf-8")
    section = page[page.index(section) :]
    count = len(list((REPOSITORY / "docs" / "study" / study / "results").glob("*.json.gz")))
    state = f"All {declared} runs were made" if count == declared else f"{count} of {declared} declared runs"
    assert state in section
    header, _, *rows = section[section.index("|  | loose: mean IoU") :].partition("\n\n")[0].splitlines()
    column = [cell.strip() for cell in header.split("|")].index("loose: mean IoU")
    cells = {row.split("|")[1].strip().removesuffix(" ◦"): row.split("|")[column] for row in rows}
    for arm in arms:
        change = runs(study, "loose", arm) - checkpoints(study, "loose", arm)
        assert f"{change.mean():+.3f}" in cells[arm], arm


def test_the_advice_of_readme_is_the_page_s_with_the_changes_of_the_answers():
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    advice = readme[readme.index("- **SFT first**") : readme.index("Numbers: [which reward")].strip()
    assert advice in (REPOSITORY / "docs" / "study.md").read_text(encoding="utf-8")
    gains = {
        (start, arm): runs("faults", start, arm).mean() - checkpoints("faults", start, arm).mean()
        for start in ("loose", "far")
        for arm in ("sft", "R1", "R3", "R4", "R5", "soft_f1", "R3_low", "R4_low")
    }
    begun = [checkpoints("faults", start, "sft").mean() for start in ("loose", "far")]
    advice = " ".join(advice.split())
    for words, arm in (
        (f"raised mean IoU by {{}} (loose boxes, from {begun[0]:.3f}) and {{}} (far ones, from {begun[1]:.3f})", "sft"),
        ("R4 by {} and {}, with fewer", "R4"),
        ("**Not R1**: mean IoU rose by {} and {}; most spurious", "R1"),
    ):
        assert words.format(*(f"{gains[start, arm]:.3f}" for start in ("loose", "far"))) in advice
    for (start, arm), gain in gains.items():
        assert abs(gain - gains[start, "R4"]) < 0.02 or arm in ("R1", "sft"), (start, arm)


def changes_of(arms: Sequence[str], start: str, key: str) -> dict[str, np.ndarray]:
    """What each run of some arms changed in a metric."""
    return {arm: runs("faults", start, arm, key=key) - checkpoints("faults", start, arm, key=key) for arm in arms}


def test_what_the_page_says_of_every_reward_holds_for_each():
    rewards = ("R1", "R3", "R4", "R5", "soft_f1")
    # One reward is shown to mend one fault better than as much SFT.
    better = []
    with (REPOSITORY / "docs" / "study" / "faults" / "findings.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["arm"] in rewards and row["against_reference_holm"]:
                sign = -1 if METRICS[row["metric"]].lower_is_better else 1
                is_better = sign * float(row["against_reference_value"]) > 0
                if is_better and float(row["against_reference_holm"]) <= 0.05:
                    better.append((row["start"], row["metric"], row["arm"]))
                if is_better and (row["start"], row["arm"]) == ("extra", "R4"):
                    assert round(float(row["against_reference_value"]), 2) == 0.02
    assert better == [("extra", "precision_50", "soft_f1")]
    # Findings that were left out come back, boxes on normal images go, in every run.
    for change in changes_of(rewards, "missed", "recall_50").values():
        assert (change > 0.2).all()
    for arm in rewards:
        hallucination = runs("faults", "eager", arm, key="hallucination_rate")
        assert (hallucination < 0.25 * checkpoints("faults", "eager", arm, key="hallucination_rate")).all(), arm
    # On grey images a part of these and of spurious boxes goes too; R1 leaves most spurious boxes.
    assert changes_of(["blank"], "eager", "hallucination_rate")["blank"].mean() < -0.2
    precision = {arm: change.mean() for arm, change in changes_of((*rewards, "blank"), "extra", "precision_50").items()}
    assert precision["blank"] > 0.1
    assert precision["R1"] < 0.5 * min(precision[arm] for arm in rewards if arm != "R1")
    # Without a fault mean IoU falls in every run.
    assert all((change < 0).all() for change in changes_of(rewards, "clean", "mean_iou").values())
    # From loose and far boxes R4 leaves fewer false boxes than SFT.
    for start in ("loose", "far"):
        precision = {arm: runs("faults", start, arm, key="precision_50") for arm in ("R4", "sft")}
        assert (precision["R4"] > precision["sft"]).all(), start
    # soft_f1 is ahead of R4 half-way, from far boxes.
    halfway = {}
    for arm in ("soft_f1", "R4"):
        of_arm = _read("faults").arms[ArmKey("far", arm)]
        halfway[arm] = [mean_iou_at(run, min(run.checkpoints)) for run in of_arm]
    assert all(soft > hard for soft, hard in zip(halfway["soft_f1"], halfway["R4"], strict=True))
    # Image dependence rose with mean IoU, and fell where boxes fitted already.
    for start in ("loose", "far", "missed"):
        assert all((change > 0).all() for change in changes_of(rewards, start, "image_dependence").values()), start
    for start in ("eager", "clean"):
        for arm, change in changes_of((*rewards, "sft"), start, "image_dependence").items():
            assert change.mean() < 0, (start, arm)
    for arm, change in changes_of(rewards, "extra", "image_dependence").items():
        assert (change.mean() > 0) == (arm != "R1"), arm


def test_what_the_page_says_of_longer_runs_holds():
    later, last = {}, {}
    for study, arms in (("faults_long", ("R1", "R4", "soft_f1", "sft")), ("faults_long_anew", ("R3", "R5", "sft"))):
        for arm in arms:
            [run] = _read(study).arms[ArmKey("loose", arm)]
            assert run.last_step == 600
            last[study, arm] = mean_iou_at(run, 600)
            later.setdefault(arm, []).append(last[study, arm] - mean_iou_at(run, 200))
    assert later["R1"][0] > 0.01
    assert max(later["sft"]) < -0.005
    assert max(abs(later[arm][0]) for arm in ("R3", "R4", "soft_f1")) < 0.005
    assert round(later["R5"][0], 2) == 0.01
    # SFT's lead is gone.
    for arm in ("R4", "soft_f1"):
        assert 0 < last["faults_long", arm] - last["faults_long", "sft"] < 0.01
    assert 0 < last["faults_long_anew", "R3"] - last["faults_long_anew", "sft"] < 0.01
    # Without a fault SFT fell further than R4.
    f1 = {arm: runs("faults_long", "clean", arm, key="f1_50")[0] for arm in ("R4", "sft")}
    assert f1["sft"] < f1["R4"] < checkpoints("faults_long", "clean", "R4", key="f1_50")[0]


def mean_iou_at(run: StudyRun, step: int) -> float:
    """The mean IoU of a run at a step, on the test images that all studies of drawn faults share."""
    found = _read("faults")
    predictions = model_predictions(found.sets["test"], run.checkpoints[step]["test"], found.box_format)
    return float(ratios(metric_sums(predictions)["mean_iou"].sum(axis=0)))


@pytest.mark.parametrize("study", ["placed_lungs", "placed_anew", "drawn"])
def test_no_reward_is_shown_to_raise_what_was_declared(study):
    found = analyse(_read(study))
    assert {one.metric for one in found.study.primary} == {"f1_50", "image_dependence"}
    for arm in found.arms:
        for one in found.study.primary:
            raised = arm.differences[START][one].value > 0 and arm.holm[START][one] < 0.05
            assert arm.is_control or not raised, (arm.key, one)


def test_the_search_found_no_setting_that_adds_something():
    study = _read("moonshot")
    tested = {row["patient_id"] for row in _read("placed_lungs").sets["test"]}
    assert tested.isdisjoint(row["patient_id"] for row in study.sets["validation"])
    changes = {}
    for key in study.arms:
        names = ("moonshot", "saturated", key.arm, "validation")
        gained = [(runs(*names, of) - checkpoints(*names, of)).mean() for of in ("f1_50", "image_dependence")]
        changes[key.arm] = np.array(gained)
    sft = changes.pop("sft")
    assert not any((change >= 0.01).all() and (change - sft >= 0.01).all() for change in changes.values())
    page = (REPOSITORY / "docs" / "study_tables.md").read_text(encoding="utf-8")
    assert "None ended at least 0.01 above the checkpoint and above more SFT in both" in page


def test_no_run_on_the_lungs_beats_a_constant_box_from_the_weak_checkpoint():
    """The box of a label is the mean of the test set's own, because the training images are not kept here."""
    study = _read("lungs")
    rows = study.sets["test"]
    boxes = constant_boxes(rows)
    ious = []
    for row in rows:
        answer, _ = constant_answer(boxes, width=row["width"], height=row["height"])
        ious += np.max(pairwise_iou(answer, row["boxes"]), axis=0).tolist()
    best = {key.arm: runs("lungs", "weak", key.arm).max() for key in study.arms if key.start == "weak"}
    assert max(best.values()) < np.mean(ious)


def test_the_page_has_the_image_dependence_of_the_answers_about_real_findings():
    """Reckoned from single IoUs: within a finding, what answers earn where they are less what the others earn there."""
    rows = read_lines(REPOSITORY / "docs" / "study" / "nih_findings" / "completions.jsonl")
    answered = read_predictions(rows, [[row["completion"]] for row in rows], get_reward("R3", box_format="qwen2.5-vl"))
    own, dealt = [], []
    for label in {row["labels"][0] for row in rows}:
        images = [image for image in answered if image.gt_labels == (label,)]
        table = np.array([[pairwise_iou(b.pred, a.gt).max(initial=0.0) for b in images] for a in images])
        own += np.diag(table).tolist()
        others = len(images) - 1
        dealt += ((table.sum(axis=1) - np.diag(table)) / others).tolist()
    page = " ".join((REPOSITORY / "docs" / "study.md").read_text(encoding="utf-8").split())
    assert f"a mean IoU of {np.mean(own):.3f}" in page
    assert f"the same finding reach {np.mean(dealt):.3f}" in page
    assert f"an image dependence of {np.mean(own) - np.mean(dealt):+.3f}" in page

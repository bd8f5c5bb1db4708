"""What a study's report says and shows."""

import csv
import json
import shutil

import numpy as np
import pytest
import yaml

pytest.importorskip("jinja2", reason="needs the eval extra")


from grounding_rewards.metrics.comparison import holm
from grounding_rewards.metrics.intervals import ratios
from grounding_rewards.study.analysis import REFERENCE, START, StudyResult, analyse, metric_sums, model_predictions
from grounding_rewards.study.report import arms_table, sentences, write_report
from grounding_rewards.study.results import ArmKey, Measure, read_json, read_study, write_json
from tests.study.fake_studies import ARMS, Arm, write_study

PRIMARY = Measure("mean_iou", "test")


def found_in(folder, arms, **more) -> StudyResult:
    return analyse(read_study(write_study(folder, arms, **more)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_study(tmp_path_factory.mktemp("study"), ARMS, seeds=5, count=16)


@pytest.fixture(scope="module")
def found(folder):
    return analyse(read_study(folder))


def arm(found: StudyResult, start: str, name: str):
    return next(one for one in found.arms if one.key == ArmKey(start, name))


def arm_rows(found: StudyResult) -> dict:
    """The first row of each arm in the table."""
    return {row[0]: row for row in reversed(arms_table(found).rows)}


def test_everything_is_written(tmp_path):
    folder = write_study(tmp_path / "study", ARMS[:2], seeds=2, steps=(5,), count=6)
    write_report(folder, tmp_path / "out")
    names = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.*"))
    assert names == ["findings.csv", "study.html"]
    rows = list(csv.DictReader((tmp_path / "out" / "findings.csv").open()))
    assert {row["arm"] for row in rows} == {"", "R3", "R1"}


def test_a_broken_study_overwrites_nothing(folder, tmp_path):
    other = shutil.copytree(folder, tmp_path / "study")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "study.md").write_text("before")
    (other / "images.json").unlink()
    with pytest.raises(ValueError, match=r"images\.json"):
        write_report(other, tmp_path / "out")
    assert (tmp_path / "out" / "study.md").read_text() == "before"


def test_an_unknown_metric_is_named(tmp_path):
    with pytest.raises(ValueError, match="Expected a known word for `the primary metric`, got 'iou'"):
        analyse(read_study(write_study(tmp_path, ARMS[:2], seeds=2, metric="iou", count=4)))


def test_what_is_shown_has_its_colour(found):
    rows = arm_rows(found)
    assert (rows["soft_f1"][3].kind, rows["R1"][3].kind) == ("better", "worse")
    (said,) = sentences(found)
    assert said.startswith(f"{5 * len(ARMS)} runs of {len(ARMS)} arms; declared before them: mean IoU on the set test")


def test_less_is_better_where_less_is_better(tmp_path):
    arms = [Arm("R3", junk=1.2), Arm("R1", junk=0.02)]
    found = found_in(tmp_path, arms, seeds=5, metric="hallucination_rate", count=32, steps=(5,))
    assert arm(found, "strong", "R1").difference(Measure("hallucination_rate", "test"), REFERENCE).value < 0
    change = arm_rows(found)["R1"][3]
    assert change.text.startswith("-0.")
    assert change.kind == "better"


def test_what_is_missing_is_said(tmp_path):
    other = write_study(tmp_path, ARMS[:3], steps=(5,), count=4)
    for seed in (1, 2):
        (other / "results" / f"strong--R1--seed{seed}.json.gz").unlink()
    _, *missing = sentences(analyse(read_study(other)))
    assert missing == [
        "Not there yet, 2 runs: strong--R1--seed1, strong--R1--seed2.",
        "Left out, 1 arm of too few runs, 1 run in all: R1 from strong.",
    ]


def test_numbers_are_json_and_rows(found):
    content = found.to_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    table = found.to_dataframe()
    row = table[(table.arm == "R1") & (table.set == "test") & (table.metric == "mean_iou")].iloc[0]
    assert row.against_reference_value == arm(found, "strong", "R1").difference(PRIMARY, REFERENCE).value


def test_two_primary_metrics_share_holm_and_seeds_with_own_checkpoints_are_paired(tmp_path):
    folder = write_study(tmp_path, [Arm("R3", error=0.1), Arm("R1", error=0.1)], seeds=3, steps=(5,), count=16)
    plan = yaml.safe_load((folder / "study.yaml").read_text())
    plan["declared"]["primary"] = [{"metric": name, "set": "test"} for name in ("f1_50", "image_dependence")]
    plan["declared"]["equivalence"] = 9.0
    plan["starts"] = {f"strong.{seed}": {"kind": "strong"} for seed in range(3)}
    plan["arms"] = [{"arm": name, "start": start} for name in ("R3", "R1") for start in plan["starts"]]
    (folder / "study.yaml").write_text(yaml.safe_dump(plan))
    begun = folder / "starts" / "strong.json.gz"
    for path in sorted((folder / "results").glob("*.json.gz")):
        run = read_json(path)
        write_json(path, {**run, "start": f"strong.{run['seed']}"})
        shutil.copy(begun, folder / "starts" / f"strong.{run['seed']}.json.gz")
    found = analyse(read_study(folder))
    one, primary = arm(found, "strong", "R1"), [Measure(name, "test") for name in ("f1_50", "image_dependence")]
    assert found.family == 2
    assert all(one.holm[REFERENCE][of] >= one.difference(of, REFERENCE).p for of in primary)
    values = {name: [found_of(folder, name, seed) for seed in range(3)] for name in ("R1", "R3")}
    spread = np.subtract(values["R1"], values["R3"])
    assert one.difference(primary[0], REFERENCE).value == pytest.approx(spread.mean())
    assert arm_rows(found)["R1"][3].text.startswith("≈ ")


def found_of(folder, name, seed):
    study = read_study(folder)
    run = next(run for runs in study.arms.values() for run in runs if run.arm.arm == name and run.seed == seed)
    answers = model_predictions(study.sets["test"], run.checkpoints[max(run.checkpoints)]["test"], study.box_format)
    return ratios(metric_sums(answers)["f1_50"].sum(axis=0))


def test_p_is_adjusted_within_the_starts_of_a_primary_metric(folder, tmp_path):
    other = shutil.copytree(folder, tmp_path / "study")
    plan = yaml.safe_load((other / "study.yaml").read_text())
    metrics = {"strong": "mean_iou", "weak": "f1_50"}
    primary = [{"metric": metric, "set": "test", "start": start} for start, metric in metrics.items()]
    plan["declared"]["primary"] = primary
    (other / "study.yaml").write_text(yaml.safe_dump(plan))
    found = analyse(read_study(other))
    for start, metric in metrics.items():
        measure, arms = Measure(metric, "test"), found.of_start(start)
        assert all(set(one.holm[START]) == {measure} for one in arms)
        adjusted = holm([one.difference(measure, START).p for one in arms])
        assert [one.holm[START][measure] for one in arms] == pytest.approx(adjusted)
    rows = arms_table(found).rows
    assert [row[0] for row in rows if len(row) == 1] == ["Mean IoU on test", "F1@0.5 on test"]
    assert len(rows) == 4 + len(ARMS)

"""The folder of a study is read, or refused with what to do."""

from __future__ import annotations

import json

import pytest
import yaml

from grounding_rewards.study.results import ArmKey, read_study
from tests.study.fake_studies import ARMS, write_study


@pytest.fixture
def folder(tmp_path):
    return write_study(tmp_path, ARMS[:4], seeds=2, steps=(5,), count=4)


def change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_a_whole_study_is_read(folder):
    study = read_study(folder)
    assert list(study.arms) == [ArmKey("strong", name) for name in ("R3", "R1", "soft_f1", "constant")]
    assert [run.seed for run in study.arms[ArmKey("strong", "R1")]] == [0, 1]
    assert study.role(ArmKey("strong", "constant")) == "control"
    assert study.missing == ()
    assert study.alone == ()
    assert len(study.runs()) == 8
    assert study.box_format == "qwen3-vl"


def test_what_is_not_finished_is_known(folder):
    (folder / "results" / "strong--R1--seed1.json").unlink()
    study = read_study(folder)
    assert study.missing == ("strong--R1--seed1",)
    assert study.alone == (ArmKey("strong", "R1"),)


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda f: (f / "study.yaml").unlink(), "Expected the folder of a study, with study.yaml"),
        (lambda f: (f / "study.yaml").write_text("name: x"), "Expected name and declared"),
        (lambda f: (f / "images.json").unlink(), "Expected the references of the sets in"),
        (lambda f: (f / "images.json").write_text("{"), "Expected the references of the sets as JSON"),
        (lambda f: change(f / "images.json", sets={}), "Expected the images of the declared set 'test'"),
        (lambda f: (f / "starts" / "strong.json").unlink(), "Expected the answers of a start"),
        (lambda f: [p.unlink() for p in (f / "results").iterdir()], "Expected a result for every run"),
        (lambda f: change(f / "results" / "strong--R1--seed0.json", schema=9), "Expected schema 1 .* got 9"),
        (lambda f: change(f / "results" / "strong--R1--seed0.json", study="y"), "Expected results of the study 'fake'"),
        (lambda f: change(f / "results" / "strong--R1--seed0.json", checkpoints=[]), "Expected a measured checkpoint"),
        (
            lambda f: change(f / "results" / "strong--R1--seed0.json", checkpoints=[{"step": 1, "sets": {}}]),
            "Expected 4 answers for the set 'test' .* got 0",
        ),
        (
            lambda f: [p.unlink() for p in (f / "results").glob("*seed1.json")],
            "Expected at least 2 seeds of an arm .* got one of each",
        ),
        (
            lambda f: (f / "results" / "strong--R3--seed0.json").unlink(),
            "Expected 2 finished runs of the reference arm 'R3' from every start, got fewer from strong",
        ),
    ],
)
def test_what_is_missing_or_broken_is_named(folder, break_it, message):
    break_it(folder)
    with pytest.raises(ValueError, match=message):
        read_study(folder)


def test_a_plan_without_arms_takes_them_from_the_results(folder):
    plan = yaml.safe_load((folder / "study.yaml").read_text())
    (folder / "study.yaml").write_text(yaml.safe_dump({key: plan[key] for key in ("name", "declared")}))
    assert len(read_study(folder).arms) == 4

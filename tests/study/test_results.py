"""The folder of a study is read, or refused with what to do."""

import pytest

from grounding_rewards.study.analysis import START, analyse
from grounding_rewards.study.results import ArmKey, read_json, read_study, write_json
from tests.study.fake_studies import ARMS, write, write_study

R1, R3 = "strong--R1--seed0.json.gz", "strong--R3--seed0.json.gz"
EMPTY = {"step": 1, "sets": {}}


@pytest.fixture
def folder(tmp_path):
    return write_study(tmp_path, ARMS[:4], seeds=2, steps=(5,), count=4)


def change(path, **values):
    write_json(path, {**read_json(path), **values})


def test_a_whole_study_is_read(folder):
    study = read_study(folder)
    assert list(study.arms) == [ArmKey("strong", name) for name in ("R3", "R1", "soft_f1", "constant")]
    assert [run.seed for run in study.arms[ArmKey("strong", "R1")]] == [0, 1]
    assert study.arms[ArmKey("strong", "constant")][0].role == "control"
    assert study.missing == ()
    assert sum(map(len, study.arms.values())) == 8
    assert study.box_format == "qwen3-vl"


def test_a_search_may_have_one_run_of_an_arm(folder):
    """Its interval is over patients alone."""
    (folder / "results" / "strong--R1--seed1.json.gz").unlink()
    study = read_study(folder, fewest=1)
    assert [run.seed for run in study.arms[ArmKey("strong", "R1")]] == [0]
    (one,) = [arm for arm in analyse(study).arms if arm.key.arm == "R1"]
    change = one.differences[START][study.primary[0]]
    assert change.low < change.value < change.high


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda f: (f / "study.yaml").unlink(), "Expected the folder of a study, with study.yaml"),
        (lambda f: (f / "images.json").unlink(), "Expected a file of the study in .*images.json"),
        (lambda f: (f / "images.json").write_text("{"), "Expected a file of the study in .*images.json"),
        (lambda f: write(f / "images.json", {"sets": {"test": []}}), "Expected images of the set 'test', .* got none"),
        (lambda f: write(f / "images.json", {"sets": {}}), "Expected images of the set 'test', .* got none"),
        (lambda f: (f / "starts" / "strong.json.gz").unlink(), "Expected a file of the study in .*strong.json"),
        (lambda f: [p.unlink() for p in (f / "results").iterdir()], "Expected 2 finished runs of the reference arm"),
        (lambda f: change(f / "results" / R1, schema=9), "with schema 1 .* with schema 9"),
        (lambda f: change(f / "results" / R1, study="y"), "Expected a result of the study 'fake'"),
        (lambda f: change(f / "results" / R1, checkpoints=[EMPTY]), "Expected 4 answers for the set 'test' .* got 0"),
        (lambda f: (f / "results" / R3).unlink(), "2 finished runs of the reference arm 'R3' from strong .* got fewer"),
    ],
)
def test_what_is_missing_or_broken_is_named(folder, break_it, message):
    break_it(folder)
    with pytest.raises(ValueError, match=message):
        read_study(folder)

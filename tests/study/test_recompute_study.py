"""The numbers of kept studies, computed again by code that shares nothing with the package but the parser."""

import numpy as np
import pytest

from scripts import recompute_study
from tests.conftest import REPOSITORY
from tests.tables import table

KEPT = REPOSITORY / "docs" / "study" / "placed_anew"


@pytest.fixture(scope="module")
def recomputed():
    return recompute_study.recompute(KEPT)


def test_every_number_of_a_kept_study_is_computed_again(recomputed):
    compared, different = recompute_study.differences(KEPT / "findings.csv", recomputed)
    assert different == []
    # A checkpoint has values; arms also differences, intervals and p: of nine metrics, as both lungs have a recall.
    numbers_of_arms = {"": 1, "sft": 5, "R3": 9, "soft_f1": 9, "blank": 9}
    assert compared == 9 * sum(numbers_of_arms.values())


def test_a_changed_number_is_named(recomputed, tmp_path):
    findings = (KEPT / "findings.csv").read_text(encoding="utf-8")
    row = next(line for line in findings.splitlines() if line.startswith("saturated,test,mean_iou,R3,"))
    value = row.split(",")[4]
    changed = row.replace(value, f"{float(value) + 0.001:.4f}", 1)
    (tmp_path / "findings.csv").write_text(findings.replace(row, changed), encoding="utf-8")
    _, different = recompute_study.differences(tmp_path / "findings.csv", recomputed)
    assert different == [f"saturated, test, mean_iou, R3: value {float(value) + 0.001:.4f}, recomputed {value}"]


@pytest.mark.parametrize(("iou", "total", "found"), table("study/tables", "hits_are_as_many_as_there_can_be"))
def test_hits_are_as_many_as_there_can_be(iou, total, found):
    assert recompute_study.largest_sum(np.array(iou)) == pytest.approx(total)
    assert sorted(recompute_study.found_references(np.array(iou))) == found


@pytest.mark.parametrize(("values", "expected"), table("study/tables", "student_by_hand"))
def test_student_by_hand(values, expected):
    found = recompute_study.student(values)
    assert found.keys() == expected.keys()
    assert found == pytest.approx(expected, abs=1e-4)

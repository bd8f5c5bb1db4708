"""The verdicts of docs/study.md on the recommendations of the specification, from differences by fault."""

import pytest

from grounding_rewards.metrics.intervals import Estimate
from scripts.docs.write_study import Claim, claim_verdict
from tests.tables import table

BY_NAME = {"better": Estimate(0.05, 0.03, 0.07), "worse": Estimate(-0.05, -0.07, -0.03)}
BY_NAME |= {"alike": Estimate(0.001, -0.01, 0.015), "open": Estimate(0.01, -0.03, 0.05)}


@pytest.mark.parametrize(("is_best", "differences", "verdict"), table("docs/tables", "verdicts"))
def test_a_recommendation_is_confirmed_refuted_or_open(is_best, differences, verdict):
    claim = Claim("", "", ("R4", "R3"), is_best=is_best)
    by_fault = {f"fault{number}": BY_NAME[name] for number, name in enumerate(differences)}
    assert claim_verdict(claim, by_fault, margin=0.02).startswith(f"**{verdict}**. R4 less R3: ")


def test_differences_stand_beside_their_fault():
    claim = Claim("", "", ("R1", "R3"))
    faults = {"loose": "worse", "far": "better", "clean": "alike", "extra": "open"}
    said = claim_verdict(claim, {fault: BY_NAME[name] for fault, name in faults.items()}, margin=0.02)
    assert said.endswith("better: far +0.050; worse: loose -0.050; alike: clean; open: extra +0.010")
    assert claim_verdict(claim, {}, margin=0.02) == "fewer than 3 checkpoints: no verdict"

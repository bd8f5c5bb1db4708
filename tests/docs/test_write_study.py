"""The verdicts of docs/study.md on the recommendations of the specification, from differences by fault."""

import pytest

from grounding_rewards.metrics.intervals import Estimate
from scripts.docs.write_study import Claim, claim_verdict

BETTER, WORSE = Estimate(0.05, 0.03, 0.07), Estimate(-0.05, -0.07, -0.03)
ALIKE, OPEN = Estimate(0.001, -0.01, 0.015), Estimate(0.01, -0.03, 0.05)


@pytest.mark.parametrize(
    ("is_best", "differences", "verdict"),
    [
        # The best one is better somewhere, and worse nowhere.
        (True, [BETTER, ALIKE], "confirmed"),
        (True, [BETTER, OPEN], "confirmed"),
        # It is as good as another everywhere: not the best.
        (True, [ALIKE, ALIKE], "refuted"),
        (True, [WORSE, ALIKE], "refuted"),
        (True, [BETTER, WORSE], "open"),
        (True, [ALIKE, OPEN], "open"),
        # As good as another: nowhere worse, nowhere unknown.
        (False, [ALIKE, BETTER], "confirmed"),
        (False, [ALIKE, WORSE], "refuted"),
        (False, [ALIKE, OPEN], "open"),
        (False, [BETTER, WORSE], "open"),
    ],
)
def test_a_recommendation_is_confirmed_refuted_or_open(is_best, differences, verdict):
    claim = Claim("", "", ("R4", "R3"), is_best=is_best)
    by_fault = {f"fault{number}": difference for number, difference in enumerate(differences)}
    assert claim_verdict(claim, by_fault, margin=0.02).startswith(f"**{verdict}**. R4 less R3: ")


def test_differences_stand_beside_their_fault():
    claim = Claim("", "", ("R1", "R3"))
    said = claim_verdict(claim, {"loose": WORSE, "far": BETTER, "clean": ALIKE, "extra": OPEN}, margin=0.02)
    assert said.endswith("better: far +0.050; worse: loose -0.050; alike: clean; open: extra +0.010")
    assert claim_verdict(claim, {}, margin=0.02) == "fewer than 3 checkpoints: no verdict"

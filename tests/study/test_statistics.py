"""Statistics over runs, against hand calculations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from grounding_rewards.study.statistics import (
    by_checkpoint,
    difference,
    mean_of_runs,
    paired_difference,
    patient_weights,
)


def metrics(seed: int, n: int, *, between: float = 0.02, patients: int = 60, draws: int = 400) -> np.ndarray:
    """Means over patients of runs that differ in skill and in what they do on each patient, by draw."""
    rng = np.random.default_rng(seed)
    values = 0.5 + rng.normal(0, between, (n, 1)) + rng.normal(0, 0.2, (n, patients))
    return patient_weights(patients, resamples=draws) @ values.T / patients


def test_runs_alone_are_welchs_test():
    # Every patient alike: only the seeds vary.
    own, other = np.array([0.5, 0.55, 0.62, 0.58]), np.array([0.48, 0.5, 0.49])
    found = difference(np.tile(own, (50, 1)), np.tile(other, (50, 1)), patients=50)
    welch = stats.ttest_ind(own, other, equal_var=False)
    assert found.p == pytest.approx(welch.pvalue, rel=1e-12)
    interval = welch.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9)


def test_patients_alone_are_a_bootstrap():
    # Both arms have one run, a start for instance: only the patients vary.
    own, other = metrics(0, 1), metrics(1, 1)
    found = difference(own, other, patients=60)
    assert found.error == pytest.approx(np.std(own[1:] - other[1:]))


def test_an_arm_is_not_different_from_itself():
    own = metrics(0, 5)
    found = difference(own, own, patients=60)
    assert found.value == 0
    assert found.p == 1
    assert found.low < 0 < found.high


def test_models_that_never_vary_have_no_noise():
    flat = np.full((20, 3), 0.5)
    assert difference(flat, flat, patients=9)[:5] == (0.0, 0.0, 0.0, 1.0, 0.0)
    assert math.isnan(difference(flat, flat + 0.25, patients=9).p)


def test_what_cannot_be_measured_has_no_difference():
    found = difference(np.full((5, 2), np.nan), np.ones((5, 2)), patients=9)
    assert math.isnan(found.value)
    assert math.isnan(found.low)
    assert math.isnan(found.p)


@settings(max_examples=10)
@given(st.permutations(range(5)), st.permutations(range(5)))
def test_which_seed_is_which_changes_nothing(one, two):
    own, other = metrics(0, 5, draws=50), metrics(1, 5, draws=50)
    np.testing.assert_allclose(
        difference(own[:, one], other[:, two], patients=60), difference(own, other, patients=60), rtol=1e-9
    )


def test_the_sign_is_that_of_the_order():
    own, other = metrics(0, 4), metrics(1, 5)
    forth, back = difference(own, other, patients=60), difference(other, own, patients=60)
    assert (forth.value, forth.low, forth.high) == pytest.approx((-back.value, -back.high, -back.low))
    assert forth.p == pytest.approx(back.p)


def test_both_samples_widen_an_interval():
    few, many = (mean_of_runs(metrics(3, 5, between=0.0, patients=n), patients=n) for n in (10, 1000))
    assert few.high - few.low > many.high - many.low
    steady, shaky = (mean_of_runs(metrics(3, 5, between=b), patients=60) for b in (0.0, 0.1))
    assert steady.high - steady.low < shaky.high - shaky.low


def test_what_runs_do_by_chance_counts_once():
    # Runs differ only in what they do on each patient: the error is that of all answers together, 0.2 / √(5 · 60).
    errors = [difference(metrics(k, 5, between=0), np.zeros((401, 1)), patients=60).error for k in range(60)]
    assert np.mean(np.square(errors)) == pytest.approx(0.2**2 / 300, rel=0.35)


def test_pairs_take_out_what_both_runs_began_with():
    rng = np.random.default_rng(0)
    checkpoints = rng.normal(0.5, 0.2, 3)
    own, other = (np.tile(checkpoints + gain + rng.normal(0, 0.01, 3), (201, 1)) for gain in (0.1, 0.0))
    paired, apart = paired_difference(own, other, patients=60), difference(own, other, patients=60)
    assert paired.value == pytest.approx(apart.value)
    assert paired.error < apart.error / 5
    assert paired.p < 0.05 < apart.p


def test_few_pairs_seldom_have_a_small_p_by_chance():
    """Holm asks for small p: two runs whose variance happens to be small must not give them."""
    rng, small = np.random.default_rng(0), 0
    weights = patient_weights(128, resamples=100) / 128
    for _ in range(300):
        own, other = (weights @ (rng.normal(0, 0.06, (2, 1)) + rng.normal(0, 0.2, (2, 128))).T for _ in range(2))
        small += paired_difference(own, other, patients=128).p < 0.01
    assert small <= 6


def test_intervals_hold_as_often_as_they_say():
    # A few hundred draws; docs/metrics.md has more.
    held = []
    for k in range(200):
        own, other = metrics(2 * k, 5, draws=100), metrics(2 * k + 1, 5, draws=100)
        found = difference(own, other, patients=60)
        held.append(found.low <= 0 <= found.high)
    assert 0.91 <= np.mean(held) <= 0.995


def test_runs_from_one_checkpoint_are_no_independent_runs():
    """An arm changes each checkpoint otherwise, and gains nothing on average: two runs from each of three."""
    rng, starts = np.random.default_rng(0), list("abcabc")
    weights = patient_weights(80, resamples=60) / 80
    small = {"runs": 0, "checkpoints": 0}
    for _ in range(300):
        change = np.tile(rng.normal(0, 0.05, 3), 2) + rng.normal(0, 0.01, 6)
        own, other = (weights @ (0.5 + gain[:, None] + rng.normal(0, 0.1, (6, 80))).T for gain in (change, np.zeros(6)))
        small["runs"] += paired_difference(own, other, patients=80).p < 0.05
        pairs = (by_checkpoint(table, starts, "abc") for table in (own, other))
        small["checkpoints"] += paired_difference(*pairs, patients=80).p < 0.05
    assert small["checkpoints"] <= 25 < small["runs"]

"""Statistics over runs, against hand calculations and rliable."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from grounding_rewards.study.statistics import (
    Difference,
    detectable_difference,
    difference,
    improvement_estimate,
    interquartile_estimate,
    interquartile_mean,
    mean_of_runs,
    patient_weights,
    performance_profile,
    probability_of_improvement,
    profile_band,
    seeds_to_settle,
)

# rliable 1.2.0 (arch 7.2.0, numpy 2.4.6): aggregate_iqm, probability_of_improvement, run_score_deviation
A = np.array([[0.1, 0.5], [0.4, 0.2], [0.35, 0.9], [0.8, 0.6], [0.2, 0.7]])
B = np.array([[0.3, 0.5], [0.1, 0.1], [0.5, 0.4], [0.2, 0.6]])


def metrics(seed: int, n: int, *, between: float = 0.02, patients: int = 60, draws: int = 400) -> np.ndarray:
    """Means over patients of runs that differ in skill and in what they do on each patient, by draw."""
    rng = np.random.default_rng(seed)
    values = 0.5 + rng.normal(0, between, (n, 1)) + rng.normal(0, 0.2, (n, patients))
    return patient_weights(patients, resamples=draws) @ values.T / patients


def test_rliable_has_the_same():
    assert interquartile_mean(A) == pytest.approx(0.4583333333333333, abs=1e-15)
    assert probability_of_improvement(A, B) == pytest.approx(0.675, abs=1e-15)
    assert performance_profile(A, [0, 0.2, 0.35, 0.5, 0.9]) == pytest.approx([1.0, 0.7, 0.6, 0.4, 0.0], abs=1e-15)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.3], 0.3),  # nothing to leave out
        ([0.0, 1.0, 2.0], 1.0),  # a quarter of three is none
        ([0.0, 0.4, 0.6, 9.0], 0.5),
        ([0.0, 0.4, 0.5, 0.6, 9.0], 0.5),
    ],
)
def test_the_middle_half_by_hand(scores, expected):
    assert interquartile_mean(scores) == pytest.approx(expected)
    assert interquartile_mean(scores) == pytest.approx(stats.trim_mean(scores, 0.25))


def test_equal_scores_count_half():
    assert probability_of_improvement([0.5, 0.5], [0.5]) == 0.5
    assert probability_of_improvement([0.5, 0.7], [0.5, 0.6]) == (0.5 + 0 + 1 + 1) / 4


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
    assert found.seed_variance == 0


def test_an_arm_is_not_different_from_itself():
    own = metrics(0, 5)
    found = difference(own, own, patients=60)
    assert found.value == 0
    assert found.p == 1
    assert found.low < 0 < found.high
    assert improvement_estimate(own, own).value == 0.5


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
    assert interquartile_estimate(own[:, one]) == interquartile_estimate(own)
    assert improvement_estimate(own[:, one], other[:, two]) == improvement_estimate(own, other)


def test_the_sign_is_that_of_the_order():
    own, other = metrics(0, 4), metrics(1, 5)
    forth, back = difference(own, other, patients=60), difference(other, own, patients=60)
    assert (forth.value, forth.low, forth.high) == pytest.approx((-back.value, -back.high, -back.low))
    assert forth.p == pytest.approx(back.p)
    assert probability_of_improvement(own[0], other[0]) == 1 - probability_of_improvement(other[0], own[0])


def test_both_samples_widen_an_interval():
    few, many = (mean_of_runs(metrics(3, 5, between=0.0, patients=n), patients=n) for n in (10, 1000))
    assert few.high - few.low > many.high - many.low
    steady, shaky = (mean_of_runs(metrics(3, 5, between=b), patients=60) for b in (0.0, 0.1))
    assert steady.high - steady.low < shaky.high - shaky.low


def test_what_runs_do_by_chance_counts_once():
    # Runs differ only in what they do on each patient: the error is that of all answers together, 0.2 / √(5 · 60).
    errors = [difference(metrics(k, 5, between=0), np.zeros((401, 1)), patients=60).error for k in range(60)]
    assert np.mean(np.square(errors)) == pytest.approx(0.2**2 / 300, rel=0.35)


def test_a_profile_is_surrounded_by_its_band():
    rng = np.random.default_rng(0)
    scores, thresholds = rng.random((4, 30)), np.linspace(0, 1, 6)
    scores[:, 3] = np.nan
    low, high = profile_band(scores, thresholds, [k // 2 for k in range(30)])
    share = performance_profile(scores, thresholds)
    assert (low <= share).all()
    assert (share <= high).all()
    assert share[0] == 1
    assert share[-1] == 0


def test_detectable_by_hand():
    # (t(0.975, 8) + t(0.8, 8)) √(2 · 0.01² / 5) = (2.3060 + 0.8889) · 0.0063246
    assert detectable_difference(0.01**2, 5) == pytest.approx(3.1949 * 0.0063246, rel=1e-4)


def test_as_many_seeds_settle_as_detect():
    settled = seeds_to_settle(0.02, 0.01**2, patient_variance=1e-6)
    assert detectable_difference(0.01**2, settled, patient_variance=1e-6) <= 0.02
    assert detectable_difference(0.01**2, settled - 1, patient_variance=1e-6) > 0.02
    assert seeds_to_settle(-0.02, 0.01**2, patient_variance=1e-6) == settled
    assert seeds_to_settle(0.0, 0.01**2) is None
    assert isinstance(difference(metrics(0, 2), metrics(1, 2), patients=60), Difference)


def test_intervals_hold_as_often_as_they_say():
    # A few hundred draws; docs/simulated_study.md has more.
    held = []
    for k in range(200):
        own, other = metrics(2 * k, 5, draws=100), metrics(2 * k + 1, 5, draws=100)
        found = difference(own, other, patients=60)
        held.append(found.low <= 0 <= found.high)
    assert 0.91 <= np.mean(held) <= 0.995

"""Intervals against closed forms, and properties of the resampling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from grounding_rewards.metrics import bootstrap
from grounding_rewards.metrics.average_precision import resampled_mean_average_precision
from grounding_rewards.metrics.bootstrap import (
    Resampled,
    blocks,
    corrected_interval,
    percentile_interval,
    ratio_estimates,
    ratios,
    resampled_difference,
    resampled_ratio,
    resampled_sums,
    resampling_counts,
    sum_by_group,
)
from grounding_rewards.metrics.counts import detection_sums
from grounding_rewards.metrics.estimates import Estimate
from grounding_rewards.metrics.ranking import rank_boxes
from tests.metrics.random_films import random_films


def means(values: list[float]) -> np.ndarray:
    return np.column_stack([values, np.ones(len(values))])


def ratio(sums: np.ndarray, **drawn: Any) -> Estimate:
    return ratio_estimates({"ratio": sums}, **drawn)["ratio"]


def difference(before: np.ndarray, after: np.ndarray, **drawn: Any) -> Estimate:
    counts = resampling_counts(len(before), **drawn)
    runs = (resampled_ratio(sums, counts @ sums) for sums in (before, after))
    return resampled_difference(*runs).estimate


def test_interval_of_a_mean_is_that_of_the_central_limit_theorem() -> None:
    values = np.random.default_rng(0).normal(0.5, 0.1, 400)
    estimate = ratio(means(values))
    half = 1.96 * values.std() / math.sqrt(400)
    assert estimate.value == pytest.approx(values.mean())
    # Monte-Carlo error of a 2.5 % quantile of 5000 draws is about 2.4 % of the standard error.
    assert estimate.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert estimate.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_ratio_weighs_units_by_their_denominator() -> None:
    # by hand: (1 + 0) / (1 + 3), not the mean of 1 and 0
    assert ratio(np.array([[1.0, 1.0], [0.0, 3.0]])).value == 0.25


def test_paired_difference_is_narrower_than_two_separate_intervals() -> None:
    rng = np.random.default_rng(0)
    before = rng.uniform(0, 1, 100)
    after = before + rng.normal(0.05, 0.02, 100)
    change = difference(means(before), means(after))
    assert 0 < change.low < change.value < change.high
    single = ratio(means(after))
    assert change.high - change.low < 0.2 * (single.high - single.low)


def test_difference_changes_sign_with_its_order() -> None:
    a, b = means([0.1, 0.4, 0.9]), means([0.2, 0.3, 0.5])
    up, down = difference(a, b), difference(b, a)
    assert (up.value, up.low, up.high) == pytest.approx((-down.value, -down.high, -down.low))


@pytest.mark.parametrize(
    "sums",
    [
        np.zeros((0, 2)),  # no films
        np.zeros((3, 2)),  # films, but none that the figure is about
    ],
)
def test_nothing_to_measure_is_nan(sums: np.ndarray) -> None:
    assert all(map(math.isnan, ratio(sums)))


def test_resamples_without_a_denominator_are_left_out() -> None:
    # One normal film among four: a third of the resamples has none of it.
    sums = np.array([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    assert ratio(sums) == (1.0, 1.0, 1.0)


def test_groups_are_drawn_together() -> None:
    # Two patients with ten equal films each: as if there were two films, not twenty.
    films = means([0.0] * 10 + [1.0] * 10)
    patients = ["a"] * 10 + ["b"] * 10
    assert sum_by_group(films, patients).tolist() == [[0.0, 10.0], [10.0, 10.0]]
    assert ratio(films, groups=patients)[1:] == (0.0, 1.0)
    low, high = ratio(films)[1:]
    assert 0.2 < low < high < 0.8


def test_figures_that_are_drawn_together_are_those_drawn_alone() -> None:
    rng = np.random.default_rng(0)
    sums = {key: rng.uniform(0.1, 1, (30, 2)) for key in "ab"}
    counts = resampling_counts(30, resamples=50, seed=6)
    found = ratio_estimates(sums, resamples=50, seed=6)
    for key in "ab":
        expected = corrected_interval(ratios(sums[key].sum(axis=0)), ratios(counts @ sums[key]), 30)
        assert found[key][1:] == pytest.approx(expected)


def test_groups_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected one group per film for `groups`, got 1 for 2 films"):
        sum_by_group(np.zeros((2, 2)), ["a"])


def test_resampling_repeats_with_its_seed() -> None:
    assert np.array_equal(resampling_counts(5, seed=3), resampling_counts(5, seed=3))
    assert not np.array_equal(resampling_counts(5, seed=3), resampling_counts(5, seed=4))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_interval_lies_within_the_values(values: list[float]) -> None:
    estimate = ratio(means(values), resamples=200)
    for end in estimate:
        assert min(values) - 1e-9 <= end <= max(values) + 1e-9


@pytest.mark.parametrize("n", [1, 7, 300])
def test_resampled_sums_are_the_products_in_chunks(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = np.random.default_rng(n).uniform(0, 1, (n, 5))
    expected = resampling_counts(n, resamples=50, seed=4) @ sums
    assert resampled_sums(sums, resamples=50, seed=4) == pytest.approx(expected, rel=1e-12)
    # at most 8 resamplings at once
    monkeypatch.setattr(bootstrap, "_CELLS", 8 * n)
    assert resampled_sums(sums, resamples=50, seed=4) == pytest.approx(expected, rel=1e-12)


def test_resampled_sums_of_nothing_are_zero() -> None:
    assert resampled_sums(np.zeros((0, 2)), resamples=3).tolist() == [[0.0, 0.0]] * 3


def covers(groups: bool, rng: np.random.Generator) -> bool:
    """Whether the interval of the difference of two runs holds the true one: 60 patients of 1 to 4 films each.

    Half of the variance of a film's difference is its patient's; the true difference is 0.1.
    """
    patients = np.repeat(np.arange(60), rng.integers(1, 5, 60))
    patient = rng.normal(0, 0.1, 60)
    before = rng.uniform(0, 1, len(patients))
    after = before + 0.1 + patient[patients] + rng.normal(0, 0.1, len(patients))
    table = np.column_stack([before, after, np.ones(len(patients))])
    units = sum_by_group(table, patients.tolist()) if groups else table
    drawn = resampled_sums(units, resamples=400, seed=int(rng.integers(1 << 31)))
    low, high = percentile_interval(ratios(drawn[:, [1, 2]]) - ratios(drawn[:, [0, 2]]))
    return low <= 0.1 <= high


def test_intervals_over_patients_hold_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    over_patients = np.mean([covers(True, rng) for _ in range(400)])
    over_films = np.mean([covers(False, rng) for _ in range(400)])
    # Three standard errors of a share of 0.95 among 400 are 0.033; percentile intervals of 60 units are a bit narrow.
    assert 0.91 <= over_patients <= 0.98
    # Taking films of one patient for independent makes the intervals too narrow.
    assert over_films < over_patients - 0.05


def test_resamples_are_those_of_ratios() -> None:
    """All-point AP of one film's only right box is recall: the interval is that of the ratio of sums."""
    films = [film for film in random_films(0, 40) if len(film.gt)]
    # one sure right box per film, and nothing else
    films = [
        type(film)(film.id, 400, 400, gt=film.gt, gt_labels=film.gt_labels, pred=film.gt[:1], pred_scores=[0.9])
        for film in films
    ]
    ap = resampled_mean_average_precision(rank_boxes(films, [0.5]), interpolation="all", resamples=500, seed=3)
    recall = ratio_estimates(detection_sums(films), resamples=500, seed=3)["recall_50"]
    assert ap.estimate == pytest.approx(recall)


def test_what_was_measured_on_no_resampling_has_no_interval() -> None:
    assert all(map(math.isnan, Resampled(math.nan, np.full(3, math.nan)).estimate))
    assert Resampled(0.5, np.array([0.5, math.nan])).estimate == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("width", [0, 1, 1 << 19, 1 << 30])
def test_blocks_are_all_rows_in_their_order(width: int) -> None:
    weights = np.arange(10.0).reshape(5, 2)
    assert np.concatenate(list(blocks(weights, width))).tolist() == weights.tolist()


def test_the_interval_is_corrected_for_bias_and_for_few_units() -> None:
    # draws of a standard normal distribution
    draws = norm.ppf((np.arange(9999) + 0.5) / 9999)
    plain = corrected_interval(0.0, draws, 0)
    assert plain == pytest.approx((-1.96, 1.96), abs=0.01)
    # z0 = Φ⁻¹(share below 0.5) = 0.5: percentiles Φ(2 · 0.5 ∓ 1.96)
    assert corrected_interval(0.5, draws, 0) == pytest.approx((1 - 1.96, 1 + 1.96), abs=0.02)
    # ten units: t of nine degrees of freedom, 2.262, times √(10/9)
    reach = 2.262 * math.sqrt(10 / 9)
    assert corrected_interval(0.0, draws, 10) == pytest.approx((-reach, reach), abs=0.02)
    assert all(map(math.isnan, corrected_interval(math.nan, np.full(3, math.nan), 10)))

"""Intervals against closed forms, and properties of the resampling."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.evaluation.bootstrap import (
    difference_estimate,
    ratio_estimate,
    resampling_counts,
    sum_by_group,
)


def means(values: list[float]) -> np.ndarray:
    return np.column_stack([values, np.ones(len(values))])


def test_interval_of_a_mean_is_that_of_the_central_limit_theorem() -> None:
    values = np.random.default_rng(0).normal(0.5, 0.1, 400)
    estimate = ratio_estimate(means(values), resampling_counts(400))
    half = 1.96 * values.std() / math.sqrt(400)
    assert estimate.value == pytest.approx(values.mean())
    # Monte-Carlo error of a 2.5 % quantile of 5000 draws is about 2.4 % of the standard error.
    assert estimate.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert estimate.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_ratio_weighs_units_by_their_denominator() -> None:
    # by hand: (1 + 0) / (1 + 3), not the mean of 1 and 0
    assert ratio_estimate(np.array([[1.0, 1.0], [0.0, 3.0]]), resampling_counts(2)).value == 0.25


def test_paired_difference_is_narrower_than_two_separate_intervals() -> None:
    rng = np.random.default_rng(0)
    before = rng.uniform(0, 1, 100)
    after = before + rng.normal(0.05, 0.02, 100)
    counts = resampling_counts(100)
    change = difference_estimate(means(before), means(after), counts)
    assert 0 < change.low < change.value < change.high
    single = ratio_estimate(means(after), counts)
    assert change.high - change.low < 0.2 * (single.high - single.low)


def test_difference_changes_sign_with_its_order() -> None:
    a, b, counts = means([0.1, 0.4, 0.9]), means([0.2, 0.3, 0.5]), resampling_counts(3)
    up, down = difference_estimate(a, b, counts), difference_estimate(b, a, counts)
    assert (up.value, up.low, up.high) == pytest.approx((-down.value, -down.high, -down.low))


@pytest.mark.parametrize(
    "sums",
    [
        np.zeros((0, 2)),  # no films
        np.zeros((3, 2)),  # films, but none that the figure is about
    ],
)
def test_nothing_to_measure_is_nan(sums: np.ndarray) -> None:
    assert all(map(math.isnan, ratio_estimate(sums, resampling_counts(len(sums)))))


def test_resamples_without_a_denominator_are_left_out() -> None:
    # One normal film among four: a third of the resamples has none of it.
    sums = np.array([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    assert ratio_estimate(sums, resampling_counts(4)) == (1.0, 1.0, 1.0)


def test_groups_are_drawn_together() -> None:
    # Two patients with ten equal films each: as if there were two films, not twenty.
    films = means([0.0] * 10 + [1.0] * 10)
    patients = sum_by_group(films, ["a"] * 10 + ["b"] * 10)
    assert patients.tolist() == [[0.0, 10.0], [10.0, 10.0]]
    assert ratio_estimate(patients, resampling_counts(2))[1:] == (0.0, 1.0)
    low, high = ratio_estimate(films, resampling_counts(20))[1:]
    assert 0.2 < low < high < 0.8


def test_groups_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected one group per film for `groups`, got 1 for 2 films"):
        sum_by_group(np.zeros((2, 2)), ["a"])


def test_resampling_repeats_with_its_seed() -> None:
    assert np.array_equal(resampling_counts(5, seed=3), resampling_counts(5, seed=3))
    assert not np.array_equal(resampling_counts(5, seed=3), resampling_counts(5, seed=4))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_interval_lies_within_the_values(values: list[float]) -> None:
    estimate = ratio_estimate(means(values), resampling_counts(len(values), resamples=200))
    for end in estimate:
        assert min(values) - 1e-9 <= end <= max(values) + 1e-9

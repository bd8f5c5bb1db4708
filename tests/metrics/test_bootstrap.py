"""Properties of the resampling."""

from __future__ import annotations

import numpy as np
import pytest

from grounding_rewards.metrics import bootstrap
from grounding_rewards.metrics.bootstrap import (
    blocks,
    percentile_interval,
    resampled_sums,
    resampling_counts,
    sum_by_group,
)


def test_groups_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected one group per image for `groups`, got 1 for 2 images"):
        sum_by_group(np.zeros((2, 2)), ["a"])


def test_resampling_repeats_with_its_seed() -> None:
    assert np.array_equal(resampling_counts(5, seed=3), resampling_counts(5, seed=3))
    assert not np.array_equal(resampling_counts(5, seed=3), resampling_counts(5, seed=4))


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


@pytest.mark.parametrize("width", [0, 1, 1 << 19, 1 << 30])
def test_blocks_are_all_rows_in_their_order(width: int) -> None:
    weights = np.arange(10.0).reshape(5, 2)
    assert np.concatenate(list(blocks(weights, width))).tolist() == weights.tolist()


def test_percentiles_are_of_the_draws_that_have_something_to_measure() -> None:
    assert percentile_interval(np.append(np.linspace(0, 1, 1001), np.nan)) == pytest.approx((0.025, 0.975))
    assert np.isnan(percentile_interval(np.full(3, np.nan))).all()

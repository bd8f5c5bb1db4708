"""The permutation test of two runs: by hand, against scipy's, and how often it is wrong."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import permutation_test

from grounding_rewards.metrics import comparison
from grounding_rewards.metrics.comparison import swap_p_values


def p_value(a: Any, b: Any, resamples: int = 1 << 12, seed: int = 0) -> float:
    (p,) = swap_p_values([np.array(a, dtype=float)], [np.array(b, dtype=float)], resamples=resamples, seed=seed)
    return p


def means(values: list[float]) -> np.ndarray:
    return np.column_stack([values, np.ones(len(values))])


def standardised(a: np.ndarray, b: np.ndarray) -> float:
    """The difference of two ratios of sums in standard errors, as at the top of the module."""
    r_a, r_b = a[:, 0].sum() / a[:, 1].sum(), b[:, 0].sum() / b[:, 1].sum()
    parts = (b[:, 0] - r_b * b[:, 1]) / b[:, 1].sum() - (a[:, 0] - r_a * a[:, 1]) / a[:, 1].sum()
    return (r_b - r_a) / math.sqrt((parts**2).sum())


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ([0.2] * 6, 2 / 2**6),  # all better alike: only all the other way round is as large
        ([0.1, 0.2, 0.3, 0.4, 0.5], 2 / 2**5),
        ([0.1, 0.2, 0.3, 0.4, -0.1], 6 / 2**5),  # 0.9 of 1.1: all, or all but one of the two 0.1
        ([0.3, -0.3], 1.0),
        ([1.0, 0.0, 0.0, 0.0], 1.0),  # what does not differ says nothing
        ([0.0, 0.0], math.nan),
    ],
)
def test_by_hand(differences: list[float], expected: float) -> None:
    before = np.full(len(differences), 0.5)
    a, b = means(before.tolist()), means((before + differences).tolist())
    assert p_value(a, b) == pytest.approx(expected, nan_ok=True)
    assert p_value(b, a) == pytest.approx(expected, nan_ok=True)


def test_unmeasurable_draws_count_against_a_difference() -> None:
    # One normal image each with a box: whoever has both has a hallucination rate, the other none.
    assert p_value([[1, 1], [0, 0]], [[0, 0], [0, 1]]) == 1.0


@pytest.mark.parametrize("seed", range(8))
def test_it_is_scipys_with_all_ways_to_change_places(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 5, (2, 7, 2)) + rng.uniform(0, 1, (2, 7, 2))
    table = np.concatenate([a, b])

    def statistic(one: Any, other: Any) -> float:
        return standardised(table[one.astype(int)], table[other.astype(int)])

    places = np.arange(7.0), np.arange(7.0, 14)
    found = permutation_test(places, statistic, permutation_type="samples", n_resamples=np.inf, vectorized=False)
    # scipy doubles the smaller tail; the statistic changes its sign with the runs, so both tails are alike.
    assert p_value(a, b) == pytest.approx(found.pvalue)


def test_random_draws_come_near_to_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    a, b = means(rng.uniform(0, 1, 12).tolist()), means(rng.uniform(0.2, 1, 12).tolist())
    exact, drawn = p_value(a, b), p_value(a, b, 4000, seed=3)
    assert 0.01 < exact < 0.9
    assert drawn == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 4000))
    # however many are drawn at once
    monkeypatch.setattr(comparison, "_CELLS", 12 * 100)
    assert p_value(a, b, 4000, seed=3) == pytest.approx(drawn, abs=0.02)
    # never 0: the runs as they are are one of the draws
    assert p_value(means([0.0] * 40), means([1.0] * 40), 99) == 1 / 100


def test_level_holds_if_runs_differ_and_the_metric_does_not() -> None:
    """A writes few boxes that are right, B many of which half are: F1 is the same, which p must not deny too often."""
    rng = np.random.default_rng(0)
    rejected = []
    for _ in range(400):
        findings = rng.integers(1, 4, 40)
        few, many = rng.binomial(findings, 0.5), rng.binomial(findings, 0.9)
        # F1 2/3 both: 2 · 0.5 / (0.5 + 1), and 2 · 0.9 / (1.7 + 1)
        a = np.column_stack([2 * few, few + findings])
        b = np.column_stack([2 * many, many + rng.poisson(0.8 * findings) + findings])
        rejected.append(p_value(a, b, 199) <= 0.05)
    # three standard errors of a share of 0.05 among 400 are 0.033
    assert np.mean(rejected) <= 0.083

"""Intervals of shares: against scipy, by hand, and how often they hold the truth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binomtest, t

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.comparison import compare_runs
from grounding_rewards.metrics.counts import DETECTION_METRICS, SHARES
from grounding_rewards.metrics.evaluation import Measures, evaluate
from grounding_rewards.metrics.jackknife import ratio_estimates
from grounding_rewards.metrics.shares import share_estimate


def of(happened: int, n: int) -> np.ndarray:
    """One thing in each of n units."""
    return np.column_stack([np.arange(n) < happened, np.ones(n)]).astype(float)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_one_thing_a_unit_has_clopper_and_pearsons_interval(counts: tuple[int, int]) -> None:
    exact = binomtest(*counts).proportion_ci(0.95, method="exact")
    found = share_estimate(of(*counts))
    assert found == pytest.approx((counts[0] / counts[1], exact.low, exact.high), abs=1e-9)


@pytest.mark.parametrize("kind", [0, 1])
def test_things_of_a_unit_that_are_alike_count_as_one(kind: int) -> None:
    # Four things a unit, all alike: as uncertain as one thing a unit, but for Student's t.
    found = share_estimate(of(6, 30) * 4)
    few = (t.ppf(0.975, 119) / t.ppf(0.975, 29)) ** 2
    n = 120 / (30 / 29 * 4 * 119 / 120) * few
    low, high = beta.ppf(0.025, 0.2 * n, 0.8 * n + 1), beta.ppf(0.975, 0.2 * n + 1, 0.8 * n)
    assert found == pytest.approx((0.2, low, high))
    # Where none or all happened nobody knows how alike they are: taken for one thing a unit.
    assert share_estimate(of(30 * kind, 30) * 4) == share_estimate(of(30 * kind, 30))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
def test_intervals_hold_the_share_and_are_never_shorter_than_without_any(units: list[tuple[int, int]]) -> None:
    table = np.array([(min(x, n), n) for x, n in units], dtype=float)
    value, low, high = share_estimate(table)
    if not table[:, 1].any():
        assert math.isnan(value)
        return
    assert 0 <= low <= value <= high <= 1
    m = int((table[:, 1] > 0).sum())
    assert high >= share_estimate(of(0, m)).high - 1e-12
    assert low <= share_estimate(of(m, m)).low + 1e-12
    # what did not happen is the share of the rest
    rest = share_estimate(np.column_stack([table[:, 1] - table[:, 0], table[:, 1]]))
    assert (1 - rest.high, 1 - rest.low) == pytest.approx((low, high), abs=1e-9)


def test_shares_are_metrics_whose_numerator_counts_some_of_the_denominator() -> None:
    assert {"hallucination_rate", "recall_50", "precision_50", "unparseable_share"} <= SHARES
    assert SHARES.isdisjoint({"mean_iou", "f1_50", "false_per_film", "count_bias", "phrase_mean_iou"})
    assert all(DETECTION_METRICS[key].is_share for key in SHARES & DETECTION_METRICS.keys())


def test_nothing_seen_among_25_normal_images() -> None:
    images: list[Any] = [AnsweredImage(str(i), 9, 9, status="empty", rewards={"R4": 0.2}) for i in range(25)]
    measured = evaluate({"model": images}, Measures("R4", resamples=20)).systems["model"]
    assert measured["hallucination_rate"] == pytest.approx((0, 0, 0.1372), abs=1e-4)
    assert measured["specificity"] == pytest.approx((1, 0.8628, 1), abs=1e-4)
    # nothing was counted
    assert all(map(math.isnan, ratio_estimates({"recall_50": np.zeros((25, 2))}, shares=SHARES)["recall_50"]))
    change = compare_runs(images, images, resamples=20).metrics["hallucination_rate"]
    assert change.a == change.b == measured["hallucination_rate"]
    assert change.difference == pytest.approx((0, -0.1372, 0.1372), abs=1e-4)


@pytest.mark.parametrize("true", [0.02, 0.1, 0.5])
def test_intervals_hold_the_truth_as_often_as_they_say(true: float) -> None:
    """40 patients of one to four images each, whose images share half of the variance."""
    rng = np.random.default_rng(0)
    held = []
    for _ in range(500):
        n = rng.integers(1, 5, 40)
        # beta-binomial: the correlation of two images of a patient is 1 / (1 + 1)
        x = rng.binomial(n, rng.beta(true, 1 - true, 40))
        _, low, high = share_estimate(np.column_stack([x, n]).astype(float))
        held.append(low <= true <= high)
    # two standard errors of a share of 0.95 among 500 are 0.02
    assert np.mean(held) >= 0.93

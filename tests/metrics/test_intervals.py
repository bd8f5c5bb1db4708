"""Intervals: of shares, and by leaving out patients."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binomtest, chi2, t

from grounding_rewards.metrics import intervals
from grounding_rewards.metrics.average_precision import (
    mean_average_precision,
    rank_boxes,
    sensitivity_at_false_positives,
)
from grounding_rewards.metrics.comparison import compare_runs
from grounding_rewards.metrics.detection import DETECTION_METRICS
from grounding_rewards.metrics.evaluation import Measures, evaluate
from grounding_rewards.metrics.prediction import Prediction
from tests.metrics.random_images import random_images


def of(happened: int, n: int) -> np.ndarray:
    """One thing in each of n units."""
    return np.column_stack([np.arange(n) < happened, np.ones(n)]).astype(float)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_one_thing_a_unit_has_clopper_and_pearsons_interval(counts: tuple[int, int]) -> None:
    exact = binomtest(*counts).proportion_ci(0.95, method="exact")
    found = intervals.share_estimate(of(*counts))
    assert found == pytest.approx((counts[0] / counts[1], exact.low, exact.high), abs=1e-9)


@pytest.mark.parametrize("kind", [0, 1])
def test_things_of_a_unit_that_are_alike_count_as_one(kind: int) -> None:
    # Four things a unit, all alike: as uncertain as one thing a unit, but for Student's t.
    found = intervals.share_estimate(of(6, 30) * 4)
    few = (t.ppf(0.975, 119) / t.ppf(0.975, 29)) ** 2
    n = 120 / (30 / 29 * 4 * 119 / 120) * few
    low, high = beta.ppf(0.025, 0.2 * n, 0.8 * n + 1), beta.ppf(0.975, 0.2 * n + 1, 0.8 * n)
    assert found == pytest.approx((0.2, low, high))
    # Where none or all happened nobody knows how alike they are: taken for one thing a unit.
    assert intervals.share_estimate(of(30 * kind, 30) * 4) == intervals.share_estimate(of(30 * kind, 30))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
def test_share_intervals_hold_the_share(units: list[tuple[int, int]]) -> None:
    table = np.array([(min(x, n), n) for x, n in units], dtype=float)
    value, low, high = intervals.share_estimate(table)
    if not table[:, 1].any():
        assert math.isnan(value)
        return
    assert 0 <= low <= value <= high <= 1
    m = int((table[:, 1] > 0).sum())
    assert high >= intervals.share_estimate(of(0, m)).high - 1e-12
    assert low <= intervals.share_estimate(of(m, m)).low + 1e-12
    # what did not happen is the share of the rest
    rest = intervals.share_estimate(np.column_stack([table[:, 1] - table[:, 0], table[:, 1]]))
    assert (1 - rest.high, 1 - rest.low) == pytest.approx((low, high), abs=1e-9)


def test_nothing_seen_among_25_normal_images() -> None:
    images: list[Any] = [Prediction(str(i), 9, 9, status="empty", rewards={"R4": 0.2}) for i in range(25)]
    measured = evaluate({"model": images}, Measures("R4")).systems["model"]
    assert measured["hallucination_rate"] == pytest.approx((0, 0, 0.1372), abs=1e-4)
    assert measured["specificity"] == pytest.approx((1, 0.8628, 1), abs=1e-4)
    # nothing was counted
    assert all(
        map(math.isnan, intervals.ratio_estimates({"recall_50": np.zeros((25, 2))}, DETECTION_METRICS)["recall_50"])
    )
    change = compare_runs(images, images, resamples=20).metrics["hallucination_rate"]
    assert change.a == change.b == measured["hallucination_rate"]
    assert change.difference == pytest.approx((0, -0.1372, 0.1372), abs=1e-4)


def means(values: Any) -> np.ndarray:
    return np.column_stack([values, np.ones(len(values))])


def ratio(sums: np.ndarray, **options: Any) -> intervals.Estimate:
    return intervals.ratio_estimates({"ratio": sums}, **options)["ratio"]


def difference(before: np.ndarray, after: np.ndarray) -> intervals.Estimate:
    return intervals.jackknifed_difference(
        intervals.jackknifed_ratio(before), intervals.jackknifed_ratio(after)
    ).estimate


def test_unit_intervals_are_clopper_pearsons_of_effective_observations() -> None:
    values = np.random.default_rng(0).uniform(0.2, 0.6, 200)
    mean, variance = values.mean(), values.var(ddof=1) / 200
    n = mean * (1 - mean) / variance * (1.959964 / t.ppf(0.975, 199)) ** 2
    x = mean * n
    expected = beta.ppf(0.025, x, n - x + 1), beta.ppf(0.975, x + 1, n - x)
    assert ratio(means(values))[1:] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("units", [2, 25, 80])
def test_what_was_never_seen_may_still_be(units: int) -> None:
    # A Poisson number that was 0 is 3.69 at most: χ²(0.975) of two degrees of freedom, halved.
    none = ratio(means(np.zeros(units)), metrics={"ratio": intervals.Metric("", "", bounds=intervals.COUNT)})
    assert none == pytest.approx((0, 0, chi2.ppf(0.975, 2) / 2 / units))
    # The exact interval of none of n, for a mean of what lies in [0, 1].
    u = 1 - 0.025 ** (1 / units)
    assert ratio(means(np.zeros(units))) == pytest.approx((0, 0, u))
    assert ratio(means(np.ones(units))) == pytest.approx((1, 1 - u, 1))
    assert ratio(means(np.full(units, 0.8))) == pytest.approx((0.8, 0.8 * (1 - u), 0.8 + 0.2 * u))


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=12),
    st.sampled_from([intervals.UNIT, intervals.COUNT, intervals.SIGNED]),
)
def test_the_interval_holds_the_metric_within_its_scale(values: list[float], bounds: Any) -> None:
    found = ratio(means(values), metrics={"ratio": intervals.Metric("", "", bounds=bounds)})
    if len(values) > 1:
        assert bounds[0] <= found.low <= found.value + 1e-9
        assert found.value - 1e-9 <= found.high <= bounds[1]


def test_images_of_a_patient_are_left_out_together() -> None:
    # Ten patients with ten equal images each: as if there were ten images, not a hundred.
    values = np.tile([0.4, 0.6], 5)
    images, patients = means(np.repeat(values, 10)), np.repeat(np.arange(10), 10).tolist()
    assert intervals.sum_by_group(images, patients) == pytest.approx(10 * means(values))
    assert ratio(images, groups=patients) == pytest.approx(ratio(means(values)))
    assert ratio(images).low > ratio(images, groups=patients).low + 0.01


def test_many_units_are_left_out_in_parts_of_like_size() -> None:
    images = intervals.MOST_PARTS * 3 + 7
    parts, other = (intervals.Parts.of(None, images, seed) for seed in (0, 1))
    assert (parts.parts, parts.units) == (intervals.MOST_PARTS, images)
    assert set(np.bincount(parts.of_image).tolist()) == {3, 4}
    assert not np.array_equal(parts.of_image, other.of_image)
    halves = parts.halves(0)
    assert (halves[: len(halves) // 2] + halves[len(halves) // 2 :] == 1).all()


def test_the_standard_error_of_parts_is_that_of_units() -> None:
    """All-point AP of one sure right box an image is recall: the interval in parts against all images one by one."""
    images = [image for image in random_images(0, 900) if len(image.gt)]
    given = [{"gt": image.gt, "gt_labels": image.gt_labels, "pred": image.gt[:1]} for image in images]
    images = [Prediction(str(k), 400, 400, **one, pred_scores=[0.9]) for k, one in enumerate(given)]
    assert len(images) > 3 * intervals.MOST_PARTS
    found = mean_average_precision(rank_boxes(images, [0.5]), interpolation="all")
    recall = intervals.jackknifed_ratio(np.array([[1.0, len(image.gt)] for image in images]))
    assert found.value == pytest.approx(recall.value)
    assert abs(found.bias) < 0.2 * found.standard_error
    # A standard deviation of 100 parts is known to about 1 in 14.
    assert found.standard_error == pytest.approx(recall.standard_error, rel=0.25)


def test_leaving_out_is_taking_the_sensitivity_of_the_others() -> None:
    images = random_images(2, 12)
    found = sensitivity_at_false_positives(rank_boxes(images, [0.5]))
    for k in range(12):
        alone = sensitivity_at_false_positives(rank_boxes(images[:k] + images[k + 1 :], [0.5]))
        assert found.left_out[k] == pytest.approx(alone.value, abs=1e-12, nan_ok=True)


def test_metrics_as_means_are_themselves() -> None:
    found = intervals.jackknifed_ratio(np.random.default_rng(0).uniform(0.1, 1, (30, 2)))
    as_mean = intervals.jackknifed_ratio(found.as_mean)
    assert as_mean.value == pytest.approx(found.value)
    assert as_mean.standard_error == pytest.approx(found.standard_error)
    assert not intervals.Jackknifed(0.5, np.array([0.5, math.nan]), 2).as_mean.any()


def covers(groups: bool, rng: np.random.Generator) -> bool:
    """Whether the interval of the difference of two runs holds the true one: 60 patients of 1 to 4 images each.

    Half of the variance of an image's difference is its patient's; the true difference is 0.1.
    """
    patients = np.repeat(np.arange(60), rng.integers(1, 5, 60))
    patient = rng.normal(0, 0.1, 60)
    before = rng.uniform(0, 1, len(patients))
    after = before + 0.1 + patient[patients] + rng.normal(0, 0.1, len(patients))
    runs = (means(before), means(after))
    _, low, high = difference(*((intervals.sum_by_group(run, patients.tolist()) for run in runs) if groups else runs))
    return low <= 0.1 <= high


def test_coverage_of_intervals_over_patients() -> None:
    rng = np.random.default_rng(0)
    over_patients = np.mean([covers(True, rng) for _ in range(400)])
    over_images = np.mean([covers(False, rng) for _ in range(400)])
    # Three standard errors of a share of 0.95 among 400 are 0.033.
    assert 0.917 <= over_patients <= 0.983
    # Taking images of one patient for independent makes the intervals too narrow.
    assert over_images < over_patients - 0.05

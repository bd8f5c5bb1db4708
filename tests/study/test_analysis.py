"""Metrics of a study are those of metrics/, and differences are Student's over units."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from grounding_rewards.metrics.evaluation import Measures, evaluate
from grounding_rewards.metrics.intervals import Jackknifed, ratios
from grounding_rewards.rewards.grounding import get_reward
from grounding_rewards.study.analysis import (
    METRICS,
    SOFT,
    ModelMetric,
    compare_rows,
    mean_of_rows,
    metric_sums,
    model_predictions,
    student_difference,
)
from grounding_rewards.study.results import Measure
from tests.metrics.random_images import random_images, without_confidences
from tests.study.fake_studies import answers, images

MEASURE = Measure("f1_50", "test")


def value(images, key):
    return ratios(metric_sums(images)[key].sum(axis=0))


def unit(metric: float, left_out=()) -> Jackknifed:
    left_out = np.array(left_out or [metric, metric])
    return Jackknifed(metric, left_out, len(left_out))


def rows(values, checkpoints, seeds, arm="R3"):
    return [
        ModelMetric("strong", checkpoint, arm, seed, 9, MEASURE, unit(metric))
        for metric, checkpoint, seed in zip(values, checkpoints, seeds, strict=True)
    ]


@pytest.mark.parametrize("seed", range(2))
def test_metrics_are_those_of_an_evaluation(seed):
    rng = np.random.default_rng(seed)
    names = [key.removeprefix("reward_") for key in METRICS if key.startswith("reward_")]
    scored = [
        replace(image, rewards=dict.fromkeys(names, float(rng.random())))
        for image in without_confidences(random_images(seed, 25))
    ]
    evaluation = evaluate({"model": scored}, Measures("R3"))
    expected = {**evaluation.systems["model"], "placing": evaluation.dependence.placing}
    for key in METRICS:
        if key != f"reward_{SOFT}":
            assert value(scored, key) == pytest.approx(expected[key].value, abs=1e-12, nan_ok=True), key
    sums = metric_sums(scored)
    by_finding = [label_sums for key, label_sums in sums.items() if key.startswith("recall_50 of ")]
    assert np.sum(by_finding, axis=0) == pytest.approx(sums["recall_50"])
    assert len(by_finding) == len(evaluation.per_label)


def test_rewards_are_those_of_the_texts():
    references = images(5, 12)
    texts = answers(np.random.default_rng(0), references, 0.1, 0.5)
    predictions = model_predictions(references, texts, "qwen3-vl")
    columns = {name: [row[name] for row in references] for name in ("boxes", "labels", "width", "height")}
    for key in (key for key in METRICS if key.startswith("reward_")):
        reward = get_reward(key.removeprefix("reward_"), box_format="qwen3-vl")
        assert value(predictions, key) == pytest.approx(np.mean(reward(texts, **columns)), abs=1e-12)


def test_student_over_units():
    values = [0.02, 0.05, -0.01, 0.04]
    expected = stats.ttest_1samp(values, 0)
    interval = expected.confidence_interval(0.95)
    difference = student_difference([unit(change) for change in values])
    assert difference[:4] == pytest.approx((np.mean(values), interval.low, interval.high, expected.pvalue), rel=1e-9)


def test_one_unit_has_the_interval_over_patients():
    change = unit(0.1, [0.05, 0.1, 0.15])
    difference = student_difference([change])
    assert difference.patients == change.estimate
    assert difference.low == pytest.approx(0.1 - stats.t.ppf(0.975, 2) * change.standard_error)


def test_runs_are_compared_with_partners_and_averaged_by_checkpoint():
    starts = rows([0.1, 0.5], "ab", [None, None], arm=None)
    changed = rows([0.2, 0.4, 0.9, 0.7], "abba", [0, 1, 3, 2])
    # a: +0.1 and +0.6, b: -0.1 and +0.4
    assert compare_rows(changed, starts).value == pytest.approx((0.35 + 0.15) / 2)
    assert compare_rows(changed, starts).p == pytest.approx(stats.ttest_1samp([0.35, 0.15], 0).pvalue)
    reference = rows([0.1, 0.1, 0.1], "abb", [0, 1, 9])
    # Only the runs with a partner of the same checkpoint and seed.
    assert compare_rows(changed, reference).value == pytest.approx((0.1 + 0.3) / 2)


def test_runs_of_one_checkpoint_are_units():
    assert mean_of_rows(rows([0.1, 0.2, 0.3], "aaa", [0, 1, 2])).low == pytest.approx(0.2 - 4.302653 * 0.1 / 3**0.5)


@pytest.mark.parametrize(
    ("values", "p"), [([], math.nan), ([math.nan, 0.1], math.nan), ([0.25, 0.25], math.nan), ([0.0, 0.0], 1.0)]
)
def test_what_never_varies_or_cannot_be_measured_has_no_p(values, p):
    assert student_difference([unit(change) for change in values]).p == pytest.approx(p, nan_ok=True)


def test_intervals_hold_the_true_difference_as_often_as_they_say():
    rng = np.random.default_rng(0)
    differences = [student_difference([unit(change) for change in rng.normal(0, 0.1, 4)]) for _ in range(400)]
    assert np.mean([one.low <= 0 <= one.high for one in differences]) == pytest.approx(0.95, abs=0.03)

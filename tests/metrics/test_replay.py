"""Rewards compared by how they order the same answers: by hand, with scipy, and where there is no order."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.replay import RULERS, answer_rulers, rank_correlations, replay
from tests.metrics.random_images import random_images

# Few values, so that ties are many.
TABLES = arrays.arrays(
    np.float64, st.tuples(st.just(3), st.integers(2, 90)), elements=st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0])
)
ORACLES = {"spearman": stats.spearmanr, "kendall": stats.kendalltau}


@pytest.mark.parametrize("method", ORACLES)
@given(TABLES)
def test_coefficients_are_those_of_scipy(method, table):
    found = rank_correlations(table, method)
    for i, one in enumerate(table):
        for j, other in enumerate(table):
            if np.ptp(one) == 0 or np.ptp(other) == 0:
                assert math.isnan(found[i, j])
            else:
                assert found[i, j] == pytest.approx(ORACLES[method](one, other).statistic, abs=1e-12)


@pytest.mark.parametrize("method", ORACLES)
@given(TABLES)
def test_only_the_order_matters(method, table):
    np.testing.assert_allclose(
        rank_correlations(table, method), rank_correlations(np.exp(3 * table) + 7, method), atol=1e-12
    )


@pytest.mark.parametrize("method", ORACLES)
def test_what_rounding_tells_apart_is_a_tie(method):
    """0.1 + 0.2 is not 0.3, and no reason to prefer an answer."""
    assert math.isnan(rank_correlations([[0.1 + 0.2, 0.3], [0.0, 1.0]], method)[0, 1])


def image(name="a", gt=(), pred=(), status="boxes", **columns):
    return AnsweredImage(
        name, 100, 100, gt=list(gt), gt_labels=["mass"] * len(gt), pred=list(pred), status=status, **columns
    )


ONE, TWO, FAR, AWAY = [0, 0, 10, 10], [40, 40, 50, 50], [80, 0, 90, 10], [80, 80, 90, 90]


@pytest.mark.parametrize(
    ("answered", "expected"),
    [
        # right at once: IoU 0.8
        (image(gt=[ONE], pred=[[0, 0, 10, 8]]), {"ap_50": 1, "f1_50": 1, "froc_1": 1, "mean_iou": 0.8}),
        # below the threshold: only the mean IoU sees it
        (image(gt=[ONE], pred=[[0, 0, 10, 4]]), {"ap_50": 0, "f1_50": 0, "froc_1": 0, "mean_iou": 0.4}),
        # the second false box ends the search: 1 of 2 found before it, 4 boxes, 2 right
        (
            image(gt=[ONE, TWO], pred=[FAR, ONE, AWAY, TWO]),
            {"ap_50": 0.5, "f1_50": 2 / 3, "froc_1": 0.5, "mean_iou": 1},
        ),
        # nothing said of a finding
        (image(gt=[ONE], status="empty"), {"ap_50": 0, "f1_50": 0, "froc_1": 0, "mean_iou": 0}),
        # normal images have one metric: said so, invented, and silent
        (image(status="empty"), {"ap_50": None, "f1_50": 1, "froc_1": None, "mean_iou": None}),
        (image(pred=[ONE]), {"ap_50": None, "f1_50": 0, "froc_1": None, "mean_iou": None}),
        (image(status="unparseable"), {"ap_50": None, "f1_50": 0, "froc_1": None, "mean_iou": None}),
    ],
)
def test_rulers_by_hand(answered, expected):
    found = {key: float(values[0]) for key, values in answer_rulers([answered]).items()}
    assert {key: None if math.isnan(value) else pytest.approx(value) for key, value in found.items()} == expected


def test_rulers_of_an_answer_do_not_depend_on_the_others():
    images = random_images(3, 30)
    together = answer_rulers(images)
    assert list(together) == list(RULERS)
    for key, values in together.items():
        np.testing.assert_array_equal(values, np.concatenate([answer_rulers([one])[key] for one in images]))
        assert np.isnan(values).any() == (key != "f1_50")
        assert ((values >= 0) & (values <= 1) | np.isnan(values)).all()


def test_a_ruler_may_ask_for_the_label():
    wrong = image(gt=[ONE], pred=[ONE], pred_labels=["effusion"])
    found = answer_rulers([wrong], label_matching="exact")
    assert {key: values.tolist() for key, values in found.items()} == {key: [0.0] for key in RULERS}


def some(n_images=12, answers=4, seed=0):
    """Two rewards and two rulers of answers to images, the first ruler missing on every third image."""
    rng = np.random.default_rng(seed)
    truth = rng.random((n_images, answers))
    groups = np.arange(n_images * answers).reshape(n_images, answers).tolist()
    ruler = truth.copy()
    ruler[::3] = np.nan
    rewards = {"R1": (truth > 0.6).astype(float).ravel(), "soft_f1": (truth**2 + 0.1 * rng.random(truth.shape)).ravel()}
    return {
        "rewards": rewards,
        "rulers": {"mean_iou": ruler.ravel(), "f1_50": truth.ravel()},
        "groups": groups,
        "images": [f"image {k}" for k in range(n_images) for _ in range(answers)],
    }


@pytest.mark.parametrize("method", ORACLES)
def test_over_all_answers_and_within_groups(method):
    given = some()
    found = replay(**given, method=method)
    there = ~np.isnan(given["rulers"]["mean_iou"])
    oracle = ORACLES[method]
    r1, soft, iou = given["rewards"]["R1"], given["rewards"]["soft_f1"], given["rulers"]["mean_iou"]
    assert found.overall["R1", "soft_f1"].estimate.value == pytest.approx(oracle(r1, soft).statistic)
    assert found.overall["R1", "soft_f1"].of == 48
    with_iou = found.overall["R1", "mean_iou"]
    assert with_iou.of == there.sum()
    assert with_iou.estimate.value == pytest.approx(oracle(r1[there], iou[there]).statistic)
    # without image 1, by hand
    keep = there & (np.array(given["images"]) != "image 1")
    assert with_iou.estimate.low < oracle(r1[keep], iou[keep]).statistic < with_iou.estimate.high

    own = [oracle(r1[g], iou[g]).statistic for g in given["groups"] if not np.isnan(iou[g]).any() and np.ptp(r1[g]) > 0]
    assert 0 < len(own) < 8
    within = found.within["R1", "mean_iou"]
    assert (within.of, within.estimate.value) == (len(own), pytest.approx(np.mean(own)))
    # of the eight groups that the ruler orders, those in which R1 gives all answers the same
    assert found.silent["R1", "mean_iou"] == pytest.approx(1 - len(own) / 8)
    assert found.silent["soft_f1", "mean_iou"] == 0


def test_spread_by_hand():
    rewards = {"R3": [0.0, 1.0, 0.5, 0.5]}
    found = replay(rewards, {}, groups=[[0, 1], [2, 3]], images=["a", "a", "b", "b"]).spreads["R3"]
    assert (found.mean.value, found.within, found.zero, found.without_spread) == (0.5, 0.25, 0.25, 0.5)
    assert found.deviation == pytest.approx(math.sqrt(0.125))


def test_the_unit_is_the_patient_and_not_the_answer():
    """The same answers again say nothing new: the interval stays as wide."""
    given = some()
    once = replay(**given).overall["soft_f1", "f1_50"].estimate
    twice = {
        **{part: {name: np.tile(values, 2) for name, values in given[part].items()} for part in ("rewards", "rulers")},
        "groups": [[*members, *(k + 48 for k in members)] for members in given["groups"]],
        "images": given["images"] * 2,
    }
    assert replay(**twice).overall["soft_f1", "f1_50"].estimate == pytest.approx(once, abs=0.01)
    patients = [f"patient {k // 16}" for k in range(48)]
    found = replay(**given, patients=patients)
    assert (found.units, found.by_patient, found.images) == (3, True, 12)


def test_a_reward_that_is_constant_has_no_correlation_and_says_so():
    given = some()
    given["rewards"]["constant"] = np.full(48, 0.2)
    found = replay(**given)
    for table, reason in (
        (found.overall, "constant is 0.2 for all answers"),
        (found.within, "constant is the same for all answers of every group"),
    ):
        one = table["constant", "soft_f1"]
        assert math.isnan(one.estimate.value)
        assert one.reason.startswith(reason)
        assert table["soft_f1", "constant"].reason.startswith(reason)
        assert math.isnan(table["constant", "f1_50"].estimate.value)
    assert found.silent["constant", "f1_50"] == 1
    assert found.spreads["constant"].without_spread == 1
    assert not any("constant" in one.rewards for one in found.reversals)
    assert found.as_json()["over_all_answers"]["constant"]["soft_f1"] == {
        "value": None,
        "low": None,
        "high": None,
        "of": 48,
    }


def test_one_image_says_nothing_of_others():
    found = replay(**some(n_images=1))
    assert found.overall["soft_f1", "f1_50"].estimate[1:] == (-1, 1)
    assert found.within["soft_f1", "f1_50"].estimate[1:] == (-1, 1)
    # a ruler that its only image does not have
    assert found.overall["R1", "mean_iou"].reason == "there is no answer to be compared by mean IoU"


def test_a_log_with_one_answer_to_each_image_has_no_groups():
    given = some(answers=1)
    found = replay(**given)
    assert found.groups == 0
    assert found.within["R1", "soft_f1"].reason == "no image has several answers"
    assert math.isnan(found.spreads["R1"].without_spread)
    assert math.isnan(found.silent["R1", "f1_50"])
    assert found.reversals == ()
    assert not math.isnan(found.overall["soft_f1", "f1_50"].estimate.value)
    json.dumps(found.as_json(), allow_nan=False)


def test_the_largest_reversal_of_each_image():
    rewards = {
        "R1": [0.9, 0.1, 0.5, 0.5, 0.2, 0.3],
        "R2": [0.2, 0.7, 0.5, 0.6, 0.1, 0.2],
        "R3": [0.0, 0.4, 0.9, 0.1, 0.1, 0.2],
    }
    # image a at two steps, of which the first has the larger reversal; image b, on which nobody disagrees
    found = replay(rewards, {}, groups=[[0, 1], [2, 3], [4, 5]], images=["a", "a", "a", "a", "b", "b"])
    assert [(one.rewards, one.answers, round(one.size, 9)) for one in found.reversals] == [(("R1", "R2"), (0, 1), 0.5)]


def test_nobody_disagrees_with_a_control():
    rewards = {"R1": [0.9, 0.1], "random": [0.2, 0.7]}
    assert replay(rewards, {}, groups=[[0, 1]], images=["a", "a"]).reversals
    found = replay(rewards, {}, groups=[[0, 1]], images=["a", "a"], controls=["random"])
    assert found.reversals == ()
    assert found.within["R1", "random"].estimate.value == -1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rewards": {}}, "Expected one or more rewards of one or more answers for `rewards`, got 0 of 48"),
        (
            {"rewards": {"R1": [0.5]}},
            r"Expected a finite number for each of 48 answers for `R1`, got an array of shape \(1,\)",
        ),
        ({"rewards": {"R1": [math.nan] * 48}}, "Expected a finite number for each of 48 answers for `R1`"),
        ({"method": "pearson"}, "Expected a known word for `method`, got 'pearson'"),
    ],
)
def test_what_cannot_be_compared_is_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        replay(**{**some(), **changed})

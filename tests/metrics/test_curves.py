"""FROC by hand, and against thresholds tried one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.curves import FROC_RATES, froc_curve, sensitivity_at_false_positives
from grounding_rewards.metrics.ranking import rank_boxes
from tests.metrics.random_images import random_images, without_confidences

HIT, HIT_TOO, JUNK = [0, 0, 10, 10], [20, 20, 30, 30], [50, 50, 60, 60]


def by_thresholds(images: list[AnsweredImage], rate: float) -> float:
    """The best sensitivity at a rate, every confidence tried as a threshold."""
    ranked = rank_boxes(images, [0.5]).of_label(None)
    best = 0.0
    for key in ranked.key:
        taken = ranked.key <= key
        false = (taken & ranked.counts[0] & ~ranked.hit[0]).sum() / len(images)
        if false <= rate:
            best = max(best, (taken & ranked.hit[0]).sum() / ranked.references.sum())
    return float(best)


@pytest.mark.parametrize("seed", range(5))
def test_sensitivity_is_the_best_of_all_thresholds(seed: int) -> None:
    images = random_images(seed)
    found = sensitivity_at_false_positives(rank_boxes(images))
    for rate, one in zip(FROC_RATES, found.at_rates, strict=True):
        assert one.value == pytest.approx(by_thresholds(images, rate))
    assert found.mean.value == pytest.approx(np.mean([one.value for one in found.at_rates]))
    values = [one.value for one in found.at_rates]
    assert values == sorted(values)


def images_by_hand() -> list[AnsweredImage]:
    """Three findings on two of four images; false boxes at 0.8 and 0.5."""
    return [
        AnsweredImage(
            "a", 100, 100, gt=[HIT, HIT_TOO], gt_labels=["mass"] * 2, pred=[HIT, JUNK], pred_scores=[0.9, 0.8]
        ),
        AnsweredImage("b", 100, 100, gt=[HIT], gt_labels=["mass"], pred=[HIT], pred_scores=[0.7]),
        AnsweredImage("c", 100, 100, pred=[JUNK], pred_scores=[0.5]),
        AnsweredImage("d", 100, 100),
    ]


def test_by_hand() -> None:
    images = rank_boxes(images_by_hand())
    found = sensitivity_at_false_positives(images, [0, 0.2, 0.25, 8])
    # at no false box the first finding; from one on four images, 0.25, the second one
    assert [one.value for one in found.at_rates] == pytest.approx([1 / 3, 1 / 3, 2 / 3, 2 / 3])
    curve = froc_curve(images)
    assert curve.x.tolist() == [0.0, 0.25, 0.5]
    assert curve.y.tolist() == pytest.approx([1 / 3, 2 / 3, 2 / 3])


def test_answers_without_confidences_have_an_operating_point_and_an_order() -> None:
    images = without_confidences(images_by_hand())
    point = froc_curve(rank_boxes(images, ranking="tied"), resamples=100)
    assert (point.x.tolist(), point.y.tolist()) == ([0.5], pytest.approx([2 / 3]))
    assert point.low is not None
    assert point.low[0] < point.y[0]
    # the first boxes of all images: two right, one false; the second one is false
    emission = froc_curve(rank_boxes(images, ranking="emission"))
    assert emission.x.tolist() == [0.25, 0.5]
    assert emission.y.tolist() == pytest.approx([2 / 3, 2 / 3])


def test_without_a_reference_box_there_is_no_metric() -> None:
    for images in ([], [AnsweredImage("a", 10, 10, pred=[[0, 0, 5, 5]])]):
        found = sensitivity_at_false_positives(rank_boxes(images))
        assert all(math.isnan(one.value) for one in found.at_rates)
        assert len(froc_curve(rank_boxes(images), resamples=5).x) == 0

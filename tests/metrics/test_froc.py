"""FROC by hand, and against thresholds tried one by one."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from grounding_rewards.metrics import average_precision
from grounding_rewards.metrics.average_precision import RankedImages
from grounding_rewards.metrics.prediction import Prediction
from tests.metrics.random_images import random_images, without_confidences

HIT, HIT_TOO, JUNK = [0, 0, 10, 10], [20, 20, 30, 30], [50, 50, 60, 60]


def by_thresholds(images: list[Prediction], rate: float) -> float:
    """The best sensitivity at a rate, every confidence tried as a threshold."""
    ranked = average_precision.rank_boxes(images, [0.5]).of_label(None)
    best = 0.0
    for key in ranked.key:
        taken = ranked.key <= key
        false = (taken & ranked.counts[0] & ~ranked.hit[0]).sum() / len(images)
        if false <= rate:
            best = max(best, (taken & ranked.hit[0]).sum() / ranked.references.sum())
    return float(best)


def sensitivities(ranked: RankedImages, rates: Sequence[float]) -> list[float]:
    return [average_precision.sensitivity_at_false_positives(ranked, [rate]).value for rate in rates]


@pytest.mark.parametrize("seed", range(5))
def test_sensitivity_is_the_best_of_all_thresholds(seed: int) -> None:
    images = random_images(seed)
    ranked = average_precision.rank_boxes(images)
    expected = [by_thresholds(images, rate) for rate in average_precision.FROC_RATES]
    assert sensitivities(ranked, average_precision.FROC_RATES) == pytest.approx(expected)
    assert average_precision.sensitivity_at_false_positives(ranked).value == pytest.approx(np.mean(expected))


def images_by_hand() -> list[Prediction]:
    """Three findings on two of four images; false boxes at 0.8 and 0.5."""
    return [
        Prediction("a", 100, 100, gt=[HIT, HIT_TOO], gt_labels=["mass"] * 2, pred=[HIT, JUNK], pred_scores=[0.9, 0.8]),
        Prediction("b", 100, 100, gt=[HIT], gt_labels=["mass"], pred=[HIT], pred_scores=[0.7]),
        Prediction("c", 100, 100, pred=[JUNK], pred_scores=[0.5]),
        Prediction("d", 100, 100),
    ]


def test_by_hand() -> None:
    # at no false box the first finding; from one on four images, 0.25, the second one
    found = sensitivities(average_precision.rank_boxes(images_by_hand()), [0, 0.2, 0.25, 8])
    assert found == pytest.approx([1 / 3, 1 / 3, 2 / 3, 2 / 3])


def test_equal_confidences_are_one_group_under_every_ranking_by_confidence() -> None:
    images = [replace(image, pred_scores=[0.9] * len(image.pred)) for image in images_by_hand()]
    # all boxes come at once, with two false ones on four images
    for ranking in ("score", "coco"):
        ranked = average_precision.rank_boxes(images, ranking=ranking)
        assert sensitivities(ranked, [0.25, 0.5]) == pytest.approx([0, 2 / 3])


def test_without_a_reference_box_there_is_no_metric() -> None:
    for images in ([], [Prediction("a", 10, 10, pred=[[0, 0, 5, 5]])]):
        ranked = average_precision.rank_boxes(images)
        assert math.isnan(average_precision.sensitivity_at_false_positives(ranked).value)


def scored(scores: list[float], found: bool, **more: Any) -> Prediction:
    """An image with or without a finding, and a box of each confidence."""
    truth: dict[str, Any] = {"gt": [HIT], "gt_labels": ["mass"]} if found else {}
    return Prediction("", 100, 100, **truth, pred=[JUNK] * len(scores), pred_scores=scores, **more)


def sampled(boxes: int, others: tuple[int, ...], found: bool) -> Prediction:
    return scored([math.nan] * boxes, found, sampled_boxes=others)


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        # The largest confidence counts: 0.9 and 0.6 against 0.6 and 0.1. Three pairs in order, a tie.
        ([scored([0.2, 0.9], True), scored([0.6], True), scored([0.6], False), scored([0.1], False)], 3.5 / 4),
        # Without a box an image comes last, also behind a confidence below 0.
        ([scored([-3.0], True), scored([], False), scored([], False)], 1.0),
        # Shares of three answers with a box, 2/3 and 0 against 1/3: the judged answer is one of them.
        ([sampled(2, (1, 0), True), sampled(0, (0, 0), True), sampled(1, (0, 0), False)], 1 / 2),
        # One box without a confidence: shares count, 1 against 1/2.
        ([scored([0.1], True, sampled_boxes=(3,)), scored([0.9, math.nan], False, sampled_boxes=(0,))], 1.0),
        # No ranking: nothing stated, and not every image has sampled answers.
        ([sampled(1, (1,), True), sampled(1, (), False)], math.nan),
        # Images of one kind alone.
        ([scored([0.5], True), scored([0.4], True)], math.nan),
        ([], math.nan),
    ],
)
def test_auroc_by_hand(images: list[Prediction], expected: float) -> None:
    assert average_precision.image_auroc(images).value == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("seed", range(5))
def test_auroc_is_scikit_learns(seed: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="the independent implementation")
    images = random_images(seed, 60)
    rng = np.random.default_rng(seed)
    asked = [replace(one, sampled_boxes=tuple(rng.integers(0, 2, 5))) for one in without_confidences(images)]
    for one, scores in (
        (images, [image.pred_scores.max(initial=-1.0) for image in images]),
        (asked, [np.mean([len(image.pred) > 0, *image.sampled_boxes]) for image in asked]),
    ):
        expected = metrics.roc_auc_score([len(image.gt) > 0 for image in one], scores)
        assert average_precision.image_auroc(one).value == pytest.approx(expected, abs=1e-12)


def test_auroc_interval_is_over_patients_of_the_rarer_kind() -> None:
    images = [scored([k / 40], found=k % 3 > 0, patient=f"p{k // 2}") for k in range(40)]
    patients = [image.patient for image in images]
    by_patient, by_image = average_precision.image_auroc(images, groups=patients), average_precision.image_auroc(images)
    assert (len(by_patient.left_out), len(by_image.left_out)) == (20, 40)
    for part, value in enumerate(by_patient.left_out):
        left = [image for image in images if image.patient != f"p{part}"]
        assert value == pytest.approx(average_precision.image_auroc(left).value)
    # All in order: of three normal images, two of them of one patient, as for a share of all of two units.
    perfect = [scored([float(k)], found=k > 2, patient=f"p{max(k, 1)}") for k in range(30)]
    estimate = average_precision.image_auroc(perfect, groups=[image.patient for image in perfect]).estimate
    assert estimate == (1.0, pytest.approx(0.025 ** (1 / 2)), 1.0)

"""Metrics of detection by hand, and against the rewards, from whose matcher they come."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from grounding_rewards.metrics.average_precision import rank_boxes
from grounding_rewards.metrics.detection import IMAGE_SIZES, MatchedImages, label_groups, reference_sums
from grounding_rewards.metrics.intervals import ratio_estimates
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.parsing import BrokenBox
from grounding_rewards.rewards import MeanIoUReward
from tests.conftest import box_lists, valid_box_lists
from tests.metrics.image_pairs import pair_image
from tests.metrics.random_images import LABELS, labelled, random_images
from tests.tables import table

HIT, HALF, SMALL, JUNK = [0, 0, 50, 50], [0, 0, 50, 25], [0, 0, 20, 20], [80, 0, 90, 10]


def values(images: list[Prediction], **arguments: Any) -> dict[str, float]:
    found = ratio_estimates(MatchedImages(images, **arguments).sums())
    return {key: estimate.value for key, estimate in found.items()}


def test_metrics_by_hand() -> None:
    images = [
        # IoU 0.5
        Prediction("one", 100, 100, gt=[HIT], gt_labels=["mass"], pred=[HALF], pred_labels=["Mass"]),
        # one of two found, under another label, and one invented
        labelled([(SMALL, "mass"), ([50, 50, 100, 100], "effusion")], [(SMALL, "effusion"), (JUNK, None)]),
        Prediction("three", 100, 100, pred=[HALF]),
        Prediction("four", 100, 100, status="empty"),
        Prediction("five", 100, 100, status="unparseable"),
    ]
    assert values(images) == pytest.approx(
        {
            "mean_iou": (0.5 + 1 + 0) / 3,
            "f1_50": 2 * 2 / (4 + 3),
            "pq": 1 / (1 + 3 / 2 + 2 / 2),  # IoU 0.5 is not above a half
            "precision_50": 2 / 4,
            "recall_50": 2 / 3,
            "recall_75": 1 / 3,
            "accuracy_50": 1.0,  # image one alone has one reference box
            "phrase_mean_iou": 0.5,
            "hallucination_rate": 1 / 3,
            "specificity": 1 / 3,  # image five is no no-finding statement
            "film_sensitivity": 1.0,
            "false_per_film": 2 / 5,
            "count_error": 1 / 5,
            "label_accuracy": 1 / 2,
            "unparseable_share": 1 / 5,
            # of the mass of image one, and of the mass and the effusion of image two
            "query_ap_50": 1 / 3,
            "pixel_accuracy": 1 - (1250 + 2500 + 100 + 1250) / 50_000,
            "dice": 2 * (1250 + 400) / (2 * (1250 + 400) + 100 + 1250 + 1250 + 2500),
        }
    )


def test_references_without_labels_judge_no_label() -> None:
    image = Prediction("one", 100, 100, gt=[HIT], gt_labels=["finding"], pred=[HALF], pred_labels=["mass"])
    assert math.isnan(values([image])["label_accuracy"])


@pytest.mark.parametrize("seed", range(5))
def test_panoptic_quality_is_its_definition(seed: int) -> None:
    # Kirillov et al., CVPR 2019: Σ IoU of hits / (TP + FP / 2 + FN / 2), of pairs above a half; here of boxes that do
    # not overlap each other, where no such pair has a rival.
    rng = np.random.default_rng(seed)
    gt = np.array([[x, y, x + 8, y + 8] for x in (0.0, 10, 20) for y in (0.0, 10, 20)])
    images = []
    for k in range(8):
        findings = gt[rng.random(9) < 0.5]
        pred = gt[rng.random(9) < 0.5] + rng.uniform(-1.5, 1.5, 4)
        images.append(Prediction(str(k), 99, 99, gt=findings, gt_labels=["mass"] * len(findings), pred=pred))
    ious = np.concatenate([(iou := pairwise_iou(image.pred, image.gt))[iou > 0.5] for image in images])
    false, missed = (sum(len(getattr(image, side)) for image in images) - len(ious) for side in ("pred", "gt"))
    assert min(len(ious), false, missed) > 0
    assert values(images)["pq"] == pytest.approx(ious.sum() / (len(ious) + false / 2 + missed / 2))
    for image in images:
        reward = MeanIoUReward(beta=1.0, no_box_bonus=0.0).score(image.pred, image.gt)
        expected = reward if len(image.pred) + len(image.gt) else math.nan
        assert values([image])["pq"] == pytest.approx(expected, nan_ok=True)


@given(box_lists(), valid_box_lists(max_size=4), valid_box_lists(max_size=2))
def test_f_beta_of_one_image_is_that_of_the_reward(
    pred: list[list[float]], gt: list[list[float]], ignore: list[list[float]]
) -> None:
    image = Prediction("a", 30, 30, gt=gt, gt_labels=[""] * len(gt), pred=pred, ignore=ignore)
    metrics = values([image])
    arrays = [np.reshape(boxes, (-1, 4)) for boxes in (pred, gt)]
    reward = MeanIoUReward(beta=1.0, matching="most_hits")
    explained = reward.explain(*arrays, ignore=np.reshape(ignore, (-1, 4)))
    counted = len(pred) - len(explained.ignored) + len(gt) > 0
    assert metrics["f1_50"] == pytest.approx(explained.f_beta if counted else math.nan, nan_ok=True, abs=1e-12)
    for name in ("precision", "recall"):
        found = metrics[f"{name}_50"]
        assert math.isnan(found) or found == pytest.approx(getattr(explained, name), abs=1e-12)


def test_a_box_more_loses_no_hit_by_hand() -> None:
    # A box between two findings, and one more that reaches the first finding alone, below the threshold.
    gt = [[35, 0, 135, 100], [103, 0, 203, 100]]
    one, more = [68, 0, 168, 100], [0, 0, 100, 100]
    iou = pairwise_iou([one, more], gt)
    # The greatest sum of IoUs, 65/135 twice, has no hit.
    assert iou.tolist() == [[pytest.approx(67 / 133), pytest.approx(65 / 135)], [pytest.approx(65 / 135), 0]]
    alone, both = (Prediction("a", 300, 100, gt=gt, gt_labels=["x", "y"], pred=boxes) for boxes in ([one], [one, more]))
    for image in (alone, both):
        assert values([image])["recall_50"] == 0.5
        assert values([image], label_matching="ignore")["recall_50"] == 0.5
        groups = label_groups([image])
        sums = reference_sums(MatchedImages([image]), groups)
        assert [sums[name, "recall_50"].tolist() for name in groups] == [[[1, 1]], [[0, 1]]]
        assert pair_image(image).hits(0.5).tolist() == [True, False]
    # The mean IoU is another matter: it is of the pairs whose sum is greatest.
    assert values([both])["mean_iou"] == pytest.approx(65 / 135)


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_ap_with_all_boxes_tied(seed: int) -> None:
    # Ignored regions excuse one box each in counts, and any number, as COCO's crowds, in AP.
    images = [replace(image, ignore=()) for image in random_images(seed)]
    ranked = rank_boxes(images, [0.5], ranking="tied").of_label(None)
    counts = MatchedImages(images).counts(0.5)
    assert counts.tp.sum() == ranked.hit.sum()
    assert counts.n.sum() == ranked.counts.sum()
    assert counts.m.tolist() == ranked.references.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_labels_and_sizes_add_up_to_the_whole(seed: int) -> None:
    images = random_images(seed)
    for labels in ("exact", "synonyms"):
        whole = MatchedImages(images, label_matching=labels).counts(0.5)
        parts = [MatchedImages(images, label_matching=labels, label=label).counts(0.5) for label in LABELS]
        np.testing.assert_array_equal(np.sum(parts, axis=0), whole)
    # one box at the border of two sizes
    images.append(Prediction("border", 100, 100, gt=[[0, 0, 10, 10]], gt_labels=["mass"], pred=[[0, 0, 10, 9]]))
    parts = [MatchedImages(images, size=size).counts(0.5) for size in IMAGE_SIZES.values()]
    np.testing.assert_array_equal(np.sum(parts, axis=0), MatchedImages(images).counts(0.5))


def test_labels_that_are_compared() -> None:
    image = labelled([(HIT, "left effusion"), (JUNK, "mass")], [(HIT, "Pleural effusion"), (JUNK, None)])
    assert values([image])["recall_50"] == 1.0
    assert values([image], label_matching="exact")["recall_50"] == 0.0
    assert values([image], label_matching="synonyms")["recall_50"] == 0.5
    assert values([image], label_matching="synonyms", label="effusion")["f1_50"] == 1.0
    mass = values([image], label_matching="synonyms", label="mass")
    assert mass["recall_50"] == 0.0
    assert math.isnan(mass["precision_50"])  # the box without a label is nobody's
    with pytest.raises(ValueError, match=r"Expected a label that is compared for `label`, got 'mass' with"):
        MatchedImages([image], label="mass")


def test_a_phrase_is_answered_by_the_highest_scoring_box() -> None:
    image = Prediction("a", 100, 100, gt=[HIT], gt_labels=["mass"], pred=[JUNK, HIT])
    assert values([image])["phrase_mean_iou"] == 0.0
    assert values([replace(image, pred_scores=[0.2, 0.8])])["phrase_mean_iou"] == 1.0
    assert values([replace(image, pred_scores=[math.nan, 0.1])])["accuracy_50"] == 1.0
    assert values([replace(image, pred=[], pred_labels=(), pred_scores=[])])["accuracy_50"] == 0.0
    assert math.isnan(values([replace(image, gt=[HIT, JUNK], gt_labels=["mass"] * 2)])["accuracy_50"])


BROKEN = (BrokenBox(0),)
TRUTH: dict[str, Any] = {"width": 100, "height": 100, "gt": [[0, 0, 10, 10], [50, 50, 60, 60]], "gt_labels": ["a", "b"]}


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        # IoU 0.8 with the first; the second is missed; one false box of 100 pixels
        (
            Prediction("1", **TRUTH, pred=[[0, 0, 10, 8], [80, 80, 90, 90]], pred_labels=["b", "b"]),
            {"f1_50": (2, 4), "mean_iou": (0.8, 2), "dice": (160, 380), "pixel_accuracy": (9780, 10000)},
        ),
        # the same with the false box in an ignored region, which is no part of the image then
        (
            Prediction("1", **TRUTH, pred=[[0, 0, 10, 8], [80, 80, 90, 90]], ignore=[[70, 70, 100, 100]]),
            {"f1_50": (2, 3), "precision_50": (1, 1), "dice": (160, 280)},
        ),
        # a normal image, rightly empty
        (Prediction("1", 9, 9, status="empty"), {"f1_50": (0, 0), "dice": (0, 0), "pixel_accuracy": (81, 81)}),
        # a broken box beside a complete one is a false one, as in the rewards
        (Prediction("1", **TRUTH, pred=[[0, 0, 10, 8]], broken=BROKEN), {"precision_50": (1, 2), "f1_50": (2, 4)}),
    ],
)
def test_sums_by_hand(image: Prediction, expected: dict[str, tuple[float, float]]) -> None:
    sums = MatchedImages([image]).sums()
    assert {key: tuple(sums[key][0]) for key in expected} == {key: pytest.approx(one) for key, one in expected.items()}


def test_sampled_answers_that_cannot_be_read() -> None:
    images = [
        Prediction("1", 9, 9, sampled_read=(True, False, False, True), sampled_rewards=(0.5,) * 4),
        Prediction("2", 9, 9, sampled_read=(True, True), sampled_rewards=(0.5,) * 2),
        Prediction("3", 9, 9, sampled_read=(False,), sampled_rewards=(0.5,)),
    ]
    # first the share on each image, then the mean over images: (1/2 + 0 + 1) / 3, not 3 of 7
    assert ratio_estimates(MatchedImages(images).sums())["sampled_unparseable_share"].value == 0.5
    metric = MatchedImages(images).metrics["sampled_unparseable_share"]
    assert (metric.heading, metric.lower_is_better) == ("unparseable sampled answers", True)
    assert "sampled_unparseable_share" not in MatchedImages([*images, Prediction("4", 9, 9)]).sums()


def test_ious_of_all_references_come_in_the_order_of_images() -> None:
    images = [
        Prediction("1", 20, 20, gt=[[15, 15, 20, 20], [0, 0, 10, 10]], gt_labels=["x", "mass"], pred=[[0, 0, 10, 5]]),
        Prediction("2", 20, 20, pred=[[0, 0, 1, 1]]),
        Prediction("3", 20, 20, gt=[[0, 0, 1, 1]], gt_labels=["Mass"]),
    ]
    for rule, expected in (("ignore", 0.5), ("exact", 0.0)):
        ious, there = MatchedImages(images, rule).best_ious
        # under "exact" the predicted box has no label, and so none that agrees
        assert ious[there].tolist() == [0.0, expected, 0.0]
    groups = label_groups(images)
    members = {name: of.tolist() for name, of in groups.items()}
    assert members == {"mass": [False, True, True], "x": [True, False, False]}
    assert reference_sums(MatchedImages(images), groups)["mass", "recall_50"].tolist() == [[1, 1], [0, 0], [0, 1]]


@pytest.mark.parametrize(("words", "labels", "expected"), table("metrics/tables", "label_groups"))
def test_labels_that_are_compared_as_one_are_one_group(words: list[str], labels: str, expected: dict[str, int]) -> None:
    image = Prediction("1", 20, 20, gt=[[0, 0, 1, 1]] * len(words), gt_labels=words)
    assert {name: int(members.sum()) for name, members in label_groups([image], labels).items()} == expected

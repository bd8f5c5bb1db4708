"""Average precision against COCO's own code, against sums written out, and by hand."""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.average_precision import (
    average_precision,
    average_precision_by_label,
    jackknifed_mean_average_precision,
    mean_average_precision,
    precision_recall_curve,
    query_ap_sums,
)
from grounding_rewards.metrics.counts import image_metrics, image_sums
from grounding_rewards.metrics.evaluation import Measures, evaluate
from grounding_rewards.metrics.intervals import jackknifed_difference, ratio_estimates
from grounding_rewards.metrics.ranking import (
    COCO_AREAS,
    COCO_THRESHOLDS,
    IMAGE_AREAS,
    RankedImages,
    rank_boxes,
)
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.parsing import BrokenBox
from grounding_rewards.rewards import AveragePrecisionReward
from tests.conftest import valid_box_lists
from tests.metrics.coco_oracle import ENGINES, coco_average_precision, coco_mean_average_precision
from tests.metrics.random_images import random_images, without_confidences

HIT, HIT_TOO, JUNK = [0, 0, 10, 10], [20, 20, 30, 30], [50, 50, 60, 60]


def by_label(images: list[AnsweredImage], *args: Any, **kwargs: Any) -> RankedImages:
    return rank_boxes(images, *args, label_matching="exact", **kwargs)


@pytest.mark.parametrize("area", ["all", "small", "medium", "large"])
@pytest.mark.parametrize("seed", range(8))
def test_equal_to_pycocotools_and_faster_coco_eval(seed: int, area: str) -> None:
    # several labels, equal confidences, crowds, images without boxes; every second seed with whole numbers
    images = random_images(seed, whole_numbers=seed % 2 == 0)
    ranked = by_label(images, area=COCO_AREAS[area])
    mine = mean_average_precision(ranked)
    for engine in ENGINES:
        expected = coco_average_precision(images, area=COCO_AREAS[area], engine=engine)
        assert mine == pytest.approx(np.nanmean(list(expected.values())), abs=1e-6)
        for label, aps in expected.items():
            for t in (0, 5, 9):
                own = average_precision(ranked, COCO_THRESHOLDS[t], label=label)
                assert own == pytest.approx(aps[t], abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("max_detections", [1, 3])
def test_the_highest_scoring_boxes_are_those_of_coco(max_detections: int, engine: str) -> None:
    images = random_images(100, whole_numbers=True)
    expected = coco_mean_average_precision(images, [0.3], max_detections=max_detections, engine=engine)
    ranked = by_label(images, [0.3], max_detections=max_detections)
    assert mean_average_precision(ranked) == pytest.approx(expected, abs=1e-6)


def images_by_hand() -> list[AnsweredImage]:
    return [
        AnsweredImage(
            "a",
            100,
            100,
            gt=[[0, 0, 10, 10], [40, 40, 90, 90]],
            gt_labels=["Mass", "effusion"],
            pred=[[0, 0, 10, 9]],
            pred_labels=["mass "],
            pred_scores=[0.8],
        )
    ]


@pytest.mark.parametrize(
    ("iou_thresholds", "area", "expected"),
    [
        ([0.5, 0.95], "all", 0.25),  # of two labels and two thresholds one is found
        ([0.5], "small", 1.0),  # the mass, 100 pixels
        ([0.5, 0.95], "medium", 0.0),  # the effusion, 2500
        ([0.5, 0.95], "large", math.nan),
    ],
)
def test_metrics_by_hand_here_and_in_coco(iou_thresholds: list[float], area: str, expected: float) -> None:
    images, size = images_by_hand(), COCO_AREAS[area]
    found = [coco_mean_average_precision(images, iou_thresholds, area=size, engine=engine) for engine in ENGINES]
    found.append(mean_average_precision(by_label(images, iou_thresholds, area=size)))
    assert found == pytest.approx([expected] * 3, nan_ok=True)
    assert average_precision(by_label(images), 0.5, label="mass") == 1.0


@pytest.mark.parametrize("engine", ENGINES)
def test_labels_can_be_left_out_of_it(engine: str) -> None:
    images = random_images(0)
    expected = coco_mean_average_precision(images, [0.5], label_matching="ignore", engine=engine)
    assert average_precision(rank_boxes(images)) == pytest.approx(expected, abs=1e-6)
    assert average_precision(rank_boxes(images)) > coco_mean_average_precision(images, [0.5], engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_label_that_no_image_has_and_a_box_without_one_play_no_part(engine: str) -> None:
    image = AnsweredImage(
        "a",
        100,
        100,
        gt=[[0, 0, 10, 10]],
        gt_labels=["mass"],
        pred=[[0, 0, 10, 10], [20, 20, 30, 30], [20, 20, 30, 30]],
        pred_labels=["mass", "invented", None],
        pred_scores=[0.1, 0.9, 0.9],
    )
    assert mean_average_precision(by_label([image], [0.5])) == pytest.approx(1.0)
    assert coco_mean_average_precision([image], [0.5], engine=engine) == pytest.approx(1.0)


def of_all_points(images: list[AnsweredImage], key: Any) -> tuple[float, float]:
    """All-point and 11-point AP of one label without ignore regions: sums written out over a sorted list."""
    boxes = sorted(
        ((key(image, i), f, i) for f, image in enumerate(images) for i in range(len(image.pred))),
        key=lambda box: box[0],
    )
    free = [list(range(len(image.gt))) for image in images]
    total = sum(len(image.gt) for image in images)
    curve, right = [], 0
    for seen, (_, f, i) in enumerate(boxes, start=1):
        x1, y1, x2, y2 = images[f].pred[i]
        best, chosen = 0.5, None
        for j in free[f]:
            u1, v1, u2, v2 = images[f].gt[j]
            inter = max(0.0, min(x2, u2) - max(x1, u1)) * max(0.0, min(y2, v2) - max(y1, v1))
            iou = inter / ((x2 - x1) * (y2 - y1) + (u2 - u1) * (v2 - v1) - inter)
            if iou >= best:
                best, chosen = iou, j
        if chosen is not None:
            free[f].remove(chosen)
            right += 1
        curve.append((right / total, right / seen))

    def best_from(recall: float) -> float:
        return max((precision for reached, precision in curve if reached >= recall), default=0.0)

    levels = sorted({recall for recall, _ in curve})
    area = sum((b - a) * best_from(b) for a, b in zip([0.0, *levels], levels, strict=False))
    return area, sum(
        best_from(level) for level in np.arange(0, 1.1, 0.1)
    ) / 11  # 0.30000000000000004 in VOC's code, too


@pytest.mark.parametrize("seed", range(5))
def test_all_points_and_11_points_are_the_sums_written_out(seed: int) -> None:
    images = [replace(image, ignore=np.zeros((0, 4))) for image in random_images(seed, 12)]
    area, levels = of_all_points(images, lambda image, i: -image.pred_scores[i])
    assert average_precision(rank_boxes(images), interpolation="all") == pytest.approx(area, abs=1e-12)
    assert average_precision(rank_boxes(images), interpolation="11") == pytest.approx(levels, abs=1e-12)


def two_images() -> list[AnsweredImage]:
    """By hand: image one has two findings and names hit, junk; image two has one and names junk, hit."""
    return [
        AnsweredImage("one", 100, 100, gt=[HIT, HIT_TOO], gt_labels=["mass", "mass"], pred=[HIT, JUNK]),
        AnsweredImage("two", 100, 100, gt=[HIT], gt_labels=["mass"], pred=[JUNK, HIT]),
    ]


@pytest.mark.parametrize(
    ("ranking", "interpolation", "expected"),
    [
        # tied: precision 2/4 at recall 2/3
        ("tied", "all", 2 / 4 * 2 / 3),
        ("tied", "101", 67 / 101 * 2 / 4),  # levels 0.00 … 0.66
        ("tied", "11", 7 / 11 * 2 / 4),  # levels 0.0 … 0.6
        # first boxes: one right of two, recall 1/3; then two of four, recall 2/3: precision 1/2 at both
        ("emission", "all", 1 / 2 * 2 / 3),
        # no confidence is stated: as tied
        ("score", "all", 2 / 4 * 2 / 3),
    ],
)
def test_answers_without_confidences_by_hand(ranking: str, interpolation: str, expected: float) -> None:
    ranked = rank_boxes(two_images(), ranking=ranking)
    assert average_precision(ranked, interpolation=interpolation) == pytest.approx(expected)


def test_boxes_without_a_confidence_come_after_all_others_as_one_group() -> None:
    # by hand: a right box at 0.2, then one right of two: 1/3 at precision 1, 1/3 at precision 2/3
    one = AnsweredImage("one", 100, 100, gt=[HIT, HIT_TOO], gt_labels=["", ""], pred=[HIT_TOO], pred_scores=[0.2])
    two = AnsweredImage("two", 100, 100, gt=[HIT], gt_labels=[""], pred=[JUNK, HIT])
    expected = 1 / 3 + 1 / 3 * 2 / 3
    for images in ([one, two], [two, one]):
        assert average_precision(rank_boxes(images), interpolation="all") == pytest.approx(expected)


@pytest.mark.parametrize("ranking", ["emission", "tied"])
@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_images_changes_nothing_without_confidences(seed: int, ranking: str) -> None:
    images = without_confidences(random_images(seed))
    turned = images[::-1]
    for thresholds in ([0.5], COCO_THRESHOLDS):
        one, other = (
            mean_average_precision(by_label(order, thresholds, ranking=ranking)) for order in (images, turned)
        )
        assert one == pytest.approx(other, abs=1e-12)


@given(valid_box_lists(max_size=6), valid_box_lists(min_size=1, max_size=4))
def test_tied_ap_of_one_image_is_the_reward_r1(pred: list[list[float]], gt: list[list[float]]) -> None:
    # without ignored regions, of which AP has COCO's rule: there one excuses any number
    image = AnsweredImage("a", 30, 30, gt=gt, gt_labels=[""] * len(gt), pred=pred)
    reward = AveragePrecisionReward(ranking="tied").score(np.reshape(pred, (-1, 4)), gt)
    ranked = rank_boxes([image], ranking="tied")
    assert average_precision(ranked, interpolation="all") == pytest.approx(reward, abs=1e-12)


@given(valid_box_lists(max_size=6), valid_box_lists(min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_tied_ap_does_not_depend_on_the_order_of_boxes(
    pred: list[list[float]], gt: list[list[float]], random: Any
) -> None:
    mixed = random.sample(pred, len(pred))
    first, second = (AnsweredImage("a", 30, 30, gt=gt, gt_labels=[""] * len(gt), pred=boxes) for boxes in (pred, mixed))
    found = [average_precision(rank_boxes([image], ranking="tied")) for image in (first, second)]
    # equal overlaps are settled by the order in which the answer names them, which may cost a match
    ious = pairwise_iou(np.reshape(pred, (-1, 4)), gt).max(axis=1)
    if len(set(ious.tolist())) == len(ious):
        assert found[0] == found[1]


def test_broken_boxes_count_as_false_ones() -> None:
    truth: dict[str, Any] = {"gt": [HIT], "gt_labels": ["mass"], "pred": [HIT], "pred_labels": ["mass"]}
    before, after = (AnsweredImage("a", 100, 100, **truth, broken=(BrokenBox(place, "mass"),)) for place in (0, 1))
    for image in (before, after):
        assert average_precision(rank_boxes([image], ranking="tied"), interpolation="all") == 0.5
    # in the order of the answer, and under its own label
    for image, expected in ((before, 0.5), (after, 1.0)):
        assert average_precision(rank_boxes([image], ranking="emission"), interpolation="all") == expected
        ranked = by_label([image], ranking="emission")
        assert average_precision(ranked, label="mass", interpolation="all") == expected
        assert AnsweredImage.of_json(image.as_json()).broken == image.broken


def test_invalid_boxes_are_false_ones_here_and_in_coco() -> None:
    broken = [[5.0, 5.0, 0.0, 0.0], [math.nan, 0, 1, 1], [0, 0, math.inf, 5], [3.0, 3.0, 3.0, 9.0]]
    image = AnsweredImage(
        "a",
        100,
        100,
        gt=[HIT],
        gt_labels=["mass"],
        pred=[*broken, HIT],
        pred_labels=["mass"] * 5,
        pred_scores=[0.9, 0.9, 0.9, 0.9, 0.1],
    )
    assert average_precision(by_label([image]), label="mass") == pytest.approx(1 / 5)
    for engine in ENGINES:
        assert coco_mean_average_precision([image], [0.5], engine=engine) == pytest.approx(1 / 5)


def test_synonyms_match_unless_their_sides_contradict() -> None:
    image = AnsweredImage(
        "a",
        100,
        100,
        gt=[HIT, HIT_TOO],
        gt_labels=["left pleural effusion", "Cardiomegaly"],
        pred=[HIT, HIT_TOO],
        pred_labels=["Effusion", "enlarged heart"],
        pred_scores=[0.5, 0.5],
    )
    assert mean_average_precision(rank_boxes([image], [0.5], label_matching="synonyms")) == 1.0
    assert mean_average_precision(rank_boxes([image], [0.5], label_matching="exact")) == 0.0
    contradicted = replace(image, pred_labels=("right effusion", "enlarged heart"))
    ranked = rank_boxes([contradicted], [0.5], label_matching="synonyms")
    found = average_precision_by_label(ranked)
    assert {name: one.value for name, one in found.items()} == {"cardiomegaly": 1.0, "pleural effusion": 0.0}


@pytest.mark.parametrize("ranking", ["score", "emission", "tied"])
@pytest.mark.parametrize("interpolation", ["101", "all", "11"])
def test_leaving_out_a_patient_is_taking_the_metric_of_the_others(ranking: str, interpolation: str) -> None:
    images = random_images(3, 8)
    if ranking == "score":
        # Of equal confidences COCO takes one image's after another's, so that two copies of an image don't come
        # together.
        places = iter(np.random.default_rng(0).permutation(100) / 100)
        images = [replace(image, pred_scores=[next(places) for _ in image.pred]) for image in images]
    else:
        images = without_confidences(images)
    found = jackknifed_mean_average_precision(
        by_label(images, [0.3, 0.5], ranking=ranking),
        interpolation=interpolation,
        groups=[image.patient for image in images],
    )
    for k, value in enumerate(found.left_out):
        others = [image for i, image in enumerate(images) if i // 2 != k]
        expected = mean_average_precision(by_label(others, [0.3, 0.5], ranking=ranking), interpolation=interpolation)
        assert value == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_two_runs_are_compared_patient_by_patient() -> None:
    before = random_images(5, 30)
    after = [
        replace(image, pred=image.gt, pred_labels=image.gt_labels, pred_scores=np.ones(len(image.gt)))
        for image in before
    ]
    a, b = (jackknifed_mean_average_precision(by_label(images, [0.5])) for images in (before, after))
    change = jackknifed_difference(a, b).estimate
    assert b.value == 1.0
    assert change.value == 1 - a.value
    assert 0 < change.low < change.value < change.high < 1


def test_the_mean_of_the_curve_is_the_average_precision() -> None:
    images = random_images(1)
    ranked = rank_boxes(images)
    curve = precision_recall_curve(ranked, name="all", resamples=50)
    assert curve.name == "all"
    assert curve.y.mean() == pytest.approx(average_precision(ranked))
    assert curve.low is not None
    assert curve.high is not None
    assert (curve.low <= curve.high).all()
    assert (np.diff(curve.y) <= 0).all()
    tied = precision_recall_curve(rank_boxes(images, ranking="tied"), resamples=50)
    assert [len(part) for part in tied[1:] if part is not None] == [1, 1, 1, 1]


def test_sizes_are_parts_of_the_image_or_pixels() -> None:
    small, large = [0, 0, 9, 10], [40, 40, 90, 90]  # 0.9 % and 25 % of the image
    image = AnsweredImage("a", 100, 100, gt=[small, large], gt_labels=["", ""], pred=[large], pred_scores=[0.5])
    assert [average_precision(rank_boxes([image], area=area)) for area in IMAGE_AREAS.values()] == pytest.approx(
        [0.0, math.nan, 1.0], nan_ok=True
    )


@pytest.mark.parametrize(
    "images",
    [
        [],
        [AnsweredImage("a", 10, 10)],  # normal, and the answer says so
        [
            AnsweredImage("a", 10, 10, pred=[[0, 0, 5, 5]], pred_scores=[0.5], pred_labels=["mass"])
        ],  # normal, with a box
    ],
)
def test_without_a_reference_box_there_is_no_metric(images: list[AnsweredImage]) -> None:
    assert math.isnan(average_precision(rank_boxes(images)))
    assert math.isnan(mean_average_precision(by_label(images)))
    assert math.isnan(coco_mean_average_precision(images))
    assert all(map(math.isnan, jackknifed_mean_average_precision(by_label(images)).estimate))
    assert average_precision_by_label(by_label(images)) == {}
    assert len(precision_recall_curve(rank_boxes(images)).x) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"iou_thresholds": [0.0]}, r"numbers in \(0, 1\] for the IoU thresholds, got \[0.0\]"),
        ({"ranking": "iou"}, "known word for `ranking`, got 'iou'. Use one of: score, emission, tied"),
        ({"label_matching": "fuzzy"}, "known word for `label_matching`, got 'fuzzy'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"Expected a? ?{message}"):
        rank_boxes(random_images(0, 2), **arguments)


@pytest.mark.parametrize(
    ("label_matching", "arguments", "message"),
    [
        ("ignore", {"label": "mass"}, "label for `label` .* got 'mass' with label_matching='ignore'"),
        ("exact", {}, "label for `label` .* got None with label_matching='exact'"),
        ("ignore", {"interpolation": "7"}, "known word for `interpolation`, got '7'"),
        ("ignore", {"iou_threshold": 0.3}, r"one of \[0.5, 0.9\] for the IoU threshold, got 0.3"),
    ],
)
def test_wrong_questions_are_refused(label_matching: str, arguments: dict[str, Any], message: str) -> None:
    ranked = rank_boxes(random_images(0, 2), [0.5, 0.9], label_matching=label_matching)
    with pytest.raises(ValueError, match=f"Expected a? ?{message}"):
        average_precision(ranked, **arguments)


def test_all_boxes_together_and_the_mean_over_labels_are_two_metrics() -> None:
    images = random_images(0)
    assert average_precision(rank_boxes(images)) != mean_average_precision(by_label(images), [0.5])


def test_a_blank_reference_label_is_refused_where_labels_are_compared() -> None:
    image = AnsweredImage("a", 10, 10, gt=[[0, 0, 5, 5]], gt_labels=[" "])
    assert average_precision(rank_boxes([image])) == 0.0
    with pytest.raises(ValueError, match="Expected a label for every reference box"):
        by_label([image])


@pytest.mark.parametrize("source", ["nih_chestxray14", "chestx_det"])
def test_equal_to_coco_on_real_annotations(source: str, shared_dir: Path) -> None:
    """Real boxes and labels; predictions are the boxes moved by a tenth of their size, some left out, some invented."""
    folder = shared_dir / "data" / "annotations" / source
    rng = np.random.default_rng(0)
    images = []
    for name, (boxes, labels) in (_nih(folder) if source.startswith("nih") else _chestx_det(folder)).items():
        gt = np.array(boxes, dtype=float).reshape(-1, 4)
        side = np.tile(gt[:, 2:] - gt[:, :2], 2)
        pred = np.concatenate([gt + rng.normal(0, 0.1, gt.shape) * side, rng.permutation(gt)[:1] * 0.9])
        pred_labels = [*labels, *labels[:1]]
        kept = rng.random(len(pred)) < 0.8
        images.append(
            AnsweredImage(
                name,
                1024,
                1024,
                gt=gt,
                gt_labels=labels,
                pred=pred[kept],
                pred_labels=[label for label, keep in zip(pred_labels, kept, strict=True) if keep],
                pred_scores=rng.integers(0, 21, kept.sum()) / 20,
            )
        )
    ranked = by_label(images)
    for engine in ENGINES:
        metrics = coco_average_precision(images, engine=engine)
        expected = np.mean(list(metrics.values()))
        assert 0.05 < expected < 0.95
        assert mean_average_precision(ranked) == pytest.approx(expected, abs=1e-6)
        for label, aps in metrics.items():
            for threshold in (0.5, 0.75):
                t = int(np.argmin(np.abs(np.array(COCO_THRESHOLDS) - threshold)))
                assert average_precision(ranked, threshold, label=label) == pytest.approx(aps[t], abs=1e-6)


def _nih(folder: Path) -> dict[str, tuple[list[list[float]], list[str]]]:
    images: dict[str, tuple[list[list[float]], list[str]]] = defaultdict(lambda: ([], []))
    with (folder / "BBox_List_2017.csv").open(encoding="utf-8") as file:
        for row in list(csv.reader(file))[1:]:
            x, y, w, h = map(float, row[2:6])
            images[row[0]][0].append([x, y, x + w, y + h])
            images[row[0]][1].append(row[1])
    return images


def _chestx_det(folder: Path) -> dict[str, tuple[list[list[float]], list[str]]]:
    records = json.loads((folder / "ChestX_Det_test.sample.json").read_text(encoding="utf-8"))
    return {record["file_name"]: (record["boxes"], record["syms"]) for record in records}


@pytest.mark.parametrize("label_matching", ["exact", "ignore"])
def test_several_sets_of_thresholds_of_one_ranking(label_matching: str) -> None:
    images = random_images(4)
    groups = [image.patient for image in images]
    ranked = rank_boxes(images, sorted({0.3, *COCO_THRESHOLDS}), label_matching=label_matching)
    for thresholds in ((0.3,), (0.5,), COCO_THRESHOLDS):
        found = jackknifed_mean_average_precision(ranked, thresholds, groups=groups)
        alone = jackknifed_mean_average_precision(
            rank_boxes(images, thresholds, label_matching=label_matching), groups=groups
        )
        assert found.value == pytest.approx(alone.value, abs=1e-12)
        assert found.left_out == pytest.approx(alone.left_out, abs=1e-12, nan_ok=True)


def test_many_labels_of_one_image_each() -> None:
    """The mean over labels is that of the labels one by one, without an image those of the others."""
    images = [
        replace(image, gt_labels=tuple(f"{k} {one}" for one in image.gt_labels), pred_labels=image.gt_labels[:0])
        for k, image in enumerate(random_images(8, 12))
    ]
    images = [
        replace(image, pred=image.gt, pred_labels=image.gt_labels, pred_scores=np.ones(len(image.gt)))
        if k % 2
        else replace(image, pred=[], pred_labels=(), pred_scores=[])
        for k, image in enumerate(images)
    ]
    found = jackknifed_mean_average_precision(by_label(images, [0.5]))
    number = np.array([len(set(image.gt_labels)) for image in images])
    right = number * (np.arange(len(images)) % 2)
    others = 1 - np.eye(len(images))
    assert found.value == pytest.approx(right.sum() / number.sum())
    assert found.left_out == pytest.approx((others @ right) / (others @ number))


def tied_images(hits: Sequence[bool], confidence: float = 0.5) -> list[AnsweredImage]:
    """An image with one finding each, and one box of equal confidence that is right or not."""
    return [
        AnsweredImage(
            f"{k}",
            100,
            100,
            gt=[[0, 0, 10, 10]],
            gt_labels=["mass"],
            pred=[[0, 0, 10, 10] if hit else [50, 50, 60, 60]],
            pred_scores=[confidence],
        )
        for k, hit in enumerate(hits)
    ]


@pytest.mark.parametrize(
    ("hits", "in_order"),
    [
        ([True, False], 0.5),  # recall 1/2 at precision 1
        ([False, True], 0.25),  # at precision 1/2
        ([True, True, False, False], 0.5),
        ([False, False, True, True], 0.25),  # recalls 1/4 and 1/2, both at precision 2/4 at best
    ],
)
def test_equal_confidences_are_taken_in_the_order_of_images_or_together(hits: list[bool], in_order: float) -> None:
    ranked = rank_boxes(tied_images(hits), [0.5])
    assert average_precision(ranked, 0.5, interpolation="all") == in_order


A, B, C, FAR = [0, 0, 10, 10], [20, 0, 30, 10], [40, 0, 50, 10], [80, 80, 90, 90]


def asked(gt: Any, pred: Any, **others: Any) -> AnsweredImage:
    """Boxes and their labels."""
    return AnsweredImage(
        "a",
        100,
        100,
        gt=[box for box, _ in gt],
        gt_labels=[label for _, label in gt],
        pred=[box for box, _ in pred],
        pred_labels=[label for _, label in pred],
        **others,
    )


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        # one right box is all there is
        (asked([(A, "mass")], [(A, "mass")]), (1, 1)),
        # precision at the right box is 1/2; whether a box follows makes no difference
        (asked([(A, "mass")], [(FAR, "mass"), (A, "mass"), (FAR, "mass")]), (1 / 2, 1)),
        # of two findings of one name the first and the third box are right: (1 + 2/3) / 2
        (asked([(A, "mass"), (B, "mass")], [(A, "mass"), (FAR, "mass"), (B, "mass")]), (5 / 6, 1)),
        # a hit after two misses raises what is before it: 1/3 and 2/4, of which the better one counts for both
        (
            asked([(A, "mass"), (B, "mass")], [(FAR, "mass"), (FAR, "mass"), (A, "mass"), (B, "mass")]),
            ((2 / 4 + 2 / 4) / 2, 1),
        ),
        # two queries; boxes of one are nothing to the other, and a box under another name is right for neither
        (asked([(A, "mass"), (B, "nodule")], [(FAR, "nodule"), (B, "mass"), (A, "Mass ")]), (1 / 2, 2)),
        # a finding without a box earns 0
        (asked([(A, "mass"), (B, "nodule")], [(A, "mass")]), (1, 2)),
        # confidences play no part
        (asked([(A, "mass")], [(FAR, "mass"), (A, "mass")], pred_scores=[0.1, 0.9]), (1 / 2, 1)),
        # a finding that is not there is no query, and a normal image asks nothing
        (asked([(A, "mass")], [(A, "mass"), (B, "nodule")]), (1, 1)),
        (asked([], [(A, "mass")]), (0, 0)),
        # boxes without a name answer the only query, but not one of two
        (asked([(A, "mass"), (B, "mass")], [(A, None), (B, None)]), (1, 1)),
        (asked([(A, "mass"), (B, "nodule")], [(A, None), (B, "nodule")]), (1, 2)),
        # a box in an ignored region is none
        (asked([(A, "mass")], [(FAR, "mass"), (A, "mass")], ignore=[FAR]), (1, 1)),
        # a dataset that names nothing: the image is the query
        (asked([(A, "finding"), (B, "finding")], [(A, "mass"), (FAR, "x"), (B, None)]), (5 / 6, 1)),
        # each finding is found once: the second box on it is a miss
        (asked([(A, "mass"), (B, "mass")], [(A, "mass"), (A, "mass"), (B, "mass")]), (5 / 6, 1)),
    ],
)
def test_query_ap_by_hand(one: AnsweredImage, expected: tuple[float, float]) -> None:
    assert query_ap_sums([one])[0] == pytest.approx(expected)


def test_synonyms_answer_a_query_where_they_are_asked_for() -> None:
    one = asked([(A, "pleural effusion"), (B, "mass")], [(A, "effusion")])
    assert [query_ap_sums([one], label_matching=words)[0, 0] for words in ("ignore", "exact", "synonyms")] == [0, 0, 1]


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_mean_of_the_ap_of_each_query_alone(seed: int) -> None:
    images = [replace(one, ignore=[]) for one in random_images(seed, 30)]
    aps = []
    for one in images:
        for label in dict.fromkeys(one.gt_labels):
            ranked = rank_boxes([one], [0.5], ranking="emission", label_matching="exact")
            aps.append(average_precision(ranked, 0.5, label=label, interpolation="all"))
    total, queries = query_ap_sums(images).sum(axis=0)
    assert queries == len(aps)
    if all(all(one.pred_labels) for one in images):
        assert total == pytest.approx(sum(aps))
    else:
        assert total >= sum(aps) - 1e-9


def test_it_is_among_the_metrics_of_an_evaluation_and_of_two_runs() -> None:
    images = [
        asked([(A, "mass"), (B, "nodule")], [(FAR, "mass"), (A, "mass")], rewards={"R4": 0.5}),
        replace(asked([], [(C, "mass")], rewards={"R4": 0.0}), id="b"),
    ]
    assert ratio_estimates(image_sums(images))["query_ap_50"].value == 0.25
    assert image_metrics(images)["query_ap_50"].heading == "per-query AP@0.5 in writing order"
    found = evaluate({"model": images}, Measures("R4", resamples=5))
    assert found.systems["model"]["query_ap_50"].value == 0.25
    assert "arXiv 2512.10691" in found.metrics["query_ap_50"].definition
    normal = evaluate({"model": images[1:]}, Measures("R4", resamples=5))
    assert "query_ap_50" not in normal.metrics
    assert math.isnan(ratio_estimates(image_sums(images[1:]))["query_ap_50"].value)

"""Average precision against COCO's own code, against sums written out, and by hand."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from grounding_rewards.metrics import average_precision as metric
from grounding_rewards.metrics.average_precision import COCO_THRESHOLDS, RankedImages, query_ap_sums, rank_boxes
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.parsing import BrokenBox
from grounding_rewards.rewards import AveragePrecisionReward
from tests.conftest import valid_box_lists
from tests.metrics.coco_oracle import ENGINES, coco_average_precision, coco_mean_average_precision
from tests.metrics.random_images import labelled, random_images, without_confidences
from tests.metrics.rankings import average_precision, mean_average_precision
from tests.tables import table

HIT, HIT_TOO, JUNK = [0, 0, 10, 10], [20, 20, 30, 30], [50, 50, 60, 60]


def by_label(images: list[Prediction], *args: Any, **kwargs: Any) -> RankedImages:
    return rank_boxes(images, *args, label_matching="exact", **kwargs)


@pytest.mark.parametrize("seed", range(8))
def test_equal_to_pycocotools_and_faster_coco_eval(seed: int) -> None:
    # several labels, equal confidences, crowds, images without boxes; every second seed with whole numbers
    images = random_images(seed, whole_numbers=seed % 2 == 0)
    ranked = by_label(images, ranking="coco")
    mine = mean_average_precision(ranked)
    for engine in ENGINES:
        expected = coco_average_precision(images, engine=engine)
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
    ranked = by_label(images, [0.3], max_detections=max_detections, ranking="coco")
    assert mean_average_precision(ranked) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_absent_labels_and_unlabelled_boxes_play_no_part(engine: str) -> None:
    pred = [(HIT, "mass"), (HIT_TOO, "invented"), (HIT_TOO, None)]
    image = labelled([(HIT, "mass")], pred, pred_scores=[0.1, 0.9, 0.9])
    assert mean_average_precision(by_label([image], [0.5])) == pytest.approx(1.0)
    assert coco_mean_average_precision([image], [0.5], engine=engine) == pytest.approx(1.0)


def test_thresholds_are_found_but_for_the_last_bit_and_others_are_named() -> None:
    ranked = rank_boxes(two_images())
    assert average_precision(ranked, 0.9) == average_precision(ranked, 0.95)
    with pytest.raises(ValueError, match=r"Expected one of \[0.5, .*\] for the IoU threshold, got 0.3. Name it in"):
        average_precision(ranked, 0.3)


def two_images() -> list[Prediction]:
    """By hand: image one has two findings and names hit, junk; image two has one and names junk, hit."""
    return [
        Prediction("one", 100, 100, gt=[HIT, HIT_TOO], gt_labels=["mass", "mass"], pred=[HIT, JUNK]),
        Prediction("two", 100, 100, gt=[HIT], gt_labels=["mass"], pred=[JUNK, HIT]),
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


@given(valid_box_lists(max_size=6), valid_box_lists(min_size=1, max_size=4))
def test_tied_ap_of_one_image_is_the_reward_r1(pred: list[list[float]], gt: list[list[float]]) -> None:
    # without ignored regions, of which AP has COCO's rule: there one excuses any number
    image = Prediction("a", 30, 30, gt=gt, gt_labels=[""] * len(gt), pred=pred)
    reward = AveragePrecisionReward(ranking="tied").score(np.reshape(pred, (-1, 4)), gt)
    ranked = rank_boxes([image], ranking="tied")
    assert average_precision(ranked, interpolation="all") == pytest.approx(reward, abs=1e-12)


def test_broken_boxes_count_as_false_ones() -> None:
    truth: dict[str, Any] = {"gt": [HIT], "gt_labels": ["mass"], "pred": [HIT], "pred_labels": ["mass"]}
    before, after = (Prediction("a", 100, 100, **truth, broken=(BrokenBox(place, "mass"),)) for place in (0, 1))
    for image in (before, after):
        assert average_precision(rank_boxes([image], ranking="tied"), interpolation="all") == 0.5
    # in the order of the answer, and under its own label
    for image, expected in ((before, 0.5), (after, 1.0)):
        assert average_precision(rank_boxes([image], ranking="emission"), interpolation="all") == expected
        assert average_precision(by_label([image], ranking="emission"), label="mass", interpolation="all") == expected
        assert Prediction.of_json(image.as_json()).broken == image.broken


def test_invalid_boxes_are_false_ones_here_and_in_coco() -> None:
    broken = [[5.0, 5.0, 0.0, 0.0], [math.nan, 0, 1, 1], [0, 0, math.inf, 5], [3.0, 3.0, 3.0, 9.0]]
    pred = [(box, "mass") for box in (*broken, HIT)]
    image = labelled([(HIT, "mass")], pred, pred_scores=[0.9, 0.9, 0.9, 0.9, 0.1])
    assert average_precision(by_label([image]), label="mass") == pytest.approx(1 / 5)
    for engine in ENGINES:
        assert coco_mean_average_precision([image], [0.5], engine=engine) == pytest.approx(1 / 5)


def test_synonyms_match_unless_their_sides_contradict() -> None:
    gt = [(HIT, "left pleural effusion"), (HIT_TOO, "Cardiomegaly")]
    image = labelled(gt, [(HIT, "Effusion"), (HIT_TOO, "enlarged heart")], pred_scores=[0.5, 0.5])
    assert mean_average_precision(rank_boxes([image], [0.5], label_matching="synonyms")) == 1.0
    assert mean_average_precision(rank_boxes([image], [0.5], label_matching="exact")) == 0.0
    contradicted = replace(image, pred_labels=("right effusion", "enlarged heart"))
    ranked = rank_boxes([contradicted], [0.5], label_matching="synonyms")
    found = {name: average_precision(ranked, label=name) for name in ranked.by_label}
    assert found == {"cardiomegaly": 1.0, "pleural effusion": 0.0}


def test_equal_confidences_are_one_group() -> None:
    """The order of the images changes nothing; COCO takes them as they come."""
    box = {"gt": [[0, 0, 10, 10]], "gt_labels": ["mass"], "pred_scores": [0.9]}
    hits = [Prediction(f"hit {k}", 99, 99, **box, pred=[[0, 0, 10, 10]]) for k in range(20)]
    misses = [Prediction(f"miss {k}", 99, 99, **box, pred=[[50, 50, 60, 60]]) for k in range(20)]
    orders = [hits + misses, misses + hits, [one for pair in zip(hits, misses, strict=True) for one in pair]]
    # By hand: half of all findings at a precision of one half, as if all were tied.
    assert [average_precision(rank_boxes(images), interpolation="all") for images in orders] == [0.25] * 3
    coco = [average_precision(rank_boxes(images, ranking="coco"), interpolation="all") for images in orders]
    assert coco[0] == 0.5
    assert coco[1] == pytest.approx(0.25)
    # Without equal confidences both are the same.
    images = [replace(one, pred_scores=[k / 40]) for k, one in enumerate(orders[2])]
    assert average_precision(rank_boxes(images)) == average_precision(rank_boxes(images, ranking="coco"))


@pytest.mark.parametrize("ranking", ["score", "coco", "emission", "tied"])
@pytest.mark.parametrize("interpolation", ["101", "all", "11"])
def test_jackknife_equals_metric_without_the_patient(ranking: str, interpolation: str) -> None:
    images = random_images(3, 8)
    if ranking == "coco":
        # Of equal confidences COCO takes one image's after another's, so that two copies of an image don't come
        # together.
        places = iter(np.random.default_rng(0).permutation(100) / 100)
        images = [replace(image, pred_scores=[next(places) for _ in image.pred]) for image in images]
    elif ranking != "score":
        images = without_confidences(images)
    ranked, patients = by_label(images, [0.3, 0.5], ranking=ranking), [image.patient for image in images]
    found = metric.mean_average_precision(ranked, interpolation=interpolation, groups=patients)
    for k, value in enumerate(found.left_out):
        others = [image for i, image in enumerate(images) if i // 2 != k]
        expected = mean_average_precision(by_label(others, [0.3, 0.5], ranking=ranking), interpolation=interpolation)
        assert value == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_a_blank_reference_label_is_refused_where_labels_are_compared() -> None:
    image = Prediction("a", 10, 10, gt=[[0, 0, 5, 5]], gt_labels=[" "])
    assert average_precision(rank_boxes([image])) == 0.0
    with pytest.raises(ValueError, match="Expected a label for every reference box"):
        by_label([image])


A, B, FAR = [0, 0, 10, 10], [20, 0, 30, 10], [80, 80, 90, 90]


@pytest.mark.parametrize(("gt", "pred", "others", "expected"), table("metrics/tables", "queries"))
def test_query_ap_by_hand(gt: Any, pred: Any, others: dict[str, Any], expected: list[float]) -> None:
    boxes = {"A": A, "B": B, "FAR": FAR}
    answers = [(boxes[box], label) for box, label in pred]
    others = {**others, "ignore": [boxes[box] for box in others.get("ignore", ())]}
    image = labelled([(boxes[box], label) for box, label in gt], answers, **others)
    assert query_ap_sums([image])[0] == pytest.approx(expected)


def test_synonyms_answer_a_query_where_they_are_asked_for() -> None:
    one = labelled([(A, "pleural effusion"), (B, "mass")], [(A, "effusion")])
    assert [query_ap_sums([one], label_matching=words)[0, 0] for words in ("ignore", "exact", "synonyms")] == [0, 0, 1]

"""Everything that an evaluation says, from images by hand."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from grounding_rewards.metrics.average_precision import rank_boxes
from grounding_rewards.metrics.detection import MatchedImages
from grounding_rewards.metrics.evaluation import Evaluation, Measures, evaluate, write_evaluation
from grounding_rewards.metrics.intervals import jackknifed_ratio, sum_by_group
from grounding_rewards.metrics.prediction import Prediction, patients_of
from tests.metrics.random_images import random_images, without_confidences
from tests.metrics.rankings import average_precision

MEASURES = Measures("R3")


def image(name: str, **changes: Any) -> Prediction:
    given: dict[str, Any] = {"gt": [[0, 0, 40, 40]], "gt_labels": ["mass"], "pred": [[0, 0, 40, 32]]}
    return Prediction(name, 100, 100, **{**given, "rewards": {"R1": 1.0, "R3": 0.8}, **changes})


def test_quoted_metrics_come_first() -> None:
    images = [image(name, pred_labels=["mass"]) for name in "ac"] + [Prediction("b", 9, 9, rewards={"R3": 0.2})]
    found = evaluate({"model": images}, MEASURES)
    assert list(found.headings)[:5] == ["reward_R3", "mean_iou", "image_dependence", "f1_50", "hallucination_rate"]
    assert found.headings["map_50"] == "mAP at IoU 0.5, boxes tied"
    assert set(found.headings) == set(found.metrics) == set(found.systems["model"])
    assert found.metrics["hallucination_rate"].lower_is_better


def test_confidences_bring_the_metrics_of_coco_and_froc() -> None:
    images = random_images(0, 40)
    found = evaluate({"model": images, "same, unsure": without_confidences(images)}, MEASURES)
    metrics = found.systems["model"]
    assert found.headings["ap_50"] == "AP at IoU 0.5"
    assert metrics["ap_50"].low <= metrics["ap_50"].value <= metrics["ap_50"].high
    assert found.systems["same, unsure"]["ap_50"].value != metrics["ap_50"].value
    shown = [metrics[f"sensitivity_{rate:g}"].value for rate in (0.125, 0.25, 0.5, 1)]
    # the FROC score is the mean over seven rates
    assert np.mean(shown) < metrics["froc"].value


def test_intervals_are_over_patients() -> None:
    images = [image(str(i), patient="p" if i < 6 else None, pred=[[0, 0, 40, 8 + 4 * i]]) for i in range(8)]
    found = evaluate({"model": images}, Measures("R3")).systems["model"]
    sums = sum_by_group(MatchedImages(images).sums()["mean_iou"], patients_of(images))
    assert len(sums) == 3
    assert found["mean_iou"] == pytest.approx(jackknifed_ratio(sums).estimate)


def test_labels_of_answers_that_state_them() -> None:
    images = [
        image("a", pred_labels=["mass"]),
        # a right place under another label is a false nodule and a missed mass
        image("b", pred_labels=["nodule"]),
        image("c", gt_labels=["nodule"], pred_labels=["nodule"]),
    ]
    rows = {f"{group.name} ({group.boxes})": group.metrics for group in evaluate({"model": images}, MEASURES).per_label}
    assert list(rows) == ["mass (2)", "nodule (1)"]
    assert rows["mass (2)"]["recall_50"].value == 0.5
    assert rows["nodule (1)"]["precision_50"].value == 0.5
    assert rows["mass (2)"]["ap_50"].value == pytest.approx(51 / 101)  # recall 0.5 at precision 1, read at 51 levels


def test_other_thresholds() -> None:
    images = random_images(2, 40)
    found = evaluate({"model": images}, Measures("R3", iou_thresholds=(0.2, 0.5)))
    assert found.systems["model"]["ap_20"].value == average_precision(rank_boxes(images, [0.2]), 0.2)
    assert {"ap_20", "ap_50", "ap_50_95", "map_20"} <= set(found.headings)


@pytest.mark.parametrize(
    "images",
    [
        [],
        [Prediction("a", 9, 9, status="empty", rewards={"R3": 0.2})],
        [Prediction("a", 9, 9, status="unparseable", rewards={"R3": 0.0})],
        [Prediction("a", 9, 9, pred=[[5, 5, 1, 1]], rewards={"R3": 0.0})],
        [Prediction("a", 9, 9, gt=[[1, 1, 2, 2]], gt_labels=["x"], status="empty", rewards={"R3": 0.0})],
    ],
    ids=["no image", "rightly empty", "not read", "an invalid box", "all missed"],
)
def test_nothing_to_measure_is_no_error(images: list[Prediction]) -> None:
    assert json.dumps(evaluate({"model": images}, MEASURES).to_dict(), allow_nan=False)


def test_metrics_as_json(tmp_path: Any) -> None:
    found: Evaluation = evaluate({"model": [image("a")]}, MEASURES)
    write_evaluation(tmp_path, found)
    read = json.loads((tmp_path / "evaluation.json").read_text(encoding="utf-8"))
    assert read["systems"]["model"]["mean_iou"] == {"value": 0.8, "low": 0.0, "high": 1.0}
    assert read["facts"]["images"] == 1
    assert read["facts"] == found.facts
    assert read["robustness"] == []


@pytest.mark.parametrize("rule", ["exact", "synonyms"])
def test_every_box_metric_follows_the_label_rule(rule: str) -> None:
    """Both lungs in the right place and both called left: one of two is right, in every metric but the areas."""
    lungs = {"gt": [[0, 0, 40, 90], [60, 0, 100, 90]], "gt_labels": ["right lung", "left lung"]}
    answer = {"pred": lungs["gt"], "pred_labels": ["left lung"] * 2, "pred_scores": [0.9, 0.8]}
    images = [Prediction(name, 100, 100, **lungs, **answer, rewards={"R3": 1.0}) for name in "abc"]
    found, aside = (evaluate({"model": images}, Measures("R3", rule)) for rule in (rule, "ignore"))
    one, other = found.systems["model"], aside.systems["model"]
    for key in ("f1_50", "mean_iou", "recall_50", "sensitivity_1"):
        assert (one[key].value, other[key].value) == (0.5, 1), key
    # At less than one false box per image nothing is found: the wrong box has the higher confidence.
    assert (one["froc"].value, other["froc"].value) == (pytest.approx(4 / 7 * 0.5), 1)
    assert one["ap_50"].value == pytest.approx(0.5 * 51 / 101)
    assert one["false_per_film"].value == 1
    # Of boxes in the right place, whatever decides what is right: not 1 by construction.
    assert one["label_accuracy"].value == other["label_accuracy"].value == 0.5
    assert "each right only under" in found.metrics["ap_50"].definition
    assert "whatever their label" in aside.metrics["ap_50"].definition


def test_metrics_of_each_source_are_those_of_its_images_alone() -> None:
    clinic = [image("a", source="clinic", patient="p"), Prediction("b", 9, 9, rewards={"R3": 0.2}, source="clinic")]
    # a miss, and an image that does not say where it is from
    others = [image("c", pred=[], rewards={"R3": 0.0}, source="abroad"), image("d")]
    found = evaluate({"model": [*clinic, *others]}, MEASURES)
    assert [(group.name, group.boxes) for group in found.per_source] == [("abroad", 1), ("clinic", 1), ("not known", 1)]
    abroad, own, _ = found.per_source
    alone = evaluate({"model": clinic}, MEASURES)
    assert own.metrics["mean_iou"] == alone.systems["model"]["mean_iou"]
    assert own.metrics["reward_R3"] == alone.systems["model"]["reward_R3"]
    assert (own.metrics["recall_50"].value, abroad.metrics["recall_50"].value) == (1, 0)
    assert own.metrics["hallucination_rate"].value == 0
    assert math.isnan(abroad.metrics["hallucination_rate"].value)
    assert list(found.to_dict()["per_source"]) == ["abroad", "clinic", "not known"]
    # One source, or none that is known: nothing to tell apart
    assert not alone.per_source
    assert not evaluate({"model": [image("a")]}, MEASURES).per_source


def test_sentence_of_image_dependence() -> None:
    boxes = [[0, 0, 10, 10], [50, 50, 60, 60], [0, 50, 10, 60]]
    others = {"gt_labels": ["mass"], "rewards": {"R3": 1.0}}
    looks = [Prediction(str(k), 99, 99, gt=[box], pred=[box], text=str(box), **others) for k, box in enumerate(boxes)]
    same = [replace(image, pred=[boxes[0]], text="same") for image in looks]
    found = evaluate({"model": looks, "constant box": same}, MEASURES)
    # Three images do not show that it is better, eight do.
    assert found.looking.startswith("Not shown to be better than a model that never looks: 1.000 mean IoU; ")
    eight = [[replace(one, id=f"{one.id}/{k}") for k in range(8) for one in run] for run in (looks, same)]
    assert evaluate({"model": eight[0], "constant box": eight[1]}, MEASURES).looking.startswith("1.000 mean IoU; the c")
    # By hand: one of six permutations leaves all three answers at their images.
    assert " of it is owed to the image (p = 0.1" in found.looking
    assert found.to_dict()["image_dependence"]["dependence"]["value"] == pytest.approx(1)
    assert found.systems["model"]["image_dependence"].value == pytest.approx(1)
    assert found.systems["constant box"]["image_dependence"].value == 0
    # 0 of three images differ.
    alike = evaluate({"model": looks, "constant box": looks}, MEASURES).above_constant["recall_50"]
    assert alike == pytest.approx((0, -0.708, 0.708), abs=5e-4)
    many = [replace(image, id=f"{image.id}/{k}") for k in range(10) for image in same]
    wrong = [replace(image, pred=[[90, 90, 95, 95]]) for image in many]
    worse = evaluate({"model": wrong, "constant box": many}, MEASURES).looking
    assert worse.startswith("Worse than a model that never looks: 0.000 mean IoU; ")
    assert worse.endswith("All 30 images have the same answer.")
    assert evaluate({"model": [Prediction("a", 9, 9, rewards={"R3": 0.2})]}, MEASURES).looking == ""

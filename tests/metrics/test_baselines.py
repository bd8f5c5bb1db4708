"""Answers that need no look at the image."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grounding_rewards.metrics.baselines import baseline_systems, constant_answer, constant_boxes
from grounding_rewards.metrics.detection import MatchedImages
from grounding_rewards.metrics.intervals import ratio_estimates
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.rewards.grounding import get_reward
from tests.conftest import read_lines
from tests.tables import table


def row(*labels: str, width: int = 100) -> dict[str, Any]:
    return {"boxes": [[0, 0, 10, 10]] * len(labels), "labels": list(labels), "width": width, "height": 100}


@pytest.mark.parametrize(("labels_of_images", "expected"), table("metrics/tables", "constant_labels"))
def test_labels_of_the_constant_answer(labels_of_images: list[list[str]], expected: list[str]) -> None:
    assert sorted(constant_boxes(row(*labels) for labels in labels_of_images)) == expected


def test_the_constant_box_is_the_best_of_three() -> None:
    """Boxes of two labels, none of which is on half of the images, in places that one box between them fits best."""
    rng = np.random.default_rng(0)
    rows = []
    for k in range(60):
        x, y = rng.uniform(0, 60, 2)
        rows.append({**row(("heart", "mass", "node")[k % 3]), "boxes": [[x, y, x + 40, y + 40]]})
    [(label, box)] = constant_boxes(rows).items()

    def mean_iou(box: np.ndarray) -> float:
        return float(np.mean([pairwise_iou(box[None], np.divide(one["boxes"], 100.0))[0, 0] for one in rows]))

    boxes = np.concatenate([one["boxes"] for one in rows]) / 100
    medians = [np.median(boxes, axis=0), *(np.median(boxes[k::3], axis=0) for k in range(3))]
    assert label == "heart"
    assert mean_iou(box) > max(map(mean_iou, medians)) + 0.01
    # A near optimum: no random box is better.
    corner, size = rng.uniform(0, 0.5, (500, 2)), rng.uniform(0.2, 0.6, (500, 2))
    assert mean_iou(box) >= max(map(mean_iou, np.hstack([corner, corner + size])))


def test_constant_box_is_fitted_on_other_patients() -> None:
    """One image a question, each with a box of its own: its own box would be perfect."""
    rows = [{**row("mass"), "id": str(k), "patient_id": f"p{k // 2}", "asked": f"{k}?"} for k in range(8)]
    for k, one in enumerate(rows):
        one["boxes"] = [[10 * k, 0, 10 * k + 9, 9]]
    answers = baseline_systems(rows, None, get_reward("R3"))["constant box of these images"]
    for k, image in enumerate(answers):
        assert not any(np.array_equal(image.pred[0], rows[other]["boxes"][0]) for other in {k - k % 2, k - k % 2 + 1})
    assert metrics_of({"constant": answers})["constant"]["mean_iou"].value < 0.2


def test_a_prompt_names_no_label_where_boxes_have_none() -> None:
    """`finding` stands for the labels that are missing: a prompt with that word asks for all, as others do."""
    usual, rare = [[0, 0, 50, 50]], [[80, 80, 99, 99]]
    training = [{**row("finding"), "boxes": usual, "asked": "Mark each finding."} for _ in range(3)]
    training.append({**row("finding"), "boxes": rare, "asked": "Mark all."})
    unlabelled = {**row("finding"), "labels": None, "asked": "Mark each finding."}
    (image,) = baseline_systems([unlabelled], training, get_reward("R3"))["constant box"]
    assert image.asked == ()
    assert image.pred.tolist() == usual


def answered(image: dict[str, Any], common: dict[str, Any]) -> Prediction:
    size = {"width": image["width"], "height": image["height"]}
    boxes, labels = constant_answer(common, **size)
    given = {**size, "gt": image["boxes"], "gt_labels": image["labels"]}
    return Prediction(image["file"], **given, pred=boxes, pred_labels=labels)


def test_constant_box_on_the_real_lungs(shared_dir: Path) -> None:
    # Golden: numpy's median of the training boxes; the shared data says 0.670, 0.892 and 0.284 of their mean.
    images = read_lines(shared_dir / "data/cxr_lungs/annotations.jsonl")
    common = constant_boxes(image for image in images if image["split"] == "train")
    ious, there = MatchedImages([answered(image, common) for image in images if image["split"] == "test"]).best_ious
    ious = ious[there]
    assert ious.mean() == pytest.approx(0.673, abs=5e-4)
    assert (ious >= 0.5).mean() == pytest.approx(0.892, abs=5e-4)
    assert (ious >= 0.75).mean() == pytest.approx(0.311, abs=5e-4)


def metrics_of(answers: dict[str, list[Prediction]]) -> dict[str, Any]:
    return {name: ratio_estimates(MatchedImages(images).sums()) for name, images in answers.items()}


def test_another_reader_answers_for_the_reader_of_the_reference() -> None:
    first, second, third = [[0, 0, 50, 50]], [[0, 0, 50, 40]], []
    row = {"boxes": first, "labels": ["mass"], "width": 100, "height": 100}
    labels = [["mass"], ["mass"], []]
    rows = [{**row, "reader_boxes": [first, second, third], "reader_labels": labels} for _ in range(4)]
    # of three readers the two others take turns; by hand: an IoU of 0.8, and nothing
    images = baseline_systems(rows, rows, get_reward("R3"))["another reader"]
    assert [image.rewards["R3"] for image in images] == pytest.approx([0.8, 0, 0.8, 0])
    assert metrics_of({"another reader": images})["another reader"]["mean_iou"].value == pytest.approx(0.4)
    # two readers who drew alike: one of them is the reference
    alike = [{**row, "boxes": np.array(first), "reader_boxes": np.array([first, first]), "reader_labels": labels[:2]}]
    assert baseline_systems(alike, alike, get_reward("R3"))["another reader"][0].rewards["R3"] == 1
    # an image that one reader has read has no other
    assert "another reader" not in baseline_systems([*rows, row], rows, get_reward("R3"))
    alone = [{**row, "reader_boxes": [first], "reader_labels": labels[:1]}]
    assert "another reader" not in baseline_systems(alone, rows, get_reward("R3"))

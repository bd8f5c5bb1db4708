"""The rows of labels and sizes, and what an evaluation does where labels or confidences are partly there."""

from dataclasses import replace

import numpy as np
import pytest

from grounding_rewards.metrics.average_precision import rank_boxes
from grounding_rewards.metrics.evaluation import Evaluation, Measures, evaluate
from grounding_rewards.metrics.prediction import Prediction
from tests.metrics.random_images import random_images
from tests.metrics.rankings import average_precision, mean_average_precision
from tests.tables import table


def measured(images: list[Prediction], **measures: str) -> Evaluation:
    given = [replace(image, rewards={"R4": 0.5}) for image in images]
    return evaluate({"model": given}, Measures("R4", **measures))  # type: ignore[arg-type]


def with_labels(images: list[Prediction], words: list[str]) -> list[Prediction]:
    """The references' masses called by these words in turn."""
    turned = [words[k % len(words) :] + words[: k % len(words)] for k in range(len(images))]
    called = [
        tuple(own[i % len(own)] if label == "mass" else label for i, label in enumerate(image.gt_labels))
        for image, own in zip(images, turned, strict=True)
    ]
    return [replace(image, gt_labels=labels) for image, labels in zip(images, called, strict=True)]


@pytest.mark.parametrize(("words", "labels"), table("metrics/tables", "labels_that_are_compared_as_one_are_one_row"))
def test_labels_that_are_compared_as_one_are_one_row(words: list[str], labels: str) -> None:
    images = random_images(3)
    groups = measured(images, label_matching=labels).per_label
    expected = {f"{group.name} ({group.boxes})".casefold(): group.metrics for group in groups}
    found = measured(with_labels(images, words), label_matching=labels).per_label
    assert len(found) == len(expected) == 3
    for group in found:
        count = f"{group.name} ({group.boxes})".rpartition(" ")[2]
        (same,) = [name for name in expected if name.endswith(count)]
        for key, estimate in group.metrics.items():
            assert estimate == pytest.approx(expected[same][key])


def test_map_is_the_mean_of_average_precisions() -> None:
    images = random_images(5)
    found = measured(images)
    of_labels = [group.metrics["ap_50"].value for group in found.per_label]
    assert np.mean(of_labels) == pytest.approx(found.systems["model"]["map_50"].value, abs=1e-9)
    ranked = rank_boxes(images, [0.5], label_matching="exact")
    assert found.systems["model"]["map_50"].value == mean_average_precision(ranked)


@pytest.mark.parametrize("label", ["", "finding"])
def test_references_without_labels_say_nothing_about_labels(label: str) -> None:
    images = [replace(image, gt_labels=(label,) * len(image.gt)) for image in random_images(2)]
    found = measured(images)
    assert not {"map_50", "label_accuracy"} & set(found.headings)
    boxes = sum(len(image.gt) for image in images)
    assert [(group.name, group.boxes) for group in found.per_label] == [("finding", boxes)]


def test_one_box_without_a_confidence_makes_all_boxes_tied() -> None:
    images = random_images(2)
    images[3] = replace(images[3], pred_scores=np.full(len(images[3].pred), np.nan))
    found = measured(images)
    assert found.headings["ap_50"] == "AP at IoU 0.5, boxes tied"
    assert "not every box has a stated confidence" in found.metrics["ap_50"].definition
    assert found.systems["model"]["ap_50"].value == average_precision(rank_boxes(images, ranking="tied"))

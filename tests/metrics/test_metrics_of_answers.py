"""Metrics by hand on a few images, from the text of the answers on."""

from __future__ import annotations

import math
from typing import Any

import pytest

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.answers import read_answers
from grounding_rewards.metrics.comparison import compare_runs
from grounding_rewards.metrics.counts import image_sums
from grounding_rewards.metrics.intervals import ratio_estimates
from grounding_rewards.rewards.grounding import get_reward

REWARD = get_reward("R3")
METRICS = (
    *("sampled_reward", "mean_iou", "f1_50", "recall_50", "recall_75", "hallucination_rate"),
    *("sampled_unparseable_share", "label_accuracy"),
)

# On the norm1000 grid of qwen3-vl, image of 100 by 100: 10 units are a pixel.
HALF = '[{"bbox_2d": [0, 0, 500, 250], "label": "mass"}]'  # IoU 0.5 with 0, 0, 50, 50
SMALL_AND_JUNK = (
    '[{"bbox_2d": [0, 0, 200, 200], "label": "effusion"}, {"bbox_2d": [800, 0, 900, 100], "label": "mass"}]'
)


def answers(images: Any, greedy: list[str], sampled: list[list[str]] | None = None) -> list[AnsweredImage]:
    others = sampled or [[text] for text in greedy]
    return read_answers(images.to_list(), [[text, *more] for text, more in zip(greedy, others, strict=True)], REWARD)


def sums_of(images: list[AnsweredImage]) -> dict[str, Any]:
    sums = image_sums(images)
    return {key: sums[key] for key in METRICS if key in sums}


def values(images: list[AnsweredImage]) -> dict[str, float]:
    return {key: estimate.value for key, estimate in ratio_estimates(sums_of(images)).items()}


def test_metrics_by_hand(images: Any) -> None:
    metrics = values(answers(images, [HALF, SMALL_AND_JUNK, HALF, "[]"]))
    assert metrics == pytest.approx(
        {
            # R3 (beta 1, tau 0.5): 0.5; F1 0.5 times mean IoU 1; invented box 0; no-finding statement 0.2
            "sampled_reward": (0.5 + 0.5 + 0.0 + 0.2) / 4,
            "mean_iou": (0.5 + 1.0 + 0.0) / 3,  # three reference boxes, one without a partner
            "f1_50": 2 * 2 / (4 + 3),  # TP 2 of 4 predicted and 3 reference boxes
            "recall_50": 2 / 3,  # 0.5 counts
            "recall_75": 1 / 3,
            "hallucination_rate": 1 / 2,
            "sampled_unparseable_share": 0.0,
            "label_accuracy": 1 / 2,  # the exact box on image two says effusion instead of mass
        }
    )


def test_sampled_metrics_average_over_answers_first(images: Any) -> None:
    sampled = [[HALF, "what?"], ["[]", "[]"], ["[]", "[]"], ["[]", "{"]]
    metrics = values(answers(images, ["[]"] * 4, sampled))
    assert metrics["sampled_reward"] == pytest.approx((0.25 + 0.0 + 0.2 + 0.1) / 4)
    assert metrics["sampled_unparseable_share"] == pytest.approx((0.5 + 0 + 0 + 0.5) / 4)
    assert metrics["mean_iou"] == 0.0


def test_a_cut_off_answer_without_a_box_is_unparseable_and_no_hallucination(images: Any) -> None:
    metrics = values(answers(images, ['[{"bbox_2d": [0, 0, 5'] * 4))
    assert metrics["sampled_unparseable_share"] == 1.0
    assert metrics["hallucination_rate"] == 0.0


def test_an_inverted_box_on_a_normal_image_is_a_hallucination(images: Any) -> None:
    metrics = values(answers(images, ["[]", "[]", '[{"bbox_2d": [500, 500, 0, 0]}]', "[]"]))
    assert metrics["hallucination_rate"] == 0.5


def test_answers_without_labels_have_no_label_accuracy(images: Any) -> None:
    metrics = values(answers(images, ['[{"bbox_2d": [0, 0, 500, 500]}]', "[]", "[]", "[]"]))
    assert metrics["recall_75"] == pytest.approx(1 / 3)
    assert math.isnan(metrics["label_accuracy"])


def test_changes_are_differences_of_metrics(images: Any) -> None:
    before = answers(images, ["[]"] * 4)
    after = answers(images, [HALF, SMALL_AND_JUNK, HALF, "[]"])
    changes = {key: change.difference for key, change in compare_runs(before, after, resamples=10).metrics.items()}
    for key in changes.keys() & METRICS:
        expected = values(after)[key] - values(before)[key]
        assert changes[key].value == pytest.approx(expected, nan_ok=True), key


def test_patients_widen_the_interval_of_images_that_agree(images: Any) -> None:
    sums = sums_of(answers(images, [HALF, "[]", "[]", "[]"]))
    grouped = ratio_estimates(sums, groups=["a", "a", "b", "c"])
    assert grouped["mean_iou"].value == ratio_estimates(sums)["mean_iou"].value
    # Both images with findings are one patient's, which says nothing about others.
    assert grouped["mean_iou"][1:] == (0.0, 1.0)


def test_ignored_regions_count_as_in_the_rewards(images: Any) -> None:
    ignored = images.add_column("ignore_boxes", [[], [[75, 0, 95, 15]], [[0, 0, 60, 60]], []])
    texts = [HALF, SMALL_AND_JUNK, HALF, "[]"]
    metrics = values(answers(ignored, texts))
    # the junk of image two and the box on the normal image lie in them: 2 of 2 boxes right, of 3 to be found
    assert metrics["f1_50"] == pytest.approx(2 * 2 / (2 + 3))
    assert metrics["hallucination_rate"] == 0.0
    assert metrics["mean_iou"] == values(answers(images, texts))["mean_iou"]


def test_broken_boxes_count_as_in_the_rewards(images: Any) -> None:
    broken = '[{"bbox_2d": [0, 0, 500, 250], "label": "mass"}, {"bbox_2d": [1, 2, 3], "label": "mass"}]'
    answered = answers(images, [broken, "[]", "[]", "[]"])
    # one of two boxes is right, and three are to be found
    assert values(answered)["f1_50"] == pytest.approx(2 * 1 / (2 + 3))
    explained = REWARD.details([broken], **{name: values[:1] for name, values in images.to_dict().items()})[
        0
    ].explanation
    assert (explained.tp, explained.fp) == (1, 1)


def test_labels_agree_up_to_case(images: Any) -> None:
    metrics = values(answers(images, [HALF.replace("mass", "Mass"), "[]", "[]", "[]"]))
    assert metrics["label_accuracy"] == 1.0


def test_without_images_nothing_is_measured() -> None:
    assert all(math.isnan(value) for value in values([]).values())

"""The published metric per query: by hand, and against average precision of each query alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.average_precision import average_precision
from grounding_rewards.metrics.counts import image_metrics, image_sums
from grounding_rewards.metrics.evaluation import Measures, evaluate
from grounding_rewards.metrics.jackknife import ratio_estimates
from grounding_rewards.metrics.query_ap import query_ap_sums
from grounding_rewards.metrics.ranking import rank_boxes
from tests.metrics.random_images import random_images

A, B, C, FAR = [0, 0, 10, 10], [20, 0, 30, 10], [40, 0, 50, 10], [80, 80, 90, 90]


def image(gt: Any, pred: Any, **others: Any) -> AnsweredImage:
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
        (image([(A, "mass")], [(A, "mass")]), (1, 1)),
        # precision at the right box is 1/2; whether a box follows makes no difference
        (image([(A, "mass")], [(FAR, "mass"), (A, "mass"), (FAR, "mass")]), (1 / 2, 1)),
        # of two findings of one name the first and the third box are right: (1 + 2/3) / 2
        (image([(A, "mass"), (B, "mass")], [(A, "mass"), (FAR, "mass"), (B, "mass")]), (5 / 6, 1)),
        # a hit after two misses raises what is before it: 1/3 and 2/4, of which the better one counts for both
        (
            image([(A, "mass"), (B, "mass")], [(FAR, "mass"), (FAR, "mass"), (A, "mass"), (B, "mass")]),
            ((2 / 4 + 2 / 4) / 2, 1),
        ),
        # two queries; boxes of one are nothing to the other, and a box under another name is right for neither
        (image([(A, "mass"), (B, "nodule")], [(FAR, "nodule"), (B, "mass"), (A, "Mass ")]), (1 / 2, 2)),
        # a finding without a box earns 0
        (image([(A, "mass"), (B, "nodule")], [(A, "mass")]), (1, 2)),
        # confidences play no part
        (image([(A, "mass")], [(FAR, "mass"), (A, "mass")], pred_scores=[0.1, 0.9]), (1 / 2, 1)),
        # a finding that is not there is no query, and a normal image asks nothing
        (image([(A, "mass")], [(A, "mass"), (B, "nodule")]), (1, 1)),
        (image([], [(A, "mass")]), (0, 0)),
        # boxes without a name answer the only query, but not one of two
        (image([(A, "mass"), (B, "mass")], [(A, None), (B, None)]), (1, 1)),
        (image([(A, "mass"), (B, "nodule")], [(A, None), (B, "nodule")]), (1, 2)),
        # a box in an ignored region is none
        (image([(A, "mass")], [(FAR, "mass"), (A, "mass")], ignore=[FAR]), (1, 1)),
        # a dataset that names nothing: the image is the query
        (image([(A, "finding"), (B, "finding")], [(A, "mass"), (FAR, "x"), (B, None)]), (5 / 6, 1)),
        # each finding is found once: the second box on it is a miss
        (image([(A, "mass"), (B, "mass")], [(A, "mass"), (A, "mass"), (B, "mass")]), (5 / 6, 1)),
    ],
)
def test_by_hand(one: AnsweredImage, expected: tuple[float, float]) -> None:
    assert query_ap_sums([one])[0] == pytest.approx(expected)


def test_synonyms_answer_a_query_where_they_are_asked_for() -> None:
    one = image([(A, "pleural effusion"), (B, "mass")], [(A, "effusion")])
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
        image([(A, "mass"), (B, "nodule")], [(FAR, "mass"), (A, "mass")], rewards={"R4": 0.5}),
        replace(image([], [(C, "mass")], rewards={"R4": 0.0}), id="b"),
    ]
    assert ratio_estimates(image_sums(images))["query_ap_50"].value == 0.25
    assert image_metrics(images)["query_ap_50"].heading == "per-query AP@0.5 in writing order"
    found = evaluate({"model": images}, Measures("R4", resamples=5))
    assert found.systems["model"]["query_ap_50"].value == 0.25
    assert "arXiv 2512.10691" in found.metrics["query_ap_50"].definition
    normal = evaluate({"model": images[1:]}, Measures("R4", resamples=5))
    assert "query_ap_50" not in normal.metrics
    assert math.isnan(ratio_estimates(image_sums(images[1:]))["query_ap_50"].value)

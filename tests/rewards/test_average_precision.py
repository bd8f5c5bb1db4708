"""R1: rankings, interpolations, the mean over labels, and the numbers of COCO's own code."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grounding_rewards as gr
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.rewards.average_precision import INTERPOLATIONS, RANKINGS
from tests.metrics.coco_oracle import coco_mean_average_precision
from tests.rewards.test_label_matching import LABELS, images
from tests.tables import table

A, B, C = [0, 0, 10, 10], [20, 0, 30, 10], [40, 0, 50, 10]


@pytest.mark.parametrize(("pred", "gt", "options", "expected"), table("rewards/by_hand", "average_precision"))
def test_by_hand(pred, gt, options, expected):
    assert gr.get_reward("R1", **options).score(pred, gt) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(("pred_labels", "expected"), table("rewards/by_hand", "mean_over_labels"))
def test_the_mean_over_labels_by_hand(pred_labels, expected):
    reward = gr.get_reward("R1", label_matching="exact", per_label=True)
    called = [label or None for label in pred_labels]
    found = reward.score([A, B, C], [A, B, C], pred_labels=called, gt_labels=LABELS)
    assert found == pytest.approx(expected)


def mean_over_labels(pred, gt, pred_labels, gt_labels, **options):
    """R1 of each label on its own; 0 for one that is predicted and not there."""
    if not pred or not gt:
        return 0.2 if len(pred) == len(gt) else 0.0
    reward = gr.get_reward("R1", **options)
    each = []
    for label in dict.fromkeys([*gt_labels, *pred_labels]):
        mine = [box for box, own in zip(pred, pred_labels, strict=True) if own == label]
        theirs = [box for box, own in zip(gt, gt_labels, strict=True) if own == label]
        each.append(reward.score(mine, theirs) if theirs and label is not None else 0.0)
    return np.mean(each)


@given(images(), st.sampled_from(RANKINGS), st.sampled_from(list(INTERPOLATIONS)))
def test_the_mean_over_labels_is_that_of_each_alone(image, ranking, interpolation):
    pred, gt, pred_labels, gt_labels = image
    options = {"ranking": ranking, "interpolation": interpolation}
    reward = gr.get_reward("R1", label_matching="exact", per_label=True, **options)
    expected = mean_over_labels(pred, gt, pred_labels, gt_labels, **options)
    assert reward.score(pred, gt, pred_labels=pred_labels, gt_labels=gt_labels) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("kind", ["plain", "labels", "crowds"])
def test_101_points_equal_pycocotools(kind):
    rng = np.random.default_rng(11)
    options = {"label_matching": "exact", "per_label": True} if kind == "labels" else {}
    reward = gr.get_reward("R1", interpolation="101", ignore_many=True, **options)
    for _ in range(20):
        # far apart, so that COCO's matching by confidence and ours by IoU pair the same boxes
        m = int(rng.integers(1, 8))
        gt = [[40.0 * k, 0, 40.0 * k + 20, 20] for k in range(m)]
        gt_labels = [LABELS[k] for k in rng.integers(0, 3, m)] if kind == "labels" else ["mass"] * m
        crowds = [[50.0 * k, 100, 50.0 * k + 40, 160] for k in range(3)] if kind == "crowds" else []
        # COCO leaves labels out that only predictions have; we count them as 0, so there are none here
        answer = [
            ([x, y, x2 - rng.uniform(0, 14), y2], str(rng.choice([label, gt_labels[0]])))
            for (x, y, x2, y2), label in zip(gt, gt_labels, strict=True)
            if rng.random() < 0.8
        ]
        answer += [
            ([x, y, x + rng.uniform(5, 40), y + 25], str(rng.choice(gt_labels)))
            for x, y in rng.uniform((0, 70), (180, 160), (int(rng.integers(1, 6)), 2))
        ]
        pred, pred_labels = zip(*(answer[i] for i in rng.permutation(len(answer))), strict=True)
        scores = 1 - np.arange(len(pred)) / 100
        image = Prediction(
            *("a", 400, 200),
            **{"gt": gt, "gt_labels": gt_labels, "ignore": crowds},
            **{"pred": pred, "pred_labels": pred_labels, "pred_scores": scores},
        )
        earned = reward.score(pred, gt, ignore=crowds, pred_labels=pred_labels, gt_labels=gt_labels)
        assert earned == pytest.approx(coco_mean_average_precision([image], [0.5]), abs=1e-12)

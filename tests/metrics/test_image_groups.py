"""Rewards and recalls by source and label, by hand."""

from __future__ import annotations

import numpy as np

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.image_groups import MOST_GROUPS, ImageGroups

MASS, NODULE = [0, 0, 10, 10], [50, 50, 60, 60]


def image(source, gt, labels, pred):
    return AnsweredImage("a", 100, 100, gt=gt, gt_labels=labels, pred=pred, source=source)


IMAGES = [
    image("x", [MASS, NODULE], ["mass", "nodule"], [MASS]),
    image("x", [NODULE], ["nodule"], [NODULE, [np.nan, 0, 1, 1]]),
    image("y", [], [], []),
]


def test_sums_and_counts_by_hand():
    groups = ImageGroups(("x", "y"), ("mass", "nodule"))
    found = dict(zip(groups.keys, groups.sums(IMAGES, [0.5, 1.0, 0.2]).tolist(), strict=True))
    assert found == {
        "source/x/reward": [1.5, 2],
        "source/x/recall": [2, 3],
        "source/y/reward": [0.2, 1],
        # no box to be found: the step has no recall of it
        "source/y/recall": [0, 0],
        "label/mass/reward": [0.5, 1],
        "label/mass/recall": [1, 1],
        "label/nodule/reward": [1.5, 2],
        "label/nodule/recall": [1, 2],
    }


def test_sums_of_parts_are_those_of_the_whole():
    groups = ImageGroups(("x", "y"), ("mass", "nodule"))
    whole = groups.sums(IMAGES, [0.5, 1.0, 0.2])
    np.testing.assert_allclose(groups.sums(IMAGES[:1], [0.5]) + groups.sums(IMAGES[1:], [1.0, 0.2]), whole)
    assert not groups.sums([], []).any()


def test_the_most_frequent_have_metrics_whatever_the_order_of_the_images():
    labels = [[f"label {k:02d}"] * (2 if k > 4 else 1) for k in range(30)]
    groups = ImageGroups.of([], labels)
    assert groups == ImageGroups.of([], labels[::-1])
    assert len(groups.labels) == MOST_GROUPS
    assert groups.labels[0] == "label 05"


def test_one_source_or_label_is_no_group():
    assert ImageGroups.of(["x", "x"], [["mass"], [None], None]).keys == ()

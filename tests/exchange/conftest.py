"""Answered images that every export has to cope with."""

from __future__ import annotations

import math

import pytest

from grounding_rewards.metrics.prediction import Prediction


@pytest.fixture
def images():
    """Four images: labels and confidences; an ignored region and odd boxes; a right negative; an unparseable answer."""
    return [
        Prediction(
            "one",
            400,
            300,
            gt=[[10, 20, 110, 220], [200, 50, 300, 100.5]],
            gt_labels=("mass", "effusion"),
            pred=[[12, 18, 115, 225], [0, 0, 50, 50]],
            pred_labels=("mass", "nodule"),
            pred_scores=[0.9, 0.25],
            patient="p1",
            image="images/one.png",
            text='[{"bbox_2d": [12, 18, 115, 225], "label": "mass"}] <b>&</b>',
        ),
        Prediction(
            "two",
            200,
            100,
            gt=[[0, 0, 20, 20]],
            gt_labels=("effusion",),
            # beside the image, inverted, across the edge; the last without label
            pred=[[300, 10, 350, 50], [40, 40, 30, 30], [150, 50, 260, 90]],
            pred_labels=("mass", "mass", None),
            pred_scores=[math.nan, math.nan, math.nan],
            ignore=[[100, 40, 200, 100]],
            image="images/two.png",
        ),
        Prediction("three", 100, 100, status="empty", image="images/three.png", text="No finding."),
        Prediction("four", 100, 100, status="unparseable", image="images/four.png", text="I am not sure."),
    ]

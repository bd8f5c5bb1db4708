"""Answered images that every export has to cope with."""

import math

import pytest

from grounding_rewards.metrics.prediction import Prediction


@pytest.fixture
def images():
    """Four images: labels and confidences; an ignored region and odd boxes; a right negative; an unparseable answer."""
    one = {"gt": [[10, 20, 110, 220], [200, 50, 300, 100.5]], "gt_labels": ("mass", "effusion"), "patient": "p1"}
    one |= {"pred": [[12, 18, 115, 225], [0, 0, 50, 50]], "pred_labels": ("mass", "nodule"), "pred_scores": [0.9, 0.25]}
    text = '[{"bbox_2d": [12, 18, 115, 225], "label": "mass"}] <b>&</b>'
    # beside the image, inverted, across the edge; the last without label
    odd = [[300, 10, 350, 50], [40, 40, 30, 30], [150, 50, 260, 90]]
    two = {"pred": odd, "pred_labels": ("mass", "mass", None), "pred_scores": [math.nan] * 3}
    two |= {"gt": [[0, 0, 20, 20]], "gt_labels": ("effusion",), "ignore": [[100, 40, 200, 100]]}
    return [
        Prediction("one", 400, 300, image="images/one.png", text=text, **one),
        Prediction("two", 200, 100, image="images/two.png", **two),
        Prediction("three", 100, 100, status="empty", image="images/three.png", text="No finding."),
        Prediction("four", 100, 100, status="unparseable", image="images/four.png", text="I am not sure."),
    ]

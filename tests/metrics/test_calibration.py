"""Calibration against a loop over boxes and bins, and by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.calibration import calibration

BOX, FAR = [0.0, 0.0, 10.0, 10.0], [50.0, 50.0, 60.0, 60.0]


def image(boxes: list[tuple[bool, float]]) -> AnsweredImage:
    """An image for each box, on which it is right or not: its place does not matter then."""
    right = [place for place, (is_right, _) in enumerate(boxes) if is_right]
    shifted = [[20.0 * place, 0.0, 20.0 * place + 10, 10.0] for place in range(len(boxes))]
    return AnsweredImage(
        "a",
        20.0 * len(boxes) + 1,
        20,
        gt=[shifted[place] for place in right],
        gt_labels=["x"] * len(right),
        pred=shifted,
        pred_scores=[score for _, score in boxes],
    )


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=1, max_size=30))
def test_bins_are_those_of_a_loop(boxes: list[tuple[bool, float]]) -> None:
    found = calibration([image(boxes)])
    assert found is not None
    error, bins = 0.0, []
    for k in range(10):
        own = [(right, score) for right, score in boxes if (k <= score * 10 < k + 1) or (k == 9 and score == 1)]
        if own:
            precision, confidence = np.mean([right for right, _ in own]), np.mean([score for _, score in own])
            error += len(own) / len(boxes) * abs(precision - confidence)
            bins.append((confidence, precision, len(own)))
    assert [*zip(found.confidence, found.precision, found.counts, strict=True)] == [pytest.approx(one) for one in bins]
    assert found.error == pytest.approx(error)
    assert 0 <= found.error <= 1
    assert (np.diff(found.confidence) > 0).all()


@pytest.mark.parametrize(
    ("answer", "counts"),
    [
        # no confidence is stated
        ({"pred": [BOX]}, None),
        # no box
        ({}, None),
        # a confidence in per cent is not taken for a probability
        ({"pred": [BOX], "pred_scores": [90.0]}, None),
        ({"pred": [BOX, FAR], "pred_scores": [1.0, math.inf]}, [1]),
        # one box of two states one
        ({"pred": [BOX, FAR], "pred_scores": [math.nan, 0.4]}, [1]),
        # a false box in an ignored region is not judged; a right one is
        ({"pred": [FAR], "pred_scores": [0.4], "ignore": [[40, 40, 70, 70]]}, None),
        ({"pred": [BOX], "pred_scores": [0.4], "ignore": [[0, 0, 70, 70]]}, [1]),
        # an invalid box is a wrong one
        ({"pred": [BOX[::-1]], "pred_scores": [0.4]}, [1]),
    ],
)
def test_which_boxes_are_judged(answer: dict[str, Any], counts: list[int] | None) -> None:
    found = calibration([AnsweredImage("a", 99, 99, gt=[BOX], gt_labels=["x"], **answer)])
    assert (None if found is None else found.counts.tolist()) == counts


def test_the_threshold_decides_what_is_right() -> None:
    one = AnsweredImage("a", 99, 99, gt=[BOX], gt_labels=["x"], pred=[[0, 0, 10, 6]], pred_scores=[0.5])
    assert [calibration([one], iou_threshold=t).precision.tolist() for t in (0.5, 0.75)] == [[1.0], [0.0]]


def test_few_boxes_alone_make_the_error_large() -> None:
    """What the module says of 100 boxes of a perfectly calibrated model."""
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(200):
        scores = rng.uniform(0, 1, 100)
        errors.append(calibration([image(list(zip(rng.uniform(0, 1, 100) < scores, scores, strict=True)))]).error)
    assert 0.07 < np.mean(errors) < 0.13

"""What became of every box: by hand, and in agreement with the metrics whatever the boxes and labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.metrics.answered_image import UNNAMED, AnsweredImage
from grounding_rewards.metrics.counts import MatchedImages
from grounding_rewards.metrics.outcomes import (
    FOUND,
    IGNORED,
    MISSED,
    RIGHT,
    WRONG_LABEL,
    WRONG_PLACE,
    box_outcomes,
    outcomes_of,
)
from tests.metrics.image_pairs import pair_image
from tests.metrics.random_images import random_images

LEFT, RIGHT_SIDE = [60, 0, 100, 90], [0, 0, 40, 90]
FAR = [45, 0, 55, 10]


def image(pred: list[Any], pred_labels: list[Any], *, labels: Any = ("right lung", "left lung"), **more: Any):
    return AnsweredImage(
        "a", 100, 100, gt=[RIGHT_SIDE, LEFT], gt_labels=labels, pred=pred, pred_labels=pred_labels, **more
    )


@pytest.mark.parametrize(
    ("made", "pred", "gt"),
    [
        # both lungs called left: one is right, the other is there under a wrong label
        (image([RIGHT_SIDE, LEFT], ["left lung", "left lung"]), (WRONG_LABEL, RIGHT), (WRONG_LABEL, FOUND)),
        # exchanged: both are there, neither is right
        (
            image([RIGHT_SIDE, LEFT], ["left lung", "right lung"]),
            (WRONG_LABEL, WRONG_LABEL),
            (WRONG_LABEL, WRONG_LABEL),
        ),
        # a box without a label agrees with none
        (image([LEFT], [None]), (WRONG_LABEL,), (MISSED, WRONG_LABEL)),
        # a second box on a finding is in the wrong place, not of a wrong label
        (image([LEFT, LEFT], ["left lung", "mass"]), (RIGHT, WRONG_PLACE), (MISSED, FOUND)),
        (image([FAR], ["left lung"]), (WRONG_PLACE,), (MISSED, MISSED)),
        # in an ignored region nothing counts
        (image([FAR], ["left lung"], ignore=[FAR]), (IGNORED,), (MISSED, MISSED)),
        # a broken box can't be anywhere
        (image([[90, 90, 60, 0]], ["left lung"]), (WRONG_PLACE,), (MISSED, MISSED)),
        (image([], []), (), (MISSED, MISSED)),
    ],
)
def test_outcomes_where_labels_are_compared(made: AnsweredImage, pred: tuple[str, ...], gt: tuple[str, ...]) -> None:
    assert box_outcomes(made, "exact")[:2] == (pred, gt)


def test_an_iou_is_that_with_the_box_that_the_outcome_is_about() -> None:
    # by hand: 30 · 90 of 50 · 90
    found = box_outcomes(image([[50, 0, 90, 90]], ["mass"]), "exact")
    assert found.pred == (WRONG_LABEL,)
    assert found.pred_ious.tolist() == pytest.approx([30 / 50])
    assert found.gt_ious.tolist() == pytest.approx([0, 30 / 50])
    assert found.labels == ("left lung",)


def test_where_labels_play_no_part_another_label_is_told_and_costs_nothing() -> None:
    found = box_outcomes(image([RIGHT_SIDE, LEFT], ["left lung", "Left  Lung"]))
    assert found.pred == (RIGHT, RIGHT)
    assert found.renamed == ("right lung", None)
    # a reference without a name of its own can't be called otherwise, and a box without a label calls it nothing
    assert box_outcomes(image([LEFT], ["mass"], labels=(UNNAMED, UNNAMED))).renamed == (None,)
    assert box_outcomes(image([LEFT], [None])).renamed == (None,)


def test_synonyms_are_right() -> None:
    one = AnsweredImage("a", 99, 99, gt=[LEFT], gt_labels=["pleural effusion"], pred=[LEFT], pred_labels=["effusion"])
    assert box_outcomes(one, "synonyms").pred == (RIGHT,)
    assert box_outcomes(one, "exact").pred == (WRONG_LABEL,)


_SIDE = st.integers(0, 8)
_BOXES = st.lists(st.tuples(_SIDE, _SIDE, _SIDE, _SIDE, st.sampled_from(["mass", "nodule", "effusion"])), max_size=5)


@given(pred=_BOXES, gt=_BOXES, ignore=_BOXES, rule=st.sampled_from(["ignore", "exact", "synonyms"]))
def test_outcomes_agree_with_the_metrics(pred: list[Any], gt: list[Any], ignore: list[Any], rule: str) -> None:
    valid = [box for box in gt if box[0] < box[2] and box[1] < box[3]]
    made = AnsweredImage(
        "a",
        9,
        9,
        gt=np.array([box[:4] for box in valid]),
        gt_labels=[box[4] for box in valid],
        pred=np.array([box[:4] for box in pred]),
        pred_labels=[box[4] for box in pred],
        ignore=np.array([box[:4] for box in ignore]),
    )
    found = box_outcomes(made, rule)
    n, m, tp = (float(one[0]) for one in MatchedImages([made], rule).counts_50)
    assert found.pred.count(RIGHT) == found.gt.count(FOUND) == tp
    assert len(found.pred) - found.pred.count(IGNORED) == n
    assert len(found.gt) == m
    assert found.pred.count(WRONG_LABEL) == found.gt.count(WRONG_LABEL)
    if rule == "ignore":
        assert WRONG_LABEL not in found.pred


@pytest.mark.parametrize("rule", ["ignore", "exact", "synonyms"])
def test_many_images_together_are_what_they_are_alone(rule: str) -> None:
    """And what an image at a time gives, which is computed by other code."""
    images = [*random_images(3, 60), AnsweredImage("nothing", 9, 9), *random_images(4, 3)]
    together = outcomes_of(MatchedImages(images, rule))
    for made, found in zip(images, together, strict=True):
        alone, pairs = box_outcomes(made, rule), pair_image(made, rule)
        assert (found.pred, found.gt, found.labels, found.renamed) == (alone.pred, alone.gt, *alone[4:])
        assert found.pred_ious.tolist() == alone.pred_ious.tolist()
        assert found.gt_ious.tolist() == alone.gt_ious.tolist()
        assert [one == RIGHT for one in found.pred] == (pairs.found(0.5) >= 0).tolist()
        assert [one != IGNORED for one in found.pred] == pairs.counted(0.5).tolist()
        assert [one == FOUND for one in found.gt] == pairs.hits(0.5).tolist()
    assert outcomes_of(MatchedImages([], rule)) == []

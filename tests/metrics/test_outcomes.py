"""What became of every box, and how that is shown."""

from typing import Any

import pytest

from grounding_rewards.metrics.detection import MatchedImages
from grounding_rewards.metrics.outcomes import (
    FOUND,
    IGNORED,
    MISSED,
    RIGHT,
    WRONG_LABEL,
    WRONG_PLACE,
    box_outcomes,
    image_summary,
    outcomes_of,
)
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.parsing import BrokenBox
from tests.metrics.image_pairs import pair_image
from tests.metrics.random_images import random_images
from tests.report.evaluations import BOX, answered

LEFT, RIGHT_SIDE = [60, 0, 100, 90], [0, 0, 40, 90]
FAR = [45, 0, 55, 10]


def image(pred: list[Any], pred_labels: list[Any], *, labels: Any = ("right lung", "left lung"), **more: Any):
    given = {"gt": [RIGHT_SIDE, LEFT], "gt_labels": labels, "pred": pred, "pred_labels": pred_labels}
    return Prediction("a", 100, 100, **given, **more)


@pytest.mark.parametrize(
    ("made", "pred", "gt"),
    [
        # both lungs called left: one is right, the other is there under a wrong label
        (image([RIGHT_SIDE, LEFT], ["left lung", "left lung"]), (WRONG_LABEL, RIGHT), (WRONG_LABEL, FOUND)),
        # exchanged: both are there, neither is right
        (image([RIGHT_SIDE, LEFT], ["left lung", "right lung"]), (WRONG_LABEL,) * 2, (WRONG_LABEL,) * 2),
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
def test_outcomes_where_labels_are_compared(made: Prediction, pred: tuple[str, ...], gt: tuple[str, ...]) -> None:
    assert box_outcomes(made, "exact")[:2] == (pred, gt)


def test_a_box_of_a_wrong_label_names_the_right_one() -> None:
    made = image([RIGHT_SIDE, LEFT], ["left lung", "Left  Lung"])
    assert box_outcomes(made, "exact").other_labels == ("right lung", None)
    assert box_outcomes(made)[:1] == ((RIGHT, RIGHT),)


@pytest.mark.parametrize("rule", ["ignore", "exact", "synonyms"])
def test_many_images_together_are_what_they_are_alone(rule: str) -> None:
    """And what an image at a time gives, which is computed by other code."""
    images = [*random_images(3, 60), Prediction("nothing", 9, 9), *random_images(4, 3)]
    together = outcomes_of(MatchedImages(images, rule))
    for made, found in zip(images, together, strict=True):
        alone, pairs = box_outcomes(made, rule), pair_image(made, rule)
        assert (found.pred, found.gt, found.other_labels) == (alone.pred, alone.gt, alone.other_labels)
        assert found.pred_ious.tolist() == alone.pred_ious.tolist()
        assert found.gt_ious.tolist() == alone.gt_ious.tolist()
        assert [one == RIGHT for one in found.pred] == (pairs.found(0.5) >= 0).tolist()
        assert [one != IGNORED for one in found.pred] == pairs.counted(0.5).tolist()
        assert [one == FOUND for one in found.gt] == pairs.hits(0.5).tolist()
    assert outcomes_of(MatchedImages([], rule)) == []


@pytest.mark.parametrize(
    ("one", "summary"),
    [
        (answered("right", pred=[BOX]), "1 of 1 found"),
        (answered("beside", pred=[BOX, (80, 80, 90, 90)]), "1 of 1 found, 1 in the wrong place"),
        (answered("missed", status="empty"), "0 of 1 found, 1 missed"),
        (answered("broken", pred=[BOX], broken=(BrokenBox(0), BrokenBox(1))), "1 of 1 found, 2 broken"),
        (answered("cut", status="unparseable"), "unparseable, 0 of 1 found, 1 missed"),
        (answered("normal", gt=(), status="empty"), "normal image, no box"),
        (answered("invented", gt=(), pred=[BOX, BOX]), "normal image, 2 hallucinated"),
        (answered("ignored", gt=(), pred=[BOX], ignore=[BOX]), "normal image, no box"),
    ],
    ids=lambda value: value.id if hasattr(value, "id") else "",
)
def test_one_line_tells_what_became_of_an_image(one: Prediction, summary: str) -> None:
    assert image_summary(one, box_outcomes(one)) == summary

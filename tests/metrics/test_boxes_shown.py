"""How boxes are shown: digits, sides, and one line for an image."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.boxes_shown import THRESHOLDS, format_iou, has_sides, image_summary
from grounding_rewards.metrics.outcomes import box_outcomes
from grounding_rewards.parsing import BrokenBox
from tests.report.evaluations import BOX, answered


@given(st.floats(0, 1))
def test_an_iou_never_looks_right_where_it_is_wrong(iou: float) -> None:
    shown = float(format_iou(iou))
    assert [shown >= at for at in THRESHOLDS] == [iou >= at for at in THRESHOLDS]
    assert shown == pytest.approx(iou, abs=0.0051)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        # a frontal view, as datasets write it
        ({"view": "PA"}, True),
        ({"view": "antero-posterior"}, True),
        # from the side, whatever its findings are called
        ({"view": "LL", "gt": [BOX], "gt_labels": ["left lung"]}, False),
        # nothing is known of the view: only findings with sides tell that it is frontal
        ({}, False),
        ({"gt": [BOX], "gt_labels": ["mass"]}, False),
        ({"gt": [BOX], "gt_labels": ["Right lung"]}, True),
        ({"pred": [BOX], "pred_labels": ["left effusion"]}, True),
        # "bright" is no side
        ({"gt": [BOX], "gt_labels": ["bright spot"]}, False),
    ],
)
def test_sides_are_marked_only_where_they_are_known(image: dict, expected: bool) -> None:
    assert has_sides(AnsweredImage("a", 100, 100, **image)) is expected


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
def test_one_line_tells_what_became_of_an_image(one: AnsweredImage, summary: str) -> None:
    assert image_summary(one, box_outcomes(one)) == summary

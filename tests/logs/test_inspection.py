"""The metrics of a log."""

import json

import numpy as np
import pytest

import grounding_rewards as gr
from grounding_rewards.logs.inspection import inspect_completions
from grounding_rewards.rewards import SPECIFICATION_REWARDS
from tests.tables import table

ROWS = [
    # two boxes, one right; a no-finding statement on an image without findings; cut off; broken
    ('[{"bbox_2d": [100, 100, 500, 500]}, {"bbox_2d": [700, 700, 600, 1200]}]', [[10, 10, 50, 50]]),
    ("[]", []),
    ('[{"bbox_2d": [100, 100, 500, 500]}, {"bbox_2d": [7', [[10, 10, 50, 50]]),
    ('[{"bbox_2d": [1, 2, 3]}]', []),
]
TEXTS = [text for text, _ in ROWS]


def rows(**columns):
    return [{"boxes": boxes, "width": 100, "height": 100, **columns} for _, boxes in ROWS]


def test_statuses_reasons_and_boxes_are_counted():
    inspection = inspect_completions(TEXTS, rows(), "qwen3-vl")
    assert inspection.statuses == {"boxes": 1, "empty": 1, "truncated": 1, "unparseable": 1}
    assert inspection.reasons["wrong_count"] == 1
    assert (inspection.boxes, inspection.most_boxes) == (3, 2)
    assert (inspection.upside_down, inspection.located, inspection.off_image) == (1, 3, 1)
    assert inspection.examples["truncated"] == [2]


def test_rewards_are_those_of_training():
    inspection = inspect_completions(TEXTS, rows(), "qwen3-vl")
    columns = {"boxes": [boxes for _, boxes in ROWS], "width": [100] * 4, "height": [100] * 4}
    for name in SPECIFICATION_REWARDS:
        expected = np.mean(gr.get_reward(name, box_format="qwen3-vl")(TEXTS, **columns))
        assert inspection.metrics[name] == pytest.approx(expected, abs=1e-12)
    # both images with a finding have one exact match
    assert inspection.metrics["mean_iou"] == 1.0
    assert inspection.scored == 4


def test_every_row_may_have_its_own_format():
    formats = ["qwen3-vl", "gemini", {"syntax": "json", "space": "norm1000"}, "qwen3-vl"]
    mixed = [{**row, "box_format": name} for row, name in zip(rows(), formats, strict=True)]
    inspection = inspect_completions(TEXTS, mixed)
    assert set(inspection.space_checks) == {"qwen3-vl", "gemini", '{"syntax": "json", "space": "norm1000"}'}
    assert inspection.metrics == pytest.approx(inspect_completions(TEXTS, rows(), "qwen3-vl").metrics)


def test_a_bare_log_is_read_without_metrics():
    inspection = inspect_completions(TEXTS, [{}] * 4, "qwen3-vl")
    assert (inspection.scored, inspection.metrics) == (0, {})
    # a thousandth is on the image or not, whatever its size
    assert (inspection.located, inspection.off_image) == (3, 1)
    assert inspect_completions(TEXTS, [{}] * 4, "qwen2.5-vl").located == 0


def test_sizes_may_be_given_for_all_images():
    bare = [{"boxes": boxes} for _, boxes in ROWS]
    unsized = inspect_completions(TEXTS, bare, "qwen3-vl")
    assert unsized.scored == 0
    assert "no known size" in unsized.notes[0]
    sized = inspect_completions(TEXTS, bare, "qwen3-vl", sizes={"width": 100, "height": 100})
    assert sized.metrics == inspect_completions(TEXTS, rows(), "qwen3-vl").metrics
    assert sized.notes == ()


def test_a_completion_without_a_size_that_its_format_needs_is_not_scored():
    """And no reason to refuse the others."""
    some = [{**row, **({"resized_width": 100, "resized_height": 100} if k else {})} for k, row in enumerate(rows())]
    inspection = inspect_completions(TEXTS, some, "qwen2.5-vl")
    assert inspection.scored == len(TEXTS) - 1
    assert "1 completions have reference boxes, but their images have no known size" in inspection.notes[0]


@pytest.mark.parametrize(("log", "message"), table("logs/rows", "logs_that_cannot_be_inspected"))
def test_a_wrong_log_is_refused(log, message):
    with pytest.raises(ValueError, match=message):
        inspect_completions(["[]"] * len(log), log)


def test_a_log_is_suspect_when_much_is_unparseable_or_the_space_is_wrong():
    assert not inspect_completions(["[]"] * 9 + ["?"], [{}] * 10, "qwen3-vl").is_suspect
    assert inspect_completions(["[]"] * 8 + ["?"] * 2, [{}] * 10, "qwen3-vl").is_suspect
    pixels = [f'[{{"bbox_2d": [{k}, {k}, {k + 900}, {k + 1800}]}}]' for k in range(20)]
    assert inspect_completions(pixels, [{"width": 2000, "height": 2000}] * 20, "qwen3-vl").is_suspect


def test_json_holds_metrics_and_no_text():
    inspection = inspect_completions(["secret", *TEXTS], [{}, *rows()], "qwen3-vl")
    text = json.dumps(inspection.to_dict(), allow_nan=False)
    assert "secret" not in text
    assert json.loads(text)["statuses"]["unparseable"] == 2


def test_mean_iou_is_of_every_reference_box():
    """At any overlap: a miss counts 0, and an image counts as often as it has boxes."""
    texts = ["[[0, 0, 200, 100], [500, 500, 900, 900]]", "[]", "[[0, 0, 100, 100]]", "[[300, 300, 700, 700]]"]
    boxes = [[[0, 0, 10, 10], [50, 50, 90, 90], [1, 60, 9, 70]], [[0, 0, 9, 9]], [], [[0, 0, 40, 40]]]
    log = [{"id": k, "boxes": gt, "width": 100, "height": 100} for k, gt in enumerate(boxes)]
    found = inspect_completions(texts, log, "qwen3-vl").metrics["mean_iou"]
    # By hand: IoUs 1/2, 1 and 0, 0, and 1/16 + … of [0, 40]² and [30, 70]².
    assert found == pytest.approx((0.5 + 1 + 0 + 0 + 100 / (1600 + 1600 - 100)) / 5)

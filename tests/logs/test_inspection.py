"""The metrics of a log."""

import json

import pytest

from grounding_rewards.logs.inspection import inspect_completions
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
    assert (inspection.located, inspection.off_image) == (3, 1)
    assert inspection.examples["truncated"] == [2]


def test_an_empty_log_has_a_table_too():
    assert "0 completions" in inspect_completions([], [], "qwen3-vl")._repr_html_()


def test_every_row_may_have_its_own_format():
    formats = ["qwen3-vl", "gemini", {"syntax": "json", "space": "norm1000"}, "qwen3-vl"]
    mixed = [{**row, "box_format": name} for row, name in zip(rows(), formats, strict=True)]
    inspection = inspect_completions(TEXTS, mixed)
    assert set(inspection.space_checks) == {"qwen3-vl", "gemini", '{"syntax": "json", "space": "norm1000"}'}


def test_a_bare_log_is_read():
    inspection = inspect_completions(TEXTS, [{}] * 4, "qwen3-vl")
    # a thousandth is on the image or not, whatever its size
    assert (inspection.located, inspection.off_image) == (3, 1)
    assert inspect_completions(TEXTS, [{}] * 4, "qwen2.5-vl").located == 0


def test_sizes_may_be_given_for_all_images():
    bare = [{"boxes": boxes} for _, boxes in ROWS]
    unsized = inspect_completions(TEXTS, bare, "qwen3-vl").space_checks["qwen3-vl"]
    assert "0 images with 0 boxes of known size" in unsized.message
    sized = inspect_completions(TEXTS, bare, "qwen3-vl", sizes={"width": 100, "height": 100})
    assert sized.space_checks == inspect_completions(TEXTS, rows(), "qwen3-vl").space_checks


@pytest.mark.parametrize(("log", "message"), table("logs/rows", "logs_that_cannot_be_inspected"))
def test_a_wrong_log_is_refused(log, message):
    with pytest.raises(ValueError, match=message):
        inspect_completions(["[]"] * len(log), log)


def test_a_log_is_suspect_when_much_is_unparseable_or_the_space_is_wrong():
    assert not inspect_completions(["[]"] * 9 + ["?"], [{}] * 10, "qwen3-vl").is_suspect
    assert inspect_completions(["[]"] * 8 + ["?"] * 2, [{}] * 10, "qwen3-vl").is_suspect
    pixels = [f'[{{"bbox_2d": [{k}, {k}, {k + 900}, {k + 1800}]}}]' for k in range(20)]
    assert inspect_completions(pixels, [{"width": 2000, "height": 2000}] * 20, "qwen3-vl").is_suspect


def test_json_holds_counts_and_no_text():
    inspection = inspect_completions(["secret", *TEXTS], [{}, *rows()], "qwen3-vl")
    text = json.dumps(inspection.to_dict(), allow_nan=False)
    assert "secret" not in text
    assert json.loads(text)["statuses"]["unparseable"] == 2

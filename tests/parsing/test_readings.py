"""What texts hold in the spellings of all families: the tables `bracket_readings.toml` and `json_readings.toml`."""

import pytest

from grounding_rewards.parsing import RawBoxes, get_box_format, read_boxes
from grounding_rewards.parsing.results import MAX_BOXES, MAX_DEPTH, MAX_GROUPS
from tests.tables import table

P = [1, 2, 3, 4]
ITEM = '{"bbox_2d": [1, 2, 3, 4]}'
#: Texts too long for a table, by its section.
ENDLESS = {
    "rejects": [
        ("answer-list", f"<answer>[1,2,3,{'9' * 100_000}]</answer>", [], {"number_too_large": 1}),
        ("answer-list", "<answer>" + "[1,2,3,4]," * (MAX_BOXES + 5), P * MAX_BOXES, {"too_many_boxes": 1}),
        ("qwen3-vl", ITEM * (MAX_BOXES + 5), P * MAX_BOXES, {"too_many_boxes": 1}),
        # brackets are looked at up to a number, whatever is in them
        ("radvlm", "[words] " * (MAX_GROUPS + 1), [], {"too_long": 1}),
        ("qwen3-vl", f'{{"bbox_2d":{"[" * MAX_DEPTH}1, 2, 3, 4{"]" * MAX_DEPTH}}}', [], {"too_deep": 1}),
        ("qwen3-vl", f'{{"bbox_2d":{"[" * (MAX_DEPTH - 1)}1, 2, 3, 4{"]" * (MAX_DEPTH - 1)}}}', P, {}),
    ],
    # a digit loop
    "truncated": [("qwen3-vl", f'[{ITEM}, {{"bbox_2d": [5, {"9" * 1000}', P)],
    # far more blanks than any answer has
    "empty": [("radvlm", "[]" + " " * 200_000)],
}


def readings(section):
    return (
        table("parsing/bracket_readings", section) + table("parsing/json_readings", section) + ENDLESS.get(section, [])
    )


@pytest.mark.parametrize(("name", "text", "coords", "labels"), readings("boxes"))
def test_boxes_and_labels_are_read(name, text, coords, labels):
    raw = read_boxes(text, get_box_format(name))
    nothing = [None] * len(labels)
    assert raw == RawBoxes(coords, [label or None for label in labels], nothing, "boxes", {})


@pytest.mark.parametrize(("name", "text", "coords", "rejected"), readings("rejects"))
def test_what_is_no_box_is_rejected_by_name(name, text, coords, rejected):
    raw = read_boxes(text, get_box_format(name))
    assert (raw.coords, raw.rejected) == (coords, rejected)
    assert raw.status == ("boxes" if coords else "unparseable")


@pytest.mark.parametrize(("name", "text", "coords"), readings("truncated"))
def test_complete_boxes_of_a_cut_off_text_are_kept(name, text, coords):
    raw = read_boxes(text, get_box_format(name))
    assert (raw.coords, raw.status) == (coords, "truncated")


@pytest.mark.parametrize(("name", "text"), readings("empty"))
def test_a_stated_negative_is_empty(name, text):
    assert read_boxes(text, get_box_format(name)) == RawBoxes([], [], [], "empty", {})


@pytest.mark.parametrize(("name", "text", "reason"), readings("unparseable"))
def test_any_other_text_is_unparseable(name, text, reason):
    assert read_boxes(text, get_box_format(name)) == RawBoxes([], [], [], "unparseable", {reason: 1})

"""JSON as models spell it; most of it stands in `json_readings.toml`, which `test_readings.py` reads."""

import pytest

from grounding_rewards.parsing import RawBoxes, get_box_format, json_syntax, read_boxes
from grounding_rewards.parsing.json_syntax import read_plain_json
from grounding_rewards.parsing.results import MAX_DEPTH
from tests.tables import table

FORMAT = get_box_format("qwen3-vl")
A = [1, 2, 3, 4]
ITEM = '{"bbox_2d": [1, 2, 3, 4]}'

#: Names of corners: numbers from 0 and from 1, in any case, either part first, whole words, letters, points.
CORNERS = (
    *("x1 y1 x2 y2", "x0 y0 x1 y1", "xmin ymin xmax ymax", "MIN_X MIN_Y MAX_X MAX_Y", "minX minY maxX maxY"),
    *("x_left y_top x_right y_bottom", "left_x top_y right_x bottom_y", "x-start y-start x-end y-end"),
    *("left top right bottom", "L T R B"),
)


@pytest.mark.parametrize("names", CORNERS)
@pytest.mark.parametrize("box_format", ["qwen3-vl", "gemini"])
def test_corners_by_name(names, box_format):
    # whatever the format's order: on their own, and under a box key
    corners = ", ".join(f'"{name}": {number}' for name, number in zip(names.split(), A, strict=True))
    for text in (f'{{{corners}, "object_name": "mass"}}', f'[{{"object_name": "mass", "bbox": [{{{corners}}}]}}]'):
        raw = read_boxes(text, get_box_format(box_format))
        assert (raw.coords, raw.labels) == (A, ["mass"])


@pytest.mark.parametrize("points", table("parsing/cases", "corner_points_by_name"))
def test_corner_points_by_name(points):
    assert read_boxes(f'{{"bbox_2d": {{{points}}}}}', FORMAT).coords == A


@pytest.mark.parametrize(("order", "box"), table("parsing/cases", "position_and_size_by_name"))
def test_position_and_size_by_name(order, box):
    declared = get_box_format({"syntax": "json", "order": order, "space": "norm1000"})
    for text in (box, f'{{"bbox": {box}, "label": "mass"}}'):
        assert read_boxes(text, declared).coords == A


@pytest.mark.parametrize("box", table("parsing/json_spellings", "boxes"))
def test_spellings_of_a_box(box):
    item = f'{{"bbox_2d": {box}, "label": "mass"}}'
    raw = read_boxes(f"[{item}, {item}]", FORMAT)
    assert raw == RawBoxes(A + A, ["mass"] * 2, [None] * 2, "boxes", {})


@pytest.mark.parametrize("text", table("parsing/json_spellings", "commented_out"))
def test_a_box_in_a_comment_is_none(text):
    text = text.replace("OLD", '{"bbox_2d": [5, 6, 7, 8]}').replace("NEW", '{"bbox_2d": [1, 2, 3, 4]}')
    assert read_boxes(text, FORMAT).coords == A


@pytest.mark.parametrize("text", ["~~OLD~~ NEW", "<del>[OLD]</del> [NEW]", "// OLD\nNEW", "/* [OLD] */ [NEW]"])
def test_a_box_that_is_struck_out_counts(text):
    assert read_boxes(text.replace("OLD", ITEM).replace("NEW", ITEM), FORMAT).coords == A + A


def test_marks_of_comments_in_words_are_words():
    label = "a /* b */ ~~c~~ // d # e"
    assert read_boxes(f'[{{"bbox_2d": [1, 2, 3, 4], "label": "{label}"}}]', FORMAT).labels == [label]
    assert read_boxes(f"Nodule #1, see https://a.b: {ITEM}", FORMAT).coords == A
    assert read_boxes(f"# Findings\n{ITEM}", FORMAT).coords == A


@pytest.mark.parametrize(
    ("member", "score"),
    [('"confidence": 0.9', 0.9), ("'Confidence': 1", 1.0), ('"score": "0.5"', 0.5), ('"score": "high"', None)],
)
def test_stated_confidence(member, score):
    assert read_boxes(f'{{"bbox_2d": [1, 2, 3, 4], {member}}}', FORMAT).scores == [score]


@pytest.mark.parametrize("text", table("parsing/cases", "plain_json_takes_the_quick_way"))
def test_plain_json_takes_the_quick_way(text):
    assert read_plain_json(text, FORMAT) is not None


def test_what_the_decoder_reads_is_what_the_tokens_say(monkeypatch):
    texts = [text for _, text, *_ in table("parsing/json_readings", "boxes")]
    texts += [f'{{"bbox_2d": {"[" * (MAX_DEPTH - 1)}1, 2, 3, 4{"]" * (MAX_DEPTH - 1)}}}', "[" * 99 + "]" * 99]
    texts += ['[{"bbox_2d": [1.0, -2, 3e1, NaN], "bbox_2d": [1, 2, 3, 4], "label": "a\\n"}, {"bbox_2d": [1, 2']
    decoded = [read_boxes(f"It shows {text}", FORMAT) for text in texts]
    monkeypatch.setattr(json_syntax, "_decoded_node", lambda *_: None)
    assert decoded == [read_boxes(f"It shows {text}", FORMAT) for text in texts]

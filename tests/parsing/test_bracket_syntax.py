"""Boxes as numbers in brackets, read under the declarations of `answer-list`, `qwen2-vl` and `radvlm`."""

import pytest

from grounding_rewards.parsing import get_box_format, read_boxes
from grounding_rewards.parsing.bracket_syntax import read_plain_lists, read_plain_pairs, read_plain_sentences
from grounding_rewards.parsing.results import MAX_BOXES

A = [0.1, 0.2, 0.3, 0.4]
B = [0.5, 0.6, 0.7, 0.8]
P = [1, 2, 3, 4]
Q = [5, 6, 7, 8]

# format, text, coordinates, labels
BOXES = [
    ("answer-list", "<answer>[0.1,0.2,0.3,0.4]</answer>", A, [None]),
    ("answer-list", "<answer>[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]</answer>", A + B, [None, None]),
    ("answer-list", "<answer>[[0.1,0.2,0.3,0.4],[0.5,0.6,0.7,0.8]]</answer>", A + B, [None, None]),
    # one box per line, no commas between
    ("answer-list", "<answer>\n[0.1, 0.2, 0.3, 0.4]\n[0.5, 0.6, 0.7, 0.8]\n</answer>", A + B, [None, None]),
    # the closing tag is missing, the content is complete
    ("answer-list", "<think>…</think><answer>[0.1,0.2,0.3,0.4]", A, [None]),
    # no tags at all
    ("answer-list", "[0.1,0.2,0.3,0.4]", A, [None]),
    # a comma left over, in front of the closing tag: broken, not cut off
    ("answer-list", "<answer>[0.1,0.2,0.3,0.4],</answer>", A, [None]),
    # other separators and brackets
    ("answer-list", "<answer>[0.1 0.2 0.3 0.4]; (0.5, 0.6, 0.7, 0.8)</answer>", A + B, [None, None]),
    ("answer-list", "<answer>［0.1，0.2，0.3，0.4］</answer>", A, [None]),
    # the numbers are norm1 because the format says so, however large they are
    ("answer-list", "<answer>[100, 200, 300, 400]</answer>", [100, 200, 300, 400], [None]),
    # the family's own form
    (
        "qwen2-vl",
        "<|object_ref_start|>mass<|object_ref_end|><|box_start|>(1,2),(3,4)<|box_end|>"
        "<|object_ref_start|>heart<|object_ref_end|><|box_start|>(5,6),(7,8)<|box_end|>",
        P + Q,
        ["mass", "heart"],
    ),
    # decoded with its end token
    (
        "qwen2-vl",
        "<|object_ref_start|>mass<|object_ref_end|><|box_start|>(1,2),(3,4)<|box_end|><|im_end|>",
        P,
        ["mass"],
    ),
    # one label for two boxes
    (
        "qwen2-vl",
        "<|object_ref_start|>mass<|object_ref_end|><|box_start|>(1,2),(3,4)<|box_end|>"
        " and <|box_start|>(5,6),(7,8)<|box_end|>",
        P + Q,
        ["mass", "mass"],
    ),
    # numbers inside a label are not a box
    (
        "qwen2-vl",
        "<|object_ref_start|>a (9,9),(9,9)<|object_ref_end|><|box_start|>(1,2),(3,4)<|box_end|>",
        P,
        ["a (9,9),(9,9)"],
    ),
    # a label that was abandoned
    (
        "qwen2-vl",
        "<|object_ref_start|>a<|object_ref_start|>b<|object_ref_end|><|box_start|>(1,2),(3,4)<|box_end|>",
        P,
        ["b"],
    ),
    # box tokens without a label
    ("qwen2-vl", "<|box_start|>(1,2),(3,4)<|box_end|>", P, [None]),
    # lists inside box tokens, from a user's fine-tuning
    ("qwen2-vl", "<|box_start|>[1,2,3,4],[5,6,7,8]<|box_end|>", P + Q, [None, None]),
    # special tokens stripped: boxes run together, labels stick to them
    ("qwen2-vl", "(1,2),(3,4)(5,6),(7,8)", P + Q, [None, None]),
    ("qwen2-vl", "left lung(1,2),(3,4)(5,6),(7,8), heart (1,2),(3,4)", P + Q + P, ["left lung"] * 2 + ["heart"]),
    # in prose
    ("radvlm", "The mass is located at [0.1, 0.2, 0.3, 0.4] and [0.5, 0.6, 0.7, 0.8].", A + B, [None, None]),
    # other brackets in prose are no boxes
    ("radvlm", "In this film (AP view) [sic] the mass (2) is at [0.1, 0.2, 0.3, 0.4].", A, [None]),
    # a citation
    ("radvlm", "As before [1], the mass is at [0.1, 0.2, 0.3, 0.4].", A, [None]),
    # a negative beside a box
    ("radvlm", "No effusion. Mass at [0.1, 0.2, 0.3, 0.4].", A, [None]),
    # cannot be told from a box, so it counts as one
    ("radvlm", "At [0, 0, 0, 0].", [0, 0, 0, 0], [None]),
]

REJECTS = [
    ("answer-list", "<answer>[0.1,0.2,0.3]</answer>", [], {"wrong_count": 1}),
    ("answer-list", "<answer>[0.1,0.2,0.3,0.4,0.5],[0.5,0.6,0.7,0.8]</answer>", B, {"wrong_count": 1}),
    ("answer-list", "<answer>[0.1,0.2,0.3],[0.1,0.2,0.3,0.4,0.5]</answer>", [], {"wrong_count": 2}),
    ("answer-list", "<answer>[x1,y1,x2,y2]</answer>", [], {"placeholder": 1}),
    ("answer-list", "<answer>[nan,0.2,0.3,0.4],[0.5,0.6,0.7,0.8]</answer>", B, {"not_finite": 1}),
    ("answer-list", "<answer>[0.1,,0.3,0.4]</answer>", [], {"not_a_number": 1}),
    ("answer-list", "<answer>[0.1,0.2)</answer>", [], {"unclosed": 1}),
    # cut off inside closed tags: broken, not truncated
    ("answer-list", "<answer>[0.1,0.2,0.3,0.4</answer>", [], {"unclosed": 1}),
    ("answer-list", "<answer>[1,2,3," + "9" * 100_000 + "]</answer>", [], {"number_too_large": 1}),
    ("answer-list", "<answer>[1,2],[3,4]</answer>", [], {"point": 2}),
    ("answer-list", "<answer>" + "[1,2,3,4]," * (MAX_BOXES + 5), P * MAX_BOXES, {"too_many_boxes": 1}),
    # an outer list that was abandoned
    ("answer-list", "[245,[0.1,0.2,0.3,0.4]]", A, {"unclosed": 1}),
    # four corner points are a quadrilateral, not two boxes
    ("qwen2-vl", "<|quad_start|>(1,2),(3,4),(5,6),(7,8)<|quad_end|>", [], {"quad": 1}),
    ("qwen2-vl", "click(start_box='<|box_start|>(371,60)<|box_end|>')", [], {"point": 1}),
    ("qwen2-vl", "(1,2),(3,4),(5,6)", [], {"wrong_count": 1}),
    ("qwen2-vl", "(x1,y1),(x2,y2)", [], {"placeholder": 1}),
]

TRUNCATED = [
    ("answer-list", "<answer>[0.1,0.2,0.3,0.4],[0.5,0.6,0.7", A),
    ("answer-list", "<answer>[0.1,0.2,0.3,0.4],[0.5,0.6,0.7,0.8", A),
    ("answer-list", "<answer>[0.1,0.2,0.3,0.4],", A),
    ("answer-list", "<answer>", []),
    # complete, then thinking anew until the token limit
    ("answer-list", "[0.1,0.2,0.3,0.4]<think>but", A),
    ("answer-list", "<think>[0.1,0.2,0.3,0.4]", []),
    ("qwen2-vl", "<|object_ref_start|>a<|object_ref_end|><|box_start|>(1,2),(3,4)<|box_end|><|box_start|>", P),
    ("qwen2-vl", "(1,2),(3,4),(5,6),", []),
    ("qwen2-vl", "<|box_start|>(1,2),(3", []),
    # tokens stripped, cut off in the first number of a corner point
    ("qwen2-vl", "(1,2),(3", []),
    ("qwen2-vl", "(1,2),(3,4)(5", P),
    ("radvlm", "The mass is located at [0.1, 0.2, 0.3, 0.4] and [0.5, 0.", A),
    ("radvlm", "The mass is located at [", []),
]

EMPTY = [
    ("answer-list", "<answer></answer>"),
    ("answer-list", "<think>hm</think>\n<answer>\n</answer>"),
    ("answer-list", "<answer>[]</answer>"),
    ("answer-list", "<answer>None</answer>"),
    ("answer-list", "<answer>No Objects"),
    ("qwen2-vl", "None"),
    ("qwen2-vl", "<|box_start|>None<|box_end|>"),
    ("radvlm", "No nodules are visible on this film."),
]

UNPARSEABLE = [
    ("answer-list", "", "no_answer"),
    ("answer-list", "<think>[0.1,0.2,0.3,0.4]</think>", "no_answer"),
    ("answer-list", "<answer>here</answer>", "nothing_stated"),
    ("answer-list", "Write <answer>[] if there is nothing</answer>", "echoed_prompt"),
    # the tokens that held the coordinates were stripped
    ("qwen2-vl", "cardoorwheel", "nothing_stated"),
    ("radvlm", "There is a mass in the left lung.", "nothing_stated"),
]


@pytest.mark.parametrize(("name", "text", "coords", "labels"), BOXES)
def test_boxes(name, text, coords, labels):
    raw = read_boxes(text, get_box_format(name))
    assert (raw.coords, raw.labels, raw.status) == (coords, labels, "boxes")


@pytest.mark.parametrize(("name", "text", "coords", "rejected"), REJECTS)
def test_rejects(name, text, coords, rejected):
    raw = read_boxes(text, get_box_format(name))
    assert (raw.coords, raw.rejected) == (coords, rejected)
    assert raw.status == ("boxes" if coords else "unparseable")


@pytest.mark.parametrize(("name", "text", "coords"), TRUNCATED)
def test_truncated(name, text, coords):
    raw = read_boxes(text, get_box_format(name))
    assert (raw.coords, raw.status) == (coords, "truncated")


@pytest.mark.parametrize(("name", "text"), EMPTY)
def test_empty(name, text):
    assert read_boxes(text, get_box_format(name)) == ([], [], [], "empty", {})


@pytest.mark.parametrize(("name", "text", "reason"), UNPARSEABLE)
def test_unparseable(name, text, reason):
    assert read_boxes(text, get_box_format(name)) == ([], [], [], "unparseable", {reason: 1})


@pytest.mark.parametrize(
    ("read", "name", "text"),
    [
        (read_plain_lists, "answer-list", "<answer>[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]</answer>"),
        (
            read_plain_pairs,
            "qwen2-vl",
            "<|object_ref_start|>a<|object_ref_end|><|box_start|>(1,2),(3,4)<|box_end|>",
        ),
        (read_plain_sentences, "radvlm", "The mass is located at [0.1, 0.2, 0.3, 0.4] and [0.5, 0.6, 0.7, 0.8]."),
    ],
)
def test_plain_text_takes_the_quick_way(read, name, text):
    assert read(text, get_box_format(name)) is not None

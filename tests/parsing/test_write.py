"""Patterns for constrained decoding: what they match is read, and what is written is matched."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grounding_rewards.boxes import to_pixel
from grounding_rewards.parsing import box_format_regex, format_boxes, get_box_format, list_box_formats, read_boxes
from grounding_rewards.parsing.write import _up_to

SIZES = {"width": 1000, "height": 800, "resized_width": 1008, "resized_height": 812}


@pytest.mark.parametrize("name", list_box_formats())
@pytest.mark.parametrize("labels", [None, ["mass", "pleural effusion"]], ids=["any", "given"])
@settings(max_examples=50)
@given(data=st.data())
def test_all_that_it_matches_is_read(name, labels, data):
    pattern, ascii_ = box_format_regex(name, 3, labels=labels), st.characters(codec="ascii")
    text = data.draw(st.from_regex(pattern, fullmatch=True, alphabet=ascii_))
    raw = read_boxes(text, get_box_format(name))
    assert raw.rejected == {}
    if text == get_box_format(name).layout.negative or not any(raw.coords):
        # Zeros alone are a negative under InternVL.
        assert raw.status in ("empty", "boxes")
    else:
        assert (raw.status, 1 <= len(raw.labels) <= 3) == ("boxes", True)


@pytest.mark.parametrize("name", list_box_formats())
def test_it_matches_what_is_written(name):
    pattern = re.compile(box_format_regex(name, 2))
    fmt = get_box_format(name)
    unit = 1000 if fmt.space.frame == "resized" else fmt.space.unit
    boxes = to_pixel(np.array([[0.2, 0.3, 0.4, 0.6], [0.5, 0.1, 0.8, 0.3]]) * unit, fmt.space, **SIZES)
    # different labels, one label for all, none
    for labels in (["mass", "nodule", "mass"], ["mass"] * 3, [None] * 3):
        if name == "florence-2" and None in labels:
            # Without labels its boxes run together, and eight numbers may be a quadrilateral.
            continue
        for count in range(3):
            text = format_boxes(boxes[:count], name, labels=labels[:count], **SIZES)
            assert pattern.fullmatch(text), (labels, count)
        assert not pattern.fullmatch(format_boxes(boxes[[0, 1, 0]], name, labels=labels, **SIZES)), labels


@pytest.mark.parametrize("largest", [0, 7, 9, 10, 99, 100, 839, 840, 999, 1000, 1023])
def test_ranges(largest):
    pattern = re.compile(_up_to(largest))
    padded = re.compile(_up_to(largest, 4))
    for number in range(2000):
        assert bool(pattern.fullmatch(str(number))) == (number <= largest)
        assert bool(padded.fullmatch(f"{number:04}")) == (number <= largest)
    assert not pattern.fullmatch("00")


def test_labels_are_literal():
    pattern = box_format_regex("qwen3-vl", 1, labels=["mass (solid)", "a|b"])
    assert re.fullmatch(pattern, '```json\n[\n\t{"bbox_2d": [1, 2, 3, 4], "label": "mass (solid)"}\n]\n```')
    assert not re.fullmatch(pattern, '```json\n[\n\t{"bbox_2d": [1, 2, 3, 4], "label": "a"}\n]\n```')


def test_labels_in_json_are_escaped_as_in_json():
    pattern = box_format_regex("kimi-vl", 1, labels=['a "b"'])
    assert re.fullmatch(pattern, r'[{"bbox_2d": [0.100, 0.200, 0.300, 0.400], "label": "a \"b\""}]')
    assert not re.fullmatch(pattern, '[{"bbox_2d": [0.100, 0.200, 0.300, 0.400], "label": "a "b""}]')


@pytest.mark.parametrize("max_boxes", [0, 1001, True, 2.0, "3", None])
def test_max_boxes_is_checked(max_boxes):
    with pytest.raises(ValueError, match="1 to 1000 for `max_boxes`"):
        box_format_regex("qwen3-vl", max_boxes)


@pytest.mark.parametrize("labels", ["mass", [], [""], [3], {"mass"}])
def test_labels_are_checked(labels):
    with pytest.raises(ValueError, match="list of words for `labels`"):
        box_format_regex("qwen3-vl", labels=labels)

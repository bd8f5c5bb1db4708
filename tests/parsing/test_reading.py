"""The promises that hold for every format: exact conversion, round trips, and any text at all."""

import dataclasses
import json
import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.boxes import to_pixel
from grounding_rewards.parsing import (
    REJECT_REASONS,
    STATUSES,
    format_boxes,
    get_box_format,
    list_box_formats,
    parse_boxes,
    read_boxes,
)
from grounding_rewards.parsing.results import MAX_BOXES
from tests.parsing import adversarial

SIZES = {"width": 2000, "height": 1000, "resized_width": 1008, "resized_height": 504}
FORMATS = list_box_formats()
LABEL_FORMATS = ["qwen2-vl", "qwen2.5-vl", "qwen3-vl"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        # the same box, 500, 250, 1000, 750 of 2000×1000 pixels, in every format
        ("answer-list", "<answer>[0.25, 0.25, 0.5, 0.75]</answer>"),
        ("qwen2-vl", "<|box_start|>(250,250),(500,750)<|box_end|>"),
        ("qwen2.5-vl", '[{"bbox_2d": [252, 126, 504, 378]}]'),
        ("qwen3-vl", '[{"bbox_2d": [250, 250, 500, 750]}]'),
        ("radvlm", "A mass is located at [0.25, 0.25, 0.5, 0.75]."),
    ],
)
def test_boxes_come_in_pixels_of_the_original_image(name, text):
    parsed = parse_boxes(text, name, **SIZES)
    np.testing.assert_allclose(parsed.boxes, [[500, 250, 1000, 750]], rtol=0, atol=1e-9)
    assert parsed.boxes.dtype == np.float64


@pytest.mark.parametrize("text", ["[]", "gibberish", ""])
@pytest.mark.parametrize("name", FORMATS)
def test_no_boxes_have_the_shape_of_boxes(name, text):
    assert parse_boxes(text, name, **SIZES).boxes.shape == (0, 4)


@pytest.mark.parametrize(
    ("name", "missing"),
    [("qwen3-vl", "width"), ("radvlm", "height"), ("qwen2.5-vl", "resized_width"), ("qwen2.5-vl", "height")],
)
@pytest.mark.parametrize("text", ["[]", '{"bbox_2d": [1, 2, 3, 4]}'])
def test_a_missing_size_is_the_callers_error_whatever_the_text(name, missing, text):
    with pytest.raises(ValueError, match=missing):
        parse_boxes(text, name, **{**SIZES, missing: None})


def test_without_a_resized_size_the_original_size_is_taken_with_a_warning():
    with pytest.warns(UserWarning, match="resized_width"):
        parsed = parse_boxes('{"bbox_2d": [1, 2, 3, 4]}', "qwen2.5-vl", width=2000, height=1000)
    assert parsed.boxes.tolist() == [[1, 2, 3, 4]]


def test_format_boxes_refuses_what_cannot_be_written():
    with pytest.raises(ValueError, match="finite numbers for `boxes`"):
        format_boxes([[0, 0, math.nan, 1]], "qwen3-vl", **SIZES)
    with pytest.raises(ValueError, match="one label for each of the 1 boxes for `labels`, got 2"):
        format_boxes([[0, 0, 1, 1]], "qwen3-vl", labels=["a", "b"], **SIZES)
    with pytest.raises(ValueError, match="one label for each of the 1 boxes for `labels`, got 'a'"):
        format_boxes([[0, 0, 1, 1]], "qwen3-vl", labels="a", **SIZES)
    with pytest.raises(ValueError, match=r"words or None for `labels`, got \[3\]"):
        format_boxes([[0, 0, 1, 1]], "qwen2-vl", labels=[3], **SIZES)
    with pytest.raises(ValueError, match="for `width`"):
        format_boxes([[0, 0, 1, 1]], "qwen3-vl", height=1000)


@pytest.mark.parametrize("text", [None, b"[]", 3, [{"role": "assistant", "content": "[]"}]])
def test_what_is_no_string_is_the_callers_error(text):
    with pytest.raises(ValueError, match="string for `text`"):
        parse_boxes(text, "qwen3-vl", **SIZES)


def test_nobody_writes_minus_zero():
    # a box drawn a hair's breadth over the edge
    assert "[0.00, 0.00, 0.50, 0.50]" in format_boxes([[-0.1, -0.1, 1000, 500]], "radvlm", **SIZES)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("answer-list", "<answer>[0.250, 0.250, 0.500, 0.750]</answer>"),
        ("qwen2-vl", "<|object_ref_start|>mass<|object_ref_end|><|box_start|>(250,250),(500,750)<|box_end|>"),
        ("qwen2.5-vl", '```json\n[\n\t{"bbox_2d": [252, 126, 504, 378], "label": "mass"}\n]\n```'),
        ("qwen3-vl", '```json\n[\n\t{"bbox_2d": [250, 250, 500, 750], "label": "mass"}\n]\n```'),
        ("radvlm", "There is a mass located at [0.25, 0.25, 0.50, 0.75]."),
    ],
)
def test_written_form(name, text):
    assert format_boxes([[500, 250, 1000, 750]], name, labels=["mass"], **SIZES) == text


@pytest.mark.parametrize("name", FORMATS)
def test_no_boxes_are_written_as_a_stated_negative(name):
    parsed = parse_boxes(format_boxes([], name, **SIZES), name, **SIZES)
    assert (parsed.status, parsed.rejected) == ("empty", {})


coordinate = st.floats(-3000, 3000)
boxes = st.lists(st.lists(coordinate, min_size=4, max_size=4), min_size=1, max_size=5)
# letters of every script, marks, digits, punctuation and blanks, but no control characters and no lone surrogates
words = st.text(st.characters(exclude_categories=["C"], exclude_characters="<"), min_size=1).map(str.strip).filter(bool)


@pytest.mark.parametrize("name", FORMATS)
@given(boxes=boxes)
def test_round_trip_within_half_a_unit(name, boxes):
    fmt = get_box_format(name)
    parsed = parse_boxes(format_boxes(boxes, name, **SIZES), name, **SIZES)
    unit = to_pixel(np.ones((1, 4)), fmt.space, **SIZES)
    half_unit = 0.5 * 10.0**-fmt.decimals * unit
    assert (parsed.status, parsed.rejected) == ("boxes", {})
    assert (np.abs(parsed.boxes - boxes) <= half_unit + 1e-9).all()


@pytest.mark.parametrize("name", LABEL_FORMATS)
@given(labels=st.lists(words, min_size=1, max_size=4))
def test_labels_survive_the_round_trip(name, labels):
    text = format_boxes([[0, 0, 100, 100]] * len(labels), name, labels=labels, **SIZES)
    assert parse_boxes(text, name, **SIZES).labels == tuple(labels)


def long_way(fmt):
    """The same format without its quick way."""
    return dataclasses.replace(fmt, syntax=fmt.syntax._replace(quick=lambda text, fmt: None))


def check_promises(text, name):
    """What holds for every text; both ways of reading it must agree."""
    fmt = get_box_format(name)
    raw = read_boxes(text, fmt)
    assert raw == read_boxes(text, long_way(fmt))
    assert len(raw.coords) == 4 * len(raw.labels) == 4 * len(raw.scores)
    assert all(map(math.isfinite, raw.coords))
    assert raw.status in STATUSES
    assert set(raw.rejected) <= set(REJECT_REASONS)
    assert all(count > 0 for count in raw.rejected.values())
    if raw.status == "boxes":
        assert raw.labels
    if raw.status == "empty":
        assert not raw.labels
        assert not raw.rejected
    if raw.status == "unparseable":
        assert not raw.labels
        assert raw.rejected
    return raw


# any text: every code point, lone surrogates and NUL included
any_text = st.text(st.characters(codec=None, exclude_categories=[]))
# pieces of the syntaxes, so that a random sequence of them comes close to a real completion
fragments = st.sampled_from(
    [
        *"[]{}(),:\"'<>，［（”“\\.-+1234 \n\t\0\ud800\u3000",
        *("0.5", "1e9", "9999999999", "NaN", "null", "None", "true", "false", "x1", '\\"', "mass"),
        *("bbox_2d", '"bbox_2d":', '"label":', '"bbox_2d":[1,2,3,4]', '{"bbox_2d":[1,2,3,4],"label":"a"}'),
        *("[1,2,3,4]", "(1,2),(3,4)", "[1,2]", "```json\n", "```", "json", "No findings. "),
        *("<answer>", "</answer>", "<think>", "</think>", "<|im_end|>"),
        *("<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>"),
    ]
)


@pytest.mark.parametrize("name", FORMATS)
@given(text=any_text)
def test_any_text_is_read(name, text):
    check_promises(text, name)


@pytest.mark.parametrize("name", FORMATS)
@given(text=st.lists(fragments, max_size=25).map("".join))
def test_any_sequence_of_fragments_is_read(name, text):
    check_promises(text, name)


@st.composite
def mutated(draw, text):
    """A text after a few cuts, insertions and repetitions."""
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 6)))
        text = draw(
            st.sampled_from(
                [
                    text[:start] + text[end:],
                    text[:start] + draw(fragments) + text[start:],
                    text + text[start:end],
                    text[:start],
                ]
            )
        )
    return text


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data(), boxes=boxes, label=words)
def test_mutations_of_well_formed_answers_are_read(name, data, boxes, label):
    text = format_boxes(boxes, name, labels=[label] * len(boxes), **SIZES)
    check_promises(data.draw(mutated(text)), name)


@given(data=st.data(), boxes=boxes, label=words)
def test_cutting_an_answer_off_never_invents_a_box(data, boxes, label):
    for name in FORMATS:
        text = format_boxes(boxes, name, labels=[label] * len(boxes), **SIZES)
        whole = read_boxes(text, get_box_format(name)).coords
        part = read_boxes(text[: data.draw(st.integers(0, len(text)))], get_box_format(name)).coords
        assert part == whole[: len(part)]


@given(
    items=st.lists(
        st.fixed_dictionaries(
            {"bbox_2d": st.lists(st.integers(-(10**10), 10**10) | st.floats() | st.none() | words, max_size=5)},
            optional={"label": words | st.none() | st.integers() | st.booleans(), "score": st.floats(0, 1)},
        )
        | st.lists(st.integers(), max_size=4)
        | st.none(),
        max_size=4,
    ),
    indent=st.none() | st.just(1),
    fenced=st.booleans(),
)
def test_both_ways_agree_on_well_formed_json(items, indent, fenced):
    text = json.dumps(items, indent=indent, ensure_ascii=False)
    check_promises(f"```json\n{text}\n```" if fenced else text, "qwen3-vl")
    check_promises(text[1:-1], "answer-list")


@pytest.mark.parametrize("opening", adversarial.OPENINGS)
@pytest.mark.parametrize("name", ["answer-list", "qwen2-vl", "qwen3-vl", "radvlm"])
def test_time_is_linear_in_the_length(name, opening):
    fmt = get_box_format(name)
    # A bound on the order, not on the speed: a linear reader takes some 10 ms for 120,000 characters, a quadratic one
    # 14 billion steps. Only processor time counts, and a slow reader is slow each time.
    for pattern, text in adversarial.texts(opening, 120_000).items():
        assert any(_seconds(text, fmt) < 0.5 for _ in range(3)), pattern


def _seconds(text, fmt):
    start = time.process_time()
    read_boxes(text, fmt)
    return time.process_time() - start


@pytest.mark.parametrize("name", ["qwen2-vl", "qwen3-vl"])
def test_a_megabyte_of_anything_is_read(name):
    for pattern, text in adversarial.texts("[", 1_000_000).items():
        raw = read_boxes(text, get_box_format(name))
        assert raw.status in STATUSES, pattern
        assert len(raw.labels) <= MAX_BOXES, pattern


# families of the collected completions -> the format that declares the same syntax, order and label rule
FAMILIES = {
    "Qwen3-VL": "qwen3-vl",
    "Qwen3-VL-30B-A3B": "qwen3-vl",
    "VG-LLM": "qwen3-vl",
    "Qwen2.5-VL": "qwen2.5-vl",
    "Rex-Thinker (Qwen2.5-VL-7B)": "qwen2.5-vl",
    "VLM-R1 (Qwen2.5-VL)": "qwen2.5-vl",
    "Visual-ARFT (Qwen2.5-VL)": "qwen2.5-vl",
    "Visual-RFT (Qwen2-VL/Qwen2.5-VL)": "qwen2.5-vl",
    "Qwen2.5-VL (user fine-tune)": "qwen2-vl",
    "Qwen2-VL": "qwen2-vl",
    "Qwen2-VL (ms-swift)": "qwen2-vl",
    "UI-TARS-1.5": "qwen2-vl",
    "RadVLM": "radvlm",
}
STATUS_OF = {"explicit_empty": "empty", "malformed": "unparseable", "points": "unparseable", "no_boxes": "unparseable"}


def test_real_completions(shared_dir):
    path = shared_dir / "data" / "completions" / "completions.jsonl"
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    read = 0
    for record in records:
        if record["family"] not in FAMILIES or "data-bbox" in record["text"] or record["text"][0].isdigit():
            # Boxes as attributes of HTML and bare numbers without brackets are no part of these formats.
            continue
        raw = check_promises(record["text"], FAMILIES[record["family"]])
        expected = [float(value) for box in record["boxes"] or [] for value in box]
        status = STATUS_OF.get(record["status"], record["status"])
        if record["status"] == "malformed" and expected:
            # A list with a stray brace: broken for a strict reader, but every box is there.
            status = "boxes"
        assert (raw.coords, raw.status) == (expected, status), record["id"]
        assert raw.labels == [label or None for label in record["labels"] or []], record["id"]
        read += 1
    assert read >= 25

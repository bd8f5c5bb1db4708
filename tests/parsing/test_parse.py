"""The promises that hold for every format: exact conversion, round trips, and any text at all."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grounding_rewards.boxes import to_pixel
from grounding_rewards.parsing import STATUSES, format_boxes, get_box_format, list_box_formats, parse_boxes, read_boxes
from grounding_rewards.parsing.answer_span import has_answer_mark
from grounding_rewards.parsing.formats import SOURCES
from grounding_rewards.parsing.results import MAX_BOXES
from tests.conftest import read_lines
from tests.parsing import adversarial
from tests.parsing.promises import check_promises
from tests.tables import table

SIZES = {"width": 2000, "height": 1000, "resized_width": 1008, "resized_height": 504}
FORMATS = list_box_formats()
#: formats whose labels stand in quotes or tags, so that any words can be one
LABEL_FORMATS = [
    name
    for name in FORMATS
    if "{label}" in (item := get_box_format(name).layout.item)
    and not item.endswith("{label}")
    and (item.startswith("<") or '"label"' in item)
]
#: formats whose labels are the words around a box
UNTAGGED_LABEL_FORMATS = ["paligemma", "florence-2", "kosmos-2.5", "shikra", "ferret", "brackets"]


@pytest.mark.parametrize(("name", "text"), table("parsing/format_cases", "read"))
def test_boxes_come_in_pixels_of_the_original_image(name, text):
    parsed = parse_boxes(text, name, **SIZES)
    np.testing.assert_allclose(parsed.boxes, [[500, 250, 1000, 750]], rtol=0, atol=1e-9)
    assert parsed.boxes.dtype == np.float64


@pytest.mark.parametrize("text", ["[]", "gibberish", ""])
@pytest.mark.parametrize("name", FORMATS)
def test_no_boxes_have_the_shape_of_boxes(name, text):
    assert parse_boxes(text, name, **SIZES).boxes.shape == (0, 4)


@pytest.mark.parametrize(
    ("name", "missing"), table("parsing/cases", "a_missing_size_is_the_callers_error_whatever_the_text")
)
@pytest.mark.parametrize("text", ["[]", '{"bbox_2d": [1, 2, 3, 4]}'])
def test_a_missing_size_is_the_callers_error_whatever_the_text(name, missing, text):
    with pytest.raises(ValueError, match=missing):
        parse_boxes(text, name, **{**SIZES, missing: None})


@pytest.mark.parametrize(("boxes", "name", "labels", "message"), table("parsing/cases", "format_boxes_refuses"))
def test_format_boxes_refuses_what_cannot_be_written(boxes, name, labels, message):
    with pytest.raises(ValueError, match=message):
        format_boxes(boxes, name, labels=labels, **SIZES)


@pytest.mark.parametrize("text", [None, b"[]", 3, [{"role": "assistant", "content": "[]"}]])
def test_what_is_no_string_is_the_callers_error(text):
    with pytest.raises(ValueError, match="string for `text`"):
        parse_boxes(text, "qwen3-vl", **SIZES)


def test_nobody_writes_minus_zero():
    # a box drawn a hair's breadth over the edge
    assert "[0.00, 0.00, 0.50, 0.50]" in format_boxes([[-0.1, -0.1, 1000, 500]], "radvlm", **SIZES)


@pytest.mark.parametrize(("name", "text"), table("parsing/format_cases", "written"))
def test_written_form(name, text):
    assert format_boxes([[500, 250, 1000, 750]], name, labels=["mass"], **SIZES) == text


@pytest.mark.parametrize("name", FORMATS)
def test_no_boxes_are_written_as_a_stated_negative(name):
    parsed = parse_boxes(format_boxes([], name, **SIZES), name, **SIZES)
    assert (parsed.status, parsed.rejected) == ("empty", {})


boxes = st.lists(st.lists(st.floats(-3000, 3000), min_size=4, max_size=4), min_size=1, max_size=5)
side = st.tuples(st.floats(0, 0.9), st.floats(0.1, 1)).map(lambda pair: (pair[0], min(1.0, pair[0] + pair[1])))
#: boxes as fractions of the frame that a format can point at
fractions = st.lists(st.tuples(side, side).map(lambda s: [s[0][0], s[1][0], s[0][1], s[1][1]]), min_size=1, max_size=5)


def is_bounded(fmt):
    return fmt.largest is not None or bool(fmt.syntax.tokens)


def in_frame(fractions_, fmt):
    """Fractions of the frame as boxes in pixels."""
    unit = SIZES["resized_height"] if fmt.space.frame == "resized" else fmt.space.unit
    values = np.array(fractions_) * unit - fmt.space.offset
    return to_pixel(values, fmt.space, **SIZES)


def unit_of(fmt):
    """The size of one unit of the last digit in pixels, (1, 4)."""
    unit = to_pixel(np.ones((1, 4)), fmt.space, **SIZES) - to_pixel(np.zeros((1, 4)), fmt.space, **SIZES)
    return unit / fmt.syntax.patches if fmt.syntax.patches else unit * 10.0**-fmt.decimals


# letters of every script, marks, digits, punctuation and blanks, but no control characters and no lone surrogates
letters = st.characters(exclude_categories=["C"], exclude_characters="<◁")
words = st.text(letters, min_size=1).map(str.strip).filter(bool)
# Marks are refused as labels where a format can't escape them.
label_words = words.filter(lambda word: not has_answer_mark(word))


@pytest.mark.parametrize("name", [name for name in FORMATS if get_box_format(name).space.frame != "cropped"])
def test_the_edge_of_the_image_survives_the_round_trip(name):
    # the far edge is no number of its own where bins are numbered from 0: half a unit at most is lost
    image = np.array([[0.0, 0.0, SIZES["width"], SIZES["height"]]])
    parsed = parse_boxes(format_boxes(image, name, **SIZES), name, **SIZES)
    assert np.all(np.abs(parsed.boxes - image) <= 0.5 * unit_of(get_box_format(name)) + 1e-9)


@pytest.mark.parametrize("name", [name for name in FORMATS if not is_bounded(get_box_format(name))])
@given(boxes=boxes)
def test_round_trip_within_half_a_unit(name, boxes):
    parsed = parse_boxes(format_boxes(boxes, name, **SIZES), name, **SIZES)
    if np.any(parsed.boxes):
        assert (parsed.status, parsed.rejected) == ("boxes", {})
        assert (np.abs(parsed.boxes - boxes) <= 0.5 * unit_of(get_box_format(name)) + 1e-9).all()


@pytest.mark.parametrize("name", [name for name in FORMATS if is_bounded(get_box_format(name))])
@given(fractions=fractions)
def test_round_trip_where_numbers_have_an_end(name, fractions):
    fmt = get_box_format(name)
    boxes = in_frame(fractions, fmt)
    parsed = parse_boxes(format_boxes(boxes, name, **SIZES), name, **SIZES)
    assert (parsed.status, parsed.rejected) == ("boxes", {})
    # The last number stands for the far edge, and a cell for all that begins in it: up to one unit there.
    assert (np.abs(parsed.boxes - boxes) <= unit_of(fmt) + 1e-9).all()


@pytest.mark.parametrize("name", LABEL_FORMATS)
@given(labels=st.lists(label_words, min_size=1, max_size=4))
def test_labels_survive_the_round_trip(name, labels):
    text = format_boxes([[500, 0, 1500, 500]] * len(labels), name, labels=labels, **SIZES)
    assert parse_boxes(text, name, **SIZES).labels == tuple(labels)


@pytest.mark.parametrize("name", UNTAGGED_LABEL_FORMATS)
@given(labels=st.lists(st.sampled_from(["mass", "left effusion", "5 mm nodule", "肿块"]), min_size=1, max_size=4))
def test_untagged_labels_survive_the_round_trip(name, labels):
    text = format_boxes([[500, 0, 1500, 500]] * len(labels), name, labels=labels, **SIZES)
    assert parse_boxes(text, name, **SIZES).labels == tuple(labels)


@pytest.mark.parametrize("syntax", ["json", "brackets", "qwen3-vl", "radvlm", "internvl", "qwen2-vl"])
@pytest.mark.parametrize(("order", "numbers"), table("parsing/cases", "orders_of_one_box"))
def test_declared_orders(syntax, order, numbers):
    declared = {"syntax": syntax, "order": order, "space": "norm1000"}
    for text in (numbers, f'{{"bbox_2d": {numbers}}}', f"Here: {numbers}!"):
        assert parse_boxes(text, declared, width=100, height=100).boxes.tolist() == [[10, 20, 40, 60]]
    written = format_boxes([[10, 20, 40, 60]], declared, width=100, height=100)
    assert parse_boxes(written, declared, width=100, height=100).boxes.tolist() == [[10, 20, 40, 60]]


def test_declared_keys_are_the_only_ones():
    declared = {"syntax": "json", "keys": ["region"], "space": "pixel"}
    assert parse_boxes('{"region": [1, 2, 3, 4]}', declared).boxes.tolist() == [[1, 2, 3, 4]]
    assert parse_boxes('{"bbox_2d": [1, 2, 3, 4]}', declared).rejected == {"unknown_key": 1}
    assert format_boxes([[1, 2, 3, 4]], declared) == '```json\n[\n\t{"region": [1, 2, 3, 4]}\n]\n```'


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
        *("<ref>", "</ref>", "<box>", "</box>", "<|det|>", "<obj>", "<pred>", "<poly>", "<point>", "1 2 3 4", ";"),
        *("<loc_1>", "<loc0001>", "<loc_", "<1>", "<x1>", "<y2>", "<patch_index_0033>", "<loc_1><loc_2><loc_3><loc_4>"),
    ]
)


#: fewer examples a format: there are three times as many formats as ways of reading
FEW = settings(max_examples=40)


@pytest.mark.parametrize("name", FORMATS)
@FEW
@given(text=any_text)
def test_any_text_is_read(name, text):
    check_promises(text, name)


@pytest.mark.parametrize("name", FORMATS)
@FEW
@given(text=st.lists(fragments, max_size=25).map("".join))
def test_any_sequence_of_fragments_is_read(name, text):
    check_promises(text, name)


@st.composite
def mutated(draw, text):
    """A text after a few cuts, insertions and repetitions."""
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 6)))
        inserted = text[:start] + draw(fragments) + text[start:]
        text = draw(st.sampled_from([text[:start] + text[end:], inserted, text + text[start:end], text[:start]]))
    return text


@pytest.mark.parametrize("name", FORMATS)
@FEW
@given(data=st.data(), boxes=boxes, label=label_words)
def test_mutations_of_well_formed_answers_are_read(name, data, boxes, label):
    check_promises(data.draw(mutated(text_of(boxes, name, label))), name)


def text_of(boxes, name, label):
    """An answer with these boxes, or with boxes in the frame of a format that can write no others."""
    fmt = get_box_format(name)
    if is_bounded(fmt):
        boxes = in_frame([[0.1, 0.2, 0.4, 0.5]] * len(boxes), fmt)
    return format_boxes(boxes, name, labels=[label] * len(boxes), **SIZES)


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data(), boxes=boxes, label=label_words)
def test_cutting_an_answer_off_never_invents_a_box(name, data, boxes, label):
    # Where labels have no tags, a label can hold a box.
    text = text_of(boxes, name, label if name in LABEL_FORMATS else "mass")
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


@pytest.mark.untraced
@pytest.mark.parametrize("opening", adversarial.OPENINGS)
@pytest.mark.parametrize("name", adversarial.FORMATS)
def test_time_is_linear_in_the_length(name, opening):
    fmt = get_box_format(name)
    # A bound on the order, not on the speed: a linear reader takes 0.1 s at most for 20,000 characters, a quadratic one
    # 400 million steps, tens of seconds. Only processor time counts, and a slow reader is slow each time.
    for pattern, text in adversarial.texts(opening, 20_000).items():
        assert any(_seconds(text, fmt) < 1.0 for _ in range(3)), pattern


def _seconds(text, fmt):
    start = time.process_time()
    read_boxes(text, fmt)
    return time.process_time() - start


@pytest.mark.untraced
def test_a_megabyte_of_anything_is_read():
    for pattern, text in adversarial.texts("[", 1_000_000).items():
        raw = read_boxes(text, get_box_format("qwen3-vl"))
        assert raw.status in STATUSES, pattern
        assert len(raw.labels) <= MAX_BOXES, pattern


FULL = {"too_many_boxes": 1, "too_long": 1}
HM, ITEM, LAST = "hm " * 100_000, '{"bbox_2d": [1, 2, 3, 4]}', '[{"bbox_2d": [5, 6, 7, 8]}]'


@pytest.mark.parametrize(
    ("text", "status", "coords", "rejected"),
    [
        # what an endless text begins and ends with decides
        (f"<think>{HM}</think>{LAST}", "boxes", [5, 6, 7, 8], {}),
        (f"{HM}<answer>{LAST}</answer>", "boxes", [5, 6, 7, 8], {}),
        (f"{HM}</think>[]", "empty", [], {}),
        (f"<think>{HM}{LAST}", "truncated", [], {}),
        (f"{HM}{LAST}", "unparseable", [], {"too_long": 1}),
        (f"{LAST}{HM}", "boxes", [5, 6, 7, 8], {"too_long": 1}),
        (f"<|im_end|>{HM}<|im_start|>assistant\n{LAST}", "boxes", [5, 6, 7, 8], {}),
        (f"[{', '.join([ITEM] * 20_000)}]", "boxes", [1, 2, 3, 4] * (MAX_BOXES - 1), FULL),
    ],
)
def test_an_endless_text(text, status, coords, rejected):
    raw = read_boxes(text, get_box_format("qwen3-vl"))
    assert (raw.status, raw.coords, raw.rejected) == (status, coords, rejected)


def test_every_family_has_its_source():
    assert [name for name in FORMATS if name not in SOURCES] == ["answer-list", "json", "brackets"]


FAMILIES = table("parsing/format_cases", "families")
FORMAT_OF = {family: name for name, families in FAMILIES.items() for family in families.split(" | ")}
STATUS_OF = {"explicit_empty": "empty", "malformed": "unparseable", "points": "unparseable", "no_boxes": "unparseable"}
#: Numbers beyond the family's range: "malformed" for the collector, boxes for us, as written, which match nothing.
OUT_OF_RANGE = ("dsvl2-issue123-0", "dsvl2-issue123-2", "dsvl2-issue96-nines", "dsvl2-issue96-nested")
#: Prose before a box is its label under `brackets`.
PROSE_LABELS = ("xcomposer-issue329-0", "xcomposer-issue329-1", "xcomposer-issue329-2")


@pytest.fixture
def records(shared_dir):
    return read_lines(shared_dir / "data" / "completions" / "completions.jsonl")


def test_real_completions(records):
    assert len(records) >= 80
    for record in records:
        raw = check_promises(record["text"], FORMAT_OF[record["family"]])
        if record["id"] in OUT_OF_RANGE:
            continue
        expected = [float(value) for box in record["boxes"] or [] for value in box]
        status = STATUS_OF.get(record["status"], record["status"])
        if record["status"] == "malformed" and expected:
            # A list with a stray brace: broken for a strict reader, but every box is there.
            status = "boxes"
        assert (raw.coords, raw.status) == (expected, status), record["id"]
        if record["id"] not in PROSE_LABELS:
            assert raw.labels == [label or None for label in record["labels"] or []], record["id"]


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_mutations_of_real_completions_are_read(records, data):
    record = data.draw(st.sampled_from(records))
    name = data.draw(st.sampled_from([FORMAT_OF[record["family"]], *FORMATS]))
    check_promises(data.draw(mutated(record["text"])), name)


def test_texts_that_the_fuzz_run_kept_are_read():
    lines = (Path(__file__).parent / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    assert lines
    for line in lines:
        name, text = json.loads(line)
        check_promises(text, name)

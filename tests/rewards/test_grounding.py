"""The callable that TRL takes: texts and columns in, numbers, metrics and reasons out."""

import dataclasses
import json
import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grounding_rewards as gr
from grounding_rewards.rewards.completions import completion_text
from grounding_rewards.rewards.scoring import METRIC_KEYS
from tests.conftest import box_lists, valid_box_lists
from tests.tables import table

GT = [[0, 0, 50, 50]]
RIGHT = '[{"bbox_2d": [0, 0, 500, 500], "label": "nodule"}]'
CUT_OFF = '[{"bbox_2d": [0, 0, 500, 500], "label": "nodule"}, {"bbox_2d": [0, 10'


def score(completions, boxes, name="R3", box_format="qwen3-vl", size=100, columns=None, **params):
    n = len(completions)
    sizes = {"width": [size] * n, "height": [size] * n} if size else {}
    return gr.get_reward(name, box_format=box_format, **params)(completions, boxes=boxes, **sizes, **(columns or {}))


@pytest.mark.parametrize(("text", "boxes", "expected"), table("rewards/by_hand", "texts"))
def test_texts(text, boxes, expected):
    assert score([text], [boxes]) == [pytest.approx(expected, abs=1e-15)]


@pytest.mark.parametrize(("options", "expected"), table("rewards/cases", "options"))
def test_options(options, expected):
    assert score(["Sorry.", "Sorry.", CUT_OFF], [[], GT, GT], **options) == expected


@pytest.mark.parametrize("broken", ["[0, 0, 500]", "[0, 0]", '"left"', "[x1, y1, x2, y2]", "[NaN, 0, 500, 500]"])
def test_no_option_takes_a_broken_box_for_a_stated_negative(broken):
    broken = f'[{{"bbox_2d": {broken}}}]'
    assert score([broken, broken], [[], GT], on_unparseable="empty") == [0.0, 0.0]


CALL = {"id": "1", "type": "function", "function": {"name": "zoom", "arguments": '{"bbox_2d": [0, 0, 500, 400]}'}}
ASKS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TOLD = {"role": "tool", "tool_call_id": "1", "content": [{"type": "image"}, {"type": "text", "text": RIGHT}]}
ANSWER, TEXT = {"role": "assistant", "content": RIGHT}, {"type": "text", "text": RIGHT}


@pytest.mark.parametrize(
    "completion",
    [
        RIGHT,
        [ANSWER],
        ANSWER,
        [{"role": "assistant", "content": [TEXT]}],
        [{"type": "text", "text": RIGHT[:20]}, {"type": "text", "text": RIGHT[20:]}],
        # of messages with tools in between the last answer counts
        [{"role": "assistant", "content": "Let me look."}, {"role": "tool", "content": "[]"}, ANSWER],
        [ASKS, TOLD, ANSWER],
        [ASKS, TOLD, ANSWER | {"tool_calls": []}],
        [ASKS, TOLD, {"role": "user", "content": "Sure?"}, {"role": "model", "content": RIGHT}],
        # blocks of images, of thinking and of what a tool said hold no answer
        [
            {"role": "assistant", "content": [{"type": "image", "image": b""}, TEXT]},
            {"role": "user", "content": "Yes."},
        ],
        ANSWER
        | {"content": [{"type": "thinking", "text": "[[1, 2, 3, 4]]"}, {"type": "tool_result", "content": "[]"}, TEXT]},
    ],
)
def test_all_shapes_of_a_completion(completion):
    assert completion_text(completion) == RIGHT
    assert score([completion], [GT]) == [1.0]


@pytest.mark.parametrize("completion", table("rewards/cases", "messages_that_end_in_a_call"))
@pytest.mark.parametrize("box_format", ["qwen3-vl", "paligemma", "florence-2"])
def test_messages_that_end_in_a_call_hold_no_answer(completion, box_format):
    """Also where a family states by silence that there is nothing."""
    details = gr.get_reward("R4", box_format=box_format, on_unparseable="empty").details
    for scored in details([completion] * 2, boxes=[[], GT], width=[100] * 2, height=[100] * 2):
        assert (scored.reward, scored.parsed.rejected) == (0.0, {"only_tools": 1})


@pytest.mark.parametrize("completion", ["[]", "[[1, 2, 3, 4]]", {"role": "assistant", "content": "[]"}])
def test_one_completion_is_no_list_of_them(completion):
    with pytest.raises(ValueError, match=r"^Expected a list .* for `completions`, got one: .*\. Write \[completion\]"):
        gr.get_reward("R3", box_format="qwen3-vl")(completion, boxes=[[]], width=[100], height=[100])


@pytest.mark.parametrize("completion", table("rewards/cases", "what_is_no_text_earns_nothing"))
def test_what_is_no_text_earns_nothing(completion):
    assert score([completion], [[]]) == [0.0]


@pytest.mark.parametrize(
    ("completion", "named"),
    [*table("rewards/cases", "what_no_trainer_hands_over_is_refused"), (b"[]", "bytes"), (object(), "object")],
)
def test_what_no_trainer_hands_over_is_refused(completion, named):
    with pytest.raises(ValueError, match=f"Expected texts or messages for `completions`, got {named} for completion 1"):
        score(["[]", completion], [[], []])


def test_box_format_per_row():
    answers = ["<answer>[0, 0, 0.5, 0.5]</answer>", RIGHT]
    columns = {"box_format": ["answer-list", "qwen3-vl"]}
    assert score(answers, [GT, GT], box_format=None, columns=columns) == [1.0, 1.0]
    for missing in (None, {"box_format": [None, None]}, {"box_format": ["answer-list", None]}):
        with pytest.raises(ValueError, match=r"get_reward.*column `box_format`"):
            score(answers, [GT, GT], box_format=None, columns=missing)
    for wrong in (3, ["qwen3-vl"]):
        with pytest.raises(ValueError, match=r"a known name for `box_format`, got (3|\['qwen3-vl)"):
            score(answers, [GT, GT], box_format=None, columns={"box_format": ["qwen3-vl", wrong]})


def test_every_format_in_one_batch_is_converted_as_it_is_alone():
    formats = gr.list_box_formats()
    # Wide images and high ones, of odd and even differences of their sides
    fixed = {"height": 700, "resized_width": 392}
    sizes = [{"width": 401 + 30 * k, "resized_height": 28 * (k + 1), **fixed} for k in range(len(formats))]
    boxes = [[[size["width"] / 2 - 90, 270, size["width"] / 2 + 60, 400.5]] for size in sizes]
    given = zip(boxes, formats, sizes, strict=True)
    texts = [gr.format_boxes(box, box_format, **size) for box, box_format, size in given]
    columns = {side: [size[side] for size in sizes] for side in sizes[0]}
    batch = gr.get_reward("R3").details(texts, boxes=boxes, box_format=formats, **columns)
    for scored, text, box_format, size, box in zip(batch, texts, formats, sizes, boxes, strict=True):
        alone = gr.parse_boxes(text, box_format, **size)
        assert scored.parsed.boxes.tolist() == alone.boxes.tolist(), box_format
        assert scored.reward > 0.8, (box_format, alone.boxes, box)


def test_a_size_that_only_another_format_needs_may_be_missing():
    columns = {"box_format": ["qwen3-vl", "qwen2.5-vl"], "resized_width": [None, 200], "resized_height": [None, 200]}
    answers = [RIGHT, '[{"bbox_2d": [0, 0, 100, 100]}]']
    assert score(answers, [GT, GT], box_format=None, columns=columns) == [1.0, 1.0]
    with pytest.raises(ValueError, match=r"`resized_height`, got 0.0 in row 1"):
        score(answers, [GT, GT], box_format=None, columns=columns | {"resized_height": [None, 0]})


def test_one_json_string_instead_of_columns():
    row = json.dumps({"boxes": GT, "labels": ["nodule"], "width": 100, "height": 100, "box_format": "qwen3-vl"})
    assert gr.rewards.R3([RIGHT, "[]"], ground_truth=[row, row]) == [1.0, 0.0]


def test_ready_rewards_take_the_format_from_the_row():
    row = {"boxes": [GT, []], "width": [100] * 2, "height": [100] * 2, "box_format": ["qwen3-vl"] * 2}
    # what TRL passes besides
    trl = {"prompts": ["", ""], "completion_ids": [[1], [2]], "trainer_state": None, "labels": [["nodule"], []]}
    for reward in (gr.rewards.R1, gr.rewards.R2, gr.rewards.R3, gr.rewards.R4, gr.rewards.R5):
        assert reward(completions=[RIGHT, "[]"], **row, **trl) == [1.0, 0.2]


@pytest.mark.parametrize(("columns", "named"), table("rewards/cases", "a_wrong_dataset_is_refused_whatever_the_text"))
@pytest.mark.parametrize("text", [RIGHT, "[]", "junk"])
def test_a_wrong_dataset_is_refused_whatever_the_text(columns, named, text):
    columns = {"boxes": [GT], "width": [100], "height": [100]} | columns
    with pytest.raises(ValueError, match="Expected") as error:
        gr.get_reward("R3", box_format="qwen3-vl")([text], **{k: v for k, v in columns.items() if v != "<left out>"})
    assert named in str(error.value)


def logged(completions, boxes):
    seen = []
    score(completions, boxes, columns={"log_metric": lambda key, value: seen.append((key, value))})
    return seen


@pytest.mark.parametrize(
    ("completions", "boxes"),
    [([], []), ([RIGHT], [GT]), (["[]", "junk", CUT_OFF], [[], [], GT]), ([RIGHT] * 9, [[]] * 9)],
)
def test_the_same_metrics_in_the_same_order_on_every_call(completions, boxes):
    seen = logged(completions, boxes)
    assert [key for key, _ in seen] == [f"R3/{key}" for key in METRIC_KEYS]
    assert all(isinstance(value, float) for _, value in seen)
    assert all(math.isfinite(value) for key, value in seen if not key.endswith("hallucination_rate"))


def test_metrics_by_hand():
    values = dict(logged([RIGHT, '[{"bbox_2d": [0, 0, 500]}]', RIGHT, "[]"], [GT, GT, [], []]))
    expected = dict.fromkeys(("boxes", "status/boxes", "negatives", "hallucination_rate"), 1 / 2)
    expected |= dict.fromkeys(("precision", "recall", "mean_iou", "status/empty", "status/unparseable"), 1 / 4)
    expected |= dict.fromkeys(("rejected", "hallucinated"), 1 / 4)
    assert {key: values[f"R3/{key}"] for key in expected} == expected


def test_extra_columns_have_one_entry_per_completion():
    seen = {}
    score([RIGHT, "junk"], [GT, []], columns={"log_extra": seen.setdefault})
    assert (seen["R3/status"], len(seen["R3/reason"])) == (["boxes", "unparseable"], 2)
    assert (seen["R3/counted"], seen["R3/findings"]) == ([1, 0], [1, 0])
    known = {"width": 100, "height": 100, "box_format": "qwen3-vl"}
    assert list(map(json.loads, seen["R3/row"])) == [
        known | {"boxes": GT, "pred": [[0, 0, 50, 50]], "pred_labels": ["nodule"]},
        known | {"boxes": [], "pred": []},
    ]


class Image:
    size = (100, 80)


class TokensOfABox:
    def decode(self, ids, skip_special_tokens):
        return "<|box_start|>(0,0),(500,400)<|box_end|>"


MINE = {"syntax": "json", "keys": ["where"], "order": "yxyx", "space": "norm100"}


@pytest.mark.parametrize(
    ("text", "columns", "options", "known"),
    [
        *table("rewards/cases", "logged_rows"),
        (RIGHT, {"boxes": [np.array(GT)], "id": [np.int64(3)]}, {}, {"id": 3}),
        # the dataset gives the whole row as one string
        (RIGHT, {"boxes": ..., "ground_truth": ['{"boxes": [[0, 0, 50, 40]], "width": 80, "height": 90}']}, {}, {}),
        # the size of the image stands in for columns
        (RIGHT, {"width": ..., "height": ..., "image": [Image()]}, {}, {"width": 100, "height": 80}),
        # the text with its special tokens
        ("(0,0),(500,400)", {"completion_ids": [[1]]}, {"box_format": "qwen2-vl", "tokenizer": TokensOfABox()}, {}),
    ],
)
def test_a_logged_row_is_scored_again_to_the_last_digit(text, columns, options, known):
    columns = {"boxes": [GT], "width": [100], "height": [100]} | columns
    seen = {}
    reward = gr.get_reward("R3", **{"box_format": "qwen3-vl"} | options)
    earned = reward([text], log_extra=seen.setdefault, **{k: v for k, v in columns.items() if v is not ...})
    row = json.loads(seen["R3/row"][0])
    assert known.items() <= row.items()
    present = {name.removeprefix("R3/"): value for name, value in row.items() if name.startswith("R3/")}
    again = gr.get_reward("R3", **present)
    assert again([row.get("text", text)], **{name: [value] for name, value in row.items()}) == earned


@pytest.mark.parametrize(("text", "boxes", "reason"), table("rewards/by_hand", "reasons"))
def test_reasons(text, boxes, reason):
    reward = gr.get_reward("R3", box_format="qwen3-vl")
    (scored,) = reward.details([text], boxes=[boxes], width=[100], height=[100])
    assert scored.reason == reason
    assert scored.reward == reward([text], boxes=[boxes], width=[100], height=[100])[0]


def test_ranking_by_the_confidence_that_the_text_states():
    boxes = '{"bbox_2d": [600, 600, 700, 700], "score": 0.1}, {"bbox_2d": [0, 0, 500, 500], "score": 0.9}'
    assert score([f"[{boxes}]"], [GT], name="R1", ranking="emission") == [0.5]
    assert score([f"[{boxes}]"], [GT], name="R1", ranking="score") == [1.0]


class Tokenizer:
    """One token for each character, and `L` for the four of a box."""

    eos_token_id, pad_token_id = ord("$"), ord("_")

    def decode(self, ids, skip_special_tokens):
        assert not skip_special_tokens
        return "".join(map(chr, ids)).replace("L", "<loc_10><loc_20><loc_60><loc_80>")


@pytest.mark.parametrize(
    ("ids", "stop_ids", "label"),
    [
        # the end and the padding are left out
        *((ids, "", "mass") for ids in ("massL", "massL$", "massL$___", "__massL")),
        # further tokens are where somebody says that they are no part of an answer
        ("#massL", "", "#mass"),
        ("#massL", "#", "mass"),
    ],
)
def test_token_ids_are_decoded_where_the_format_needs_them(ids, stop_ids, label):
    """With real tokenizers and for every format: tests/parsing/test_special_tokens.py."""
    reward = gr.get_reward("R3", tokenizer=SimpleNamespace(tokenizer=Tokenizer()))
    reward = dataclasses.replace(reward, stop_ids=frozenset(map(ord, stop_ids)))
    columns = {"boxes": [[[10.5, 20.5, 60.5, 80.5]]] * 2, "width": [1000] * 2, "height": [1000] * 2}
    columns |= {"box_format": ["florence-2", "qwen3-vl"], "completion_ids": [list(map(ord, ids)), [0]]}
    in_tokens, in_text = reward.details(["mass", "[]"], **columns)
    assert (in_tokens.reward, in_tokens.parsed.labels, in_text.parsed.status) == (1.0, (label,), "empty")


def test_a_declared_format_makes_a_frozen_value():
    mapping = {**MINE, "keys": ["where"]}
    reward = gr.get_reward("R3", box_format=mapping)
    mapping["keys"].append("there")
    mapping["space"] = "norm1"
    copy = pickle.loads(pickle.dumps(reward))
    assert reward == copy == gr.get_reward("R3", box_format=MINE)
    assert hash(copy) == hash(reward)
    assert copy(['[{"where": [0, 0, 40, 50]}]'], boxes=[GT], width=[100], height=[100]) == [0.8]
    assert score(['[{"where": [0, 0, 40, 50]}]'], [GT], box_format=None, columns={"box_format": [MINE]}) == [0.8]


@given(st.text(max_size=200), st.sampled_from(gr.list_box_formats()), st.sampled_from(["R1", "R4", "R5", "soft_f1"]))
def test_any_text_earns_a_number(text, box_format, name):
    sizes = {"resized_width": [112], "resized_height": [84]}
    for boxes in (GT, []):
        (reward,) = score([text], [boxes], name=name, box_format=box_format, columns=sizes)
        assert 0 <= reward <= 1


@pytest.mark.parametrize("name", ["R1", "R2", "R3", "R4", "R5", "tests.rewards.test_grounding.HalfReward"])
@given(st.lists(st.tuples(box_lists(), valid_box_lists(max_size=3), valid_box_lists(max_size=1)), max_size=4))
def test_many_images_score_as_each_does(name, images):
    reward = gr.get_reward(name)
    pred, gt, ignore = (list(part) for part in zip(*images, strict=True)) if images else ([], [], [])
    expected = [reward.score(*image[:2], ignore=image[2]) for image in images]
    assert reward.score_many(pred, gt, ignore=ignore) == pytest.approx(expected)


class HalfReward:
    """Somebody's own reward."""

    def score(self, pred, gt):
        return 0.5 if len(pred) == len(gt) else 0.0


@pytest.mark.parametrize("column", ["gt", "ignore", "pred_labels", "gt_labels"])
@pytest.mark.parametrize(("images", "entries"), [(2, 1), (1, 2)])
def test_images_of_other_numbers_are_refused(column, images, entries):
    columns = {"gt": [[]] * images, column: [[]] * entries}
    with pytest.raises(ValueError, match=f"images for `{column}` as for `pred`, got {entries} and {images}"):
        gr.get_reward("R3", label_matching="exact").score_many([[]] * images, **columns)

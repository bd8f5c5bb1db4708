"""One completion alone earns what it earns in a batch, to the last bit; and so in threads and in other processes."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import grounding_rewards as gr
from grounding_rewards.parsing import get_box_format, read_boxes
from grounding_rewards.parsing.space_check import BatchWatcher
from grounding_rewards.rewards import (
    AveragePrecisionReward,
    MeanIoUReward,
    PiecewiseIoUReward,
    PointingReward,
    ProductIoUReward,
    SoftF1Reward,
    SplineIoUReward,
)
from grounding_rewards.rewards.f_beta import OVERLAPS, QUALITIES
from grounding_rewards.rewards.quality import piecewise, spline
from tests.conftest import box_lists, random_boxes, valid_box_lists

PIXELS = {"syntax": "qwen3-vl", "space": "pixel"}
LABELS = ["nodule", "Nodule", "left pleural effusion", "effusion", "mass"]
SHARES, COMPARED = st.floats(0, 1), st.sampled_from(["exact", "synonyms"])
BREAKS = {"iou_breakpoints": st.just((0.1, 0.2)), "quality_breakpoints": st.just((0.1, 0.4, 1.0))}
COMMON = {
    "no_box_bonus": SHARES,
    "ignore_threshold": st.sampled_from([0.3, 0.5, 1.0]),
    "ignore_many": st.booleans(),
    "graded_negatives": st.floats(0, 0.9),
    "label_matching": st.sampled_from(["ignore", "exact", "synonyms"]),
}
THRESHOLDS = COMMON | {
    "iou_threshold": st.floats(0.01, 1),
    "matching": st.sampled_from(["greedy", "hungarian", "thresholded_hungarian", "most_hits"]),
}
BETA = {"beta": st.sampled_from([0.5, 1.0, 1.5, 3.0])}
BOX_REWARDS = st.one_of(
    st.builds(AveragePrecisionReward, **THRESHOLDS, ranking=st.sampled_from(["emission", "score", "iou", "tied"])),
    st.builds(AveragePrecisionReward, **THRESHOLDS, interpolation=st.sampled_from(["11", "101"])),
    st.builds(AveragePrecisionReward, **THRESHOLDS | {"label_matching": COMPARED}, per_label=st.just(True)),
    st.builds(ProductIoUReward, **THRESHOLDS, **BETA, product=st.sampled_from(["plain", "geometric"])),
    st.builds(MeanIoUReward, **THRESHOLDS, **BETA),
    st.builds(SplineIoUReward, **THRESHOLDS, **BETA, center_weight=st.sampled_from([0.0, 0.15, 1.0])),
    st.builds(PiecewiseIoUReward, **THRESHOLDS, **BETA),
    st.builds(PiecewiseIoUReward, **THRESHOLDS, **BREAKS),
    st.builds(SoftF1Reward, **COMMON, **BETA, overlap=st.sampled_from(OVERLAPS), quality=st.sampled_from([*QUALITIES])),
    st.builds(PointingReward, **COMMON, **BETA),
)
READERS = st.sampled_from(["best", "mean"])
TRUTHS = valid_box_lists()


@st.composite
def answered_images(draw):
    """A row with one or several readers, with regions or without; and an answer: near its truth, far, broken, none."""
    truth = draw(TRUTHS)
    labels = [draw(st.sampled_from(LABELS)) for _ in truth]
    row = {"boxes": truth, "labels": labels, "ignore_boxes": draw(st.none() | TRUTHS)}
    row |= {"reader_boxes": None, "reader_labels": None}
    if draw(st.booleans()):
        row["reader_boxes"] = [truth, draw(TRUTHS)]
        row["reader_labels"] = [[draw(st.sampled_from(LABELS)) for _ in boxes] for boxes in row["reader_boxes"]]
    moved = [[value + draw(st.sampled_from([0, 0, 0.125, 1])) for value in box] for box in truth]
    drawn = draw(st.sampled_from([moved, moved + draw(box_lists()), draw(box_lists())]))
    answer = [
        {"bbox_2d": draw(st.sampled_from([box, box, box, box[:3], "none"])), "label": draw(st.sampled_from(LABELS))}
        | draw(st.sampled_from([{}, {"score": 0.5}, {"score": 0.25}]))
        for box in drawn
    ]
    text = draw(st.sampled_from([json.dumps(answer)] * 4 + [json.dumps(answer)[:-3], "[]", "no idea"]))
    return text, row


def columns_of(rows):
    """The columns of rows; no row has a reader if the first has none, and so on."""
    return {name: [row[name] for row in rows] for name in rows[0]}


# As many boxes as make every loop over a few boxes give way to arrays, and an image without any.
FILLER = random_boxes(np.random.default_rng(0), 12).tolist()
PLAIN = {"ignore_boxes": None, "reader_boxes": None, "reader_labels": None}
BIG_TEXT = json.dumps([{"bbox_2d": box, "label": "nodule"} for box in FILLER])
BIG = (BIG_TEXT, PLAIN | {"boxes": FILLER, "labels": ["nodule"] * 12})


@settings(max_examples=25)
@given(st.lists(answered_images(), min_size=1, max_size=4), BOX_REWARDS, READERS, st.sampled_from(["zero", "empty"]))
def test_alone_and_in_a_batch_a_completion_is_the_same(images, box_reward, readers, on_unparseable):
    reward = gr.get_reward("R3", box_format=PIXELS, readers=readers)
    reward = replace(reward, box_reward=box_reward, on_unparseable=on_unparseable)
    texts, rows = zip(*images, BIG, strict=True)
    together = reward.details(texts, **columns_of(rows))
    for text, row, expected in zip(texts, rows, together, strict=True):
        columns = columns_of([row])
        assert reward([text], **columns) == [expected.reward]
        assert reward.details([text], **columns) == [expected]


@given(st.lists(SHARES, min_size=1, max_size=6))
def test_a_curve_at_a_few_points_is_the_curve(ious):
    many = ious * 10
    for curve in (piecewise, spline):
        assert curve(ious).tolist() * 10 == curve(many).tolist()
        assert curve([ious]).shape == (1, len(ious))


def answers(images):
    """Texts and rows: an image each, with none to five findings, some of them hit."""
    rng = np.random.default_rng(1)
    truths = [random_boxes(rng, k % 6) for k in range(images)]
    texts = [json.dumps([{"bbox_2d": box, "label": "mass"} for box in (0.97 * truth).tolist()]) for truth in truths]
    return texts, [{"boxes": truth.tolist(), "width": 1000, "height": 1000} for truth in truths]


def score_alone(reward, text, row):
    return reward([text], **columns_of([row]))[0]


@pytest.mark.parametrize("name", ["R1", "R4", "R5", "soft_f1"])
def test_sixteen_threads_score_what_one_does(name):
    texts, rows = answers(200)
    reward = gr.get_reward(name, box_format="qwen3-vl")
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(score_alone, [reward] * 200, texts, rows)) == reward(texts, **columns_of(rows))


def test_what_is_suspicious_is_reported_once_by_many_threads():
    fmt, watcher = get_box_format("answer-list"), BatchWatcher()

    def in_pixels(k):
        raw = read_boxes(f"<answer>[{k}, {k}, {k + 90}, {k + 50}]</answer>", fmt)
        gt, sizes = np.array([[k, k, k + 90.0, k + 50]]), np.array([[1000, 1000, np.nan, np.nan]])
        return watcher.watch_boxes([raw], [fmt], [gt], sizes)

    before = sys.getswitchinterval()
    # Threads that take turns as often as they can.
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(16) as pool:
            assert len([check for checks in pool.map(in_pixels, range(0, 600, 5)) for check in checks]) == 1
            texts = ["hm</think>[]", "hm", "hm</think>[]", "<think>a</think>[]"] * 100
            found = pool.map(lambda text: watcher.watch_thinking([text], prompt_opens_thinking=False), texts)
            assert sum(one is not None for one in found) == 1
    finally:
        sys.setswitchinterval(before)

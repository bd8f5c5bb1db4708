"""R1 to R5 on boxes: the specification's numbers, properties, and an independent implementation of each formula."""

import math
import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import CubicHermiteSpline
from scipy.optimize import linear_sum_assignment

import grounding_rewards as gr
from grounding_rewards.boxes import BoxBatch
from grounding_rewards.rewards import R1, R2, R3, R4, R5
from grounding_rewards.rewards.f_beta import OVERLAPS
from tests.conftest import box_lists, random_boxes, valid_box_lists
from tests.tables import table
from tests.test_matching import greedy_by_the_book
from tests.test_overlap import scalar_iou

REWARDS = [R1, R2, R3, R4, R5]
NAMES = ["R1", "R2", "R3", "R4", "R5"]
GT = [[0, 0, 10, 10]]


def with_iou(iou, at=0):
    """A box whose IoU with [at, 0, at + 10, 10] is iou."""
    return [at, 0, at + 10, 10 * iou]


def row_of(*ious):
    """Boxes of these IoUs with findings that stand side by side, and the findings."""
    return [with_iou(iou, 20 * k) for k, iou in enumerate(ious)], [with_iou(1, 20 * k) for k in range(len(ious))]


# an independent implementation, one completion at a time


def share_inside(box, region):
    """|P ∩ R| / |P|."""
    width = min(box[2], region[2]) - max(box[0], region[0])
    height = min(box[3], region[3]) - max(box[1], region[1])
    return max(width, 0) * max(height, 0) / ((box[2] - box[0]) * (box[3] - box[1]))


def excused_by_the_book(pred, gt, matched, ignore):
    """Every way to give regions to boxes is tried; of those that excuse most, the one with the earliest boxes."""
    free = [i for i, p in enumerate(pred) if i not in matched and not any(scalar_iou(p, g) > 0 for g in gt)]
    fits = [[i for i in free if share_inside(pred[i], r) >= 0.5] for r in ignore]
    ways = [[i for i in way if i is not None] for way in product(*([None, *boxes] for boxes in fits))]
    ways = [sorted(way) for way in ways if len(set(way)) == len(way)]
    return min(ways, key=lambda way: (-len(way), way))


def by_the_book(name, pred, gt, beta=1.5, threshold=0.5, bonus=0.2, ignore=()):
    n, m = len(pred), len(gt)
    iou = np.array([[scalar_iou(p, g) for g in gt] for p in pred]).reshape(n, m)
    if n == 0 or m == 0:
        pairs = []
    elif name == "R5":
        rows, columns = linear_sum_assignment(1 - iou)
        pairs = [(i, j) for i, j in zip(rows, columns, strict=True) if iou[i, j] >= threshold]
    else:
        pairs = [(i, j) for i, j in enumerate(greedy_by_the_book(iou, threshold)) if j >= 0]
    matched = {i for i, _ in pairs}
    excused = excused_by_the_book(pred, gt, matched, ignore)
    counted = [i for i in range(n) if i not in excused]
    n = len(counted)
    if n == 0 and m == 0:
        return bonus
    if n == 0 or m == 0:
        return 0.0
    if name == "R1":
        hits = [i in matched for i in counted]
        precision = [sum(hits[: k + 1]) / (k + 1) for k in range(n)]
        recall = [0.0] + [sum(hits[: k + 1]) / m for k in range(n)]
        return sum(max(precision[k:]) * (recall[k + 1] - recall[k]) for k in range(n))
    if not pairs:
        return 0.0
    p, r = len(pairs) / n, len(pairs) / m
    f = (1 + beta**2) * p * r / (beta**2 * p + r)
    ious = [iou[i, j] for i, j in pairs]
    spline = CubicHermiteSpline([0, 0.5, 0.8, 1], [0, 0.5, 0.8, 1], [1.5, 1.1, 0.9, 0.5])
    quality = {
        "R2": lambda: math.prod(ious),
        "R3": lambda: np.mean(ious),
        "R4": lambda: np.mean(spline(ious)),
        "R5": lambda: np.mean(np.interp(ious, [0, 0.3, 0.5, 0.7, 1], [0, 0, 0.3, 0.7, 1])),
    }[name]()
    return f * quality


@given(valid_box_lists(), valid_box_lists(), st.just([]) | valid_box_lists(max_size=3), st.sampled_from(NAMES))
def test_equal_to_the_book(pred, gt, ignore, name):
    iou = np.array([[scalar_iou(p, g) for g in gt] for p in pred]).reshape(len(pred), len(gt))
    if name == "R5" and assignment_is_ambiguous(iou):
        return
    expected = by_the_book(name, pred, gt, ignore=ignore)
    assert getattr(gr.rewards, name).score(pred, gt, ignore=ignore) == pytest.approx(expected, abs=1e-12)


def assignment_is_ambiguous(iou):
    """Several assignments share the greatest total, so that two solvers may differ."""
    if iou.size == 0:
        return False
    rows, columns = linear_sum_assignment(-iou)
    best = iou[rows, columns].sum()
    for i, j in zip(rows, columns, strict=True):
        if iou[i, j] > 0:
            without = iou.copy()
            without[i, j] = 0
            r, c = linear_sum_assignment(-without)
            if without[r, c].sum() > best - 1e-9:
                return True
    return False


# the specification, §3.4, §4.4, §5.4, §8 and §9.3


@pytest.mark.parametrize("reward", REWARDS, ids=NAMES)
@pytest.mark.parametrize(("pred", "gt", "expected"), table("rewards/by_hand", "edges"))
def test_empty_cases_and_edges(reward, pred, gt, expected):
    assert reward.score(pred, gt) == expected


@pytest.mark.parametrize(("ious", "expected"), table("rewards/by_hand", "known_iou"))
def test_boxes_of_known_iou(ious, expected):
    for reward, number in zip(REWARDS, expected, strict=True):
        explained = reward.explain(*row_of(*ious))
        if not math.isnan(number):
            assert explained.reward == pytest.approx(number, abs=1e-12), reward.name
        assert explained.f_beta == explained.precision == (1.0 if ious[0] >= 0.5 else 0.0)


@pytest.mark.parametrize(
    ("options", "ious", "expected"),
    [
        # by hand: the centre is off by 2 in y, the diagonal is √200
        ({"name": "R4", "center_weight": 0.15}, [0.6], 0.85 * 16.38 / 27 + 0.15 * (1 - 2 / math.sqrt(200))),
        ({"name": "R2", "product": "geometric"}, [0.9, 0.6], 0.54**0.5),
        ({"name": "R2", "product": "geometric"}, [0.7] * 3, 0.7),
    ],
)
def test_options_by_hand(options, ious, expected):
    assert gr.get_reward(**options).score(*row_of(*ious)) == pytest.approx(expected)


def test_explanation_of_a_mixed_case():
    pred = [[50, 50, 60, 60], with_iou(0.8), [300, 0, 310, 10]]
    explained = R3.explain(pred, [with_iou(1), with_iou(1, 20)])
    assert (explained.tp, explained.fp, explained.fn) == (1, 2, 1)
    assert (explained.precision, explained.recall) == (1 / 3, 1 / 2)
    assert (explained.matches, explained.ious) == (((1, 0),), (0.8,))
    # by hand: F1.5 = 3.25 · 1/6 / (2.25 / 3 + 1/2)
    assert explained.f_beta == pytest.approx(3.25 / 6 / 1.25)
    assert explained.reward == pytest.approx(explained.f_beta * 0.8)


# properties


EVERY = [*REWARDS, *(gr.get_reward("soft_f1", overlap=overlap) for overlap in OVERLAPS), gr.get_reward("pointing")]


ANY = st.lists(st.lists(st.floats(), min_size=4, max_size=4), max_size=4)


@given(box_lists() | ANY, box_lists() | ANY, st.sampled_from(EVERY))
def test_bounded_and_consistent(pred, gt, reward):
    explained = reward.explain(pred, gt)
    assert 0 <= explained.reward <= 1
    assert explained.reward == reward.score(pred, gt)
    assert explained.tp + explained.fp == len(pred)
    assert explained.tp + explained.fn == len(gt)
    assert len(explained.matches) == len(explained.ious) == explained.tp


def test_a_batch_is_cut_into_chunks_without_a_trace():
    # one endless completion among many short ones, and more cells than one chunk holds
    rng = np.random.default_rng(5)
    gts = [random_boxes(rng, 40) for _ in range(60)]
    preds = [random_boxes(rng, 1000 if k == 7 else int(rng.integers(0, 150))) for k in range(60)]
    explained = R5.box_reward.match_and_score(BoxBatch.of(preds, "pred"), BoxBatch.of(gts, "gt")).explanations()
    for k in (0, 7, 30, 59):
        assert explained[k] == R5.explain(preds[k], gts[k])


@given(valid_box_lists(1), st.sampled_from(REWARDS))
def test_the_truth_earns_full_marks(gt, reward):
    distinct = [list(box) for box in dict.fromkeys(map(tuple, gt))]
    assert reward.score(distinct, distinct) == pytest.approx(1.0, abs=1e-12)


@given(valid_box_lists(1), valid_box_lists(1), st.sampled_from(REWARDS[1:]))
def test_a_junk_box_never_pays(pred, gt, reward):
    junk = [900, 900, 910, 910]
    assert reward.score([*pred, junk], gt) <= reward.score(pred, gt)


@given(st.floats(0.01, 1), st.floats(0.01, 1), st.sampled_from(REWARDS))
def test_a_better_box_never_earns_less(a, b, reward):
    worse, better = sorted((a, b))
    assert reward.score([with_iou(worse)], GT) <= reward.score([with_iou(better)], GT) + 1e-12


@given(
    valid_box_lists(), valid_box_lists(), st.integers(-20, 20), st.sampled_from([0.5, 8.0]), st.sampled_from(REWARDS)
)
def test_unchanged_by_moving_and_scaling(pred, gt, shift, scale, reward):
    moved = [(np.array(boxes).reshape(-1, 4) * scale + shift) for boxes in (pred, gt)]
    assert reward.score(*moved) == pytest.approx(reward.score(pred, gt), abs=1e-9)


# construction


@pytest.mark.parametrize(
    "reward",
    [
        *REWARDS,
        gr.get_reward("R5", iou_breakpoints=[0.5], quality_breakpoints=[0, 1]),
        gr.get_reward("R1", label_matching="synonyms", per_label=True, box_format="qwen3-vl"),
    ],
)
def test_a_reward_is_a_frozen_value(reward):
    copy = pickle.loads(pickle.dumps(reward))
    assert copy == reward
    assert hash(copy) == hash(reward)
    assert reward.__name__ in NAMES
    with pytest.raises(AttributeError):
        reward.name = "other"

"""readers="weighted": soft F1 over the findings of all readers, each weighted by the share of readers who drew it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

import grounding_rewards as gr
from grounding_rewards.rewards.f_beta import OVERLAPS, QUALITIES
from tests.conftest import valid_box_lists
from tests.tables import table
from tests.test_overlap import scalar_iou

A, B = [0, 0, 10, 10], [50, 50, 60, 60]


def earned(pred, readers, how="weighted", regions=None, broken=0, **options):
    reward = gr.get_reward("soft_f1", box_format="qwen3-vl", readers=how, **options)
    items = [f'{{"bbox_2d": {box}}}' for box in [*pred, *["[1, 2, 3]"] * broken]]
    # an image of 1000 pixels, whose thousandths are pixels
    columns = {"reader_boxes": [readers], "width": [1000], "height": [1000], "ignore_boxes": [regions]}
    return reward([f"[{', '.join(items)}]"], **columns)[0]


@pytest.mark.parametrize(("pred", "readers", "options", "expected"), table("rewards/by_hand", "weighted_readers"))
def test_by_hand(pred, readers, options, expected):
    assert earned(pred, readers, **options) == pytest.approx(expected, abs=1e-12)


few = valid_box_lists(max_size=3)
drawings = st.lists(few, min_size=1, max_size=4)
betas = st.sampled_from([0.5, 1.0, 1.5])


@given(few, drawings, betas, st.sampled_from(sorted(QUALITIES)))
def test_equal_to_sums_over_readers(pred, readers, beta, quality):
    def mass(gt):
        credit = QUALITIES[quality](np.array([[scalar_iou(p, g) for g in gt] for p in pred]).reshape(len(pred), -1))
        return credit[linear_sum_assignment(credit, maximize=True)].sum() if pred and gt else 0.0

    got = earned(pred, readers, beta=beta, quality=quality)
    if pred:
        found, drawn = sum(map(mass, readers)), sum(map(len, readers))
        expected = (1 + beta**2) * found / (beta**2 * drawn + len(pred) * len(readers))
    else:
        expected = 0.2 * sum(not gt for gt in readers) / len(readers)
    assert got == pytest.approx(expected, abs=1e-12)


@given(few, few, st.integers(1, 4), betas, st.sampled_from(OVERLAPS), valid_box_lists(max_size=2), st.integers(0, 1))
def test_equal_readers_change_nothing(pred, gt, count, beta, overlap, regions, broken):
    options = {"beta": beta, "overlap": overlap, "regions": regions, "broken": broken, "graded_negatives": 0.3}
    one = earned(pred, [gt], how="best", **options)
    assert earned(pred, [gt] * count, **options) == pytest.approx(one, abs=1e-12)


@given(few, drawings, betas, st.sampled_from(OVERLAPS), valid_box_lists(max_size=2), st.integers(0, 1), st.data())
def test_between_the_worst_and_the_best_reader_in_any_order(pred, readers, beta, overlap, regions, broken, data):
    options = {"beta": beta, "overlap": overlap, "regions": regions, "broken": broken, "graded_negatives": 0.3}
    each = [earned(pred, [gt], how="best", **options) for gt in readers]
    got = earned(pred, readers, **options)
    assert min(each) - 1e-12 <= got <= max(each) == earned(pred, readers, how="best", **options)
    shuffled = data.draw(st.permutations(readers))
    assert earned(pred, shuffled, **options) == pytest.approx(got, abs=1e-12)


def test_rows_with_and_without_readers():
    reward = gr.get_reward("soft_f1", box_format="qwen3-vl", readers="weighted")
    text = '[{"bbox_2d": [0, 0, 10, 10]}]'
    columns = {"boxes": [[A], [A]], "reader_boxes": [None, [[A], [B]]], "width": [1000] * 2, "height": [1000] * 2}
    assert reward([text] * 2, **columns) == [1.0, 0.5]
    columns["reader_boxes"] = [None, None]
    assert reward([text] * 2, **columns) == [1.0, 1.0]
    assert reward([], boxes=[], reader_boxes=[], width=[], height=[]) == []


def test_the_answer_is_explained_by_the_reader_who_suits_it_best():
    reward = gr.get_reward("soft_f1", box_format="qwen3-vl", readers="weighted")
    columns = {"reader_boxes": [[[B], [A]]], "width": [1000], "height": [1000]}
    (scored,) = reward.details(['[{"bbox_2d": [0, 0, 10, 10]}]'], **columns)
    assert (scored.reward, scored.reader) == (0.5, 1)
    assert scored.reason == "1 of 1 found, mean IoU 1.00"

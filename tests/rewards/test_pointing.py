"""pointing: the centre of a box lies in a finding."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import grounding_rewards as gr
from tests.conftest import box_lists, valid_box_lists

ONE, OTHER = [0, 0, 10, 10], [50, 50, 60, 60]


@pytest.mark.parametrize(
    ("pred", "gt", "expected"),
    [
        # a tiny box and a huge one point as well as the finding itself
        ([[4, 4, 5, 5]], [ONE], 1.0),
        ([[-90, -90, 100, 100]], [ONE], 1.0),
        # the centre (10, 10) is the corner of the finding
        ([[5, 5, 15, 15]], [ONE], 1.0),
        ([[6, 5, 16, 15]], [ONE], 0.0),
        # two boxes point at one of two findings: P = R = 1/2
        ([ONE, ONE], [ONE, OTHER], 0.5),
        # findings that overlap: (8, 8) lies in both, (2, 2) in one; as many pairs as there can be
        ([[7, 7, 9, 9], [1, 1, 3, 3]], [ONE, [6, 6, 20, 20]], 1.0),
        ([[1, 1, 3, 3], [7, 7, 9, 9]], [[6, 6, 20, 20], ONE], 1.0),
        ([], [], 0.2),
        ([], [ONE], 0.0),
        ([ONE], [], 0.0),
        # a box without area points at nothing
        ([[5, 5, 5, 5]], [ONE], 0.0),
        ([[float("nan"), 0, 10, 10]], [ONE], 0.0),
    ],
)
def test_by_hand(pred, gt, expected):
    assert gr.get_reward("pointing").score(pred, gt) == expected


@given(valid_box_lists(1, 4), valid_box_lists(1, 4), st.sampled_from([0.5, 1.0, 2.0]))
def test_as_many_pairs_as_there_can_be(pred, gt, beta):
    def points(p, g):
        x, y = p[0] + (p[2] - p[0]) / 2, p[1] + (p[3] - p[1]) / 2
        return g[0] <= x <= g[2] and g[1] <= y <= g[3]

    few, many = sorted((pred, gt), key=len)
    right = [[points(a, b) if few is pred else points(b, a) for b in many] for a in few]
    hits = max(sum(right[i][j] for i, j in enumerate(order)) for order in permutations(range(len(many)), len(few)))
    p, r = hits / len(pred), hits / len(gt)
    expected = (1 + beta**2) * p * r / (beta**2 * p + r) if hits else 0.0
    assert gr.get_reward("pointing", beta=beta).score(pred, gt) == pytest.approx(expected, abs=1e-12)


@given(box_lists(), valid_box_lists())
def test_stays_in_its_range(pred, gt):
    assert 0 <= gr.get_reward("pointing").score(pred, gt) <= 1


def test_illegal_values():
    with pytest.raises(ValueError, match=r"\(0, 1000\]"):
        gr.get_reward("pointing", beta=0)

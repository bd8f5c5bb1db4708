from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from grounding_rewards.matching import (
    MATCHERS,
    covered_share,
    greedy_match,
    hungarian_match,
    is_ignored,
    match_batch,
    most_hits_match,
    thresholded_hungarian_match,
)
from grounding_rewards.metrics.detection import MatchedImages
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.rewards.grounding import get_reward
from tests.conftest import random_boxes
from tests.tables import table

SINGLE = {
    "greedy": greedy_match,
    "hungarian": hungarian_match,
    "thresholded_hungarian": thresholded_hungarian_match,
    "most_hits": most_hits_match,
}


def greedy_by_the_book(iou, threshold):
    """The pseudo-code of specification §2.2, line by line."""
    n, m = iou.shape
    matched = [-1] * n
    if m == 0:
        return matched
    taken = set()
    for i in sorted(range(n), key=lambda i: -iou[i].max()):
        free = [j for j in range(m) if j not in taken]
        if free:
            best = max(free, key=lambda j: (iou[i, j], -j))
            if iou[i, best] >= threshold and iou[i, best] > 0:
                matched[i] = best
                taken.add(best)
    return matched


def best_total(iou):
    """Greatest total IoU over all assignments, by trying every one."""
    n, m = iou.shape
    if n > m:
        return best_total(iou.T)
    return max((sum(iou[i, j] for i, j in enumerate(chosen)) for chosen in permutations(range(m), n)), default=0.0)


def total(iou, matched):
    return sum(iou[i, j] for i, j in matched)


def as_pairs(matched):
    return [(i, j) for i, j in enumerate(matched) if j >= 0]


@st.composite
def iou_matrices(draw, max_side=5):
    n, m = draw(st.integers(0, max_side)), draw(st.integers(0, max_side))
    # a coarse grid, so that ties and exact thresholds are common
    cells = st.integers(0, 10).map(lambda k: k / 10)
    return np.array(draw(st.lists(cells, min_size=n * m, max_size=n * m))).reshape(n, m)


@pytest.mark.parametrize(("iou", "expected"), table("geometry", "greedy"))
def test_greedy_by_hand(iou, expected):
    assert greedy_match(iou, 0.5) == as_pairs(expected)


@pytest.mark.parametrize(("iou", "greedy", "hungarian", "thresholded"), table("geometry", "matchers"))
def test_matchers_differ_where_they_should(iou, greedy, hungarian, thresholded):
    assert greedy_match(iou, 0.5) == as_pairs(greedy)
    assert hungarian_match(iou, 0.5) == as_pairs(hungarian)
    assert thresholded_hungarian_match(iou, 0.5) == as_pairs(thresholded)


@given(iou_matrices(), st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_greedy_follows_the_pseudo_code(iou, threshold):
    assert greedy_match(iou, threshold) == as_pairs(greedy_by_the_book(iou, threshold))


@given(iou_matrices())
def test_hungarian_is_optimal(iou):
    matched = hungarian_match(iou, 0.0)
    assert total(iou, matched) == pytest.approx(best_total(iou))
    rows, columns = linear_sum_assignment(iou, maximize=True)
    assert total(iou, matched) == pytest.approx(iou[rows, columns].sum())


@given(iou_matrices(), st.sampled_from([0.3, 0.5]))
def test_thresholding_first_never_loses(iou, threshold):
    first = total(iou, thresholded_hungarian_match(iou, threshold))
    assert first >= total(iou, hungarian_match(iou, threshold)) - 1e-12
    assert first == pytest.approx(best_total(np.where(iou >= threshold, iou, 0.0)))


def most_pairs_and_their_total(iou, threshold):
    """Most pairs from the threshold up, and the greatest total among those, by trying every assignment."""
    n, m = iou.shape
    if n > m:
        return most_pairs_and_their_total(iou.T, threshold)
    kept = [
        [iou[i, j] for i, j in enumerate(chosen) if iou[i, j] >= threshold and iou[i, j] > 0]
        for chosen in permutations(range(m), n)
    ]
    return max(((len(one), sum(one)) for one in kept), default=(0, 0.0))


@given(iou_matrices(), st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_most_hits_are_most_hits(iou, threshold):
    pairs = most_hits_match(iou, threshold)
    count, greatest = most_pairs_and_their_total(iou, threshold)
    assert len(pairs) == count
    assert total(iou, pairs) == pytest.approx(greatest, abs=1e-8)
    assert count >= max(len(match(iou, threshold)) for match in SINGLE.values())


@given(iou_matrices(), st.sampled_from([0.0, 0.3, 0.5]))
def test_another_prediction_or_lower_threshold_never_loses_a_hit(iou, threshold):
    pairs = most_hits_match(iou, threshold)
    if len(iou):
        assert len(most_hits_match(iou[:-1], threshold)) <= len(pairs)
    assert len(most_hits_match(iou, threshold + 0.1)) <= len(pairs)


@given(iou_matrices(), st.sampled_from(sorted(SINGLE)), st.sampled_from([0.0, 0.3, 0.5]))
def test_pairs_are_one_to_one_and_reach_the_threshold(iou, name, threshold):
    pairs = SINGLE[name](iou, threshold)
    assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)
    assert all(iou[i, j] >= threshold and iou[i, j] > 0 for i, j in pairs)


@given(st.lists(iou_matrices(), min_size=1, max_size=5), st.sampled_from(sorted(SINGLE)))
def test_a_padded_batch_gives_the_single_results(matrices, name):
    n = max(len(matrix) for matrix in matrices)
    padded = np.zeros((len(matrices), n, max(matrix.shape[1] for matrix in matrices)))
    for slot, matrix in zip(padded, matrices, strict=True):
        slot[: matrix.shape[0], : matrix.shape[1]] = matrix
    for row, matrix in zip(match_batch(padded, 0.3, matching=name), matrices, strict=True):
        assert as_pairs(row.tolist()) == SINGLE[name](matrix, 0.3)


def test_every_matcher_has_both_forms():
    assert SINGLE.keys() == MATCHERS.keys()


@pytest.mark.parametrize("name", sorted(SINGLE))
def test_wrong_input_is_refused(name):
    for threshold in (1.5, -0.1, float("nan"), "0.5", None):
        with pytest.raises(ValueError, match="`iou_threshold`"):
            SINGLE[name]([[0.5]], threshold)
    for iou in ([0.5], [[[0.5]]], [[float("nan")]]):
        with pytest.raises(ValueError, match="`iou`"):
            SINGLE[name](iou, 0.5)
    with pytest.raises(ValueError, match="`iou`"):
        match_batch([[0.5]], 0.5, matching=name)


def test_an_unknown_matcher_is_refused():
    with pytest.raises(ValueError, match="thresholded_hungarian"):
        match_batch([[[0.5]]], 0.5, matching="optimal")


@given(iou_matrices(), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.sampled_from(list(MATCHERS)))
def test_one_image_is_matched_as_in_a_batch(iou, threshold, matching):
    # by a loop in Python and by arrays; hungarian ties are the same image's, so the same too
    batch = match_batch(np.stack([iou] * 20), threshold, matching=matching)
    assert (batch == match_batch(iou[None], threshold, matching=matching)).all()


def test_the_computed_iou_is_compared_with_the_threshold():
    """Half of a box whose corners are thousandths: on paper the IoU is 1/2, in float64 it is that or the number below.

    Rewards and metrics compare it with `>=`, without a tolerance: who is a hit for one is a hit for the other.
    """
    rng = np.random.default_rng(0)
    hits = []
    for _ in range(500):
        side = int(rng.integers(300, 3000))
        x, y, w, h = rng.integers(1, 300, 4)
        gt = np.array([[x, y, x + 2 * w, y + h]]) * side / 1000
        pred = np.array([[x, y, x + w, y + h]]) * side / 1000
        iou = pairwise_iou(pred, gt)
        assert abs(iou[0, 0] - 0.5) < 1e-13
        matched = MatchedImages([Prediction("a", side, side, gt=gt, gt_labels=["x"], pred=pred)])
        hits.append(bool(iou[0, 0] >= 0.5))
        assert len(greedy_match(iou, 0.5)) == len(hungarian_match(iou, 0.5)) == hits[-1]
        assert matched.counts_50.tp[0] == hits[-1] == (get_reward("R3").score(pred, gt) > 0)
    assert 0.2 < np.mean(hits) < 0.8


# ignored regions, on single images and on padded batches


def test_the_share_is_of_one_region_not_of_their_union():
    # by hand: two halves of a box lie in two regions
    assert covered_share([[0, 0, 10, 10]], [[0, 0, 10, 5], [0, 5, 10, 10]]) == [0.5]


@pytest.mark.parametrize("regions", [np.zeros((0, 4)), np.full((2, 4), np.nan), [[5, 5, 0, 0]]])
def test_without_a_valid_region_nothing_is_covered(regions):
    assert covered_share([[0, 0, 10, 10], [0, 0, 0, 0]], regions).tolist() == [0.0, 0.0]


def test_a_padded_batch_is_its_images():
    rng = np.random.default_rng(0)
    images = [(random_boxes(rng, 3), random_boxes(rng, k)) for k in range(4)]
    regions = np.full((4, 3, 4), np.nan)
    for row, (_, own) in enumerate(images):
        regions[row, : len(own)] = own
    together = covered_share(np.stack([pred for pred, _ in images]), regions)
    assert together.tolist() == [covered_share(pred, own).tolist() for pred, own in images]


def test_the_threshold_itself_ignores_and_a_match_never_is():
    share, matched = np.array([0.5, 0.5, 0.49]), np.array([False, True, False])
    assert is_ignored(share, matched, 0.5).tolist() == [True, False, False]

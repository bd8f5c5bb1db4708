import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.overlap import nms, pairwise_ciou, pairwise_diou, pairwise_giou, pairwise_ioa, pairwise_iou
from tests.conftest import box_lists, random_boxes, valid_box_lists
from tests.tables import table

ALL = [pairwise_iou, pairwise_giou, pairwise_diou, pairwise_ciou, pairwise_ioa]


def scalar_iou(p, g):
    """Specification §2.1, one pair, in plain Python."""
    inter = max(0.0, min(p[2], g[2]) - max(p[0], g[0])) * max(0.0, min(p[3], g[3]) - max(p[1], g[1]))
    union = (p[2] - p[0]) * (p[3] - p[1]) + (g[2] - g[0]) * (g[3] - g[1]) - inter
    return inter / union


@pytest.mark.parametrize(("pred", "gt", "expected"), table("geometry", "iou"))
def test_iou_by_hand(pred, gt, expected):
    assert pairwise_iou([pred], [gt])[0, 0] == expected


def test_ioa_divides_by_the_ground_truth():
    # by hand: a box that covers the whole finding, and half of it, whatever its own size
    np.testing.assert_allclose(pairwise_ioa([[0, 0, 100, 100], [0, 0, 1, 2]], [[0, 0, 2, 2]]), [[1.0], [0.5]])


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        # by hand: unit boxes two apart: C is 3×1, union 2; centres 2 apart, diagonal² 3² + 1² = 10, not its root, by
        # which spec/iou_family.md divides
        (pairwise_giou, -1 / 3),
        (pairwise_diou, -4 / 10),
        (pairwise_ciou, -4 / 10),
    ],
)
def test_family_by_hand(function, expected):
    assert function([[0, 0, 1, 1]], [[2, 0, 3, 1]])[0, 0] == pytest.approx(expected, abs=1e-15)


def test_equal_to_torchvision():
    torch = pytest.importorskip("torch")
    ops = pytest.importorskip("torchvision.ops")
    rng = np.random.default_rng(1)
    pred, gt = random_boxes(rng, 200), random_boxes(rng, 150)
    p, g = torch.from_numpy(pred), torch.from_numpy(gt)
    np.testing.assert_allclose(pairwise_iou(pred, gt), ops.box_iou(p, g).numpy(), atol=1e-12)
    np.testing.assert_allclose(pairwise_giou(pred, gt), ops.generalized_box_iou(p, g).numpy(), atol=1e-12)
    # torchvision adds 1e-7 to the squared diagonal and to the denominator of α: it is lower by up to that much
    np.testing.assert_allclose(pairwise_diou(pred, gt), ops.distance_box_iou(p, g, eps=0).numpy(), atol=1e-12)
    np.testing.assert_allclose(pairwise_ciou(pred, gt), ops.complete_box_iou(p, g, eps=0).numpy(), atol=1e-9)


def test_equal_to_pycocotools():
    mask = pytest.importorskip("pycocotools.mask")
    rng = np.random.default_rng(2)
    pred, gt = random_boxes(rng, 60), random_boxes(rng, 40)
    as_xywh = [np.concatenate([b[:, :2], b[:, 2:] - b[:, :2]], axis=1) for b in (pred, gt)]
    np.testing.assert_allclose(pairwise_iou(pred, gt), mask.iou(*as_xywh, [0] * 40), atol=1e-12)


@given(valid_box_lists(1), valid_box_lists(1))
def test_iou_equals_the_scalar_formula(pred, gt):
    expected = [[scalar_iou(p, g) for g in gt] for p in pred]
    np.testing.assert_array_equal(pairwise_iou(pred, gt), expected)


@given(box_lists(), box_lists(), st.sampled_from(ALL))
def test_total_and_bounded(pred, gt, function):
    low = 0.0 if function in (pairwise_iou, pairwise_ioa) else -1.5 if function is pairwise_ciou else -1.0
    values = function(pred, gt)
    assert values.shape == (len(pred), len(gt))
    assert ((values >= low) & (values <= 1.0)).all()


@given(st.lists(st.lists(st.floats(), min_size=4, max_size=4), min_size=1, max_size=4), st.sampled_from(ALL))
def test_total_on_any_floats(boxes, function):
    values = function(boxes, boxes[::-1])
    assert np.isfinite(values).all()
    assert (values <= 1).all()


@given(st.floats(1e-300, 1e150), st.floats(0.1, 10), st.floats(0, 1e3))
def test_iou_with_itself_is_one_however_small_or_large(width, aspect, offset):
    x = offset * width
    box = [[x, 0.0, x + width, width * aspect]]
    assert pairwise_iou(box, box)[0, 0] == 1.0
    assert pairwise_ioa(box, box)[0, 0] == 1.0
    for function in (pairwise_giou, pairwise_diou, pairwise_ciou):
        assert function(box, box)[0, 0] == pytest.approx(1.0, abs=1e-9)


@given(valid_box_lists(1, 3), valid_box_lists(1, 3), st.sampled_from([pairwise_iou, pairwise_giou, pairwise_diou]))
def test_symmetric(pred, gt, function):
    np.testing.assert_allclose(function(pred, gt), function(gt, pred).T, atol=1e-12)


@given(valid_box_lists(1, 3), valid_box_lists(1, 3))
def test_the_family_is_ordered(pred, gt):
    iou, giou = pairwise_iou(pred, gt), pairwise_giou(pred, gt)
    diou, ciou = pairwise_diou(pred, gt), pairwise_ciou(pred, gt)
    assert (giou <= iou + 1e-12).all()
    assert (diou <= iou + 1e-12).all()
    assert (ciou <= diou + 1e-12).all()


@given(valid_box_lists(1, 3), valid_box_lists(1, 3), st.integers(-50, 50), st.sampled_from([0.25, 2.0, 1024.0]))
def test_unchanged_by_moving_and_scaling(pred, gt, shift, scale):
    moved = [np.array(boxes) * scale + shift for boxes in (pred, gt)]
    for function in ALL:
        np.testing.assert_allclose(function(*moved), function(pred, gt), atol=1e-12)


@pytest.mark.parametrize("function", ALL)
def test_batches_are_the_single_results_stacked(function):
    rng = np.random.default_rng(3)
    pred, gt = random_boxes(rng, 15).reshape(5, 3, 4), random_boxes(rng, 20).reshape(5, 4, 4)
    stacked = np.stack([function(p, g) for p, g in zip(pred, gt, strict=True)])
    np.testing.assert_array_equal(function(pred, gt), stacked)


@pytest.mark.parametrize("function", ALL)
def test_empty_sides(function):
    assert function([], [[0, 0, 1, 1]]).shape == (0, 1)
    assert function([[0, 0, 1, 1]], []).shape == (1, 0)
    assert function(np.zeros((3, 0, 4)), np.zeros((3, 2, 4))).shape == (3, 0, 2)


@pytest.mark.parametrize("function", ALL)
def test_a_wrong_shape_is_refused(function):
    with pytest.raises(ValueError, match="Expected an array of shape"):
        function([1, 2, 3, 4], [[1, 2, 3, 4]])


@pytest.mark.parametrize(("boxes", "scores", "threshold", "kept"), table("geometry", "nms"))
def test_nms_by_hand(boxes, scores, threshold, kept):
    result = nms(boxes, scores, threshold)
    assert result.tolist() == kept
    assert result.dtype == np.int64


@pytest.mark.parametrize(("boxes", "scores", "kept"), table("geometry", "nms_by_ioa"))
def test_nms_by_the_part_that_is_covered(boxes, scores, kept):
    assert nms(boxes, scores, overlap="ioa").tolist() == kept


def test_nms_by_another_measure_is_refused():
    with pytest.raises(ValueError, match="iou, ioa"):
        nms([[0, 0, 1, 1]], [1], overlap="giou")


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.5, 0.9, 1.0])
def test_nms_equal_to_torchvision(threshold):
    torch = pytest.importorskip("torch")
    ops = pytest.importorskip("torchvision.ops")
    for seed in range(10):
        rng = np.random.default_rng(seed)
        boxes = random_boxes(rng, 80).round() if seed % 2 else random_boxes(rng, 80)
        boxes = boxes[(boxes[:, 2:] > boxes[:, :2]).all(axis=1)]
        scores = rng.integers(0, 20, len(boxes)) / 20  # many equal ones
        expected = ops.nms(torch.from_numpy(boxes), torch.from_numpy(scores), threshold)
        assert nms(boxes, scores, threshold).tolist() == expected.tolist()


@given(box_lists(max_size=8), st.floats(0, 1), st.data())
def test_nms_removes_exactly_the_boxes_that_overlap_a_surer_one(boxes, threshold, data):
    scores = data.draw(st.lists(st.floats(allow_nan=True), min_size=len(boxes), max_size=len(boxes)))
    kept = nms(boxes, scores, threshold)
    iou = pairwise_iou(boxes, boxes)
    rank = np.where(np.isnan(scores), np.inf, -np.asarray(scores, dtype=float))
    assert (np.diff(rank[kept]) >= 0).all() or not np.isfinite(rank[kept]).all()
    for k in kept:
        assert all(iou[k, other] <= threshold for other in kept if other != k)
    for i in set(range(len(boxes))) - set(kept.tolist()):
        assert any(iou[i, k] > threshold and rank[k] <= rank[i] for k in kept)


@pytest.mark.parametrize(("scores", "threshold", "message"), table("cases", "nms_refuses_wrong_arguments"))
def test_nms_refuses_wrong_arguments(scores, threshold, message):
    with pytest.raises(ValueError, match=message):
        nms([[0, 0, 1, 1]] * 2, scores, threshold)


EXTREME = st.floats() | st.sampled_from([0.0, -0.0, 1e-160, 1e-310, 1.0, 1e160, 1.7e308, -1.7e308])
ANY_BOXES = box_lists() | st.lists(st.lists(EXTREME, min_size=4, max_size=4), min_size=1, max_size=3)


@given(ANY_BOXES, ANY_BOXES)
def test_a_few_pairs_and_many_are_measured_alike(pred, gt):
    # by a loop in Python and by arrays
    pred, gt = np.reshape(pred, (-1, 4)), np.reshape(gt, (-1, 4))
    alone = pairwise_iou(pred, gt)
    batch = pairwise_iou(np.stack([pred] * 20), np.stack([gt] * 20))
    assert alone.shape == batch.shape[1:] == pairwise_iou(pred[None], gt)[0].shape
    assert (batch == alone).all()

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards import boxes as bx
from tests.conftest import random_boxes

SIZES = {"width": 640, "height": 428, "resized_width": 644, "resized_height": 420}


@pytest.mark.parametrize("value", [[], (), np.zeros((0, 4)), np.zeros(0), [[]]])
def test_no_box_is_zero_by_four(value):
    assert bx.as_box_array(value).shape == (0, 4)


@pytest.mark.parametrize(
    "value",
    [
        [1, 2, 3, 4],  # one box that is not in a list
        [[1, 2, 3]],  # three numbers
        [[1, 2, 3, 4], [1, 2, 3]],  # ragged
        [["a", "b", "c", "d"]],  # words
        np.zeros((2, 2, 4)),  # a batch
    ],
)
def test_what_is_not_rows_of_four_is_refused(value):
    with pytest.raises(ValueError, match=r"Expected .* for `pred`, got"):
        bx.as_box_array(value, "pred")


@pytest.mark.parametrize(
    ("box", "valid"),
    [
        ([0, 0, 1, 1], True),
        ([-5, -5, 1, 1], True),  # outside the film, but a box
        ([0, 0, 1e-300, 1e-300], True),  # tiny
        ([0, 0, 0, 1], False),  # no width
        ([2, 0, 1, 1], False),  # swapped corners
        ([0, np.nan, 1, 1], False),
        ([0, 0, np.inf, 1], False),
        ([-np.inf, 0, np.inf, 1], False),
        ([-1e308, 0, 1e308, 1], False),  # its width is not a number of float64
    ],
)
def test_validity(box, valid):
    assert bx.valid_boxes(np.array([box], dtype=float)).tolist() == [valid]
    assert (bx.box_area(np.array([box], dtype=float))[0] >= 0).all()


def test_conversions_are_inverse():
    boxes = random_boxes(np.random.default_rng(0), 50)
    np.testing.assert_allclose(bx.xywh_to_xyxy(bx.xyxy_to_xywh(boxes)), boxes, rtol=1e-14)
    np.testing.assert_allclose(bx.cxcywh_to_xyxy(bx.xyxy_to_cxcywh(boxes)), boxes, rtol=1e-13)
    assert bx.xyxy_to_xywh(np.zeros((0, 4))).shape == (0, 4)


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        # The image of Qwen's conversion notebook: [146, 137, 615, 415] on 640×428
        (bx.NORM1000, [228, 320, 961, 970]),
        (bx.RESIZED_PIXEL, [147, 134, 619, 407]),
        (bx.PIXEL, [146, 137, 615, 415]),
    ],
)
def test_published_vectors(space, expected):
    pixel = np.array([[146.0, 137.0, 615.0, 415.0]])
    assert bx.from_pixel(pixel, space, **SIZES).round()[0].tolist() == expected


@given(
    st.sampled_from(list(bx.SPACES.values())),
    st.integers(1, 5000),
    st.integers(1, 5000),
    st.integers(0, 2**31),
)
def test_spaces_convert_both_ways(space, width, height, seed):
    boxes = random_boxes(np.random.default_rng(seed), 5, 4000.0)
    sizes = {"width": width, "height": height, "resized_width": 1008, "resized_height": 644}
    there = bx.from_pixel(boxes, space, **sizes)
    np.testing.assert_allclose(bx.to_pixel(there, space, **sizes), boxes, rtol=1e-14)


def test_sizes_may_differ_from_box_to_box():
    boxes = np.array([[0, 0, 500, 500], [0, 0, 500, 500]], dtype=float)
    pixel = bx.to_pixel(boxes, bx.NORM1000, width=[100, 200], height=[100, 400])
    assert pixel.tolist() == [[0, 0, 50, 50], [0, 0, 100, 200]]


@pytest.mark.parametrize("bad", [None, 0, -1, float("nan"), float("inf")])
def test_a_missing_size_is_named(bad):
    with pytest.raises(ValueError, match="`height`"):
        bx.to_pixel(np.zeros((1, 4)), bx.NORM1, width=10, height=bad)


def test_resized_pixels_without_sizes_are_taken_as_they_are_and_noticed():
    boxes = np.array([[1.0, 2.0, 3.0, 4.0]])
    with pytest.warns(UserWarning, match="resized_width"):
        np.testing.assert_array_equal(bx.to_pixel(boxes, bx.RESIZED_PIXEL, width=10, height=10), boxes)


def test_unknown_space_lists_the_known_ones():
    with pytest.raises(ValueError, match="norm1000"):
        bx.get_space("norm10")

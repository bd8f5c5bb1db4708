"""Box arrays, and every family's coordinates against its own published rule."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards import boxes as bx
from grounding_rewards.boxes import SPACES
from tests.conftest import random_boxes
from tests.tables import table

SIZES = {"width": 640, "height": 428, "resized_width": 644, "resized_height": 420}

every_space = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
sides = st.integers(1, 6000)


@pytest.mark.parametrize("value", [[], (), np.zeros((0, 4)), np.zeros(0), [[]]])
def test_no_box_is_zero_by_four(value):
    assert bx.as_box_array(value).shape == (0, 4)


def test_a_cell_of_pandas_is_rows_of_four():
    cell = np.empty(2, dtype=object)
    cell[:] = [np.array([1.0, 2.0, 3.0, 4.0]), np.array([5, 6, 7, 8])]
    assert bx.as_box_array(cell).tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]


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


@pytest.mark.parametrize(("box", "valid"), table("geometry", "validity"))
def test_validity(box, valid):
    assert bx.valid_boxes(np.array([box], dtype=float)).tolist() == [valid]
    assert (bx.box_area(np.array([box], dtype=float))[0] >= 0).all()


def test_conversions_are_inverse():
    boxes = random_boxes(np.random.default_rng(0), 50)
    np.testing.assert_allclose(bx.to_xyxy(bx.from_xyxy(boxes, "xywh"), "xywh"), boxes, rtol=1e-14)
    np.testing.assert_allclose(bx.to_xyxy(bx.from_xyxy(boxes, "cxcywh"), "cxcywh"), boxes, rtol=1e-13)
    assert bx.from_xyxy(np.zeros((0, 4)), "xywh").shape == (0, 4)


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        # The image of Qwen's conversion notebook: [146, 137, 615, 415] on 640×428
        (SPACES["norm1000"], [228, 320, 961, 970]),
        (SPACES["resized_pixel"], [147, 134, 619, 407]),
        (SPACES["pixel"], [146, 137, 615, 415]),
    ],
)
def test_published_vectors(space, expected):
    pixel = np.array([[146.0, 137.0, 615.0, 415.0]])
    assert bx.from_pixel(pixel, space, **SIZES).round()[0].tolist() == expected
    assert np.abs(bx.to_pixel(np.array([expected]), space, **SIZES) - pixel).max() <= 0.5


@pytest.mark.parametrize(("space", "box", "width", "height", "expected"), table("geometry", "families"))
def test_vectors_of_other_families(space, box, width, height, expected):
    found = bx.to_pixel(np.array([box], dtype=float), SPACES[space], width=width, height=height)
    np.testing.assert_allclose(found[0], expected, rtol=1e-14)


def on_image(unit):
    """The whole image, squashed or not: v · side / unit."""
    return lambda value, side, other: Fraction(value) * side / unit


def florence_2(value, side, other):
    # Florence2PostProcessor.dequantize: the middle of one of 1000 bins
    return (value + Fraction(1, 2)) * side / 1000


def maira_2(value, side, other):
    # adjust_box_for_original_image_size: the middle of one of 100 bins of the square cut from the middle
    square = min(side, other)
    return Fraction(2 * value + 1, 200) * square + (side - square) // 2


def on_padded_square(unit):
    """The image amid a square of its longer side: a share of that square, less the padding."""
    return lambda value, side, other: Fraction(value, unit) * max(side, other) - (max(side, other) - side) // 2


#: Space, largest number and each family's own rule from a number to a pixel along one side, before any rounding.
FAMILIES = {
    "qwen2-vl, qwen3-vl, internvl, ferret, glm-4v": (SPACES["norm1000"], 1000, on_image(1000)),
    "deepseek-vl2, rex-omni, cogvlm": (SPACES["norm999"], 999, on_image(999)),
    # as its trainer writes: round(v * 1023) in big_vision's pp/proj/paligemma/segmentation.py
    "paligemma": (SPACES["norm1023"], 1023, on_image(1023)),
    # as many demonstrations read PaliGemma
    "bin1024": (SPACES["bin1024"], 1023, on_image(1024)),
    "chexagent-2": (SPACES["norm100"], 100, on_image(100)),
    "seg-zero": (SPACES["squash840"], 840, on_image(840)),
    "florence-2": (SPACES["bin1000"], 999, florence_2),
    "maira-2": (SPACES["crop100"], 99, maira_2),
    # eval_grounding.py with square padding
    "all-seeing": (SPACES["pad999"], 999, on_padded_square(999)),
    # box_xyxy_expand2square, then over the side of the square: thousandths here, so that they are exact
    "shikra, llava": (SPACES["pad1"], 1000, on_padded_square(1000)),
}


@pytest.mark.parametrize(("space", "largest", "rule"), FAMILIES.values(), ids=FAMILIES)
@given(data=st.data(), width=sides, height=sides)
def test_every_family_by_its_own_rule(space, largest, rule, data, width, height):
    box = data.draw(st.lists(st.integers(0, largest), min_size=4, max_size=4))
    sides = [(width, height), (height, width)] * 2
    expected = [float(rule(value, *both)) for value, both in zip(box, sides, strict=True)]
    written = np.array([box]) / (1000 if space is SPACES["pad1"] else 1)
    pixel = bx.to_pixel(written, space, width=width, height=height)
    np.testing.assert_allclose(pixel[0], expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(bx.from_pixel(pixel, space, width=width, height=height), written, rtol=0, atol=1e-9)


@given(st.integers(0, 1000), sides)
def test_exact_wherever_the_true_product_is(value, side):
    pixel = bx.to_pixel(np.full((1, 4), float(value)), SPACES["norm1000"], width=side, height=side)
    assert pixel[0, 0] == value * side / 1000  # of integers: rounded once


@every_space
@given(
    width=st.integers(1, 20_000),
    height=st.integers(1, 20_000),
    box=st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4),
)
def test_spaces_convert_both_ways(space, width, height, box):
    boxes = np.array([box])  # inside the image, outside, inverted
    sizes = {"width": width, "height": height, "resized_width": 1008, "resized_height": 644}
    scale = max(width, height, *map(abs, box))
    there = bx.from_pixel(boxes, space, **sizes)
    np.testing.assert_allclose(bx.to_pixel(there, space, **sizes), boxes, rtol=0, atol=1e-9 * scale)
    back = bx.to_pixel(boxes, space, **sizes)
    units = np.abs(back).max() + scale
    np.testing.assert_allclose(bx.from_pixel(back, space, **sizes), boxes, rtol=1e-9, atol=1e-9 * units)


@every_space
def test_sizes_may_differ_from_box_to_box(space):
    rng = np.random.default_rng(0)
    boxes = random_boxes(rng, 6, 1000.0)
    sizes = {side: rng.integers(1, 3000, 6) for side in SIZES}
    for convert in (bx.to_pixel, bx.from_pixel):
        own = [{side: values[k] for side, values in sizes.items()} for k in range(6)]
        alone = [convert(boxes[k : k + 1], space, **own[k])[0] for k in range(6)]
        np.testing.assert_array_equal(convert(boxes, space, **sizes), alone)
        assert convert(np.zeros((0, 4)), space, **SIZES).shape == (0, 4)


def crop_of(width, height):
    """Where transformers' own centre crop to the shortest side cuts, from an image that says where each pixel was."""
    from transformers.image_transforms import center_crop

    side = min(width, height)
    where = np.stack(np.meshgrid(np.arange(width), np.arange(height)))
    return center_crop(where, (side, side), input_data_format="channels_first")[:, 0, 0].tolist(), side


def padding_of(width, height):
    """Where transformers' own padding of LLaVA puts the first pixel of an image."""
    from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil

    padded = LlavaImageProcessorPil().pad_to_square(np.ones((3, height, width)))
    return [-int(np.argmax(padded[0].any(axis=axis))) for axis in (0, 1)], padded.shape[1]


@pytest.mark.training
@pytest.mark.parametrize(("space", "published"), [(SPACES["crop100"], crop_of), (SPACES["pad1"], padding_of)])
@pytest.mark.parametrize(
    ("width", "height"), [(7, 7), (8, 7), (7, 8), (9, 7), (7, 9), (10, 7), (7, 10), (40, 1), (1, 41), (33, 50)]
)
def test_squares_lie_where_transformers_puts_them(space, published, width, height):
    pytest.importorskip("transformers")
    frame = bx.space_frame(space, width, height)
    (left, top), side = published(width, height)
    assert frame.size == side
    assert frame.origin.tolist() == [left, top, left, top]


@pytest.mark.training
@pytest.mark.parametrize(("width", "height"), [(640, 480), (1000, 2000), (2544, 3056), (31, 7)])
def test_florence_2_in_transformers(width, height):
    torch = pytest.importorskip("torch")
    florence2 = pytest.importorskip("transformers.models.florence2.processing_florence2")
    published = florence2.Florence2PostProcessor({}, SimpleNamespace(all_special_tokens=[]))
    rng = np.random.default_rng(0)
    bins = rng.integers(0, 1000, (200, 4))
    # It counts whole pixels: the one that the point lies in
    pixels = published.dequantize(torch.tensor(bins), size=(width, height)).numpy()
    ours = bx.to_pixel(bins, SPACES["bin1000"], width=width, height=height)
    assert np.abs(ours - (pixels + 0.5)).max() <= 0.5 + 1e-3  # float32 there
    boxes = rng.uniform(0, 1, (200, 4)) * [width, height, width, height]
    tokens = published.quantize(torch.tensor(boxes), size=(width, height)).numpy()
    assert np.abs(bx.from_pixel(boxes, SPACES["bin1000"], width=width, height=height) - tokens).max() <= 0.5 + 1e-3


@pytest.mark.parametrize(("cells", "box"), table("geometry", "kosmos_2"))
def test_cells_of_kosmos_2(cells, box):
    assert bx.patch_index_to_norm1(*cells) == tuple(box)
    assert bx.norm1_to_patch_index(box) == tuple(cells)


@pytest.mark.training
@pytest.mark.parametrize("patches", [32, 8, 7, 1])
def test_kosmos_2_in_transformers(patches):
    published = pytest.importorskip("transformers.models.kosmos2.processing_kosmos2")
    rng = np.random.default_rng(0)
    for first, last in rng.integers(0, patches**2, (3000, 2)).tolist():
        expected = published.patch_index_to_coordinate(first, last, patches)
        assert bx.patch_index_to_norm1(first, last, patches) == pytest.approx(expected, rel=1e-12)
        if patches == 32:  # where nothing is rounded
            assert bx.patch_index_to_norm1(first, last) == expected
    for box in random_boxes(rng, 3000, 1.0 - 1e-6).tolist():
        assert bx.norm1_to_patch_index(box, patches) == published.coordinate_to_patch_index(box, patches)


@given(st.integers(0, 31), st.integers(0, 31), st.integers(0, 31), st.integers(0, 31))
def test_cells_come_back(left, top, right, bottom):
    (left, right), (top, bottom) = sorted((left, right)), sorted((top, bottom))
    cells = 32 * top + left, 32 * bottom + right
    assert bx.norm1_to_patch_index(bx.patch_index_to_norm1(*cells)) == cells


@given(st.integers(0, 10**400), st.integers(0, 10**400))
def test_any_cell_is_a_finite_box(first, last):
    assert np.isfinite(bx.patch_index_to_norm1(first, last)).all()


@pytest.mark.parametrize("box", [(-0.5, -2, 1.5, 3), (0, 0, 1, 1), (0.01, 0.01, 0.99, 0.99)])
def test_what_is_outside_the_image_counts_as_its_edge(box):
    assert bx.norm1_to_patch_index(box) == (0, 1023)


@pytest.mark.parametrize("bad", [None, 0, -1, float("nan"), float("inf"), "wide"])
@pytest.mark.parametrize("space", [SPACES["norm1"], SPACES["pad1"], SPACES["crop100"]], ids=lambda space: space.name)
def test_a_missing_size_is_named(bad, space):
    with pytest.raises(ValueError, match="`height`"):
        bx.to_pixel(np.zeros((1, 4)), space, width=10, height=bad)


def test_resized_pixels_without_sizes_are_refused():
    with pytest.raises(ValueError, match=r"`resized_width`, got None\. Boxes in resized_pixel need it"):
        bx.to_pixel(np.array([[1.0, 2.0, 3.0, 4.0]]), SPACES["resized_pixel"], width=10, height=10)


@pytest.mark.parametrize("name", ["norm10", "", None, 1000, ["norm1"]])
def test_unknown_space_lists_the_known_ones(name):
    with pytest.raises(ValueError, match="for `space`") as error:
        bx.get_space(name)
    assert all(known in str(error.value) for known in SPACES)


@given(st.lists(st.one_of(st.floats(-1e300, 1e300), st.just(np.nan), st.just(np.inf)), min_size=4, max_size=4))
def test_one_box_and_an_array_are_judged_alike(box):
    assert (bx.reference_defect(box) is None) == bool(bx.valid_boxes(np.array([box]))[0])

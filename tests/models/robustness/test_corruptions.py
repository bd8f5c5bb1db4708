"""Pixels and boxes move together; a change is what its number says and grows with its strength."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from grounding_rewards.models.robustness.corruptions import CORRUPTIONS, STRENGTHS, corrupt, corrupt_boxes
from grounding_rewards.synthetic import draw_radiograph
from tests.conftest import valid_box_lists
from tests.tables import table

MOVING = [name for name, kind in CORRUPTIONS.items() if kind.matrix is not None]
STILL = [name for name in CORRUPTIONS if name not in MOVING]
EVERY = [(name, strength) for name in CORRUPTIONS for strength in STRENGTHS]


def pixels(image):
    return np.asarray(image, dtype=np.float64)


def grey(value, width=60, height=40):
    return Image.new("L", (width, height), value)


@pytest.mark.parametrize(("name", "strength"), EVERY)
def test_corruption_keeps_size_and_mode_and_repeats_with_its_seed(name, strength):
    for mode in ("L", "RGB"):
        image = draw_radiograph(1, "pa-112").image.convert(mode)
        before = image.tobytes()
        first, again = (corrupt(image, [], name, strength, seed=(7, 3)).image for _ in range(2))
        assert (first.size, first.mode) == (image.size, mode)
        assert first.tobytes() == again.tobytes()
        assert image.tobytes() == before


@pytest.mark.parametrize("name", STILL)
def test_a_still_change_leaves_boxes_and_grows_with_its_strength(name):
    annotated = draw_radiograph(1, "pa-112")
    changes = []
    for strength in STRENGTHS:
        image, boxes, kept = corrupt(annotated.image, annotated.boxes, name, strength, seed=5)
        assert boxes.tolist() == [list(map(float, box)) for box in annotated.boxes]
        assert kept.all()
        changes.append(np.abs(pixels(image) - pixels(annotated.image)).mean())
    assert changes[0] > 0
    assert changes == sorted(changes)


@given(
    name=st.sampled_from(MOVING),
    strength=st.sampled_from(STRENGTHS),
    seed=st.integers(0, 2**32),
    x=st.integers(60, 150),
    y=st.integers(60, 100),
    width=st.integers(20, 60),
    height=st.integers(20, 60),
)
def test_a_moved_box_is_where_its_pixels_are(name, strength, seed, x, y, width, height):
    # A bright rectangle on black: the pixels that are at least half bright end where the moved box ends. The tip of a
    # turned corner is thin, so that up to a pixel of it may be too dark.
    painted = np.zeros((240, 300), dtype=np.uint8)
    painted[y : y + height, x : x + width] = 255
    image, (box,), _ = corrupt(Image.fromarray(painted), [[x, y, x + width, y + height]], name, strength, seed=seed)
    rows, columns = np.nonzero(pixels(image) >= 127)
    seen = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    assert np.abs(box - seen).max() <= 1.5


@given(
    boxes=valid_box_lists(),
    name=st.sampled_from(MOVING),
    strength=st.sampled_from(STRENGTHS),
    seed=st.integers(0, 2**32),
)
def test_moved_boxes_lie_on_the_image_and_scale_with_it(boxes, name, strength, seed):
    small, kept = corrupt_boxes(boxes, name, strength, width=20, height=18, seed=seed)
    large, kept_large = corrupt_boxes(10 * np.reshape(boxes, (-1, 4)), name, strength, width=200, height=180, seed=seed)
    assert np.allclose(10 * small, large)
    assert kept.tolist() == kept_large.tolist()
    assert (small >= 0).all()
    assert (small <= [20, 18, 20, 18]).all()


def test_rotation_by_hand():
    # A square of side 20 in the middle, turned by 5°: its upright rectangle has the side 20·(cos 5° + sin 5°) = 21.667.
    (box,), _ = corrupt_boxes([[40, 40, 60, 60]], "rotation", 5, width=100, height=100)
    assert box == pytest.approx([50 - 10.83350, 50 - 10.83350, 50 + 10.83350, 50 + 10.83350], abs=1e-4)


def test_rotation_goes_both_ways_and_each_strength_the_same_way():
    def drop(strength, seed):
        (box,), _ = corrupt_boxes([[80, 49, 82, 51]], "rotation", strength, width=100, height=100, seed=seed)
        return float(box[1] + box[3]) / 2 - 50

    signs = {seed: {np.sign(drop(strength, seed)) for strength in STRENGTHS} for seed in range(20)}
    assert all(len(one) == 1 for one in signs.values())
    assert {one for found in signs.values() for one in found} == {-1.0, 1.0}


def test_two_flips_give_the_image_back():
    image = draw_radiograph(1, "pa-112")
    once = corrupt(image.image, image.boxes, "laterality_flip", 5)
    twice = corrupt(once.image, once.boxes, "laterality_flip", 5)
    assert pixels(once.image).tolist() == pixels(image.image)[:, ::-1].tolist()
    assert twice.image.tobytes() == image.image.tobytes()
    assert twice.boxes.tolist() == [list(map(float, box)) for box in image.boxes]


def test_the_strength_of_the_flip_is_the_share_of_images():
    box = [[0.0, 0.0, 10.0, 10.0]]

    def is_flipped(i: int, s: int) -> bool:
        return corrupt_boxes(box, "laterality_flip", s, width=100, height=50, seed=(0, i))[0][0, 0] > 0

    flipped = np.array([[is_flipped(i, s) for s in STRENGTHS] for i in range(1000)])
    # four standard errors of a share of 1000
    assert flipped.mean(axis=0) == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0], abs=4 * np.sqrt(0.25 / 1000))
    assert (np.diff(flipped.astype(int), axis=1) >= 0).all()


@pytest.mark.parametrize(("box", "kept"), table("models/tables", "cropped_boxes"))
def test_a_box_is_gone_when_less_than_half_is_left(box, kept):
    # by hand: default_rng(0).uniform(0, 0.2, 2) = 0.1274, 0.0540
    moved, stays = corrupt_boxes([box], "crop", 5, width=100, height=100, seed=0)
    assert stays.tolist() == [kept]
    if not box[0] < box[2]:
        assert np.array_equal(moved[0], box, equal_nan=True)


def test_what_stuck_out_before_does_not_count_as_lost():
    # Two thirds lie outside the image, and all that is inside stays inside.
    moved, kept = corrupt_boxes([[40, 40, 160, 60]], "rotation", 1, width=80, height=100)
    assert kept.tolist() == [True]
    assert moved[0, 2] == 80


def test_window_and_level_by_hand():
    # amount 0.12: width 0.7, level 0.38 or 0.62; 102 / 255 = 0.4 becomes (0.4 - 0.38) / 0.7 + 0.5 = 0.5286, or 0.1857
    seen = {int(pixels(corrupt(grey(102), [], "window_level", 3, seed=seed).image).max()) for seed in range(20)}
    assert seen == {135, 47}


@pytest.mark.parametrize("strength", STRENGTHS)
def test_noise_has_the_standard_deviation_that_is_stated(strength):
    noisy = pixels(corrupt(grey(128, 300, 300), [], "noise", strength).image) / 255
    # 90,000 pixels, rounded to 1/255
    assert noisy.std() == pytest.approx(CORRUPTIONS["noise"].amounts[strength - 1], rel=0.02)


def test_noise_of_a_colour_copy_is_grey():
    noisy = pixels(corrupt(grey(128).convert("RGB"), [], "noise", 4).image)
    assert (noisy == noisy[..., :1]).all()


@pytest.mark.parametrize("strength", STRENGTHS)
def test_blur_has_the_standard_deviation_that_is_stated(strength):
    # The step from black to white becomes the normal distribution function, whose derivative has that deviation.
    step = np.zeros((20, 1000), dtype=np.uint8)
    step[:, 500:] = 255
    profile = pixels(corrupt(Image.fromarray(step), [], "blur", strength).image)[10] / 255
    density = np.diff(profile)
    place = np.arange(len(density))
    sigma = np.sqrt((density * place**2).sum() - (density * place).sum() ** 2)
    # Pillow approximates the Gaussian by three box filters, and grey has 256 steps.
    assert sigma == pytest.approx(1000 * CORRUPTIONS["blur"].amounts[strength - 1], rel=0.05)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_marker_is_white_in_a_corner_of_stated_height(strength):
    heights, corners = set(), set()
    for seed in range(20):
        marked = corrupt(grey(0, 300, 200), [], "burned_in_marker", strength, seed=seed).image
        rows, columns = np.nonzero(pixels(marked))
        heights.add(rows.max() + 1 - rows.min())
        corners.add((rows.mean() > 100, columns.mean() > 150))
        assert rows.max() < 0.3 * 200 or rows.min() > 0.7 * 200
        assert columns.max() < 0.3 * 300 or columns.min() > 0.7 * 300
    side = 200 * CORRUPTIONS["burned_in_marker"].amounts[strength - 1]
    # A stroke is 0.16 of the side thick, half of which stands out above and below.
    assert all(0.95 * side <= height <= 1.25 * side + 2 for height in heights)
    assert len(corners) == 4

"""Pixels and boxes move together; what changes cost the shipped model, and that none costs nothing."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from grounding_rewards import get_reward
from grounding_rewards.data.dataset_columns import add_columns
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.models.attack import PGD
from grounding_rewards.models.load import load_model
from grounding_rewards.models.robustness import (
    CORRUPTIONS,
    STRENGTHS,
    CorruptedImages,
    corrupt,
    corrupt_boxes,
    robustness,
)
from grounding_rewards.prepare.load import load_split
from grounding_rewards.synthetic import draw_radiograph
from tests.conftest import REPOSITORY, valid_box_lists
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


GREY = Image.new("L", (60, 40), 128)
SETTINGS: dict[str, Any] = {"max_new_tokens": 24, "batch_size": 24}


@pytest.fixture(scope="module")
def shipped():
    """The shipped model, its processor, and 24 drawn images."""
    model, processor = load_model(REPOSITORY / "assets" / "tiny_vlm")
    return model, processor, add_columns(load_split("synthetic", "test", max_images=24), processor, "qwen2.5-vl")


def test_accuracy_falls_with_epsilon_and_is_unchanged_at_0(shipped):
    model, processor, images = shipped
    kinds = {"families": ("corruptions", "pgd"), "corruptions": ("noise",)}
    changes = {**kinds, "strengths": (1,), "epsilons": (0, 8 / 255, 0.1)}
    still, _, *attacked = robustness(model, processor, images, get_reward("R3"), **changes, **SETTINGS)
    zero, middle, large = attacked
    assert [point.strength for point in attacked] == [0, 8 / 255, 0.1]
    assert {point.family for point in attacked} == {"pgd"}
    # The attack at ε = 0 answers the images anew, and says the same.
    assert zero.accuracy == still.accuracy
    assert zero.mean_iou == still.mean_iou
    assert zero.attack_success_rate.value == 0
    # 24 images: what docs/robustness.md shows is far beyond chance.
    assert zero.accuracy[0] > middle.accuracy[0] + 0.2
    assert middle.accuracy[0] >= large.accuracy[0]
    assert zero.attack_success_rate[0] < middle.attack_success_rate[0] <= large.attack_success_rate[0]
    assert zero.mean_iou[0] > middle.mean_iou[0] > large.mean_iou[0]
    assert all(low <= value <= high for value, low, high in (middle.accuracy, middle.broken_share))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_every_corruption_gives_a_point_for_each_strength(shipped):
    model, processor, images = shipped
    changes = {"families": ("corruptions",), "corruptions": ("crop", "laterality_flip"), "strengths": (1, 5)}
    points = robustness(model, processor, images, get_reward("R3"), **changes, **SETTINGS)
    expected = [(name, strength) for name in ("crop", "laterality_flip") for strength in (0, 1, 5)]
    assert [(point.name, point.strength) for point in points] == expected
    assert points[0].accuracy == points[3].accuracy
    assert points[0].attack_success_rate.value == points[3].attack_success_rate.value == 0
    # The model was taught images with the heart on one side, in one frame.
    assert points[2].accuracy[0] < points[0].accuracy[0] - 0.2
    assert points[5].accuracy[0] < points[4].accuracy[0] < points[3].accuracy[0]


def test_a_model_that_moves_its_boxes_along_is_perfectly_robust(monkeypatch):
    # In the place of a model: who marks all bright rectangles exactly, wherever they are.
    rng = np.random.default_rng(0)
    boxes = [[], [[20, 30, 60, 90]], [[10, 10, 40, 30], [60, 50, 90, 110]], [[0, 40, 50, 70]]]
    images = []
    for image in boxes:
        grey = rng.integers(0, 60, (120, 100), dtype=np.uint8)
        for x1, y1, x2, y2 in image:
            grey[y1:y2, x1:x2] = 255
        images.append(Image.fromarray(grey))
    from datasets import Dataset
    from datasets import Image as ImageColumn

    columns: dict[str, Any] = {"image": images, "boxes": boxes, "labels": [["mass"] * len(image) for image in boxes]}
    columns |= {"prompt": [[{"role": "user", "content": "?"}]] * 4, "patient_id": ["a", "a", "b", "c"]}
    columns |= {"width": [100] * 4, "height": [120] * 4}
    dataset = Dataset.from_dict(columns).cast_column("image", ImageColumn())

    def answer(model, processor, annotated_images, sampling, **_):
        from scipy.ndimage import find_objects, label

        assert sampling.temperature == 0
        answers = []
        for i in range(len(annotated_images)):
            found = find_objects(label(np.asarray(annotated_images[i]["image"]) > 127)[0])
            answers.append([json.dumps([{"bbox_2d": [x.start, y.start, x.stop, y.stop]} for y, x in found])])
        return answers

    monkeypatch.setattr("grounding_rewards.models.generate.generate", answer)
    reward = get_reward("R3", box_format={"syntax": "json", "space": "pixel"}, iou_threshold=0.7)
    moving = ("rotation", "crop", "laterality_flip")
    for point in robustness(
        None, None, dataset, reward, families=("corruptions",), corruptions=moving, strengths=(2, 5)
    ):
        assert point.accuracy[0] == 1, point
        assert point.attack_success_rate[0] == point.broken_share[0] == 0, point
        assert point.mean_iou[0] > 0.8, point


def test_images_and_answers_move_together():
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (50, 100), dtype=np.uint8))
    images = CorruptedImages([{"image": image, "id": "a"}] * 2, "crop", 5, seed=1)
    assert len(images) == 2
    first, second = images[0], images[1]
    assert first["id"] == "a"
    assert first["image"].tobytes() == corrupt(image, [], "crop", 5, seed=(1, 0)).image.tobytes()
    assert first["image"].tobytes() != second["image"].tobytes()

    gt = [[0, 0, 3, 50], [30, 10, 60, 40]]
    before = Prediction("a", 100, 50, gt=gt, gt_labels=["tube", "mass"], pred=gt[1:])
    (pair,) = CorruptedImages([{"image": image}], "crop", 5, seed=1).pairs([before], [before])
    moved = corrupt(image, before.gt, "crop", 5, seed=(1, 0))
    assert moved.kept.tolist() == [False, True]
    assert pair.before is before
    assert pair.after.gt.tolist() == moved.boxes[1:].tolist()
    assert pair.after.gt_labels == ("mass",)
    # What is left of the tube may be marked or not.
    assert pair.after.ignore.tolist() == moved.boxes[:1].tolist()
    assert pair.moved.tolist() == moved.boxes[1:].tolist()
    assert pair.kept.tolist() == [True]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: corrupt(GREY, [], "fog", 1), "for `name`, got 'fog'. Use one of: window_level, "),
        (lambda: corrupt(GREY, [], "noise", 6), "Expected a whole number from 1 to 5 for `strength`, got 6"),
        (lambda: PGD(4), r"Expected a number in \[0, 1\] for `epsilon`, got 4"),
        (lambda: PGD(float("nan")), "for `epsilon`, got nan"),
        (lambda: PGD(0.1, steps=0), "Expected a number from 1 up for `steps`, got 0"),
        (lambda: corrupt(GREY, [], "noise", 0.5), "Expected a whole number from 1 to 5 for `strength`, got 0.5"),
        (lambda: corrupt(GREY, [[1, 2, 3]], "noise", 1), "Expected an array of shape"),
        (lambda: robustness(*[None] * 4, families=("fgsm",)), "for `families`, got 'fgsm'. Use one of: corruptions"),
        (lambda: corrupt(Image.new("I;16", (5, 5)), [], "noise", 1), "an image of 8 bits for `image`, got mode I"),
    ],
)
def test_wrong_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()

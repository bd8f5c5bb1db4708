"""The space check finds real mix-ups of space and order, and is silent about models that are merely poor."""

from __future__ import annotations

import copy
import pickle
import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import grounding_rewards as gr
from grounding_rewards.boxes import ORDERS, SPACES
from grounding_rewards.parsing import RawBoxes, format_boxes, get_box_format, read_boxes
from grounding_rewards.parsing.space_check import SpaceWarning, check_space

SIZES = {
    # a square image, the usual radiograph, and a landscape one that reaches the model much smaller
    "square": {"width": 1400, "height": 1400, "resized_width": 700, "resized_height": 700},
    "tall": {"width": 2021, "height": 2513, "resized_width": 420, "resized_height": 532},
    "wide": {"width": 1500, "height": 900, "resized_width": 644, "resized_height": 392},
}


def declared(space: str, order: str = "xyxy") -> dict[str, str]:
    return {"syntax": "json", "space": space, "order": order}


def truth(rng: np.random.Generator, size: dict[str, int], images: int, *, prior: bool = False) -> list[np.ndarray]:
    """One to five boxes an image, anywhere; or, as an anatomical prior has it, in about the same place on all
    images."""
    images_boxes = []
    for _ in range(images):
        count = int(rng.integers(1, 6))
        side = rng.uniform(0.08, 0.35, (count, 2)) if not prior else 0.3 + rng.normal(0, 0.03, (count, 2))
        corner = rng.uniform(0.02, 0.98 - side) if not prior else rng.normal([0.35, 0.55], 0.03, (count, 2))
        images_boxes.append(np.concatenate([corner, corner + side], axis=1) * sides(size))
    return images_boxes


def sides(size: dict[str, int]) -> np.ndarray:
    return np.array([size["width"], size["height"]] * 2)


def jitter(rng: np.random.Generator, boxes: np.ndarray, amount: float) -> np.ndarray:
    """Noise on every edge, in parts of the box's own side."""
    moved = boxes + rng.normal(0, amount, boxes.shape) * np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    return np.concatenate([np.minimum(moved[:, :2], moved[:, 2:]), np.maximum(moved[:, :2], moved[:, 2:]) + 1], axis=1)


def resize(boxes: np.ndarray, factor: float) -> np.ndarray:
    centre, half = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]) / 2 * factor
    return np.concatenate([centre - half, centre + half], axis=1)


def anywhere(rng: np.random.Generator, size: dict[str, int], count: int) -> np.ndarray:
    return np.sort(rng.uniform(0, 1, (count, 2, 2)), axis=1).reshape(-1, 4) * sides(size)


def read(preds, written: dict[str, str], size: dict[str, int], as_format: dict[str, str]) -> list[RawBoxes]:
    """What a reader of one format makes of answers in another."""
    return [read_boxes(format_boxes(boxes, written, **size), get_box_format(as_format)) for boxes in preds]


def mix_ups(table: str) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    """What the model writes > what is declared; the order is xyxy where none is said."""
    pairs = [[(*side.split(), "xyxy")[:2] for side in one.split(">")] for one in re.split("[;\n]", table.strip())]
    return [(written, as_declared) for written, as_declared in pairs]


MIX_UPS = """
pixel > norm1; norm1 > pixel; norm1000 > norm1; norm1 > norm1000; norm1000 > norm100; norm1000 > resized_pixel
resized_pixel > norm1000; resized_pixel > pixel; pixel > resized_pixel; norm1000 yxyx > norm1000
norm1000 > norm1000 yxyx; norm1000 xywh > norm1000; norm1000 cxcywh > norm1000; norm1000 > norm1000 xywh
pixel xywh > norm1
"""
ALIKE_ON_A_SQUARE = "pad1 > norm1; norm1 > pad1; pad999 > norm999; crop100 > norm100"


@pytest.mark.parametrize(
    ("written", "expected_space", "shapes"),
    [
        *((*one, "square tall wide") for one in mix_ups(MIX_UPS)),
        *((*one, "tall wide") for one in mix_ups(ALIKE_ON_A_SQUARE)),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_a_mix_up_is_found_and_named(written, expected_space, shapes):
    rng = np.random.default_rng(0)
    for shape in shapes.split():
        size = SIZES[shape]
        gt = truth(rng, size, 40)
        raws = read([jitter(rng, boxes, 0.08) for boxes in gt], declared(*written), size, declared(*expected_space))
        check = check_space(raws, declared(*expected_space), gt, **size)
        assert check.likely == written, (shape, check)
        assert check.declared == expected_space
        assert check.likely_iou > check.declared_iou + 0.15
        assert f"{check.declared_iou:.2f}" in check.message
        assert f"{check.likely_iou:.2f}" in check.message


# What is plain on each of a few images.
@pytest.mark.parametrize(
    ("written", "expected_space"),
    mix_ups("pixel > norm1; pixel > norm1000; norm1000 > norm1; norm1000 xywh > norm1"),
)
@pytest.mark.parametrize("with_references", [True, False], ids=["references", "bare"])
def test_a_few_images_show_what_is_plain(written, expected_space, with_references):
    rng, size = np.random.default_rng(6), SIZES["tall"]
    gt = truth(rng, size, 5)
    raws = read([jitter(rng, boxes, 0.03) for boxes in gt], declared(*written), size, declared(*expected_space))
    check = check_space(raws, declared(*expected_space), gt if with_references else None, **size)
    if with_references:
        assert check.likely == written, check
    elif expected_space[0] == "norm1":
        assert check.likely is not None, check
    else:
        # Some pixels of every image are thousandths of it as well.
        assert check.likely is None, check


POOR_MODELS = {
    "right": lambda rng, size, gt: [jitter(rng, boxes, 0.1) for boxes in gt],
    "far off (IoU about 0.1)": lambda rng, size, gt: [jitter(rng, boxes, 0.9) for boxes in gt],
    "random": lambda rng, size, gt: [anywhere(rng, size, int(rng.integers(1, 6))) for _ in gt],
    "the same box": lambda rng, size, gt: [anywhere(rng, size, 1)] * len(gt),
    "nearly the same box": lambda rng, size, gt: [
        jitter(rng, box, 0.1) for box in [anywhere(rng, size, 1)] for _ in gt
    ],
    "the whole image": lambda rng, size, gt: [sides(size)[None] * [0, 0, 1, 1]] * len(gt),
    "too small": lambda rng, size, gt: [resize(boxes, 0.3) for boxes in gt],
    "too large": lambda rng, size, gt: [resize(boxes, 2.5) for boxes in gt],
    "shifted": lambda rng, size, gt: [boxes + 0.02 * sides(size) for boxes in gt],
}


@pytest.mark.untraced
@pytest.mark.parametrize("model", POOR_MODELS)
@pytest.mark.parametrize("with_references", [True, False], ids=["references", "bare"])
def test_a_poor_model_is_no_mix_up(model, with_references):
    rng = np.random.default_rng(1)
    for size in SIZES.values():
        for prior in (False, True):
            for reading in (("norm1000", "xyxy"), ("norm1", "xyxy"), ("resized_pixel", "xyxy"), ("norm1000", "yxyx")):
                for images in (4, 10, 30):
                    gt = truth(rng, size, images, prior=prior)
                    raws = read(POOR_MODELS[model](rng, size, gt), declared(*reading), size, declared(*reading))
                    check = check_space(raws, declared(*reading), gt if with_references else None, **size)
                    assert check.likely is None, check


def turn(rng: np.random.Generator, boxes: np.ndarray, share: float) -> np.ndarray:
    """This share of the boxes with the lower right corner first, or with only the left and the right side swapped."""
    turned = np.where(rng.random((len(boxes), 1)) < 0.7, boxes[:, [2, 3, 0, 1]], boxes[:, [2, 1, 0, 3]])
    return np.where(rng.random((len(boxes), 1)) < share, turned, boxes)


#: A poor model, as poor as it may be, that writes many of its boxes upside down: 162 logs.
UPSIDE_DOWN = [(seed, shape, share) for seed in range(18) for shape in SIZES for share in (0.35, 0.6, 0.9)]


@pytest.mark.untraced
@pytest.mark.parametrize("reading", [("norm1000", "xyxy"), ("norm1", "xyxy"), ("pixel", "xyxy"), ("norm1000", "yxyx")])
def test_boxes_upside_down_are_no_mix_up(reading):
    for seed, shape, share in UPSIDE_DOWN:
        rng, size = np.random.default_rng([11, seed]), SIZES[shape]
        # boxes in the upper left quarter are small enough that corners could be taken for sizes
        part = (0.4, 0.7, 1.0)[seed % 3]
        gt = [boxes * part for boxes in truth(rng, size, (8, 20, 60)[seed // 3 % 3], prior=seed % 2 == 1)]
        noise = (0.1, 0.4, 0.9)[seed // 6]
        raws = read(
            [turn(rng, jitter(rng, boxes, noise), share) for boxes in gt], declared(*reading), size, declared(*reading)
        )
        check = check_space(raws, declared(*reading), gt, **size)
        assert check.likely is None, (seed, shape, share, check)


@pytest.mark.untraced
def test_no_advice_lowers_the_iou():
    """Any model, right and poor, under any declaration, right and wrong: 540 logs."""
    advised = 0
    for seed in range(540):
        rng = np.random.default_rng([12, seed])
        size = SIZES[list(SIZES)[seed % 3]]
        gt = [
            boxes * rng.choice([0.4, 1.0])
            for boxes in truth(rng, size, int(rng.choice([5, 12, 40])), prior=seed % 2 == 1)
        ]
        model = POOR_MODELS[list(POOR_MODELS)[seed // 3 % len(POOR_MODELS)]]
        preds = [turn(rng, boxes, rng.choice([0.0, 0.5, 1.0])) for boxes in model(rng, size, gt)]
        written, as_declared = (
            declared(
                str(rng.choice(["norm1000", "norm1", "pixel", "resized_pixel", "pad1"])), str(rng.choice(list(ORDERS)))
            )
            for _ in range(2)
        )
        check = check_space(read(preds, written, size, as_declared), as_declared, gt, **size)
        if check.likely is not None:
            advised += 1
            assert check.likely_iou > check.declared_iou + 0.02, (seed, check)
    assert advised > 40


def test_numbers_off_the_images_need_no_references():
    rng = np.random.default_rng(2)
    # so large that pixels are beyond every other range
    size = {side: 2 * value for side, value in SIZES["tall"].items()}
    raws = read(truth(rng, size, 30), declared("pixel"), size, declared("norm1"))
    check = check_space(raws, declared("norm1"), **size)
    assert check.likely == ("pixel", "xyxy"), check.message
    assert np.isnan(check.likely_iou)


def test_a_poor_model_beyond_the_range_is_reported():
    rng, size = np.random.default_rng(3), SIZES["tall"]
    gt = truth(rng, size, 40)
    raws = read([anywhere(rng, size, 2) for _ in gt], declared("norm1000"), size, declared("norm1"))
    check = check_space(raws, declared("norm1"), gt, **size)
    assert check.likely == ("norm1000", "xyxy")
    assert check.likely_iou < 0.25


def test_samples_of_one_image_are_one_piece_of_evidence():
    rng, size = np.random.default_rng(4), SIZES["tall"]
    gt = truth(rng, size, 3) * 8
    raws = read(gt, declared("norm1000", "yxyx"), size, declared("norm1000"))
    check = check_space(raws, declared("norm1000"), gt, **size)
    assert check.likely is None
    assert check.images == 3
    assert check.message.startswith("Too little to judge norm1000, order xyxy by: 3 images")


def test_of_equal_conventions_the_most_common_nearest_is_named():
    rng = np.random.default_rng(5)
    # pixels of an image of 1000 a side are thousandths, and resized pixels where nothing is resized are pixels
    size = dict.fromkeys(SIZES["tall"], 1000)
    gt = truth(rng, size, 20)
    for as_declared, likely in [
        (("norm1", "xyxy"), ("norm1000", "xyxy")),
        (("pixel", "yxyx"), ("pixel", "xyxy")),
    ]:
        raws = read(gt, declared("pixel"), size, declared(*as_declared))
        assert check_space(raws, declared(*as_declared), gt, **size).likely == likely


@pytest.mark.parametrize(
    ("box_format", "written", "suggestion"),
    [
        # another family of the same syntax, by its name
        ("qwen3-vl", declared("resized_pixel"), "qwen2.5-vl"),
        ("qwen2.5-vl", declared("norm1000"), "qwen3-vl"),
        ("qwen3-vl", declared("norm1000", "yxyx"), "gemini"),
        ("qwen3-vl", declared("norm1"), '{"syntax": "qwen3-vl", "space": "norm1", "order": "xyxy"}'),
        # a format of the user's own keeps what is right about it
        (
            {"syntax": "json", "keys": ["bbox_2d"], "scope": "all", "space": "norm1", "no_finding": ["Nil"]},
            declared("norm100"),
            '{"syntax": "json", "space": "norm100", "keys": ["bbox_2d"], "scope": "all", "no_finding": ["Nil"], '
            '"order": "xyxy"}',
        ),
    ],
)
def test_the_message_says_what_to_declare(box_format, written, suggestion):
    rng, size = np.random.default_rng(6), SIZES["tall"]
    gt = truth(rng, size, 20)
    raws = read(gt, written, size, box_format)
    check = check_space(raws, box_format, gt, **size)
    assert check.message.endswith(f"declare `box_format: {suggestion}`.")
    yaml = pytest.importorskip("yaml")
    named = get_box_format(yaml.safe_load(suggestion))
    assert (named.space.name, named.order) == check.likely


@pytest.mark.parametrize("order", ["xyxy", "yxyx", "xywh", "cxcywh"])
@pytest.mark.parametrize("space", SPACES)
def test_the_right_declaration_is_never_doubted(space, order):
    rng = np.random.default_rng(7)
    for size in SIZES.values():
        gt = truth(rng, size, 12)
        raws = read(gt, declared(space, order), size, declared(space, order))
        check = check_space(raws, declared(space, order), gt, **size)
        assert check.likely is None
        assert check.declared_iou > 0.8
        assert check_space(raws, declared(space, order), **size).likely is None


def test_images_of_unknown_size_are_left_out_beside_others():
    rng, size = np.random.default_rng(8), SIZES["tall"]
    gt = truth(rng, size, 30)
    raws = read(gt, declared("norm1000", "yxyx"), size, declared("norm1000"))
    width = [size["width"] if k % 2 else None for k in range(30)]
    check = check_space(raws, declared("norm1000"), gt, width=width, height=size["height"])
    assert (check.images, check.likely) == (15, ("norm1000", "yxyx"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"boxes": [[]]}, r"Expected one list of reference boxes per completion \(2\) for `boxes`, got 1\."),
        ({"width": "wide", "height": 1}, r"Expected a number, or 2 of them, for `width`, got 'wide'\."),
        ({"width": [1, 2, 3], "height": 1}, r"for `width`, got \[1, 2, 3\]\."),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    raw = read_boxes("[]", get_box_format("qwen3-vl"))
    with pytest.raises(ValueError, match=message):
        check_space([raw, raw], "qwen3-vl", **arguments)


_coordinate = st.floats(-1e9, 1e9) | st.sampled_from([0.0, 1.0, 500.0, 1000.0])
_raw = st.lists(_coordinate, min_size=4, max_size=20).map(
    lambda numbers: RawBoxes(
        numbers[: len(numbers) // 4 * 4], [None] * (len(numbers) // 4), [None] * (len(numbers) // 4), "boxes", {}
    )
)


@settings(max_examples=20)
@given(
    st.lists(_raw, max_size=14),
    st.sampled_from(sorted(SPACES)),
    st.sampled_from(["xyxy", "yxyx", "xywh", "cxcywh"]),
    st.booleans(),
)
def test_no_numbers_raise_or_warn(raws, space, order, referenced):
    gt = [[[k, k, k + 50.0, k + 60.0]] for k in range(len(raws))] if referenced else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check = check_space(raws, declared(space, order), gt, width=200, height=100)
    assert check.message


class TestReward:
    """The callable that TRL takes warns once, and is otherwise what it was."""

    def batch(self, images: int, *, seed: int = 0, written=("norm1000", "yxyx"), generations: int = 1):
        rng, size = np.random.default_rng(seed), SIZES["tall"]
        gt = [boxes for boxes in truth(rng, size, images) for _ in range(generations)]
        texts = [format_boxes(jitter(rng, boxes, 0.05), declared(*written), **size) for boxes in gt]
        columns = {side: [value] * len(gt) for side, value in size.items()}
        return texts, {"boxes": [boxes.tolist() for boxes in gt], **columns}

    def warned(self, reward, texts, columns) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            reward(texts, **columns)
        return [str(warning.message) for warning in caught if issubclass(warning.category, SpaceWarning)]

    def test_it_warns_once_with_the_right_declaration(self):
        reward = gr.get_reward("R4", box_format="qwen3-vl")
        assert self.warned(reward, *self.batch(3)) == []
        (message,) = self.warned(reward, *self.batch(6, seed=1))
        assert message.startswith("R4: Expected boxes in norm1000, order xyxy")
        assert "`box_format: gemini`" in message
        assert self.warned(reward, *self.batch(40, seed=2)) == []

    def test_it_says_nothing_about_the_right_declaration(self):
        reward = gr.get_reward("R4", box_format="gemini")
        for seed in range(4):
            assert self.warned(reward, *self.batch(100, seed=seed)) == []
        assert not reward._watcher.wants_boxes([get_box_format("gemini")])

    def test_every_format_of_a_mixed_dataset_is_watched(self):
        texts, columns = self.batch(40)
        columns["box_format"] = ["qwen3-vl" if k % 2 else "gemini" for k in range(40)]
        (message,) = self.warned(gr.get_reward("R4"), texts, columns)
        assert "over 20 images" in message

    def test_generations_of_few_images_are_no_evidence(self):
        assert self.warned(gr.get_reward("R4", box_format="qwen3-vl"), *self.batch(3, generations=16)) == []

    def test_a_small_dataset_is_not_watched_for_ever(self):
        reward = gr.get_reward("R4", box_format="gemini")
        texts, columns = self.batch(64, generations=16)
        for _ in range(4):
            self.warned(reward, texts, columns)
        assert not reward._watcher.wants_boxes([get_box_format("gemini")])

    def test_sizes_that_the_format_does_not_need_may_be_anything(self):
        texts, columns = self.batch(20, written=("pixel", "xyxy"))
        columns |= {"width": ["wide"] * 20, "height": [None] * 20}
        pixels = {"syntax": "json", "space": "pixel", "order": "xyxy"}
        assert self.warned(gr.get_reward("R4", box_format=pixels), texts, columns) == []

    def test_watching_changes_neither_equality_nor_copies(self):
        reward, other = (gr.get_reward("R4", box_format="qwen3-vl") for _ in range(2))
        assert len(self.warned(reward, *self.batch(20))) == 1
        assert reward == other
        assert hash(reward) == hash(other)
        assert repr(reward) == repr(other)
        for fresh in (pickle.loads(pickle.dumps(reward)), copy.deepcopy(reward)):
            assert fresh == reward
            assert len(self.warned(fresh, *self.batch(20))) == 1
        # what a reward has seen does not travel with it
        assert len(pickle.dumps(reward)) == len(pickle.dumps(other))


def test_what_hardly_matters_is_not_reported():
    """Bins of 1024 read as thousandths cost a good model a little IoU, and that in every image."""
    rng, size = np.random.default_rng(10), SIZES["tall"]
    gt = [resize(boxes, 1.5) for boxes in truth(rng, size, 40)]
    raws = read(gt, declared("bin1024"), size, declared("norm1000"))
    check = check_space(raws, declared("norm1000"), gt, **size)
    assert check.likely is None
    assert 0.8 < check.declared_iou < 0.95


def test_one_box_for_all_images_shows_no_range():
    """An untrained model that always writes the whole image as thousandths, whatever it is asked for."""
    whole = read_boxes('[{"bbox_2d": [0, 0, 1000, 1000]}]', get_box_format(declared("norm1")))
    assert check_space([whole] * 40, declared("norm1"), width=900, height=700).likely is None

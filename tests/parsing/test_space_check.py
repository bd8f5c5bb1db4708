"""The space check finds real mix-ups of space and order, and is silent about models that are merely poor."""

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
from grounding_rewards.columns import image_sizes
from grounding_rewards.parsing import RawBoxes, format_boxes, get_box_format, read_boxes
from grounding_rewards.parsing.space_check import SpaceCheck, SpaceWarning, check_space
from tests.tables import table

SIZES = {
    # a square image, the usual radiograph, and a landscape one that reaches the model much smaller
    "square": {"width": 1400, "height": 1400, "resized_width": 700, "resized_height": 700},
    "tall": {"width": 2021, "height": 2513, "resized_width": 420, "resized_height": 532},
    "wide": {"width": 1500, "height": 900, "resized_width": 644, "resized_height": 392},
}
TALL = SIZES["tall"]


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


def checked(preds, written, read_as, gt, size) -> SpaceCheck:
    """The check of answers in one format that are read in another."""
    fmt = get_box_format(read_as)
    raws = [read_boxes(format_boxes(boxes, written, **size), fmt) for boxes in preds]
    sizes = image_sizes({side: [value] * len(gt) for side, value in size.items()}, len(gt))
    return check_space(raws, fmt, gt, sizes)


def mix_ups(table: str) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    """What the model writes > what is declared; the order is xyxy where none is said."""
    return [tuple((*side.split(), "xyxy")[:2] for side in pair.split(">")) for pair in re.split("[;\n]", table.strip())]


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
        *((*pair, "square tall wide") for pair in mix_ups(MIX_UPS)),
        *((*pair, "tall wide") for pair in mix_ups(ALIKE_ON_A_SQUARE)),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_a_mix_up_is_found_and_named(written, expected_space, shapes):
    rng = np.random.default_rng(0)
    for shape in shapes.split():
        gt = truth(rng, SIZES[shape], 40)
        preds = [jitter(rng, boxes, 0.08) for boxes in gt]
        check = checked(preds, declared(*written), declared(*expected_space), gt, SIZES[shape])
        assert (check.likely, check.declared) == (written, expected_space), shape
        assert check.likely_iou > check.declared_iou + 0.15
        assert f"{check.declared_iou:.2f}, and would be {check.likely_iou:.2f}" in check.message


@pytest.mark.parametrize(
    ("written", "expected_space"), mix_ups("pixel > norm1; pixel > norm1000; norm1000 > norm1; norm1000 xywh > norm1")
)
def test_a_few_images_show_what_is_plain(written, expected_space):
    rng = np.random.default_rng(6)
    gt = truth(rng, TALL, 5)
    preds = [jitter(rng, boxes, 0.03) for boxes in gt]
    assert checked(preds, declared(*written), declared(*expected_space), gt, TALL).likely == written


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
def test_a_poor_model_is_no_mix_up(model):
    rng = np.random.default_rng(1)
    for size in SIZES.values():
        for prior in (False, True):
            for reading in (("norm1000", "xyxy"), ("norm1", "xyxy"), ("resized_pixel", "xyxy"), ("norm1000", "yxyx")):
                for images in (4, 10, 30):
                    gt = truth(rng, size, images, prior=prior)
                    preds = POOR_MODELS[model](rng, size, gt)
                    assert checked(preds, declared(*reading), declared(*reading), gt, size).likely is None


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
        preds = [turn(rng, jitter(rng, boxes, (0.1, 0.4, 0.9)[seed // 6]), share) for boxes in gt]
        check = checked(preds, declared(*reading), declared(*reading), gt, size)
        assert check.likely is None, (seed, shape, share, check)


@pytest.mark.untraced
def test_no_advice_lowers_the_iou():
    """Any model, right and poor, under any declaration, right and wrong: 540 logs."""
    advised = 0
    for seed in range(540):
        rng = np.random.default_rng([12, seed])
        size = SIZES[list(SIZES)[seed % 3]]
        whole = truth(rng, size, int(rng.choice([5, 12, 40])), prior=seed % 2 == 1)
        gt = [boxes * rng.choice([0.4, 1.0]) for boxes in whole]
        model = POOR_MODELS[list(POOR_MODELS)[seed // 3 % len(POOR_MODELS)]]
        preds = [turn(rng, boxes, rng.choice([0.0, 0.5, 1.0])) for boxes in model(rng, size, gt)]
        spaces = ["norm1000", "norm1", "pixel", "resized_pixel", "pad1"]
        written, read_as = (declared(str(rng.choice(spaces)), str(rng.choice(list(ORDERS)))) for _ in range(2))
        check = checked(preds, written, read_as, gt, size)
        if check.likely is not None:
            advised += 1
            assert check.likely_iou > check.declared_iou + 0.02, (seed, check)
    assert advised > 30


def test_samples_of_one_image_are_one_piece_of_evidence():
    gt = truth(np.random.default_rng(4), TALL, 3) * 8
    check = checked(gt, declared("norm1000", "yxyx"), declared("norm1000"), gt, TALL)
    assert (check.likely, check.images) == (None, 3)
    assert check.message.startswith("Too little to judge norm1000, order xyxy by: 3 images")


def test_of_equal_conventions_the_most_common_nearest_is_named():
    # pixels of an image of 1000 a side are thousandths, and resized pixels where nothing is resized are pixels
    size = dict.fromkeys(TALL, 1000)
    gt = truth(np.random.default_rng(5), size, 20)
    for read_as, likely in [(("norm1", "xyxy"), ("norm1000", "xyxy")), (("pixel", "yxyx"), ("pixel", "xyxy"))]:
        assert checked(gt, declared("pixel"), declared(*read_as), gt, size).likely == likely


@pytest.mark.parametrize(("box_format", "written", "suggestion"), table("parsing/format_cases", "suggestions"))
def test_the_message_says_what_to_declare(box_format, written, suggestion):
    gt = truth(np.random.default_rng(6), TALL, 20)
    check = checked(gt, written, box_format, gt, TALL)
    assert check.message.endswith(f"declare `box_format: {suggestion}`.")
    fmt = get_box_format(pytest.importorskip("yaml").safe_load(suggestion))
    assert (fmt.space.name, fmt.order) == check.likely


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("space", SPACES)
def test_the_right_declaration_is_never_doubted(space, order):
    rng = np.random.default_rng(7)
    for size in SIZES.values():
        gt = truth(rng, size, 12)
        check = checked(gt, declared(space, order), declared(space, order), gt, size)
        assert (check.likely, check.declared_iou > 0.8) == (None, True)


def test_images_without_a_size_or_references_are_left_out():
    gt = truth(np.random.default_rng(8), TALL, 40)
    fmt = get_box_format("qwen3-vl")
    raws = [read_boxes(format_boxes(boxes, declared("norm1000", "yxyx"), **TALL), fmt) for boxes in gt]
    width = [TALL["width"] if k % 2 else None for k in range(30)] + [TALL["width"]] * 10
    sizes = image_sizes({"width": width, "height": [TALL["height"]] * 40}, 40)
    check = check_space(raws, fmt, [*gt[:30], *[[]] * 10], sizes)
    assert (check.images, check.likely) == (15, ("norm1000", "yxyx"))
    assert check_space(raws, fmt, [[]] * 40, sizes).message.startswith("Too little to judge")


def raw_boxes(numbers: list[float]) -> RawBoxes:
    count = len(numbers) // 4
    return RawBoxes(numbers[: 4 * count], [None] * count, [None] * count, "boxes", {})


_coordinate = st.floats(-1e9, 1e9) | st.sampled_from([0.0, 1.0, 500.0, 1000.0])


@settings(max_examples=20)
@given(
    st.lists(st.lists(_coordinate, min_size=4, max_size=20).map(raw_boxes), max_size=14),
    st.sampled_from(sorted(SPACES)),
    st.sampled_from(list(ORDERS)),
)
def test_no_numbers_raise_or_warn(raws, space, order):
    gt = [[[k, k, k + 50.0, k + 60.0]] for k in range(len(raws))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fmt = get_box_format(declared(space, order))
        assert check_space(raws, fmt, gt, np.array([[200, 100, np.nan, np.nan]] * len(raws)).reshape(-1, 4)).message


def batch(images: int, *, seed: int = 0, written=("norm1000", "yxyx"), generations: int = 1):
    rng = np.random.default_rng(seed)
    gt = [boxes for boxes in truth(rng, TALL, images) for _ in range(generations)]
    texts = [format_boxes(jitter(rng, boxes, 0.05), declared(*written), **TALL) for boxes in gt]
    columns = {side: [value] * len(gt) for side, value in TALL.items()}
    return texts, {"boxes": [boxes.tolist() for boxes in gt], **columns}


def warned(reward, texts, columns) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reward(texts, **columns)
    return [str(warning.message) for warning in caught if issubclass(warning.category, SpaceWarning)]


def test_a_reward_warns_once_with_the_right_declaration():
    reward = gr.get_reward("R4", box_format="qwen3-vl")
    assert warned(reward, *batch(3)) == []
    (message,) = warned(reward, *batch(6, seed=1))
    assert message.startswith("R4: Expected boxes in norm1000, order xyxy")
    assert "`box_format: gemini`" in message
    assert warned(reward, *batch(40, seed=2)) == []


@pytest.mark.parametrize(("batches", "sizes"), table("parsing/cases", "the_right_declaration_is_watched_for_a_while"))
def test_the_right_declaration_is_watched_for_a_while(batches, sizes):
    reward = gr.get_reward("R4", box_format="gemini")
    for seed in range(batches):
        seed = 0 if "generations" in sizes else seed
        assert warned(reward, *batch(seed=seed, **sizes)) == []
    assert not reward._watcher.wants_boxes([get_box_format("gemini")])


def test_every_format_of_a_mixed_dataset_is_watched():
    texts, columns = batch(40)
    columns["box_format"] = ["qwen3-vl" if k % 2 else "gemini" for k in range(40)]
    (message,) = warned(gr.get_reward("R4"), texts, columns)
    assert "over 20 images" in message


def test_sizes_that_the_format_does_not_need_may_be_missing():
    texts, columns = batch(20, written=("pixel", "xyxy"))
    columns |= {"width": [None] * 20, "height": [None] * 20}
    assert warned(gr.get_reward("R4", box_format=declared("pixel")), texts, columns) == []


def test_watching_changes_neither_equality_nor_copies():
    reward, other = (gr.get_reward("R4", box_format="qwen3-vl") for _ in range(2))
    assert len(warned(reward, *batch(20))) == 1
    assert (reward, hash(reward), repr(reward)) == (other, hash(other), repr(other))
    for fresh in (pickle.loads(pickle.dumps(reward)), copy.deepcopy(reward)):
        assert fresh == reward
        assert len(warned(fresh, *batch(20))) == 1
    # what a reward has seen does not travel with it
    assert len(pickle.dumps(reward)) == len(pickle.dumps(other))


def test_what_hardly_matters_is_not_reported():
    """Bins of 1024 read as thousandths cost a good model a little IoU, and that in every image."""
    gt = [resize(boxes, 1.5) for boxes in truth(np.random.default_rng(10), TALL, 40)]
    check = checked(gt, declared("bin1024"), declared("norm1000"), gt, TALL)
    assert check.likely is None
    assert 0.8 < check.declared_iou < 0.95

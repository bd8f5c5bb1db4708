"""Resized sizes against the image processors themselves."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2VLConfig,
    Qwen2VLImageProcessor,
    Qwen2VLImageProcessorPil,
    Qwen3VLConfig,
)
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

from grounding_rewards.data.resize import has_resized_size, resized_size

pytestmark = pytest.mark.training

SIDES = (1, 2, 13, 14, 27, 28, 29, 41, 42, 43, 55, 56, 70, 97, 112, 113, 199)
SETTINGS = [
    {"min_pixels": 56 * 56, "max_pixels": 1280 * 28 * 28},  # class default
    {"min_pixels": 4 * 28 * 28, "max_pixels": 16 * 28 * 28},  # both limits reached within the grid
    {
        "min_pixels": 1,
        "max_pixels": 28 * 28,
    },  # one merged patch at most, where a side is clamped to the factor
    {"min_pixels": 65 * 65, "max_pixels": 100 * 100, "patch_size": 16},  # Qwen3-VL's factor of 32
    {
        "min_pixels": 40,
        "max_pixels": 5000,
        "patch_size": 5,
        "merge_size": 3,
    },  # an odd factor, halves round to even
]


class Wrapper:
    """What a full processor looks like from outside."""

    def __init__(self, image_processor):
        self.image_processor = image_processor


def fed_size(image_processor, width, height):
    """The size in which a film of zeros leaves the processor."""
    film = Image.fromarray(np.zeros((height, width), dtype=np.uint8))
    _, rows, columns = image_processor(images=film, return_tensors="pt")["image_grid_thw"][0].tolist()
    return columns * image_processor.patch_size, rows * image_processor.patch_size


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("kind", [Qwen2VLImageProcessor, Qwen2VLImageProcessorPil])
def test_agrees_with_the_processor(kind, settings):
    image_processor = kind(**settings)
    for width, height in itertools.product(SIDES, SIDES):
        expected = fed_size(image_processor, width, height)
        assert resized_size(image_processor, width, height) == expected, (width, height)


@pytest.mark.parametrize(
    ("config", "patch_size"),
    [(Qwen2VLConfig, 14), (Qwen2_5_VLConfig, 14), (Qwen3VLConfig, 16)],
)
def test_agrees_with_every_processor_of_the_model(config, patch_size):
    for kind in IMAGE_PROCESSOR_MAPPING[config].values():
        image_processor = kind(min_pixels=56 * 56, max_pixels=300 * 300, patch_size=patch_size)
        # near square, thin as the processor allows both ways, above and below the limits of area
        for width, height in [(333, 299), (1, 200), (200, 1), (7, 1400), (1203, 11), (611, 487), (31, 17)]:
            assert resized_size(image_processor, width, height) == fed_size(image_processor, width, height)


@given(
    st.tuples(st.integers(1, 60_000), st.integers(1, 60_000)).filter(lambda size: max(size) <= 200 * min(size)),
    st.sampled_from([(14, 2), (16, 2), (7, 3), (1, 1)]),
    st.integers(1, 10**6),
    st.integers(1, 10**8),
)
def test_agrees_with_the_rule_of_the_processor_on_films_of_any_size(size, patch_and_merge, min_pixels, more_pixels):
    patch_size, merge_size = patch_and_merge
    max_pixels = min_pixels + more_pixels
    image_processor = Qwen2VLImageProcessorPil(
        patch_size=patch_size, merge_size=merge_size, min_pixels=min_pixels, max_pixels=max_pixels
    )
    width, height = size
    expected = smart_resize(height, width, patch_size * merge_size, min_pixels, max_pixels)
    assert resized_size(image_processor, width, height) == expected[::-1]


@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [
        # Sizes that users of Qwen2.5-VL reported (QwenLM/Qwen3-VL#1035), at most 16384 tokens
        (368, 434, (364, 448)),
        (1014, 1532, (1008, 1540)),
        (2544, 3056, (2548, 3052)),
    ],
)
def test_published_sizes(width, height, expected):
    image_processor = Qwen2VLImageProcessor(min_pixels=4 * 28 * 28, max_pixels=16384 * 28 * 28)
    assert resized_size(Wrapper(image_processor), width, height) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # One radiograph of 2544×3056 under the settings that users of Qwen2.5-VL train with
        ({}, (896, 1092)),
        ({"max_pixels": 262144}, (448, 560)),
        ({"size": {"shortest_edge": 56 * 56, "longest_edge": 262144}}, (448, 560)),
        ({"min_pixels": 4 * 28 * 28, "max_pixels": 16384 * 28 * 28}, (2548, 3052)),
        # Qwen3-VL: patches of 16
        ({"size": {"shortest_edge": 65536, "longest_edge": 16777216}, "patch_size": 16}, (2560, 3072)),
    ],
)
def test_limits_follow_the_processor(settings, expected):
    assert resized_size(Qwen2VLImageProcessor(**settings), 2544, 3056) == expected


def test_no_resize():
    assert resized_size(Qwen2VLImageProcessor(do_resize=False), 56, 84) == (56, 84)


@pytest.mark.parametrize(
    ("width", "height", "message"),
    [
        (0, 10, "at least one pixel"),
        (2, 401, "ratio of 200"),  # 200.5: the processor itself raises
        (1203, 6, "ratio of 200"),
    ],
)
def test_refused_sizes(width, height, message):
    with pytest.raises(ValueError, match=message):
        resized_size(Qwen2VLImageProcessor(), width, height)


@pytest.mark.parametrize(("width", "height"), [(2, 401), (1203, 6)])
def test_what_is_refused_the_processor_refuses(width, height):
    with pytest.raises(ValueError, match="aspect ratio"):
        fed_size(Qwen2VLImageProcessor(), width, height)


def test_the_fast_processor_of_earlier_transformers_is_known():
    fast = type("Qwen2VLImageProcessorFast", (Qwen2VLImageProcessor,), {})
    assert has_resized_size(Wrapper(fast()))


def test_unknown_processor():
    assert not has_resized_size(Wrapper("a tokenizer"))
    with pytest.raises(ValueError, match="resized_width and resized_height columns"):
        resized_size(Wrapper("a tokenizer"), 100, 100)

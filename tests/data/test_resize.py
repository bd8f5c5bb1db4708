"""Resized sizes against the image processors themselves."""

import itertools

import numpy as np
import pytest
from PIL import Image
from transformers import Qwen2VLImageProcessor, Qwen2VLImageProcessorPil

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


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("kind", [Qwen2VLImageProcessor, Qwen2VLImageProcessorPil])
def test_agrees_with_the_processor(kind, settings):
    image_processor = kind(**settings)
    for width, height in itertools.product(SIDES, SIDES):
        film = Image.fromarray(np.zeros((height, width), dtype=np.uint8))
        _, rows, columns = image_processor(images=film, return_tensors="pt")["image_grid_thw"][0].tolist()
        expected = columns * image_processor.patch_size, rows * image_processor.patch_size
        assert resized_size(image_processor, width, height) == expected, (width, height)


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


def test_limits_follow_the_processor():
    assert resized_size(Qwen2VLImageProcessor(max_pixels=262144), 2544, 3056) == (448, 560)


def test_no_resize():
    assert resized_size(Qwen2VLImageProcessor(do_resize=False), 56, 84) == (56, 84)


@pytest.mark.parametrize(
    ("width", "height", "message"),
    [
        (0, 10, "at least one pixel"),
        (2, 401, "ratio of 200"),  # 200.5: the processor itself raises
    ],
)
def test_refused_sizes(width, height, message):
    with pytest.raises(ValueError, match=message):
        resized_size(Qwen2VLImageProcessor(), width, height)


def test_unknown_processor():
    assert not has_resized_size(Wrapper("a tokenizer"))
    with pytest.raises(ValueError, match="resized_width and resized_height columns"):
        resized_size(Wrapper("a tokenizer"), 100, 100)

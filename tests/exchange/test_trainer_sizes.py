"""Sizes as other trainers resize, against what their sources do to an image, written down again with PIL."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image
from transformers import Qwen2VLImageProcessorPil

from grounding_rewards.exchange.trainer_tables import (
    ITS_OWN,
    TABLES,
    PixelLimits,
    easyr1_size,
    qwen_vl_utils_size,
    trainer_limits,
    trainer_size,
)

pytestmark = pytest.mark.training


def resized_by_easyr1(image, limits):
    """What EasyR1 at 46c6c21 does, in its order: shrink, then enlarge, each side cut to whole pixels."""
    if limits.most is not None and image.width * image.height > limits.most:
        by = math.sqrt(limits.most / (image.width * image.height))
        image = image.resize((int(image.width * by), int(image.height * by)))
    if limits.least is not None and image.width * image.height < limits.least:
        by = math.sqrt(limits.least / (image.width * image.height))
        image = image.resize((int(image.width * by), int(image.height * by)))
    return image


# By hand, and by qwen-vl-utils 0.0.14 itself in an environment of its own: width, height, factor, limits, result.
BY_QWEN_VL_UTILS = [
    (2544, 3056, 28, ITS_OWN, (2548, 3052)),  # within 4 and 16384 tokens: whole tokens alone
    (2544, 3056, 28, PixelLimits(most=1280 * 28 * 28), (896, 1092)),
    (2544, 3056, 32, PixelLimits(most=1280 * 32 * 32), (1024, 1248)),
    (40, 40, 28, ITS_OWN, (56, 56)),  # 28 x 28 is one token, so that it grows to four
    (10, 300, 28, ITS_OWN, (28, 308)),  # a side that rounds to nothing is one token
    (42, 42, 28, PixelLimits(least=1), (56, 56)),  # 1.5 rounds to the even 2
    (70, 70, 28, PixelLimits(least=1), (56, 56)),  # 2.5 too
]


@pytest.mark.parametrize(("width", "height", "factor", "limits", "result"), BY_QWEN_VL_UTILS)
def test_qwen_vl_utils(width, height, factor, limits, result):
    assert qwen_vl_utils_size(width, height, factor, limits) == result


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 30_000), st.integers(1, 30_000))
def test_easyr1_by_its_own_images(width, height, least, most):
    limits = PixelLimits(min(least, most), max(least, most))
    try:
        expected = resized_by_easyr1(Image.new("L", (width, height)), limits).size
    except (ValueError, ZeroDivisionError):
        expected = (0, 0)
    if not all(expected):
        with pytest.raises(ValueError, match="no pixel is left"):
            easyr1_size(width, height, limits)
        return
    assert easyr1_size(width, height, limits) == expected


@given(st.integers(20, 500), st.integers(20, 500), st.sampled_from([ITS_OWN, PixelLimits(3136, 60_000)]))
def test_the_processor_has_the_last_word(width, height, limits):
    """What the processor itself makes of the image that each trainer hands it."""
    assume(max(width, height) < 20 * min(width, height))
    processor = Qwen2VLImageProcessorPil(min_pixels=56 * 56, max_pixels=100 * 28 * 28)
    annotated = Image.fromarray(np.zeros((height, width), dtype=np.uint8)).convert("RGB")
    fed = {
        "verl": annotated.resize(qwen_vl_utils_size(width, height, 28, limits)),
        "easyr1": resized_by_easyr1(annotated, trainer_limits("easyr1", limits)),
        "openrlhf": annotated,
    }
    for trainer, image in fed.items():
        _, rows, columns = processor(images=[image], return_tensors="np")["image_grid_thw"][0]
        given_limits = ITS_OWN if trainer == "openrlhf" else limits
        found = trainer_size(trainer, processor, width, height, given_limits)
        assert found == (columns * 14, rows * 14), trainer
    # ms-swift tells the processor not to resize, and counts in whole tokens.
    whole = PixelLimits(*(limit and limit // 784 * 784 for limit in (limits.least, limits.most)))
    assert trainer_size("ms-swift", processor, width, height, limits) == qwen_vl_utils_size(width, height, 28, whole)


WRONG = [
    (lambda: PixelLimits(0), "at least 1 for --min-pixels, got 0"),
    (lambda: PixelLimits(9, 4), "--min-pixels up to --max-pixels, 4, got 9"),
    (lambda: trainer_limits("openrlhf", PixelLimits(most=1)), "neither --min-pixels nor --max-pixels for openrlhf"),
    (lambda: qwen_vl_utils_size(10, 10, 28, PixelLimits(most=9)), "at least 3136 for --max-pixels"),
    (lambda: qwen_vl_utils_size(1, 999, 28, ITS_OWN), "ratio of 200, got 1 x 999"),
    # 28 x 5600 would be 200 tokens; for 4 of them the narrow side keeps less than one
    (lambda: qwen_vl_utils_size(28, 5600, 28, PixelLimits(most=4 * 784)), "too narrow"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_limits_of_a_trainer():
    assert trainer_limits("easyr1", ITS_OWN) == PixelLimits(262_144, 4_194_304)  # examples/config.yaml
    # Its smallest area is above the largest that was asked for.
    assert trainer_limits("easyr1", PixelLimits(most=100_000)) == PixelLimits(100_000, 100_000)
    assert [trainer_limits(trainer, ITS_OWN) for trainer in TABLES if trainer != "easyr1"] == [ITS_OWN] * 3

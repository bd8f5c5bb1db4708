"""Resized sizes against the image processors themselves."""

import itertools

import numpy as np
import pytest
from datasets import Dataset
from datasets import Image as ImageColumn
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from transformers import (
    CLIPImageProcessor,
    Qwen2_5_VLConfig,
    Qwen2VLConfig,
    Qwen2VLImageProcessor,
    Qwen2VLImageProcessorPil,
    Qwen3VLConfig,
)
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

from grounding_rewards.images.resize import (
    fit_images,
    fitted_size,
    has_resized_size,
    image_pixel_limit,
    largest_image,
    limit_image_pixels,
    resized_size,
)

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
    """The size in which an image of zeros leaves the processor."""
    image = Image.fromarray(np.zeros((height, width), dtype=np.uint8))
    _, rows, columns = image_processor(images=image, return_tensors="pt")["image_grid_thw"][0].tolist()
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
def test_agrees_with_the_rule_of_the_processor_on_images_of_any_size(size, patch_and_merge, min_pixels, more_pixels):
    patch_size, merge_size = patch_and_merge
    max_pixels = min_pixels + more_pixels
    image_processor = Qwen2VLImageProcessorPil(
        patch_size=patch_size, merge_size=merge_size, min_pixels=min_pixels, max_pixels=max_pixels
    )
    width, height = size
    expected = smart_resize(height, width, patch_size * merge_size, min_pixels, max_pixels)
    assert resized_size(image_processor, width, height) == expected[::-1]


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


@pytest.mark.parametrize(("width", "height"), [(2, 401), (1203, 6)])  # ratios of 200.5: the processor itself raises
def test_refused_sizes(width, height):
    with pytest.raises(ValueError, match="ratio of 200"):
        resized_size(Qwen2VLImageProcessor(), width, height)
    with pytest.raises(ValueError, match="aspect ratio"):
        fed_size(Qwen2VLImageProcessor(), width, height)
    with pytest.raises(ValueError, match="at least one pixel"):
        resized_size(Qwen2VLImageProcessor(), 0, height)


def test_the_fast_processor_of_earlier_transformers_is_known():
    fast = type("Qwen2VLImageProcessorFast", (Qwen2VLImageProcessor,), {})
    assert has_resized_size(Wrapper(fast()))


class TestLimit:
    def test_of_a_processor_of_the_qwen_kind_is_its_own_limit(self):
        processor, other = Qwen2VLImageProcessor(), Qwen2VLImageProcessor()
        limit_image_pixels(processor, 262144)
        assert image_pixel_limit(processor) == 262144
        assert resized_size(processor, 2544, 3056) == (448, 560)  # as in test_limits_follow_the_processor
        # Processors share what their class says.
        assert resized_size(other, 2544, 3056) == (896, 1092)
        assert image_pixel_limit(other) is None

    @pytest.mark.parametrize("kind", [Qwen2VLImageProcessor, Qwen2VLImageProcessorPil, CLIPImageProcessor])
    def test_is_saved_and_loaded(self, kind, tmp_path):
        processor = kind()
        limit_image_pixels(processor, 50176)
        processor.save_pretrained(tmp_path)
        assert image_pixel_limit(kind.from_pretrained(tmp_path)) == 50176

    def test_below_the_smallest_area_of_the_processor(self):
        processor = Qwen2VLImageProcessor(min_pixels=100 * 100)
        limit_image_pixels(processor, 2000)
        width, height = resized_size(processor, 500, 400)
        assert (width, height) == fed_size(processor, 500, 400)
        assert width * height <= 2000

    @pytest.mark.parametrize("pixels", [0, 783])
    def test_below_one_token(self, pixels):
        with pytest.raises(ValueError, match=f"Expected at least 784 for max_image_pixels, .* got {pixels}"):
            limit_image_pixels(Qwen2VLImageProcessor(), pixels)

    def test_without_an_image_processor(self):
        with pytest.raises(ValueError, match="Expected a processor of images for max_image_pixels, got str"):
            limit_image_pixels("a tokenizer", 50176)

    @given(
        st.tuples(st.integers(1, 6000), st.integers(1, 6000)).filter(lambda size: max(size) <= 200 * min(size)),
        st.integers(784, 3_000_000),
    )
    def test_a_fitted_image_is_seen_as_the_image_itself(self, size, pixels):
        """Shrinking before the processor changes nothing about the size that the model sees."""
        processor = Qwen2VLImageProcessorPil()
        limit_image_pixels(processor, pixels)
        assert resized_size(processor, *fitted_size(processor, *size)) == resized_size(processor, *size)


class TestFit:
    def images(self, *sizes):
        images = [None if size is None else Image.new("L", size) for size in sizes]
        column = Dataset.from_dict({"image": images}).cast_column("image", ImageColumn())
        return column.add_column("id", list(map(str, range(len(sizes)))))

    def test_large_images_become_what_the_model_sees(self):
        processor = Qwen2VLImageProcessor()
        limit_image_pixels(processor, 262144)
        fitted = fit_images(self.images((2544, 3056), (300, 200), None), processor)
        assert [image and image.size for image in fitted["image"]] == [(448, 560), (300, 200), None]
        assert fitted["id"][:] == ["0", "1", "2"]

    def test_of_other_processors_they_keep_their_shape(self):
        processor = CLIPImageProcessor()
        limit_image_pixels(processor, 20000)
        (image,) = fit_images(self.images((2000, 1000)), processor)["image"]
        assert image.size == (200, 100)

    def test_without_a_limit_nothing_is_done(self):
        images = self.images((2544, 3056))
        assert fit_images(images, Qwen2VLImageProcessor()) is images

    def test_small_images_are_not_written_anew(self):
        processor, images = Qwen2VLImageProcessor(), self.images((300, 200))
        limit_image_pixels(processor, 262144)
        assert fit_images(images, processor) is images

    @pytest.mark.parametrize(
        ("kind", "limit", "said"),
        [
            (
                Qwen2VLImageProcessor,
                262144,
                "Image size: at most 262144 pixels (max_image_pixels); the largest image, 2544 x 3056, is seen as "
                "448 x 560, 320 image tokens.",
            ),
            (
                Qwen2VLImageProcessor,
                None,
                "Image size: at most 1003520 pixels (the model's own limit); the largest image, 2544 x 3056, is "
                "seen as "
                "896 x 1092, 1248 image tokens.",
            ),
            (
                CLIPImageProcessor,
                20000,
                "Image size: at most 20000 pixels (max_image_pixels), then as the processor of the model says.",
            ),
            (CLIPImageProcessor, None, "Image size: as the processor of the model says."),
        ],
    )
    def test_what_is_said(self, kind, limit, said):
        processor = kind()
        if limit is not None:
            limit_image_pixels(processor, limit)
        assert largest_image(self.images((300, 200), (2544, 3056), None), processor) == said

    def test_a_shrunken_image_is_named_by_its_own_size(self):
        processor = Qwen2VLImageProcessor()
        images = self.images((448, 560)).add_column("width", [2544]).add_column("height", [3056])
        assert "the largest image, 2544 x 3056, is seen as 448 x 560, 320 image tokens" in largest_image(
            images, processor
        )

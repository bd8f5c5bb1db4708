"""Resized sizes against the image processors themselves."""

import itertools

import numpy as np
import pytest
import transformers
from datasets import Dataset
from datasets import Image as ImageColumn
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from transformers import CLIPImageProcessor, Gemma3ImageProcessor, Qwen2VLImageProcessor, Qwen2VLImageProcessorPil
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

from grounding_rewards.images.resize import (
    fit_images,
    fitted_size,
    image_pixel_limit,
    largest_image,
    resized_size,
    set_image_size,
)
from tests.tables import table

pytestmark = pytest.mark.training

SIDES = (1, 2, 13, 14, 27, 28, 29, 41, 42, 43, 55, 56, 70, 97, 112, 113, 199)
SETTINGS = [
    {"min_pixels": 56 * 56, "max_pixels": 1280 * 28 * 28},  # class default
    {"min_pixels": 4 * 28 * 28, "max_pixels": 16 * 28 * 28},  # both limits reached within the grid
    {"min_pixels": 1, "max_pixels": 28 * 28},  # one merged patch at most, where a side is clamped to the factor
    {"min_pixels": 65 * 65, "max_pixels": 100 * 100, "patch_size": 16},  # Qwen3-VL's factor of 32
    # an odd factor, halves round to even
    {"min_pixels": 40, "max_pixels": 5000, "patch_size": 5, "merge_size": 3},
]


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


@given(
    st.tuples(st.integers(1, 60_000), st.integers(1, 60_000)).filter(lambda size: max(size) <= 200 * min(size)),
    st.sampled_from([(14, 2), (16, 2), (7, 3), (1, 1)]),
    st.integers(1, 10**6),
    st.integers(1, 10**8),
)
def test_agrees_with_the_processor_on_images_of_any_size(size, patch_and_merge, min_pixels, more_pixels):
    (width, height), (patch_size, merge_size) = size, patch_and_merge
    limits = {"min_pixels": min_pixels, "max_pixels": min_pixels + more_pixels}
    image_processor = Qwen2VLImageProcessorPil(patch_size=patch_size, merge_size=merge_size, **limits)
    expected = smart_resize(height, width, patch_size * merge_size, **limits)
    assert resized_size(image_processor, width, height) == expected[::-1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        # ratios of 200.5: the processor itself raises
        (lambda: resized_size(Qwen2VLImageProcessor(), 2, 401), "ratio of 200"),
        (lambda: resized_size(Qwen2VLImageProcessor(), 1203, 6), "ratio of 200"),
        (lambda: fed_size(Qwen2VLImageProcessor(), 2, 401), "aspect ratio"),
        (lambda: resized_size(Qwen2VLImageProcessor(), 0, 9), "at least one pixel"),
        # It cuts off what does not fit into a square; the other shows parts beside the whole.
        (lambda: resized_size(CLIPImageProcessor(), 9, 9), "way to resize is known for processor, got CLIP"),
        (lambda: resized_size(Gemma3ImageProcessor(do_pan_and_scan=True), 9, 9), "known for processor, got Gemma3"),
        (lambda: set_image_size(Qwen2VLImageProcessor(), 783), r"at least 784 for max_image_pixels, .* got 783"),
        (lambda: set_image_size("a tokenizer", 50176), "Expected a processor of images for max_image_pixels, got str"),
    ],
)
def test_refused_sizes(call, message):
    with pytest.raises(ValueError, match=message):
        call()


class TestLimit:
    def test_a_qwen_processor_gets_the_limit_as_its_own(self):
        processor, other = Qwen2VLImageProcessor(), Qwen2VLImageProcessor()
        set_image_size(processor, 262144)
        assert image_pixel_limit(processor) == 262144
        # 334 of 28 x 28 pixels.
        assert largest_image(processor) == "Image size: at most 262144 pixels (max_image_pixels), 334 image tokens."
        assert resized_size(processor, 2544, 3056) == (448, 560)  # 16 x 20 tokens of 28 pixels
        # Processors share what their class says.
        assert resized_size(other, 2544, 3056) == (896, 1092)
        assert image_pixel_limit(other) is None

    @pytest.mark.parametrize("kind", [Qwen2VLImageProcessor, Qwen2VLImageProcessorPil, CLIPImageProcessor])
    def test_is_saved_and_loaded(self, kind, tmp_path):
        processor = kind()
        set_image_size(processor, 50176)
        processor.save_pretrained(tmp_path)
        assert image_pixel_limit(kind.from_pretrained(tmp_path)) == 50176

    def test_below_the_smallest_area_of_the_processor(self):
        processor = Qwen2VLImageProcessor(min_pixels=100 * 100)
        set_image_size(processor, 2000)
        width, height = resized_size(processor, 500, 400)
        assert (width, height) == fed_size(processor, 500, 400)
        assert width * height <= 2000

    @given(
        st.tuples(st.integers(1, 6000), st.integers(1, 6000)).filter(lambda size: max(size) <= 200 * min(size)),
        st.integers(784, 3_000_000),
    )
    def test_a_fitted_image_is_seen_as_the_image_itself(self, size, pixels):
        """Shrinking before the processor changes nothing about the size that the model sees."""
        processor = Qwen2VLImageProcessorPil()
        set_image_size(processor, pixels)
        assert resized_size(processor, *fitted_size(processor, *size)) == resized_size(processor, *size)


class TestFit:
    def images(self, *sizes):
        images = [None if size is None else Image.new("L", size) for size in sizes]
        column = Dataset.from_dict({"image": images}).cast_column("image", ImageColumn())
        return column.add_column("id", list(map(str, range(len(sizes)))))

    def test_large_images_become_what_the_model_sees(self):
        processor = Qwen2VLImageProcessor()
        set_image_size(processor, 262144)
        fitted = fit_images(self.images((2544, 3056), (300, 200), None), processor)
        assert [image and image.size for image in fitted["image"]] == [(448, 560), (300, 200), None]
        assert fitted["id"][:] == ["0", "1", "2"]

    def test_of_other_processors_they_keep_their_shape(self):
        processor = CLIPImageProcessor()
        set_image_size(processor, 20000)
        (image,) = fit_images(self.images((2000, 1000)), processor)["image"]
        assert image.size == (200, 100)

    def test_images_that_fit_are_not_written_anew(self):
        processor, images, small = Qwen2VLImageProcessor(), self.images((2544, 3056)), self.images((300, 200))
        assert fit_images(images, processor) is images
        set_image_size(processor, 262144)
        assert fit_images(small, processor) is small


def built(name, **changed):
    """An image processor of that class, as published; the implementation with Pillow has the same settings."""
    kind = getattr(transformers, name, None)
    if kind is None:
        pytest.skip(f"transformers {transformers.__version__} has no {name}")
    return kind(**changed)


# Computed by formulas that were written from the sources of transformers 5 and agreed with its processors.
@pytest.mark.parametrize(("name", "changed", "landscape", "small"), table("images/tables", "sizes_of_every_kind"))
def test_sizes_of_every_kind(name, changed, landscape, small):
    image_processor = built(name, **changed)
    assert resized_size(image_processor, 811, 640) == tuple(landscape)
    assert resized_size(image_processor, 333, 299) == tuple(small)

"""The rules of image processors against the image processors themselves, built with the defaults of their classes.

Published models differ from those defaults in their settings alone, some of which the tables set."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.image_utils import SizeDict

from grounding_rewards.images.resize import (
    fitted_size,
    has_resized_size,
    image_pixel_limit,
    limit_image_pixels,
    resized_size,
)

pytestmark = pytest.mark.training

#: Odd, even, one pixel, around the patches of 14, 16, 28 and 32, thin both ways, and as large as stays quick.
SIZES = (
    *((1, 1), (28, 28), (33, 28), (1, 97), (97, 1), (97, 98), (1, 180), (181, 1)),
    *((17, 400), (401, 30), (333, 299), (299, 333), (448, 448)),
)


def built(name, **changed):
    """An image processor of that class, as published; the implementation with Pillow has the same settings."""
    kind = getattr(transformers, name, None)
    if kind is None:
        pytest.skip(f"transformers {transformers.__version__} has no {name}")
    return kind(**changed)


def processed(image_processor, width, height, **asked):
    image = np.zeros((height, width, 3), dtype=np.uint8)
    return image_processor(images=[image], return_tensors="pt", input_data_format="channels_last", **asked)


def of_grid(image_processor, width, height):
    """Of processors that give a grid of patches."""
    _, rows, columns = processed(image_processor, width, height)["image_grid_thw"][0].tolist()
    return columns * image_processor.patch_size, rows * image_processor.patch_size


def of_pixels(image_processor, width, height):
    """Of processors that give pixels."""
    *_, rows, columns = processed(image_processor, width, height)["pixel_values"].shape
    return columns, rows


def of_positions(image_processor, width, height):
    """Of processors that give the column and row of each patch, -1 for padding."""
    columns, rows = processed(image_processor, width, height)["image_position_ids"][0].amax(0).tolist()
    side = image_processor.patch_size
    return (columns + 1) * side, (rows + 1) * side


def of_merged_positions(image_processor, width, height):
    """As `of_positions`, for patches that hold the pixels of a whole token."""
    width, height = of_positions(image_processor, width, height)
    return width * image_processor.pooling_kernel_size, height * image_processor.pooling_kernel_size


def of_rows_and_columns(image_processor, width, height):
    """Of processors that say in how many tiles they cut; 0 is an image in one piece."""
    given = processed(image_processor, width, height, return_row_col_info=True)
    rows, columns = given["rows"][0][0], given["cols"][0][0]
    side = image_processor.max_image_size["longest_edge"]
    return max(columns, 1) * side, max(rows, 1) * side


def of_tiles_or_whole(image_processor, width, height):
    given = processed(image_processor, width, height, return_row_col_info=True)
    rows, columns = int(given["image_rows"][0]), int(given["image_cols"][0])
    if rows * columns > 1:
        return columns * image_processor.tile_size, rows * image_processor.tile_size
    rows, columns = given["spatial_shapes"][0].tolist()
    return columns * image_processor.encoder_patch_size, rows * image_processor.encoder_patch_size


def of_slices(image_processor, width, height):
    given = processed(image_processor, width, height)
    rows, columns = given["grids"][0]
    slice_rows, slice_columns = given["target_sizes"][-1].tolist()
    side = image_processor.patch_size
    return max(columns, 1) * slice_columns * side, max(rows, 1) * slice_rows * side


def of_stated_size(image_processor, width, height):
    given = processed(image_processor, width, height)
    return int(given["width"][0]), int(given["height"][0])


def of_image_sizes(image_processor, width, height):
    rows, columns = processed(image_processor, width, height)["image_sizes"][0]
    return int(columns), int(rows)


def of_crops(image_processor, width, height):
    """Of Molmo 2, whose tokens pool two patches each way: settings under which none is padded."""
    _, _, rows, columns = processed(image_processor, width, height)["image_grids"][0].tolist()
    side = image_processor.patch_size
    margins = sum(image_processor.overlap_margins)
    window = image_processor.size["height"] // side - margins
    # The grid counts pooled patches, the last of which may be half empty.
    columns, rows = ((2 * pooled - margins) // window * window + margins for pooled in (columns, rows))
    return columns * side, rows * side


@pytest.mark.parametrize(
    ("name", "changed", "fed_size"),
    [
        # the rule of Qwen2-VL in other classes
        ("Ernie4_5_VLMoeImageProcessor", {}, of_grid),
        ("HunYuanVLImageProcessor", {"size": {"shortest_edge": 9000, "longest_edge": 60_000}}, of_grid),
        ("MiniMaxM3VLImageProcessor", {}, of_grid),
        ("MiniMaxM3VLImageProcessor", {"size": {"shortest_edge": 900, "longest_edge": 60_000}}, of_grid),
        ("VideoLlama3ImageProcessor", {}, of_grid),
        # GLM: limits for two copies of the image, small images enlarged first
        ("Glm4vImageProcessor", {}, of_grid),
        ("Glm4vImageProcessor", {"size": {"shortest_edge": 2 * 900, "longest_edge": 2 * 60_000}}, of_grid),
        ("Glm46VImageProcessor", {"size": {"shortest_edge": 2 * 9000, "longest_edge": 2 * 9001}}, of_grid),
        ("Glm46VImageProcessor", {"do_resize": True, "patch_size": 7, "merge_size": 3}, of_grid),
        ("Cosmos3EdgeImageProcessor", {"size": {"shortest_edge": 9000, "longest_edge": 60_000}}, of_grid),
        # Gemma 4: all its tokens, whatever the image
        ("Gemma4ImageProcessor", {}, of_positions),
        ("Gemma4ImageProcessor", {"max_soft_tokens": 70}, of_positions),
        ("Gemma4UnifiedImageProcessor", {}, of_merged_positions),
        # one size for all
        ("Gemma3ImageProcessor", {"size": {"height": 96, "width": 112}}, of_pixels),
        ("SiglipImageProcessor", {}, of_pixels),
        ("CLIPImageProcessor", {"size": {"height": 96, "width": 112}, "do_center_crop": False}, of_pixels),
        ("BlipImageProcessor", {}, of_pixels),
        ("GotOcr2ImageProcessor", {"size": {"height": 44, "width": 48}}, of_pixels),
        # tiles, and an image in one piece where it is small
        ("Lfm2VlImageProcessor", {"max_image_tokens": 90}, of_tiles_or_whole),
        ("Lfm2VlImageProcessor", {"tile_size": 64, "max_image_tokens": 16, "min_image_tokens": 4}, of_tiles_or_whole),
        ("Lfm2VlImageProcessor", {"do_image_splitting": False, "max_image_tokens": 70}, of_tiles_or_whole),
        (
            "SmolVLMImageProcessor",
            {"size": {"longest_edge": 4 * 91}, "max_image_size": {"longest_edge": 91}},
            of_rows_and_columns,
        ),
        (
            "SmolVLMImageProcessor",
            {"size": {"longest_edge": 500}, "max_image_size": {"longest_edge": 128}},
            of_rows_and_columns,
        ),
        ("SmolVLMImageProcessor", {"do_resize": False, "max_image_size": {"longest_edge": 64}}, of_rows_and_columns),
        ("Idefics3ImageProcessor", {"do_image_splitting": False}, of_rows_and_columns),
        (
            "Idefics3ImageProcessor",
            {"size": {"longest_edge": 301}, "max_image_size": {"longest_edge": 75}},
            of_rows_and_columns,
        ),
        ("MiniCPMV4_6ImageProcessor", {}, of_slices),
        ("MiniCPMV4_6ImageProcessor", {"downsample_mode": "4x", "scale_resolution": 130}, of_slices),
        ("MiniCPMV4_6ImageProcessor", {"slice_mode": False}, of_slices),
        # the sides come out beside the padded pixels
        ("PixtralImageProcessor", {}, of_image_sizes),
        ("PixtralImageProcessor", {"size": {"longest_edge": 200}, "patch_size": 28}, of_image_sizes),
        ("PixtralImageProcessor", {"size": {"height": 90, "width": 300}}, of_image_sizes),
        ("PixtralImageProcessorPil", {"size": {"longest_edge": 200}}, of_image_sizes),
        # margins that crops share
        ("Molmo2ImageProcessor", {}, of_crops),
        ("Molmo2ImageProcessor", {"size": {"height": 98, "width": 98}, "overlap_margins": [1, 2]}, of_crops),
        (
            "Molmo2ImageProcessor",
            {"size": {"height": 70, "width": 70}, "overlap_margins": [0, 0], "max_crops": 24},
            of_crops,
        ),
        ("GlmgaImageProcessor", {}, of_grid),
        ("GlmgaImageProcessor", {"size": {"shortest_edge": 2 * 900, "longest_edge": 2 * 60_000}}, of_grid),
        # all its patches
        ("Kosmos2_5ImageProcessor", {"max_patches": 200}, of_stated_size),
    ],
)
def test_agrees_with_the_processor(name, changed, fed_size):
    image_processor = built(name, **changed)
    compared = 0
    for width, height in SIZES:
        try:
            expected = fed_size(image_processor, width, height)
        # Some fail on images of a few pixels, each in its own way.
        except (ValueError, RuntimeError, ZeroDivisionError):
            continue
        compared += 1
        assert resized_size(image_processor, width, height) == expected, (width, height)
    assert compared > len(SIZES) / 2


@pytest.mark.parametrize("name", ["Glm4vImageProcessor", "Gemma4ImageProcessor", "SiglipImageProcessor"])
def test_of_the_implementation_with_pillow(name):
    image_processor = built(f"{name}Pil")
    assert resized_size(image_processor, 811, 640) == resized_size(built(name), 811, 640)


@pytest.mark.parametrize("crops", [{"min_patches": 1, "max_patches": 12}, {"min_patches": 2, "max_patches": 6}])
def test_tiles_of_internvl(crops):
    tiling = pytest.importorskip("transformers.models.got_ocr2.image_processing_got_ocr2").get_optimal_tiled_canvas
    image_processor = built("GotOcr2ImageProcessor", crop_to_patches=True, size={"height": 32, "width": 48}, **crops)
    for width, height in SIZES:
        columns, rows = tiling((height, width), (32, 48), *crops.values())
        assert resized_size(image_processor, width, height) == (columns * 48, rows * 32), (width, height)
        # and a copy of the whole beside two tiles or more
        (tiles,) = processed(image_processor, width, height)["num_patches"]
        assert tiles == columns * rows + (columns * rows > 1)


def test_internvl_cuts_into_tiles_because_its_processor_asks_for_it():
    """The image processor of the published models says `crop_to_patches: false`."""
    image_processor = built("GotOcr2ImageProcessor", size={"height": 448, "width": 448})
    kind = transformers.InternVLProcessor
    processor = SimpleNamespace(image_processor=image_processor)
    for name in ("images_kwargs", "valid_processor_kwargs"):
        if hasattr(kind, name):
            setattr(processor, name, getattr(kind, name))
    assert resized_size(image_processor, 2544, 3056) == (448, 448)
    assert resized_size(processor, 2544, 3056) == (448 * 3, 448 * 4)  # 3 / 4 is closest to 2544 / 3056
    older = SimpleNamespace(_defaults={"images_kwargs": {"crop_to_patches": True}})
    of_older = SimpleNamespace(image_processor=image_processor, valid_processor_kwargs=older)
    assert resized_size(of_older, 2544, 3056) == (448 * 3, 448 * 4)
    assert image_processor.crop_to_patches is False


@pytest.mark.parametrize("changed", [{}, {"max_patches": 60}, {"size": {"max_height": 9, "max_width": 9}}])
def test_kimi_pads_to_whole_patches(changed):
    image_processor = built("Kimi_K25ImageProcessor", **changed)
    factor = image_processor.patch_size * image_processor.merge_size
    for width, height in SIZES:
        resized = resized_size(image_processor, width, height)
        padded = tuple(-(-side // factor) * factor for side in resized)
        assert padded == of_grid(image_processor, width, height), (width, height)


class TestMllama:
    """Images are padded to tiles, so that their size comes out of the function alone."""

    @pytest.mark.parametrize("changed", [{}, {"size": {"height": 56, "width": 56}}, {"max_image_tiles": 6}])
    def test_agrees_with_the_processor(self, changed):
        image_processor = built("MllamaImageProcessor", **changed)
        for width, height in SIZES:
            image = torch.zeros(1, 3, height, width)
            size, most = image_processor.size, image_processor.max_image_tiles
            shown, _ = image_processor.resize(image, size=SizeDict(**dict(size)), max_image_tiles=most)
            assert resized_size(image_processor, width, height) == tuple(shown.shape[:-3:-1]), (width, height)

    @settings(max_examples=100)
    @given(st.tuples(st.integers(1, 20_000), st.integers(1, 20_000)), st.integers(1, 12), st.integers(1, 600))
    def test_images_of_any_size(self, size, most, tile):
        module = pytest.importorskip("transformers.models.mllama.image_processing_mllama")
        width, height = size
        mllama = type("MllamaImageProcessor", (), {"size": {"height": tile, "width": tile}, "max_image_tiles": most})()
        canvas = module.get_optimal_tiled_canvas(height, width, most, tile)
        expected = module.get_image_size_fit_to_canvas(height, width, *canvas, tile)[::-1]
        assert resized_size(mllama, width, height) == expected


@settings(max_examples=100)
@given(st.tuples(st.integers(1, 20_000), st.integers(1, 20_000)), st.integers(1, 24), st.integers(0, 4))
def test_molmo_2_on_images_of_any_size(size, most, margin):
    rule = pytest.importorskip("transformers.models.molmo2.image_processing_molmo2").compute_crop_geometry
    width, height = size
    molmo = type("Molmo2ImageProcessor", (), {"patch_size": 14, "max_crops": most, "overlap_margins": [margin, 4]})()
    molmo.size = {"height": 378, "width": 378}
    *_, expected_height, expected_width = rule(height, width, most, [margin, 4], 378, 14)
    assert resized_size(molmo, width, height) == (expected_width, expected_height)


@pytest.mark.parametrize("changed", [{}, {"tile_size": 100}, {"tile_size": 100, "crop_to_patches": False}])
def test_deepseek_ocr2(changed):
    image_processor = built("DeepseekOcr2ImageProcessor", size={"height": 128, "width": 128}, **changed)
    tile = image_processor.tile_size
    for width, height in SIZES:
        try:
            given_back = processed(image_processor, width, height)
        except (ValueError, RuntimeError):
            with pytest.raises(ValueError, match="of which something is left"):
                resized_size(image_processor, width, height)
            continue
        fed = resized_size(image_processor, width, height)
        tiles = int(given_back["num_local_patches"][0])
        if tiles:
            assert (fed[0] // tile) * (fed[1] // tile) == tiles
            assert fed[0] % tile == fed[1] % tile == 0
        else:
            # A square, in which the image touches two sides.
            square = given_back["pixel_values"].shape[-1]
            assert max(fed) == square
            assert fed == (round(width * square / max(width, height)), round(height * square / max(width, height)))


def test_mistral_3_resizes_to_whole_tokens():
    """Its processor asks for tokens of several patches."""
    image_processor = built("PixtralImageProcessor", patch_size={"height": 14, "width": 14})
    processor = SimpleNamespace(image_processor=image_processor, patch_size=14, spatial_merge_size=2)
    for width, height in SIZES:
        rows, columns = processed(image_processor, width, height, patch_size=28)["image_sizes"][0]
        assert resized_size(processor, width, height) == (int(columns), int(rows))
    assert resized_size(image_processor, 100, 100) == (112, 112)
    assert resized_size(image_processor, 90, 90) == (98, 98)


large_sizes = st.tuples(st.integers(1, 20_000), st.integers(1, 20_000))


@settings(max_examples=100)
@given(large_sizes, st.integers(1, 20_000), st.integers(1, 600))
def test_kimi_on_images_of_any_size(size, patches, longest):
    rule = pytest.importorskip("transformers.models.kimi_k25.image_processing_kimi_k25").navit_resize
    kimi = type("Kimi_K25ImageProcessor", (), {"patch_size": 14, "merge_size": 2, "do_resize": True})()
    kimi.max_patches, kimi.size = patches, {"max_height": longest, "max_width": longest}
    width, height = size
    (expected_height, expected_width), _ = rule(height, width, 14, 2, patches, longest)
    assert resized_size(kimi, width, height) == (expected_width, expected_height)


@settings(max_examples=100)
@given(large_sizes, st.sampled_from((70, 140, 280, 560, 1120)))
def test_gemma_4_on_images_of_any_size(size, tokens):
    rule = pytest.importorskip("transformers.models.gemma4.image_processing_gemma4").get_aspect_ratio_preserving_size
    width, height = size
    expected = rule(height, width, 16, tokens * 9, 3)[::-1]
    assert resized_size(built("Gemma4ImageProcessor", max_soft_tokens=tokens), width, height) == expected


@settings(max_examples=100)
@given(large_sizes, st.integers(1, 10**6), st.integers(0, 10**8), st.sampled_from((1, 2)))
def test_glm_on_images_of_any_size(size, least, more, copies):
    rule = pytest.importorskip("transformers.models.glm4v.image_processing_glm4v").smart_resize
    glm = type("Glm4vImageProcessor", (), {"patch_size": 14, "merge_size": 2, "do_resize": True})()
    glm.temporal_patch_size, glm.size = copies, {"shortest_edge": least, "longest_edge": least + more}
    width, height = size
    try:
        expected = rule(copies, height, width, copies, 28, least, least + more)[::-1]
    except ValueError:
        with pytest.raises(ValueError, match="ratio of 200"):
            resized_size(glm, width, height)
        return
    assert resized_size(glm, width, height) == expected


@settings(max_examples=100)
@given(large_sizes, st.integers(1, 3), st.integers(0, 11))
def test_lfm2_on_images_of_any_size(size, least, more):
    lfm = built("Lfm2VlImageProcessor", min_tiles=least, max_tiles=least + more)
    width, height = size
    limits = {"max_image_tokens": 256, "encoder_patch_size": 16, "downsample_factor": 2}
    if lfm._is_image_too_large(height, width, **limits, max_pixels_tolerance=2.0) and least + more > 1:
        *_, expected_width, expected_height, _ = lfm._get_grid_layout(height, width, least, least + more, 512)
    else:
        expected_width, expected_height = lfm.smart_resize(height, width, min_image_tokens=64, **limits)
    assert resized_size(lfm, width, height) == (expected_width, expected_height)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("Glm4vImageProcessor", {}),
        ("Kimi_K25ImageProcessor", {}),
        ("Gemma4ImageProcessor", {}),
        ("SiglipImageProcessor", {}),
    ],
)
def test_no_resize(name, changed):
    assert resized_size(built(name, do_resize=False, **changed), 56, 84) == (56, 84)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("CLIPImageProcessor", {}),  # cuts off what does not fit into a square
        ("CLIPImageProcessor", {"size": {"height": 96, "width": 96}}),
        ("Gemma3ImageProcessor", {"do_pan_and_scan": True}),  # shows parts beside the whole
        ("LlavaNextImageProcessor", {}),
    ],
)
def test_not_known(name, changed):
    image_processor = built(name, **changed)
    assert not has_resized_size(image_processor)
    with pytest.raises(
        ValueError,
        match=rf"way to resize is known for processor, got {name}\. Measure it: .* add columns resized_width",
    ):
        resized_size(image_processor, 100, 100)


class TestLimit:
    """`max_image_pixels` of processors that have no largest area of their own."""

    @pytest.mark.parametrize("name", ["Glm4vImageProcessor", "Lfm2VlImageProcessor", "Gemma4ImageProcessor"])
    def test_shrinks_images_before_the_processor_sees_them(self, name):
        image_processor = built(name)
        untouched = image_processor.size
        limit_image_pixels(image_processor, 20_000)
        assert image_pixel_limit(image_processor) == 20_000
        assert image_processor.size == untouched
        fitted = fitted_size(image_processor, 2000, 1000)
        assert fitted == (200, 100)
        assert resized_size(image_processor, 2000, 1000) == resized_size(built(name), *fitted)

    def test_with_the_rule_of_qwen_is_its_own(self):
        image_processor = built("Ernie4_5_VLMoeImageProcessor")
        limit_image_pixels(image_processor, 262_144)
        assert image_processor.size["longest_edge"] == 262_144
        assert resized_size(image_processor, 2544, 3056) == (448, 560)  # as Qwen2-VL's in test_resize.py

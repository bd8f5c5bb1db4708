"""The sizes that image processors resize to, by the formula or by the processor's own word."""

from types import SimpleNamespace

import numpy as np
import pytest
import transformers

from grounding_rewards.images import resize_rules
from grounding_rewards.images.resize import (
    fitted_size,
    has_resized_size,
    image_pixel_limit,
    limit_image_pixels,
    resized_size,
)

pytestmark = pytest.mark.training


def built(name, **changed):
    """An image processor of that class, as published; the implementation with Pillow has the same settings."""
    kind = getattr(transformers, name, None)
    if kind is None:
        pytest.skip(f"transformers {transformers.__version__} has no {name}")
    return kind(**changed)


# Computed by formulas that were written from the sources of transformers 5 and agreed with its processors.
@pytest.mark.parametrize(
    ("name", "changed", "landscape", "small"),
    [
        ("Ernie4_5_VLMoeImageProcessor", {}, (812, 644), (336, 308)),
        ("HunYuanVLImageProcessor", {"size": {"shortest_edge": 9000, "longest_edge": 60000}}, (256, 192), (256, 224)),
        ("MiniMaxM3VLImageProcessor", {}, (756, 588), (336, 308)),
        ("VideoLlama3ImageProcessor", {}, (812, 644), (336, 294)),
        ("Glm4vImageProcessor", {}, (812, 644), (336, 308)),
        ("Glm46VImageProcessor", {"do_resize": True, "patch_size": 7, "merge_size": 3}, (819, 630), (336, 294)),
        ("Cosmos3EdgeImageProcessor", {"size": {"shortest_edge": 9000, "longest_edge": 60000}}, (256, 192), (256, 224)),
        ("Gemma4ImageProcessor", {}, (864, 672), (816, 720)),
        ("Gemma4UnifiedImageProcessor", {}, (864, 672), (816, 720)),
        ("Gemma3ImageProcessor", {"size": {"height": 96, "width": 112}}, (112, 96), (112, 96)),
        ("SiglipImageProcessor", {}, (224, 224), (224, 224)),
        ("CLIPImageProcessor", {"size": {"height": 96, "width": 112}, "do_center_crop": False}, (112, 96), (112, 96)),
        ("BlipImageProcessor", {}, (384, 384), (384, 384)),
        ("GotOcr2ImageProcessor", {"size": {"height": 44, "width": 48}}, (48, 44), (48, 44)),
        ("Lfm2VlImageProcessor", {"max_image_tokens": 90}, (1536, 1024), (320, 288)),
        (
            "Lfm2VlImageProcessor",
            {"tile_size": 64, "max_image_tokens": 16, "min_image_tokens": 4},
            (192, 128),
            (192, 192),
        ),
        ("Lfm2VlImageProcessor", {"do_image_splitting": False, "max_image_tokens": 70}, (288, 224), (256, 224)),
        (
            "SmolVLMImageProcessor",
            {"size": {"longest_edge": 500}, "max_image_size": {"longest_edge": 128}},
            (512, 512),
            (512, 512),
        ),
        ("SmolVLMImageProcessor", {"do_resize": False, "max_image_size": {"longest_edge": 64}}, (832, 704), (384, 384)),
        ("Idefics3ImageProcessor", {"do_image_splitting": False}, (364, 364), (364, 364)),
        ("MiniCPMV4_6ImageProcessor", {}, (1008, 784), (448, 448)),
        ("MiniCPMV4_6ImageProcessor", {"downsample_mode": "4x", "scale_resolution": 130}, (420, 336), (336, 280)),
        ("PixtralImageProcessor", {}, (816, 640), (336, 304)),
        ("PixtralImageProcessor", {"size": {"longest_edge": 200}, "patch_size": 28}, (224, 168), (224, 196)),
        ("GlmgaImageProcessor", {}, (812, 644), (336, 308)),
        ("Kosmos2_5ImageProcessor", {"max_patches": 200}, (240, 192), (224, 208)),
        ("GotOcr2ImageProcessor", {"crop_to_patches": True, "size": {"height": 32, "width": 48}}, (192, 96), (144, 96)),
        ("Kimi_K25ImageProcessor", {}, (812, 644), (336, 308)),
    ],
)
def test_sizes_of_every_kind(name, changed, landscape, small):
    image_processor = built(name, **changed)
    assert resized_size(image_processor, 811, 640) == landscape
    assert resized_size(image_processor, 333, 299) == small


@pytest.mark.parametrize("name", ["Ernie4_5_VLMoeImageProcessor", "MiniMaxM3VLImageProcessor"])
def test_the_formula_of_qwen_holds_for_other_classes(name):
    """Sizes as the patches that come out of the processor have them."""
    image_processor = built(name)
    for width, height in ((33, 28), (17, 400), (401, 30), (333, 299)):
        image = np.zeros((height, width, 3), dtype=np.uint8)
        _, rows, columns = image_processor(images=[image], return_tensors="pt")["image_grid_thw"][0].tolist()
        side = image_processor.patch_size
        assert resized_size(image_processor, width, height) == (columns * side, rows * side)


def test_a_processor_is_asked_once_for_each_size_and_setting(monkeypatch):
    asked = []
    rule = resize_rules._TOLD["Glm4v"]
    monkeypatch.setitem(resize_rules._TOLD, "Glm4v", lambda *given: asked.append(given) or rule(*given))
    monkeypatch.setattr(resize_rules, "_ASKED", {})
    image_processor = built("Glm4vImageProcessor")
    first = [resized_size(image_processor, 333, 299) for _ in range(3)]
    assert len(asked) == 1
    image_processor.size = {"shortest_edge": 1800, "longest_edge": 120000}
    assert resized_size(image_processor, 333, 299) == (252, 224) != first[0]
    assert len(asked) == 2


def test_what_the_processor_refuses_is_an_error():
    with pytest.raises(ValueError, match=r"that the processor can resize, got 1 x 999"):
        resized_size(built("Glm4vImageProcessor"), 1, 999)


@pytest.mark.parametrize("name", ["Glm4vImageProcessor", "Gemma4ImageProcessor", "SiglipImageProcessor"])
def test_of_the_implementation_with_pillow(name):
    assert resized_size(built(f"{name}Pil"), 811, 640) == resized_size(built(name), 811, 640)


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


def test_mistral_3_resizes_to_whole_tokens():
    """Its processor asks for tokens of several patches."""
    image_processor = built("PixtralImageProcessor", patch_size={"height": 14, "width": 14})
    processor = SimpleNamespace(image_processor=image_processor, patch_size=14, spatial_merge_size=2)
    assert resized_size(processor, 100, 100) == (112, 112)
    assert resized_size(processor, 90, 90) == (112, 112)
    assert resized_size(image_processor, 90, 90) == (98, 98)


def test_no_resize():
    assert resized_size(built("SiglipImageProcessor", do_resize=False), 96, 192) == (96, 192)

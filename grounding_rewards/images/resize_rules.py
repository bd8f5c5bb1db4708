"""How image processors resize: Qwen's formula, and for every other kind what the processor itself does.

Both give the width and height in pixels that the whole image is resized to: before it is cut into tiles, and without
the small copy of the whole that some models see besides. Qwen's formula needs no `transformers` and no image. Any
other processor of a known kind is called with a black image, once for each distinct size, and its outputs tell the
size: each kind names it in another way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

Size = tuple[int, int]

_MAX_ASPECT_RATIO = 200


def _kind(image_processor: Any) -> str:
    """The name of an image processor's class without its endings.

    The same rule holds for the implementations with Pillow, with torchvision, and that of earlier releases.
    """
    return type(image_processor).__name__.removesuffix("Pil").removesuffix("Fast").removesuffix("ImageProcessor")


def limits_area(image_processor: Any) -> bool:
    """Whether `size` of the processor holds the smallest and the largest area of a resized image in pixels, as
    `shortest_edge` and `longest_edge`, so that Qwen's formula tells its sizes.

    Example:
        >>> limits_area("a tokenizer")
        False
    """
    return _kind(image_processor) in _QWEN


def is_known(image_processor: Any) -> bool:
    """Whether :func:`processor_size` knows how this image processor resizes.

    Example:
        >>> is_known("a tokenizer")
        False
    """
    kind = _kind(image_processor)
    return kind in _QWEN or kind in _TOLD or (kind in _ONE_SIZE and _squeezes(image_processor))


def processor_size(image_processor: Any, width: int, height: int) -> Size:
    """The size in pixels that a known image processor resizes an image to.

    Raises:
        ValueError: the processor refuses an image of this size.
    """
    kind = _kind(image_processor)
    if kind in _QWEN:
        return area_size(image_processor, width, height) if image_processor.do_resize else (width, height)
    if kind in _ONE_SIZE:
        size = image_processor.size
        return (size["width"], size["height"]) if image_processor.do_resize else (width, height)
    # The text of a processor holds all its settings, one of which may have changed since.
    key = (str(image_processor), width, height)
    if key not in _ASKED:
        image = np.zeros((height, width, 3), dtype=np.uint8)
        try:
            _ASKED[key] = _TOLD[kind](image_processor, image)
        # Some fail on images of a few pixels, each in its own way.
        except (ValueError, RuntimeError, ZeroDivisionError) as error:
            raise ValueError(
                f"Expected an image that the processor can resize, got {width} x {height} ({error}). Crop or drop it."
            ) from error
    return _ASKED[key]


def area_size(image_processor: Any, width: int, height: int) -> Size:
    """Whole patches, with the area between two limits.

    Source: `smart_resize` in transformers' image_processing_qwen2_vl.py.
    """
    if max(width, height) > _MAX_ASPECT_RATIO * min(width, height):
        raise ValueError(
            f"Expected sides within a ratio of {_MAX_ASPECT_RATIO} for width and height, "
            f"got {width} x {height}. The processor refuses such images; crop or drop this one."
        )
    factor = image_processor.patch_size * image_processor.merge_size
    least, most = image_processor.size["shortest_edge"], image_processor.size["longest_edge"]
    rounded = round(width / factor) * factor, round(height / factor) * factor
    if math.prod(rounded) > most:
        # beta = sqrt(width * height / most);  side = max(factor, floor(side / beta / factor) * factor)
        beta = math.sqrt(height * width / most)
        return (
            max(factor, math.floor(width / beta / factor) * factor),
            max(factor, math.floor(height / beta / factor) * factor),
        )
    if math.prod(rounded) < least:
        # beta = sqrt(least / (width * height));  side = ceil(side * beta / factor) * factor
        beta = math.sqrt(least / (height * width))
        return math.ceil(width * beta / factor) * factor, math.ceil(height * beta / factor) * factor
    return rounded


def _squeezes(image_processor: Any) -> bool:
    """Whether the processor squeezes images into its size, and cuts none of them off."""
    size = getattr(image_processor, "size", None) or {}
    cuts = getattr(image_processor, "do_center_crop", False) or getattr(image_processor, "do_pan_and_scan", False)
    return not cuts and bool(size.get("width") and size.get("height"))


def _outputs(image_processor: Any, image: np.ndarray, **asked: Any) -> Any:
    return image_processor(images=[image], return_tensors="pt", input_data_format="channels_last", **asked)


def _by_grid(image_processor: Any, image: np.ndarray) -> Size:
    """From the patches of each row and column; an image that is padded to whole patches counts with its padding."""
    _, rows, columns = _outputs(image_processor, image)["image_grid_thw"][0].tolist()
    return columns * image_processor.patch_size, rows * image_processor.patch_size


def _by_positions(image_processor: Any, image: np.ndarray) -> Size:
    """From the column and row of each patch, -1 for padding."""
    columns, rows = _outputs(image_processor, image)["image_position_ids"][0].amax(0).tolist()
    # The patches of the unified model hold the pixels of a whole token.
    token = image_processor.pooling_kernel_size if _kind(image_processor) == "Gemma4Unified" else 1
    side = image_processor.patch_size * token
    return (columns + 1) * side, (rows + 1) * side


def _by_sides(image_processor: Any, image: np.ndarray) -> Size:
    rows, columns = _outputs(image_processor, image)["image_sizes"][0]
    return int(columns), int(rows)


def _by_width_and_height(image_processor: Any, image: np.ndarray) -> Size:
    told = _outputs(image_processor, image)
    return int(told["width"][0]), int(told["height"][0])


def _by_rows_and_columns(image_processor: Any, image: np.ndarray) -> Size:
    """From the number of tiles; 0 is an image in one piece."""
    told = _outputs(image_processor, image, return_row_col_info=True)
    side = image_processor.max_image_size["longest_edge"]
    return max(told["cols"][0][0], 1) * side, max(told["rows"][0][0], 1) * side


def _by_tiles_or_patches(image_processor: Any, image: np.ndarray) -> Size:
    told = _outputs(image_processor, image, return_row_col_info=True)
    rows, columns, side = int(told["image_rows"][0]), int(told["image_cols"][0]), image_processor.tile_size
    if rows * columns <= 1:
        (rows, columns), side = told["spatial_shapes"][0].tolist(), image_processor.encoder_patch_size
    return columns * side, rows * side


def _by_slices(image_processor: Any, image: np.ndarray) -> Size:
    told = _outputs(image_processor, image)
    (rows, columns), (slice_rows, slice_columns) = told["grids"][0], told["target_sizes"][-1].tolist()
    side = image_processor.patch_size
    return max(columns, 1) * slice_columns * side, max(rows, 1) * slice_rows * side


def _by_canvas(image_processor: Any, image: np.ndarray) -> Size:
    """InternVL's outputs tell the number of tiles, not their rows: its own function is asked."""
    width, height = image_processor.size["width"], image_processor.size["height"]
    if not image_processor.crop_to_patches:
        return (width, height) if image_processor.do_resize else (image.shape[1], image.shape[0])
    canvas = import_module(type(image_processor).__module__).get_optimal_tiled_canvas
    limits = image_processor.min_patches, image_processor.max_patches
    columns, rows = canvas(image.shape[:2], (height, width), *limits)
    return columns * width, rows * height


_ASKED: dict[tuple[str, int, int], Size] = {}

#: And Qwen2.5-VL, Qwen3-VL, Qwen3.5, Qwen3-Omni, LFM3-VL.
_QWEN = frozenset({"Qwen2VL", "Ernie4_5_VLMoe", "HunYuanVL", "MiniMaxM3VL", "VideoLlama3"})
#: Kinds that squeeze every image into one size, if their settings say so.
_ONE_SIZE = frozenset({"Blip", "CLIP", "Gemma3", "Siglip"})
_TOLD: Mapping[str, Callable[[Any, np.ndarray], Size]] = {
    **dict.fromkeys(("Glm4v", "Glm46V", "Glmga", "Cosmos3Edge", "Kimi_K25"), _by_grid),
    **dict.fromkeys(("Gemma4", "Gemma4Unified"), _by_positions),
    **dict.fromkeys(("Idefics3", "SmolVLM"), _by_rows_and_columns),
    "GotOcr2": _by_canvas,  # InternVL
    "Kosmos2_5": _by_width_and_height,
    "Lfm2Vl": _by_tiles_or_patches,
    "MiniCPMV4_6": _by_slices,  # and MiniCPM-V 4.7
    "Pixtral": _by_sides,  # and Mistral 3, LightOnOCR
}

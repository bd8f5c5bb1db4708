"""Film sizes as the model sees them.

Qwen2-VL, Qwen2.5-VL and Qwen3-VL take films of any shape, but only after their image processor has rounded
both sides to whole patches and brought the area between two limits. Boxes in resized pixels (Qwen2.5-VL)
mean nothing without that size, and it depends on how *this* processor is configured.
"""

from __future__ import annotations

import math
from typing import Any

_MAX_ASPECT_RATIO = 200


def has_resized_size(processor: Any) -> bool:
    """Whether `resized_size` knows how this processor resizes: an image processor of the Qwen2-VL kind.

    Args:
        processor: A `transformers` processor, image processor or tokenizer.

    >>> has_resized_size("a tokenizer")
    False
    """
    image_processor = getattr(processor, "image_processor", processor)
    return type(image_processor).__name__.startswith("Qwen2VLImageProcessor")


def resized_size(processor: Any, width: int, height: int) -> tuple[int, int]:
    """Width and height in pixels that the processor resizes a film to.

    The same numbers as `image_grid_thw * patch_size`, without touching an image. Source: `smart_resize` in
    `transformers/models/qwen2_vl/image_processing_qwen2_vl.py`.

    Args:
        processor: The processor (or image processor) of a Qwen2-VL, Qwen2.5-VL or Qwen3-VL model; its pixel
            limits, patch size and merge size are read from it.
        width: Width of the film in pixels, as it is handed to the processor.
        height: Height of the film in pixels.

    Returns:
        `(resized_width, resized_height)` in pixels.

    Raises:
        ValueError: Another kind of processor, a size below one pixel, or one side more than 200 times the
            other.

    >>> class Qwen2VLImageProcessor:
    ...     size = {"shortest_edge": 56 * 56, "longest_edge": 1280 * 28 * 28}
    ...     patch_size, merge_size, do_resize = 14, 2, True
    >>> resized_size(Qwen2VLImageProcessor(), width=2544, height=3056)
    (896, 1092)
    """
    if not has_resized_size(processor):
        raise ValueError(
            "Expected the processor of a Qwen2-VL, Qwen2.5-VL or Qwen3-VL model for processor, "
            f"got {type(processor).__name__}. "
            "Add resized_width and resized_height columns to the dataset instead."
        )
    if width < 1 or height < 1:
        raise ValueError(
            f"Expected at least one pixel for width and height, got {width} x {height}. "
            "Give the size of the film in pixels."
        )
    image_processor = getattr(processor, "image_processor", processor)
    if not image_processor.do_resize:
        return width, height
    if max(width, height) > _MAX_ASPECT_RATIO * min(width, height):
        raise ValueError(
            f"Expected sides within a ratio of {_MAX_ASPECT_RATIO} for width and height, "
            f"got {width} x {height}. The processor refuses such films; crop or drop this one."
        )
    factor = image_processor.patch_size * image_processor.merge_size
    min_pixels, max_pixels = image_processor.size["shortest_edge"], image_processor.size["longest_edge"]
    resized_width, resized_height = round(width / factor) * factor, round(height / factor) * factor
    if resized_width * resized_height > max_pixels:
        # beta = sqrt(width * height / max_pixels);  side = max(factor, floor(side / beta / factor) * factor)
        beta = math.sqrt((height * width) / max_pixels)
        resized_width = max(factor, math.floor(width / beta / factor) * factor)
        resized_height = max(factor, math.floor(height / beta / factor) * factor)
    elif resized_width * resized_height < min_pixels:
        # beta = sqrt(min_pixels / (width * height));  side = ceil(side * beta / factor) * factor
        beta = math.sqrt(min_pixels / (height * width))
        resized_width = math.ceil(width * beta / factor) * factor
        resized_height = math.ceil(height * beta / factor) * factor
    return resized_width, resized_height

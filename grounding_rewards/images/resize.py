"""Image sizes as the model sees them.

Models take images of any shape, but only after their image processor has resized them: Qwen's rounds both sides to
whole patches and brings the area between two limits, others squeeze an image into one size or cut it into tiles. Boxes
in resized pixels (Qwen2.5-VL, Kosmos-2.5) mean nothing without that size, it depends on how *this* processor is
configured, and a finding that it makes a few pixels small cannot be found.

Qwen's formula, and the one size of those that squeeze, need no `transformers` and no image. The sizes of other kinds
are not known here. Kosmos-2.5's is one of them: nothing can train it yet, so a dataset for it needs the columns.

A limit that the user sets is kept in the processor, which is saved with the model, so that a warm start, GRPO and
evaluations all feed images of the same size.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

from grounding_rewards.common.config_files import find_shipped
from grounding_rewards.images.decoding import shrunken_size, stored_sizes

if TYPE_CHECKING:
    from datasets import Dataset

Size = tuple[int, int]

#: Kinds of image processors with Qwen's formula. "Qwen2VL" is that of Qwen2.5-VL, Qwen3-VL, Qwen3.5, Qwen3-Omni and
#: LFM3-VL too.
_QWEN = frozenset({"Qwen2VL", "Ernie4_5_VLMoe", "HunYuanVL", "MiniMaxM3VL", "VideoLlama3"})
#: Kinds that squeeze every image into one size, if their settings say so.
_ONE_SIZE = frozenset({"Blip", "CLIP", "Gemma3", "Siglip"})
# The attribute of an image processor that holds the user's limit; it is saved with the processor.
_LIMIT = "max_image_pixels"
_MAX_ASPECT_RATIO = 200


def load_processor(model: str) -> Any:
    """The `transformers` processor of a model.

    Args:
        model: its folder or id, as the option --model names it.

    Raises:
        ValueError: it cannot be loaded.
    """
    from transformers import AutoProcessor

    try:
        return AutoProcessor.from_pretrained(find_shipped(model), trust_remote_code=False)
    # transformers raises many types: for a missing folder, a broken JSON file, a missing package.
    except Exception as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
        raise ValueError(
            f"Expected a folder or id of a model for --model, got {model!r} ({reason}). "
            "Name a folder with the files of its processor, or an id that is in the cache or can be reached."
        ) from error


def has_resized_size(processor: Any) -> bool:
    """Whether `resized_size` knows how this processor resizes.

    Example:
        >>> has_resized_size("a tokenizer")
        False
    """
    return limits_area(processor) or _squeezes(processor)


def limits_area(processor: Any) -> bool:
    """Whether a processor resizes by Qwen's formula, which brings the area between two limits.

    Example:
        >>> limits_area("a tokenizer")
        False
    """
    return _kind(processor) in _QWEN


def resized_size(processor: Any, width: int, height: int) -> Size:
    """Width and height in pixels that the processor resizes an image to.

    An image above the limit of :func:`set_image_size` is shrunk to it first, as :func:`fit_images` does.

    Args:
        processor: the processor, or image processor, of a model; its settings are read from it.
        width: width of the image in pixels, as it is handed to the processor.
        height: height of the image in pixels.

    Returns:
        `(resized_width, resized_height)` in pixels.

    Raises:
        ValueError: a processor whose rule is not known, a size below one pixel, or a shape that the processor refuses.

    Example:
        >>> class Qwen2VLImageProcessor:
        ...     size = {"shortest_edge": 56 * 56, "longest_edge": 1280 * 28 * 28}
        ...     patch_size, merge_size, do_resize = 14, 2, True
        >>> resized_size(Qwen2VLImageProcessor(), width=2544, height=3056)
        (896, 1092)
    """
    image_processor = image_processor_of(processor)
    if not has_resized_size(processor):
        raise ValueError(
            f"Expected a processor whose way to resize is known for processor, got {type(image_processor).__name__}. "
            "Measure it: call the processor with one image of each size and read what comes out (image_grid_thw times "
            "patch_size, or the sides of pixel_values), and add columns resized_width, resized_height."
        )
    if width < 1 or height < 1:
        raise ValueError(
            f"Expected at least one pixel for width and height, got {width} x {height}. "
            "Give the size of the image in pixels."
        )
    if _squeezes(processor):
        if image_processor.do_resize:
            return image_processor.size["width"], image_processor.size["height"]
        # It leaves sizes as they are: only the limit of `set_image_size` shrinks its images.
        return fitted_size(processor, width, height)
    if not image_processor.do_resize:
        return width, height
    # By Qwen's formula, whose largest area `set_image_size` set to its limit.
    return _whole_patches(image_processor, width, height)


def _whole_patches(image_processor: Any, width: int, height: int) -> Size:
    """The size by Qwen's formula: whole tokens on each side, with the area between the processor's two limits.

    Source: `smart_resize` in transformers' image_processing_qwen2_vl.py.
    """
    if max(width, height) > _MAX_ASPECT_RATIO * min(width, height):
        raise ValueError(
            f"Expected sides within a ratio of {_MAX_ASPECT_RATIO} for width and height, "
            f"got {width} x {height}. The processor refuses such images; crop or drop this one."
        )
    # The side of a token in pixels: a square of merged patches.
    factor = image_processor.patch_size * image_processor.merge_size
    # In spite of their names these are areas in pixels.
    min_area, max_area = image_processor.size["shortest_edge"], image_processor.size["longest_edge"]
    rounded = round(width / factor) * factor, round(height / factor) * factor
    new_width, new_height = size_within((width, height), rounded, factor, min_area, max_area)
    # A side of a narrow image may round to nothing: it has one token at least.
    return max(factor, new_width), max(factor, new_height)


def size_within(size: Size, rounded: Size, factor: int, min_area: int, max_area: int) -> Size:
    """Width and height in whole tokens by Qwen's formula, in pixels: `rounded`, unless its area is outside two limits.

    Args:
        size: width and height of the image in pixels.
        rounded: width and height of the result without limits, each a whole number of tokens, in pixels.
        factor: side of a token in pixels.
        min_area: smallest area of the result, in pixels.
        max_area: largest area of the result, in pixels; a side of a narrow image may become 0.

    Example:
        >>> size_within((2544, 3056), (2548, 3052), 28, 3136, 1280 * 28 * 28)
        (896, 1092)
    """
    width, height = size
    if math.prod(rounded) > max_area:
        # How much longer the sides are than those of an image of the same shape and the largest area.
        shrinkage = math.sqrt(height * width / max_area)
        return math.floor(width / shrinkage / factor) * factor, math.floor(height / shrinkage / factor) * factor
    if math.prod(rounded) < min_area:
        growth = math.sqrt(min_area / (height * width))
        return math.ceil(width * growth / factor) * factor, math.ceil(height * growth / factor) * factor
    return rounded


def _squeezes(processor: Any) -> bool:
    """Whether the processor brings every image into one size, without cutting anything off."""
    if _kind(processor) not in _ONE_SIZE:
        return False
    image_processor = image_processor_of(processor)
    # Settings that crop the image, or cut it into tiles.
    cuts = getattr(image_processor, "do_center_crop", False) or getattr(image_processor, "do_pan_and_scan", False)
    size = image_processor.size or {}
    return not cuts and bool(size.get("width") and size.get("height"))


def _kind(processor: Any) -> str:
    """The kind of an image processor: `Qwen2VL` for the classes Qwen2VLImageProcessor and Qwen2VLImageProcessorPil."""
    return type(image_processor_of(processor)).__name__.removesuffix("Pil").removesuffix("ImageProcessor")


def image_processor_of(processor: Any) -> Any:
    """The image processor of a processor; an image processor is returned as it is.

    Example:
        >>> image_processor_of("an image processor")
        'an image processor'
    """
    return getattr(processor, "image_processor", processor)


def set_image_size(processor: Any, max_image_pixels: int | None) -> list[str]:
    """Limit the images that a processor, and every copy of it that is saved, sees to so many pixels.

    Processors whose settings have a largest area, as Qwen's, get the limit as their own, so that programs that know
    nothing of this package keep it too. For all others it is a note in the processor that :func:`fit_images` follows.

    Args:
        processor: a `transformers` processor or image processor; it is changed.
        max_image_pixels: largest area of an image in pixels; None keeps what the processor says.

    Returns:
        A list with one sentence, a notice, where the model was saved with another limit; else an empty list.

    Raises:
        ValueError: fewer pixels than one token of the model covers, or a processor without an image processor.

    Example:
        >>> from types import SimpleNamespace
        >>> set_image_size(SimpleNamespace(max_image_pixels=50176), 100352)
        ['The model was saved with max_image_pixels 50176; here the largest image has 100352 pixels.']
    """
    old_limit = image_pixel_limit(processor)
    if max_image_pixels is None or max_image_pixels == old_limit:
        return []
    image_processor = image_processor_of(processor)
    # A tokenizer, which a model without images has as its processor, or an object without attributes to set.
    if not hasattr(image_processor, "__dict__") or hasattr(image_processor, "convert_tokens_to_ids"):
        raise ValueError(
            f"Expected a processor of images for max_image_pixels, got {type(processor).__name__}. Leave it out."
        )
    has_area = limits_area(processor)
    # By Qwen's formula an image has at least one token, which is a square of merged patches.
    min_pixels = (image_processor.patch_size * image_processor.merge_size) ** 2 if has_area else 1
    if max_image_pixels < min_pixels:
        raise ValueError(
            f"Expected at least {min_pixels} for max_image_pixels, the pixels of one image token, got "
            f"{max_image_pixels}. An image needs some hundred tokens."
        )
    if has_area:
        # A copy, because the sizes may belong to the class. The `edges` are areas in pixels.
        size = copy.copy(image_processor.size)
        size["longest_edge"] = max_image_pixels
        size["shortest_edge"] = min(size["shortest_edge"], max_image_pixels)
        image_processor.size = size
    setattr(image_processor, _LIMIT, max_image_pixels)
    if old_limit is None:
        return []
    return [
        f"The model was saved with max_image_pixels {old_limit}; here the largest image has {max_image_pixels} pixels."
    ]


def image_pixel_limit(processor: Any) -> int | None:
    """The limit that :func:`set_image_size` gave this processor or image processor; None where it never did.

    Example:
        >>> image_pixel_limit("a processor as its makers left it") is None
        True
    """
    return getattr(image_processor_of(processor), _LIMIT, None)


def fitted_size(processor: Any, width: int, height: int) -> Size:
    """Width and height in pixels that :func:`fit_images` brings an image of this width and height to.

    Example:
        >>> from types import SimpleNamespace
        >>> fitted_size(SimpleNamespace(max_image_pixels=80_000), 2000, 1000)
        (400, 200)
    """
    limit = image_pixel_limit(processor)
    if limit is None or width * height <= limit:
        return width, height
    if not limits_area(processor):
        return shrunken_size(width, height, limit)
    resized = resized_size(processor, width, height)
    # The size that the processor, whose own limit this is, makes of the image. Rounded to whole tokens, a narrow image
    # may fall below the smallest area, and the processor would enlarge it again: then it stays as it is.
    return resized if resized_size(processor, *resized) == resized else (width, height)


def fit_images(dataset: Dataset, processor: Any) -> Dataset:
    """The dataset with every image as large as a limited processor takes it; boxes stay in pixels of the original.

    The processor would do it too. Done once, it saves decoding and shrinking a large image for each of its answers, and
    a server that generates with a processor of its own gets images that it leaves as they are.

    Args:
        dataset: rows, with or without a column `image`.
        processor: a `transformers` processor or image processor.

    Example:
        >>> from datasets import Dataset
        >>> fit_images(Dataset.from_dict({"width": [2000]}), "a processor as its makers left it")[0]
        {'width': 2000}
    """
    from PIL.Image import Resampling

    if image_pixel_limit(processor) is None or "image" not in dataset.column_names:
        return dataset
    sizes = list(stored_sizes(dataset))
    fitted_sizes = [None if size is None else fitted_size(processor, *size) for size in sizes]
    if fitted_sizes == sizes:
        return dataset

    def fit(image: Any, number: int) -> dict[str, Any]:
        """The column `image` of the row of this number, with the image in its fitted size."""
        if image is None or fitted_sizes[number] == image.size:
            return {"image": image}
        # With this gap Pillow first shrinks by whole numbers, which is faster and looks the same.
        return {"image": image.resize(fitted_sizes[number], Resampling.BICUBIC, reducing_gap=3.0)}

    return dataset.map(fit, input_columns="image", with_indices=True, desc="shrinking images")


def largest_image(processor: Any) -> str:
    """Say in one line, for the start of a command, how large images are at most when the model sees them.

    Example:
        >>> largest_image("a processor as its makers left it")
        'Image size: as the processor of the model says.'
    """
    limit = image_pixel_limit(processor)
    if not limits_area(processor):
        limit_words = "" if limit is None else f"at most {limit} pixels (max_image_pixels), then "
        return f"Image size: {limit_words}as the processor of the model says."
    image_processor = image_processor_of(processor)
    origin = "the model's own limit" if limit is None else "max_image_pixels"
    # The largest area, in spite of its name, and the side of a token, both in pixels.
    pixels, token_side = image_processor.size["longest_edge"], image_processor.patch_size * image_processor.merge_size
    return f"Image size: at most {pixels} pixels ({origin}), {pixels // token_side**2} image tokens."

"""Image sizes as the model sees them.

Models take images of any shape, but only after their image processor has resized them: Qwen's rounds both sides to
whole patches and brings the area between two limits, others squeeze an image into one size or cut it into tiles
(`grounding_rewards.images.resize_rules`). Boxes in resized pixels (Qwen2.5-VL) mean nothing without that size, it
depends on how *this* processor is configured, and a finding that it makes a few pixels small cannot be found.

A limit that the user sets is kept in the processor, which is saved with the model, so that a warm start, GRPO and
evaluations all feed images of the same size.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

from grounding_rewards.common.config_files import find_shipped
from grounding_rewards.images.decoding import shrunken_size, stored_sizes
from grounding_rewards.images.resize_rules import is_known, limits_area, processor_size

if TYPE_CHECKING:
    from datasets import Dataset

#: The attribute of an image processor that holds the user's limit; it is saved with the processor.
LIMIT = "max_image_pixels"


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
    return is_known(_image_processor(processor))


def resized_size(processor: Any, width: int, height: int) -> tuple[int, int]:
    """Width and height in pixels that the processor resizes an image to.

    Qwen's formula tells it; a processor of another known kind is called once for each size. Where it cuts an image into
    tiles it is the size before that, without the small copy of the whole. An image above the limit of
    :func:`limit_image_pixels` is shrunk to it first, as :func:`fit_images` does.

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
    image_processor = _image_processor(processor)
    if not is_known(image_processor):
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
    if not limits_area(image_processor):
        width, height = fitted_size(processor, width, height)
    return processor_size(image_processor, width, height)


def _image_processor(processor: Any) -> Any:
    """The image processor of a processor, with the settings that the processor calls it with."""
    image_processor = getattr(processor, "image_processor", processor)
    # What a processor asks of its image processor, as InternVL's does to cut images into tiles.
    asked = getattr(processor, "images_kwargs", None)
    if asked is None:  # transformers before 5.23
        defaults = getattr(getattr(processor, "valid_processor_kwargs", None), "_defaults", {})
        asked = defaults.get("images_kwargs") or {}
    changed = {name: asked[name] for name in ("crop_to_patches", "do_image_splitting") if name in asked}
    # Pixtral's and Mistral 3's resizes to whole tokens, of several patches each.
    if hasattr(processor, "spatial_merge_size") and hasattr(processor, "patch_size"):
        changed["patch_size"] = processor.patch_size * processor.spatial_merge_size
    if not changed or image_processor is processor:
        return image_processor
    image_processor = copy.copy(image_processor)
    vars(image_processor).update(changed)
    return image_processor


def limit_image_pixels(processor: Any, max_pixels: int) -> None:
    """Let a processor, and every copy of it that is saved, see images of at most so many pixels.

    Processors whose settings have a largest area, as Qwen's, get the limit as their own, so that programs that know
    nothing of this package keep it too. For all others it is a note in the processor that :func:`fit_images` follows.

    Args:
        processor: a `transformers` processor or image processor; it is changed.
        max_pixels: largest area of an image in pixels.

    Raises:
        ValueError: fewer pixels than one token of the model covers, or a processor without an image processor.

    Example:
        >>> from types import SimpleNamespace
        >>> processor = SimpleNamespace(image_processor=SimpleNamespace())
        >>> limit_image_pixels(processor, 1003520)
        >>> image_pixel_limit(processor)
        1003520
    """
    image_processor = getattr(processor, "image_processor", processor)
    if not hasattr(image_processor, "__dict__") or hasattr(image_processor, "convert_tokens_to_ids"):
        raise ValueError(
            f"Expected a processor of images for max_image_pixels, got {type(processor).__name__}. Leave it out."
        )
    least = 1
    if limits_area(image_processor):
        least = (image_processor.patch_size * image_processor.merge_size) ** 2
        # A copy, because the sizes may belong to the class.
        size = copy.copy(image_processor.size)
        size["longest_edge"] = max_pixels
        size["shortest_edge"] = min(size["shortest_edge"], max_pixels)
    if max_pixels < least:
        raise ValueError(
            f"Expected at least {least} for max_image_pixels, the pixels of one image token, got {max_pixels}. "
            "An image needs some hundred tokens."
        )
    if limits_area(image_processor):
        image_processor.size = size
    setattr(image_processor, LIMIT, max_pixels)


def image_pixel_limit(processor: Any) -> int | None:
    """The limit that :func:`limit_image_pixels` gave this processor or image processor; None where it never did.

    Example:
        >>> image_pixel_limit("a processor as its makers left it") is None
        True
    """
    return getattr(getattr(processor, "image_processor", processor), LIMIT, None)


def set_image_size(processor: Any, max_image_pixels: int | None) -> list[str]:
    """Apply the image size of a command to the processor that it loaded, and report where the model had another.

    Args:
        processor: as it was loaded; it is changed.
        max_image_pixels: largest image in pixels; None keeps what the processor says.

    Raises:
        ValueError: the processor cannot be limited.

    Example:
        >>> from types import SimpleNamespace
        >>> set_image_size(SimpleNamespace(max_image_pixels=50176), 100352)
        ['The model was saved with max_image_pixels 50176; here the largest image has 100352 pixels.']
    """
    saved = image_pixel_limit(processor)
    if max_image_pixels is None or max_image_pixels == saved:
        return []
    limit_image_pixels(processor, max_image_pixels)
    if saved is None:
        return []
    return [f"The model was saved with max_image_pixels {saved}; here the largest image has {max_image_pixels} pixels."]


def fitted_size(processor: Any, width: int, height: int) -> tuple[int, int]:
    """Width and height in pixels that :func:`fit_images` brings an image of this width and height to.

    Example:
        >>> from types import SimpleNamespace
        >>> fitted_size(SimpleNamespace(max_image_pixels=80_000), 2000, 1000)
        (400, 200)
    """
    limit = image_pixel_limit(processor)
    if limit is None or width * height <= limit:
        return width, height
    if not limits_area(getattr(processor, "image_processor", processor)):
        return shrunken_size(width, height, limit)
    resized = resized_size(processor, width, height)
    # Rounded to whole tokens, a narrow image may fall below the smallest area; the processor would enlarge it again.
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
    fitted = [None if size is None else fitted_size(processor, *size) for size in sizes]
    if fitted == sizes:
        return dataset

    def fit(image: Any, row: int) -> dict[str, Any]:
        if image is None or fitted[row] == image.size:
            return {"image": image}
        return {"image": image.resize(fitted[row], Resampling.BICUBIC, reducing_gap=3.0)}

    return dataset.map(fit, input_columns="image", with_indices=True, desc="shrinking images")


def largest_image(dataset: Dataset, processor: Any) -> str:
    """How large images are when the model sees them, one line for the start of a command.

    Example:
        >>> from datasets import Dataset
        >>> largest_image(Dataset.from_dict({"width": [2000]}), "a processor as its makers left it")
        'Image size: as the processor of the model says.'
    """
    limit = image_pixel_limit(processor)
    image_processor = getattr(processor, "image_processor", processor)
    if limits_area(image_processor):
        by = "the model's own limit" if limit is None else "max_image_pixels"
        line = f"Image size: at most {image_processor.size['longest_edge']} pixels ({by})"
    elif limit is None:
        line = "Image size: as the processor of the model says"
    else:
        line = f"Image size: at most {limit} pixels (max_image_pixels), then as the processor of the model says"
    fed = list(stored_sizes(dataset)) if has_resized_size(processor) and "image" in dataset.column_names else []
    if not any(fed):
        return f"{line}."
    # The images may be smaller copies of the originals.
    plain = dataset.with_format(None)
    sized = {"width", "height"} <= set(plain.column_names)
    own = zip(plain["width"], plain["height"], strict=True) if sized else fed
    seen = [(resized_size(processor, *size), image) for size, image in zip(fed, own, strict=True) if size and image]
    (width, height), image = max(seen, key=lambda pair: math.prod(pair[0]))
    line += f"; the largest image, {image[0]} x {image[1]}, is seen as {width} x {height}"
    if not limits_area(image_processor):
        return f"{line}."
    side = image_processor.patch_size * image_processor.merge_size
    return f"{line}, {width * height // side**2} image tokens."

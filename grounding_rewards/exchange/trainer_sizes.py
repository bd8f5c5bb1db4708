"""Image sizes as other trainers feed them: what each does to an image before the processor of the model, and whether
that resizes it once more.

Rules of verl 0.9.1 and ms-swift 4.6.0 with qwen-vl-utils 0.0.14, of EasyR1 at 46c6c21 and OpenRLHF 0.11.2, read in
November 2026. They hold for processors of the Qwen2-VL kind, the only ones after which a model may count in resized
pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from grounding_rewards.images.resize import resized_size

TRAINERS = ("verl", "easyr1", "ms-swift", "openrlhf")
"""The trainers for which :func:`trainer_size` knows how they resize."""

# Tokens of an image, as qwen-vl-utils bounds them where nothing else is said.
_LEAST_TOKENS, _MOST_TOKENS = 4, 16384
_EASYR1_LIMITS = (262_144, 4_194_304)


@dataclass(frozen=True)
class PixelLimits:
    """The smallest and largest area of an image in pixels that a trainer is told; None leaves its own."""

    least: int | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        for argument, value in (("--min-pixels", self.least), ("--max-pixels", self.most)):
            if value is not None and value < 1:
                raise ValueError(f"Expected at least 1 for {argument}, got {value}. Give an area in pixels.")
        if self.least is not None and self.most is not None and self.least > self.most:
            raise ValueError(
                f"Expected --min-pixels up to --max-pixels, {self.most}, got {self.least}. Exchange or leave out one."
            )


ITS_OWN = PixelLimits()
"""The limits that a trainer has where it is told none."""


def trainer_limits(trainer: str, limits: PixelLimits) -> PixelLimits:
    """The limits that a trainer applies itself, its own where none are given; None where it has none.

    Args:
        trainer: one of :data:`TRAINERS`.
        limits: as the user wants them.

    Raises:
        ValueError: limits for OpenRLHF, which hands images to the processor as they are.

    Example:
        >>> trainer_limits("easyr1", PixelLimits(most=1_003_520))
        PixelLimits(least=262144, most=1003520)
    """
    if trainer == "openrlhf" and limits != ITS_OWN:
        raise ValueError(
            "Expected neither --min-pixels nor --max-pixels for openrlhf, got one. It hands images to the processor as "
            "they are: set the limits in the model's preprocessor_config.json, or shrink images with prepare --side."
        )
    if trainer != "easyr1":
        return limits
    least, most = _EASYR1_LIMITS
    most = most if limits.most is None else limits.most
    return PixelLimits(min(least, most) if limits.least is None else limits.least, most)


def trainer_size(
    trainer: str, processor: Any, width: int, height: int, limits: PixelLimits = ITS_OWN
) -> tuple[int, int]:
    """Width and height in pixels of an image as the model sees it under a trainer.

    Args:
        trainer: one of :data:`TRAINERS`.
        processor: of the Qwen2-VL kind, see :func:`grounding_rewards.images.resize.has_resized_size`.
        width: width of the image in pixels, as its file has it.
        height: height of the image in pixels.
        limits: what the trainer is told.

    Raises:
        ValueError: the image is so narrow that the trainer or the processor refuses it, or the limits do not fit.

    Example:
        >>> class Qwen2VLImageProcessor:
        ...     size = {"shortest_edge": 56 * 56, "longest_edge": 1280 * 28 * 28}
        ...     patch_size, merge_size, do_resize = 14, 2, True
        >>> [trainer_size(trainer, Qwen2VLImageProcessor(), 2544, 3056) for trainer in TRAINERS]
        [(896, 1092), (896, 1092), (2548, 3052), (896, 1092)]
    """
    limits = trainer_limits(trainer, limits)
    # The merge size of qwen_vl_utils is 2, whatever the processor has.
    side = getattr(processor, "image_processor", processor).patch_size * 2
    if trainer == "ms-swift":
        # The processor is told not to resize; MIN_PIXELS and MAX_PIXELS are cut to whole tokens.
        whole = (None if limit is None else limit // side**2 * side**2 for limit in (limits.least, limits.most))
        return qwen_vl_utils_size(width, height, side, PixelLimits(*whole))
    if trainer == "verl":
        width, height = qwen_vl_utils_size(width, height, side, limits)
    elif trainer == "easyr1":
        width, height = easyr1_size(width, height, limits)
    return resized_size(processor, width, height)


def easyr1_size(width: int, height: int, limits: PixelLimits) -> tuple[int, int]:
    """Width and height that EasyR1 resizes an image to before the processor: by area, sides cut to whole pixels.

    Source: `process_image` in `verl/utils/dataset.py`.

    Example:
        >>> easyr1_size(3000, 2000, PixelLimits(least=4, most=1_000_000))
        (1224, 816)
    """
    # side = int(side * sqrt(limit / (width * height))), first for the largest area, then for the smallest
    for limit, beyond in ((limits.most, 1), (limits.least, -1)):
        if limit is not None and beyond * (width * height) > beyond * limit:
            scale = math.sqrt(limit / (width * height))
            width, height = int(width * scale), int(height * scale)
            if not (width and height):
                raise ValueError("Expected an image that EasyR1 can resize, got one so narrow that no pixel is left.")
    return width, height


def qwen_vl_utils_size(width: int, height: int, factor: int, limits: PixelLimits) -> tuple[int, int]:
    """Width and height that `qwen_vl_utils.fetch_image` resizes an image to: whole tokens, the area between limits.

    Source: `smart_resize` in `qwen_vl_utils/vision_process.py`. Where a side rounds to nothing it differs from the
    function of this name in transformers, see :func:`grounding_rewards.images.resize.resized_size`.

    Args:
        width: width of the image in pixels.
        height: height of the image in pixels.
        factor: side of a token in pixels.
        limits: areas; None is 4 and 16384 tokens.

    Example:
        >>> qwen_vl_utils_size(2544, 3056, 28, PixelLimits(most=1280 * 28 * 28))
        (896, 1092)
    """
    least = _LEAST_TOKENS * factor**2 if limits.least is None else limits.least
    most = _MOST_TOKENS * factor**2 if limits.most is None else limits.most
    if least > most:
        raise ValueError(
            f"Expected at least {least} for --max-pixels, the smallest area of an image, got {most}. "
            "Raise it, or lower --min-pixels."
        )
    if max(width, height) > 200 * min(width, height):
        raise ValueError(
            f"Expected sides within a ratio of 200, got {width} x {height}. qwen_vl_utils refuses such images; crop or "
            "drop this one."
        )
    new_width, new_height = (max(factor, round(side / factor) * factor) for side in (width, height))
    if new_width * new_height > most:
        # beta = sqrt(width * height / most);  side = floor(side / beta / factor) * factor
        beta = math.sqrt((height * width) / most)
        new_width, new_height = (math.floor(side / beta / factor) * factor for side in (width, height))
    elif new_width * new_height < least:
        # beta = sqrt(least / (width * height));  side = ceil(side * beta / factor) * factor
        beta = math.sqrt(least / (height * width))
        new_width, new_height = (math.ceil(side * beta / factor) * factor for side in (width, height))
    if not (new_width and new_height):
        raise ValueError(
            f"Expected an image that qwen_vl_utils can resize, got one of {width} x {height}, which is too narrow for "
            f"{most} pixels. Raise --max-pixels, or drop this one."
        )
    return new_width, new_height

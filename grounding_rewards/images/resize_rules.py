"""How image processors resize: a rule for each kind, without touching an image.

A rule takes the image processor, whose settings it reads, and the width and height of an image, and gives the width and
height in pixels that the whole image is resized to: before it is cut into tiles and before it is padded, and without
the small copy of the whole that some models see besides. Every rule is that of a class of `transformers`, named beside
it, and is held against that class in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Size = tuple[int, int]

_MAX_ASPECT_RATIO = 200
#: Idefics3 and SmolVLM never resize a side beyond it.
_LONGEST_SIDE = 4096


class Rule(NamedTuple):
    """How one kind of image processor resizes.

    Attributes:
        size: image processor, width and height of an image to the resized width and height.
        heeds_do_resize: whether the processor leaves images as they are with `do_resize: false`.
        limits_area: whether `size` of the processor holds the smallest and the largest area of a resized image in
            pixels, as `shortest_edge` and `longest_edge`.
    """

    size: Callable[[Any, int, int], Size]
    heeds_do_resize: bool = True
    limits_area: bool = False


def rule_of(image_processor: Any) -> Rule | None:
    """The rule of an image processor, by the name of its class; None where it is not known.

    Example:
        >>> rule_of("a tokenizer") is None
        True
    """
    name = type(image_processor).__name__
    # The same rule for the implementations with Pillow, with torchvision, and that of earlier releases.
    kind = name.removesuffix("Pil").removesuffix("Fast").removesuffix("ImageProcessor")
    if kind in _ONE_SIZE:
        return _FIXED if _squeezes(image_processor) else None
    return RULES.get(kind)


def _area_limits(image_processor: Any, width: int, height: int) -> Size:
    """Whole patches, with the area between two limits.

    Source: `smart_resize` in transformers' image_processing_qwen2_vl.py.
    """
    _check_ratio(width, height)
    factor = image_processor.patch_size * image_processor.merge_size
    return _into_area(
        width, height, _rounded(width, factor), _rounded(height, factor), factor, _limits(image_processor)
    )


def _area_limits_in_time(image_processor: Any, width: int, height: int) -> Size:
    """As :func:`_area_limits`, but the limits count every copy in time, and small images are enlarged first.

    Source: `smart_resize` in transformers' image_processing_glm4v.py.
    """
    factor = image_processor.patch_size * image_processor.merge_size
    if min(width, height) < factor:
        scale = max(factor / height, factor / width)
        width, height = int(width * scale), int(height * scale)
    _check_ratio(width, height)
    rounded = _rounded(width, factor), _rounded(height, factor)
    return _into_area(
        width, height, *rounded, factor, _limits(image_processor), copies=image_processor.temporal_patch_size
    )


def _into_area(
    width: int, height: int, rounded_width: int, rounded_height: int, factor: int, limits: Size, copies: int = 1
) -> Size:
    least, most = limits
    area = copies * rounded_width * rounded_height
    if area > most:
        # beta = sqrt(width * height / most);  side = max(factor, floor(side / beta / factor) * factor)
        beta = math.sqrt(copies * height * width / most)
        return (
            max(factor, math.floor(width / beta / factor) * factor),
            max(factor, math.floor(height / beta / factor) * factor),
        )
    if area < least:
        # beta = sqrt(least / (width * height));  side = ceil(side * beta / factor) * factor
        beta = math.sqrt(least / (copies * height * width))
        return math.ceil(width * beta / factor) * factor, math.ceil(height * beta / factor) * factor
    return rounded_width, rounded_height


def _tokens_or_tiles(image_processor: Any, width: int, height: int) -> Size:
    """A small image keeps its shape between two numbers of tokens; a large one becomes a grid of tiles.

    Source: `resize_and_split` in transformers' image_processing_lfm2_vl.py.
    """
    patch = image_processor.encoder_patch_size
    factor = patch * image_processor.downsample_factor
    rounded = _rounded(width, factor), _rounded(height, factor)
    most = image_processor.max_image_tokens * factor**2
    large = max(patch, rounded[0]) * max(patch, rounded[1]) > most * image_processor.max_pixels_tolerance
    least_tiles, most_tiles = image_processor.min_tiles, image_processor.max_tiles
    if large and image_processor.do_image_splitting and (least_tiles, most_tiles) != (1, 1):
        return _tiled(width, height, image_processor.tile_size, image_processor.tile_size, least_tiles, most_tiles)
    limits = image_processor.min_image_tokens * factor**2, most
    return _into_area(width, height, max(factor, rounded[0]), max(factor, rounded[1]), factor, limits)


def _squeezed_or_tiled(image_processor: Any, width: int, height: int) -> Size:
    """One tile, or as many as fit the shape of the image best.

    Source: `crop_image_to_patches` in transformers' image_processing_got_ocr2.py.
    """
    tile_width, tile_height = _fixed(image_processor, width, height)
    if not image_processor.crop_to_patches:
        return (tile_width, tile_height) if image_processor.do_resize else (width, height)
    least, most = image_processor.min_patches, image_processor.max_patches
    return _tiled(width, height, tile_width, tile_height, least, most)


def _tiled(width: int, height: int, tile_width: int, tile_height: int, least: int, most: int) -> Size:
    """The grid of tiles whose shape is closest to the image's; of grids of one shape the larger, unless it would
    enlarge the image to twice its area."""
    every = range(1, most + 1)
    grids = [(columns, rows) for columns in every for rows in every if least <= columns * rows <= most]
    best, closest = (1, 1), math.inf
    for columns, rows in sorted(grids, key=math.prod):
        off = abs(width / height - columns / rows)
        if off < closest or (off == closest and width * height > 0.5 * tile_width * tile_height * columns * rows):
            best, closest = (columns, rows), off
    return best[0] * tile_width, best[1] * tile_height


def _longest_side(image_processor: Any, width: int, height: int) -> Size:
    """The longest side to a fixed length, then both up to whole tiles.

    Source: `resize`, `resize_for_vision_encoder` in transformers' image_processing_idefics3.py.
    """
    tile = image_processor.max_image_size["longest_edge"]
    if not image_processor.do_image_splitting:
        return tile, tile
    if image_processor.do_resize and (longest := _stated(image_processor.size, "longest_edge")):
        width, height = _to_longest(width, height, longest)
    elif image_processor.do_resize:
        width, height = _fixed(image_processor, width, height)
    ratio = width / height
    if width >= height:
        width = math.ceil(width / tile) * tile
        return width, math.ceil(int(width / ratio) / tile) * tile
    height = math.ceil(height / tile) * tile
    return math.ceil(int(height * ratio) / tile) * tile, height


def _to_longest(width: int, height: int, longest: int) -> Size:
    ratio = width / height
    if width >= height:
        width, height = longest, _even(int(longest / ratio))
        ratio = width / height
        return (_LONGEST_SIDE, max(1, int(_LONGEST_SIDE / ratio))) if width > _LONGEST_SIDE else (width, height)
    width, height = _even(int(longest * ratio)), longest
    ratio = width / height
    return (max(1, int(_LONGEST_SIDE * ratio)), _LONGEST_SIDE) if height > _LONGEST_SIDE else (width, height)


def _even(side: int) -> int:
    return max(1, side + side % 2)


def _most_patches(image_processor: Any, width: int, height: int) -> Size:
    """Shrunk where it has too many patches, never enlarged; the padding to whole patches is not counted.

    Source: `navit_resize` in transformers' image_processing_kimi_k25.py.
    """
    patch = image_processor.patch_size
    longest = image_processor.size["max_height"] * patch
    patches = max(1.0, height // patch) * max(1.0, width // patch)
    scale = min(1.0, math.sqrt(image_processor.max_patches / patches), longest / height, longest / width)
    return min(max(1, int(width * scale)), longest), min(max(1, int(height * scale)), longest)


def _all_tokens(image_processor: Any, width: int, height: int) -> Size:
    """Shrunk or enlarged to as many whole tokens as there may be.

    Source: `get_aspect_ratio_preserving_size` in transformers' image_processing_gemma4.py.
    """
    token = image_processor.pooling_kernel_size * image_processor.patch_size
    most = image_processor.max_soft_tokens
    patches = most * image_processor.pooling_kernel_size**2
    # scale = sqrt(pixels of all tokens / (width * height))
    scale = math.sqrt(patches * image_processor.patch_size**2 / (height * width))
    columns, rows = math.floor(scale * width / token), math.floor(scale * height / token)
    if rows == 0:
        columns, rows = min(width // height, most), 1
    elif columns == 0:
        columns, rows = 1, min(height // width, most)
    return columns * token, rows * token


def _all_patches(image_processor: Any, width: int, height: int) -> Size:
    """Shrunk or enlarged to as many whole patches as there may be.

    Source: `extract_flattened_patches` in transformers' image_processing_kosmos2_5.py.
    """
    patch_width, patch_height = image_processor.patch_size["width"], image_processor.patch_size["height"]
    most = image_processor.max_patches
    scale = math.sqrt(most * (patch_height / height) * (patch_width / width))
    columns = max(min(math.floor(scale * width / patch_width), most), 1)
    rows = max(min(math.floor(scale * height / patch_height), most), 1)
    return columns * patch_width, rows * patch_height


def _slices(image_processor: Any, width: int, height: int) -> Size:
    """A small image keeps its shape at a fixed area; a large one becomes a grid of slices of about that area each.

    Source: `find_best_resize`, `get_sliced_grid`, `get_refine_size` in transformers' image_processing_minicpmv4_6.py.
    """
    grid = _slice_grid(image_processor, width, height) if image_processor.slice_mode else None
    if grid is None:
        return _slice(image_processor, width, height)
    columns, rows = grid
    one_width, one_height = max(_rounded(width, columns), columns), max(_rounded(height, rows), rows)
    one_width, one_height = _slice(image_processor, one_width / columns, one_height / rows)
    return one_width * columns, one_height * rows


def _slice(image_processor: Any, width: float, height: float) -> Size:
    factor = image_processor.patch_size * (2 if image_processor.downsample_mode == "4x" else 4)
    ratio = width / height
    fitted_height = int(image_processor.scale_resolution / math.sqrt(ratio))
    fitted_width = int(fitted_height * ratio)
    return max(_rounded(fitted_width, factor), factor), max(_rounded(fitted_height, factor), factor)


def _slice_grid(image_processor: Any, width: int, height: int) -> Size | None:
    """Columns and rows of the grid whose shape is closest to the image's; None where one slice is enough."""
    most = image_processor.max_slice_nums
    wanted = min(math.ceil(width * height / image_processor.scale_resolution**2), most)
    if wanted <= 1:
        return None
    ratio = math.log(width / height)
    grids = [
        (number // rows, rows)
        for number in (wanted - 1, wanted, wanted + 1)
        if 1 < number <= most
        for rows in range(1, number + 1)
        if number % rows == 0
    ]
    best, closest = (1, 1), math.inf
    for columns, rows in grids:
        off = abs(ratio - math.log(columns / rows))
        if off < closest or (off == closest and rows > best[1]):
            best, closest = (columns, rows), off
    return best


def _within_longest(image_processor: Any, width: int, height: int) -> Size:
    """Shrunk where a side is too long, then both up to whole patches.

    Source: `get_resize_output_image_size` in transformers' image_processing_pixtral.py.
    """
    size, patch = image_processor.size, image_processor.patch_size
    longest = _stated(size, "longest_edge")
    most_width, most_height = (longest, longest) if longest else (size["width"], size["height"])
    patch_width, patch_height = (patch, patch) if isinstance(patch, int) else (patch["width"], patch["height"])
    ratio = max(height / most_height, width / most_width)
    if ratio > 1:
        width, height = math.floor(width / ratio), math.floor(height / ratio)
    return ((width - 1) // patch_width + 1) * patch_width, ((height - 1) // patch_height + 1) * patch_height


def _into_canvas(image_processor: Any, width: int, height: int) -> Size:
    """Keeps its shape, within the canvas of tiles that enlarges it least, or else shrinks it least.

    Source: `get_optimal_tiled_canvas`, `get_image_size_fit_to_canvas` in transformers' image_processing_mllama.py.
    """
    tile, most = image_processor.size["height"], image_processor.max_image_tiles
    every = range(1, most + 1)
    canvases = [(rows * tile, columns * tile) for rows in every for columns in every if rows * columns <= most]
    scales = [min(canvas[0] / height, canvas[1] / width) for canvas in canvases]
    enlarging = [scale for scale in scales if scale >= 1]
    chosen = min(enlarging) if enlarging else max(scales)
    canvas = min((one for one, scale in zip(canvases, scales, strict=True) if scale == chosen), key=math.prod)
    most_height, most_width = min(max(height, tile), canvas[0]), min(max(width, tile), canvas[1])
    by_height, by_width = most_height / height, most_width / width
    if by_width < by_height:
        return most_width, min(math.floor(height * by_width) or 1, most_height)
    return min(math.floor(width * by_height) or 1, most_width), most_height


def _overlapping_crops(image_processor: Any, width: int, height: int) -> Size:
    """A grid of crops that share their margins, of those that enlarge the image the one that enlarges it least.

    Source: `compute_crop_geometry`, `select_tiling` in transformers' image_processing_molmo2.py.
    """
    patch, margin = image_processor.patch_size, sum(image_processor.overlap_margins)
    margin_size = margin * patch
    window = (image_processor.size["height"] // patch - margin) * patch
    every = range(1, image_processor.max_crops + 1)
    grids = [(rows, columns) for rows in every for columns in every if rows * columns <= image_processor.max_crops]
    grids.sort(key=lambda grid: (math.prod(grid), grid[0]))
    # In single precision, as there: it decides between grids that fit alike.
    with np.errstate(divide="ignore"):
        sides = np.array([height - margin_size, width - margin_size], dtype=np.float32)
        scales = (np.array(grids, dtype=np.float32) * np.float32(window) / sides).min(axis=1)
    enlarging = np.where(scales < 1, np.float32(10e9), scales)
    rows, columns = grids[int(scales.argmax() if (scales < 1).all() else enlarging.argmin())]
    return columns * window + margin_size, rows * window + margin_size


def _tiled_or_whole(image_processor: Any, width: int, height: int) -> Size:
    """A large image becomes a grid of tiles; a small one keeps its shape at the side of the copy of the whole.

    Source: `_preprocess` in transformers' image_processing_deepseek_ocr2.py.
    """
    tile, splits = image_processor.tile_size, image_processor.crop_to_patches
    if splits and max(width, height) > tile:
        return _tiled(width, height, tile, tile, image_processor.min_patches, image_processor.max_patches)
    scale = (image_processor.size["height"] if splits else tile) / max(width, height)
    resized = round(width * scale), round(height * scale)
    if 0 in resized:
        raise ValueError(
            f"Expected an image of which something is left at its shorter side, got {width} x {height}. The processor "
            "refuses such images; crop or drop this one."
        )
    return resized


def _fixed(image_processor: Any, width: int, height: int) -> Size:
    """Squeezed into one size, whatever the image's shape."""
    return image_processor.size["width"], image_processor.size["height"]


def _squeezes(image_processor: Any) -> bool:
    """Whether the processor squeezes images into its size, and cuts none of them off."""
    size = getattr(image_processor, "size", None) or {}
    cuts = getattr(image_processor, "do_center_crop", False) or getattr(image_processor, "do_pan_and_scan", False)
    return not cuts and bool(_stated(size, "width") and _stated(size, "height"))


def _stated(size: Any, name: str) -> int | None:
    return size.get(name)


def _limits(image_processor: Any) -> Size:
    return image_processor.size["shortest_edge"], image_processor.size["longest_edge"]


def _rounded(side: float, factor: int) -> int:
    return round(side / factor) * factor


def _check_ratio(width: int, height: int) -> None:
    if max(width, height) > _MAX_ASPECT_RATIO * min(width, height):
        raise ValueError(
            f"Expected sides within a ratio of {_MAX_ASPECT_RATIO} for width and height, "
            f"got {width} x {height}. The processor refuses such images; crop or drop this one."
        )


_FIXED = Rule(_fixed)
_OF_AREA = Rule(_area_limits, limits_area=True)
_IN_TIME = Rule(_area_limits_in_time)
_LONGEST = Rule(_longest_side, heeds_do_resize=False)
_TOKENS = Rule(_all_tokens)

#: Kinds that squeeze every image into one size, if their settings say so.
_ONE_SIZE = frozenset({"Blip", "CLIP", "Gemma3", "Siglip"})

#: The rules, by the name of the class up to `ImageProcessor`.
RULES = {
    "Qwen2VL": _OF_AREA,  # and Qwen2.5-VL, Qwen3-VL, Qwen3.5, Qwen3-Omni, LFM3-VL
    "Ernie4_5_VLMoe": _OF_AREA,
    "HunYuanVL": _OF_AREA,
    "MiniMaxM3VL": _OF_AREA,
    "VideoLlama3": _OF_AREA,
    "Glm4v": _IN_TIME,
    "Glm46V": _IN_TIME,
    "Glmga": _IN_TIME,
    "Cosmos3Edge": _IN_TIME,
    "GotOcr2": Rule(_squeezed_or_tiled, heeds_do_resize=False),  # InternVL
    "Idefics3": _LONGEST,
    "SmolVLM": _LONGEST,
    "Lfm2Vl": Rule(_tokens_or_tiles, heeds_do_resize=False),
    "Kimi_K25": Rule(_most_patches),
    "Gemma4": _TOKENS,
    "Gemma4Unified": _TOKENS,
    "MiniCPMV4_6": Rule(_slices),  # and MiniCPM-V 4.7
    "Kosmos2_5": Rule(_all_patches, heeds_do_resize=False),
    "Pixtral": Rule(_within_longest),  # and Mistral 3, LightOnOCR
    "Mllama": Rule(_into_canvas, heeds_do_resize=False),
    "Molmo2": Rule(_overlapping_crops, heeds_do_resize=False),
    "DeepseekOcr2": Rule(_tiled_or_whole, heeds_do_resize=False),
}

"""Check all images of a source together: boxes in another order, and images that no row names."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

from grounding_rewards.boxes import ORDERS, reference_defect
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.tables import IMAGE_SUFFIXES

# Fewest images with a bad box for which another order is tried, and their smallest share of the images with boxes.
_MIN_BAD_IMAGES = 3
_MIN_BAD_SHARE = 0.05
# From this share of bad images on all are refused, even if no order fits.
_MAX_BAD_SHARE = 0.5
# The orders that a format's numbers may have had; those of other formats are xyxy.
_ORDERS_OF_FORMAT = {"coco": ("xywh",), "csv": ("xyxy", "xywh", "cxcywh")}


def check_box_order(images: Sequence[AnnotatedImage], dataset: str) -> None:
    """Refuse boxes that do not fit their images because their numbers have another order or frame.

    Args:
        images: of a source; those without a stated size are not checked.
        dataset: name of the source.

    Raises:
        ValueError: half of the images with boxes have one that does not fit, or a part has and another order fits all.

    Example:
        >>> images = [AnnotatedImage(str(k), "a.png", [[60, 70, 20, 10]], ["mass"], 90, 90) for k in range(9)]
        >>> check_box_order(images, "csv")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: Expected boxes inside their images, got 9 of 9 images with a box that is not, such as 0 ([60, ...
    """
    sized = [image for image in images if image.boxes and image.width and image.height]
    misfits = [image for image in sized if not _are_inside(image.boxes, image)]
    if len(misfits) < max(_MIN_BAD_IMAGES, _MIN_BAD_SHARE * len(sized)):
        return
    orders = _fitting_orders(sized, _ORDERS_OF_FORMAT.get(dataset, ("xyxy",)))
    if not orders and len(misfits) < _MAX_BAD_SHARE * len(sized):
        return
    image = misfits[0]
    box = next(box for box in image.boxes if not _are_inside([box], image))
    fix = "Check the sizes of the images, and what the numbers count from where."
    if orders:
        option = " or ".join(f"order={order}" for order in orders)
        advice = f"give --option {option}" if dataset == "csv" else "write them in the order of the format"
        fix = f"Their numbers fit all images as {' or '.join(orders)}: {advice}."
    raise ValueError(
        f"Expected boxes inside their images, got {len(misfits)} of {len(sized)} images with a box that is not, such "
        f"as {image.id} ({list(box)} on {image.width} x {image.height}). {fix}"
    )


def _are_inside(boxes: Sequence[Sequence[float]], image: AnnotatedImage) -> bool:
    """Whether all boxes are valid and inside an image, whose size is stated."""
    size = (float(image.width or 0), float(image.height or 0))
    return all(reference_defect(box, size) is None for box in boxes)


def _fitting_orders(images: Sequence[AnnotatedImage], source_orders: Sequence[str]) -> list[str]:
    """The orders in which the numbers of the source would be boxes inside all images.

    Args:
        images: with boxes, which were made from the numbers of the source.
        source_orders: the orders by which they may have been made.
    """
    fitting: list[str] = []
    for source_order in source_orders:
        for order in ORDERS:
            if order in (source_order, *fitting):
                continue
            if all(_are_inside(_reread(image.boxes, source_order, order), image) for image in images):
                fitting.append(order)
    return fitting


def _reread(boxes: Sequence[Sequence[float]], source_order: str, order: str) -> list[list[float]]:
    """The boxes that the same numbers give in another order than that of the source."""
    return [list(ORDERS[order].to_xyxy(*ORDERS[source_order].from_xyxy(*box))) for box in boxes]


def warn_of_unnamed_images(images: Sequence[AnnotatedImage], root: str | Path) -> None:
    """Warn of images below the root that no row names; if rows are boxes, these are the images without a finding.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root, warnings.catch_warnings(record=True) as caught:
        ...     Path(root, "b.png").touch()
        ...     warn_of_unnamed_images([AnnotatedImage("a", "a.png", [], [])], root)
        >>> str(caught[0].message).partition(":")[0]
        'No row names 1 image below the root, such as b.png. Give images without a finding a row of their own, with \
empty cells or an empty list for the box'
    """
    named_files = {os.path.normpath(image.file) for image in images}
    count, example = 0, ""
    for folder, _, names in os.walk(root):
        for name in names:
            file = os.path.normpath(os.path.relpath(os.path.join(folder, name), root))
            if name.lower().endswith(IMAGE_SUFFIXES) and file not in named_files:
                count += 1
                example = min(example or file, file)
    if count:
        noun = "1 image" if count == 1 else f"{count:,} images"
        warnings.warn(
            f"No row names {noun} below the root, such as {example}. Give images without a finding a row of their own, "
            "with empty cells or an empty list for the box: now they are left out.",
            stacklevel=3,
        )

"""The size of a pixel of a stored image."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import Any

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.images.dicom import is_dicom
from grounding_rewards.prepare.stored_images import StoredImage

_KEY = "pixel_spacing"


def may_have_spacing(record: AnnotatedImage) -> bool:
    """Whether the record or its file may hold the size of a pixel.

    >>> may_have_spacing(AnnotatedImage("a", "a.dcm", [], [])), may_have_spacing(AnnotatedImage("a", "a.png", [], []))
    (True, False)
    """
    return _KEY in record.extra or is_dicom(record.file)


def stored_spacing(record: AnnotatedImage, image: StoredImage) -> list[float] | None:
    """Millimetres per pixel of the stored image, in x and y; None if unknown.

    The file's own spacing is preferred to the record's. The record's `extra` may hold `pixel_spacing`, one number or x
    and y, for an image of `original_width` and `original_height` if `extra` has them, else for the image that its boxes
    were drawn on.

    >>> image = AnnotatedImage("a", "a.png", [], [], extra={"pixel_spacing": "0.2 0.1"})
    >>> stored_spacing(image, StoredImage(b"", 50, 50, 100, 200))
    [0.4, 0.4]
    """
    if image.original_spacing is not None:
        spacing, size = image.original_spacing, (float(image.original_width), float(image.original_height))
    else:
        numbers = _numbers(record.extra, _KEY)
        if len(numbers) not in (1, 2):
            return None
        drawn_on = (record.width or image.original_width, record.height or image.original_height)
        own = _numbers(record.extra, "original_width"), _numbers(record.extra, "original_height")
        spacing = (numbers[0], numbers[-1])
        size = (own[0][0], own[1][0]) if all(own) else drawn_on
    return [spacing[0] * size[0] / image.width, spacing[1] * size[1] / image.height]


def _numbers(extra: Mapping[str, Any], key: str) -> list[float]:
    """The positive numbers in a column, with any separators; empty if it holds anything else."""
    try:
        numbers = [float(word) for word in re.findall(r"[^\s,;\[\]()\\]+", str(extra.get(key, "")))]
    except ValueError:
        return []
    return numbers if all(isfinite(number) and number > 0 for number in numbers) else []

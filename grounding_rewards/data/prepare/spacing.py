"""How large a pixel of a stored image is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite

from grounding_rewards.data.dicom import is_dicom
from grounding_rewards.data.prepare.film_images import StoredImage
from grounding_rewards.data.readers.base import FilmRecord

_KEY = "pixel_spacing"


def may_have_spacing(record: FilmRecord) -> bool:
    """Whether the record or its file may say how large a pixel is.

    >>> may_have_spacing(FilmRecord("a", "a.dcm", [], [])), may_have_spacing(FilmRecord("a", "a.png", [], []))
    (True, False)
    """
    return _KEY in record.extra or is_dicom(record.file)


def stored_spacing(record: FilmRecord, image: StoredImage) -> list[float] | None:
    """Millimetres per pixel of the stored image, in x and y; None where nobody says.

    What the file says goes first. Of a record, `extra` has `pixel_spacing`, one number or those of x and y, for a film
    of `original_width` and `original_height` where `extra` has these, else for the film that its boxes were drawn on.

    Args:
        record: The film.
        image: What is stored of it.

    >>> film = FilmRecord("a", "a.png", [], [], extra={"pixel_spacing": "0.2 0.1"})
    >>> stored_spacing(film, StoredImage(b"", 50, 50, 100, 200))
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


def _numbers(extra: Mapping[str, str], key: str) -> list[float]:
    """Positive numbers of a column, however they are set apart; none where it holds anything else."""
    try:
        numbers = [float(word) for word in re.findall(r"[^\s,;\[\]()\\]+", extra.get(key, ""))]
    except ValueError:
        return []
    return numbers if all(isfinite(number) and number > 0 for number in numbers) else []

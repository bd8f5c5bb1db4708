"""Checks of rows and images: can they be read, and do the declared sizes agree with the images?

The pixels are decoded once, by several processes (:func:`rows_with_facts`). They are compared with no other image but
for copies: `cleanvision` and `fastdup` find blurred, dark and odd images.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from grounding_rewards.common.workers import map_in_workers
from grounding_rewards.doctor.context import Context, Defect, Problem
from grounding_rewards.doctor.rows import ImageFacts, ImageRow
from grounding_rewards.images.decoding import has_shape, image_size, load_image, open_image, shown_image
from grounding_rewards.images.dicom import is_burned_in, is_dicom
from grounding_rewards.images.near_duplicates import image_signature

# An image with fewer greys, but for one in a hundred pixels at either end, shows nothing.
_MIN_GREYS = 8
# Fewer images are decoded before a process has started.
_FEW = 200
# Models see sides that are multiples of this.
_PATCH = 28


def rows_with_facts(
    rows: Iterable[ImageRow], total: int | None, processes: int, *, quick: bool = False
) -> Iterator[ImageRow]:
    """The rows in their order, each with what its image says in place of the image's bytes.

    Args:
        rows: as they are read.
        total: how many they are; None where that is not known.
        processes: how many decode; 1 decodes in this process.
        quick: whether to read the headers alone.
    """
    alone = quick or processes == 1 or (total is not None and total < _FEW)
    look = partial(_with_facts, quick=quick)
    with map_in_workers(look, rows, processes=1 if alone else processes) as looked_at:
        yield from looked_at


def _with_facts(row: ImageRow, quick: bool) -> ImageRow:
    if row.image is None:
        return row
    encoded, facts = _read_header(row.image)
    if not quick and encoded is not None:
        facts = look_at_pixels(encoded, facts)
    return replace(row, image={"path": row.image.get("path")}, facts=facts)


def _read_header(image: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, ImageFacts]:
    """The image with its bytes, unless it is a DICOM file, and what its header says; None for it if it is missing."""
    path = image.get("path")
    try:
        data = Path(path or "").read_bytes() if image.get("bytes") is None else image["bytes"]
    except (OSError, TypeError, ValueError):
        data = None
    is_file = data is None or (image.get("bytes") is None and is_dicom(path or ""))
    encoded = image if is_file else {"bytes": data, "path": path}
    digest = None if data is None else hashlib.blake2b(data, digest_size=8).digest()
    try:
        size = image_size(encoded)
        burned_in = is_file and is_burned_in(path or "")
    except (ValueError, TypeError, KeyError) as error:
        return None, ImageFacts(None, " ".join(str(error).split()), digest)
    return encoded, ImageFacts(size, "", digest, burned_in)


def look_at_pixels(image: Mapping[str, Any], facts: ImageFacts) -> ImageFacts:
    """What an image says, its pixels too.

    Args:
        image: `{"bytes": ..., "path": ...}`; a DICOM file has no bytes.
        facts: what its header says.
    """
    try:
        opened = open_image(image["path"]) if image["bytes"] is None else shown_image(load_image(image))
    except ValueError as error:
        return facts._replace(problem=" ".join(str(error).split()))
    counts = np.cumsum(opened.convert("L").histogram())
    low, high = (int(np.searchsorted(counts, share * counts[-1])) for share in (0.01, 0.99))
    blank = f"nearly every pixel is {low} to {high} of 255" if high - low < _MIN_GREYS else ""
    return facts._replace(blank=blank, signature=None if blank else image_signature(opened))


def check_readability(context: Context) -> Iterator[Defect]:
    """Missing and unreadable rows."""
    if unfinished := context.source.unfinished:
        yield context.defect("unfinished-folder", count=1, found=unfinished)
    yield from context.collect(context.damaged)


def check_images(context: Context) -> Iterator[Defect]:
    """Missing and broken images, and sizes that contradict the image. A smaller copy of the image does not."""
    yield from context.collect(problem for row in context.rows for problem in _image_problems(row))


def _image_problems(row: ImageRow) -> Iterator[Problem]:
    facts, size = row.facts or ImageFacts(), row.size
    if row.outside:
        yield Problem("outside-image", row, row.outside)
    elif row.expects_image and facts.size is None:
        yield Problem("missing-image", row, f"image: {facts.fault or 'none'}")
    if facts.burned_in:
        yield Problem("burned-in", row, "BurnedInAnnotation is YES")
    if facts.problem:
        yield Problem("broken-image", row, facts.problem)
    elif facts.blank:
        yield Problem("one-grey", row, facts.blank)
    if size is None:
        width, height = row.columns.get("width"), row.columns.get("height")
        yield Problem("missing-size", row, f"width {width!r}, height {height!r}")
        return
    if facts.size is not None and not has_shape(facts.size, size):
        declared = f"width {size[0]:g}, height {size[1]:g}; the image is {facts.size[0]} x {facts.size[1]}"
        is_exchanged = has_shape(facts.size, (size[1], size[0]))
        yield Problem("exchanged-size" if is_exchanged else "image-size", row, declared)
        return
    seen = row.resized_size
    if seen and has_shape(seen[::-1], size, _PATCH) and not has_shape(seen, size, _PATCH):
        declared = f"resized_width {seen[0]:g}, resized_height {seen[1]:g} of width {size[0]:g}, height {size[1]:g}"
        yield Problem("exchanged-size", row, declared)

"""Check whether rows and images can be read, and whether the declared sizes are those of the images.

The pixels are decoded once, by several processes (:func:`rows_with_facts`). Blurred, dark and odd images are left to
`cleanvision` and `fastdup`.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from grounding_rewards.common.workers import map_in_workers
from grounding_rewards.doctor.context import Context, Defect, Problem
from grounding_rewards.doctor.rows import ImageFacts, ImageRow
from grounding_rewards.images.decoding import has_shape, image_size, open_image
from grounding_rewards.images.dicom import is_burned_in, is_dicom
from grounding_rewards.images.near_duplicates import image_signature

# Fewest greys between the first and the last hundredth of the pixels for an image that shows something.
_MIN_GREYS = 8
# Fewer images are decoded sooner than other processes start.
_MIN_FOR_PROCESSES = 200


def rows_with_facts(rows: Iterable[ImageRow], total: int | None, processes: int) -> Iterator[ImageRow]:
    """Yield the rows in their order, with the facts about their images instead of the images' bytes.

    Args:
        rows: as they are read.
        total: their number; None if it is not known.
        processes: how many decode; 1 decodes in this process.
    """
    if total is not None and total < _MIN_FOR_PROCESSES:
        processes = 1
    with map_in_workers(_with_facts, rows, processes=processes) as rows_in_order:
        yield from rows_in_order


def _with_facts(row: ImageRow) -> ImageRow:
    """The row with the facts about its image instead of the image's bytes."""
    if row.image is None:
        return row
    encoded, facts = _read_header(row.image)
    if encoded is not None:
        facts = with_pixel_facts(encoded, facts)
    return replace(row, image={"path": row.image.get("path")}, facts=facts)


def _read_header(image: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, ImageFacts]:
    """Read the file and the header of an image.

    Returns:
        The image with its bytes, or without them for a DICOM file; None if the header cannot be read. And the facts
        from the header.
    """
    path = image.get("path") or ""
    is_file = image.get("bytes") is None
    try:
        data = Path(path).read_bytes() if is_file else image["bytes"]
    except (OSError, TypeError, ValueError):
        data = None
    digest = None if data is None else hashlib.blake2b(data, digest_size=8).digest()
    # DICOM files are read from their path; a missing file too, so that the error says what is wrong with it.
    is_read_by_path = data is None or (is_file and is_dicom(path))
    encoded = image if is_read_by_path else {"bytes": data, "path": path}
    try:
        size = image_size(encoded)
        burned_in = is_read_by_path and is_burned_in(path)
    except (ValueError, TypeError, KeyError) as error:
        return None, ImageFacts(None, " ".join(str(error).split()), digest)
    return encoded, ImageFacts(size, "", digest, burned_in)


def with_pixel_facts(encoded: Mapping[str, Any], facts: ImageFacts) -> ImageFacts:
    """The facts from the header of an image, with one from its pixels.

    That is why they cannot be decoded (`problem`), or that they show nothing (`blank`), or else what they look like
    (`signature`, for finding copies).

    Args:
        encoded: the image, `{"bytes": ..., "path": ...}`; a DICOM file has no bytes.
        facts: from the header.
    """
    try:
        image = open_image(encoded)
    except ValueError as error:
        return facts._replace(problem=" ".join(str(error).split()))
    # The number of pixels up to each grey, from which the greys below which 1 % and 99 % of the pixels lie are found:
    # a few letters or a thin frame do not make an image of one grey show anything.
    counts = np.cumsum(image.convert("L").histogram())
    low, high = np.searchsorted(counts, (0.01 * counts[-1], 0.99 * counts[-1])).tolist()
    if high - low < _MIN_GREYS:
        return facts._replace(blank=f"nearly every pixel is {low} to {high} of 255")
    return facts._replace(signature=image_signature(image))


def check_images(context: Context) -> Iterator[Defect]:
    """Find unfinished folders, rows and images that cannot be read, and sizes of another shape than the image."""
    if context.source.unfinished:
        # One folder, and in words why it is not finished.
        yield context.defect("unfinished-folder", count=1, found=context.source.unfinished)
    yield from context.collect(context.damaged)
    yield from context.collect(chain.from_iterable(map(_image_problems, context.rows)))


def _image_problems(row: ImageRow) -> Iterator[Problem]:
    """Yield the problems of the image and the sizes of one row."""
    facts = row.facts or ImageFacts()
    size = row.size
    if row.outside:
        yield Problem("outside-image", row, row.outside)
    elif row.expects_image and facts.size is None:
        yield Problem("missing-image", row, f"image: {facts.fault or 'none'}")
    if facts.burned_in:
        yield Problem("burned-in", row, "BurnedInAnnotation is YES")
    # An image that cannot be decoded has no greys to judge.
    if facts.problem:
        yield Problem("broken-image", row, facts.problem)
    elif facts.blank:
        yield Problem("one-grey", row, facts.blank)
    if size is None:
        width, height = row.columns.get("width"), row.columns.get("height")
        yield Problem("missing-size", row, f"width {width!r}, height {height!r}")
        return
    if facts.size is not None and not has_shape(facts.size, size):
        sizes = f"width {size[0]:g}, height {size[1]:g}; the image is {facts.size[0]} x {facts.size[1]}"
        # With width and height exchanged the shape may be right.
        check = "exchanged-size" if has_shape(facts.size, size[::-1]) else "image-size"
        yield Problem(check, row, sizes)

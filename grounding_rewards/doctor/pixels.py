"""What the pixels of a dataset's images say: decoded once, by several processes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from grounding_rewards.common.workers import map_in_order, worker_pool
from grounding_rewards.data.copies import image_signature
from grounding_rewards.doctor.raw_rows import ImageRow, Pixels
from grounding_rewards.images.decoding import is_deep, load_image, open_image, shown_image
from grounding_rewards.images.dicom import is_dicom

# Images in work per process, as `prepare` has them.
_AHEAD = 4
# Fewer images are decoded before a process has started.
_FEW = 200


def rows_with_pixels(rows: Iterable[ImageRow], total: int | None, processes: int) -> Iterator[ImageRow]:
    """The rows in their order, each with what its pixels say.

    Args:
        rows: as they are read.
        total: how many they are; None where that is not known.
        processes: how many decode; 1 decodes in this process.
    """
    alone = processes == 1 or (total is not None and total < _FEW)
    with nullcontext() if alone else worker_pool(processes) as pool:
        if pool is None:
            yield from map(_with_pixels, rows)
        else:
            yield from map_in_order(pool, _with_pixels, rows, ahead=processes * _AHEAD)


def _with_pixels(row: ImageRow) -> ImageRow:
    return row if row.image is None else replace(row, pixels=look_at_pixels(row.image))


def look_at_pixels(image: Mapping[str, Any]) -> Pixels | None:
    """What the pixels of an image say; None where there is no file.

    Args:
        image: as `datasets` stores it, `{"bytes": ..., "path": ...}`.
    """
    try:
        data = Path(image["path"]).read_bytes() if image.get("bytes") is None else image["bytes"]
    except (OSError, TypeError, ValueError):
        return None
    digest = hashlib.blake2b(data, digest_size=8).digest()
    try:
        if image.get("bytes") is None and is_dicom(image["path"]):
            annotated, beyond = open_image(image["path"]), None
        else:
            stored = load_image({"bytes": data, "path": image.get("path")})
            annotated, beyond = shown_image(stored), None
            if is_deep(stored):
                values = np.asarray(stored)
                beyond = (
                    f"mode {stored.mode}, values {values.min():g} to {values.max():g}",
                    float((values > 255).mean()),
                )
    except ValueError as error:
        return Pixels(digest, " ".join(str(error).split()))
    greys = np.asarray(annotated.convert("L"))
    grey = int(greys.min()) if greys.min() == greys.max() else None
    return Pixels(digest, "", beyond, grey, image_signature(annotated))

"""The defects of one row of a dataset, a pure function for each kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.boxes import as_box_array
from grounding_rewards.data.images import has_shape
from grounding_rewards.data.raw_rows import IGNORED, Drawing, FilmRow
from grounding_rewards.doctor.box_defects import box_defect
from grounding_rewards.doctor.checks import LEAST_SIDE, NEAR_DUPLICATE
from grounding_rewards.doctor.prompt_claims import prompt_contradictions
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.parsing import BoxFormat

# A copy is seldom larger than this part of the film.
_NEAR = 0.95


class Problem(NamedTuple):
    """A defect of one row: the name of its check, what is there, and in which drawing if not in `boxes`."""

    name: str
    detail: str
    drawing: str = ""


def find_unreadable(row: FilmRow) -> Iterator[Problem]:
    """Rows that are no rows.

    >>> list(find_unreadable(FilmRow("train", 0, {"boxes": "none"})))
    [Problem(name='unreadable-row', detail="boxes is 'none', not a list", drawing='')]
    """
    if row.damage is not None:
        yield Problem("unreadable-row", row.damage)
        return
    readers, ignored = row.columns.get("reader_boxes"), row.columns.get(IGNORED)
    if not isinstance(row.columns.get("boxes"), list | tuple):
        yield Problem("unreadable-row", f"boxes is {row.columns.get('boxes')!r:.60}, not a list")
    elif readers is not None and not (readers and len(row.readers) == len(readers)):
        yield Problem("unreadable-row", f"reader_boxes is {readers!r:.60}, not a list with the boxes of each reader")
    elif ignored is not None and not isinstance(ignored, list | tuple):
        yield Problem("unreadable-row", f"{IGNORED} is {ignored!r:.60}, not a list")


def find_wrong_size(row: FilmRow) -> Iterator[Problem]:
    """Missing images and sizes, and sizes that contradict the image's header; a smaller copy of the film does not.

    >>> [problem.name for problem in find_wrong_size(FilmRow("train", 0, {"boxes": [], "width": 0, "height": 9}))]
    ['missing-size']
    """
    if row.expects_image and row.image_size is None:
        there = "none" if row.image is None else row.image.get("path") or "bytes that are no image"
        yield Problem("missing-image", f"image: {there}")
    width, height = row.columns.get("width"), row.columns.get("height")
    if row.size is None:
        yield Problem("missing-size", f"width {width!r}, height {height!r}")
    elif row.image_size is not None and not has_shape(row.image_size, row.size):
        exchanged = has_shape(row.image_size, (row.size[1], row.size[0]))
        found = f"width {width:g}, height {height:g}; the image is {row.image_size[0]} x {row.image_size[1]}"
        yield Problem("exchanged-size" if exchanged else "image-size", found)


def find_bad_boxes(row: FilmRow) -> Iterator[Problem]:
    """Boxes that are none, turned, empty, or off the film; one problem per box.

    >>> list(find_bad_boxes(FilmRow("train", 0, {"boxes": [[5, 5, 2, 9]], "width": 40, "height": 60})))
    [Problem(name='swapped-corners', detail='box 0 is [5, 5, 2, 9]', drawing='')]
    """
    size = trusted_size(row)
    film = "" if size is None else f" on {size[0]:g} x {size[1]:g}"
    for drawing in row.drawings:
        for index, box in enumerate(drawing.boxes):
            name = box_defect(box, size)
            if name is not None:
                on_film = film if name in ("off-film", "partly-off-film", "normalised-boxes") else ""
                yield Problem(name, f"{drawing.prefix}box {index} is {shown(box)}{on_film}", drawing.name)


def find_bad_labels(row: FilmRow) -> Iterator[Problem]:
    """Labels that are too many, too few or blank.

    >>> list(find_bad_labels(FilmRow("train", 0, {"boxes": [[0, 0, 9, 9]], "labels": []})))
    [Problem(name='label-count', detail='0 labels for 1 boxes', drawing='')]
    """
    if wrong := list(_wrong_label_counts(row)):
        yield Problem("label-count", "; ".join(wrong))
    for drawing in row.drawings:
        for index, label in enumerate(drawing.labels or ()):
            if not isinstance(label, str) or not label.strip():
                yield Problem("blank-label", f"{drawing.prefix}label {index} is {label!r:.40}", drawing.name)


def _wrong_label_counts(row: FilmRow) -> Iterator[str]:
    of_readers = row.columns.get("reader_labels")
    if of_readers is not None and not row.readers:
        yield "reader_labels without reader_boxes"
    elif of_readers is not None and not (isinstance(of_readers, list | tuple) and len(of_readers) == len(row.readers)):
        yield f"reader_labels is {of_readers!r:.60}, not the labels of each of {len(row.readers)} readers"
        of_readers = None
    for drawing in row.drawings:
        is_labelled = drawing.labels is not None or (of_readers is not None and drawing in row.readers)
        if is_labelled and len(drawing.labels or ()) != len(drawing.boxes):
            yield f"{drawing.prefix}{len(drawing.labels or ())} labels for {len(drawing.boxes)} boxes"


def find_duplicate_boxes(row: FilmRow) -> Iterator[Problem]:
    """Boxes that repeat an earlier one of the same label, exactly or almost.

    >>> film = {"boxes": [[0, 0, 50, 50], [0, 0, 50, 50], [0, 0, 50, 51]], "labels": ["mass", "mass", "cyst"]}
    >>> list(find_duplicate_boxes(FilmRow("train", 0, film)))
    [Problem(name='duplicate-boxes', detail='boxes 0 and 1 are [0, 0, 50, 50]', drawing='')]
    """
    for drawing in row.answers:
        yield from _duplicates(drawing)


def _duplicates(drawing: Drawing) -> Iterator[Problem]:
    given = drawing.boxes
    sound = [index for index, box in enumerate(given) if box_defect(box, None) is None]
    if len(sound) < 2:
        return
    boxes = as_box_array([given[index] for index in sound])
    iou = np.triu(pairwise_iou(boxes, boxes), k=1)
    reported = set()
    for first, second in zip(*np.nonzero(iou > NEAR_DUPLICATE), strict=True):
        a, b = sound[first], sound[second]
        if b in reported or drawing.label(a) != drawing.label(b):
            continue
        reported.add(b)
        if (boxes[first] == boxes[second]).all():
            detail = f"{drawing.prefix}boxes {a} and {b} are {shown(given[a])}"
            yield Problem("duplicate-boxes", detail, drawing.name)
        else:
            both = f"IoU {iou[first, second]:.3f}: {shown(given[a])}, {shown(given[b])}"
            yield Problem("near-duplicate-boxes", f"{drawing.prefix}boxes {a} and {b}, {both}", drawing.name)


def find_prompt_problems(row: FilmRow, box_format: BoxFormat | None) -> Iterator[Problem]:
    """A prompt that is missing, or asks for what the box format does not read.

    >>> list(find_prompt_problems(FilmRow("train", 0, {"prompt": ""}), None))
    [Problem(name='prompt-missing', detail="prompt is ''", drawing='')]
    """
    if not row.prompt:
        yield Problem("prompt-missing", f"prompt is {row.columns.get('prompt')!r:.60}")
    elif box_format is not None and (found := list(prompt_contradictions(row.prompt, box_format))):
        yield Problem("prompt-format", "; ".join(found))


def find_small_boxes(row: FilmRow, seen: tuple[float, float]) -> Iterator[Problem]:
    """Boxes with a side of less than :data:`LEAST_SIDE` pixels on the film of size `seen`, as the model gets it.

    >>> film = {"boxes": [[0, 0, 90, 12], [0, 0, 90, 90]], "width": 3000, "height": 3000}
    >>> list(find_small_boxes(FilmRow("train", 0, film), (896, 896)))
    [Problem(name='small-boxes', detail='box 0 is 26.9 x 3.6 pixels of 896 x 896', drawing='')]
    """
    size = trusted_size(row)
    if size is None:
        return
    for drawing in row.answers:
        for index, box in enumerate(drawing.boxes):
            if box_defect(box, size) is None:
                width, height = (box[2] - box[0]) * seen[0] / size[0], (box[3] - box[1]) * seen[1] / size[1]
                if min(width, height) < LEAST_SIDE:
                    found = f"box {index} is {width:.1f} x {height:.1f} pixels of {seen[0]:g} x {seen[1]:g}"
                    yield Problem("small-boxes", drawing.prefix + found, drawing.name)


def image_scale(image: tuple[float, float], size: tuple[float, float]) -> str:
    """How an image of the film's shape relates to the declared size, both width and height in pixels.

    Returns:
        `same` (less than a pixel apart); `larger`; `smaller`; or, within a twentieth, where a copy is seldom meant,
        `near-copy`, and `near` where both sides do not shrink alike by half a pixel.

    >>> [image_scale((640, 512), size) for size in ((640, 512), (320, 256), (1280, 1024), (648, 520))]
    ['same', 'larger', 'smaller', 'near']
    """
    if max(abs(image[0] - size[0]), abs(image[1] - size[1])) < 1:
        return "same"
    if image[0] > size[0] or image[1] > size[1]:
        return "larger"
    if image[0] < _NEAR * size[0]:
        return "smaller"
    return "near-copy" if has_shape(image, size, rounding=0.5) else "near"


def trusted_size(row: FilmRow) -> tuple[float, float] | None:
    """The size of a film in pixels, where its image does not contradict it; None otherwise."""
    if row.size is None or (row.image_size is not None and not has_shape(row.image_size, row.size)):
        return None
    return row.size


def shown(box: Any) -> str:
    """A box in a line: what is none is shown as it is, cut off."""
    if isinstance(box, list | tuple) and len(box) == 4 and all(isinstance(value, int | float) for value in box):
        return f"[{', '.join(f'{value:.6g}' for value in box)}]"
    return f"{box!r:.60}"

"""Which image of a dataset a row of a log is about: one rule for every command.

Rows and images belong together by `id`. What a log and a dataset both say of an image has to be the same: where boxes
differ, one of them is of another version or another split, and a metric against either would be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from grounding_rewards.columns import patient_of
from grounding_rewards.logs.completion_logs import Log, first_of

# Boxes and sizes that differ by less are those of the image after rounding.
_ROUNDING = 0.5


def join_by_id(
    log: Log, members: Sequence[Sequence[int]], images: Sequence[Mapping[str, Any]], *, every_image: bool = False
) -> list[int]:
    """The number of the image that each group of rows is about.

    Args:
        log: its rows; numbers as :func:`grounding_rewards.logs.completion_logs.with_numbers` gives them.
        members: the rows of each group, all of one `id`.
        images: rows of the dataset; one without `id` is named by its number.
        every_image: whether an image without an answer is an error.

    Raises:
        ValueError: an `id` that no image has, or several have, or that is described differently; the row is named.

    Example:
        >>> log = Log(["[]", "[]"], [{"id": "b"}, {"id": "a"}], ["line 1", "line 2"])
        >>> join_by_id(log, [[0], [1]], [{"id": "a"}, {"id": "b"}])
        [1, 0]
    """
    names = [str(row.get("id", k)) for k, row in enumerate(images)]
    numbers = {name: k for k, name in enumerate(names)}
    asked = {str(log.rows[several[0]].get("id", "")): several for several in members}
    if unknown := {name: rows for name, rows in asked.items() if name not in numbers}:
        raise ValueError(
            f"Expected the `id` of an image of the dataset in every row of the log, got {len(unknown)} of {len(asked)} "
            f"that it does not have: {places_of(log, unknown)}. It has {first_of([repr(one) for one in names])}. "
            "Give the split that was answered with --split, and as many images with --max-images."
        )
    if len(numbers) < len(names) and (twice := [one for k, one in enumerate(names) if numbers[one] != k]):
        raise ValueError(
            f"Expected an `id` of its own for every image of the dataset, got {first_of([repr(one) for one in twice])} "
            "for several. Answers belong to images by it: prepare the dataset with names of their own."
        )
    if every_image and (without := [name for name in names if name not in asked]):
        raise ValueError(
            f"Expected a completion for every image, got {len(names) - len(without)} of {len(names)}; without one are "
            f"{first_of([repr(name) for name in without])}. Answer all images, or name those that were answered with "
            "--max-images."
        )
    found = [numbers[str(log.rows[first]["id"])] for first, *_ in members]
    refuse_other_images(log, members, (images[k] for k in found))
    return found


def names_images(log: Log) -> bool:
    """Whether the rows of a log have an `id`, by which they belong to images.

    Raises:
        ValueError: some have one and others have none; these are named.

    Example:
        >>> names_images(Log(["[]"], [{"id": "b"}], ["line 1"])), names_images(Log(["[]"], [{}], ["line 1"]))
        (True, False)
    """
    without = [place for place, row in zip(log.places, log.rows, strict=True) if row.get("id") in (None, "")]
    if 0 < len(without) < len(log.rows):
        raise ValueError(
            f"Expected an `id` in every row of the log, or in none, got {len(without)} of {len(log.rows)} without: "
            f"{first_of(without)}. Answers belong to images by it: add the image's `id`, or remove these rows."
        )
    return not without


def refuse_other_images(log: Log, members: Sequence[Sequence[int]], images: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a log that says of an image something else than the dataset.

    Args:
        log: its rows.
        members: the rows of each group, the one that describes the image first.
        images: the image of each group.

    Raises:
        ValueError: the first such row is named with its place and its image's `id`, and how many differ.
    """
    other = [
        (first, image, column)
        for (first, *_), image in zip(members, images, strict=True)
        for column in _contradictions(log.rows[first], image)
    ]
    if other:
        k, image, column = other[0]
        raise ValueError(
            f"Expected what the dataset says of an image in the log, or nothing, got another `{column}` in "
            f"{log.places[k]}: {log.rows[k][column]!r:.100} for the image with id {image.get('id', '-')!r}, of which "
            f"the dataset says {image.get(column)!r:.100}. {len({k for k, *_ in other})} of {len(members)} images "
            "differ. Name the dataset and split that were answered, or, where the log is wrong, remove its columns."
        )


def places_of(log: Log, images: Mapping[str, Sequence[int]]) -> str:
    """The first few images, each with the places of its rows."""
    return first_of([f"{name!r} ({first_of([log.places[k] for k in rows])})" for name, rows in images.items()])


def _contradictions(logged: Mapping[str, Any], image: Mapping[str, Any]) -> Iterator[str]:
    """The columns that a row of the log and the image both have, and that differ by more than rounding."""
    for column in ("boxes", "width", "height", "ignore_boxes"):
        own, other = logged.get(column), image.get(column)
        if own is not None and other is not None and not _agree(own, other):
            yield column
    labels = [None if row.get("labels") is None else list(row["labels"]) for row in (logged, image)]
    if None not in labels and labels[0] != labels[1]:
        yield "labels"
    if None not in (patients := [patient_of(logged), patient_of(image)]) and patients[0] != patients[1]:
        yield "patient_id"


def _agree(one: Any, other: Any) -> bool:
    try:
        first, second = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    if not first.size and not second.size:
        return True
    return first.shape == second.shape and bool((np.abs(first - second) <= _ROUNDING).all())

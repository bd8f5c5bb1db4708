"""Copies of an image, under other names, of other sizes or encoded again, end in one split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.splits import patient_of_image
from grounding_rewards.images.near_duplicates import find_near_duplicates

_SHOWN = 5


class DuplicateGroups(NamedTuple):
    """What the copies among the images mean for their splits.

    groups: Of every patient, or image whose patient is not known, that shares an image with others: the name of all of
        them together, which is drawn instead.
    splits: The dataset's own split of such a group, where it has one.
    left_out: Images that have a copy in another split of the dataset's own, and why they are left out.
    images: How many images are copies of others.
    """

    groups: Mapping[str, str] = {}
    splits: Mapping[str, str] = {}
    left_out: Mapping[str, str] = {}
    images: int = 0


def group_duplicates(
    images: Iterable[tuple[AnnotatedImage, bytes | None]],
    patient_splits: Mapping[str, str],
    *,
    own: bool,
    bad_rows: str,
) -> DuplicateGroups:
    """Join patients, and images whose patient is not known, that share an image.

    Args:
        images: With the signatures of their files.
        patient_splits: The dataset's own split of each patient.
        own: Whether the dataset's own splits count.
        bad_rows: `drop` leaves out an image that has a copy in another split of the dataset's own; else it is an error.

    Raises:
        ValueError: An image and its copy are in two splits of the dataset's own.

    >>> images = [AnnotatedImage(name, f"{name}.png", [], []) for name in "ab"]
    >>> group_duplicates([(image, bytes([1] * 2048)) for image in images], {}, own=True, bad_rows="refuse").groups
    {'a': 'a', 'b': 'a'}
    """
    places: list[tuple[str, str, str | None]] = []
    signatures = []
    for image, signature in images:
        patient = patient_of_image(image)
        of_patient = None if patient is None else patient_splits.get(patient)
        places.append((image.id, patient or image.id, (image.split or of_patient) if own else None))
        signatures.append(signature)
    pairs = list(find_near_duplicates(signatures))
    left_out = _left_out([(places[a], places[b]) for a, b in pairs], Counter(split for *_, split in places))
    if left_out and bad_rows == "refuse":
        sentences = "; ".join(f"{image} is {reason}" for image, reason in list(left_out.items())[:_SHOWN])
        raise ValueError(
            f"Expected no image in two splits of the dataset, got {len(left_out)} with a copy in another one: "
            f'{sentences}{"; …" if len(left_out) > _SHOWN else ""}. Draw the splits anew with splits_from="hash" '
            '(--splits-from hash), or leave these images out with bad_rows="drop" (--bad-rows drop).'
        )
    parents: dict[str, str] = {}

    def top(name: str) -> str:
        while (above := parents.setdefault(name, name)) != name:
            parents[name] = parents[above]
            name = parents[name]
        return name

    for a, b in pairs:
        if not {places[a][0], places[b][0]} & left_out.keys():
            # The smaller name stays, whatever the order of the images.
            first, second = sorted((top(places[a][1]), top(places[b][1])))
            parents[second] = first
    groups = {name: top(name) for name in parents}
    splits = {groups[name]: split for _, name, split in places if name in groups and split is not None}
    return DuplicateGroups(groups, splits, left_out, len({place for pair in pairs for place in pair}))


def _left_out(
    pairs: Iterable[tuple[tuple[str, str, str | None], tuple[str, str, str | None]]], images: Mapping[str | None, int]
) -> dict[str, str]:
    """The images to leave out: of two copies in two splits, the one in the larger split, which is that of training."""
    reasons: dict[str, str] = {}
    for pair in pairs:
        (image, _, split), (duplicate, _, its_split) = sorted(pair, key=lambda one: (-images[one[2]], one[0]))
        if None not in (split, its_split) and split != its_split:
            reasons.setdefault(image, f"in {split} and a copy of {duplicate} in {its_split}")
    return reasons

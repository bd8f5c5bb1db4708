"""Group near-duplicate images, so that an image and its copy never end in two splits."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from grounding_rewards.common.formatting import first_of
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.splits import patient_of_image
from grounding_rewards.images.near_duplicates import find_near_duplicates


class DuplicateGroups(NamedTuple):
    """Patients who share a near-duplicate image, and must be in one split.

    Attributes:
        groups: The name of the group of each such patient, or of an image whose patient is not known; splits are drawn
            by this name.
        splits: The dataset's own split of each group that has one.
        left_out: For each image to leave out, as its copy is in another split of the dataset's own, the reason.
        images: How many images are copies of others.
    """

    groups: Mapping[str, str]
    splits: Mapping[str, str]
    left_out: Mapping[str, str]
    images: int


NO_DUPLICATES = DuplicateGroups({}, {}, {}, 0)


class _Member(NamedTuple):
    """An image by its id, with its patient (the image itself if that is not known) and its split in the dataset."""

    image: str
    patient: str
    split: str | None


def group_duplicates(
    images: Iterable[tuple[AnnotatedImage, bytes | None]],
    patient_splits: Mapping[str, str],
    *,
    keeps_splits: bool,
    bad_rows: str,
) -> DuplicateGroups:
    """Find near-duplicates among images, and group the patients who share one.

    Args:
        images: Each with the signature of its file; None for a file that cannot be read.
        patient_splits: The dataset's own split of each patient.
        keeps_splits: Whether the dataset's own splits are used.
        bad_rows: of an image and its copy in two of the dataset's own splits, `drop` leaves out the one in the larger
            split; `refuse` raises.

    Raises:
        ValueError: An image and its copy are in two splits of the dataset's own.

    >>> images = [AnnotatedImage(name, f"{name}.png", [], []) for name in "ab"]
    >>> signed = [(image, bytes([1] * 2048)) for image in images]
    >>> group_duplicates(signed, {}, keeps_splits=True, bad_rows="refuse").groups
    {'a': 'a', 'b': 'a'}
    """
    members = []
    signatures = []
    for image, signature in images:
        patient = patient_of_image(image)
        split = image.split or patient_splits.get(patient or "")
        members.append(_Member(image.id, patient or image.id, split if keeps_splits else None))
        signatures.append(signature)
    pairs = [(members[earlier], members[later]) for earlier, later in find_near_duplicates(signatures)]
    split_sizes = Counter(member.split for member in members)
    left_out = _copies_in_two_splits(pairs, split_sizes)
    patients = _patients_with_copies(pairs, left_out)
    between_splits = _copies_between_splits(members, pairs, patients)
    if between_splits:
        left_out |= between_splits
        # Patients who shared these images alone share none.
        patients = _patients_with_copies(pairs, left_out)
    if left_out and bad_rows == "refuse":
        sentences = [f"{image} is {reason}" for image, reason in left_out.items()]
        raise ValueError(
            f"Expected no image in two splits of the dataset, got {len(left_out)} with a copy in another one: "
            f"{first_of(sentences)}. Draw the splits anew: prepare the images with "
            'splits_from="hash" (--splits-from hash); or leave these images out with bad_rows="drop" (--bad-rows drop).'
        )
    groups: dict[str, str] = {}
    for group in patients.subsets():
        # The first name in the alphabet, whatever the order of the images.
        groups |= dict.fromkeys(sorted(group), min(group))
    # The group follows the members whose split the dataset gives.
    splits = {groups[member.patient]: member.split for member in members if member.patient in groups and member.split}
    copies = {member.image for member in chain.from_iterable(pairs)}
    return DuplicateGroups(groups, splits, left_out, len(copies))


def _patients_with_copies(pairs: Iterable[tuple[_Member, _Member]], left_out: Mapping[str, str]) -> Any:
    """The patients who share an image, in sets: who shares one with somebody of a set is of the set."""
    from scipy.cluster.hierarchy import DisjointSet

    patients = DisjointSet()
    for member, duplicate in pairs:
        if member.image not in left_out and duplicate.image not in left_out:
            # `merge` takes only what was added.
            patients.add(member.patient)
            patients.add(duplicate.patient)
            patients.merge(member.patient, duplicate.patient)
    return patients


def _copies_between_splits(
    members: Sequence[_Member], pairs: Sequence[tuple[_Member, _Member]], patients: Any
) -> dict[str, str]:
    """The reason for each image without a split to leave out, as its patient's images have copies in two splits."""
    splits_of_set: dict[str, set[str]] = defaultdict(set)
    for member in members:
        if member.split and member.patient in patients:
            splits_of_set[patients[member.patient]].add(member.split)
    reasons: dict[str, str] = {}
    for member in chain.from_iterable(pairs):
        splits = splits_of_set[patients[member.patient]] if member.patient in patients else set()
        if member.split is None and len(splits) > 1:
            reasons[member.image] = f"of a patient with copies in {' and '.join(sorted(splits))}"
    return reasons


def _copies_in_two_splits(
    pairs: Iterable[tuple[_Member, _Member]], split_sizes: Mapping[str | None, int]
) -> dict[str, str]:
    """The reason for each image to leave out: of two copies in two splits, the one in the larger split.

    That is usually the split of training, which loses least by it.
    """
    reasons: dict[str, str] = {}
    for pair in pairs:
        # The larger split first; the id decides between splits of one size, whatever the order of the images.
        surplus, kept = sorted(pair, key=lambda member: (-split_sizes[member.split], member.image))
        if surplus.split and kept.split and surplus.split != kept.split:
            reasons.setdefault(surplus.image, f"in {surplus.split} and a copy of {kept.image} in {kept.split}")
    return reasons

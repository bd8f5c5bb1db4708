"""The split of each film, so that every patient is in one split."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from grounding_rewards.data.patients import patient_of_film
from grounding_rewards.data.prepare.copied_films import group_name
from grounding_rewards.data.prepare.settings import check_split_name
from grounding_rewards.data.readers.base import FilmRecord

_SHOWN = 5


def hash_fraction(*words: object) -> float:
    """A number in [0, 1) that depends on the words alone, the same on every machine and in every release.

    >>> hash_fraction(0, "patient 7") == hash_fraction(0, "patient 7") != hash_fraction(1, "patient 7")
    True
    """
    text = "\x1f".join(map(str, words))
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48


def hashed_split(name: str, shares: Mapping[str, float], seed: int) -> str:
    """The split of a patient, drawn by a hash of the name: no other patient moves when one is added.

    Args:
        name: The id of the patient, or of the film where the patient is not known.
        shares: Names of splits and their shares, which sum to 1.
        seed: Of the draw.

    >>> hashed_split("patient 7", {"train": 0.5, "test": 0.5}, seed=0)
    'test'
    """
    fraction, reached = hash_fraction("split", seed, name), 0.0
    for split, share in shares.items():
        reached += share
        if fraction < reached:
            return split
    # The shares sum to 1 only up to rounding.
    return next(split for split, share in reversed(list(shares.items())) if share)


def film_split(
    record: FilmRecord,
    patient_splits: Mapping[str, str],
    shares: Mapping[str, float],
    seed: int,
    *,
    own: bool,
    groups: Mapping[str, str] | None = None,
) -> str:
    """The split of a film: its own, else its patient's, else drawn as by `hashed_split`, by the patient or the film.

    The dataset's own splits of films and patients (from `PatientSplits`) count only if `own`. Patients are told apart
    by `patient_of_film`; those that share a film are one (`groups`, of `CopiedFilms`).
    """
    if own and record.split is not None:
        return record.split
    name = group_name(record)
    name = (groups or {}).get(name, name)
    if own and name in patient_splits:
        return patient_splits[name]
    return hashed_split(name, shares, seed)


class PatientSplits:
    """Collects a dataset's own splits of its patients, and finds patients in several.

    >>> splits = PatientSplits()
    >>> splits.add(FilmRecord("a", "a.png", [], [], patient_id="7", split="train"))
    >>> splits.add(FilmRecord("b", "b.png", [], [], patient_id="7", split="test"))
    >>> splits.check()
    Traceback (most recent call last):
    ...
    ValueError: Expected every patient in one split of the dataset, got 1 in several: 7 (train, test). Draw the splits \
anew with splits_from="hash" (--splits-from hash).
    """

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        self.names: set[str] = set()
        self._several: dict[str, dict[str, None]] = {}

    def add(self, record: FilmRecord) -> None:
        """Add one film."""
        if record.split is None:
            return
        if record.split not in self.names:
            check_split_name(record.split)
            self.names.add(record.split)
        patient = patient_of_film(record)
        if patient is not None:
            first = self.known.setdefault(patient, record.split)
            if first != record.split:
                self._several.setdefault(patient, {first: None})[record.split] = None

    def check(self) -> None:
        """Raise an error that names patients in several splits."""
        if self._several:
            raise ValueError(
                "Expected every patient in one split of the dataset, got "
                f"{len(self._several)} in several: {_named(self._several.items())}. "
                'Draw the splits anew with splits_from="hash" (--splits-from hash).'
            )


def _named(several: Iterable[tuple[str, Mapping[str, None]]]) -> str:
    names = [f"{patient} ({', '.join(splits)})" for patient, splits in several]
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")

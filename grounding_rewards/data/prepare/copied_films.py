"""Copies of a film, under other names, of other sizes or encoded again, end in one split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from grounding_rewards.data.copies import film_signature, find_copies
from grounding_rewards.data.film_paths import film_path
from grounding_rewards.data.images import open_film
from grounding_rewards.data.patients import patient_of_film
from grounding_rewards.data.readers.base import FilmRecord

_SHOWN = 5


class CopiedFilms(NamedTuple):
    """What the copies among the films mean for their splits.

    groups: Of every patient, or film whose patient is not known, that shares a film with others: the name of all of
        them together, which is drawn instead.
    splits: The dataset's own split of such a group, where it has one.
    left_out: Films that have a copy in another split of the dataset's own, and why they are left out.
    films: How many films are copies of others.
    """

    groups: Mapping[str, str] = {}
    splits: Mapping[str, str] = {}
    left_out: Mapping[str, str] = {}
    films: int = 0


def signature_of_file(root: str, allow_outside: bool, file: str) -> bytes | None:
    """The signature of a film's image; None where it cannot be read, which is said when it is to be stored."""
    try:
        return film_signature(open_film(film_path(root, file, allow_outside=allow_outside)))
    except ValueError:
        return None


def join_copies(
    films: Iterable[tuple[FilmRecord, bytes | None]], patient_splits: Mapping[str, str], *, own: bool, skip: bool
) -> CopiedFilms:
    """Join patients, and films whose patient is not known, that share a film.

    Args:
        films: Records with the signatures of their images.
        patient_splits: The dataset's own split of each patient.
        own: Whether the dataset's own splits count.
        skip: Whether a film that has a copy in another split of the dataset's own is left out; else it is an error.

    Raises:
        ValueError: A film and its copy are in two splits of the dataset's own.

    >>> films = [FilmRecord(name, f"{name}.png", [], []) for name in "ab"]
    >>> join_copies([(film, bytes([1] * 2048)) for film in films], {}, own=True, skip=False).groups
    {'a': 'a', 'b': 'a'}
    """
    places: list[tuple[str, str, str | None]] = []
    signatures = []
    for film, signature in films:
        patient = patient_of_film(film)
        of_patient = None if patient is None else patient_splits.get(patient)
        places.append((film.id, patient or film.id, (film.split or of_patient) if own else None))
        signatures.append(signature)
    pairs = list(find_copies(signatures))
    left_out = _left_out([(places[a], places[b]) for a, b in pairs], Counter(split for *_, split in places))
    if left_out and not skip:
        named = "; ".join(f"{film} is {reason}" for film, reason in list(left_out.items())[:_SHOWN])
        raise ValueError(
            f"Expected no film in two splits of the dataset, got {len(left_out)} with a copy in another one: {named}"
            f'{"; …" if len(left_out) > _SHOWN else ""}. Draw the splits anew with splits_from="hash" (--splits-from '
            'hash), or leave these films out with bad_films="skip" (--bad-films skip).'
        )
    parents: dict[str, str] = {}

    def top(name: str) -> str:
        while (above := parents.setdefault(name, name)) != name:
            parents[name] = parents[above]
            name = parents[name]
        return name

    for a, b in pairs:
        if not {places[a][0], places[b][0]} & left_out.keys():
            # The smaller name stays, whatever the order of the films.
            first, second = sorted((top(places[a][1]), top(places[b][1])))
            parents[second] = first
    groups = {name: top(name) for name in parents}
    splits = {groups[name]: split for _, name, split in places if name in groups and split is not None}
    return CopiedFilms(groups, splits, left_out, len({place for pair in pairs for place in pair}))


def _left_out(
    pairs: Iterable[tuple[tuple[str, str, str | None], tuple[str, str, str | None]]], films: Mapping[str | None, int]
) -> dict[str, str]:
    """The films to leave out: of two copies in two splits, the one in the larger split, which is that of training."""
    found: dict[str, str] = {}
    for pair in pairs:
        (film, _, split), (other, _, its_split) = sorted(pair, key=lambda one: (-films[one[2]], one[0]))
        if None not in (split, its_split) and split != its_split:
            found.setdefault(film, f"in {split} and a copy of {other} in {its_split}")
    return found

"""One name for each finding: labels of datasets and of models, brought to a shared vocabulary.

The vocabulary is `vocabulary.json`, beside this file: names, synonyms, what each dataset writes (typos included),
sources, and what was decided where datasets disagree. This module only looks up. A label that the vocabulary does not
know keeps its own words and has ``known=False``; it is never taken for a similar one.

Sides are the patient's, as in every radiology dataset: the left lung is on the right of the picture.
"""

import json
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, NamedTuple

#: What separates the findings of one box in PadChest-GR, and of one image in NIH's table.
SEVERAL = "|"

# Sides as a single letter at the start or end of a label; elsewhere the letter may be part of a name.
_INITIALS: Mapping[str, str] = MappingProxyType({"l": "left", "r": "right"})

# Longer than any finding's name: what models write at length in place of a label is not cached.
_LONGEST = 200


class Label(NamedTuple):
    """What a label says.

    name: the shared name; of a label that the vocabulary does not know, its own words in lower case.
    laterality: `left`, `right` or `bilateral`; None where the label has no side, or the side is part of the name.
    original: the label as it was given.
    known: whether the vocabulary has the finding.
    """

    name: str
    laterality: str | None
    original: str
    known: bool

    @property
    def text(self) -> str:
        """The name with its side.

        Example:
            >>> normalize_label("LLL consolidation").text, normalize_label("Cardiomegaly").text
            ('left consolidation', 'cardiomegaly')
        """
        return f"{self.laterality} {self.name}" if self.known and self.laterality else self.name


def normalize_label(text: str, dataset: str | None = None) -> Label:
    """Look a label or a short phrase up in the shared vocabulary.

    Case, hyphens, underscores, spacing and the s of the plural make no difference. Where the words as they are have no
    entry, they are looked up without the side (`left`, `bilateral`, `RLL`, …, and a single `L` or `R` at the start or
    end), then without words of degree (`small`, `severe`, …), then without words of place (`lower lobe`, `basal`, …).
    Nothing else is left out: `no effusion` and `effusion or mass` are unknown.

    Args:
        text: what a dataset or a model calls a finding.
        dataset: a source's name, such as `nih-chestxray14`; its own words come first, and words that mean something in
            this dataset alone count only here. None, or a dataset that the vocabulary does not have, has no such words.

    Returns:
        A :class:`Label`; with `known=False` where the vocabulary has no such finding.

    Raises:
        ValueError: `text` is not a string.

    Example:
        >>> normalize_label("Left pleural effusion")
        Label(name='pleural effusion', laterality='left', original='Left pleural effusion', known=True)
        >>> normalize_label("Diagphramatic hernia", "vindr-pcxr").name
        'diaphragmatic hernia'
        >>> normalize_label("No  effusion")
        Label(name='no effusion', laterality=None, original='No  effusion', known=False)

    Source: `vocabulary.json`.
    """
    if not isinstance(text, str):
        raise ValueError(f"Expected a text for `text`, got {text!r}. Leave out what has no label.")
    return _normalize(text, dataset) if len(text) <= _LONGEST else _unknown(text, None)


def are_synonyms(a: str, b: str) -> bool:
    """Whether two labels name the same finding, on sides that don't contradict each other.

    A finding without a side agrees with every side, and `bilateral` with both. For parts of the chest the sides must be
    equal: the left lung is neither the right one nor `lung`. Unknown labels agree if they are equal up to case and
    spacing. A finding does not agree with its kinds, so that no word is right everywhere. The relation is symmetric,
    but not transitive: `effusion` agrees with a left and a right one.

    Example:
        >>> are_synonyms("Effusion", "left pleural effusion"), are_synonyms("left effusion", "right effusion")
        (True, False)
        >>> are_synonyms("left lung", "lung"), are_synonyms("Nodule/Mass", "nodule")
        (False, False)
    """
    label_a, label_b = normalize_label(a), normalize_label(b)
    if label_a.name != label_b.name:
        return False
    if label_a.name in anatomy():
        return label_a.laterality == label_b.laterality
    # Any other two sides agree: equal ones, `bilateral` with both, and no side with all.
    return {label_a.laterality, label_b.laterality} != {"left", "right"}


@cache
def vocabulary() -> Mapping[str, tuple[str, ...]]:
    """The synonyms that hold in any dataset, of each finding and part of the chest by its shared name.

    Example:
        >>> vocabulary()["pleural effusion"][0]
        'effusion'
    """
    entries = {**_file()["findings"], **_file()["anatomy"]}
    return MappingProxyType({name: tuple(entry.get("synonyms", ())) for name, entry in entries.items()})


@cache
def anatomy() -> frozenset[str]:
    """The shared names of parts of the chest, which are no findings.

    Example:
        >>> "carina" in anatomy(), "pneumothorax" in anatomy()
        (True, False)
    """
    return frozenset(_file()["anatomy"])


@lru_cache(maxsize=16384)
def _normalize(text: str, dataset: str | None) -> Label:
    """:func:`normalize_label` of a text short enough to be cached: the words are looked up, then ever fewer of them."""
    words = _words(text)
    # A single L or R may be part of a name that has an entry; only where there is no entry is it a side.
    if _look_up(words, dataset) is None:
        words = _with_sides_spelled_out(words)
    sides, degrees, places = _side_of(), _file()["degrees"], _file()["places"]
    named_sides = {sides[word] for word in words if word in sides}
    # "Left and right effusion" names two sides; most labels name one or none.
    laterality = "bilateral" if len(named_sides) > 1 else next(iter(named_sides), None)
    # Words of degree and of place do not change what a finding is.
    without_sides = [word for word in words if word not in sides]
    without_degrees = [word for word in without_sides if word not in degrees]
    without_places = [word for word in without_degrees if word not in places]
    # Each with whether it may be a part of the chest: words of degree and place belong to the name of one, as the lower
    # abdomen is not the abdomen.
    candidates = ((words, True), (without_sides, True), (without_degrees, False), (without_places, False))
    for candidate, may_be_anatomy in candidates:
        name = _look_up(candidate, dataset)
        if name is None or (name in anatomy() and not may_be_anatomy):
            continue
        # Prefer an entry with the side in its name: the left heart is not a heart on the left.
        if f"{laterality} {name}" in vocabulary():
            name = f"{laterality} {name}"
        # A side that is part of the name is not told again.
        if not sides.keys().isdisjoint(_words(name)):
            laterality = None
        return Label(name, laterality, text, known=True)
    return _unknown(text, laterality)


def _with_sides_spelled_out(words: list[str]) -> list[str]:
    """The words with a single L or R at their start or end written out.

    Example:
        >>> [_with_sides_spelled_out(words) for words in (["l", "effusion"], ["level", "l", "x"], ["l"])]
        [['left', 'effusion'], ['level', 'l', 'x'], ['l']]
    """
    if len(words) < 2:
        return words
    return [_INITIALS.get(words[0], words[0]), *words[1:-1], _INITIALS.get(words[-1], words[-1])]


def _unknown(text: str, laterality: str | None) -> Label:
    """The label of a text that the vocabulary does not have."""
    return Label(" ".join(text.casefold().split()), laterality, text, known=False)


def _look_up(words: list[str], dataset: str | None) -> str | None:
    """The shared name of these words, the last of them as it is or in the singular; None without an entry.

    The dataset's own words come before those of all datasets.
    """
    dataset_names, shared_names = _dataset_names(dataset), _shared_names()
    # There may be no last word, as nothing is left of a label that is only a side.
    singular = [*words[:-1], *map(_singular, words[-1:])]
    for key in (" ".join(words), " ".join(singular)):
        name = dataset_names.get(key) or shared_names.get(key)
        if name is not None:
            return name
    return None


def _words(text: str) -> list[str]:
    """The words of a label in lower case."""
    return re.sub(r"[\W_]+", " ", text.casefold()).split()


def _key(text: str) -> str:
    """The words of a label as `_look_up` asks for them."""
    return " ".join(_words(text))


def _singular(word: str) -> str:
    """The word without the ending of a plural: `opacity` of `opacities`, `mass` of `masses`, `nodule` of `nodules`."""
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("sses", "xes")):
        return word[:-2]
    # Not the s of `mass`, `fibrosis` and `hiatus`.
    if word.endswith("s") and not word.endswith(("ss", "is", "us")):
        return word[:-1]
    return word


@cache
def _file() -> dict[str, Any]:
    """The content of `vocabulary.json`."""
    text = files("grounding_rewards").joinpath("vocabulary.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


@cache
def _shared_names() -> dict[str, str]:
    """The shared name of every label and synonym that counts in all datasets, by its `_key`."""
    names = {_key(word): name for name, synonyms in vocabulary().items() for word in (name, *synonyms)}
    for dataset in _file()["datasets"].values():
        # Labels that mean something else, or nothing, in other datasets.
        excluded = dataset.get("own_words", ())
        names |= {_key(label): name for label, name in dataset["labels"].items() if label not in excluded}
    return names


@cache
def _dataset_names(dataset: str | None) -> dict[str, str]:
    """The shared name of every label of a dataset, by its key; none for a dataset that is not known."""
    labels = _file()["datasets"].get(dataset, {}).get("labels", {})
    return {_key(label): name for label, name in labels.items()}


@cache
def _side_of() -> dict[str, str]:
    """The side of every word that names one."""
    return {word: side for side, words in _file()["sides"].items() for word in words}

"""Different spellings and words for one finding among the labels of a dataset."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import NamedTuple

from grounding_rewards.labels import normalize_label, vocabulary

# Free phrases are no labels: beyond this many distinct ones, near spellings are not looked for.
_MOST_LABELS = 500
_LEAST_LETTERS = 6
_LEAST_SIMILAR = 0.85
# A slip of the pen is rare beside what was meant.
_RARER = 0.2
# They look alike and mean the opposite, or another place.
_OPPOSITES = (
    ("hyper", "hypo"),
    ("tachy", "brady"),
    ("macro", "micro"),
    ("intra", "extra"),
    ("intra", "inter"),
    ("supra", "infra"),
    ("pre", "post"),
    ("hemo", "pneumo"),
    ("hydro", "pneumo"),
    ("hemo", "hydro"),
)


class Variants(NamedTuple):
    """Labels that are probably one.

    labels: as the dataset has them, the most frequent first.
    counts: how often each occurs.
    why: what tells them apart: `case, spacing or plural`, `spelling`, or `words`.
    """

    labels: tuple[str, ...]
    counts: tuple[int, ...]
    why: str


def spelling_key(label: str) -> str:
    """A label without what case, spacing, hyphens and the plural make of it.

    >>> spelling_key("Lung  Opacities"), spelling_key("lung_opacity"), spelling_key("Fibrosis")
    ('lung opacity', 'lung opacity', 'fibrosis')
    """
    text = unicodedata.normalize("NFKC", label).casefold()
    words = re.sub(r"[\s_\-–/]+", " ", text).strip().split(" ")
    return " ".join([*words[:-1], _singular(words[-1])])


def label_variants(counts: Mapping[str, int]) -> list[Variants]:
    """The labels of a dataset that are probably one, group by group.

    Args:
        counts: how often each label occurs.

    Returns:
        First those that differ in case, spacing or plural; then near spellings, of which one is rare; then different
        words that the shared vocabulary knows for one finding (see :mod:`grounding_rewards.labels`).

    Example:
        >>> for group in label_variants({"Effusion": 40, "effusion": 9, "cardiomegaly": 30, "cardiomegally": 2}):
        ...     print(group.why, group.labels)
        case, spacing or plural ('Effusion', 'effusion')
        spelling ('cardiomegaly', 'cardiomegally')
    """
    groups: dict[str, list[str]] = {}
    for label in counts:
        groups.setdefault(spelling_key(label), []).append(label)
    totals = {key: sum(counts[label] for label in labels) for key, labels in groups.items()}
    found = [_variants(labels, counts, "case, spacing or plural") for labels in groups.values() if len(labels) > 1]
    pairs = list(_near_spellings(totals))
    for common, rare in pairs:
        found.append(_variants([groups[common][0], groups[rare][0]], counts, "spelling"))
    misspelt = {rare for _, rare in pairs}
    same: dict[str, list[str]] = {}
    for key in groups:
        if key not in misspelt and (name := _name_of(key)) is not None:
            same.setdefault(name, []).append(groups[key][0])
    found += [_variants(labels, counts, "words") for labels in same.values() if len(labels) > 1]
    return found


def _name_of(key: str) -> str | None:
    """The shared name of a label that is a name or a synonym as it is; with a place or a degree it says more."""
    label = normalize_label(key)
    if not label.known:
        return None
    finding = vocabulary()[label.name]
    return finding.name if key in map(spelling_key, (finding.name, *finding.synonyms)) else None


def _variants(labels: list[str], counts: Mapping[str, int], why: str) -> Variants:
    ordered = sorted(labels, key=lambda label: -counts[label])
    return Variants(tuple(ordered), tuple(counts[label] for label in ordered), why)


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    # Words on -is, -us and -ss are no plurals.
    if word.endswith("s") and not word.endswith(("is", "us", "ss")) and len(word) > 3:
        return word[:-1]
    return word


def _near_spellings(totals: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Pairs of a frequent and a rare label that differ in a slip."""
    if len(totals) > _MOST_LABELS:
        return
    ordered = sorted(totals, key=lambda key: -totals[key])
    for k, rare in enumerate(ordered):
        for common in ordered[:k]:
            if totals[rare] <= max(1, _RARER * totals[common]) < totals[common] and _is_slip(common, rare):
                yield common, rare
                break


def _is_slip(common: str, rare: str) -> bool:
    """Whether two labels differ in one word by a slip of the pen, and not in a digit, a prefix or a known meaning."""
    first, second = common.split(" "), rare.split(" ")
    if len(first) != len(second):
        differing = [(common.replace(" ", ""), rare.replace(" ", ""))]
    else:
        differing = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
    return len(differing) == 1 and _is_near(*differing[0]) and not _are_two_findings(common, rare)


def _are_two_findings(common: str, rare: str) -> bool:
    """Whether the shared vocabulary knows both; two words for one finding are no slip either."""
    return normalize_label(common).known and normalize_label(rare).known


def _is_near(a: str, b: str) -> bool:
    if min(len(a), len(b)) < _LEAST_LETTERS or any(letter.isdigit() for letter in a + b):
        return False
    if any((a.startswith(x) and b.startswith(y)) or (a.startswith(y) and b.startswith(x)) for x, y in _OPPOSITES):
        return False
    return SequenceMatcher(None, a, b, autojunk=False).ratio() >= _LEAST_SIMILAR

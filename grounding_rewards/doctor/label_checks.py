"""Checks of labels: one for each box, and one name for each finding."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from grounding_rewards.data.checks import is_blank, row_problems
from grounding_rewards.doctor.box_defects import is_null_label
from grounding_rewards.doctor.context import Context, Defect, Problem
from grounding_rewards.labels import normalize_label, vocabulary

# With more distinct labels than this they are free phrases, and slips are not looked for.
_MAX_LABELS = 500
# One letter in a shorter word may make another word of it.
_MIN_LETTERS = 7
# The number of a class in the place of its name.
_NUMBER = re.compile(r"(?:class|label|category|cat|id)?[ _#-]*\d+(?:\.0)?", re.IGNORECASE)
# Prefixes that mean opposites or other places, by one letter.
_OPPOSITES = ({"hyper", "hypo"}, {"inter", "intra"}, {"ante", "anti"})


def check_labels(context: Context) -> Iterator[Defect]:
    """Missing and blank labels, several labels for one finding, and numbers of classes."""
    yield from context.collect(_label_problems(context))
    labels = context.labels
    if variants := label_variants(labels):
        rows = []
        for variant in variants:
            names = ", ".join(f"{label!r} × {labels[label]}" for label in variant.labels)
            rows.append((None, f"{names}: {variant.why}"))
        count = len({label for variant in variants for label in variant.labels})
        summary = f"{len(variants)} {'group' if len(variants) == 1 else 'groups'} of labels are probably one each."
        yield context.defect("label-spelling", rows, count=count, of=len(labels), found=summary)
    if numbers := [label for label in labels if _NUMBER.fullmatch(label.strip())]:
        rows = [(None, f"{label!r:.80} × {labels[label]}") for label in numbers]
        yield context.defect("label-number", rows, of=len(labels))


def _label_problems(context: Context) -> Iterator[Problem]:
    for row in context.rows:
        if problems := list(row_problems(row.columns, parts=["labels"])):
            yield Problem("label-count", row, "; ".join(problems))
    table = context.table
    for place, defect in zip(table.places, table.defects, strict=True):
        has_label = place.number < len(place.drawing.labels) and defect != "negative-placeholder"
        if has_label and (is_blank(place.label) or is_null_label(place.label)):
            yield place.problem("blank-label", f"has the label {place.label!r:.40}")


class Variants(NamedTuple):
    """Labels that probably mean the same.

    labels: as the dataset writes them, the most frequent first.
    why: how they differ: `case, spacing or plural`, `spelling`, or `words`.
    """

    labels: tuple[str, ...]
    why: str


def label_variants(counts: Mapping[str, int]) -> list[Variants]:
    """Groups of labels that probably mean the same.

    Args:
        counts: how often each label occurs.

    Returns:
        First labels that differ in case, spacing or plural; then labels that differ by one letter; then synonyms by the
        shared vocabulary (see :mod:`grounding_rewards.labels`).

    Example:
        >>> for group in label_variants({"Effusion": 40, "effusion": 9, "cardiomegaly": 30, "cardiomegally": 2}):
        ...     print(group.why, group.labels)
        case, spacing or plural ('Effusion', 'effusion')
        spelling ('cardiomegaly', 'cardiomegally')
    """
    ordered = sorted(counts, key=lambda label: -counts[label])
    by_key: dict[str, list[str]] = {}
    for label in ordered:
        if not is_blank(label) and not is_null_label(label):
            by_key.setdefault(spelling_key(label), []).append(label)
    variants = [Variants(tuple(labels), "case, spacing or plural") for labels in by_key.values() if len(labels) > 1]
    keys = list(by_key) if len(by_key) <= _MAX_LABELS else []
    misspelt = set()
    for k, rare in enumerate(keys):
        common = next((key for key in keys[:k] if is_slip(key, rare)), None)
        if common is not None:
            misspelt.add(rare)
            variants.append(Variants((by_key[common][0], by_key[rare][0]), "spelling"))
    by_name: dict[str, list[str]] = {}
    for key, labels in by_key.items():
        if key not in misspelt and (name := _vocabulary_name(key)) is not None:
            by_name.setdefault(name, []).append(labels[0])
    return variants + [Variants(tuple(labels), "words") for labels in by_name.values() if len(labels) > 1]


def spelling_key(label: str) -> str:
    """A label in lower case and singular, with single spaces.

    >>> spelling_key("Lung  Opacities"), spelling_key("lung_opacity"), spelling_key("Fibrosis")
    ('lung opacity', 'lung opacity', 'fibrosis')
    """
    text = unicodedata.normalize("NFKC", label).casefold()
    words = re.sub(r"[\s_\-–/]+", " ", text).strip().split(" ")
    return " ".join([*words[:-1], _singular(words[-1])])


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    # Words ending in -is, -us and -ss are no plurals.
    if word.endswith("s") and not word.endswith(("is", "us", "ss")) and len(word) > 3:
        return word[:-1]
    return word


@lru_cache(maxsize=4096)
def _vocabulary_name(key: str) -> str | None:
    """The shared name of a label that is a name or synonym; None if it also states a place or a degree."""
    label = normalize_label(key)
    if not label.known:
        return None
    finding = vocabulary()[label.name]
    return finding.name if key in map(spelling_key, (finding.name, *finding.synonyms)) else None


def is_slip(label: str, second: str) -> bool:
    """Whether two labels differ in one word by one letter or two that are exchanged, and not in a known meaning.

    Example:
        >>> [is_slip("pleural effusion", other) for other in ("plural effusion", "pleural effusoin", "pleural lesion")]
        [True, True, False]
        >>> is_slip("hyperinflation", "hypoinflation"), is_slip("12th rib", "11th rib")
        (False, False)
    """
    words, second_words = label.split(" "), second.split(" ")
    if len(words) != len(second_words):
        # The space is missing.
        words, second_words = [label.replace(" ", "")], [second.replace(" ", "")]
    differing = [pair for pair in zip(words, second_words, strict=True) if pair[0] != pair[1]]
    if not differing:
        return True
    if len(differing) > 1 or (normalize_label(label).known and normalize_label(second).known):
        return False
    short, long = sorted(differing[0], key=len)
    if len(short) < _MIN_LETTERS - 1 or len(long) < _MIN_LETTERS or not (short + long).isalpha():
        return False
    for pair in _OPPOSITES:
        if {prefix for prefix in pair if short.startswith(prefix) or long.startswith(prefix)} == pair:
            return False
    start = next((k for k, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    ending, longer = short[start:], long[start:]
    if len(short) < len(long):
        return ending == longer[1:]
    return ending[1:] == longer[1:] or (ending[:2] == longer[1::-1] and ending[2:] == longer[2:])

"""Checks of labels: one for each box, and one name for each finding."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import NamedTuple

from grounding_rewards.data.checks import is_blank, row_problems
from grounding_rewards.doctor.box_defects import is_null_label, is_placeholder
from grounding_rewards.doctor.case import Examiner
from grounding_rewards.doctor.defects import CHECKS, Defect, Example, Problem, named
from grounding_rewards.doctor.raw_rows import ImageRow
from grounding_rewards.labels import normalize_label, vocabulary

# With more distinct labels than this they are free phrases, and near spellings are not looked for.
_MOST_LABELS = 500
_LEAST_LETTERS = 6
_LEAST_SIMILAR = 0.85
# A typo is at most this frequent beside the right spelling.
_RARER = 0.2
# Names of findings have no more words than this.
_LONGEST_NAME = 4
_QUOTES = "\"'`“”„‘’«»[{"
# So large a part of so many boxes under one of several labels.
_ONE_LABEL, _FEWEST_OF_ONE = 0.98, 100
# Prefixes that look alike but mean opposites or other places.
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


class LabelExaminer(Examiner):
    """Missing and blank labels, and several labels for one finding."""

    checks = named(
        *("label-count", "blank-label", "null-label", "label-spelling", "label-words", "label-marks", "label-number"),
        "one-label",
    )

    def look(self, row: ImageRow) -> Iterator[Problem]:
        if wrong := list(row_problems(row.columns, about=["labels"])):
            yield Problem("label-count", "; ".join(wrong))
        for drawing in row.drawings:
            for index, label in enumerate(drawing.labels):
                if index < len(drawing.boxes) and is_placeholder(drawing.boxes[index], label):
                    continue
                if is_null_label(label):
                    yield Problem("null-label", f"{drawing.prefix}label {index} is {label!r:.40}", drawing.name)
                if is_blank(label):
                    yield Problem("blank-label", f"{drawing.prefix}label {index} is {label!r:.40}", drawing.name)

    def defects(self) -> Iterator[Defect]:
        yield from super().defects()
        labels = self.case.metrics.labels
        groups = label_variants(labels)
        for check in (CHECKS["label-spelling"], CHECKS["label-words"]):
            mine = [group for group in groups if (group.why == "words") == (check is CHECKS["label-words"])]
            if mine:
                found = f"{len(mine)} {'group' if len(mine) == 1 else 'groups'} of labels that are probably one each."
                listed = [", ".join(f"{label!r} × {labels[label]}" for label in group.labels) for group in mine]
                examples = [Example("", -1, "", one) for one in listed]
                yield check.defect(sum(len(group.labels) for group in mine), len(labels), found, examples)
        for check, is_odd in ((CHECKS["label-marks"], is_marked), (CHECKS["label-number"], _is_number)):
            if odd := [label for label in labels if is_odd(label)]:
                examples = [Example("", -1, "", f"{label!r:.80} × {labels[label]}") for label in odd]
                yield check.defect(len(odd), len(labels), "", examples)
        boxes = sum(labels.values())
        most, count = max(labels.items(), key=lambda one: one[1], default=("", 0))
        if len(labels) > 1 and boxes >= _FEWEST_OF_ONE and count >= _ONE_LABEL * boxes:
            yield CHECKS["one-label"].defect(count, boxes, f"{count} of {boxes} boxes are {most!r:.80}.")


def is_marked(label: str) -> bool:
    """Whether a label holds marks of the file that it was read from: quotes, a stop, half a bracket, wrong letters.

    Example:
        >>> [is_marked(label) for label in ("'nodule'", "effusion.", "calcificaciÃ³n", "calcificación", "mass (left)")]
        [True, True, True, False, False]
    """
    text = label.strip()
    if "\ufffd" in text or _is_misread(text):
        return True
    # Longer ones are sentences.
    if len(text.split()) > _LONGEST_NAME or is_blank(text):
        return False
    is_odd = any(text.count(first) != text.count(last) for first, last in ("()", "[]", "{}"))
    return is_odd or text[:1] in _QUOTES or text[-1:] in _QUOTES + ".,;:"


def _is_misread(text: str) -> bool:
    """Whether a text is UTF-8 that was read as Windows' letters."""
    try:
        return not text.isascii() and text.encode("cp1252").decode("utf-8") != text
    except UnicodeError:
        return False


def _is_number(label: str) -> bool:
    return label.strip().isdecimal()


class Variants(NamedTuple):
    """Labels that probably mean the same.

    labels: as the dataset writes them, the most frequent first.
    why: how they differ: `case, spacing or plural`, `spelling`, or `words`.
    """

    labels: tuple[str, ...]
    why: str


def spelling_key(label: str) -> str:
    """A label in lower case and singular, with single spaces.

    >>> spelling_key("Lung  Opacities"), spelling_key("lung_opacity"), spelling_key("Fibrosis")
    ('lung opacity', 'lung opacity', 'fibrosis')
    """
    text = unicodedata.normalize("NFKC", label).casefold()
    words = re.sub(r"[\s_\-–/]+", " ", text).strip().split(" ")
    return " ".join([*words[:-1], _singular(words[-1])])


def label_variants(counts: Mapping[str, int]) -> list[Variants]:
    """Groups of labels that probably mean the same.

    Args:
        counts: how often each label occurs.

    Returns:
        First labels that differ in case, spacing or plural; then a frequent label and a rare near spelling; then
        synonyms by the shared vocabulary (see :mod:`grounding_rewards.labels`).

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
    """The shared name of a label that is a name or synonym; None if it also states a place or a degree."""
    label = normalize_label(key)
    if not label.known:
        return None
    finding = vocabulary()[label.name]
    return finding.name if key in map(spelling_key, (finding.name, *finding.synonyms)) else None


def _variants(labels: list[str], counts: Mapping[str, int], why: str) -> Variants:
    return Variants(tuple(sorted(labels, key=lambda label: -counts[label])), why)


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    # Words ending in -is, -us and -ss are no plurals.
    if word.endswith("s") and not word.endswith(("is", "us", "ss")) and len(word) > 3:
        return word[:-1]
    return word


def _near_spellings(totals: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Pairs of a frequent label and a rare one that is probably a typo of it."""
    if len(totals) > _MOST_LABELS:
        return
    ordered = sorted(totals, key=lambda key: -totals[key])
    for k, rare in enumerate(ordered):
        for common in ordered[:k]:
            if totals[rare] <= max(1, _RARER * totals[common]) < totals[common] and _is_slip(common, rare):
                yield common, rare
                break


def _is_slip(common: str, rare: str) -> bool:
    """Whether two labels differ in one word by a typo, and not in a digit, a prefix or a known meaning."""
    first, second = common.split(" "), rare.split(" ")
    if len(first) != len(second):
        differing = [(common.replace(" ", ""), rare.replace(" ", ""))]
    else:
        differing = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
    if len(differing) != 1 or not _is_near(*differing[0]):
        return False
    return not (normalize_label(common).known and normalize_label(rare).known)


def _is_near(a: str, b: str) -> bool:
    if min(len(a), len(b)) < _LEAST_LETTERS or any(letter.isdigit() for letter in a + b):
        return False
    if any((a.startswith(x) and b.startswith(y)) or (a.startswith(y) and b.startswith(x)) for x, y in _OPPOSITES):
        return False
    return SequenceMatcher(None, a, b, autojunk=False).ratio() >= _LEAST_SIMILAR

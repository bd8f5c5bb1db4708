"""Check that each box has a label, and each finding a single name."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple

from grounding_rewards.data.box_defects import is_null_label
from grounding_rewards.data.checks import is_blank, row_problems
from grounding_rewards.doctor.context import Context, Defect, Fault, Problem
from grounding_rewards.labels import normalize_label, vocabulary

# Most distinct labels that are compared letter by letter; more of them are free phrases.
_MAX_LABELS = 500
# Fewest letters of a misspelt word: in a shorter one, another letter may make another word.
_MIN_LETTERS = 6
# Similarity of a word to itself with a slip of the pen.
_SAME_WORD = 0.9
# Prefixes that differ by a letter or two and have different meanings, as in hyper- and hypoattenuating.
_OPPOSITES = ({"hyper", "hypo"}, {"inter", "intra"}, {"ante", "anti"})


def check_labels(context: Context) -> Iterator[Defect]:
    """Find missing and blank labels, and several labels for one finding."""
    yield from context.collect(_label_problems(context))
    counts = context.labels
    groups = label_variants(counts)
    if groups:
        faults = []
        for group in groups:
            names = ", ".join(f"{label!r} × {counts[label]}" for label in group.labels)
            faults.append(Fault(None, f"{names}: {group.why}"))
        affected_labels = {label for group in groups for label in group.labels}
        noun = "group" if len(groups) == 1 else "groups"
        summary = f"{len(groups)} {noun} of labels are probably one each."
        yield context.defect("label-spelling", faults, count=len(affected_labels), of=len(counts), found=summary)


def _label_problems(context: Context) -> Iterator[Problem]:
    """Yield rows with another number of labels than of boxes, and boxes whose label is blank or a missing value."""
    for row in context.rows:
        problems = list(row_problems(row.columns, parts=["labels"]))
        if problems:
            yield Problem("label-count", row, "; ".join(problems))
    table = context.table
    for place, defect in zip(table.places, table.defects, strict=True):
        # A box that stands for "no finding" needs no label; a box beyond the list of labels is counted above.
        has_label = place.number < len(place.drawing.labels) and defect != "negative-placeholder"
        if has_label and (is_blank(place.label) or is_null_label(place.label)):
            yield place.problem("blank-label", f"has the label {place.label!r:.40}")


class Variants(NamedTuple):
    """Labels that probably mean the same.

    Attributes:
        labels: as the dataset writes them, the most frequent first.
        why: how they differ: `case, spacing or plural`, `spelling`, or `words`.
    """

    labels: tuple[str, ...]
    why: str


def label_variants(counts: Mapping[str, int]) -> list[Variants]:
    """Find groups of labels that probably mean the same.

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
    # By their common spelling. The most frequent labels come first, and so do the keys of the dictionary.
    labels_by_key: dict[str, list[str]] = {}
    for label in sorted(counts, key=lambda label: -counts[label]):
        if not is_blank(label) and not is_null_label(label):
            labels_by_key.setdefault(spelling_key(label), []).append(label)
    groups = [
        Variants(tuple(labels), "case, spacing or plural") for labels in labels_by_key.values() if len(labels) > 1
    ]
    # Each spelling is compared with all more frequent ones, of which it may be a slip.
    keys = list(labels_by_key) if len(labels_by_key) <= _MAX_LABELS else []
    misspelt_keys = set()
    for number, rare_key in enumerate(keys):
        for common_key in keys[:number]:
            if is_slip(common_key, rare_key):
                misspelt_keys.add(rare_key)
                groups.append(Variants((labels_by_key[common_key][0], labels_by_key[rare_key][0]), "spelling"))
                break
    # By the name that the vocabulary has for them.
    labels_by_name: dict[str, list[str]] = {}
    for key, labels in labels_by_key.items():
        name = _vocabulary_name(key)
        # A slip stands in a group already.
        if name is not None and key not in misspelt_keys:
            labels_by_name.setdefault(name, []).append(labels[0])
    return groups + [Variants(tuple(labels), "words") for labels in labels_by_name.values() if len(labels) > 1]


def spelling_key(label: str) -> str:
    """A label in lower case and singular, with single spaces.

    >>> spelling_key("Lung  Opacities"), spelling_key("lung_opacity"), spelling_key("Fibrosis")
    ('lung opacity', 'lung opacity', 'fibrosis')
    """
    text = unicodedata.normalize("NFKC", label).casefold()
    words = re.sub(r"[\s_\-–/]+", " ", text).strip().split(" ")
    return " ".join([*words[:-1], _singular(words[-1])])


def _singular(word: str) -> str:
    """An English word without the ending of its plural, if it has one."""
    # A short word keeps its letters but for the s ("dies", "die"), and one of three letters that too ("gas").
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
    """The name in the shared vocabulary of a label that is a name or a synonym there; None for any other label."""
    label = normalize_label(key)
    if not label.known:
        return None
    # `normalize_label` knows names with sides and sizes too, which are no synonyms.
    names = (label.name, *vocabulary()[label.name])
    return label.name if key in map(spelling_key, names) else None


def is_slip(label: str, second_label: str) -> bool:
    """Whether one label is the other misspelt: in one word, by one letter or by two that are exchanged.

    Example:
        >>> [is_slip("pleural effusion", other) for other in ("plural effusion", "pleural effusoin", "pleural lesion")]
        [True, True, False]
        >>> is_slip("hyperinflation", "hypoinflation"), is_slip("12th rib", "11th rib")
        (False, False)
    """
    words, second_words = label.split(" "), second_label.split(" ")
    if len(words) != len(second_words):
        return False
    differing_words = [pair for pair in zip(words, second_words, strict=True) if pair[0] != pair[1]]
    if len(differing_words) != 1:
        return False
    word, second_word = differing_words[0]
    # A number tells findings apart, as "rib 1" and "rib 2".
    if min(len(word), len(second_word)) < _MIN_LETTERS or not (word + second_word).isalpha():
        return False
    for prefixes in _OPPOSITES:
        # The words have one of the two prefixes each: they mean opposite things.
        if all(word.startswith(prefix) or second_word.startswith(prefix) for prefix in prefixes):
            return False
    # Two exchanged letters leave the same letters; one other letter leaves the words similar.
    is_exchanged = sorted(word) == sorted(second_word)
    return is_exchanged or SequenceMatcher(None, word, second_word).ratio() >= _SAME_WORD

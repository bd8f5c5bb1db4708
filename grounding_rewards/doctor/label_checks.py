"""Checks of labels: one for each box, and one name for each finding."""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from grounding_rewards.data.checks import is_blank, row_problems
from grounding_rewards.doctor.box_defects import is_null_label, is_placeholder
from grounding_rewards.doctor.case import Case, Defect, Problem
from grounding_rewards.doctor.group_checks import labels_of
from grounding_rewards.doctor.raw_rows import ImageRow, texts
from grounding_rewards.labels import normalize_label, vocabulary

# With more distinct labels than this they are free phrases, and near spellings are not looked for.
_MOST_LABELS = 500
_LEAST_LETTERS = 6
_LEAST_SIMILAR = 0.85
# Of words of two languages, which have so many letters.
_LEAST_TRANSLATED, _LEAST_IN_LANGUAGE = 0.75, 4
# A typo is at most this frequent beside the right spelling.
_RARER = 0.2
# Names of findings have no more words than this.
_LONGEST_NAME = 4
# So many boxes of a class above others, and so large a part of all that are below it.
_FEWEST_BELOW, _MOST_BELOW = 10, 0.9
# A column that names none of so many is none of labels.
_ENOUGH = 50
# So many labels have the same words more.
_FEWEST_WITH_WORDS = 3
# Between several labels in one.
_JOINS = re.compile(r"[|;,/+&\\]|\band\b")
# Numbers of instances behind labels: so many boxes, and so large a part of those whose label ends in a number. Labels
# that differ in numbers are so many times fewer without.
_NUMBER_BEHIND, _FEWEST_COUNTED, _LEAST_COUNTED, _TIMES_FEWER = re.compile(r"[_#](\d{1,2})$"), 20, 0.9, 2
_SIDES = ("left", "right")
# A box is on a side if its centre is so far from the middle; of so many, so small a part may be wrong.
# One that reaches so far to both sides of the middle is on neither; a few patients stand askew.
_ASIDE, _FEWEST_OF_SIDE, _MOST_WRONG_SIDES, _ASTRIDE, _FEWEST_ASTRIDE = 0.1, 30, 0.3, 0.2, 6
# Words of doubt around the name of a finding.
_DOUBT = re.compile(
    r"\?|\b(?:possibl[ey]|probabl[ey]|likely|suspected|suspicio(?:us|n)(?: for| of)?|suspect|questionable|maybe|"
    r"presumed|cannot exclude|rule out|r/o|verdacht auf|v\.a\.|fraglich\w*)(?!\w)",
    re.IGNORECASE,
)
# Columns that name the findings of an image.
_OF_IMAGE = ("image_labels", "image_label", "findings", "finding_labels")
# What tools call a box that nobody named.
_DEFAULTS = {
    "object",
    "box",
    "bbox",
    "bounding box",
    "rect",
    "rectangle",
    "polygon",
    "roi",
    "label",
    "class",
    "default",
    "unknown",
    "unlabeled",
    "unlabelled",
    "unspecified",
    "unassigned",
    "background",
    "tbd",
    "todo",
}
_FILE = re.compile(r"\.(?:png|jpe?g|dcm|tiff?|txt|xml|json)$")
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


def check_labels(case: Case) -> Iterator[Defect]:
    """Missing and blank labels, several labels for one finding, and labels that are no names."""
    yield from case.collect(_label_problems(case))
    labels = case.labels
    groups = label_variants(labels)
    for name in ("label-spelling", "label-words"):
        if mine := [group for group in groups if (group.why == "words") == (name == "label-words")]:
            found = f"{len(mine)} {'group' if len(mine) == 1 else 'groups'} of labels that are probably one each."
            listed = [(None, ", ".join(f"{label!r} × {labels[label]}" for label in group.labels)) for group in mine]
            count = len({label for group in mine for label in group.labels})
            yield case.defect(name, listed, count=count, of=len(labels), found=found)
    alone = {spelling_key(label) for label in labels}
    odd_ones: tuple[tuple[str, Callable[[str], bool]], ...] = (
        ("label-marks", is_marked),
        ("label-number", is_numbered),
        (
            "hedged-label",
            lambda label: _DOUBT.search(label) is not None and spelling_key(_DOUBT.sub("", label)) in alone,
        ),
        ("label-letters", lambda label: any(is_abbreviation(label, other) for other in labels)),
    )
    for name, is_odd in odd_ones:
        if odd := [label for label in labels if is_odd(label)]:
            yield case.defect(name, [(None, f"{label!r:.80} × {labels[label]}") for label in odd], of=len(labels))
    if joined := [label for label in labels if len(parts := _parts(label)) > 1 and alone.issuperset(parts)]:
        yield case.defect("joined-labels", [(None, f"{one!r:.80} × {labels[one]}") for one in joined], of=len(labels))
    boxes = labels.total()
    most, count = max(labels.items(), key=lambda one: one[1], default=("", 0))
    if len(labels) > 1 and boxes >= _FEWEST_OF_ONE and count >= _ONE_LABEL * boxes:
        yield case.defect("one-label", count=count, of=boxes, found=f"{count} of {boxes} boxes are {most!r:.80}.")
    yield from _counted(case)
    yield from _wrong_sides(case)
    yield from _unboxed(case, alone)
    yield from case.collect(_named_otherwise(case))
    yield from _parents(case)


def _label_problems(case: Case) -> Iterator[Problem]:
    for row in case.rows:
        if wrong := list(row_problems(row.columns, about=["labels"])):
            yield Problem("label-count", row, "; ".join(wrong))
        names = {one.casefold() for one in (row.id, row.file, Path(row.file).stem, row.patient_id or "")}
        for drawing in row.drawings:
            for index, label in enumerate(drawing.labels):
                if index < len(drawing.boxes) and is_placeholder(drawing.boxes[index], label):
                    continue
                word = label.strip().casefold() if isinstance(label, str) else ""
                # What a column of names holds, which was taken for that of labels.
                is_name = len(word) > 1 and (word in names or _FILE.search(word) is not None)
                is_default = len(case.labels) > 1 and (word in _DEFAULTS or is_name)
                for name, is_none in (
                    ("null-label", is_null_label(label) or is_default),
                    ("blank-label", is_blank(label)),
                ):
                    if is_none:
                        detail = f"{drawing.prefix}label {index} is {label!r:.40}"
                        yield Problem(name, row, detail, drawing.name)


def _counted(case: Case) -> Iterator[Defect]:
    """Labels that end in the number of their box on the image."""
    places = list(case.labelled())
    ends = [(place, int(found[1])) for place in places if (found := _NUMBER_BEHIND.search(place.label))]
    right = [place for place, number in ends if number in (place.number, place.number + 1)]
    # Ribs and vertebrae have numbers of their own.
    several = len({_NUMBER_BEHIND.sub("", place.label) for place in right}) > 1
    # Sizes make a label of each box; in sentences they are meant.
    once = [
        label
        for label, count in case.labels.items()
        if count == 1 and re.search(r"\d", label) and len(label.split()) <= _LONGEST_NAME
    ]
    if len(once) >= _FEWEST_COUNTED and _TIMES_FEWER * len({re.sub(r"\d+", "", label) for label in once}) <= len(once):
        words = f"{len(once)} of {len(case.labels)} labels occur once, and differ in their numbers alone."
        yield case.defect(
            "label-number", [(None, f"{label!r:.80}") for label in once], of=len(case.labels), found=words
        )
    if several and len(right) >= max(_FEWEST_COUNTED, _LEAST_COUNTED * len(ends)):
        shown = [(place.row, f"label {place.number} is {place.label!r:.80}") for place in right]
        yield case.defect("label-number", shown, of=len(places), found="Labels end in the number of their box.")


def _wrong_sides(case: Case) -> Iterator[Defect]:
    """Findings of a side of the body that lie where nearly all those of the other side do, or on both sides."""
    table = case.table
    sides: defaultdict[str, list[tuple[ImageRow, str]]] = defaultdict(list)
    for k in np.flatnonzero(table.sound & table.answers).tolist():
        place, (start, _, end, _) = table.places[k], table.parts[k]
        phrases = place.row.columns.get("phrases")
        phrase = phrases[place.number] if isinstance(phrases, list) and place.number < len(phrases) else ""
        words = {word for word in re.findall("[a-z]+", f"{place.label} {phrase}".casefold()) if word in _SIDES}
        shown = place.row, f"{place.drawing.prefix}box {place.number}, {str(phrase or place.label)!r:.60}, is on"
        if len(words) == 1 and abs(start + end - 1) / 2 > _ASIDE:
            # The left of an image is the right of the patient.
            sides["own" if ("right" in words) == (start + end < 1) else "other"].append(shown)
        elif len(words) == 1 and start < 0.5 - _ASTRIDE and end > 0.5 + _ASTRIDE:
            sides["both"].append(shown)
    own, other, both = sides["own"], sides["other"], sides["both"]
    most = _MOST_WRONG_SIDES * (len(own) + len(other))
    if len(own) + len(other) < _FEWEST_OF_SIDE:
        return
    if most < len(other) <= 2 * most:
        # About as many on either side: unless they are of two groups, sides mean something else.
        of = {row.key: k for k, row in enumerate(case.rows)}
        at = [[of[row.key] for row, _ in mine] for mine in (own, other)]
        columns = (case.columns | case.other_columns).values()
        if not any(set(groups[at[0]]).isdisjoint(groups[at[1]]) for groups in columns):
            return
    wrong = [(row, f"{words} the other side") for row, words in other]
    if _FEWEST_ASTRIDE <= len(both) <= most:
        wrong += [(row, f"{words} both sides") for row, words in both]
    if wrong:
        yield case.defect("side-label", wrong, of=len(own) + len(other) + len(both))


def _unboxed(case: Case, boxed: Collection[str]) -> Iterator[Defect]:
    """Images without a box whose own labels name a finding that has boxes elsewhere."""
    shown: list[tuple[ImageRow, str]] = []
    for row, count in zip(case.rows, case.counts, strict=True):
        given = next((row.columns[name] for name in _OF_IMAGE if row.columns.get(name)), ())
        names = [given] if isinstance(given, str) else given if isinstance(given, list | tuple) else ()
        named = [
            one for name in names if isinstance(name, str) for one in name.split("|") if spelling_key(one) in boxed
        ]
        # Where the prompt asks for one finding, another one is not asked for.
        asked = {label for label in boxed if label in spelling_key(row.prompt or "")}
        if not count and (named := [one for one in named if not asked or spelling_key(one) in asked]):
            shown.append((row, f"no box, but labelled {named[0]!r:.60}"))
    if shown:
        yield case.defect("unboxed-label", shown)


def _parents(case: Case) -> Iterator[Defect]:
    """Labels that nearly always share the box of another label, one of several, which mostly stand without them."""
    at: defaultdict[tuple[object, ...], list[tuple[ImageRow, str]]] = defaultdict(list)
    for place in case.labelled():
        if len(place.drawing.boxes) > 1:
            at[place.row.key, place.drawing.name, str(place.box)].append((place.row, place.label))
    shared: defaultdict[str, list[tuple[ImageRow, str]]] = defaultdict(list)
    for here in at.values():
        for row, label in here:
            shared[label] += [(row, other) for _, other in here if other != label][:1]
    for label, mine in shared.items():
        below = Counter(other for _, other in mine)
        is_above = len(below) > 1 and len(mine) >= max(_FEWEST_BELOW, _ONE_LABEL * case.labels[label])
        if is_above and len(mine) <= _MOST_BELOW * sum(case.labels[other] for other in below):
            shown = [(row, f"a box of {other!r:.40} is {label!r:.40} too") for row, other in mine]
            yield case.defect("parent-label", shown, of=case.labels.total())


def _named_otherwise(case: Case) -> Iterator[Problem]:
    """Labels that another column of their row does not name, which names nearly all others."""
    columns = {
        name for row in case.rows for name, value in row.columns.items() if isinstance(value, str | list | tuple)
    }
    for column in sorted(columns - {"prompt", "labels", "boxes", "reader_labels"}):
        said: list[tuple[ImageRow, str]] = []
        for row in case.rows:
            if (labels := labels_of(row)) and (words := " | ".join(texts(row.columns.get(column)))):
                told = {spelling_key(word) for word in words.split("|")}
                names = {_name_of(one) or one for one in told} | told
                whole = spelling_key(words)
                keys = {spelling_key(label): label for label in sorted(labels)}
                strange = [of for key, of in keys.items() if key not in whole and (_name_of(key) or key) not in names]
                said.append((row, strange[0] if strange else ""))
                if len(said) == _ENOUGH and all(label for _, label in said):
                    break
        wrong = [(row, label) for row, label in said if label]
        if len(said) >= _FEWEST_OF_SIDE and len(wrong) <= _MOST_WRONG_SIDES * len(said):
            for row, label in wrong:
                yield Problem("label-contradiction", row, f"{label!r:.60} is not in {column}, as other labels are")


def _parts(label: str) -> list[str]:
    return [spelling_key(part) for part in _JOINS.split(label) if part.strip()]


def is_marked(label: str) -> bool:
    """Whether a label holds marks of the file that it was read from: quotes, a stop, half a bracket, wrong letters.

    Example:
        >>> [is_marked(label) for label in ("'nodule'", "effusion.", "calcificaciÃ³n", "calcificación", "mass (left)")]
        [True, True, True, False, False]
    """
    text = label.strip()
    # Greek or Russian letters within a word of others look like them.
    is_mixed = re.search(r"[A-Za-z][\u0370-\u052f]|[\u0370-\u052f][A-Za-z]", text) is not None
    if "\ufffd" in text or is_mixed or html.unescape(text) != text or _is_misread(text):
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


def is_numbered(label: str) -> bool:
    """Whether a label is the number of a class or a code, begins with one, or has one behind it in brackets.

    >>> [is_numbered(label) for label in ("3", "3: mass", "mass (3)", "J18.9", "2nd rib", "3 mm nodule", "T12")]
    [True, True, True, True, False, False, False]
    """
    code = r"^\d+\s*(?:$|[:._)-])|\S\s*\(\d+\)$|^[A-Z]{1,4}[-_ ]?(?:\d{4,}|\d{2}\.\d+)$"
    return re.search(code, label.strip()) is not None


def is_abbreviation(label: str, other: str) -> bool:
    """Whether a label in capitals shortens another one: its letters are in it, with the first of each word.

    Example:
        >>> [is_abbreviation(label, "Pleural effusion") for label in ("PE", "PlEff", "PNA")]
        [True, False, False]
        >>> is_abbreviation("PTX", "pneumothorax"), is_abbreviation("CHF", "cardiac hypertrophy")
        (True, False)
    """
    if not (2 <= len(label) <= 5 and label.isupper() and label.isalpha() and len(other) > 2 * len(label)):
        return False
    words, letters = other.casefold().split(), label.casefold()
    rest = iter(other.casefold())
    is_within = all(letter in rest for letter in letters)
    firsts = iter(letters)
    return is_within and letters[0] == words[0][0] and all(word[0] in firsts for word in words)


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
    # Signs without a width.
    text = "".join(sign for sign in text if sign.isascii() or unicodedata.category(sign) != "Cf")
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
    pairs = list(dict.fromkeys(_near_spellings(totals)))
    for common, rare in pairs:
        found.append(_variants([groups[common][0], groups[rare][0]], counts, "spelling"))
    misspelt = {rare for _, rare in pairs}
    found += [_variants([groups[key][0] for key in keys], counts, "more words") for keys in _with_more_words(totals)]
    same: dict[str, list[str]] = {}
    for key in groups:
        if key not in misspelt and (name := _name_of(key)) is not None:
            same.setdefault(name, []).append(groups[key][0])
    found += [_variants(labels, counts, "words") for labels in same.values() if len(labels) > 1]
    return found


def _with_more_words(keys: Collection[str]) -> list[list[str]]:
    """Labels with and without more words: words that several labels have, both sides, or a sentence."""
    if len(keys) > _MOST_LABELS:
        return []
    longer: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for key in keys:
        words = key.split(" ")
        for start, end in combinations(range(len(words) + 1), 2):
            if end - start < len(words) and (name := " ".join(words[start:end])) in keys:
                rest = " ".join([*words[:start], "…", *words[end:]])
                if not _JOINS.search(rest):
                    longer["…" if len(words) - end + start >= _FEWEST_WITH_WORDS else rest].append((name, key))
    sides = {name for name, _ in longer["left …"]} & {name for name, _ in longer["right …"]}
    of: defaultdict[str, set[str]] = defaultdict(set)
    for pairs in longer.values():
        for name, key in pairs:
            if name in sides or len({name for name, _ in pairs}) >= _FEWEST_WITH_WORDS:
                of[name].add(key)
    return [[name, *sorted(more)] for name, more in of.items()]


@lru_cache(maxsize=4096)
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
    # Several labels in one are told by themselves.
    whole = [key for key in totals if len(parts := _parts(key)) < 2 or not totals.keys() >= {*parts}]
    ordered = sorted(whole, key=lambda key: -totals[key])
    for k, rare in enumerate(ordered):
        for common in ordered[:k]:
            is_rare = totals[rare] <= max(1, _RARER * totals[common]) < totals[common]
            if (is_rare and _is_slip(common, rare)) or _is_cut(*sorted((common, rare), key=len)):
                yield common, rare
                break
    # Several that are near are of another language.
    plain = {key: _plain(key) for key in ordered if key.isalpha() and len(key) >= _LEAST_IN_LANGUAGE}
    alike = [(one, other) for one, other in combinations(plain, 2) if _is_translated(plain[one], plain[other])]
    if len({other for _, other in alike}) >= _FEWEST_WITH_WORDS:
        yield from alike


def _plain(key: str) -> str:
    return "".join(sign for sign in unicodedata.normalize("NFD", key) if not unicodedata.combining(sign))


def _is_translated(one: str, other: str) -> bool:
    """Whether two words begin and sound alike, and the vocabulary does not know both.

    >>> [_is_translated("cardiomegaly", word) for word in ("cardiomegalia", "kardiomegalie", "cardiomyopathy")]
    [True, True, False]
    """
    if normalize_label(one).known and normalize_label(other).known:
        return False
    return SequenceMatcher(None, one, other, autojunk=False).ratio() >= _LEAST_TRANSLATED


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


def _is_cut(short: str, long: str) -> bool:
    """Whether a label was cut off within a word of a longer one; not where only an ending is left out."""
    rest = long[len(short) :]
    is_part = len(short) >= _LEAST_LETTERS and long.startswith(short) and len(rest) > 1 and rest.isalpha()
    return is_part and not (normalize_label(short).known and normalize_label(long).known)


def _is_near(a: str, b: str) -> bool:
    if min(len(a), len(b)) < _LEAST_LETTERS or any(letter.isdigit() for letter in a + b):
        return False
    if any((a.startswith(x) and b.startswith(y)) or (a.startswith(y) and b.startswith(x)) for x, y in _OPPOSITES):
        return False
    return SequenceMatcher(None, a, b, autojunk=False).ratio() >= _LEAST_SIMILAR

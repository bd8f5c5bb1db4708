"""Checks for repeats: images in a split, images and patients in several splits."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import NamedTuple

import numpy as np

from grounding_rewards.columns import SIZE_COLUMNS
from grounding_rewards.data.copies import find_copies
from grounding_rewards.data.held_out import patient_column, patient_in_name
from grounding_rewards.doctor.altered_copies import find_altered_copies
from grounding_rewards.doctor.case import Case, Defect, Problem
from grounding_rewards.doctor.raw_rows import ImageRow, is_study

# So many images of one patient, when there is no other, and so many patients with one image each.
_FEWEST_IMAGES = 30
# A name for anybody has so many times more images than any patient, and so large a part of all.
_TIMES_MORE, _MUCH = 4, 0.05
# Names such as p0012_s2: one with a number, then the number of one of its few images.
_PATIENT_FIRST = re.compile(r"(\D*\d+)[_-]\D*\d{0,2}")
# An id and the number of one of its few visits.
_VISIT = re.compile(r"(.+)[ _./-][a-z]{0,5}(\d)", re.IGNORECASE)
# So large a part of all ids end in a number, so large a part of the numbers count visits, and so many visits a patient
# has at most on average.
_MOST_VISITS, _VISITS_A_PATIENT = 0.9, 3
# Columns of the sex and the age of a patient, how years are written, and so many nobody reaches.
_SEX = re.compile(r"(patient[_ ]?)?(sex|gender)", re.IGNORECASE)
_AGE = re.compile(r"(patient[_ ]?)?age([_ ]years)?", re.IGNORECASE)
_YEARS, _OLDEST = re.compile(r"(-?\d{1,4}(?:\.\d*)?)[yY]?"), 120
# So large a part of a column is of one kind; numbers of two units, so far apart, and so many of them at least; greater
# ones measure nothing. A value in so few signs may be shown.
_MOST_OF_KIND, _UNITS, _NEAR_UNIT, _LEAST_STEP, _FEWEST_OF_UNIT = 0.6, (2.54, 10, 25.4, 100, 1000), 0.12, 2, 5
_LARGEST, _SHORT = 1e100, 6
# A long number as a spreadsheet writes it.
_ROUNDED = re.compile(r"\d([.,]\d+)?[eE]\+?\d+")


def check_repeats(case: Case) -> Iterator[Defect]:
    """Images that stand there twice, by their ids, bytes and looks; patients and studies in several splits."""
    repeats = list(_image_repeats(case))
    yield from case.collect(repeats)
    yield from _copies(case)
    images = Counter(row.patient_id for row in case.rows)
    patients = images.total() - images[None]
    (first, most), (_, next_most) = [
        *(one for one in images.most_common(3) if one[0] is not None),
        (None, 0),
        (None, 0),
    ][:2]
    if most >= max(_FEWEST_IMAGES, _TIMES_MORE * next_most, _MUCH * patients):
        shown = [(row, f"of patient {first}") for row in case.rows if row.patient_id == first]
        found = f"{'All ' if most == patients else ''}{most} images are of patient {first}"
        yield case.defect(
            "one-patient", shown, found=f"{found}{f', of any other at most {next_most}' if next_most else ''}."
        )
        if most == patients:
            return
    nobody = [row for row in case.rows if row.patient_id is None]
    # A source may name none.
    of_source = {row.source for row in nobody}.isdisjoint(row.source for row in case.rows if row.patient_id)
    if patients and len(nobody) >= _FEWEST_IMAGES and not of_source:
        yield case.defect("no-patient", [(row, "no patient") for row in nobody])
    yield from _patient_leaks(case, {one.row.key for one in repeats if one.name == "image-leak"})
    columns = _columns_of_facts(case)
    yield from case.collect((*_unlikely_facts(case), *_other_kinds(case, columns), *_other_units(case, columns)))


def _image_repeats(case: Case) -> Iterator[Problem]:
    by_image: dict[bytes, ImageRow] = {}
    by_id: dict[str, ImageRow] = {}
    for row in case.rows:
        digest = row.facts.digest if row.facts else None
        same_image = None if digest is None else by_image.setdefault(digest, row)
        same_id = None if row.id == "-" else by_id.setdefault(row.id, row)
        # One id for two images in two splits: ids are probably counters that restart with each split.
        if same_id is not None and same_id.split != row.split and digest and same_id.facts and same_id.facts.digest:
            same_id = None
        for how, before in (("image", same_image), ("id", same_id)):
            if before is None or before is row:
                continue
            where = f"row {before.number} of {before.split} has the same {how}"
            if before.split != row.split:
                yield Problem("image-leak", row, where)
                break
            if before.prompt == row.prompt:
                yield Problem("repeated-image" if how == "image" else "repeated-id", row, where)
                break


def _copies(case: Case) -> Iterator[Defect]:
    """Images that look alike, of which each file is asked about once."""
    by_image: dict[bytes, ImageRow] = {}
    for row in case.rows:
        if row.facts and row.facts.digest:
            by_image.setdefault(row.facts.digest, row)
    first = list(by_image.values())
    found: dict[str, dict[int, str]] = {"copy-leak": {}, "image-copy": {}}
    for one, later in find_copies([row.facts.signature if row.facts else None for row in first]):
        before = first[one]
        name = "image-copy" if before.split == first[later].split else "copy-leak"
        found[name].setdefault(later, f"a copy of row {before.number} of {before.split} (id {before.id})")
    # In one split, an altered image is one more to learn from.
    small, middle = ([getattr(row.facts, name) for row in first] for name in ("small", "middle"))
    for place, of, what in find_altered_copies(small, middle, [row.split for row in first]):
        where = f"{what} copy of row {first[of].number} of {first[of].split} (id {first[of].id})"
        found["copy-leak"].setdefault(place, where)
    # One that leaks is not listed as a mere copy too.
    for place in found["copy-leak"]:
        found["image-copy"].pop(place, None)
    for name, places in found.items():
        if places:
            yield case.defect(name, [(first[place], where) for place, where in places.items()])


def _patient_leaks(case: Case, leaked: set[tuple[str, int]]) -> Iterator[Defect]:
    """Patients, and where they have no names their studies, that are in several splits.

    Args:
        case: the case.
        leaked: keys of rows whose images are in several splits, which says more.
    """
    of: dict[str, set[str]] = {"patients": set(), "studies": set()}

    def problems() -> Iterator[Problem]:
        # The first split of each, and how it is spelt there.
        first: dict[tuple[str, object], tuple[str, str]] = {}
        told: set[tuple[str, object]] = set()
        columns = {column: row for row in reversed(case.rows) if (column := patient_column(_stated(row)))}
        yield from (Problem("patient-column", row, f"column {column}") for column, row in columns.items())
        # Ids that number the images say nothing of patients, where names of files do.
        by_name, of_visit = _patients_in_names(case.rows), _patients_of_visits(case.rows)
        for row in case.rows:
            names = (row.columns.get(name) for name in ("id", patient_column(_stated(row)) or "patient_id"))
            if rounded := next((str(name) for name in names if _ROUNDED.fullmatch(str(name))), None):
                yield Problem("rounded-id", row, f"{rounded} is a number that was rounded")
            for way in _whose(row, by_name.get(row.key), of_visit):
                of["studies" if way.name == "study-leak" else "patients"].add(f"{way.name} {way.key}")
                split, other = first.setdefault((way.name, way.key), (row.split, way.spelling))
                is_new = split != row.split and (way.name, way.key) not in told and row.key not in leaked
                if is_new and (way.name != "patient-spelling" or other != way.spelling):
                    told.add((way.name, way.key))
                    also = f"is also in {split}" + (f", as {other}" if other != way.spelling else "")
                    said = _SAID[way.name].format(*way[1:], also=also, split=split, other=other)
                    yield Problem(way.name, row, said)

    # All of them before the first defect is made, so that each knows how many patients there are.
    for defect in case.collect(list(problems())):
        names = [one for one in of.get(defect.unit, ()) if not one.startswith("patient-spelling")]
        yield replace(defect, of=len(names))


def _unlikely_facts(case: Case) -> Iterator[Problem]:
    """Patients of two sexes, studies of two patients, and ages that nobody reaches."""
    names = dict.fromkeys(name for row in case.rows for name in row.columns)
    of_sex, of_age = ([name for name in names if one.fullmatch(name)] for one in (_SEX, _AGE))
    sexes: dict[tuple[str, str], str] = {}
    studied: dict[str, str] = {}
    for row in case.rows:
        study = next((str(row.columns[name]) for name in _stated(row) if is_study(name)), "")
        if study and row.patient_id and studied.setdefault(study, row.patient_id) != row.patient_id:
            yield Problem("patient-facts", row, f"study {study} is of {row.patient_id} here, of another patient before")
        for name in of_sex:
            text = str(row.columns.get(name)).strip()
            sex = text[:1].casefold()
            if row.patient_id is None or sex not in ("m", "f"):
                continue
            if sexes.setdefault((row.patient_id, name), sex) != sex:
                said = f"{name} of patient {row.patient_id} is {text} here, and another before"
                yield Problem("patient-facts", row, said)
        for name in of_age:
            text = str(row.columns.get(name)).strip()
            if (years := _YEARS.fullmatch(text)) and not 0 <= float(years[1]) <= _OLDEST:
                yield Problem("patient-facts", row, f"{name} is {text}")


def _other_kinds(case: Case, columns: list[str]) -> Iterator[Problem]:
    """Values in text, or no numbers, in a column of numbers."""
    for name in columns:
        given = [(row, value) for row in case.rows if (value := row.columns.get(name)) not in (None, "")]
        kinds = Counter(_kind(value) for _, value in given)
        usual, count = kinds.most_common(1)[0] if kinds else ("", 0)
        if usual != "text" and _MOST_OF_KIND * len(given) <= count < len(given):
            for row, value in given:
                if (kind := _kind(value)) != usual:
                    # Letters, or a long number, may name somebody.
                    is_short = len(str(value)) <= _SHORT and not any(map(str.isalpha, str(value)))
                    said = repr(value) if is_short else kind
                    yield Problem("column-values", row, f"{name} is {said}, elsewhere {usual}")


def _columns_of_facts(case: Case) -> list[str]:
    """Columns of single values that are no names."""
    names = dict.fromkeys(
        name for row in case.rows for name, value in row.columns.items() if isinstance(value, str | int | float)
    )
    patient = {column for row in case.rows if (column := patient_column(_stated(row)))}
    return [
        name for name in names if name not in {"id", "file", "prompt", "split", "patient_id", *SIZE_COLUMNS, *patient}
    ]


def _kind(value: object) -> str:
    if isinstance(value, bool | int | float):
        return "true or false" if isinstance(value, bool) else "a number"
    return "a number in text" if re.fullmatch(r"\s*[-+]?\d*\.?\d+(?:[eE][-+]?\d+)?\s*", str(value)) else "text"


def _other_units(case: Case, columns: list[str]) -> Iterator[Problem]:
    """Numbers of a column that are all so many times larger or smaller than the rest, as in another unit."""
    for name in columns:
        # A pixel is of another size where images are resized.
        is_spacing = "spacing" in name.casefold()
        given = [
            (row, value * (row.size[0] if is_spacing and row.size else 1))
            for row in case.rows
            if (row.size or not is_spacing)
            and isinstance(value := row.columns.get(name), int | float)
            and not isinstance(value, bool)
            and 0 < value < _LARGEST
        ]
        given.sort(key=lambda one: one[1])
        values = np.array([value for _, value in given], dtype=np.float64)
        if len(values) < _FEWEST_IMAGES:
            continue
        steps = values[1:] / values[:-1]
        at = int(steps.argmax()) + 1
        low, high = values[:at], values[at:]
        times = float(np.median(high) / np.median(low))
        is_unit = is_spacing or min(abs(times / unit - 1) for unit in _UNITS) < _NEAR_UNIT
        spread = max(low[-1] / low[0], high[-1] / high[0])
        if is_unit and min(len(low), len(high)) >= _FEWEST_OF_UNIT and steps[at - 1] > max(_LEAST_STEP, spread):
            for row, _ in given[:at] if at <= len(values) / 2 else given[at:]:
                yield Problem(
                    "column-values", row, f"{name} is {row.columns[name]:.4g}, {times:.3g} times off the others"
                )


def _patients_of_visits(rows: list[ImageRow]) -> dict[str, str]:
    """The patient of each id that ends in the number of a visit; none where ids are not of this kind."""
    ids = {row.patient_id for row in rows if row.patient_id is not None}
    found = {name: parts for name in ids if (parts := _VISIT.fullmatch(name))}
    visits: defaultdict[str, set[int]] = defaultdict(set)
    for stem, number in (parts.groups() for parts in found.values()):
        visits[stem].add(int(number))
    counted = sum(len(of) for of in visits.values() if max(of) - min(of) < len(of) and min(of) <= 1)
    is_kind = len(found) >= _FEWEST_IMAGES and len(visits) * _VISITS_A_PATIENT >= len(found) > len(visits)
    if not is_kind or len(found) < _MOST_VISITS * len(ids) or counted < _MOST_VISITS * len(found):
        return {}
    return {name: parts[1] for name, parts in found.items()}


class _Whose(NamedTuple):
    """What may show whose image a row is: the check, what is compared, and how it is written."""

    name: str
    key: object
    spelling: str


_SAID = {
    "patient-leak": "patient {1} {also}",
    "patient-name-leak": "{1} is by its name of patient {0}, who {also}",
    "patient-spelling": "patient {1}, in {split} one is called {other}",
    "study-leak": "{1} {also}",
}


def _stated(row: ImageRow) -> list[str]:
    return [name for name, value in row.columns.items() if value is not None]


def _patients_in_names(rows: list[ImageRow]) -> dict[tuple[str, int], str]:
    """The patients that the names of files tell of rows whose `patient_id` is another one for each image."""
    patients = [row.patient_id for row in rows]
    if len(patients) < _FEWEST_IMAGES or None in patients or len(set(patients)) < len(patients):
        return {}
    stems = {row.key: _PATIENT_FIRST.fullmatch(PurePath(row.file).stem) for row in rows}
    named = {row.key: patient_in_name(row.file) or ((found := stems[row.key]) and found[1]) for row in rows}
    images = Counter(named.values())
    # What many images begin with is no patient.
    return {key: name for key, name in named.items() if name and 1 < images[name] <= max(5, len(rows) / 20)}


def _whose(row: ImageRow, by_name: str | None, of_visit: Mapping[str, str]) -> Iterator[_Whose]:
    stated = _stated(row)
    named = by_name or patient_in_name(row.file)
    if (patient := row.patient_id) is not None and by_name is None:
        spelling = str(row.columns[patient_column(stated) or "patient_id"])
        yield _Whose("patient-leak", patient, spelling)
        # Without zeros, marks and visits.
        alike = tuple(part.lstrip("0") for part in re.findall(r"[^\W\d_]+|\d+", of_visit.get(patient, patient)))
        yield _Whose("patient-spelling", alike, patient)
    elif named is not None:
        yield _Whose("patient-name-leak", named, row.file)
    elif study := next(filter(is_study, stated), None):
        yield _Whose("study-leak", str(row.columns[study]), f"{study} {row.columns[study]}")

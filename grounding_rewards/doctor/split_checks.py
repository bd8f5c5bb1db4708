"""Checks across rows and splits: images, copies, patients and studies in several splits, ids, names of splits."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from grounding_rewards.data.splits import TRAIN, patient_in_name, patients_in_names
from grounding_rewards.doctor.context import Context, Defect, Problem
from grounding_rewards.doctor.rows import ImageRow, is_study
from grounding_rewards.images.near_duplicates import find_near_duplicates
from grounding_rewards.sources.base import is_misspelt, split_name

# With fewer boxes per label these are free phrases, each of which occurs once.
_MIN_BOXES_PER_LABEL = 3
# A long number as a spreadsheet writes it.
_ROUNDED = re.compile(r"\d([.,]\d+)?[eE]\+?\d+")


def check_splits(context: Context) -> Iterator[Defect]:
    """Several names of one split, misspelt ones, and labels that training does not have."""
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for split in context.images:
        by_name[split_name(split)].append(split)
    groups = [splits for splits in by_name.values() if len(splits) > 1]
    if slips := [split for split in context.images if is_misspelt(split)]:
        groups.append(slips)
    for splits in groups:
        summary = f"{', '.join(f'{split}: {context.images[split]} images' for split in splits)}."
        yield context.defect("split-names", count=len(splits), of=len(context.images), found=summary)
    images: defaultdict[str, defaultdict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for place in context.labelled():
        images[place.label][place.row.split].add(place.row.number)
    has_train = any(TRAIN in of_split for of_split in images.values())
    if not has_train or len(images) * _MIN_BOXES_PER_LABEL > context.labels.total():
        return
    rows = []
    for label, of_split in images.items():
        if TRAIN not in of_split:
            places = (f"{len(numbers)} images of {split}" for split, numbers in of_split.items())
            rows.append((None, f"{label!r:.80} on {', '.join(places)}"))
    if rows:
        yield context.defect("label-not-in-train", rows, of=len(images))


def check_repeats(context: Context) -> Iterator[Defect]:
    """Images that stand there twice, by their bytes, ids and looks; patients and studies in several splits."""
    repeats = list(_image_repeats(context))
    yield from context.collect(repeats)
    leaked = {problem.row.key for problem in repeats if problem.name == "image-leak"}
    copies = list(_copies(context))
    yield from context.collect(copies)
    leaked |= {problem.row.key for problem in copies}
    yield from _patient_leaks(context, leaked)


def _image_repeats(context: Context) -> Iterator[Problem]:
    by_image: dict[bytes, ImageRow] = {}
    by_id: dict[str, ImageRow] = {}
    for row in context.rows:
        digest = row.facts.digest if row.facts else None
        same_image = None if digest is None else by_image.setdefault(digest, row)
        same_id = None if row.id == "-" else by_id.setdefault(row.id, row)
        # One id for two images in two splits: ids are probably counters that restart with each split.
        if same_id is not None and same_id.split != row.split and digest and same_id.facts and same_id.facts.digest:
            same_id = None
        for kind, before in (("image", same_image), ("id", same_id)):
            if before is None or before is row:
                continue
            places = f"row {before.number} of {before.split} has the same {kind}"
            if before.split != row.split:
                context.partners[row.key] = before
                yield Problem("image-leak", row, places)
                break
            # Several questions about an image are as many rows.
            if before.prompt == row.prompt:
                yield Problem(f"repeated-{kind}", row, places)
                break


def _copies(context: Context) -> Iterator[Problem]:
    """Images that look alike in several splits, of which each file is asked about once."""
    by_image: dict[bytes, ImageRow] = {}
    for row in context.rows:
        if row.facts and row.facts.digest:
            by_image.setdefault(row.facts.digest, row)
    rows, reported = list(by_image.values()), set()
    for first, second in find_near_duplicates([row.facts.signature if row.facts else None for row in rows]):
        before, row = rows[first], rows[second]
        if before.split != row.split and second not in reported:
            reported.add(second)
            context.partners[row.key] = before
            yield Problem("copy-leak", row, f"a copy of row {before.number} of {before.split} (id {before.id})")


def _patient_leaks(context: Context, leaked: set[tuple[str, int]]) -> Iterator[Defect]:
    """Patients, and places nothing names them their studies, in several splits.

    Args:
        context: the context.
        leaked: keys of rows whose images are in several splits, which says more.
    """
    units: defaultdict[str, set[str]] = defaultdict(set)
    rows: defaultdict[str, list[tuple[ImageRow | None, str]]] = defaultdict(list)
    first: dict[tuple[str, str], tuple[str, str]] = {}
    reported: set[tuple[str, str]] = set()
    rounded = []
    suggested = patients_in_names([row.file for row in context.rows if _patient_or_study(row, {}) is None])
    for row in context.rows:
        owner = _patient_or_study(row, suggested)
        if _ROUNDED.fullmatch(row.patient_name or ""):
            # Several patients may have it.
            rounded.append(Problem("rounded-id", row, f"{row.patient_name} is a number that was rounded"))
            continue
        if owner is None:
            continue
        check, key, spelling = owner
        units[check].add(key)
        split, first_spelling = first.setdefault((check, key), (row.split, spelling))
        if split != row.split and (check, key) not in reported and row.key not in leaked:
            reported.add((check, key))
            alias = f", as {first_spelling}" if first_spelling != spelling else ""
            rows[check].append((row, f"{spelling} is also in {split}{alias}"))
    yield from context.collect(rounded)
    for check, leaks in rows.items():
        yield context.defect(check, leaks, of=len(units[check]))


def _patient_or_study(row: ImageRow, suggested: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Whose image a row is, by the surest that is there: the check that compares splits by it, a key that is the same
    for all spellings, and the spelling in words; None where nothing says so.

    Args:
        row: of the dataset.
        suggested: patients by file, as all names together suggest them.
    """
    if row.patient_id is not None:
        # P-012 and p12 are one patient: without marks, zeros and capitals.
        parts = re.findall(r"[^\W\d_]+|\d+", row.patient_id)
        key = " ".join(part.lstrip("0") for part in parts) or row.patient_id
        return "patient-leak", key, f"patient {row.patient_name}"
    if (patient := patient_in_name(row.file)) is not None:
        return "patient-leak", patient, f"patient {patient}, by the name of the file,"
    for column, value in row.columns.items():
        if is_study(column) and value not in (None, ""):
            return "study-leak", str(value), f"{column} {value}"
    if (patient := suggested.get(row.file)) is not None:
        return "patient-leak", patient, f"patient {patient}, as the names of files suggest,"
    return None

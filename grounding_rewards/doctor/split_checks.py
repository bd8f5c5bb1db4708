"""Check across rows and splits: images, copies, patients and studies in several splits, ids, names of splits."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from grounding_rewards.data.splits import TRAIN, patient_in_name, patients_in_names
from grounding_rewards.doctor.context import Context, Defect, Problem
from grounding_rewards.doctor.rows import ImageRow, is_study
from grounding_rewards.images.near_duplicates import find_near_duplicates
from grounding_rewards.sources.base import split_name

# With fewer boxes per label, labels are free phrases that occur once.
_MIN_BOXES_PER_LABEL = 3
# A long number as a spreadsheet writes it, such as 1.2E+15.
_ROUNDED = re.compile(r"\d([.,]\d+)?[eE]\+?\d+")


def check_splits(context: Context) -> Iterator[Defect]:
    """Find several names of one split, and labels that training does not have."""
    yield from _check_names(context)
    yield from _check_labels_of_training(context)


def _check_names(context: Context) -> Iterator[Defect]:
    """Find splits that are one under several names."""
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for split in context.images:
        by_name[split_name(split)].append(split)
    for splits in by_name.values():
        if len(splits) > 1:
            summary = f"{', '.join(f'{split}: {context.images[split]} images' for split in splits)}."
            yield context.defect("split-names", count=len(splits), of=len(context.images), found=summary)


def _check_labels_of_training(context: Context) -> Iterator[Defect]:
    """Find labels that other splits have and training does not."""
    # By label and split: the numbers of the rows.
    rows_by_label: defaultdict[str, defaultdict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for place in context.labelled():
        rows_by_label[place.label][place.row.split].add(place.row.number)
    has_train = any(TRAIN in rows_by_split for rows_by_split in rows_by_label.values())
    are_phrases = len(rows_by_label) * _MIN_BOXES_PER_LABEL > context.labels.total()
    if not has_train or are_phrases:
        return
    details = []
    for label, rows_by_split in rows_by_label.items():
        if TRAIN not in rows_by_split:
            counts = [f"{len(numbers)} images of {split}" for split, numbers in rows_by_split.items()]
            details.append((None, f"{label!r:.80} on {', '.join(counts)}"))
    if details:
        yield context.defect("label-not-in-train", details, of=len(rows_by_label))


def check_repeats(context: Context) -> Iterator[Defect]:
    """Find repeated images, by their bytes, ids and looks; and patients and studies in several splits."""
    yield from context.collect(_repeated_images(context))
    yield from context.collect(_copies(context))
    yield from _check_patients(context)


def _repeated_images(context: Context) -> Iterator[Problem]:
    """Yield rows whose file or id an earlier row has, in another split or with the same question."""
    by_image: dict[bytes, ImageRow] = {}
    by_id: dict[str, ImageRow] = {}
    for row in context.rows:
        digest = row.facts.digest if row.facts else None
        # The first rows with this image and with this id; they may be the row itself.
        same_image = None if digest is None else by_image.setdefault(digest, row)
        same_id = None if row.id == "-" else by_id.setdefault(row.id, row)
        # One id for two images in two splits: ids are probably counters that restart with each split.
        if same_id is not None and same_id.split != row.split and digest and same_id.facts and same_id.facts.digest:
            same_id = None
        for kind, earlier_row in (("image", same_image), ("id", same_id)):
            if earlier_row is None or earlier_row is row:
                continue
            words = f"row {earlier_row.number} of {earlier_row.split} has the same {kind}"
            if earlier_row.split != row.split:
                context.partners[row.key] = earlier_row
                yield Problem("image-leak", row, words)
                break
            # Several questions about an image are several rows.
            if earlier_row.prompt == row.prompt:
                yield Problem(f"repeated-{kind}", row, words)
                break


def _copies(context: Context) -> Iterator[Problem]:
    """Yield rows whose image is a near-duplicate of one in another split; each file is compared once."""
    by_image: dict[bytes, ImageRow] = {}
    for row in context.rows:
        if row.facts and row.facts.digest:
            by_image.setdefault(row.facts.digest, row)
    rows = list(by_image.values())
    reported = set()
    for first, second in find_near_duplicates([row.facts.signature if row.facts else None for row in rows]):
        original, copy = rows[first], rows[second]
        if original.split != copy.split and second not in reported:
            reported.add(second)
            context.partners[copy.key] = original
            yield Problem("copy-leak", copy, f"a copy of row {original.number} of {original.split} (id {original.id})")


def _check_patients(context: Context) -> Iterator[Defect]:
    """Find patients in several splits, or studies if no patient is known.

    Rows whose images are in several splits say more, and are not reported again.
    """
    # By check: the keys of all patients or studies, and the rows that show one in several splits.
    keys: defaultdict[str, set[str]] = defaultdict(set)
    leaks: defaultdict[str, list[tuple[ImageRow | None, str]]] = defaultdict(list)
    # By check and key: split and spelling of the first row.
    first: dict[tuple[str, str], tuple[str, str]] = {}
    reported: set[tuple[str, str]] = set()
    rounded = []
    suggested = patients_in_names([row.file for row in context.rows if _patient_or_study(row, {}) is None])
    for row in context.rows:
        owner = _patient_or_study(row, suggested)
        if _ROUNDED.fullmatch(row.patient_name or ""):
            # Several patients may be rounded to the same number.
            rounded.append(Problem("rounded-id", row, f"{row.patient_name} is a number that was rounded"))
            continue
        if owner is None:
            continue
        check, key, spelling = owner
        keys[check].add(key)
        split, first_spelling = first.setdefault((check, key), (row.split, spelling))
        if split != row.split and (check, key) not in reported and row.key not in context.partners:
            reported.add((check, key))
            alias = f", as {first_spelling}" if first_spelling != spelling else ""
            leaks[check].append((row, f"{spelling} is also in {split}{alias}"))
    yield from context.collect(rounded)
    for check, rows in leaks.items():
        yield context.defect(check, rows, of=len(keys[check]))


def _patient_or_study(row: ImageRow, suggested: Mapping[str, str]) -> tuple[str, str, str] | None:
    """The patient of a row's image, or its study, from the surest place that has one.

    Args:
        row: of the dataset.
        suggested: patients by file, as all names of files together suggest them.

    Returns:
        The name of the check that compares splits by it, a key that is equal for all spellings, and the patient or
        study in words; None if nothing names either.
    """
    if row.patient_id is not None:
        # P-012 and p12 are one patient: the key has no marks and no leading zeros; `patient_id` has no capitals.
        runs = re.findall(r"[^\W\d_]+|\d+", row.patient_id)
        key = " ".join(run.lstrip("0") for run in runs) or row.patient_id
        return "patient-leak", key, f"patient {row.patient_name}"
    patient = patient_in_name(row.file)
    if patient is not None:
        return "patient-leak", patient, f"patient {patient}, by the name of the file,"
    for column, value in row.columns.items():
        if is_study(column) and value not in (None, ""):
            return "study-leak", str(value), f"{column} {value}"
    patient = suggested.get(row.file)
    if patient is not None:
        return "patient-leak", patient, f"patient {patient}, as the names of files suggest,"
    return None

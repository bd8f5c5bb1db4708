"""Images that no model may learn from: which are of one patient, what a source's own splits mean, and what is drawn
where it holds nothing out."""

from __future__ import annotations

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from grounding_rewards.columns import patient_key, patient_of
from grounding_rewards.common.formatting import first_of
from grounding_rewards.data.annotated_image import AnnotatedImage

if TYPE_CHECKING:
    from datasets import Dataset

SHARES: Mapping[str, float] = {"train": 0.8, "validation": 0.1, "test": 0.1}
"""Default shares of the patients of a source that holds no image out."""

TRAIN = "train"
ALL = "all"
"""The name that stands for every image of a source, whatever its split."""

FEWEST_PATIENTS = 20
"""Of fewer patients none is held out: a tenth of them may be nobody."""

_IN_NAMES = (
    # CheXpert, MURA, and what most people write themselves; BIDS
    re.compile(r"(?<![a-z])(?:patient|subject|sub-|pat|pt|subj)[-_ ]?(\d+)", re.IGNORECASE),
    # MIMIC-CXR: files/p10/p10000032/s50414267/...
    re.compile(r"(?:^|/)p(\d{8})(?=[/_.])"),
    # NIH ChestX-ray14: 00000013_005.png
    re.compile(r"(?:^|/)(\d{8})_\d{3}\.\w+$"),
)

# What Roboflow puts behind the name of an exported file: 00000013_005_png.rf.0a1b2c.jpg
_ROBOFLOW = re.compile(r"_(?:jpe?g|png|bmp|webp|tiff?|dcm)\.rf\.\w+(?=\.\w+$)", re.IGNORECASE)
# A number, then a letter or a short number, tell several images of a patient apart: scan-00032a, 00032-1, 00032_2.
_OF_SEVERAL = re.compile(r"(.*\d{2,})(?:[a-z]|[-_ ]\d{1,3})", re.IGNORECASE)
# With a larger part of all images, a group is no patient.
_LARGEST_PATIENT = 0.1

# Names of columns with patients, in small letters and without what parts their words. What follows `id`, such as
# `_hash`, makes another column of it.
_PATIENT_COLUMN = re.compile(
    r"(?:patient|subject|person|participant)(?:key)?|.*(?:patient|subject)(?:id|uid|no|nr|num|number|code|name|identifier)"
    r"|(?:person|participant)(?:id|no|number)|(?:pat|pt|subj)(?:id|no)|pid|mrn|medicalrecordnumber|empi(?:anon)?"
)


class SplitRule(NamedTuple):
    """How images come to their splits.

    keeps_splits: whether an image, or its patient, keeps the split that the source gives.
    shares: of the images that are drawn.
    """

    keeps_splits: bool
    shares: Mapping[str, float]


def split_rule(names: Iterable[str], patients: int, shares: Mapping[str, float] = SHARES) -> SplitRule:
    """How images of a source come to their splits: by its own, or drawn where it gives none or only `train`.

    A source that holds images out is trained on by images without a split.

    Args:
        names: the splits that the source gives.
        patients: how many there are; an image without a patient counts as one.
        shares: of the splits that patients are drawn into.

    Example:
        >>> split_rule(["train", "test"], 90), split_rule(["train"], 9)
        (SplitRule(keeps_splits=True, shares={'train': 1.0}), SplitRule(keeps_splits=True, shares={'train': 1.0}))
        >>> split_rule(["train"], 90).keeps_splits
        False
    """
    if holds_out(names) or patients < FEWEST_PATIENTS:
        return SplitRule(keeps_splits=True, shares={TRAIN: 1.0})
    return SplitRule(keeps_splits=False, shares=shares)


def holds_out(names: Iterable[str]) -> bool:
    """Whether a source with these splits holds images out.

    >>> holds_out(["train"]), holds_out([]), holds_out(["train", "val"])
    (False, False, True)
    """
    return any(name.casefold() != TRAIN for name in names)


def image_split(split: str | None, name: str, patient_split: str | None, rule: SplitRule, seed: int = 0) -> str:
    """The split of an image: its own, else its patient's, else drawn as by :func:`hashed_split`.

    Args:
        split: of the image, as the source gives it.
        name: of the patient, or of the image where the patient is not known.
        patient_split: of the patient, as other images of the patient have it.
        rule: of the source; the source's own splits count only as it says.
        seed: of the draw.

    Example:
        >>> image_split(None, "patient 7", "test", SplitRule(keeps_splits=True, shares={"train": 1.0}))
        'test'
    """
    own_split = split or patient_split
    if rule.keeps_splits and own_split:
        return own_split
    return hashed_split(name, rule.shares, seed)


def hash_fraction(*words: object) -> float:
    """A number in [0, 1) that depends on the words alone, the same on every machine and in every release.

    >>> hash_fraction(0, "patient 7") == hash_fraction(0, "patient 7") != hash_fraction(1, "patient 7")
    True
    """
    text = "\x1f".join(map(str, words))
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48


def hashed_split(name: str, shares: Mapping[str, float], seed: int) -> str:
    """The split of a patient, drawn by a hash of the name: no other patient moves when one is added.

    Args:
        name: The id of the patient, or of the image where the patient is not known.
        shares: Names of splits and their shares, which sum to 1.
        seed: Of the draw.

    >>> hashed_split("patient 7", {"train": 0.5, "test": 0.5}, seed=0)
    'test'
    """
    # Each split has a part of [0, 1) as long as its share, and the name falls into one of them.
    fraction, end_of_part = hash_fraction("split", seed, name), 0.0
    drawn_splits = [split for split, share in shares.items() if share]
    for split in drawn_splits:
        end_of_part += shares[split]
        if fraction < end_of_part:
            return split
    # The shares sum to 1 only up to rounding.
    return drawn_splits[-1]


def splits_of_patients(images: Iterable[tuple[str | None, str | None]]) -> dict[str, list[str]]:
    """The different splits of every patient, in the order in which they are met.

    Args:
        images: patient and split of each; None for an unknown patient, or no split, which are left out.

    Example:
        >>> splits_of_patients([("7", "train"), ("7", None), ("7", "test"), (None, "test")])
        {'7': ['train', 'test']}
    """
    splits: dict[str, list[str]] = {}
    for patient, split in images:
        if patient is not None and split is not None:
            names = splits.setdefault(patient, [])
            if split not in names:
                names.append(split)
    return splits


def check_one_split(patient_splits: Mapping[str, Sequence[str]]) -> None:
    """Refuse patients in several splits of the dataset.

    Args:
        patient_splits: the splits of each patient, as :func:`splits_of_patients` returns them.

    Example:
        >>> check_one_split({"7": ["train", "test"]})
        Traceback (most recent call last):
        ...
        ValueError: Expected every patient in one split of the dataset, got 1 in several: 7 (train, test). Draw the \
splits anew: prepare the images with splits_from="hash" (--splits-from hash).
    """
    leaks = [f"{patient} ({', '.join(splits)})" for patient, splits in patient_splits.items() if len(splits) > 1]
    if leaks:
        raise ValueError(
            f"Expected every patient in one split of the dataset, got {len(leaks)} in several: "
            f'{first_of(leaks)}. Draw the splits anew: prepare the images with splits_from="hash" (--splits-from hash).'
        )


class Assigned(NamedTuple):
    """The split of each image of a source, and a note about them.

    splits: in the order of the images.
    drawn: whether they were drawn.
    note: a sentence where they were drawn, or where a patient is in several; else empty.
    """

    splits: list[str]
    drawn: bool
    note: str


def in_usual_order(splits: Iterable[str]) -> list[str]:
    """Each split once; training images come first.

    >>> in_usual_order(["test", "fold", "train", "test"])
    ['train', 'test', 'fold']
    """
    usual_order = (TRAIN, "validation", "val", "dev", "test")
    distinct = set(splits)
    usual_splits = [split for split in usual_order if split in distinct]
    return usual_splits + sorted(distinct.difference(usual_order))


def splits_of_rows(rows: Sequence[Mapping[str, Any]], name: str) -> Assigned:
    """The split of every row of a source, the same on every call: its own, its patient's, or drawn by the patient.

    Args:
        rows: with `split`, `id`, `patient_id` and `file`, as far as they have them; see :func:`patients_of_rows`.
        name: of the source, for messages.

    Example:
        >>> rows = [{"id": "1", "patient_id": "p", "split": "test"}, {"id": "2", "patient_id": "p"}, {"id": "3"}]
        >>> splits_of_rows(rows, "images").splits
        ['test', 'test', 'train']
        >>> splits_of_rows([{"patient_id": str(number)} for number in range(100)], "images").note
        'images holds no image out: 80 % of its patients are drawn for train, 10 % for validation, 10 % for test.'
    """
    patients = patients_of_rows(rows)
    own_splits = [row.get("split") for row in rows]
    patient_splits = splits_of_patients(zip(patients, own_splits, strict=True))
    unknown_patients = patients.count(None)
    # The source's own splits count if they hold images out. An image without a patient counts as a patient of its own.
    patient_count = len({*patients} - {None}) + unknown_patients
    rule = split_rule({split for split in own_splits if split is not None}, patient_count)
    splits = []
    for row, own_split, patient in zip(rows, own_splits, patients, strict=True):
        # An image without a split goes where its patient has other images; the first split, if these are in several.
        patient_split = patient_splits[patient][0] if patient in patient_splits else None
        splits.append(image_split(own_split, patient or row.get("id", "-"), patient_split, rule))
    if not rule.keeps_splits:
        note = drawn_sentence(name, rule.shares, len(rows), unknown_patients)
        return Assigned(splits, drawn=True, note=note)
    leaking_patients = [patient for patient, names in patient_splits.items() if len(names) > 1]
    if not leaking_patients:
        return Assigned(splits, drawn=False, note="")
    example = leaking_patients[0]
    count = "1 patient" if len(leaking_patients) == 1 else f"{len(leaking_patients)} patients"
    note = (
        f"{count} of {name} are in several splits, such as {example} "
        f"({', '.join(in_usual_order(patient_splits[example]))}): metrics on held-out images will be too good."
    )
    return Assigned(splits, drawn=False, note=note)


def drawn_sentence(name: str, shares: Mapping[str, float], images: int, alone: int) -> str:
    """A sentence that says in which shares images are drawn into splits, and another if images name no patient.

    Args:
        name: of the source.
        shares: of the splits.
        images: how many there are.
        alone: how many of these name no patient, so that each is drawn by itself.

    Example:
        >>> print(drawn_sentence("images", {"train": 0.9, "test": 0.1}, 50, 50))  # doctest: +NORMALIZE_WHITESPACE
        images holds no image out: 90 % of its images are drawn for train, 10 % for test. None of them names a patient,
        so that a patient may be in several splits.
    """
    units = "images" if alone == images else "patients"
    (first_split, first_share), *further_shares = shares.items()
    clauses = [f"{100 * first_share:.0f} % of its {units} are drawn for {first_split}"]
    clauses += [f"{100 * share:.0f} % for {split}" for split, share in further_shares]
    sentence = f"{name} holds no image out: {', '.join(clauses)}."
    if not alone:
        return sentence
    subject = "None of them names a" if alone == images else f"{alone} of {images} images name no"
    return f"{sentence} {subject} patient, so that a patient may be in several splits."


def check_split_exists(split: str, split_names: Collection[str], name: str, remedy: str) -> None:
    """Refuse a split that a source does not have, and a source without any.

    Example:
        >>> check_split_exists("tset", ["train", "test"], "images", "Choose one of these.")
        Traceback (most recent call last):
        ...
        ValueError: Expected one of train, test or all for the split of 'images', got 'tset'. Choose one of these.
    """
    if not split_names:
        raise ValueError(f"Expected at least one row in {name!r}, got none. Check the path.")
    if split not in (*split_names, ALL):
        raise ValueError(
            f"Expected one of {', '.join(split_names)} or {ALL} for the split of {name!r}, got {split!r}. {remedy}"
        )


def choose_splits(names: Sequence[str], splits: Iterable[str], dataset: str) -> list[str]:
    """The splits to read: those that are named, or all that the dataset has, in the usual order.

    Args:
        names: of the wanted splits; empty or `all` for all.
        splits: that the dataset has; a name may occur several times.
        dataset: its name, for messages.

    Raises:
        ValueError: The dataset has no split, or not one that is named.

    Example:
        >>> choose_splits([], ["test", "train", "test"], "images")
        ['train', 'test']
    """
    existing_splits = in_usual_order(splits)
    for split in names or [ALL]:
        check_split_exists(split, existing_splits, dataset, "Choose one of the dataset's own splits.")
    return existing_splits if not names or ALL in names else list(names)


def patient_column(columns: Iterable[str]) -> str | None:
    """The first column whose name looks like that of patients; None if no name does, or if `patient_id` is there.

    Example:
        >>> patient_column(["image", "Subject-ID", "age"]), patient_column(["patient_id", "PatientID"])
        ('Subject-ID', None)
        >>> patient_column(["inpatient", "PatientPosition", "anon_patient_id"])
        'anon_patient_id'
    """
    names = list(columns)
    patient_columns = [name for name in names if _is_patient(name)]
    return patient_columns[0] if patient_columns and "patient_id" not in names else None


# Asked of every row.
@functools.lru_cache(maxsize=1024)
def _is_patient(column: str) -> bool:
    """Whether the name of a column looks like that of patients."""
    return _PATIENT_COLUMN.fullmatch(re.sub(r"[\W_]", "", column).casefold()) is not None


def patient_in_name(file: str) -> str | None:
    """The patient in the name of a file, as :func:`grounding_rewards.columns.patient_key`; None where it names none.

    Example:
        >>> patient_in_name("train/patient00003/study1/view1.jpg"), patient_in_name("00000013_005.png")
        ('3', '13')
        >>> patient_in_name("IMG0000019.jpg") is None
        True
    """
    file = _ROBOFLOW.sub("", file)
    for pattern in _IN_NAMES:
        patient = pattern.search(file)
        if patient is not None:
            return patient_key(patient[1])
    return None


def patients_in_names(files: Sequence[str]) -> dict[str, str]:
    """The patient of each file, guessed from all names: a folder for each, or `00032-1.png` beside `00032-2.png`.

    Files are grouped by their folder, or else by the part of the name that several share. The groups count as patients
    if every file has one, there are at least `FEWEST_PATIENTS` groups, one of them has several files, and none has more
    than a tenth of all. The caller has to report the guess.

    Args:
        files: of images whose patients nothing else tells.

    Returns:
        The patient of each file; nothing if the names suggest none.

    Example:
        >>> patients = patients_in_names([f"scan-{number // 2:05}{'ab'[number % 2]}.png" for number in range(60)])
        >>> patients["scan-00003a.png"], patients["scan-00003b.png"], patients_in_names(["1.png", "2.png"])
        ('scan-00003', 'scan-00003', {})
    """
    for group_of in (_patient_folder, _numbered_patient):
        groups = {file: group_of(_ROBOFLOW.sub("", file)) for file in files}
        group_sizes = Counter(groups.values())
        # None: a name that doesn't have this form.
        if None in group_sizes or len(group_sizes) < FEWEST_PATIENTS:
            continue
        if 1 < max(group_sizes.values()) <= _LARGEST_PATIENT * len(groups):
            return {file: group for file, group in groups.items() if group is not None}
    return {}


def _patient_folder(file: str) -> str | None:
    """The folder of an image, if it has a number."""
    folder = PurePosixPath(file).parent.name
    return folder.casefold() if any(map(str.isdigit, folder)) else None


def _numbered_patient(file: str) -> str | None:
    """The name of an image without the letter or number behind it that tells it from others of a patient."""
    numbered = _OF_SEVERAL.fullmatch(PurePosixPath(file).stem)
    return None if numbered is None else numbered[1].casefold()


def patients_of_rows(rows: Sequence[Mapping[str, Any]]) -> list[str | None]:
    """The patient of each row, as :func:`patient_of_row`, else as the names of all the other files suggest.

    Args:
        rows: of one source, with `patient_id` and `file`.

    Example:
        >>> patients_of_rows([{"patient_id": "7", "file": "a.png"}, {"file": "b.png"}])
        ['7', None]
    """
    patients = [patient_of_row(row) for row in rows]
    # A file that is no text is left to the checks.
    files = [row["file"] if isinstance(row.get("file"), str) else None for row in rows]
    # Only of files that name no patient themselves, all names together may suggest some.
    nameless = [file for file, patient in zip(files, patients, strict=True) if patient is None and file is not None]
    patients_by_file = patients_in_names(nameless)
    return [patient or patients_by_file.get(file or "") for file, patient in zip(files, patients, strict=True)]


def is_row_number(patients: Sequence[object]) -> bool:
    """Whether the patients of a source are the numbers of its rows, from 0 or 1 on, so that they tell nothing.

    Example:
        >>> is_row_number([str(number) for number in range(30)]), is_row_number(["7", "7", "9"])
        (True, False)
    """
    if len(patients) < FEWEST_PATIENTS or str(patients[0]) not in ("0", "1"):
        return False
    return all(str(patient) == str(number) for number, patient in enumerate(patients, start=int(str(patients[0]))))


def patient_of_row(row: Mapping[str, Any]) -> str | None:
    """The patient of a row, by `patient_id`, else by the name of its file; None where neither tells.

    Example:
        >>> patient_of_row({"patient_id": "0003"}), patient_of_row({"file": "patient3_study2.png"}), patient_of_row({})
        ('3', '3', None)
    """
    file = row.get("file")
    return patient_of(row) or (patient_in_name(file) if isinstance(file, str) else None)


def patient_of_image(image: AnnotatedImage) -> str | None:
    """The patient of an image, as :func:`patient_of_row`.

    Example:
        >>> patient_of_image(AnnotatedImage("a", "a.png", [], [], patient_id="0003"))
        '3'
    """
    return patient_of_row({"patient_id": image.patient_id, "file": image.file})


def check_patients_apart(train: Dataset, held_out: Dataset) -> None:
    """Refuse images to evaluate on of patients who are trained on.

    Raises:
        ValueError: a patient is in both, by `file` and `patient_id`, or the column that looks like it; how many are.

    Example:
        >>> from datasets import Dataset
        >>> train, held_out = (Dataset.from_dict({"patient_id": ids}) for ids in (["3", "7"], ["0007", "9"]))
        >>> check_patients_apart(train, held_out)
        Traceback (most recent call last):
        ...
        ValueError: Expected other patients in eval_split than in train_split, got 1 of 2 in both. Draw the splits by \
patient: `grounding-rewards prepare` does.
    """
    patients: list[set[str]] = []
    for images in (train, held_out):
        column = patient_column(images.column_names) or "patient_id"
        patient_columns = [name for name in (column, "file") if name in images.column_names]
        rows = images.with_format(None).select_columns(patient_columns) if patient_columns else ()
        row_patients = (patient_of_row({"patient_id": row.get(column), "file": row.get("file")}) for row in rows)
        patients.append({patient for patient in row_patients if patient is not None})
    trained, evaluated = patients
    shared_patients = trained & evaluated
    if shared_patients:
        raise ValueError(
            f"Expected other patients in eval_split than in train_split, got {len(shared_patients)} of "
            f"{len(evaluated)} in both. Draw the splits by patient: `grounding-rewards prepare` does."
        )

"""Check across rows and splits: images, copies, patients and studies in several splits, ids, names of splits."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from grounding_rewards.data.splits import TRAIN
from grounding_rewards.doctor.context import Context, Defect, Fault, Problem
from grounding_rewards.doctor.rows import ROUNDED, ImageRow
from grounding_rewards.images.near_duplicates import find_near_duplicates
from grounding_rewards.sources.base import split_name

# With fewer boxes per label, labels are free phrases that occur once.
_MIN_BOXES_PER_LABEL = 3


def check_split_names(context: Context) -> Iterator[Defect]:
    """Find splits that are one under several names."""
    # By the usual name, such as `train` for `Train` and `training`.
    splits_by_name: defaultdict[str, list[str]] = defaultdict(list)
    for split in context.images:
        splits_by_name[split_name(split)].append(split)
    for splits in splits_by_name.values():
        if len(splits) > 1:
            summary = f"{', '.join(f'{split}: {context.images[split]} images' for split in splits)}."
            yield context.defect("split-names", count=len(splits), of=len(context.images), found=summary)


def check_labels_of_training(context: Context) -> Iterator[Defect]:
    """Find labels that other splits have and training does not."""
    # By label and split: the numbers of the rows.
    rows_by_label: defaultdict[str, defaultdict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for place in context.labelled_places():
        rows_by_label[place.label][place.row.split].add(place.row.number)
    has_train = any(TRAIN in rows_by_split for rows_by_split in rows_by_label.values())
    # Phrases that occur once are missing from training by chance.
    are_phrases = len(rows_by_label) * _MIN_BOXES_PER_LABEL > context.labels.total()
    if not has_train or are_phrases:
        return
    faults = []
    for label, rows_by_split in rows_by_label.items():
        if TRAIN not in rows_by_split:
            counts = [f"{len(numbers)} images of {split}" for split, numbers in rows_by_split.items()]
            faults.append(Fault(None, f"{label!r:.80} on {', '.join(counts)}"))
    if faults:
        yield context.defect("label-not-in-train", faults, of=len(rows_by_label))


def check_repeats(context: Context) -> Iterator[Defect]:
    """Find repeated images, by their bytes, ids and looks; and patients and studies in several splits."""
    yield from context.collect(_repeated_images(context))
    yield from context.collect(_copies(context))
    yield from _check_patients(context)


def _repeated_images(context: Context) -> Iterator[Problem]:
    """Yield rows whose file or id an earlier row has, in another split or with the same question.

    Several rows of a split may show one image and ask different things.
    """
    # By `image` and the hash of the file, or `id` and the id: the first row that has it.
    first_rows: dict[tuple[str, Any], ImageRow] = {}
    # The first row that also has this split and this prompt.
    first_askers: dict[tuple[str, Any, str, str | None], ImageRow] = {}
    for row in context.rows:
        digest = row.facts.digest if row.facts else None
        # `-` is no id: the row has neither an id nor a file.
        for kind, value in (("image", digest), ("id", None if row.id == "-" else row.id)):
            if value is None:
                continue
            first_row = first_rows.setdefault((kind, value), row)
            first_asker = first_askers.setdefault((kind, value, row.split, row.prompt), row)
            # Two rows with one id but different files (equal ones were found above): ids are probably counters that
            # restart with each split.
            is_counter = kind == "id" and digest and first_row.facts and first_row.facts.digest
            if first_row.split != row.split and not is_counter:
                context.leaked.add(row.key)
                words = f"row {first_row.number} of {first_row.split} has the same {kind}"
                yield Problem("image-leak", row, words)
                # One problem for a row: its id is not looked at after its file.
                break
            if first_asker is not row:
                words = f"row {first_asker.number} of {row.split} has the same {kind}"
                yield Problem(f"repeated-{kind}", row, words)
                break


def _copies(context: Context) -> Iterator[Problem]:
    """Yield rows whose image is a near-duplicate of one in another split."""
    # One row for each file, so that equal files, which are found otherwise, are no near-duplicates.
    rows_by_digest: dict[bytes, ImageRow] = {}
    for row in context.rows:
        if row.facts and row.facts.digest:
            rows_by_digest.setdefault(row.facts.digest, row)
    rows = list(rows_by_digest.values())
    reported = set()
    for index, later_index in find_near_duplicates([row.facts.signature if row.facts else None for row in rows]):
        original, copy = rows[index], rows[later_index]
        if original.split != copy.split and later_index not in reported:
            reported.add(later_index)
            context.leaked.add(copy.key)
            yield Problem("copy-leak", copy, f"a copy of row {original.number} of {original.split} (id {original.id})")


def _check_patients(context: Context) -> Iterator[Defect]:
    """Find ids that were rounded, and patients and studies in several splits.

    Rows whose images are in several splits say more, and are not reported again.
    """
    # Both by the check, `patient-leak` or `study-leak`, and the key of the patient or study.
    # Split of its first row, and words for it there, such as "patient P-012".
    first_uses: dict[tuple[str, str], tuple[str, str]] = {}
    # The first row in another split.
    leaks: dict[tuple[str, str], Fault] = {}
    rounded = []
    for row, owner in zip(context.rows, context.owners, strict=True):
        if ROUNDED.fullmatch(row.patient_name or ""):
            # Several patients may be rounded to the same number.
            rounded.append(Problem("rounded-id", row, f"{row.patient_name} is a number that was rounded"))
        elif owner is not None:
            owner_key = (owner.check, owner.key)
            # `setdefault` keeps the first row's.
            first_split, first_words = first_uses.setdefault(owner_key, (row.split, owner.words))
            if first_split != row.split and row.key not in context.leaked:
                # The first row may write the same patient in another way.
                alias = f", as {first_words}" if first_words != owner.words else ""
                leaks.setdefault(owner_key, Fault(row, f"{owner.words} is also in {first_split}{alias}"))
    yield from context.collect(rounded)
    for check in dict.fromkeys(check for check, _ in leaks):
        faults = [fault for (leaking_check, _), fault in leaks.items() if leaking_check == check]
        owners = sum(owner_check == check for owner_check, _ in first_uses)
        yield context.defect(check, faults, of=owners)

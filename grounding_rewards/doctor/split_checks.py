"""Check across rows and splits: images, copies, patients and studies in several splits, ids, names of splits."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from grounding_rewards.data.splits import TRAIN
from grounding_rewards.doctor.context import Context, Defect, Problem
from grounding_rewards.doctor.rows import ROUNDED, ImageRow
from grounding_rewards.images.near_duplicates import find_near_duplicates
from grounding_rewards.sources.base import split_name

# With fewer boxes per label, labels are free phrases that occur once.
_MIN_BOXES_PER_LABEL = 3


def check_split_names(context: Context) -> Iterator[Defect]:
    """Find splits that are one under several names."""
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for split in context.images:
        by_name[split_name(split)].append(split)
    for splits in by_name.values():
        if len(splits) > 1:
            summary = f"{', '.join(f'{split}: {context.images[split]} images' for split in splits)}."
            yield context.defect("split-names", count=len(splits), of=len(context.images), found=summary)


def check_labels_of_training(context: Context) -> Iterator[Defect]:
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
    # The first rows with an image or id, and those of each split with a question about it.
    first: dict[tuple[Any, ...], ImageRow] = {}
    for row in context.rows:
        digest = row.facts.digest if row.facts else None
        for kind, value in (("image", digest), ("id", None if row.id == "-" else row.id)):
            if value is None:
                continue
            earlier_row = first.setdefault((kind, value), row)
            # Several questions about an image are several rows.
            same_question = first.setdefault((kind, value, row.split, row.prompt), row)
            # One id for two images in two splits: ids are probably counters that restart with each split.
            is_counter = kind == "id" and digest and earlier_row.facts and earlier_row.facts.digest
            if earlier_row.split != row.split and not is_counter:
                context.leaked.add(row.key)
                words = f"row {earlier_row.number} of {earlier_row.split} has the same {kind}"
                yield Problem("image-leak", row, words)
                break
            if same_question is not row:
                words = f"row {same_question.number} of {row.split} has the same {kind}"
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
            context.leaked.add(copy.key)
            yield Problem("copy-leak", copy, f"a copy of row {original.number} of {original.split} (id {original.id})")


def _check_patients(context: Context) -> Iterator[Defect]:
    """Find patients in several splits, or studies if no patient is known.

    Rows whose images are in several splits say more, and are not reported again.
    """
    # By check: the keys of all patients or studies, and the rows that show one in several splits.
    keys: defaultdict[str, set[str]] = defaultdict(set)
    leaks: defaultdict[str, list[tuple[ImageRow | None, str]]] = defaultdict(list)
    # By check and key: split and words of the first row.
    first: dict[tuple[str, str], tuple[str, str]] = {}
    reported: set[tuple[str, str]] = set()
    rounded = []
    for row, owner in zip(context.rows, context.owners, strict=True):
        if ROUNDED.fullmatch(row.patient_name or ""):
            # Several patients may be rounded to the same number.
            rounded.append(Problem("rounded-id", row, f"{row.patient_name} is a number that was rounded"))
            continue
        if owner is None:
            continue
        check, key, words = owner
        keys[check].add(key)
        split, first_words = first.setdefault((check, key), (row.split, words))
        if split != row.split and (check, key) not in reported and row.key not in context.leaked:
            reported.add((check, key))
            alias = f", as {first_words}" if first_words != words else ""
            leaks[check].append((row, f"{words} is also in {split}{alias}"))
    yield from context.collect(rounded)
    for check, rows in leaks.items():
        yield context.defect(check, rows, of=len(keys[check]))

"""Splits: a patient on one side, the same side for ever, in the shares that were asked for."""

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.splits import (
    SHARES,
    SplitRule,
    check_one_split,
    check_patients_apart,
    hash_fraction,
    hashed_split,
    image_split,
    patient_column,
    patient_of_image,
    patients_in_names,
    splits_of_patients,
)
from tests.tables import table

patients = st.one_of(st.none(), st.sampled_from(["p1", "p2", "p3", "p4"]))
own_splits = st.one_of(st.none(), st.sampled_from(["train", "test", "validation"]))


def image(number, patient=None, split=None):
    return AnnotatedImage(f"f{number}", f"{number}.png", [], [], patient_id=patient, split=split)


def assigned(images, *, own=True, seed=0):
    patients = [patient_of_image(image) for image in images]
    known = splits_of_patients(zip(patients, [image.split for image in images], strict=True))
    if own:
        check_one_split(known)
    rule = SplitRule(own, SHARES)
    return [
        image_split(image.split, patient or image.id, known.get(patient, [None])[0], rule, seed)
        for image, patient in zip(images, patients, strict=True)
    ]


def sides(images, splits):
    found = defaultdict(set)
    for one, split in zip(images, splits, strict=True):
        if one.patient_id is not None:
            found[one.patient_id].add(split)
    return found


@given(st.lists(st.tuples(patients, own_splits), max_size=12), st.integers(0, 3), st.booleans())
def test_a_patient_is_never_in_two_splits(rows, seed, own):
    images = [image(number, *row) for number, row in enumerate(rows)]
    given_to = defaultdict(set)
    for patient, split in rows:
        if patient is not None and split is not None:
            given_to[patient].add(split)
    if own and any(len(splits) > 1 for splits in given_to.values()):
        with pytest.raises(ValueError, match="Expected every patient in one split"):
            assigned(images)
        return
    splits = assigned(images, own=own, seed=seed)
    assert all(len(found) == 1 for found in sides(images, splits).values())
    if own:
        assert all(one.split in (None, split) for one, split in zip(images, splits, strict=True))


@given(st.lists(patients, min_size=1, max_size=8), st.lists(patients, max_size=8))
def test_images_that_are_added_move_no_other(first, added):
    before = [image(number, patient) for number, patient in enumerate(first)]
    after = before + [image(100 + number, patient) for number, patient in enumerate(added)]
    assert assigned(after)[: len(before)] == assigned(before)


def test_shares_are_kept():
    counts = Counter(hashed_split(f"patient {number}", SHARES, seed=0) for number in range(20_000))
    for split, share in SHARES.items():
        # four standard deviations of a share of 0.1 or 0.8 of 20,000 patients
        assert counts[split] / 20_000 == pytest.approx(share, abs=4 * (share * (1 - share) / 20_000) ** 0.5)


def test_the_hash_is_the_same_for_ever():
    # Computed once with Python 3.11, hashlib.blake2b: another number would move patients of prepared datasets.
    assert hash_fraction("split", 0, "patient 7") == pytest.approx(0.8319750242831638, abs=1e-12)


@pytest.mark.parametrize("shares", [{"train": 1.0}, {"train": 1.0, "test": 0.0}, {"test": 0.0, "train": 1.0}])
def test_a_share_of_nothing_gets_nobody(shares):
    assert {hashed_split(str(number), shares, 0) for number in range(50)} == {"train"}


def test_patients_in_two_splits_are_named():
    splits = splits_of_patients((f"p{number % 7}", "train" if number < 7 else "test") for number in range(14))
    with pytest.raises(ValueError, match=r"7 in several: p0 \(train, test\), p1 .* and 4 more\. Draw the splits anew"):
        check_one_split(splits)


@given(st.permutations(["0003", "3", "3.0", " 3 ", "00003.0"]), st.integers(0, 20))
def test_a_patient_stays_on_one_side_in_every_spelling(spellings, seed):
    images = [image(number, spelling) for number, spelling in enumerate(spellings)]
    assert len(set(assigned(images, seed=seed))) == 1
    # the dataset's own split of one of them holds for all
    images[0] = image(0, spellings[0], "validation")
    assert set(assigned(images, seed=seed)) == {"validation"}


@pytest.mark.parametrize("column", ["patient_id", "Subject", "PatientIdentifier", "anon_patient_id", "pat_id"])
def test_patients_who_are_trained_on_are_found_by_any_name_of_their_column(column):
    datasets = pytest.importorskip("datasets")
    train, held_out = (datasets.Dataset.from_dict({column: ids}) for ids in (["3", "7"], ["0007", "9"]))
    with pytest.raises(ValueError, match="got 1 of 2 in both"):
        check_patients_apart(train, held_out)


@pytest.mark.parametrize("column", ["inpatient", "patient_age", "PatientPosition", "patient_id_hash"])
def test_other_columns_are_not_taken_for_the_patient(column):
    assert patient_column([column]) is None


@pytest.mark.parametrize(("one", "other", "are_same"), table("data/tables", "names_of_files"))
def test_names_of_files_that_tell_the_patient(one, other, are_same):
    images = [AnnotatedImage(name, name, [], []) for name in (one, other)]
    splits = [assigned(images, seed=seed) for seed in range(40)]
    assert all(first == second for first, second in splits) == are_same


@pytest.mark.parametrize(("names", "patients"), table("data/tables", "names_together"))
def test_all_names_together_suggest_patients(names, patients):
    files = [name.format(p=number) for number in range(30) for name in names]
    suggested = patients_in_names(files)
    assert len({*suggested.values()}) == patients
    for first, second in zip(files[::2], files[1::2], strict=False):
        assert not suggested or suggested[first] == suggested[second]

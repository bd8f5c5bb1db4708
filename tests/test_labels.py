"""The shared vocabulary: every label of every dataset has a name, and nothing else gets one."""

import json
import re
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.labels import Label, are_synonyms, normalize_label, vocabulary
from tests.conftest import read_lines
from tests.tables import table

FILE = json.loads(files("grounding_rewards").joinpath("vocabulary.json").read_text(encoding="utf-8"))

CASES = [
    (dataset, *(part.strip() for part in f"{case} > ".split(">")[:2]))
    for dataset, cases in table("labels", "datasets").items()
    for case in cases.split(";")
]


@pytest.mark.parametrize(("dataset", "label", "name"), CASES)
def test_every_label_of_a_dataset_has_a_name(dataset, label, name):
    found = normalize_label(" ".join(label.split()), dataset)
    assert (found.name, found.laterality, found.known) == (name or " ".join(label.casefold().split()), None, True)


@pytest.mark.parametrize("dataset", FILE["datasets"])
def test_every_label_in_the_file_leads_to_its_name(dataset):
    for label, name in FILE["datasets"][dataset]["labels"].items():
        assert normalize_label(label, dataset).name == name
        assert name in vocabulary()


REGIONS = """lung|apical zone|upper lung zone|mid lung zone|lower lung zone|hilar structures|costophrenic angle
cardiophrenic angle|hemidiaphragm|clavicle|upper abdomen"""


@pytest.mark.parametrize("region", re.split(r"[|\n]", REGIONS))
def test_paired_regions_of_chest_imagenome_keep_their_side(region):
    for side in ("left", "right"):
        label = f"{side} {region}"
        assert normalize_label(label, "chest-imagenome") == Label(region, side, label, True)
        assert normalize_label(label, "chest-imagenome").text == label
    assert not are_synonyms(f"left {region}", f"right {region}")


def test_words_of_deeplesion_mean_lesions_there_alone():
    assert normalize_label("lung", "deeplesion").name == "lung lesion"
    assert normalize_label("lung").name == "lung"
    assert not normalize_label("pelvis", "coco").known


def test_no_word_has_two_meanings():
    meanings: dict[str, set[str]] = {}
    for name, synonyms in vocabulary().items():
        for word in (name, *synonyms):
            meanings.setdefault(normalize_label(word).name, set()).add(name)
    for dataset in FILE["datasets"].values():
        for label, name in dataset["labels"].items():
            if label not in dataset.get("own_words", ()):
                meanings.setdefault(normalize_label(label).name, set()).add(name)
    assert {word: found for word, found in meanings.items() if found != {word}} == {}


def test_parents_and_sources_exist():
    entries, sources = {**FILE["findings"], **FILE["anatomy"]}, {*FILE["sources"], *FILE["datasets"]}
    for name, entry in entries.items():
        assert entry["source"] in sources, name
        seen, parent = {name}, entry.get("parent")
        while parent is not None:
            assert parent not in seen, f"{name} is a kind of itself"
            seen.add(parent)
            parent = entries[parent].get("parent")


@pytest.mark.parametrize(("text", "name", "side"), table("labels", "sides"))
def test_sides_degrees_and_places_are_read_off(text, name, side):
    assert normalize_label(text)[:2] == (name, side or None)


@pytest.mark.parametrize("text", [*table("labels", "unknown"), "a" * 10_000])
def test_unknown_labels_stay_as_they_are(text):
    found = normalize_label(text)
    assert not found.known
    assert found.name == found.text == " ".join(text.casefold().split())
    assert found.original == text


@pytest.mark.parametrize(("a", "b", "agree"), table("labels", "synonyms"))
def test_synonyms(a, b, agree):
    assert are_synonyms(a, b) is agree
    assert are_synonyms(b, a) is agree


@given(st.text(max_size=40))
def test_any_text_is_its_own_synonym_and_has_a_name(text):
    assert are_synonyms(text, text)
    assert are_synonyms(text, f"  {text}\n")
    found = normalize_label(text)
    assert found.known == (found.name in vocabulary())


@given(st.sampled_from(sorted(vocabulary())))
def test_a_name_with_its_side_is_stable_when_normalized_again(name):
    assert normalize_label(normalize_label(f"left {name}").text)[:2] == normalize_label(f"left {name}")[:2]
    assert normalize_label(name) == Label(name, None, name, True)


@pytest.mark.parametrize("label", [None, 3, float("nan"), ["effusion"]])
def test_what_is_no_text_is_refused(label):
    with pytest.raises(ValueError, match="Expected a text for `text`, got"):
        normalize_label(label)


def test_no_vocabulary_word_begins_or_ends_with_a_side_letter():
    words = [word for name, synonyms in vocabulary().items() for word in (name, *synonyms)]
    words += [label for dataset in FILE["datasets"].values() for label in dataset["labels"]]
    assert not [word for word in words if re.search(r"(?i)^[lr]\b(?!$)|(?<!^)\b[lr]$", word)]


def test_labels_of_real_files_are_all_known(shared_dir):
    boxes = json.loads((shared_dir / "data/annotations/chestx_det/ChestX_Det_test.sample.json").read_text())
    assert all(normalize_label(label, "chestx-det").known for image in boxes for label in image["syms"])
    rows = read_lines(shared_dir / "data/cxr_lungs/annotations.jsonl")
    assert all(normalize_label(label).known for row in rows for label in row["labels"])

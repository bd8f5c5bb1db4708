"""The card and the manifest: counts by hand, every change of a file noticed, the sources of all readers."""

from __future__ import annotations

import json

import pytest
import yaml

from grounding_rewards.data.load import load_split
from grounding_rewards.data.prepare import PrepareSettings, prepare_films, read_manifest, verify_films
from grounding_rewards.data.prepare.sources import SOURCES
from grounding_rewards.data.readers import list_datasets

GENERAL = {"coco", "yolo", "voc", "jsonl", "vlm-r1", "ms-swift"}


@pytest.fixture
def prepared(make_films, tmp_path):
    root, records = make_films(9)
    # Films 0 to 5 keep a split of the dataset's own, 6 to 8 follow a hash; the last has no patient.
    records = [record._replace(split="train" if k < 6 else None) for k, record in enumerate(records)]
    records[8] = records[8]._replace(patient_id=None)
    settings = PrepareSettings("tbx11k", "qwen3-vl", shares=(("test", 1.0),))
    prepare_films(lambda: records, root, tmp_path / "out", settings)
    return tmp_path / "out"


def test_counts(prepared):
    """By hand: film k has k % 3 boxes, labelled effusion, or mass and effusion."""
    manifest = read_manifest(prepared)
    train, test = manifest["splits"]["train"], manifest["splits"]["test"]
    assert (train["films_with_rows"], train["rows"], train["negatives"]) == (6, 6, 2)
    assert train["boxes"] == {"effusion": 4, "mass": 2}
    assert train["rows_with"] == {"effusion": 4, "mass": 2}
    assert (test["rows"], test["negatives"]) == (3, 1)
    assert manifest["films_without_patient"] == 1
    assert manifest["films_without_own_split"] == 3
    assert manifest["vocabulary"] == ["effusion", "mass"]


def test_the_card_says_all_of_it(prepared):
    card = (prepared / "README.md").read_text()
    head = yaml.safe_load(card.split("---")[1])
    assert head["license_name"] == "CC BY-NC-SA"
    assert [one["split"] for one in head["configs"][0]["data_files"]] == ["train", "test"]
    for stated in (
        "TBX11K",
        "https://github.com/yun-liu/Tuberculosis",
        "| train | 6 | 6 | 2 | 33.3% | 6 |",
        "| effusion | 4 / 4 | 2 / 2 |",
        "Of 9 films 6 have the dataset's own split.",
        "The patient of 1 films is not known",
        '| box_format | `"qwen3-vl"` |',
        "| seed | `0` |",
        read_manifest(prepared)["splits"]["train"]["shards"][0]["sha256"],
    ):
        assert stated in card


def test_a_sound_folder_has_no_problems(prepared):
    assert verify_films(prepared) == []


def test_every_change_is_noticed(prepared):
    shard = prepared / "data/train-00000.parquet"
    whole = shard.read_bytes()
    for position in (10, len(whole) // 2, len(whole) - 10):
        changed = bytearray(whole)
        changed[position] ^= 1
        shard.write_bytes(changed)
        assert verify_films(prepared) == ["data/train-00000.parquet was changed: its checksum is another one"]
    shard.unlink()
    assert verify_films(prepared) == ["data/train-00000.parquet is missing"]
    shard.write_bytes(whole)
    (prepared / "data/train-00001.parquet").write_bytes(whole)
    assert verify_films(prepared) == ["data/train-00001.parquet is not part of the dataset"]


def test_folders_that_are_not_prepared_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"Expected manifest\.json in the folder"):
        verify_films(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ValueError, match=r"Expected manifest\.json in the folder"):
        read_manifest(tmp_path)


def test_unknown_splits_are_refused(prepared):
    with pytest.raises(ValueError, match=r"Expected one of train, test for the split of .*, got 'validation'"):
        load_split(str(prepared), "validation")


def test_load_split_takes_the_first_films(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    assert load_split(str(prepared), "train", films=2)["id"][:] == ["film-0", "film-1"]


def test_every_dataset_has_a_source():
    assert set(SOURCES) == set(list_datasets()) - GENERAL


def test_the_manifest_is_json_that_people_can_read(prepared):
    text = (prepared / "manifest.json").read_text()
    assert json.loads(text)["complete"] is True
    assert len(text.splitlines()) > 50

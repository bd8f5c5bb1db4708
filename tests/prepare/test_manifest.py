"""The card and the manifest: counts by hand, every change of a file noticed, the sources of all readers."""

import re

import pytest
import yaml

from grounding_rewards.prepare import PrepareSettings, prepare_images, read_manifest, verify_images
from grounding_rewards.prepare.load import load_split
from grounding_rewards.sources import SOURCES, list_datasets
from tests.tables import table

GENERAL = {"csv", "imagefolder", "coco", "yolo", "voc", "jsonl", "vlm-r1", "ms-swift"}


@pytest.fixture
def prepared(make_images, tmp_path):
    root, records = make_images(9)
    # Images 0 to 5 keep a split of the dataset's own, 6 to 8 follow a hash; the last has no patient.
    records = [record._replace(split="train" if k < 6 else None) for k, record in enumerate(records)]
    records[8] = records[8]._replace(patient_id=None)
    settings = PrepareSettings("tbx11k", "qwen3-vl", shares=(("test", 1.0),))
    prepare_images(records, root, tmp_path / "out", settings)
    return tmp_path / "out"


def test_counts(prepared):
    """By hand: image k has k % 3 boxes, labelled effusion, or mass and effusion."""
    manifest = read_manifest(prepared)
    train, test = manifest["splits"]["train"], manifest["splits"]["test"]
    assert (train["images_with_rows"], train["rows"], train["negatives"]) == (6, 6, 2)
    assert train["boxes"] == {"effusion": 4, "mass": 2}
    assert train["rows_with"] == {"effusion": 4, "mass": 2}
    assert (test["rows"], test["negatives"]) == (3, 1)
    assert manifest["images_without_patient"] == 1
    assert manifest["images_without_own_split"] == 3
    assert manifest["vocabulary"] == ["effusion", "mass"]


def test_the_card_says_all_of_it(prepared):
    card = (prepared / "README.md").read_text()
    head = yaml.safe_load(card.split("---")[1])
    assert head["license_name"] == "CC BY-NC-SA"
    assert [one["split"] for one in head["configs"][0]["data_files"]] == ["train", "test"]
    for stated in ("TBX11K", "| train | 6 | 6 | 2 | 33.3% | 6 |", "| effusion | 4 / 4 | 2 / 2 |", "| seed | `0` |"):
        assert stated in card


def test_every_change_is_noticed(prepared):
    card = prepared / "README.md"
    text = card.read_text()
    card.write_text(text + "More.\n")
    assert verify_images(prepared) == ["README.md was changed: its checksum is another one"]
    card.write_text(text)
    shard = prepared / "data/train-00000.parquet"
    whole = shard.read_bytes()
    for position in (10, len(whole) // 2, len(whole) - 10):
        changed = bytearray(whole)
        changed[position] ^= 1
        shard.write_bytes(changed)
        assert verify_images(prepared) == ["data/train-00000.parquet was changed: its checksum is another one"]
    shard.unlink()
    assert verify_images(prepared) == ["data/train-00000.parquet is missing"]
    shard.write_bytes(whole)
    (prepared / "data/train-00001.parquet").write_bytes(whole)
    assert verify_images(prepared) == ["data/train-00001.parquet is not part of the dataset"]


@pytest.mark.parametrize(("content", "problem"), [(None, "without it"), ("{", "("), ('{"version": 3}', "of another")])
def test_folders_that_are_not_prepared_are_refused(tmp_path, content, problem):
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(ValueError, match=rf"Expected manifest\.json in the folder .*{re.escape(problem)}"):
        verify_images(tmp_path)


def test_load_split_takes_the_first_images(prepared):
    assert load_split(str(prepared), "train", max_images=2)["id"][:] == ["image-0", "image-1"]


def test_every_dataset_has_a_source():
    assert {name for name, source in SOURCES.items() if source.title} == set(list_datasets()) - GENERAL


@pytest.mark.parametrize(
    ("splits_from", "images", "split", "drawn"),
    table("prepare/tables", "images_without_patient_are_drawn_only_without_a_split"),
)
def test_images_without_patient_are_drawn_only_without_a_split(
    make_images, tmp_path, splits_from, images, split, drawn
):
    root, records = make_images(images)
    records = [record._replace(patient_id=None, split=split) for record in records]
    settings = PrepareSettings("coco", "qwen3-vl", splits_from=splits_from)
    splits = prepare_images(records, root, tmp_path / "out", settings)["splits"]
    card = (tmp_path / "out/README.md").read_text()
    assert f"The patient of {images} images is not known" in card
    assert (f"{drawn} were drawn by a seeded hash" in card) == (drawn > 0)
    assert drawn or list(splits) == ["train"]


def test_all_readers_boxes_are_counted(make_images, tmp_path):
    """The set of the reader who drew nothing must not make an image of findings a negative.

    Image 1 has one box of R1, image 2 one of R1 and one of R2; R3 never draws.
    """
    root, records = make_images(3, split="train", read_by=("R1", "R2", "R3"))
    records = [record._replace(readers=("R1", "R2")[: len(record.boxes)]) for record in records]
    settings = PrepareSettings("coco", "qwen3-vl", readers="any-of")
    train = prepare_images(records, root, tmp_path / "out", settings)["splits"]["train"]
    assert (train["rows"], train["negatives"]) == (3, 1)
    assert train["boxes"] == train["rows_with"] == {"effusion": 2, "mass": 1}
    assert "All readers' boxes are counted" in (tmp_path / "out/README.md").read_text()

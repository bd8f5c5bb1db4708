"""Copies of an image, byte for byte or encoded again, end in one split with all images of their patients."""

import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.prepare import PrepareSettings, prepare_images
from grounding_rewards.prepare.split_duplicates import group_duplicates

SHARES = (("train", 0.5), ("test", 0.5))


def image(seed, size=(160, 120)):
    greys = np.random.default_rng(seed).integers(0, 256, (7, 9), dtype=np.uint8)
    return Image.fromarray(greys).resize(size, Image.Resampling.BICUBIC)


@pytest.fixture
def images(tmp_path):
    """Twenty images of twenty patients: 1 is 0 byte for byte, 3 is 2 as JPEG, 5 is 4 at half the size."""
    records = []
    for k in range(20):
        image(k).save(tmp_path / f"{k}.png")
        records.append(AnnotatedImage(f"f{k:02}", f"{k}.png", [[10, 10, 60, 60]], ["mass"], patient_id=f"p{k}"))
    shutil.copy(tmp_path / "0.png", tmp_path / "1.png")
    image(2).save(tmp_path / "3.jpg", quality=70)
    records[3] = records[3]._replace(file="3.jpg")
    image(4, (80, 60)).save(tmp_path / "5.png")
    records[5] = records[5]._replace(boxes=[[5, 5, 30, 30]])
    return records


COPIES = [("f00", "f01"), ("f02", "f03"), ("f04", "f05")]


def prepare(folder, records, name="out", processes=1, **settings):
    shares = {} if any(record.split for record in records) else {"shares": SHARES}
    settings = PrepareSettings("jsonl", "qwen3-vl", **{**shares, **settings})
    return prepare_images(records, folder, folder / name, settings, processes=processes)


def splits_of(folder, name="out"):
    files = sorted((folder / name / "data").glob("*.parquet"))
    rows = [row for file in files for row in pq.read_table(file, columns=["id", "split"]).to_pylist()]
    return {row["id"]: row["split"] for row in rows}


@pytest.mark.parametrize("known", [True, False])
def test_copies_are_drawn_together_and_counted(tmp_path, images, known):
    if not known:
        images = [one._replace(patient_id=None) for one in images]
    apart = 0
    for seed in range(3):
        manifest = prepare(tmp_path, images, f"out-{seed}", seed=seed)
        splits = splits_of(tmp_path, f"out-{seed}")
        assert all(splits[one] == splits[other] for one, other in COPIES)
        assert manifest["images_with_copies"] == 6
        assert "6 images are copies of one another" in (tmp_path / f"out-{seed}" / "README.md").read_text()
        apart += len(set(splits.values()))
    assert apart > 3  # both splits are filled


def test_all_images_of_their_patients_go_with_them(tmp_path, images):
    images[10] = images[10]._replace(patient_id="p0")
    images[11] = images[11]._replace(patient_id="p1")
    for seed in range(2):
        prepare(tmp_path, images, f"out-{seed}", seed=seed)
        splits = splits_of(tmp_path, f"out-{seed}")
        assert len({splits[name] for name in ("f00", "f01", "f10", "f11")}) == 1


def test_processes_and_images_that_cannot_be_read_change_nothing(tmp_path, images):
    (tmp_path / "19.png").write_bytes(b"no image")
    for processes in (1, 2):
        prepare(tmp_path, images, f"out-{processes}", processes=processes, bad_rows="drop")
    assert splits_of(tmp_path, "out-1") == splits_of(tmp_path, "out-2")


def test_copies_in_two_splits_of_the_dataset_are_refused_or_left_out_of_the_larger_one(tmp_path, images):
    own = [one._replace(split="test" if one.id in ("f01", "f12") else "train") for one in images]
    with pytest.raises(ValueError, match="f00 is in train and a copy of f01 in test") as error:
        prepare(tmp_path, own)
    assert "--splits-from hash" in str(error.value)
    assert not (tmp_path / "out").exists()
    manifest = prepare(tmp_path, own, bad_rows="drop")
    assert manifest["skipped"] == [["train", "f00", "in train and a copy of f01 in test"]]
    assert splits_of(tmp_path)["f01"] == "test"
    assert prepare(tmp_path, own, "drawn", splits_from="hash")["skipped"] == []


def test_a_copy_without_a_split_follows_the_one_that_has_one(tmp_path, images):
    for split in ("train", "test"):
        # The last image has no copy: without it nothing would be held out, and all be drawn.
        own = [images[0]._replace(split=split), *images[1:-1], images[-1]._replace(split="test")]
        prepare(tmp_path, own, split)
        assert splits_of(tmp_path, split)["f01"] == split


def test_one_split_alone_compares_nothing(tmp_path, images, monkeypatch):
    monkeypatch.setattr("grounding_rewards.prepare.pipeline.group_duplicates", None)
    assert prepare(tmp_path, images, shares=(("train", 1.0),))["images_with_copies"] == 0


def test_chains_of_copies_are_one_group():
    one, two = bytes([1] * 2048), bytes([1, 255] * 1024)
    named = zip("abcd", "9878", strict=True)
    images = [AnnotatedImage(name, f"{name}.png", [], [], patient_id=patient) for name, patient in named]
    signed = list(zip(images, (one, one, two, two), strict=True))
    joined = group_duplicates(signed, {}, keeps_splits=True, bad_rows="refuse")
    assert joined.groups == {"7": "7", "8": "7", "9": "7"}
    assert joined.images == 4


@pytest.mark.parametrize("bad_rows", ["refuse", "drop"])
def test_a_patient_without_a_split_joins_no_two_splits(bad_rows):
    first, second = (np.random.default_rng(seed).bytes(2048) for seed in range(2))
    cases = [
        ("a", "p1", "train", first),
        ("b", "p3", None, first),
        ("c", "p3", None, second),
        ("d", "p2", "test", second),
    ]
    signed = []
    for name, patient, split, signature in cases:
        record = AnnotatedImage(name, f"{name}.png", [], [], patient_id=patient, split=split)
        signed.append((record, signature))
    if bad_rows == "refuse":
        with pytest.raises(ValueError, match=r"got 2 .*: b is of a patient with copies in test and train"):
            group_duplicates(signed, {}, keeps_splits=True, bad_rows=bad_rows)
    else:
        groups = group_duplicates(signed, {}, keeps_splits=True, bad_rows=bad_rows)
        assert (set(groups.left_out), groups.groups) == ({"b", "c"}, {})

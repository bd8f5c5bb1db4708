"""Whole preparations: boxes follow images, the bytes do not depend on how the work was done, the result trains."""

import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.checks import check_dataset
from grounding_rewards.doctor.examine import examine
from grounding_rewards.doctor.rows import open_rows
from grounding_rewards.labels import _file
from grounding_rewards.prepare import PrepareSettings, prepare_images, read_manifest, split_shards, verify_images
from grounding_rewards.prepare.examples import make_plan
from grounding_rewards.prepare.load import load_split
from grounding_rewards.prepare.pipeline import with_shared_labels
from grounding_rewards.rewards.grounding import get_reward
from grounding_rewards.sources import get_source, list_datasets
from grounding_rewards.sources.jsonl import read_jsonl
from tests.conftest import REPOSITORY, read_lines, write_lines
from tests.prepare.conftest import write_annotations
from tests.tables import table

# About three images of noise: several shards in every test
SMALL_SHARDS = 3000


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr("grounding_rewards.prepare.shards._SHARD_BYTES", SMALL_SHARDS)


def options(**values):
    return PrepareSettings(**{"dataset": "jsonl", "box_format": "qwen3-vl", "side": 48} | values)


def checksums(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "data").iterdir())}


def rows_of(folder):
    return [row for split in read_manifest(folder)["splits"] for row in load_split(str(folder), split)]


@pytest.mark.parametrize(("task", "side"), [("detection", None), ("detection", 31), ("finding", 48)])
def test_boxes_follow_images(make_images, tmp_path, task, side):
    root, records = make_images(9)
    prepare_images(records, root, tmp_path / "out", options(side=side, task=task))
    rows = rows_of(tmp_path / "out")
    assert sum(len(row["boxes"]) for row in rows) == sum(len(record.boxes) for record in records)
    for row in rows:
        pixels = np.asarray(row["image"]).astype(float)
        assert pixels.shape == (row["height"], row["width"])
        assert (row["original_width"], row["original_height"]) == (96, 64)
        for x1, y1, x2, y2 in row["boxes"]:
            # The rectangle is brighter than all around; its edge is where the box says, up to a pixel of blur.
            inside = pixels[round(y1) + 1 : round(y2) - 1, round(x1) + 1 : round(x2) - 1]
            assert inside.min() > 200
            above, beside = pixels[round(y1) - 3, round(x1) : round(x2)], pixels[round(y1) : round(y2), round(x1) - 3]
            assert np.mean([*above, *beside]) < 150


def test_boxes_of_an_image_that_is_stored_smaller_than_it_was_drawn_on(make_images, tmp_path):
    """As with a 1024 pixel copy of a DICOM file: boxes count in the pixels of the record."""
    root, _ = make_images(1)
    record = AnnotatedImage("a", "0.png", [[96, 64, 192, 128]], ["mass"], width=192, height=128)
    prepare_images([record], root, tmp_path / "out", options(side=None))
    (row,) = rows_of(tmp_path / "out")
    assert row["boxes"] == [[48, 32, 96, 64]]
    assert [row[name] for name in ("width", "height", "original_width", "original_height")] == [96, 64, 192, 128]


def test_columns(make_images, tmp_path):
    root, records = make_images(4)
    prepare_images(records, root, tmp_path / "out", options())
    rows = {row["id"]: row for row in rows_of(tmp_path / "out")}
    assert rows.keys() == {record.id for record in records}
    assert rows["image-0"].keys() == {
        "prompt", "image", "boxes", "labels", "width", "height", "box_format", "id", "patient_id", "split",
        "original_width", "original_height",
    }  # fmt: skip
    assert rows["image-1"]["labels"] == ["effusion"]
    assert rows["image-3"]["patient_id"] == "p1"
    assert rows["image-0"]["boxes"] == []
    assert {row["box_format"] for row in rows.values()} == {"qwen3-vl"}


def test_columns_that_depend_on_the_images_and_the_task(make_images, tmp_path):
    root, records = make_images(3)
    phrased = [record._replace(phrases=("seen",) * len(record.boxes), ignored=((0, 0, 96, 64),)) for record in records]
    box_format = {"syntax": "json", "space": "norm100"}
    prepare_images(phrased, root, tmp_path / "out", options(task="phrase", box_format=box_format))
    rows = rows_of(tmp_path / "out")
    assert {row["phrase"] for row in rows} == {"seen"}
    assert rows[0]["ignore_boxes"] == [[0, 0, 48, 32]]
    assert "box_format" not in rows[0]


def test_order_and_shards_do_not_depend_on_the_processes(make_images, tmp_path):
    root, records = make_images(20)
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        prepare_images(records, root, folder, options(task="finding"), processes=processes)
    one, two = checksums(tmp_path / "1"), checksums(tmp_path / "2")
    assert one == two
    assert len([name for name in one if name.startswith("train")]) > 2
    ids = [row["id"].partition("/")[0] for row in load_split(str(tmp_path / "1"), "train")]
    numbers = [int(name.removeprefix("image-")) for name in ids]
    assert numbers == sorted(numbers)


class StoppedError(Exception):
    """Stands for whatever ends a run early."""


def interrupted(records, root, out, after, **values):
    def stop(stage, done, of):
        if stage == "writing images" and done == after:
            raise StoppedError

    with pytest.raises(StoppedError):
        prepare_images(records, root, out, options(**values), on_progress=stop)


def test_an_interrupted_run_goes_on_wherever_it_stopped(make_images, tmp_path):
    root, records = make_images(20)
    # One image that cannot be used, so that it is counted in the shard that it would be in
    (root / "5.png").write_bytes(b"")
    values = {"bad_rows": "drop"}
    prepare_images(records, root, tmp_path / "whole", options(**values))
    whole, manifest = checksums(tmp_path / "whole"), read_manifest(tmp_path / "whole")
    assert len(manifest["skipped"]) == 1

    @settings(max_examples=8)
    @given(st.lists(st.integers(1, 20), min_size=1, max_size=3))
    def stopped_after(stops):
        out = tmp_path / "parts"
        shutil.rmtree(out, ignore_errors=True)
        for after in stops:
            interrupted(records, root, out, after, **values)
        assert prepare_images(records, root, out, options(**values)) == manifest
        assert checksums(out) == whole

    stopped_after()


KILLED = """
import os, signal, sys
from grounding_rewards.prepare import PrepareSettings, prepare_images, shards
from grounding_rewards.sources import get_source

def kill(stage, done, of):
    if stage == "writing images" and done == int(after):
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    root, out, after, processes, shards._SHARD_BYTES = *sys.argv[1:5], int(sys.argv[5])
    settings = PrepareSettings("jsonl", "qwen3-vl", side=48)
    prepare_images(get_source("jsonl").read(root), root, out, settings, processes=int(processes), on_progress=kill)
"""


def test_a_killed_run_goes_on(make_images, tmp_path):
    root, records = make_images(20)
    write_annotations(root, records)
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    arguments = [str(word) for word in (root, tmp_path / "out", 14, 2, SMALL_SHARDS)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    killed = subprocess.run([sys.executable, str(script), *arguments], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert verify_images(tmp_path / "out") == ["the preparation was interrupted; run the same command again"]
    with pytest.raises(ValueError, match=r"whose preparation was interrupted\. Run the same command again"):
        load_split(str(tmp_path / "out"), "train")
    for folder in ("out", "whole"):
        prepare_images(get_source("jsonl").read(str(root)), root, tmp_path / folder, options())
    assert checksums(tmp_path / "out") == checksums(tmp_path / "whole")
    assert verify_images(tmp_path / "out") == []


def test_a_finished_folder_is_left_alone(make_images, tmp_path):
    root, records = make_images(6)
    first = prepare_images(records, root, tmp_path / "out", options())
    shutil.rmtree(root)
    assert prepare_images(records, root, tmp_path / "out", options()) == first


@pytest.mark.parametrize(
    ("changed", "images", "message"), table("prepare/tables", "other_settings_and_images_need_another_folder")
)
def test_other_settings_and_images_need_another_folder(make_images, tmp_path, changed, images, message):
    root, records = make_images(6)
    interrupted(records, root, tmp_path / "out", 4)
    _, records = make_images(images)
    with pytest.raises(ValueError, match=message):
        prepare_images(records, root, tmp_path / "out", options(**changed))


def test_a_folder_with_other_files_is_refused(make_images, tmp_path):
    root, records = make_images(2)
    with pytest.raises(ValueError, match="Expected a new or empty place for out"):
        prepare_images(records, root, root, options())


@pytest.mark.parametrize(("fields", "message"), table("prepare/tables", "bad_rows_are_named_or_skipped"))
def test_bad_rows_are_named_or_skipped(make_images, tmp_path, fields, message):
    if fields.get("file") == "broken.dcm":
        pytest.importorskip("pydicom", reason="needs the extra dicom")
    root, records = make_images(6)
    (root / "empty.png").write_bytes(b"")
    (root / "broken.dcm").write_bytes(b"no image")
    # Image 4 has one box.
    records[4] = records[4]._replace(**fields)
    with pytest.raises(ValueError, match=f"(?s)got image-4 .*{message}.*What is done is kept"):
        prepare_images(records, root, tmp_path / "stopped", options())
    manifest = prepare_images(records, root, tmp_path / "out", options(bad_rows="drop"))
    assert [image for _, image, _ in manifest["skipped"]] == ["image-4"]
    assert "image-4" not in {row["id"] for row in rows_of(tmp_path / "out")}
    assert "image-4" in (tmp_path / "out/README.md").read_text()


def test_a_refused_attempt_does_not_block_the_corrected_one(make_images, tmp_path):
    root, records = make_images(3, split="train")
    wrong = [records[0]._replace(boxes=[[0, 0, 999, 9]], labels=["mass"]), *records[1:]]
    with pytest.raises(ValueError, match="Expected an image that can be used, got image-0"):
        prepare_images(wrong, root, tmp_path / "out", options())
    # Nothing was finished: corrected tables and other settings may use the folder.
    manifest = prepare_images(records, root, tmp_path / "out", options(side=32))
    assert manifest["splits"]["train"]["images_with_rows"] == 3


def test_boxes_follow_squeezed_copies_axis_by_axis(make_images, tmp_path):
    # an image of 96 x 64 pixels for an image of 192 x 320, stored at 48 x 32: a quarter and a tenth
    root, records = make_images(1, split="train")
    image = records[0]._replace(width=192, height=320, boxes=[[40, 80, 120, 240]], labels=["mass"])
    prepare_images([image], root, tmp_path / "out", options(squeezed=True))
    (row,) = rows_of(tmp_path / "out")
    assert (row["width"], row["height"]) == (48, 32)
    assert row["boxes"] == [[10, 8, 30, 24]]
    assert (row["original_width"], row["original_height"]) == (192, 320)


def test_a_split_whose_images_are_all_bad(make_images, tmp_path):
    root, records = make_images(4, split="train")
    records[3] = records[3]._replace(file="gone.png", split="test", patient_id="other")
    manifest = prepare_images(records, root, tmp_path / "out", options(bad_rows="drop"))
    assert manifest["splits"]["test"]["rows"] == 0
    assert [split for split, _, _ in manifest["skipped"]] == ["test"]


@pytest.mark.parametrize(
    ("task", "box_format"), [("detection", "qwen3-vl"), ("finding", "answer-list"), ("phrase", "gemini")]
)
def test_a_prepared_folder_passes_the_check_before_training(make_images, tmp_path, task, box_format):
    root, records = make_images(12)
    records = [record._replace(phrases=tuple(f"a {label}" for label in record.labels)) for record in records]
    prepare_images(records, root, tmp_path / "out", options(side=None, task=task, box_format=box_format))
    check_dataset(load_split(str(tmp_path / "out"), "train"), get_reward("R4"))


def test_datasets_streams_and_loads_it(make_images, tmp_path):
    from datasets import load_dataset

    root, records = make_images(10, split="train")
    prepare_images(records, root, tmp_path / "out", options())
    files = split_shards(tmp_path / "out", "train")
    assert len(files) > 1
    rows = list(load_dataset("parquet", data_files=files, split="train", streaming=True))
    assert [row["id"] for row in rows] == [record.id for record in records]
    assert rows[0]["image"].size == (48, 32)
    assert rows[0]["prompt"][0]["content"][0]["type"] == "image"
    # The card tells `datasets` the splits.
    assert {name: split.num_rows for name, split in load_dataset(str(tmp_path / "out")).items()} == {"train": 10}


def test_rows_of_one_image_share_its_image(make_images, tmp_path, monkeypatch):
    monkeypatch.setattr("grounding_rewards.prepare.shards._SHARD_BYTES", 256e6)
    root, records = make_images(6)
    whole = options(side=None, splits_from="hash", shares=(("train", 1.0),))
    prepare_images(records, root, tmp_path / "one", whole)
    labels = [f"finding {k}" for k in range(20)]
    many = [record._replace(boxes=[[8, 8, 40, 30]] * 20, labels=labels) for record in records]
    prepare_images(many, root, tmp_path / "many", PrepareSettings(**vars(whole) | {"task": "finding"}))
    one, twenty = (sum(map(len, checksums(tmp_path / name).values())) for name in ("one", "many"))
    assert read_manifest(tmp_path / "many")["splits"]["train"]["rows"] == 120
    assert twenty < 2 * one


def test_real_images(shared_dir, tmp_path):
    """Lungs on real images: every image in one split, boxes inside, the check before training passes."""
    root = shared_dir / "data" / "cxr_lungs"
    lines = read_lines(root / "annotations.jsonl")
    images = get_source("jsonl").read(str(root))
    manifest = prepare_images(images, root, tmp_path / "out", options(side=128, image_format="jpeg"))
    assert sum(counts["rows"] for counts in manifest["splits"].values()) == len(lines)
    assert manifest["vocabulary"] == sorted({label for line in lines for label in line["labels"]})
    for split in manifest["splits"]:
        check_dataset(load_split(str(tmp_path / "out"), split), get_reward("R4"))


def test_what_a_bad_image_stopped_goes_on_without_it(make_images, tmp_path):
    """The way out that the error names: the same folder, what is done is kept."""
    root, records = make_images(20)
    records[15] = records[15]._replace(file="gone.png")
    with pytest.raises(ValueError, match=r"--bad-rows drop"):
        prepare_images(records, root, tmp_path / "out", options())
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "out/data").glob("*.parquet")}
    assert done
    manifest = prepare_images(records, root, tmp_path / "out", options(bad_rows="drop"))
    assert all(path.stat().st_mtime_ns == changed for path, changed in done.items())
    assert manifest["settings"]["bad_rows"] == "drop"
    assert prepare_images(records, root, tmp_path / "whole", options(bad_rows="drop")) == manifest
    assert checksums(tmp_path / "out") == checksums(tmp_path / "whole")
    # And nothing is left to do for the first command.
    assert prepare_images(records, root, tmp_path / "out", options()) == manifest


def test_a_wrong_model_leaves_no_folder(make_images, tmp_path):
    pytest.importorskip("transformers")
    root, records = make_images(3)
    nowhere = str(tmp_path / "no model")
    with pytest.raises(ValueError, match=r"Expected a folder or id of a model for --model, got .*no model' \("):
        prepare_images(records, root, tmp_path / "out", options(model=nowhere))
    assert not (tmp_path / "out").exists()
    prepare_images(records, root, tmp_path / "out", options())


def test_no_usable_image_at_all_is_an_error(make_images, tmp_path):
    root, records = make_images(3)
    gone = [record._replace(file=f"gone/{record.file}") for record in records]
    with pytest.raises(ValueError, match=r"can be used, got none of 3 \(image-0: .*\)\. Check the root"):
        prepare_images(gone, root, tmp_path / "out", options(bad_rows="drop"))
    assert not list((tmp_path / "out").glob("data/*"))
    # The folder does not stand in the way once the images are there.
    (root / "gone").mkdir()
    for record in records:
        shutil.copy(root / record.file, root / "gone")
    assert prepare_images(gone, root, tmp_path / "out", options(bad_rows="drop"))["skipped"] == []


def test_other_columns_are_carried_along(tmp_path):
    """For subgroups and attribution: today they end at the reader."""
    for name in ("1", "2"):
        Image.new("L", (40, 30)).save(tmp_path / f"{name}.png")
    lines = [
        {"file": "1.png", "boxes": [[1, 2, 20, 25]], "labels": ["mass"], "age": 63, "view": "PA", "prompt": "Where?"},
        {"file": "2.png", "boxes": [], "labels": [], "age": 41.5, "site": {"name": "A"}, "resized_width": 9},
    ]
    write_lines(tmp_path / "annotations.jsonl", lines)
    prepare_images(read_jsonl(tmp_path), tmp_path, tmp_path / "out", options(shares=(("train", 1.0),)))
    rows = sorted(load_split(str(tmp_path / "out"), "train"), key=lambda row: row["id"])
    found = [[row[name] for name in ("age", "view", "site")] for row in rows]
    assert found == [[63.0, "PA", None], [41.5, None, '{"name": "A"}']]
    # What a preparation writes itself is its own.
    assert "Where?" not in rows[0]["prompt"][0]["content"][1]["text"]
    assert "resized_width" not in rows[0]


def test_where_nothing_is_held_out_patients_are_drawn_and_it_is_said(make_images, tmp_path):
    """VinDr-CXR of Kaggle, RSNA and SIIM have labels for `train` alone: today everything is trained on."""
    root, records = make_images(40, split="train")
    records = [record._replace(patient_id=f"p{k // 2 % 20}") for k, record in enumerate(records)]
    with pytest.warns(UserWarning, match=r"jsonl holds no image out: 80 % .* --split-shares draws others\."):
        manifest = prepare_images(records, root, tmp_path / "out", options())
    sides = {(row["patient_id"], row["split"]) for row in rows_of(tmp_path / "out")}
    assert len(sides) == 20 == len({patient for patient, _ in sides})
    assert set(manifest["splits"]) > {"train"}
    assert manifest["images_without_own_split"] == len(load_split(str(tmp_path / "out"), "all")) == 40
    # One split was asked for: nothing is drawn, nor can it be.
    assert set(prepare_images(records, root, tmp_path / "kept", options(split="train"))["splits"]) == {"train"}
    records[0] = records[0]._replace(split="test", patient_id="another")
    for split in ("train", None):
        with pytest.raises(ValueError, match="Expected no shares for images that keep the splits of jsonl"):
            prepare_images(records, root, tmp_path / "shares", options(split=split, shares=(("train", 1.0),)))


def test_a_patient_under_another_name_is_said(make_images, tmp_path):
    root, records = make_images(4, split="train")
    records = [record._replace(patient_id=None, extra={"PatientID": "p1"}) for record in records]
    with pytest.warns(UserWarning, match=r"'PatientID' of jsonl looks like the patient.* Rename it to patient_id"):
        prepare_images(records, root, tmp_path / "out", options(split="train"))


@pytest.mark.parametrize(
    ("label", "dataset", "expected"), table("prepare/tables", "labels_are_translated_and_nothing_else")
)
def test_labels_are_translated_and_nothing_else(label, dataset, expected):
    image = AnnotatedImage("1", "1.png", [[0, 0, 9, 9]], [label], readers=("R1",), extra={"view": "PA"})
    assert with_shared_labels(image, dataset) == image._replace(labels=[expected])


def test_datasets_of_the_vocabulary_are_readers():
    assert set(_file()["datasets"]) <= set(list_datasets())


def test_patients_that_names_suggest_stay_together_and_pass_the_doctor(make_images, tmp_path):
    root, records = make_images(60)
    images = []
    for number, record in enumerate(records):
        file = f"scan-{number // 2:05}{'ab'[number % 2]}.png"
        (root / record.file).rename(root / file)
        images.append(record._replace(file=file, id=file, patient_id=None))
    with pytest.warns(UserWarning, match="names of files suggest 30, such as scan-00000 for scan-00000a.png"):
        prepare_images(images, root, tmp_path / "out", options())
    splits = {row["id"]: row["split"] for row in rows_of(tmp_path / "out")}
    assert len({*splits.values()}) == 3
    assert all(splits[f"scan-{number:05}a.png"] == splits[f"scan-{number:05}b.png"] for number in range(30))
    assert "patient-leak" not in {defect.name for defect in examine(open_rows(str(tmp_path / "out"))).defects}


def test_patients_that_count_the_rows_are_reported(make_images):
    _, records = make_images(24)
    images = [record._replace(patient_id=str(number)) for number, record in enumerate(records)]
    with pytest.warns(UserWarning, match="patient_id of every image of jsonl is the number of its row"):
        make_plan(images, options())

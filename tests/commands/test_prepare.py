"""The command line: from a folder to a prepared folder, every wrong argument named, help that teaches."""

import json
import re
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest

from grounding_rewards.cli import command_app, main
from grounding_rewards.data.checks import check_dataset
from grounding_rewards.doctor.context import CHECKS
from grounding_rewards.prepare import read_manifest
from grounding_rewards.prepare.load import load_split
from grounding_rewards.rewards.grounding import get_reward
from tests.commands.conftest import call
from tests.conftest import dicom_header, save_dicom, write_image_folder
from tests.prepare.conftest import write_annotations
from tests.tables import table

prepare = partial(call, "prepare")


@pytest.fixture
def folder(make_images):
    root, records = make_images(6)
    write_annotations(root, records)
    return root


def test_one_command(folder, tmp_path, capsys):
    out = tmp_path / "out"
    words = ("jsonl", "--root", folder, "--out", out, "--box-format", "qwen3-vl", "--side", 48, "--task", "finding")
    assert prepare(*words, "--split-shares", "train=1", "--labels", "mass", "--negatives", "0.5") == 0
    printed = capsys.readouterr().out
    # Images 2 and 5 have a mass, so two of the other four are asked for it too, or as many as the hash takes of them.
    assert re.search(r"train: \d images, \d rows, \d without boxes \((?:33.3|50.0)%\), \d boxes, 1 shards\n", printed)
    assert str(out / "README.md") in printed
    settings = read_manifest(out)["settings"]
    assert (settings["task"], settings["side"], settings["shares"]) == ("finding", 48, [["train", 1.0]])
    assert call("prepare-verify", out) == 0
    assert "every file is as it was written" in capsys.readouterr().out
    (out / "data/train-00000.parquet").write_bytes(b"")
    assert call("prepare-verify", out) == 1
    assert "1 problem" in capsys.readouterr().out


def test_three_readers_of_dicom_images(tmp_path, monkeypatch):
    """VinDr-CXR as on Kaggle: two of three agree on one box, the third drew another; a normal image."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    pytest.importorskip("highdicom", reason="needs the extra dicom")
    pixels = np.full((120, 160), 3000, dtype=np.uint16)
    # Dark as stored, bright as shown
    pixels[20:80, 40:100] = 100
    lines = ["image_id,class_name,class_id,rad_id,x_min,y_min,x_max,y_max"]
    for k in range(4):
        image = dicom_header(pixels, PhotometricInterpretation="MONOCHROME1")
        save_dicom(tmp_path / f"root/train/{k}.dicom", image)
        drawn = ["Nodule/Mass,8,R1,40,20,100,80", "Nodule/Mass,8,R2,42,20,100,80", "Cardiomegaly,3,R3,1,1,30,30"]
        normal = [f"No finding,14,R{reader},,,," for reader in (1, 2, 3)]
        lines += [f"{k},{row}" for row in (normal if k == 3 else drawn)]
    (tmp_path / "root/train.csv").write_text("\n".join(lines) + "\n")
    words = ("vindr-cxr", "--root", tmp_path / "root", "--out", tmp_path / "out", "--box-format", "qwen3-vl")
    with pytest.raises(ValueError, match="Expected a merging strategy for readers, because 3 people read image 0"):
        prepare(*words)
    assert prepare(*words, "--readers", "ignore", "--side", 80, "--normalize-labels") == 0
    first, _, _, normal = load_split(str(tmp_path / "out"), "train")
    shown = np.asarray(first["image"])
    assert shown.shape == (60, 80)
    assert shown[12:38, 22:48].min() > 200 > 50 > shown[:8].max()
    assert first["boxes"] == [[20, 10, 50, 40]]
    assert first["ignore_boxes"] == [[0.5, 0.5, 15, 15]]
    assert (normal["boxes"], normal["ignore_boxes"]) == ([], [])
    assert read_manifest(tmp_path / "out")["vocabulary"] == ["cardiomegaly", "nodule or mass"]
    check_dataset(load_split(str(tmp_path / "out"), "train"), get_reward("R4"))


@pytest.mark.parametrize(("words", "message"), table("commands/refusals", "prepare"))
def test_wrong_arguments_are_named(tmp_path, words, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        prepare(*words, "--out", tmp_path / "out")


def test_what_the_parser_refuses_is_named_an_unknown_dataset_first(capsys):
    assert main(["prepare", "vindr"]) == 2
    message = "Expected a known word for DATASET, got 'vindr'. Use one of: "
    assert message in capsys.readouterr().err
    assert main(["prepare", "vindr-cxr"]) == 2
    assert "Expected --root, got none." in capsys.readouterr().err
    # An older spelling of two numbers.
    assert main(["prepare", "coco", "--root", "x", "--out", "y", "--box-format", "qwen3-vl", "--window", "1,200"]) == 2
    assert "Expected two numbers for --window, got '1,200'. Write --window 1 200." in capsys.readouterr().err


def test_ctrl_c(monkeypatch, capsys):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("grounding_rewards.report.notebook.read_completions", stop)
    assert main(["inspect", "log.jsonl"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_images_that_are_left_out_are_counted(folder, tmp_path, capsys):
    words = ("jsonl", "--root", folder, "--box-format", "qwen3-vl", "--negatives", "0.25", "--split-shares", "train=1")
    # Images 2 and 5 have a second box, of 40 x 40 pixels; the others are up to 32 x 22.
    assert prepare(*words, "--smallest-box", 23, "--out", tmp_path / "out") == 0
    printed = capsys.readouterr()
    assert "1 images without findings are left out of train" in printed.out
    assert "4 boxes are too small (--smallest-box) and left out; an image without another" in printed.out
    assert "train: 3 images" in printed.out
    # No bar where nobody looks.
    assert printed.err == ""
    assert "1 images without findings are left out of train" in (tmp_path / "out" / "README.md").read_text()


def test_prompts_from_a_file(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    template = tmp_path / "prompt.txt"
    template.write_text("Mark {labels}.\n")
    words = ("jsonl", "--root", folder, "--out", tmp_path / "out", "--box-format", "qwen3-vl")
    assert prepare(*words, "--prompt-file", template) == 0
    assert load_split(str(tmp_path / "out"), "train")[0]["prompt"][0]["content"][1]["text"] == "Mark effusion, mass."
    assert read_manifest(tmp_path / "out")["settings"]["template"] == "Mark {labels}."


def test_mixed_folders_have_the_rows_of_both(folder, tmp_path, capsys):
    words = ("jsonl", "--root", folder, "--box-format", "qwen3-vl", "--split-shares", "train=1")
    for name in ("one", "two"):
        assert prepare(*words, "--out", tmp_path / name) == 0
    assert call("prepare-mix", f"{tmp_path / 'one'}=2", f"{tmp_path / 'two'}=1", "--out", tmp_path / "mixed") == 0
    assert "train: 9 images, 9 rows" in capsys.readouterr().out
    with pytest.raises(ValueError, match="Expected FOLDER or FOLDER=WEIGHT for prepare-mix"):
        call("prepare-mix", "one=much", "two", "--out", tmp_path / "out")


def test_rows_say_where_they_are_from(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    row = {"file": "0.png", "width": 96, "height": 64, "boxes": [[8, 8, 40, 30]], "labels": ["mass"], "licence": "CC0"}
    row["source"] = "our clinic"
    write_image_folder(tmp_path, [row, {**row, "file": "1.png", "boxes": [], "labels": [], "licence": None}])
    assert prepare("jsonl", "--root", tmp_path, "--out", tmp_path / "out", "--box-format", "qwen3-vl") == 0
    rows = load_split(str(tmp_path / "out"), "train")
    assert [(row["source"], row["licence"]) for row in rows] == [("our clinic", "CC0"), ("our clinic", None)]


def test_the_doctor_names_options_that_there_are():
    told = " ".join(check.fix for check in CHECKS.values())
    named = set(re.findall(r"--[a-z-]+", " ".join(re.findall(r"grounding-rewards prepare ([^`]*)`", told))))
    known = {name for one in command_app("prepare").assemble_argument_collection() for name in one.names}
    assert {"--smallest-box", "--readers"} <= named <= known


def test_the_table_of_another_trainer(folder, tmp_path, capsys):
    out = tmp_path / "tables"
    for split in ("train", "all"):
        words = (folder, "--for", "easyr1", "--box-format", "qwen3-vl", "--out", out, "--max-pixels", 90000)
        assert call("prepare-table", *words, "--split", split) == 0
    printed = capsys.readouterr().out
    assert f"{out / 'all.parquet'}: 6 rows, " in printed
    # EasyR1's own smallest area would be above it.
    assert "data.min_pixels=90000\ndata.max_pixels=90000" in printed
    assert "data.prompt_key=problem" in printed
    rows = pq.read_table(out / "all.parquet").to_pylist()
    assert json.loads(rows[0]["answer"])["box_format"] == "qwen3-vl"
    assert rows[0]["problem"].startswith("<image>")

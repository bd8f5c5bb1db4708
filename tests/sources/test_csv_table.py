"""Tables of anybody's making: whatever the columns are called, however rows and cells are parted."""

import gzip
import json

import pytest

from grounding_rewards.sources.csv_table import read_csv_table
from tests.tables import table


@pytest.fixture
def folder(write):
    def write_table(text, name="boxes.csv", images=("a.png", "b.png")):
        data = text.encode()
        table = gzip.compress(data) if name.endswith(".gz") else data
        return write({**dict.fromkeys(images, (40, 60)), name: table})

    return write_table


BOX = {"a.png": ([[1, 2, 30, 40]], ["mass"]), "b.png": ([], [])}


@pytest.mark.parametrize(("text", "options"), table("sources/layouts", "csv_table")["TABLES"])
def test_tables_of_all_kinds(folder, text, options):
    images = list(read_csv_table(folder(text), **options))
    assert [image.file for image in images] == list(BOX)
    for image in images:
        boxes, labels = BOX[image.file]
        assert image.boxes == [pytest.approx(box) for box in boxes]
        assert (image.labels, image.width, image.height) == (labels, 40, 60)


def test_rows_of_an_image_belong_together_wherever_they_are(folder):
    text = (
        "image,patientId,split,x1,y1,x2,y2,label\n"
        "sub/a.png,7,val,1,2,30,40,mass\nb.png,8,train,5,5,9,9,\nsub/a.png,7,val,3,3,8,9,cyst\n"
    )
    root = folder(text, "table.csv.gz", images=("sub/a.png", "b.png"))
    a, b = read_csv_table(root)
    assert (a.id, a.boxes, a.labels) == ("sub/a.png", [[1, 2, 30, 40], [3, 3, 8, 9]], ["mass", "cyst"])
    assert (a.patient_id, a.split, b.patient_id, b.split) == ("7", "validation", "8", "train")
    assert b.labels == ["finding"]
    assert [image.id for image in read_csv_table(root, split="validation")] == ["sub/a.png"]
    # An image in two splits can be dropped whichever split is asked for.
    root = folder(f"{text}b.png,8,val,5,5,9,9,\n", "table.csv.gz", images=("sub/a.png", "b.png"))
    for split in (None, "validation"):
        faults = []
        assert [image.id for image in read_csv_table(root, split=split, faults=faults)] == ["sub/a.png"]
        assert "Expected one split in all rows of an image in line 3" in faults[0]


@pytest.mark.parametrize(("columns", "cells", "options", "side", "box"), table("sources/tables", "numbers"))
def test_numbers_are_read_as_they_are_meant(write, columns, cells, options, side, box):
    root = write({"t.csv": f"image,{columns}\na.png,{cells}\n", "a.png": (side, side)})
    assert [image.boxes for image in read_csv_table(root, **options)] == [[box]]


@pytest.mark.parametrize(("boxes", "label", "labels"), table("sources/tables", "labels"))
def test_labels(folder, boxes, label, labels):
    root = folder(f'image,boxes,labels\na.png,"{boxes}","{label}"\n')
    assert [image.labels for image in read_csv_table(root, order="xyxy")] == [labels]


def test_a_class_may_be_that_of_no_finding(folder):
    root = folder("image,x1,y1,x2,y2,class_id\na.png,1,2,30,40,0\nb.png,,,,,1\n")
    images = read_csv_table(root, classes=("mass", "No finding"))
    assert [(image.file, image.labels) for image in images] == [("a.png", ["mass"]), ("b.png", [])]


def test_names_of_tables_and_of_their_images(folder):
    # A text file is a table where there is no other, and folders of Windows are found.
    root = folder("image,x1,y1,x2,y2\na.png,1,2,3,4\n", "boxes.txt")
    assert [image.file for image in read_csv_table(root)] == ["a.png"]
    folder("image,x1,y1,x2,y2\nsub\\b.png,1,2,3,4\n", "BOXES.CSV", images=("sub/b.png",))
    assert [image.file for image in read_csv_table(root)] == ["sub/b.png"]
    folder("image,x1,y1,x2,y2\nb.png,1,2,3,4\n", "two.csv")
    assert [image.id for image in read_csv_table(root, table="two.csv")] == ["b.png"]


def test_the_command_reads_a_table_with_options(folder, tmp_path):
    from grounding_rewards.cli import main
    from grounding_rewards.prepare.load import load_split

    root = folder("scan;x1;y1;x2;y2;class;set\na.png;1,5;2;30;40;0;val\nb.png;;;;;;dev\n")
    out = tmp_path / "out"
    words = ["--option", "columns=file=scan", "--option", "classes=mass", "--split", "valid"]
    assert main(["prepare", "csv", "--root", str(root), "--out", str(out), "--box-format", "qwen3-vl", *words]) == 0
    rows = {row["id"]: row for row in load_split(str(out), "val")}
    assert (rows["a.png"]["boxes"], rows["a.png"]["labels"]) == ([[1.5, 2, 30, 40]], ["mass"])
    assert json.loads((out / "manifest.json").read_text())["complete"]


def test_two_tables_are_two_splits(folder):
    root = folder("image,x1,y1,x2,y2\na.png,1,2,30,40\n", "train.csv")
    folder("image,x1,y1,x2,y2\nb.png,1,2,30,40\n", "val.csv")
    images = read_csv_table(root, table="{split}.csv")
    assert [(image.file, image.split) for image in images] == [("a.png", "train"), ("b.png", "validation")]
    assert [image.file for image in read_csv_table(root, table="{split}.csv", split="validation")] == ["b.png"]
    assert [image.split for image in read_csv_table(root, table="val.csv")] == [None]


@pytest.mark.parametrize("name", [r"C:\Users\somebody\a.png", "/home/somebody/a.png", r"\\server\share\a.png"])
def test_paths_of_a_machine_are_no_ids(folder, name):
    (image,) = read_csv_table(folder(f"image,x1,y1,x2,y2\n{name},1,2,30,40\n"))
    assert (image.id, image.file) == ("a.png", "a.png")


def test_dicom_files_are_found_by_their_uid(tmp_path):
    dcmread = pytest.importorskip("pydicom", reason="needs the extra dicom").dcmread
    from grounding_rewards.synthetic import draw_radiograph
    from tests.conftest import write_dicom

    file = write_dicom(draw_radiograph(3, "pa-256"), tmp_path)
    uid = dcmread(file).SOPInstanceUID
    for name in (uid, f"{uid}.dcm"):
        (tmp_path / "boxes.csv").write_text(f"SOPInstanceUID,x1,y1,x2,y2\n{name},1,2,30,40\n")
        assert [image.file for image in read_csv_table(tmp_path)] == [file.name if name == uid else name]

"""YOLO folders as Ultralytics, Roboflow and LabelImg write them."""

import csv
from pathlib import Path

import pytest

from grounding_rewards.sources.yolo import read_label_file, read_yolo
from tests.tables import table

PLAIN = {"classes.txt": "mass\nnodule\n", "images/a.png": (40, 20), "labels/a.txt": "1 0.5 0.5 0.5 1\n"}


def test_classes_txt(write):
    root = write(PLAIN | {"images/b.png": (10, 10), "images/c.png": (10, 10), "labels/c.txt": "\n"})
    # Ultralytics takes both for negatives; a file that was lost looks like the one.
    with pytest.warns(UserWarning, match="1 of 3 images have no text file, such as .*b.txt: they are taken for images"):
        images = list(read_yolo(root))
    assert [image.file for image in images] == ["images/a.png", "images/b.png", "images/c.png"]
    assert (images[0].boxes, images[0].labels) == ([[10.0, 0.0, 30.0, 20.0]], ["nodule"])
    assert (images[0].width, images[0].height, images[0].split) == (40, 20, None)
    # a text file that is missing or blank is a negative
    assert [image.boxes for image in images[1:]] == [[], []]
    # The number of a class is that of its line.
    write({"classes.txt": "mass\n\nnodule\n\n"})
    with pytest.raises(ValueError, match=r"in every line of .*classes.txt, got none in line 2\. "):
        read_yolo(root)


@pytest.mark.parametrize(("yaml", "splits"), table("sources/tables", "data_yaml"))
def test_data_yaml(write, yaml, splits):
    files = {"data.yaml": yaml, "val.txt": "./images/val/b.png\n", "images/val/b.png": (40, 20)}
    files |= {"images/train/a.png": (40, 20), "labels/train/a.txt": "0 0.5 0.5 1 1", "labels/val/b.txt": "1 .5 .5 1 1"}
    root = write(files)
    found = {}
    for image in read_yolo(root):
        assert image.boxes == [[0.0, 0.0, 40.0, 20.0]]
        found[image.split] = found.get(image.split, "") + Path(image.file).stem
    assert found == splits
    one = next(iter(splits))
    assert "".join(Path(image.file).stem for image in read_yolo(root, split=one)) == splits[one]


@pytest.mark.parametrize(("line", "box"), table("sources/tables", "lines"))
def test_lines(write, line, box):
    ((label, found),) = read_label_file(write({"a.txt": line}) / "a.txt", ["mass"])
    assert label == "mass"
    assert found == pytest.approx(box)
    assert all(0 <= value <= 1 or value > 1.01 for value in found)


def test_labels_beside_the_images(write):
    # without a folder `images` in the path, as LabelImg leaves them; another .yaml lies there too
    files = {"a.yaml": "nothing: here", "data.yaml": "names: [mass]\ntrain: scans\n"}
    root = write(files | {"scans/a.png": (40, 20), "scans/a.txt": "0 0.5 0.5 1 1"})
    assert [(image.file, image.boxes) for image in read_yolo(root)] == [("scans/a.png", [[0, 0, 40, 20]])]


def yolo_line(box, width, height):
    x1, y1, x2, y2 = box
    values = ((x1 + x2) / 2 / width, (y1 + y2) / 2 / height, (x2 - x1) / width, (y2 - y1) / height)
    return "0 " + " ".join(f"{value:.6f}" for value in values)


def test_round_trip_of_real_boxes(shared_dir, write):
    table = shared_dir / "data" / "annotations" / "generalblockchain_findings" / "structure.sample.csv"
    with table.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["Width"]]
    boxes = []
    for number, row in enumerate(rows[:20]):
        width, height = map(int, row["Resolution"].split("x"))
        x, y, w, h = (float(row[key]) for key in ("Left", "Top", "Width", "Height"))
        boxes.append((x, y, x + w, y + h))
        files = {f"images/{number:02}.png": (width, height)}
        files[f"labels/{number:02}.txt"] = yolo_line(boxes[-1], width, height)
        root = write({"classes.txt": row["Class"], **files})
    for box, image in zip(boxes, read_yolo(root), strict=True):
        assert image.boxes == [pytest.approx(box, abs=0.005)]

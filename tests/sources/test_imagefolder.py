"""Folders as `datasets` reads them with `imagefolder`."""

import json

import pytest

from grounding_rewards.sources.imagefolder import read_imagefolder
from tests.tables import table

BOXES = {"bbox": [[1, 2, 9, 9]], "categories": [1]}


@pytest.mark.parametrize("objects", table("sources/tables", "objects_of_all_kinds"))
def test_objects_of_all_kinds(write, objects):
    positive = {"file_name": "a.png", "objects": objects, "PatientID": 7}
    lines = [positive, {"file_name": "b.png", "objects": {"bbox": []}}]
    root = write({"metadata.jsonl": "\n".join(map(json.dumps, lines)), "a.png": (40, 60), "b.png": (40, 60)})
    a, b = read_imagefolder(root, classes=("cyst", "mass"))
    assert (a.boxes, a.labels, a.width, a.height, a.patient_id) == ([[1, 2, 10, 11]], ["mass"], 40, 60, "7")
    assert (b.boxes, b.labels, b.split) == ([], [], None)


def test_a_table_for_each_split(write):
    files = {"train/metadata.jsonl": {"file_name": "a.png", "objects": BOXES}, "train/a.png": (40, 60)}
    root = write({**files, "val/metadata.jsonl": {"file_name": "b.png"}, "val/b.png": (40, 60)})
    images = list(read_imagefolder(root, classes=("cyst", "mass")))
    assert [(image.file, image.split) for image in images] == [("train/a.png", "train"), ("val/b.png", "validation")]
    (image,) = read_imagefolder(root, split="train", order="xyxy", classes=("cyst", "mass"))
    assert (image.boxes, image.labels) == ([[1, 2, 9, 9]], ["mass"])

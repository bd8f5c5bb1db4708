"""Whatever stands in one place of a file, it is read or refused with a ValueError and with no other exception."""

import copy
import json

import pytest

from grounding_rewards.sources.chest_imagenome import read_chest_imagenome
from grounding_rewards.sources.coco import read_coco
from grounding_rewards.sources.jsonl import read_jsonl
from grounding_rewards.sources.ms_swift import read_ms_swift
from grounding_rewards.sources.vlm_r1 import read_vlm_r1

DIRT = (None, 0, -3, 2.5, True, "", "text", [], {}, [None], [[]], [{}], {"a": []}, 1e999)

IMAGE = {
    "id": "1", "file": "a", "width": 9, "height": 9, "boxes": [[1, 2, 3, 4]], "labels": ["mass"], "split": "train",
    "phrases": ["mass"], "ignore_boxes": [[1, 2, 3, 4]], "patient_id": "7", "prompt": "x",
}  # fmt: skip
COCO = {
    "images": [{"id": 7, "file_name": "a", "width": 9, "height": 9, "patient": "2"}],
    "annotations": [{"id": 1, "image_id": 7, "category_id": 3, "bbox": [1, 2, 3, 4], "iscrowd": 0}],
    "categories": [{"id": 3, "name": "mass"}],
}
TALK = {
    "image": "a", "width": 9, "height": 9, "resized_width": 18, "resized_height": 18,
    "conversations": [{"from": "human", "value": "x"}, {"from": "gpt", "value": "[1, 2, 3, 4]"}],
}  # fmt: skip
SOLVED = {"image": ["a"], "width": 9, "height": 9, "problem": "x", "solution": [1, 2, 3, 4]}
SWIFT = {
    "messages": [{"role": "user", "content": "<ref-object><bbox>"}, {"role": "assistant", "content": "x"}],
    "images": ["a"],
    "objects": {"ref": ["mass"], "bbox": [[1, 2, 3, 4]], "bbox_type": "real"},
}
GRAPH = {"objects": [{"bbox_name": "x", "original_x1": 1, "original_y1": 2, "original_x2": 3, "original_y2": 4}]}


def spoiled(value):
    """Copies of a JSON value with dirt in one place each."""
    yield from DIRT
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        for inner in spoiled(value[key]):
            changed = copy.copy(value)
            changed[key] = inner
            yield changed
        if isinstance(value, dict):
            yield {other: content for other, content in value.items() if other != key}


@pytest.mark.parametrize(
    ("read", "file", "content"),
    [
        (read_jsonl, "annotations.jsonl", IMAGE),
        (read_coco, "annotations/instances_train.json", COCO),
        (lambda root: read_vlm_r1(root, box_format={"syntax": "vlm-r1", "space": "pixel"}), "train.jsonl", TALK),
        (lambda root: read_vlm_r1(root, box_format="vlm-r1"), "train.jsonl", TALK),
        (lambda root: read_vlm_r1(root, box_format={"syntax": "vlm-r1", "space": "pixel"}), "train.jsonl", SOLVED),
        (read_ms_swift, "train.jsonl", SWIFT),
        (read_chest_imagenome, "silver_dataset/scene_graph/a_SceneGraph.json", GRAPH),
    ],
    ids=["jsonl", "coco", "vlm-r1", "vlm-r1 resized", "medground-r1", "ms-swift", "chest-imagenome"],
)
def test_dirt_in_one_place(tmp_path, read, file, content):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    for name in ("train", "valid", "test") if file.startswith("silver") else ():
        table = tmp_path / "silver_dataset" / "splits" / f"{name}.csv"
        table.parent.mkdir(exist_ok=True)
        table.write_text(",subject_id,study_id,dicom_id,path,ViewPosition\n0,1,1,a,a.dcm,PA\n", encoding="utf-8")
    path.write_text(json.dumps(content), encoding="utf-8")
    assert list(read(tmp_path))
    refused = 0
    for number, dirty in enumerate(spoiled(content)):
        path.write_text(json.dumps(dirty), encoding="utf-8")
        try:
            images = list(read(tmp_path))
        except ValueError:
            refused += 1
            continue
        for image in images:
            assert len(image.boxes) == len(image.labels), (number, dirty)
            assert all(isinstance(label, str) for label in image.labels), (number, dirty)
    assert refused > number / 3

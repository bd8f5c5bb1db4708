"""Chest ImaGenome's two halves: scene graphs of a detector, and a table of people, in original pixels."""

import pytest

from grounding_rewards.sources.chest_imagenome import read_chest_imagenome
from tests.tables import table

LAYOUT = table("sources/layouts", "chest_imagenome")
OBJECT = LAYOUT["OBJECT"]
SPLIT = ",subject_id,study_id,dicom_id,path,ViewPosition\n"
GOLD = LAYOUT["GOLD"]


GRAPH = "silver_dataset/scene_graph/a1_SceneGraph.json"
TRAIN = "silver_dataset/splits/train.csv"
GOLD_TABLE = "gold_dataset/gold_bbox_coordinate_annotations_1000images.csv"
AVOIDED = "silver_dataset/splits/images_to_avoid.csv"
FILES = {
    GRAPH: {"objects": [OBJECT, OBJECT | {"bbox_name": "left lung", "original_x1": 1500.5}]},
    TRAIN: f"{SPLIT}0,10000032,50414267,a1,files/p10/p10000032/s50414267/a1.dcm,PA\n"
    # listed, but its scene graph was never published
    "1,10000032,50414267,a2,files/p10/p10000032/s50414267/a2.dcm,AP\n",
    "silver_dataset/splits/valid.csv": SPLIT,
    "silver_dataset/splits/test.csv": SPLIT,
    AVOIDED: f"{SPLIT}0,10000084,1,g1,files/p10/p10000084/s1/g1.dcm,AP\n",
    # the original columns are x1, x2, y1, y2; the image has an ending
    GOLD_TABLE: f"{GOLD}g1.dcm,1,2,3,4,2,2,right lung,g1_right lung,400,1400,210,2300,1000,2090,ann1,,\n"
    "g1.dcm,1,2,3,4,2,2,left lung,g1_left lung,1500,2500,200,2300,1000,2100,ann2,,\n",
    # MIMIC-CXR-JPG's own table; Rows is the height
    "metadata.csv": "dicom_id,subject_id,Rows,Columns\na1,10000032,3056,2544\n",
}


@pytest.fixture
def root(write):
    return write(FILES)


def test_silver(root):
    (image,) = read_chest_imagenome(root, sizes=root / "metadata.csv")
    assert image.boxes == [[400, 210, 1400, 2300], [1500.5, 210, 1400, 2300]]  # as written, swapped or not
    assert image.labels == ["right lung", "left lung"]
    assert (image.id, image.file) == ("a1", "files/p10/p10000032/s50414267/a1.jpg")
    assert (image.width, image.height, image.patient_id, image.split) == (2544, 3056, "10000032", "train")
    assert (image.readers, image.extra) == ((), {"view": "PA"})
    assert next(read_chest_imagenome(root)).width is None  # never the box's own width
    assert list(read_chest_imagenome(root, split="validation")) == []


def test_gold(root):
    (image,) = read_chest_imagenome(root, split="gold")
    assert image.boxes == [[400, 210, 1400, 2300], [1500, 200, 2500, 2300]]
    assert (image.labels, image.readers) == (["right lung", "left lung"], ("ann1", "ann2"))
    assert image.read_by == ("ann1", "ann2")
    assert (image.id, image.file, image.patient_id) == ("g1", "files/p10/p10000084/s1/g1.jpg", "10000084")
    (root / AVOIDED).unlink()
    (image,) = read_chest_imagenome(root, split="gold")
    assert (image.file, image.patient_id) == ("g1.jpg", None)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ({}, "Expected a scene graph with objects"),
        ("{", "Expected JSON in"),
        ({"objects": [OBJECT, OBJECT | {"original_y2": None}]}, "in entry 2 of"),
        ({"objects": [OBJECT | {"bbox_name": ""}]}, "in entry 1 of"),
    ],
)
def test_graphs_that_are_refused(write, graph, message):
    with pytest.raises(ValueError, match=message):
        list(read_chest_imagenome(write({**FILES, GRAPH: graph})))


def test_what_is_missing_is_named(root):
    (root / "silver_dataset" / "scene_graph").rename(root / "silver_dataset" / "elsewhere")
    with pytest.raises(ValueError, match=r"Unpack scene_graph.zip"):
        read_chest_imagenome(root)

"""COCO files are read as pycocotools reads them, and what cannot be read is counted and named."""

import json
from pathlib import Path

import pytest

from grounding_rewards.sources.coco import read_coco
from tests.tables import table


def document(annotations, **changes):
    return {
        "images": [{"id": 7, "file_name": "a.png", "width": 40, "height": 30}],
        "annotations": annotations,
        # ids that do not begin at 0
        "categories": [{"id": 3, "name": "mass"}, {"id": 9, "name": "nodule"}],
    } | changes


def box(annotation_id, bbox, category=3, **more):
    return {"id": annotation_id, "image_id": 7, "category_id": category, "bbox": bbox, "iscrowd": 0} | more


@pytest.fixture
def folder(write):
    return lambda content, name="annotations/instances_train.json": write({name: content})


def test_one_image(folder):
    images = [
        {"id": 7, "file_name": "a.png", "width": 40, "height": 30},
        {"id": 8, "file_name": "sub/b.png"},  # without a size, and without annotations: a negative
    ]
    crowd = box(3, [20, 20, 10, 5], iscrowd=1)  # neither hit nor false positive
    boxes = [box(1, [1, 2, 10.5, 20]), box(2, [0, 0, 5, 5], 9), crowd]
    first, second = read_coco(folder(document(boxes, images=images)))
    assert (first.id, first.file, first.split) == ("train/a.png", "train/a.png", "train")
    assert (first.boxes, first.labels) == ([[1.0, 2.0, 11.5, 22.0], [0.0, 0.0, 5.0, 5.0]], ["mass", "nodule"])
    assert first.ignored == ((20, 20, 30, 25),)
    assert (first.width, first.height) == (40, 30)
    assert (second.boxes, second.labels, second.width, second.file) == ([], [], None, "train/sub/b.png")


def test_a_category_may_be_repeated_or_have_two_ids(folder):
    for more in ({"id": 3, "name": "mass"}, {"id": 4, "name": "mass"}):
        content = document([box(1, [1, 2, 3, 4])], categories=[{"id": 3, "name": "mass"}, more])
        assert [image.labels for image in read_coco(folder(content))] == [["mass"]]


def test_a_box_without_category_can_be_a_region_to_ignore(folder):
    root = folder(document([box(1, [1, 2, 3, 4], None), box(2, [5, 5, 5, 5])]))
    (image,) = read_coco(root, missing_category="ignore")
    assert (image.boxes, image.ignored) == ([[5.0, 5.0, 10.0, 10.0]], ((1, 2, 4, 6),))
    with pytest.raises(ValueError, match="Expected a known word for `missing_category`"):
        read_coco(root, missing_category="drop")


def test_splits(write):
    root = write({f"annotations/instances_{name}.json": document([]) for name in ("train", "val")})
    assert [image.split for image in read_coco(root)] == ["train", "validation"]
    (image,) = read_coco(root, split="validation")
    assert image.file == "val/a.png"  # the folder keeps its own spelling


def real(shared_dir):
    return shared_dir / "data" / "annotations" / "generalblockchain_lungs"


def test_the_real_file_has_one_annotation_without_a_category(shared_dir):
    # SOURCE.txt: annotation 850 of image 425 has none in the original
    with pytest.raises(ValueError, match="got annotation 850: category_id None is no category"):
        list(read_coco(real(shared_dir), annotations="annotations.sample.json", images="images"))


def test_the_real_file_is_read_as_pycocotools_reads_it(shared_dir, tmp_path):
    coco = pytest.importorskip("pycocotools.coco")
    content = json.loads((real(shared_dir) / "annotations.sample.json").read_text(encoding="utf-8"))
    # pycocotools cannot index an annotation without a category
    content["annotations"] = [entry for entry in content["annotations"] if "category_id" in entry]
    (tmp_path / "all.json").write_text(json.dumps(content), encoding="utf-8")
    images = {annotated.file: annotated for annotated in read_coco(tmp_path, annotations="all.json", images=".")}
    index = coco.COCO(str(tmp_path / "all.json"))
    assert len(images) == len(index.getImgIds()) == 61
    for image in index.loadImgs(index.getImgIds()):
        found = index.loadAnns(index.getAnnIds(imgIds=[image["id"]]))
        annotated = images[image["file_name"]]
        assert annotated.boxes == [[x, y, x + w, y + h] for x, y, w, h in (entry["bbox"] for entry in found)]
        assert annotated.labels == [index.cats[entry["category_id"]]["name"] for entry in found]
        assert (annotated.width, annotated.height) == (image["width"], image["height"])


def test_a_box_of_the_real_file_can_be_a_region_to_ignore_and_its_patients_are_found(shared_dir):
    images = list(read_coco(real(shared_dir), annotations="annotations.sample.json", missing_category="ignore"))
    assert sum(len(image.boxes) for image in images) == 121
    assert sum(len(image.ignored) for image in images) == 1
    assert {label for image in images for label in image.labels} == {"Left Lung", "Right Lung"}
    content = json.loads((real(shared_dir) / "annotations.sample.json").read_text(encoding="utf-8"))
    patients = {image["file_name"]: image["metadata"]["patientid"] for image in content["images"]}
    assert {Path(image.file).name: image.patient_id for image in images} == patients


@pytest.mark.parametrize(
    ("facts", "patient", "extra"), table("sources/tables", "patient_and_other_facts_of_an_image_entry")
)
def test_patient_and_other_facts_of_an_image_entry(folder, facts, patient, extra):
    content = document([], images=[{"id": 1, "file_name": "a.png", **facts}])
    (image,) = read_coco(folder(content, "all.json"), annotations="all.json", images=".")
    assert image.patient_id == patient
    assert not extra or image.extra == extra


@pytest.mark.parametrize(
    ("rotation", "expected"),
    [
        *table("sources/tables", "a_box_that_cvat_turned_is_the_box_around_it"),
        (45, [15 - 10.606602, 20 - 10.606602, 15 + 10.606602, 20 + 10.606602]),  # 30 / √2 on both sides
    ],
)
def test_a_box_that_cvat_turned_is_the_box_around_it(folder, rotation, expected):
    attributes = {"occluded": False, "rotation": rotation}
    (image,) = read_coco(folder(document([box(1, [10, 10, 10, 20], attributes=attributes)])))
    assert image.boxes == [pytest.approx(expected, abs=1e-6)]


@pytest.mark.parametrize(("annotations", "files", "splits"), table("sources/tables", "coco_layouts"))
def test_usual_layouts_need_no_option(write, annotations, files, splits):
    root = write({**dict.fromkeys(annotations, document([])), **dict.fromkeys(files, "")})
    found = [(image.file, image.split or "no split") for image in read_coco(root)]
    assert found == list(zip(files, splits, strict=True))


def test_images_may_come_later(folder):
    assert [image.file for image in read_coco(folder(document([])))] == ["train/a.png"]
    # the name of the split in folder and file
    (image,) = read_coco(folder(document([]), "val/val.json"), annotations="./{split}/{split}.json")
    assert (image.file, image.split) == ("val/a.png", "validation")

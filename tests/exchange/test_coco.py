"""COCO files, read back by pycocotools, by this package and by FiftyOne's and CVAT's rules."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest
from PIL import Image

from grounding_rewards.exchange.coco import (
    IGNORED,
    coco_ground_truth,
    coco_results,
    find_images,
    write_coco,
    write_cvat,
    write_fiftyone,
)
from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.sources.coco import read_coco
from tests.conftest import random_boxes
from tests.metrics.coco_oracle import coco_eval


def test_our_reader_reads_the_references_back(images, tmp_path):
    write_coco(images, tmp_path)
    read = list(read_coco(tmp_path, annotations="ground_truth.json", images="images", patient_key="patient_id"))
    assert [image.file for image in read] == [image.image for image in images]
    for image, original in zip(read, images, strict=True):
        assert image.boxes == original.gt.tolist()
        assert image.labels == list(original.gt_labels)
        assert (image.width, image.height, image.patient_id) == (original.width, original.height, original.patient)
        # one for each of the four categories
        assert set(image.ignored) == {tuple(box) for box in original.ignore.tolist()}


def test_pycocotools_loads_both(images, tmp_path):
    coco = pytest.importorskip("pycocotools.coco")
    write_coco(images, tmp_path)
    truth = coco.COCO(str(tmp_path / "ground_truth.json"))
    results = truth.loadRes(str(tmp_path / "results.json"))
    assert len(truth.getImgIds()) == 4
    assert len(truth.getAnnIds(iscrowd=False)) == 3
    found = results.loadAnns(results.getAnnIds(imgIds=[1]))
    assert [(one["bbox"], one["score"]) for one in found] == [([12, 18, 103, 207], 0.9), ([0, 0, 50, 50], 0.25)]
    assert [truth.cats[one["category_id"]]["name"] for one in found] == ["mass", "nodule"]


def test_an_invalid_box_stays_a_false_positive_and_an_ignored_region_excuses_one():
    image = AnsweredImage(
        "a",
        100,
        100,
        gt=[[0, 0, 50, 50]],
        gt_labels=["mass"],
        # inverted, so that it would overlap if it were repaired; the reference; one inside the region
        pred=[[50, 50, 0, 0], [0, 0, 50, 50], [60, 60, 90, 90]],
        pred_labels=["mass"] * 3,
        pred_scores=[0.9, 0.8, 0.95],
        ignore=[[55, 55, 100, 100]],
    )
    evaluation = _evaluated([image])
    # by hand: the region's box is no error, the invalid one stands before the hit: precision 1/2 at every recall
    assert evaluation.stats[1] == pytest.approx(0.5)


def test_pycocotools_gives_one_for_the_references_themselves():
    rng = np.random.default_rng(0)
    images = []
    for number in range(20):
        boxes = random_boxes(rng, int(rng.integers(0, 5)))
        labels = [str(label) for label in rng.choice(["mass", "nodule"], len(boxes))]
        images.append(AnsweredImage(str(number), 100, 100, gt=boxes, gt_labels=labels, pred=boxes, pred_labels=labels))
    assert _evaluated(images).stats[0] == pytest.approx(1)


def test_a_box_without_a_confidence_scores_one_and_the_order_is_kept(images):
    results = [one for one in coco_results(images) if one["image_id"] == 2]
    assert [one["score"] for one in results] == [1.0] * 3
    assert [one["bbox"] for one in results] == [[300, 10, 50, 40], [0, 0, 0, 0], [150, 50, 110, 40]]


def test_fiftyone_finds_what_its_importer_asks_for(images, tmp_path):
    """COCODetectionDatasetImporter: data/, labels.json; images by file_name; width and height; category ids in both."""
    (tmp_path / "images").mkdir()
    for annotated in images:
        Image.new("L", (int(annotated.width), int(annotated.height))).save(tmp_path / annotated.image)
    write_fiftyone(images, tmp_path / "out", images=tmp_path)
    labels = json.loads((tmp_path / "out/labels.json").read_text(encoding="utf-8"))
    predictions = json.loads((tmp_path / "out/predictions.json").read_text(encoding="utf-8"))
    assert labels["categories"] == predictions["categories"]
    for image in labels["images"]:
        with Image.open(tmp_path / "out/data" / image["file_name"]) as opened:
            assert opened.size == (image["width"], image["height"])
    boxes = {key: [one["bbox"] for one in predictions["annotations"] if one["image_id"] == key] for key in (1, 2, 3, 4)}
    # what cannot be drawn is left out, the rest is cut off at the edge
    assert boxes == {1: [[12, 18, 103, 207], [0, 0, 50, 50]], 2: [[150, 50, 50, 40]], 3: [], 4: []}
    assert [one.get("score") for one in predictions["annotations"]] == [0.9, 0.25, None]
    crowds = [one for one in labels["annotations"] if one["iscrowd"]]
    assert [labels["categories"][one["category_id"] - 1]["name"] for one in crowds] == [IGNORED]


def test_an_image_is_found_by_its_path_or_by_its_name(images, tmp_path):
    for image in images:
        Image.new("L", (4, 4)).save(tmp_path / f"{image.id}.png")
    write_fiftyone(images, tmp_path / "out", images=tmp_path)
    assert sorted(path.name for path in (tmp_path / "out/data").iterdir()) == sorted(
        f"{image.id}.png" for image in images
    )
    with pytest.raises(ValueError, match=r"got 4 of 4 without, the first 'images/one.png'.*--images"):
        write_fiftyone(images, tmp_path / "out")


@pytest.mark.parametrize("folder", ["data", "data/images", "data/images/a"])
def test_an_image_is_found_from_any_folder_of_its_path(folder, tmp_path):
    (tmp_path / "data/images/a").mkdir(parents=True)
    image = tmp_path / "data/images/a/1.png"
    Image.new("L", (9, 9)).save(image)
    for annotated in (AnsweredImage("1", 9, 9, image="data/images/a/1.png"), AnsweredImage("images/a/1.png", 9, 9)):
        assert [path.resolve() for path in find_images([annotated], tmp_path / folder)] == [image.resolve()]


@pytest.mark.parametrize("name", ["x" * 300, "a\x00b", "../../no such image"])
def test_a_name_that_no_file_can_have_is_an_image_that_is_missing(name, tmp_path):
    with pytest.raises(ValueError, match="Expected the image, got 1 of 1 without in "):
        find_images([AnsweredImage(name, 9, 9)], tmp_path)


@pytest.mark.parametrize(
    "name",
    # up and out, the path itself, a link that leads out
    ["../others/1.png", "{out}", "link.png"],
)
def test_an_image_outside_its_folder_is_refused_unless_allowed(name, tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "others").mkdir()
    out = tmp_path / "others/1.png"
    Image.new("L", (9, 9)).save(out)
    (tmp_path / "images/link.png").symlink_to(out)
    images = [AnsweredImage("a", 9, 9, image=name.format(out=out))]
    with pytest.raises(ValueError, match=r"Expected an image below '.*images', got .*--allow-outside"):
        write_fiftyone(images, tmp_path / "export", images=tmp_path / "images")
    assert not (tmp_path / "export").exists()
    found = find_images(images, tmp_path / "images", allow_outside=True)
    assert [path.resolve() for path in found] == [out]


def test_an_image_in_its_folder_is_taken_before_one_outside(tmp_path):
    """Of a log that was written elsewhere: its path leads out, the name alone does not."""
    (tmp_path / "images").mkdir()
    for path in (tmp_path / "1.png", tmp_path / "images/1.png"):
        Image.new("L", (9, 9)).save(path)
    image = AnsweredImage("a", 9, 9, image=str(tmp_path / "1.png"))
    assert find_images([image], tmp_path / "images") == [tmp_path / "images/1.png"]


def test_a_path_of_its_own_lies_below_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    for path in (tmp_path / "1.png", tmp_path / "here/1.png"):
        Image.new("L", (9, 9)).save(path)
    monkeypatch.chdir(tmp_path / "here")
    assert find_images([AnsweredImage("a", 9, 9, image="1.png")], None)[0].is_file()
    with pytest.raises(ValueError, match=r"got '\.\./1\.png', which leads out of it.*--allow-outside"):
        find_images([AnsweredImage("a", 9, 9, image="../1.png")], None)


def test_one_file_is_not_the_image_of_two_images(tmp_path):
    Image.new("L", (9, 9)).save(tmp_path / "1.png")
    images = [AnsweredImage(name, 9, 9, image=f"{name}/1.png") for name in ("a", "b")]
    with pytest.raises(ValueError, match=r"Expected an own file for every image, got .*1\.png' for 'a' and 'b'"):
        write_fiftyone(images, tmp_path / "out", images=tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_dicom_image_becomes_a_png_without_its_header(tmp_path):
    pytest.importorskip("pydicom", reason="needs the extra dicom")
    from grounding_rewards.synthetic import draw_radiograph, write_dicom

    source = write_dicom(draw_radiograph(3, "pa-256"), tmp_path)
    write_fiftyone([AnsweredImage("a", 211, 256, image=source.name)], tmp_path / "out", images=tmp_path)
    (image,) = json.loads((tmp_path / "out/labels.json").read_text(encoding="utf-8"))["images"]
    assert image["file_name"] == f"{source.name}.png"
    assert [path.name for path in (tmp_path / "out/data").iterdir()] == [image["file_name"]]
    with Image.open(tmp_path / "out/data" / image["file_name"]) as opened:
        assert (opened.format, opened.size, opened.info) == ("PNG", (211, 256), {})


def test_cvat_gets_its_archive(images, tmp_path):
    write_cvat(images, tmp_path)
    (task_labels := json.loads((tmp_path / "labels.json").read_text(encoding="utf-8"))).sort(
        key=lambda one: one["name"]
    )
    documents = {}
    for part in ("reference", "predictions"):
        with zipfile.ZipFile(tmp_path / f"{part}.zip") as archive:
            assert archive.namelist() == ["annotations/instances_default.json"]
            documents[part] = json.loads(archive.read("annotations/instances_default.json"))
    assert sorted(one["name"] for one in documents["reference"]["categories"]) == [one["name"] for one in task_labels]
    assert len(documents["reference"]["annotations"]) == 4
    assert len(documents["predictions"]["annotations"]) == 3
    # the layout is that of our own reader too
    with zipfile.ZipFile(tmp_path / "predictions.zip") as archive:
        archive.extractall(tmp_path / "read")
    read = list(read_coco(tmp_path / "read", images="{split}"))
    assert [image.boxes for image in read][1] == [[150, 50, 200, 90]]


def test_real_annotations_go_round(shared_dir, tmp_path):
    root = shared_dir / "data" / "annotations" / "generalblockchain_lungs"
    read = list(read_coco(root, annotations="annotations.sample.json", images="images", missing_category="ignore"))
    images = [
        AnsweredImage(image.id, image.width, image.height, gt=image.boxes, gt_labels=image.labels, ignore=image.ignored)
        for image in read
    ]
    write_coco(images, tmp_path)
    again = list(read_coco(tmp_path, annotations="ground_truth.json", images="."))
    assert [image.boxes for image in again] == [[pytest.approx(box) for box in image.boxes] for image in read]
    assert [image.labels for image in again] == [image.labels for image in read]


def _evaluated(images):
    evaluation = coco_eval(coco_ground_truth(images), coco_results(images))
    evaluation.summarize()
    return evaluation

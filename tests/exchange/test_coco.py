"""COCO files, read back by pycocotools and by this package."""

import pytest

from grounding_rewards.exchange.coco import coco_ground_truth, coco_results, write_coco
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.sources.coco import read_coco
from tests.metrics.coco_oracle import coco_eval
from tests.tables import table


def test_our_reader_reads_the_references_back(images, tmp_path):
    write_coco(images, tmp_path)
    read = list(read_coco(tmp_path, annotations="ground_truth.json", images="images"))
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


def test_invalid_boxes_stay_false_positives_and_ignored_regions_excuse_boxes():
    # inverted, so that it would overlap if it were repaired; the reference; one inside the region
    pred = [[50, 50, 0, 0], [0, 0, 50, 50], [60, 60, 90, 90]]
    given = {"gt": [[0, 0, 50, 50]], "gt_labels": ["mass"], "ignore": [[55, 55, 100, 100]]}
    images = [Prediction("a", 100, 100, pred=pred, pred_labels=["mass"] * 3, pred_scores=[0.9, 0.8, 0.95], **given)]
    evaluation = coco_eval(coco_ground_truth(images), coco_results(images))
    evaluation.summarize()
    # by hand: the region's box is no error, the invalid one stands before the hit: precision 1/2 at every recall
    assert evaluation.stats[1] == pytest.approx(0.5)


def test_boxes_without_confidence_score_one_in_their_order(images):
    results = [one for one in coco_results(images) if one["image_id"] == 2]
    assert [one["score"] for one in results] == [1.0] * 3
    assert [one["bbox"] for one in results] == [[300, 10, 50, 40], [0, 0, 0, 0], [150, 50, 110, 40]]


def test_real_annotations_go_round(shared_dir, tmp_path):
    root = shared_dir / "data" / "annotations" / "generalblockchain_lungs"
    read = list(read_coco(root, annotations="annotations.sample.json", images="images", missing_category="ignore"))
    images = [
        Prediction(image.id, image.width, image.height, gt=image.boxes, gt_labels=image.labels, ignore=image.ignored)
        for image in read
    ]
    write_coco(images, tmp_path)
    again = list(read_coco(tmp_path, annotations="ground_truth.json", images="."))
    assert [image.boxes for image in again] == [[pytest.approx(box) for box in image.boxes] for image in read]
    assert [image.labels for image in again] == [image.labels for image in read]


def test_reference_labels_come_first_and_unlabelled_boxes_get_the_only_label(images):
    names = [category["name"] for category in coco_ground_truth(images)["categories"]]
    assert names == ["effusion", "mass", "nodule", "unlabelled"]
    assert [names[one["category_id"] - 1] for one in coco_results(images)][2:] == ["mass", "mass", "unlabelled"]
    image = Prediction("a", 9, 9, gt=[[0, 0, 5, 5]], gt_labels=["mass"], pred=[[0, 0, 4, 4]])
    # another answer names something else: the references still have one label
    other = Prediction("b", 9, 9, pred=[[0, 0, 4, 4]], pred_labels=["nodule"])
    assert [one["category_id"] for one in coco_results([image, other])] == [1, 2]
    # one label in another spelling, as for the metrics
    same = Prediction("c", 9, 9, gt=[[0, 0, 5, 5]], gt_labels=["Mass"], pred=[[0, 0, 4, 4]], pred_labels=["MASS"])
    assert [category["name"] for category in coco_ground_truth([image, same])["categories"]] == ["Mass"]
    assert [one["category_id"] for one in coco_results([image, same])] == [1, 1]


@pytest.mark.parametrize(("given", "names"), table("exchange/tables", "no_two_images_share_a_file_name"))
def test_no_two_images_share_a_file_name(given, names):
    images = [Prediction(one, 9, 9, image=file) for one, file in given]
    assert [one["file_name"] for one in coco_ground_truth(images)["images"]] == names

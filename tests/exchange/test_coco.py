"""COCO files, read back by pycocotools, by this package and by FiftyOne's and CVAT's rules."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest
from PIL import Image

from grounding_rewards.data.readers.coco import read_coco
from grounding_rewards.exchange.coco import (
    IGNORED,
    coco_ground_truth,
    coco_results,
    find_images,
    write_coco,
    write_cvat,
    write_fiftyone,
)
from grounding_rewards.metrics.answered_film import AnsweredFilm
from tests.conftest import random_boxes
from tests.metrics.coco_oracle import coco_eval


def test_our_reader_reads_the_references_back(films, tmp_path):
    write_coco(films, tmp_path)
    read = list(read_coco(tmp_path, annotations="ground_truth.json", images="films", patient_key="patient_id"))
    assert [film.file for film in read] == [film.image for film in films]
    for film, original in zip(read, films, strict=True):
        assert film.boxes == original.gt.tolist()
        assert film.labels == list(original.gt_labels)
        assert (film.width, film.height, film.patient_id) == (original.width, original.height, original.patient)
        # one for each of the four categories
        assert set(film.ignored) == {tuple(box) for box in original.ignore.tolist()}


def test_pycocotools_loads_both(films, tmp_path):
    coco = pytest.importorskip("pycocotools.coco")
    write_coco(films, tmp_path)
    truth = coco.COCO(str(tmp_path / "ground_truth.json"))
    results = truth.loadRes(str(tmp_path / "results.json"))
    assert len(truth.getImgIds()) == 4
    assert len(truth.getAnnIds(iscrowd=False)) == 3
    found = results.loadAnns(results.getAnnIds(imgIds=[1]))
    assert [(one["bbox"], one["score"]) for one in found] == [([12, 18, 103, 207], 0.9), ([0, 0, 50, 50], 0.25)]
    assert [truth.cats[one["category_id"]]["name"] for one in found] == ["mass", "nodule"]


def test_an_invalid_box_stays_a_false_positive_and_an_ignored_region_excuses_one():
    film = AnsweredFilm(
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
    evaluation = _evaluated([film])
    # by hand: the region's box is no error, the invalid one stands before the hit: precision 1/2 at every recall
    assert evaluation.stats[1] == pytest.approx(0.5)


def test_pycocotools_gives_one_for_the_references_themselves():
    rng = np.random.default_rng(0)
    films = []
    for number in range(20):
        boxes = random_boxes(rng, int(rng.integers(0, 5)))
        labels = [str(label) for label in rng.choice(["mass", "nodule"], len(boxes))]
        films.append(AnsweredFilm(str(number), 100, 100, gt=boxes, gt_labels=labels, pred=boxes, pred_labels=labels))
    assert _evaluated(films).stats[0] == pytest.approx(1)


def test_a_box_without_a_confidence_scores_one_and_the_order_is_kept(films):
    results = [one for one in coco_results(films) if one["image_id"] == 2]
    assert [one["score"] for one in results] == [1.0] * 3
    assert [one["bbox"] for one in results] == [[300, 10, 50, 40], [0, 0, 0, 0], [150, 50, 110, 40]]


def test_fiftyone_finds_what_its_importer_asks_for(films, tmp_path):
    """COCODetectionDatasetImporter: data/, labels.json; images by file_name; width and height; category ids in both."""
    (tmp_path / "films").mkdir()
    for film in films:
        Image.new("L", (int(film.width), int(film.height))).save(tmp_path / film.image)
    write_fiftyone(films, tmp_path / "out", images=tmp_path)
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


def test_an_image_is_found_by_its_path_or_by_its_name(films, tmp_path):
    for film in films:
        Image.new("L", (4, 4)).save(tmp_path / f"{film.id}.png")
    write_fiftyone(films, tmp_path / "out", images=tmp_path)
    assert sorted(path.name for path in (tmp_path / "out/data").iterdir()) == sorted(f"{film.id}.png" for film in films)
    with pytest.raises(ValueError, match=r"got 4 of 4 without, the first 'films/one.png'.*--images"):
        write_fiftyone(films, tmp_path / "out")


@pytest.mark.parametrize("folder", ["data", "data/films", "data/films/a"])
def test_an_image_is_found_from_any_folder_of_its_path(folder, tmp_path):
    (tmp_path / "data/films/a").mkdir(parents=True)
    image = tmp_path / "data/films/a/1.png"
    Image.new("L", (9, 9)).save(image)
    for film in (AnsweredFilm("1", 9, 9, image="data/films/a/1.png"), AnsweredFilm("films/a/1.png", 9, 9)):
        assert [path.resolve() for path in find_images([film], tmp_path / folder)] == [image.resolve()]


@pytest.mark.parametrize("name", ["x" * 300, "a\x00b", "../../no such film"])
def test_a_name_that_no_file_can_have_is_an_image_that_is_missing(name, tmp_path):
    with pytest.raises(ValueError, match="Expected the image of every film, got 1 of 1 without in "):
        find_images([AnsweredFilm(name, 9, 9)], tmp_path)


@pytest.mark.parametrize(
    "name",
    # up and out, the path itself, a link that leads out
    ["../others/1.png", "{out}", "link.png"],
)
def test_an_image_outside_its_folder_is_refused_unless_allowed(name, tmp_path):
    (tmp_path / "films").mkdir()
    (tmp_path / "others").mkdir()
    out = tmp_path / "others/1.png"
    Image.new("L", (9, 9)).save(out)
    (tmp_path / "films/link.png").symlink_to(out)
    films = [AnsweredFilm("a", 9, 9, image=name.format(out=out))]
    with pytest.raises(ValueError, match=r"Expected an image below '.*films', got .*--allow-outside"):
        write_fiftyone(films, tmp_path / "export", images=tmp_path / "films")
    assert not (tmp_path / "export").exists()
    found = find_images(films, tmp_path / "films", allow_outside=True)
    assert [path.resolve() for path in found] == [out]


def test_an_image_in_its_folder_is_taken_before_one_outside(tmp_path):
    """Of a log that was written elsewhere: its path leads out, the name alone does not."""
    (tmp_path / "films").mkdir()
    for path in (tmp_path / "1.png", tmp_path / "films/1.png"):
        Image.new("L", (9, 9)).save(path)
    film = AnsweredFilm("a", 9, 9, image=str(tmp_path / "1.png"))
    assert find_images([film], tmp_path / "films") == [tmp_path / "films/1.png"]


def test_a_path_of_its_own_lies_below_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    for path in (tmp_path / "1.png", tmp_path / "here/1.png"):
        Image.new("L", (9, 9)).save(path)
    monkeypatch.chdir(tmp_path / "here")
    assert find_images([AnsweredFilm("a", 9, 9, image="1.png")], None)[0].is_file()
    with pytest.raises(ValueError, match=r"got '\.\./1\.png', which leads out of it.*--allow-outside"):
        find_images([AnsweredFilm("a", 9, 9, image="../1.png")], None)


def test_one_file_is_not_the_image_of_two_films(tmp_path):
    Image.new("L", (9, 9)).save(tmp_path / "1.png")
    films = [AnsweredFilm(name, 9, 9, image=f"{name}/1.png") for name in ("a", "b")]
    with pytest.raises(ValueError, match=r"Expected an image of its own for every film, got .*1\.png' for 'a' and 'b'"):
        write_fiftyone(films, tmp_path / "out", images=tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_dicom_film_becomes_a_png_without_its_header(tmp_path):
    pytest.importorskip("pydicom", reason="needs the extra dicom")
    from grounding_rewards.data.synthetic import draw_radiograph, write_dicom

    source = write_dicom(draw_radiograph(3, "pa-256"), tmp_path)
    write_fiftyone([AnsweredFilm("a", 211, 256, image=source.name)], tmp_path / "out", images=tmp_path)
    (image,) = json.loads((tmp_path / "out/labels.json").read_text(encoding="utf-8"))["images"]
    assert image["file_name"] == f"{source.name}.png"
    assert [path.name for path in (tmp_path / "out/data").iterdir()] == [image["file_name"]]
    with Image.open(tmp_path / "out/data" / image["file_name"]) as opened:
        assert (opened.format, opened.size, opened.info) == ("PNG", (211, 256), {})


def test_cvat_gets_its_archive(films, tmp_path):
    write_cvat(films, tmp_path)
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
    assert [film.boxes for film in read][1] == [[150, 50, 200, 90]]


def test_real_annotations_go_round(shared_dir, tmp_path):
    root = shared_dir / "data" / "annotations" / "generalblockchain_lungs"
    read = list(read_coco(root, annotations="annotations.sample.json", images="images", missing_category="ignore"))
    films = [
        AnsweredFilm(film.id, film.width, film.height, gt=film.boxes, gt_labels=film.labels, ignore=film.ignored)
        for film in read
    ]
    write_coco(films, tmp_path)
    again = list(read_coco(tmp_path, annotations="ground_truth.json", images="."))
    assert [film.boxes for film in again] == [[pytest.approx(box) for box in film.boxes] for film in read]
    assert [film.labels for film in again] == [film.labels for film in read]


def _evaluated(films):
    evaluation = coco_eval(coco_ground_truth(films), coco_results(films))
    evaluation.summarize()
    return evaluation

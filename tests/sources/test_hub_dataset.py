"""Columns of objects in the shapes in which the Hub has them; the order and space of the numbers are stated."""

from __future__ import annotations

import pytest

from grounding_rewards.sources.hub_dataset import hub_objects

datasets = pytest.importorskip("datasets", reason="needs the train extra")
Image = pytest.importorskip("PIL.Image", reason="needs the train extra")


def rows(objects, **columns):
    columns = {"width": [40] * len(objects), "height": [20] * len(objects)} | columns
    return datasets.Dataset.from_dict({"objects": objects} | columns)


@pytest.mark.parametrize(
    ("box_format", "space", "box"),
    [
        # one box, [10, 5, 30, 15] in pixels, in eight spellings
        ("xyxy", "pixel", [10, 5, 30, 15]),
        ("xywh", "pixel", [10, 5, 20, 10]),
        ("cxcywh", "pixel", [20, 10, 20, 10]),
        ("yxyx", "pixel", [5, 10, 15, 30]),
        ("xyxy", "norm1", [0.25, 0.25, 0.75, 0.75]),
        ("cxcywh", "norm1", [0.5, 0.5, 0.5, 0.5]),
        ("xywh", "norm1000", [250, 250, 500, 500]),
        ("xyxy", "norm100", [25, 25, 75, 75]),
    ],
)
def test_orders_and_spaces(box_format, space, box):
    (image,) = hub_objects(rows([{"bbox": [box], "category": ["mass"]}]), box_format, space, split="train")
    assert image.boxes == [[10, 5, 30, 15]]
    assert (image.labels, image.width, image.height, image.split) == (["mass"], 40, 20, "train")


@pytest.mark.parametrize(
    "objects",
    [
        [{"bbox": [[1, 2, 3, 4]], "category": ["mass"]}, {"bbox": [], "category": []}],
        # one mapping per object
        [[{"bbox": [1, 2, 3, 4], "category": "mass"}], []],
        # nothing at all
        [{"bbox": [[1, 2, 3, 4]], "category": ["mass"]}, None],
    ],
)
def test_shapes_of_the_column(objects):
    first, second = hub_objects(rows(objects), "xyxy", "pixel")
    assert (first.boxes, first.labels, first.id, first.extra) == ([[1, 2, 3, 4]], ["mass"], "0", {"row": "0"})
    assert (second.boxes, second.labels) == ([], [])


def test_names_of_categories():
    features = datasets.Features(
        {
            "objects": {
                "bbox": datasets.List(datasets.List(datasets.Value("float32"))),
                "category": datasets.List(datasets.ClassLabel(names=["mass", "nodule"])),
            },
            "width": datasets.Value("int64"),
            "height": datasets.Value("int64"),
        }
    )
    objects = [{"bbox": [[1, 2, 3, 4]], "category": [1]}]
    named = datasets.Dataset.from_dict({"objects": objects, "width": [40], "height": [20]}, features)
    assert next(hub_objects(named, "xyxy", "pixel")).labels == ["nodule"]
    assert next(hub_objects(rows(objects), "xyxy", "pixel", names=["a", "b"])).labels == ["b"]
    # numbers that nobody named
    with pytest.raises(ValueError, match=r"Row 0 of dataset: Expected a name, or the number of one of 0 names.*got 1"):
        next(hub_objects(rows(objects), "xyxy", "pixel"))
    with pytest.raises(ValueError, match="one of 1 names"):
        next(hub_objects(rows(objects), "xyxy", "pixel", names=["a"]))


def test_the_size_comes_from_the_image(tmp_path):
    Image.new("L", (40, 20)).save(tmp_path / "a.png")
    images = datasets.Dataset.from_dict(
        {
            "image": [str(tmp_path / "a.png")],
            "image_id": [17],
            "objects": [{"boxes": [[0.5, 0.5, 1, 1]], "label": ["mass"]}],
        }
    ).cast_column("image", datasets.Image())
    (image,) = hub_objects(images, "cxcywh", "norm1", bbox="boxes", category="label")
    assert (image.width, image.height, image.boxes) == (40, 20, [[0, 0, 40, 20]])
    assert (image.id, image.file) == ("17", str(tmp_path / "a.png"))


@pytest.mark.parametrize(
    ("objects", "options", "message"),
    [
        ([None], {"box_format": "coco"}, "Expected one of xyxy, yxyx, xywh, cxcywh for box_format, got 'coco'"),
        ([None], {"space": "fraction"}, "Expected one of .*, pixel, .* for space, got 'fraction'"),
        # the image that a model sees is not known here
        ([None], {"space": "resized_pixel"}, "for space, got 'resized_pixel'"),
        ([None], {"objects": "annotations"}, "Expected the column annotations in dataset"),
        ([{"bbox": [[1, 2, 3, 4]], "label": ["a"]}], {}, "Row 0 of dataset: Expected bbox and category"),
        ([{"bbox": [[1, 2, 3]], "category": ["a"]}], {}, "Row 0 of dataset: Expected an array of shape"),
        ([{"bbox": [[1, 2, 3, 4]], "category": []}], {}, "Row 0 of dataset: Expected finite boxes with one category"),
        ([{"bbox": [[1, 2, 3, float("nan")]], "category": ["a"]}], {}, "Row 0 of dataset: Expected finite boxes"),
    ],
)
def test_what_is_refused(objects, options, message):
    with pytest.raises(ValueError, match=message):
        list(hub_objects(rows(objects), **({"box_format": "xyxy", "space": "pixel"} | options)))


def test_patients_and_other_columns():
    objects = [{"bbox": [[1, 2, 3, 4]], "category": ["mass"]}] * 2
    first, second = hub_objects(rows(objects, patient_id=[7.0, float("nan")], age=[63, 41]), "xyxy", "pixel")
    assert (first.patient_id, second.patient_id) == ("7", None)
    assert first.extra == {"row": "0", "age": 63}

"""Label Studio's documented form: https://labelstud.io/guide/predictions, and a labelling configuration in XML."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from grounding_rewards.exchange.label_studio import label_studio_tasks, labelling_config, write_label_studio
from grounding_rewards.exchange.names import label_names
from grounding_rewards.metrics.answered_image import AnsweredImage

# Of a rectangle: keys and the types that the documentation gives them.
REGION = {
    "id": str,
    "type": str,
    "from_name": str,
    "to_name": str,
    "image_rotation": (int, float),
    "original_width": int,
    "original_height": int,
    "value": dict,
}
VALUE = ("x", "y", "width", "height", "rotation")


def test_tasks_have_the_documented_form(images, tmp_path):
    write_label_studio(images, tmp_path, model="mine")
    tasks = json.loads((tmp_path / "tasks.json").read_text(encoding="utf-8"))
    config = ElementTree.parse(tmp_path / "labelling_config.xml").getroot()
    (image,) = config.findall("Image")
    (control,) = config.findall("RectangleLabels")
    labels = {one.get("value") for one in control.findall("Label")}
    assert len(tasks) == len(images)
    for task in tasks:
        assert set(task) == {"data", "annotations", "predictions"}
        # value="$image" of the configuration
        assert isinstance(task["data"][image.get("value").removeprefix("$")], str)
        (annotation,), (prediction,) = task["annotations"], task["predictions"]
        assert prediction["model_version"] == "mine"
        regions = annotation["result"] + prediction["result"]
        assert len({region["id"] for region in regions}) == len(regions)
        for region in regions:
            assert all(isinstance(region[key], kind) for key, kind in REGION.items())
            assert (region["type"], region["to_name"], region["from_name"]) == (
                "rectanglelabels",
                image.get("name"),
                control.get("name"),
            )
            value = region["value"]
            assert set(value) == {*VALUE, "rectanglelabels"}
            assert set(value["rectanglelabels"]) <= labels
            # percent of the image
            assert 0 <= value["x"] <= value["x"] + value["width"] <= 100 + 1e-9
            assert 0 <= value["y"] <= value["y"] + value["height"] <= 100 + 1e-9


def test_the_boxes_come_back(images):
    for task, image in zip(label_studio_tasks(images), images, strict=True):
        back = [
            pytest.approx([x1, y1, x2, y2])
            for x1, y1, x2, y2 in (_pixels(region) for region in task["annotations"][0]["result"])
        ]
        assert image.gt.tolist() == back


@pytest.mark.parametrize(
    ("root", "address"),
    [
        ("/data/local-files/?d=", "/data/local-files/?d=a%20%231%26.png"),
        ("https://images.example/", "https://images.example/a%20%231%26.png"),
        ("s3://images/", "s3://images/a #1&.png"),  # the key of a bucket, not an address
    ],
)
def test_the_name_of_an_image_is_part_of_an_address(root, address):
    image = AnsweredImage("a", 9, 9, image="images/a #1&.png")
    assert label_studio_tasks([image], image_root=root)[0]["data"]["image"] == address


def test_confidences(images):
    tasks = label_studio_tasks(images)
    assert [one["score"] for one in tasks[0]["predictions"][0]["result"]] == [0.9, 0.25]
    assert tasks[0]["predictions"][0]["score"] == pytest.approx(0.575)
    # not stated
    assert "score" not in tasks[1]["predictions"][0]
    # beside the image and inverted: left out; across the edge: cut off
    assert [_pixels(one) for one in tasks[1]["predictions"][0]["result"]] == [pytest.approx([150, 50, 200, 90])]


@pytest.mark.parametrize(
    "label",
    [
        '<Label value="x"/>',  # markup
        "a \"quoted\" & an 'odd' one",
        "nul \x00 and escape \x1b",  # not in XML at all
        "line\nbreak",
        "肺结节",
    ],
)
def test_what_a_model_calls_a_finding_is_text(label):
    image = AnsweredImage("a", 9, 9, pred=[[0, 0, 5, 5]], pred_labels=[label])
    (task,) = label_studio_tasks([image])
    config = ElementTree.fromstring(labelling_config([label]))
    labels = task["predictions"][0]["result"][0]["value"]["rectanglelabels"]
    assert [one.get("value") for one in config.iter("Label")] == labels


def test_label_studio_itself_takes_them(images):
    interface = pytest.importorskip("label_studio_sdk.label_interface", reason="needs label-studio-sdk")
    project = interface.LabelInterface(labelling_config(label_names(images)))
    for task in label_studio_tasks(images):
        assert project.validate_prediction(task["predictions"][0], return_errors=True) == []
        assert project.validate_annotation(task["annotations"][0])


def _pixels(region):
    value, width, height = region["value"], region["original_width"], region["original_height"]
    x, y = value["x"] * width / 100, value["y"] * height / 100
    return [x, y, x + value["width"] * width / 100, y + value["height"] * height / 100]

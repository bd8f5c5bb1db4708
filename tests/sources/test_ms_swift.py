"""Samples with `objects`, as ms-swift documents them (Custom-dataset.md, "Grounding")."""

from __future__ import annotations

import json

import pytest

from grounding_rewards.sources.ms_swift import read_ms_swift


def sample(user, assistant, objects, images=("a.jpg",)):
    messages = [{"role": "user", "content": f"<image>{user}"}, {"role": "assistant", "content": assistant}]
    return {"messages": messages, "images": list(images)} | ({} if objects is None else {"objects": objects})


DESCRIBED = "<ref-object><bbox> and <ref-object><bbox> are on the left"
ONE, TWO = [331.5, 76.4, 853.5, 159.8], [676.5, 68.8, 1099.5, 142.4]
NAMED = {"ref": ["mass", "tube"], "bbox": [ONE, TWO]}


@pytest.fixture
def folder(write):
    return lambda *rows: write({"train.jsonl": "\n".join(map(json.dumps, rows))})


@pytest.mark.parametrize(
    ("row", "labels", "phrases"),
    [
        # the three examples of the documentation, with boxes in all of them
        (sample("Describe.", DESCRIBED, NAMED), ["mass", "tube"], True),
        (sample("Find the <ref-object>", "<bbox><bbox>", {"ref": ["mass"], "bbox": [ONE, TWO]}), ["mass"] * 2, True),
        (sample("Find it", "<bbox><bbox>", {"ref": [], "bbox": [ONE, TWO]}), ["finding"] * 2, False),
        # no `ref`, and the default type by name
        (sample("Find it", "<bbox><bbox>", {"bbox": [ONE, TWO], "bbox_type": "real"}), ["finding"] * 2, False),
        # all names first, then all boxes, in order
        (sample("<ref-object>, <ref-object>?", "<bbox><bbox>", NAMED), ["mass", "tube"], True),
        # what is at a box
        (sample("<bbox>?", "<ref-object>. <bbox> is <ref-object>", NAMED), ["mass", "tube"], True),
    ],
)
def test_names_of_boxes(folder, row, labels, phrases):
    (image,) = read_ms_swift(folder(row))
    assert (image.boxes, image.labels) == ([ONE, TWO], labels)
    assert image.phrases == (tuple(labels) if phrases else ())
    assert (image.file, image.split, image.width) == ("a.jpg", "train", None)


def test_rows_of_one_image_and_negatives(folder):
    root = folder(
        sample("Find the <ref-object>", "<bbox>", {"ref": ["mass"], "bbox": [ONE]}),
        sample("Find masses", "There are none.", None, ["b.jpg"]),  # no `objects`
        sample("Find the <ref-object>", "none", {"ref": ["tube"], "bbox": []}, ["c.jpg"]),
        sample("Find the <ref-object>", "<bbox>", {"ref": ["tube"], "bbox": [TWO]}),
    )
    image, negative, other = read_ms_swift(root)
    assert (negative.file, negative.boxes, other.file, other.boxes) == ("b.jpg", [], "c.jpg", [])
    assert (image.boxes, image.labels) == ([ONE, TWO], ["mass", "tube"])


def test_fractions_of_the_image(folder, write):
    objects = {"ref": ["mass"], "bbox": [[0.25, 0.5, 0.75, 1]], "bbox_type": "norm1"}
    root = folder(sample("Find the <ref-object>", "<bbox>", objects, ["a.png"]))
    write({"a.png": (40, 20)})
    (annotated,) = read_ms_swift(root)
    assert (annotated.boxes, annotated.width, annotated.height) == ([[10, 10, 30, 20]], 40, 20)


@pytest.mark.parametrize(
    ("user", "answer", "is_negative"),
    [
        ("Find it", '[{"bbox": [760, 448, 996, 996], "label": "mass"}]', False),
        ("Find it", '[{"box_2d": [448, 760, 996, 996]}]', False),
        ("Find it", "760, 448, 996, 996", False),
        ("Find it", "nodule(760,448),(996,996)", False),
        ("Find it", "x1: 760, y1: 448, x2: 996, y2: 996", False),
        ("Find it", "x_min=760 y_min=448 x_max=996 y_max=996", False),
        ("Find it", '{"x1": 760, "y1": 448, "x2": 996, "y2": 996}', False),
        ("Find it", "<loc0448><loc0760><loc0996><loc0996> nodule", False),
        ("Find it", "The nodule is at <760><448><996><996>.", False),
        ("Find it", "bounding box: 0.76, 0.44, 0.99, 0.99", False),
        ("Answer as [x1, y1, x2, y2], such as [1, 2, 3, 4].", "None.", True),
        ("Find it", "The heart measures 12.3 cm on 1 of 2 views.", True),
        ("Find it", "Examined on 2024-03-12 at 10:30: normal.", True),
        ("Find it", "[]", True),
    ],
)
def test_boxes_as_text_are_no_normal_image(folder, user, answer, is_negative):
    root = folder(sample(user, answer, None))
    if is_negative:
        assert [image.boxes for image in read_ms_swift(root)] == [[]]
    else:
        with pytest.raises(ValueError, match="Boxes as text need a box format"):
            list(read_ms_swift(root))

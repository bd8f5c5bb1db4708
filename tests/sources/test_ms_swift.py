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


@pytest.fixture
def folder(tmp_path):
    def write(*rows):
        (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("row", "labels", "phrases"),
    [
        # the three examples of the documentation, with boxes in all of them
        (sample("Describe.", DESCRIBED, {"ref": ["mass", "tube"], "bbox": [ONE, TWO]}), ["mass", "tube"], True),
        (sample("Find the <ref-object>", "<bbox><bbox>", {"ref": ["mass"], "bbox": [ONE, TWO]}), ["mass"] * 2, True),
        (sample("Find it", "<bbox><bbox>", {"ref": [], "bbox": [ONE, TWO]}), ["finding"] * 2, False),
        # no `ref`, and the default type by name
        (sample("Find it", "<bbox><bbox>", {"bbox": [ONE, TWO], "bbox_type": "real"}), ["finding"] * 2, False),
        # all names first, then all boxes, in order
        (
            sample("<ref-object>, <ref-object>?", "<bbox><bbox>", {"ref": ["mass", "tube"], "bbox": [ONE, TWO]}),
            ["mass", "tube"],
            True,
        ),
        # what is at a box
        (
            sample("<bbox>?", "<ref-object>. <bbox> is <ref-object>", {"ref": ["mass", "tube"], "bbox": [ONE, TWO]}),
            ["mass", "tube"],
            True,
        ),
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
    negative, other, image = read_ms_swift(root)
    assert (negative.file, negative.boxes, other.file, other.boxes) == ("b.jpg", [], "c.jpg", [])
    assert (image.boxes, image.labels) == ([ONE, TWO], ["mass", "tube"])


def test_fractions_of_the_image(folder):
    image = pytest.importorskip("PIL.Image", reason="needs the train extra")
    objects = {"ref": ["mass"], "bbox": [[0.25, 0.5, 0.75, 1]], "bbox_type": "norm1"}
    root = folder(sample("Find the <ref-object>", "<bbox>", objects, ["a.png"]))
    image.new("L", (40, 20)).save(root / "a.png")
    (annotated,) = read_ms_swift(root)
    assert (annotated.boxes, annotated.width, annotated.height) == ([[10, 10, 30, 20]], 40, 20)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        # the third example of the documentation: a point
        (sample("Click", "<bbox>", {"ref": [], "bbox": [[615, 226]]}), "A point is no box"),
        (sample("", "<bbox>", {"bbox": [ONE], "bbox_type": "norm1000"}), "one of real, norm1 in line 1"),
        (sample("", "<bbox>", {"bbox": [ONE], "image_id": [1]}, ["a.jpg", "b.jpg"]), "Expected one image in line 1"),
        # grounding in the model's own syntax
        (sample("", "<|box_start|>(1,2),(3,4)<|box_end|>", None), "Boxes as text need a box format"),
        # three boxes of two names
        (
            sample("<ref-object>, <ref-object>?", "<bbox>" * 3, {"ref": ["a", "b"], "bbox": [ONE, ONE, TWO]}),
            "Name each box by a ref of its own",
        ),
    ],
)
def test_what_is_refused(folder, row, message):
    with pytest.raises(ValueError, match=message):
        list(read_ms_swift(folder(row)))

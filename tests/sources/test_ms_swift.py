"""Samples with `objects`, as ms-swift documents them (Custom-dataset.md, "Grounding")."""

import pytest

from grounding_rewards.sources.ms_swift import read_ms_swift
from tests.tables import table


def sample(user, assistant, objects, images=("a.jpg",)):
    messages = [{"role": "user", "content": f"<image>{user}"}, {"role": "assistant", "content": assistant}]
    return {"messages": messages, "images": list(images)} | ({} if objects is None else {"objects": objects})


ONE, TWO = [331.5, 76.4, 853.5, 159.8], [676.5, 68.8, 1099.5, 142.4]


@pytest.mark.parametrize(("user", "answer", "objects", "labels", "phrases"), table("sources/tables", "ms_swift_names"))
def test_names_of_boxes(folder, user, answer, objects, labels, phrases):
    (image,) = read_ms_swift(folder(sample(user, answer, {**objects, "bbox": [ONE, TWO]})))
    assert (image.boxes, image.labels) == ([ONE, TWO], labels)
    assert image.phrases == (tuple(labels) if phrases else ())
    assert (image.file, image.split, image.width) == ("a.jpg", "train", None)


def test_rows_of_one_image_and_negatives(folder):
    root = folder(
        sample("Find the <ref-object>", "<bbox>", {"ref": ["mass"], "bbox": [ONE]}),
        sample("Find masses", "There are none.", None, ["b.jpg"]),  # no `objects`
        sample("Find <ref-object>, <ref-object>", "none", {"ref": ["tube", "mass"], "bbox": []}, ["c.jpg"]),
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


@pytest.mark.parametrize(("user", "answer", "is_negative"), table("sources/tables", "boxes_as_text"))
def test_boxes_as_text_are_no_normal_image(folder, user, answer, is_negative):
    root = folder(sample(user, answer, None))
    if is_negative:
        assert [image.boxes for image in read_ms_swift(root)] == [[]]
    else:
        with pytest.raises(ValueError, match="Boxes as text need a box format"):
            list(read_ms_swift(root))

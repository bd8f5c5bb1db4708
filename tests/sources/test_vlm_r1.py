"""Samples whose boxes stand in the answer: read in the format that is declared, one record an image."""

import pytest

from grounding_rewards.sources.vlm_r1 import read_vlm_r1
from tests.tables import table

QUESTION = "<image>Please provide the bounding box coordinate of the region this sentence describes: left effusion."
PIXELS = {"syntax": "vlm-r1", "space": "pixel"}


def sample(answer, image="a.jpg", question=QUESTION, **more):
    turns = [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]
    return {"id": 1, "image": image, "width": 200, "height": 100, "conversations": turns} | more


@pytest.mark.parametrize(("box_format", "answer", "boxes", "labels"), table("sources/tables", "vlm_r1_answers"))
def test_answers(folder, box_format, answer, boxes, labels):
    (image,) = read_vlm_r1(folder(sample(answer)), box_format=box_format)
    assert image.boxes == [pytest.approx(box) for box in boxes]
    assert labels == "any" or image.labels == labels
    assert image.phrases == ("left effusion.",) * len(boxes)
    assert (image.file, image.width, image.height, image.split) == ("a.jpg", 200, 100, "train")


def test_the_questions_about_one_image_are_one_image(folder):
    root = folder(
        sample("[1, 2, 3, 4]"),
        sample("[]", "b.jpg"),
        sample("[5, 6, 7, 8]", ["a.jpg"], "<image>\nWhere is the tube?"),  # an image in a list of its own
    )
    image, negative = read_vlm_r1(root, box_format=PIXELS)
    assert (negative.file, negative.boxes) == ("b.jpg", [])
    assert image.boxes == [[1, 2, 3, 4], [5, 6, 7, 8]]
    # a question without the words before the phrase is the phrase
    assert image.phrases == ("left effusion.", "Where is the tube?")
    image, _ = read_vlm_r1(root, box_format=PIXELS, phrase_after="")
    assert image.phrases == (QUESTION.removeprefix("<image>"), "Where is the tube?")


def test_pixels_of_the_resized_image(folder):
    row = sample("[10, 20, 50, 40]", resized_width=100, resized_height=50)
    (image,) = read_vlm_r1(folder(row), box_format="vlm-r1")
    assert image.boxes == [[20, 40, 100, 80]]


def test_medground_r1(write):
    row = {"image": "a.jpg", "problem": "left effusion", "solution": [12, 30, 120, 90], "width": 200, "height": 100}
    root = write({"test.json": [row | {"normalized_solution": [60, 300, 600, 900]}]})
    (image,) = read_vlm_r1(root, box_format=PIXELS, annotations="{split}.json", images="images")
    assert (image.file, image.split) == ("images/a.jpg", "test")
    assert (image.boxes, image.phrases) == ([[12, 30, 120, 90]], ("left effusion",))


def test_the_size_is_read_from_the_image(write):
    row = {"image": "a.png", "problem": "x", "solution": [500, 0, 1000, 1000]}
    (annotated,) = read_vlm_r1(write({"train.jsonl": row, "a.png": (40, 20)}), box_format="qwen3-vl")
    assert (annotated.width, annotated.height, annotated.boxes) == (40, 20, [[20, 0, 40, 20]])

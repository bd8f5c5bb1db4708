"""Our own folder, with all that is optional in it."""

from __future__ import annotations

import json

import pytest

from grounding_rewards.data.readers import measure_agreement
from grounding_rewards.sources.jsonl import read_jsonl

IMAGE = {"file": "a.png", "width": 40, "height": 30, "boxes": [[1, 2, 20, 25]], "labels": ["mass"]}


@pytest.fixture
def folder(tmp_path):
    def write(*lines):
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        (tmp_path / "annotations.jsonl").write_text(text + "\n", encoding="utf-8")
        return tmp_path

    return write


def test_required_and_optional_keys(folder):
    more = {
        "id": 5,
        "patient_id": 7,
        "split": "train",
        "phrases": ["a mass on the left"],
        "ignore_boxes": [[0, 0, 5, 5]],
        "resized_width": 420,
        "prompt": "Where?",
        "unknown": 1,
    }
    plain, full, negative = read_jsonl(folder(IMAGE, IMAGE | more, "", IMAGE | {"boxes": [], "labels": []}))
    assert (plain.id, plain.boxes, plain.labels) == ("a.png", [[1.0, 2.0, 20.0, 25.0]], ["mass"])
    assert (plain.split, plain.patient_id, plain.phrases, plain.extra) == (None, None, (), {})
    assert (full.id, full.patient_id, full.split, full.phrases) == ("5", "7", "train", ("a mass on the left",))
    assert full.ignored == ((0, 0, 5, 5),)
    assert full.extra == {"unknown": 1}
    assert negative.boxes == []


def test_several_readers(folder):
    two = IMAGE | {
        "boxes": [[0, 0, 10, 10], [0, 0, 10, 9]],
        "labels": ["mass", "mass"],
        "readers": ["A", "B"],
        "read_by": ["A", "B", "C"],
    }
    unknown, drawn, negative = read_jsonl(
        folder(IMAGE, two, IMAGE | {"boxes": [], "labels": [], "read_by": ["A", "B"]})
    )
    assert (unknown.readers, unknown.read_by) == ((), ())
    assert (drawn.readers, drawn.read_by) == (("A", "B"), ("A", "B", "C"))
    assert (negative.readers, negative.read_by) == ((), ("A", "B"))
    # By hand: A and B agree, and each disagrees with C, who drew nothing: one hit, and 2 + 1 + 1 boxes in three pairs
    found = measure_agreement([unknown, drawn, negative])
    assert (found.images, found.single, found.pairs) == (2, 1, 4)
    assert found.overall.f1[0.5].value == pytest.approx(2 * 1 / 4)


def test_an_image_without_a_split_is_one_to_train_on(folder):
    """Today it is in every split, to train on and to be evaluated on."""
    root = folder(IMAGE | {"split": "train"}, IMAGE | {"file": "b.png"}, IMAGE | {"file": "c.png", "split": "test"})
    assert [image.file for image in read_jsonl(root, split="test")] == ["c.png"]
    assert [image.file for image in read_jsonl(root, split="train")] == ["a.png", "b.png"]
    assert [image.split for image in read_jsonl(root)] == ["train", None, "test"]


@pytest.mark.parametrize(
    ("spelling", "read"),
    [("val", "validation"), ("Valid", "validation"), ("dev", "validation"), ("test", "test"), ("fold 1", "fold 1")],
)
def test_spellings_of_a_split_are_one_split(folder, spelling, read):
    root = folder(IMAGE | {"split": "train"}, IMAGE | {"file": "b.png", "split": spelling})
    assert [image.file for image in read_jsonl(root, split=read)] == ["b.png"]


def test_no_image_of_the_split(folder):
    with pytest.raises(ValueError, match=r"Expected one of train or all for the split of .*, got 'test'"):
        list(read_jsonl(folder(IMAGE | {"split": "train"}), split="test"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "a JSON object in line 2"),
        ("[]", "a JSON object in line 2 .*a JSON array, not a JSON object: write one on each line"),
        ({key: value for key, value in IMAGE.items() if key != "labels"}, "one text per box for labels in line 2"),
        (IMAGE | {"completions": []}, "columns under names that training leaves free in line 2 .* got 'completions'"),
        ({"image": "a.png", "boxes": [], "labels": []}, r"a text for file \(rename the key image\) in line 2"),
        (IMAGE | {"file": None}, "a text for file in line 2"),
        (IMAGE | {"width": 0}, "positive numbers for width and height in line 2"),
        (IMAGE | {"boxes": [[1, 2, 3]]}, r"four numbers per box for boxes in line 2 of .* \(id a.png\)"),
        (IMAGE | {"boxes": [[1, 2, 3, "4"]]}, "four numbers per box for boxes in line 2"),
        (IMAGE | {"boxes": None}, "four numbers per box for boxes, ignore_boxes and reader_boxes in line 2"),
        (IMAGE | {"labels": []}, "one text per box for labels in line 2"),
        (IMAGE | {"phrases": ["a", "b"]}, "one text per box for phrases in line 2"),
        (IMAGE | {"readers": ["A", "B"]}, "one text per box for readers in line 2"),
        (IMAGE | {"readers": [1]}, "one text per box for readers in line 2"),
        (IMAGE | {"read_by": "A"}, "a list of different texts for read_by in line 2"),
        (IMAGE | {"read_by": ["A", "A"]}, "a list of different texts for read_by in line 2"),
        (IMAGE | {"readers": ["A"], "read_by": ["B"]}, "all of readers in read_by in line 2"),
        (IMAGE | {"ignore_boxes": [1]}, "four numbers per box for ignore_boxes in line 2"),
    ],
)
def test_bad_lines(folder, line, message):
    with pytest.raises(ValueError, match=message):
        list(read_jsonl(folder(IMAGE, line)))


def test_an_array_over_several_lines_is_called_one(folder):
    with pytest.raises(ValueError, match=r"in line 1 .*a JSON array, not a JSON object: write one on each line"):
        list(read_jsonl(folder("[", IMAGE, "]")))


def test_what_readers_drew_stands_side_by_side(folder):
    lines = IMAGE | {
        "reader_boxes": [[[1, 2, 20, 25]], [], [[3, 3, 9, 9]]],
        "reader_labels": [["mass"], [], ["nodule"]],
    }
    (image,) = read_jsonl(folder(lines))
    assert (image.boxes, image.labels) == ([[1.0, 2.0, 20.0, 25.0], [3.0, 3.0, 9.0, 9.0]], ["mass", "nodule"])
    assert (image.readers, image.read_by) == (("1", "3"), ("1", "2", "3"))


def test_sizes_may_be_left_to_the_image(folder):
    (image,) = read_jsonl(folder({key: value for key, value in IMAGE.items() if key not in ("width", "height")}))
    assert (image.width, image.height) == (None, None)

"""Our own folder, with all that is optional in it; what is refused stands in tests/data/test_rows_alike.py."""

import json

import pytest

from grounding_rewards.sources.jsonl import read_jsonl

IMAGE = {"file": "a.png", "width": 40, "height": 30, "boxes": [[1, 2, 20, 25]], "labels": ["mass"]}


@pytest.fixture
def folder(write):
    def write_lines(*lines):
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        return write({"annotations.jsonl": text + "\n"})

    return write_lines


def test_required_and_optional_keys(folder):
    more = {
        "id": 5, "patient_id": 7, "split": "train", "phrases": ["a mass on the left"], "ignore_boxes": [[0, 0, 5, 5]],
        "resized_width": 420, "prompt": "Where?", "unknown": 1,
    }  # fmt: skip
    plain, full, negative = read_jsonl(folder(IMAGE, IMAGE | more, "", IMAGE | {"boxes": [], "labels": []}))
    assert (plain.id, plain.boxes, plain.labels) == ("a.png", [[1.0, 2.0, 20.0, 25.0]], ["mass"])
    assert (plain.split, plain.patient_id, plain.phrases, plain.extra) == (None, None, (), {})
    assert (full.id, full.patient_id, full.split, full.phrases) == ("5", "7", "train", ("a mass on the left",))
    assert full.ignored == ((0, 0, 5, 5),)
    assert full.extra == {"unknown": 1}
    assert negative.boxes == []


@pytest.mark.parametrize(("name", "value"), [("readers", ["A"]), ("read_by", ["A", "B"])])
def test_readers_side_by_side_are_refused(folder, name, value):
    with pytest.raises(ValueError, match=f"reader_labels, a list per reader, instead of {name} in line 1"):
        list(read_jsonl(folder(IMAGE | {name: value})))


def test_what_readers_drew_stands_side_by_side(folder):
    reader_sets = {"reader_boxes": [[[1, 2, 20, 25]], [], [[3, 3, 9, 9]]], "reader_labels": [["mass"], [], ["nodule"]]}
    (image,) = read_jsonl(folder(IMAGE | reader_sets))
    assert (image.boxes, image.labels) == ([[1.0, 2.0, 20.0, 25.0], [3.0, 3.0, 9.0, 9.0]], ["mass", "nodule"])
    assert (image.readers, image.read_by) == (("1", "3"), ("1", "2", "3"))
    without_boxes = {name: value for name, value in IMAGE.items() if name != "boxes"} | {"labels": []}
    assert list(read_jsonl(folder(without_boxes | reader_sets))) == [image]


@pytest.mark.parametrize(
    ("spelling", "read"),
    [("val", "validation"), ("Valid", "validation"), ("dev", "validation"), ("test", "test"), ("fold 1", "fold 1")],
)
def test_splits_are_found_in_every_spelling(folder, spelling, read):
    root = folder(IMAGE | {"split": "train"}, IMAGE | {"file": "b.png"}, IMAGE | {"file": "c.png", "split": spelling})
    assert [image.file for image in read_jsonl(root, split=read)] == ["c.png"]
    # An image without a split is one to train on.
    assert [image.file for image in read_jsonl(root, split="train")] == ["a.png", "b.png"]
    assert [image.split for image in read_jsonl(root)] == ["train", None, read]

"""A folder of films becomes a dataset, or an error that names every bad line."""

from __future__ import annotations

import json

import pytest
from PIL import Image

from grounding_rewards.data.film_folder import load_films, write_square_films

GOOD = {"file": "a.png", "width": 40, "height": 30, "boxes": [[1, 2, 20, 25]], "labels": ["mass"], "split": "train"}


@pytest.fixture
def folder(tmp_path):
    def write(*lines):
        for name in ("a.png", "b.png"):
            Image.new("L", (40, 30), 90).save(tmp_path / name)
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        (tmp_path / "annotations.jsonl").write_text(text + "\n", encoding="utf-8")
        return tmp_path

    return write


def test_columns_and_values(folder):
    root = folder(GOOD, {**GOOD, "file": "b.png", "boxes": [], "labels": [], "split": "test", "patient_id": 7})
    dataset = load_films(root)
    assert dataset.column_names == ["prompt", "image", "boxes", "labels", "width", "height", "id", "patient_id"]
    first, second = dataset
    assert first["boxes"] == [[1.0, 2.0, 20.0, 25.0]]
    assert first["image"].size == (40, 30)
    assert (second["boxes"], second["labels"], second["patient_id"], second["id"]) == ([], [], "7", "b.png")


@pytest.mark.parametrize("without", [{}, {"split": None}, {"split": ""}])
def test_split_is_selected_and_films_without_one_are_trained_on_alone(folder, without):
    unassigned = {key: value for key, value in GOOD.items() if key != "split"} | {"file": "b.png"} | without
    root = folder(GOOD, unassigned, {**GOOD, "file": "a.png", "id": "c", "split": "test"})
    assert load_films(root, "train")["id"] == ["a.png", "b.png"]
    assert load_films(root, "test")["id"] == ["c"]
    assert load_films(root)["id"] == ["a.png", "b.png", "c"]


def test_a_folder_without_splits_has_none_of_any_other_name(folder):
    root = folder({key: value for key, value in GOOD.items() if key != "split"})
    assert load_films(root, "train").num_rows == 1
    for name in ("test", "validation", "trane"):
        with pytest.raises(ValueError, match=f'Expected one of train for split, got \'{name}\'.*"split": "{name}"'):
            load_films(root, name)


def test_prompt_is_the_same_in_every_split(folder):
    root = folder(GOOD, {**GOOD, "labels": ["effusion"], "split": "test"})
    prompts = [load_films(root, split)[0]["prompt"][0]["content"][1]["text"] for split in ("train", "test")]
    assert prompts[0] == prompts[1]
    assert "effusion, mass" in prompts[0]


def test_prompt_does_not_depend_on_the_order_of_the_lines(folder):
    lines = [GOOD, {**GOOD, "file": "b.png", "labels": ["effusion"]}]
    prompts = [load_films(folder(*order), "train")[0]["prompt"] for order in (lines, lines[::-1])]
    assert prompts[0] == prompts[1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: not JSON"),
        ("[]", "line 2: not a JSON object"),
        ({**GOOD, "width": "40"}, "line 2: width is '40'"),
        ({key: value for key, value in GOOD.items() if key != "labels"}, "line 2: labels is None"),
        ({**GOOD, "boxes": [[1, 2, 3]]}, "not lists of four numbers"),
        ({**GOOD, "file": "missing.png"}, "line 2: no such image: missing.png"),
    ],
)
def test_a_bad_line_is_named(folder, line, message):
    with pytest.raises(ValueError, match=message):
        load_films(folder(GOOD, line))


def test_all_bad_lines_are_named_at_once(folder):
    with pytest.raises(ValueError, match=r"(?s)2 bad lines.*line 1.*line 3"):
        load_films(folder("{", GOOD, {**GOOD, "file": "missing.png"}))


def test_unknown_split_lists_the_known_ones(folder):
    with pytest.raises(ValueError, match="Expected one of train for split, got 'validation'"):
        load_films(folder(GOOD), "validation")


def test_folder_without_annotations_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"Expected a folder with annotations\.jsonl"):
        load_films(tmp_path)


def test_films_without_any_finding_are_refused(folder):
    with pytest.raises(ValueError, match="at least one labelled box"):
        load_films(folder({**GOOD, "boxes": [], "labels": []}))


def test_square_films_keep_boxes_in_place(folder, tmp_path):
    # By hand: 40 x 30 becomes 20 x 20, so columns are halved and rows take two thirds.
    root = folder({**GOOD, "boxes": [[4, 3, 20, 30]]})
    write_square_films(root, tmp_path / "square", 20)
    (film,) = load_films(tmp_path / "square", "train")
    assert film["image"].size == (film["width"], film["height"]) == (20, 20)
    assert film["boxes"] == [pytest.approx([2, 2, 10, 20])]
    assert film["labels"] == ["mass"]


def test_real_films(shared_dir):
    # Counts from the data set's README.
    root = shared_dir / "data" / "cxr_lungs"
    train, test = load_films(root, "train"), load_films(root, "test")
    assert (train.num_rows, test.num_rows) == (241, 74)
    assert sum(map(len, train["boxes"])) + sum(map(len, test["boxes"])) == 630
    assert not set(train["patient_id"]) & set(test["patient_id"])
    assert test[0]["image"].size == (test[0]["width"], test[0]["height"])

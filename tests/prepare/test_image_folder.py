"""A folder of images becomes a dataset, or an error that names every bad line."""

import json
import re

import pytest
from PIL import Image

from grounding_rewards.data.checks import check_dataset
from grounding_rewards.data.dataset_columns import add_prompts
from grounding_rewards.data.prompts import prompt_messages
from grounding_rewards.prepare.load import load_images
from grounding_rewards.rewards.grounding import get_reward
from grounding_rewards.sources.jsonl import read_jsonl
from tests.test_scripts import script


def asked(dataset, box_format="qwen3-vl"):
    """What the model is told about the first image."""
    (message,) = add_prompts(dataset, box_format)[0]["prompt"]
    return message["content"][1]["text"]


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
    dataset = load_images(root)
    assert dataset.column_names == [
        "looked_for", "image", "boxes", "labels", "width", "height", "id", "patient_id", "split",
    ]  # fmt: skip
    first, second = dataset
    assert first["boxes"] == [[1.0, 2.0, 20.0, 25.0]]
    assert first["image"].size == (40, 30)
    assert (second["boxes"], second["labels"], second["patient_id"], second["id"]) == ([], [], "7", "b.png")


@pytest.mark.parametrize("without", [{}, {"split": None}, {"split": ""}])
def test_split_is_selected_and_images_without_one_are_trained_on_alone(folder, without):
    unassigned = {key: value for key, value in GOOD.items() if key != "split"} | {"file": "b.png"} | without
    root = folder(GOOD, unassigned, {**GOOD, "file": "a.png", "id": "c", "split": "test"})
    assert load_images(root, "train")["id"] == ["a.png", "b.png"]
    assert load_images(root, "test")["id"] == ["c"]
    assert load_images(root)["id"] == ["a.png", "b.png", "c"]


def test_where_nothing_is_held_out_patients_are_drawn_and_it_is_said(folder):
    """Two images of each of 50 patients; the same patients on every call, whatever else is in the folder."""
    lines = [{**GOOD, "id": f"{k}", "patient_id": f"p{k % 50}", "split": "Train"} for k in range(100)]
    root = folder(*lines)
    drawn = r"holds no image out: 80 % of its patients .* 10 % for test\. .*annotations"
    with pytest.warns(UserWarning, match=drawn) as said:
        images = {split: load_images(root, split) for split in ("train", "validation", "test")}
    assert len(said) == 3
    assert sum(split.num_rows for split in images.values()) == 100
    sides = [set(split["patient_id"]) for split in images.values()]
    assert all(sides)
    assert sum(map(len, sides)) == len(set.union(*sides)) == 50
    assert [image.id for image in read_jsonl(root, split="test")] == images["test"]["id"][:]
    assert set(images["test"]["split"]) == {"test"}
    with pytest.raises(ValueError, match="Expected one of train, validation, test or all for the split of"):
        load_images(root, "tset")
    assert load_images(root, "all").num_rows == load_images(root).num_rows == 100
    # The sides of others do not change when patients are added.
    more = folder(*lines, *({**GOOD, "id": f"new{k}", "patient_id": f"new{k}", "split": "Train"} for k in range(20)))
    with pytest.warns(UserWarning, match="holds no image out"):
        assert set(load_images(more, "test")["patient_id"]) >= sides[2]


def test_a_patient_in_several_splits_is_said(folder):
    lines = [{**GOOD, "patient_id": "p", "split": "test"}, {**GOOD, "id": "b", "patient_id": "p"}]
    with pytest.warns(UserWarning, match=r"1 patient of .* are in several splits, such as p \(train, test\)"):
        load_images(folder(*lines), "test")


def test_prompt_does_not_depend_on_the_order_of_the_lines(folder):
    lines = [GOOD, {**GOOD, "file": "b.png", "labels": ["effusion"]}]
    prompts = [asked(load_images(folder(*order), "train")) for order in (lines, lines[::-1])]
    assert prompts[0] == prompts[1]


def test_bad_lines_can_be_dropped_and_are_named(folder):
    """Today one line ends the run, and the error knows no way on."""
    root = folder("{", GOOD, {**GOOD, "file": "missing.png", "id": "x"}, {**GOOD, "boxes": [[1, 2, 3]]})
    with pytest.raises(ValueError, match=r"got 3 bad of 4 lines\. .* go on without them by bad_rows: drop"):
        load_images(root)
    with pytest.warns(UserWarning, match=r"3 of 4 lines of .* are dropped \(bad_rows: drop\)") as said:
        images = load_images(root, bad_rows="drop")
    assert images["id"][:] == ["a.png"]
    named = re.findall(r"in (line \d) .*?\(id ([^)]+)\)", str(said[0].message))
    assert named == [("line 1", "-"), ("line 3", "x"), ("line 4", "a.png")]
    with pytest.raises(ValueError, match=r"got 1 bad of 1 lines\. Correct them:"):
        load_images(folder("{"), bad_rows="drop")
    with pytest.raises(ValueError, match="Expected a known word for `bad_rows`, got 'skip'"):
        load_images(root, bad_rows="skip")


def test_images_without_any_finding_are_refused(folder):
    with pytest.raises(ValueError, match="at least one labelled box"):
        load_images(folder({**GOOD, "boxes": [], "labels": []}))


WHOLE = {**GOOD, "id": 7, "patient_id": 3, "prompt": "Where is the mass?", "box_format": "paligemma"}
WHOLE |= {"ignore_boxes": [[0, 0, 5, 5]], "reader_boxes": [[[1, 2, 20, 25]], []], "reader_labels": [["mass"], []]}
WHOLE |= {"phrases": ["a mass on the left"], "resized_width": 420, "resized_height": 308}


def test_whatever_a_line_says_is_kept(folder):
    """Today only the id, the split and the patient are."""
    first, second = load_images(folder(WHOLE, {**GOOD, "file": "b.png"}))
    kept = {name: first[name] for name in WHOLE if name not in ("file", "prompt")}
    assert kept == {name: value for name, value in WHOLE.items() if name in kept} | {"id": "7", "patient_id": "3"}
    content = [{"type": "image", "text": None}, {"type": "text", "text": "Where is the mass?"}]
    assert first["prompt"] == [{"role": "user", "content": content}]
    assert (first["looked_for"], second["looked_for"], second["prompt"]) == (None, ["mass"], None)
    assert [second[name] for name in ("reader_boxes", "ignore_boxes", "box_format", "patient_id")] == [None] * 4


def test_images_are_asked_about_in_the_words_of_their_format(folder):
    """Today wrists are called chest radiographs, and PaliGemma is asked for JSON."""
    root = folder({**GOOD, "labels": ["fracture"]}, {**GOOD, "file": "b.png", "box_format": "paligemma"})
    images = load_images(root)
    first, second = (row["prompt"][0]["content"][1]["text"] for row in add_prompts(images, None).select([1, 1]))
    assert first == second == "detect fracture ; mass"
    text = asked(images)
    assert text.startswith("Locate every finding of this list in the image: fracture, mass.\n")
    assert "chest" not in text
    assert '"bbox_2d"' in text


def test_images_of_a_folder_pass_the_check_of_training(folder):
    images = add_prompts(load_images(folder(WHOLE, {**GOOD, "file": "b.png"})), "qwen3-vl")
    check_dataset(images, get_reward("R4", box_format="qwen3-vl"))
    assert "looked_for" not in images.column_names


def test_no_patient_is_nobody(folder):
    """Today it is the patient "None", whose images are all drawn together."""
    lines = [{**GOOD, "id": str(k), "patient_id": value} for k, value in enumerate(NOBODY)]
    assert load_images(folder(*lines, {**GOOD, "patient_id": 7.0}))["patient_id"][:] == [None] * len(NOBODY) + ["7"]


NOBODY = [None, "", " ", float("nan"), "nan", "None", "NULL", "N/A"]


def test_square_images_keep_boxes_in_place(folder, tmp_path):
    # By hand: 40 x 30 becomes 20 x 20, so columns are halved and rows take two thirds.
    root = folder({**GOOD, "boxes": [[4, 3, 20, 30]]})
    script("square_images").write_square_images(root, tmp_path / "square", 20)
    (image,) = load_images(tmp_path / "square", "train")
    assert image["image"].size == (image["width"], image["height"]) == (20, 20)
    assert image["boxes"] == [pytest.approx([2, 2, 10, 20])]
    assert image["labels"] == ["mass"]
    assert image["prompt"][0]["content"][1]["text"] == prompt_messages(["mass"])[0]["content"][1]["text"]


def test_real_images(shared_dir):
    # ShardCounts from the data set's README.
    root = shared_dir / "data" / "cxr_lungs"
    train, test = load_images(root, "train"), load_images(root, "test")
    assert (train.num_rows, test.num_rows) == (241, 74)
    assert sum(map(len, train["boxes"])) + sum(map(len, test["boxes"])) == 630
    assert not set(train["patient_id"]) & set(test["patient_id"])
    assert test[0]["image"].size == (test[0]["width"], test[0]["height"])

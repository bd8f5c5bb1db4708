"""The columns that come from the model and its processor, and the rows that the processor refuses."""

import datasets
import pytest
from PIL import Image
from transformers import Qwen2VLImageProcessor

from grounding_rewards.data.dataset_columns import add_columns, add_prompts
from grounding_rewards.images.resize import resized_size
from tests.tables import table

pytestmark = pytest.mark.training

PROCESSOR = Qwen2VLImageProcessor()


def images(sizes, **columns):
    widths, heights = zip(*sizes, strict=True)
    return datasets.Dataset.from_dict({"width": list(widths), "height": list(heights), **columns})


def test_every_row_gets_the_size_that_the_processor_feeds():
    rows = add_columns(images([(512, 400), (30, 2000)]), PROCESSOR, None)
    got = list(zip(rows["resized_width"], rows["resized_height"], strict=True))
    assert got == [resized_size(PROCESSOR, 512, 400), resized_size(PROCESSOR, 30, 2000)]


def test_the_image_decides_where_there_is_one():
    shown = [Image.new("L", size) for size in ((60, 90), (90, 60))]
    stated = images([(600, 900), (900, 600)], image=shown).cast_column("image", datasets.Image())
    rows = add_columns(stated, PROCESSOR, None)
    assert (rows[0]["resized_width"], rows[0]["resized_height"]) == resized_size(PROCESSOR, 60, 90)
    assert (rows[1]["resized_width"], rows[1]["resized_height"]) == resized_size(PROCESSOR, 90, 60)


@pytest.mark.parametrize(("bad", "reason"), table("data/tables", "rows_that_the_processor_refuses_are_all_named"))
def test_rows_that_the_processor_refuses_are_all_named(bad, reason):
    rows = images([(512, 400), bad, (400, 512), bad], id=["a", "b", "c", "d"])
    with pytest.raises(ValueError, match="got 2 bad rows of 4") as error:
        add_columns(rows, PROCESSOR, None)
    (line,) = str(error.value).splitlines()[1:]
    assert line.startswith("rows 1, 3 (ids b, d): ")
    assert reason in line


def test_all_other_columns_stay_as_they_are():
    columns = {
        "boxes": [[[1.0, 2.0, 3.0, 4.0]], []],
        "labels": [["mass"], []],
        "ignore_boxes": [None, [[5.0, 6.0, 7.0, 8.0]]],
        "reader_boxes": [[[[1.0, 2.0, 3.0, 4.0]], []], None],
        "reader_labels": [[["mass"], []], None],
    }
    rows = add_columns(images([(512, 400), (400, 512)], **columns), PROCESSOR, "qwen2.5-vl")
    assert {name: rows[name][:] for name in columns} == columns


def text_of(row):
    return row["prompt"][0]["content"][1]["text"]


def test_a_text_becomes_conversational_and_a_prompt_of_its_own_stays():
    """A text alone reaches a model without its image."""
    rows = [{"prompt": "Where is it?", "labels": ["mass"]}, {"prompt": None, "labels": ["nodule"]}]
    first, second = add_prompts(datasets.Dataset.from_list(rows), "qwen3-vl")
    assert [part["type"] for part in first["prompt"][0]["content"]] == ["image", "text"]
    assert text_of(first) == "Where is it?"
    assert "this list in the image: mass, nodule." in text_of(second)


def test_readers_name_findings_too():
    row = {"labels": [], "reader_labels": [["mass"], None, []], "box_format": "paligemma"}
    assert text_of(add_prompts(datasets.Dataset.from_list([row]), None)[0]) == "detect mass"


@pytest.mark.parametrize("row", [{"labels": []}, {"labels": ["mass"]}, {"id": "a"}])
def test_nothing_to_ask_for_is_refused(row):
    with pytest.raises(ValueError, match=r"Expected a prompt, or labels and a box format to make one of.* in row 0"):
        add_prompts(datasets.Dataset.from_list([row]), None)


@pytest.mark.parametrize("labels", [3, "mass", [3]])
def test_what_is_no_list_of_labels_is_left_to_the_checks(labels):
    """Once it was an error of Python's own, and the letters of the word were asked for."""
    rows = [{"labels": labels, "prompt": None}, {"labels": labels, "prompt": "Where?"}]
    with pytest.raises(ValueError, match="Expected a prompt, or labels"):
        add_prompts(datasets.Dataset.from_list(rows), "paligemma")


def test_a_row_that_cannot_be_asked_about_is_left_to_the_checks():
    rows = [{"prompt": " ", "box_format": "paligemma"}, {"prompt": None, "box_format": "unknown"}]
    images = datasets.Dataset.from_list([{**row, "labels": ["mass"]} for row in rows])
    assert add_prompts(images, None)["prompt"][:] == [None, None]

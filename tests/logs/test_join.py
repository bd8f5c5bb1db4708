"""Images and completions, brought together."""

from pathlib import Path

import pytest

from grounding_rewards.logs.join import image_problems, read_log
from grounding_rewards.metrics.read_predictions import read_predictions
from grounding_rewards.rewards.grounding import get_reward
from tests.conftest import write_lines
from tests.tables import table

SOUND = {"id": "a", "completion": "[]", "boxes": [[0, 0, 5, 5]], "labels": ["mass"], "width": 10, "height": 20}


def write(path: Path, *rows: dict) -> list[Path]:
    return [write_lines(path, rows)]


def test_a_log_that_knows_its_images(tmp_path):
    a, b = {**SOUND, "boxes": [], "labels": []}, {**SOUND, "id": "b"}
    rows = [{**row, "completion": text} for row, text in ((a, "[]"), (b, "x"), (a, "again"), (b, ""))]
    answers = read_log(write(tmp_path / "log.jsonl", *rows))
    assert [row["id"] for row in answers.rows] == ["a", "b"]
    assert answers.texts == [["[]", "again"], ["x", ""]]
    assert "The log has 2 answers to every image" in answers.notes[0]


def test_of_a_training_the_answers_of_the_last_step_are_taken(tmp_path):
    """Images are asked about again, not equally often: two answers each time."""
    image = {"boxes": [], "width": 10, "height": 20}
    asked = (("a", 1, "old"), ("b", 1, "b at 1"), ("a", 9, "new"), ("a", 10, "newest"))
    rows = [
        {"id": id_, "step": step, "completion": f"{text} {k}", **image} for id_, step, text in asked for k in (0, 1)
    ]
    answers = read_log(write(tmp_path / "log.jsonl", *rows))
    assert answers.texts == [["newest 0", "newest 1"], ["b at 1 0", "b at 1 1"]]
    assert "from 1 to 10, and 4 earlier ones are left out" in answers.notes[0]


def test_a_csv_log_with_labels_is_evaluated_as_it_is_scored(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text('id,completion,boxes,labels,width,height\na,[],"[[0, 0, 5, 5]]","[""nodule""]",10,20\n')
    answers = read_log([log])
    images = read_predictions(answers.rows, answers.texts, get_reward("R4", box_format="qwen3-vl"))
    assert images[0].gt_labels == ("nodule",)


def test_two_images_of_one_name_are_refused(tmp_path):
    log = write(tmp_path / "log.jsonl", {**SOUND, "boxes": []}, {**SOUND, "boxes": [[0] * 4]})
    with pytest.raises(ValueError, match="Expected the same `boxes` in all rows of one image, got others for id 'a'"):
        read_log(log)


def test_the_columns_of_a_row_stand_above_the_sizes_for_all(tmp_path):
    assert read_log(write(tmp_path / "log.jsonl", {**SOUND, "width": 9}), sizes={"width": 4}).rows[0]["width"] == 9


def test_images_of_a_dataset_by_name_in_the_order_of_the_dataset(images, tmp_path):
    names = ["four", "two", "one", "three", "two", "four", "three", "one"]
    rows = [{"id": name, "completion": f"{k}", "resized_width": 5} for k, name in enumerate(names)]
    answers = read_log(write(tmp_path / "log.jsonl", *rows), dataset=images)
    assert answers.texts == [["2", "7"], ["1", "4"], ["3", "6"], ["0", "5"]]
    assert [row["id"] for row in answers.rows] == ["one", "two", "three", "four"]
    assert answers.rows[0]["resized_width"] == 5
    assert answers.rows[0]["boxes"] == [[0, 0, 50, 50]]


def test_rows_are_in_the_order_of_the_images_on_request_alone(images, tmp_path):
    log = write(tmp_path / "log.jsonl", *({"completion": str(k)} for k in range(4)))
    with pytest.raises(ValueError, match=r"ids or file names of the dataset's images, such as 'one', .*--by-order"):
        read_log(log, dataset=images)
    answers = read_log(log, dataset=images, by_order=True)
    assert answers.texts == [["0"], ["1"], ["2"], ["3"]]
    # Another order cannot be seen, and would make every metric wrong.
    assert answers.notes[0].startswith("Rows are taken to be in the order of the images")
    groups = write(tmp_path / "groups.jsonl", *({"completion": str(k)} for k in range(8)))
    pairs = [[str(k), str(k + 1)] for k in (0, 2, 4, 6)]
    assert read_log(groups, dataset=images, by_order=True, in_groups=True).texts == pairs
    with pytest.raises(ValueError, match="as many completions as images for --by-order, got 8 completions for 4"):
        read_log(groups, dataset=images, by_order=True)


@pytest.mark.parametrize(("names", "expected"), table("logs/rows", "names_that_do_not_fit"))
def test_images_and_completions_that_do_not_fit_are_refused(images, tmp_path, names, expected):
    rows = [{"id": name, "completion": "[]"} for name in names]
    with pytest.raises(ValueError, match=expected):
        read_log(write(tmp_path / "log.jsonl", *rows), dataset=images)


def test_two_images_of_the_dataset_with_one_name_are_refused(images, tmp_path):
    log = write(tmp_path / "log.jsonl", *({"id": name, "completion": "[]"} for name in ("one", "two")))
    twice = images.remove_columns("id").add_column("id", ["one", "two", "two", "one"])
    with pytest.raises(ValueError, match="an `id` of its own for every image of the dataset, got 'one', 'two'"):
        read_log(log, dataset=twice)


def test_images_without_ids_are_named_by_their_number(images, tmp_path):
    """As `evaluate --model` names them in completions.jsonl."""
    log = write(tmp_path / "log.jsonl", *({"id": str(k), "completion": str(k)} for k in (3, 2, 1, 0)))
    assert read_log(log, dataset=images.remove_columns("id")).texts == [["0"], ["1"], ["2"], ["3"]]


@pytest.mark.parametrize(
    ("change", "column", "shown"),
    # the last is greater than any float
    [*table("logs/rows", "contradictions"), ({"width": 10**400}, "width", "10+")],
)
@pytest.mark.parametrize("names", [["one", "two", "three", "four"], [None] * 4])
def test_a_log_that_contradicts_the_dataset_is_refused(images, tmp_path, change, column, shown, names):
    rows = [{"id": name, "completion": "[]"} for name in names]
    log = write(tmp_path / "log.jsonl", rows[0] | change, *rows[1:])
    expected = f"got another `{column}` in line 1 of '.*log.jsonl': {shown} for the image with id 'one', of which the"
    with pytest.raises(ValueError, match=expected + r".*1 of 4 images differ"):
        read_log(log, dataset=images, by_order=names[0] is None)


def test_what_the_log_says_after_rounding_is_no_contradiction(images, tmp_path):
    rows = [{**row, "completion": "[]"} for row in images]
    rows[0]["boxes"] = [[0.3, 0, 49.6, 50]]
    rows[1]["ignore_boxes"] = []
    assert len(read_log(write(tmp_path / "log.jsonl", *rows), dataset=images).rows) == 4


@pytest.mark.parametrize(("change", "label_matching", "message"), table("logs/rows", "unmeasurable_images"))
def test_images_that_nothing_can_be_measured_on_are_named(tmp_path, change, label_matching, message):
    rows = [{**SOUND, "box_format": "qwen3-vl"}, {**SOUND, "id": "b", "box_format": "qwen3-vl", **change}]
    with pytest.raises(ValueError, match=message):
        read_log(write(tmp_path / "log.jsonl", *rows), get_reward("R4"), label_matching=label_matching)


def test_many_bad_images_are_counted(tmp_path):
    rows = [{**SOUND, "id": str(k), "boxes": [[0, 0, 5, 25]]} for k in range(30)]
    with pytest.raises(ValueError, match=r"(?s)got 30 of 30 that do not\. .*line 20 of .*\nand 10 more$"):
        read_log(write(tmp_path / "log.jsonl", *rows))


@pytest.mark.parametrize(("labels", "problems"), table("logs/rows", "either_every_box_has_a_label_or_none"))
def test_either_every_box_has_a_label_or_none(labels, problems):
    rows = [{"boxes": [[0, 0, 9, 9]], "labels": label and [label], "width": 50, "height": 50} for label in labels]
    rows.append({"boxes": [], "labels": None, "width": 50, "height": 50})
    assert image_problems(rows) == ({1: problems} if problems else {})


GT = [[0, 0, 50, 50]]
SIZE = {"width": 100, "height": 100}


def log(tmp_path, *rows):
    return [write_lines(tmp_path / "log.jsonl", [{**SIZE, **row} for row in rows])]


def answer(text, **columns):
    return {"completion": text, "boxes": GT, **columns}


def answers(texts, columns):
    """An answer of each letter, with its value of each column."""
    return [answer(text, **{name: values[k] for name, values in columns.items()}) for k, text in enumerate(texts)]


@pytest.mark.parametrize(("texts", "columns", "groups"), table("logs/rows", "rows_of_a_group"))
def test_rows_of_a_group(tmp_path, texts, columns, groups):
    read = read_log(log(tmp_path, *answers(texts, columns)), in_groups=True)
    assert ["".join(texts) for texts in read.texts] == groups


def test_a_size_of_groups_may_be_given(tmp_path):
    read = read_log(log(tmp_path, *map(answer, "abcdef")), in_groups=True, group_size=3)
    assert read.texts == [list("abc"), list("def")]


@pytest.mark.parametrize(("texts", "columns", "options", "message"), table("logs/rows", "ungrouped_logs"))
def test_logs_that_are_refused(tmp_path, texts, columns, options, message):
    with pytest.raises(ValueError, match=message):
        read_log(log(tmp_path, *answers(texts, columns)), in_groups=True, **options)


def test_what_is_left_out_is_said(tmp_path):
    rows = [answer("a", id=1), answer("b", id=1), answer("c", id=2)]
    assert "1 of 3 rows are the only answer" in read_log(log(tmp_path, *rows), in_groups=True).notes[0]


def test_images_of_a_dataset_by_id(tmp_path, images):
    rows = [{"completion": text, "id": name, "temperature": 1.0} for name in ("two", "one") for text in "ab"]
    read = read_log(log(tmp_path, *rows), dataset=images, in_groups=True)
    found = [(row["id"], len(row["boxes"]), row["temperature"]) for row in read.rows]
    assert found == [("one", 1, 1.0), ("two", 2, 1.0)]
    # An image without an id has its number for one.
    nameless = images.remove_columns("id").add_column("id", [None] * len(images))
    numbered = [{**row, "id": {"one": 0, "two": 1}[row["id"]]} for row in rows]
    read = read_log(log(tmp_path, *numbered), dataset=nameless, in_groups=True)
    assert [len(row["boxes"]) for row in read.rows] == [1, 2]
    with pytest.raises(ValueError, match="Expected the `id` of an image of the dataset in every row of the log, got 1"):
        read_log(log(tmp_path, *[{"completion": "a", "id": "elsewhere"}] * 2), dataset=images, in_groups=True)
    with pytest.raises(ValueError, match=r"answers to one image .* 4 rows of a group for --group-size, got 'two'"):
        read_log(log(tmp_path, *rows), dataset=images, in_groups=True, group_size=4)

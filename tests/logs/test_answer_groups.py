"""Logs with several answers to each image: which rows are a group."""

from __future__ import annotations

import json

import pytest

from grounding_rewards.logs.answer_groups import read_groups

GT = [[0, 0, 50, 50]]
SIZE = {"width": 100, "height": 100}


def log(tmp_path, *rows):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({**SIZE, **row}) + "\n" for row in rows), encoding="utf-8")
    return [path]


def answer(text, **columns):
    return {"completion": text, "boxes": GT, **columns}


@pytest.mark.parametrize(
    ("rows", "groups"),
    [
        # one id, rows not next to each other
        ([answer("a", id="x"), answer("b", id="y"), answer("c", id="x"), answer("d", id="y")], ["ac", "bd"]),
        # the same image at two steps of a training: two groups
        ([answer(text, id="x", step=k // 2) for k, text in enumerate("abcd")], ["ab", "cd"]),
        # the same image at two temperatures: two groups
        ([answer(text, id="x", temperature=k // 2) for k, text in enumerate("abcd")], ["ab", "cd"]),
        # without ids, by prompt and image
        (
            [answer("a", prompt="p"), answer("b", prompt="p"), answer("c", prompt="q"), answer("d", prompt="q")],
            ["ab", "cd"],
        ),
        ([answer("a"), answer("b"), answer("c", boxes=[]), answer("d", boxes=[])], ["ab", "cd"]),
        # messages are prompts too
        (
            [answer(text, prompt=[{"role": "user", "content": str(k // 2)}]) for k, text in enumerate("abcd")],
            ["ab", "cd"],
        ),
        # images that are alike follow each other: cut to the size of the others
        ([answer("a"), answer("b"), *(answer(text, boxes=[]) for text in "cdef")], ["ab", "cd", "ef"]),
        # groups of different sizes
        (
            [answer("a", id=1), answer("b", id=1), answer("c", id=2), answer("d", id=2), answer("e", id=2)],
            ["ab", "cde"],
        ),
    ],
)
def test_rows_of_a_group(tmp_path, rows, groups):
    read = read_groups(log(tmp_path, *rows))
    assert ["".join(texts) for texts in read.texts] == groups


def test_a_size_of_groups_may_be_given(tmp_path):
    read = read_groups(log(tmp_path, *map(answer, "abcdef")), group_size=3)
    assert read.texts == [list("abc"), list("def")]


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (
            [answer("a", id=1), answer("b", id=2)],
            {},
            "Expected several completions to the same image, got one to each of 2",
        ),
        ([answer("a", id=1), answer("b")], {}, "Expected an `id` in every row of the log, or in none, got 1 of 2"),
        ([*map(answer, "abc")], {"group_size": 2}, "Expected whole groups of 2 rows, got 3 rows"),
        ([*map(answer, "ab")], {"group_size": 1}, "Expected at least 2 for `group_size`, got 1"),
        ([{"completion": "a", "id": 1}] * 2, {}, "Expected `boxes` for every image, got none for 1 of 1: line 1 of"),
    ],
)
def test_logs_that_are_refused(tmp_path, rows, options, message):
    with pytest.raises(ValueError, match=message):
        read_groups(log(tmp_path, *rows), **options)


def test_what_is_left_out_and_assumed_is_said(tmp_path):
    rows = [answer("a", id=1), answer("b", id=1), answer("c", id=2)]
    assert any(
        "1 of 3 rows are the only answer to their image" in note for note in read_groups(log(tmp_path, *rows)).notes
    )
    notes = read_groups(log(tmp_path, *map(answer, "ab"))).notes
    assert any("which makes 1 group of 2" in note for note in notes)


def test_images_of_a_dataset_by_id(tmp_path, images):
    rows = [{"completion": text, "id": name, "temperature": 1.0} for name in ("two", "one") for text in "ab"]
    read = read_groups(log(tmp_path, *rows), dataset=images)
    assert [(row["id"], len(row["boxes"]), row["temperature"]) for row in read.rows] == [
        ("two", 2, 1.0),
        ("one", 1, 1.0),
    ]
    with pytest.raises(
        ValueError, match="Expected the `id` of an image of the dataset in every row of the log, got 1 of 1"
    ):
        read_groups(log(tmp_path, *[{"completion": "a", "id": "elsewhere"}] * 2), dataset=images)


def test_a_log_that_contradicts_the_dataset_is_refused(tmp_path, images):
    rows = [{"completion": text, "id": name} for name in ("two", "one") for text in "ab"]
    for row in rows[2:]:
        row["boxes"] = [[0, 0, 50, 52]]
    expected = r"another `boxes` in line 3 of '.*log.jsonl': .* for the image with id 'one', .*1 of 2 images differ"
    with pytest.raises(ValueError, match=expected):
        read_groups(log(tmp_path, *rows), dataset=images)

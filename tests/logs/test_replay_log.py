"""Answers with their images, from logs of any trainer; what a log lacks is said."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("datasets", reason="needs the train extra")

from grounding_rewards.data.load import load_split
from grounding_rewards.logs.replay_log import read_replay_log
from grounding_rewards.rewards.grounding import get_reward

IMAGE = {"boxes": [[1, 2, 30, 40]], "width": 99, "height": 88, "box_format": "qwen3-vl"}


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return [path]


def test_answers_to_an_image_at_one_step_are_a_group(tmp_path):
    asked = [("a", 1), ("b", 1), ("a", 1), ("a", 2), ("a", 2)]
    rows = [{**IMAGE, "id": name, "step": step, "completion": str(k)} for k, (name, step) in enumerate(asked)]
    log = read_replay_log(write(tmp_path / "log.jsonl", *rows))
    assert log.groups == [[0, 2], [1], [3, 4]]
    assert log.images == ["a", "b", "a", "a", "a"]
    assert log.completions == ["0", "1", "2", "3", "4"]


def test_rollouts_of_verl_have_no_names(tmp_path):
    """An image is told by what is asked and what is to be found; at another step it is the same image."""
    other = {**IMAGE, "boxes": []}
    rows = [
        {"input": "Mark.", "output": "[]", "gts": json.dumps(image), "score": 0.0, "step": step}
        for step in (1, 2)
        for image in (IMAGE, other)
        for _ in range(2)
    ]
    log = read_replay_log(write(tmp_path / "1.jsonl", *rows))
    assert log.groups == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert log.images == ["image 0"] * 2 + ["image 1"] * 2 + ["image 0"] * 2 + ["image 1"] * 2


@pytest.mark.parametrize(
    "row",
    [
        {"input": "Mark.", "output": "[]", "gts": "yes", "score": 0.0, "step": 1},
        {"step": ["1"], "prompt": ["Mark."], "completion": ["[]"], "advantages": [0.0]},
        {"prompt": "Mark.", "completion": "[]", "R4": 0.0, "step": 1},
    ],
)
def test_a_log_without_reference_boxes_says_where_they_may_come_from(tmp_path, row):
    path = tmp_path / "log.jsonl"
    expected = (
        f"Expected reference boxes for every completion, got none for 1 of 1: line 1 of {str(path)!r}. Rewards of this "
        "package log them beside the text where a training says `log_completions: true`; "
    )
    with pytest.raises(ValueError, match=re.escape(expected)):
        read_replay_log(write(path, row))


def test_a_dataset_gives_what_the_log_lacks_and_the_pictures(tmp_path):
    dataset = load_split("synthetic", "train", images=3)
    row = {"id": dataset[1]["id"], "completion": "[]", "box_format": "qwen3-vl"}
    log = read_replay_log(
        write(tmp_path / "log.jsonl", row, {**IMAGE, "id": "elsewhere", "completion": "[]"}), dataset=dataset
    )
    assert [row["boxes"] for row in log.rows] == [dataset[1]["boxes"], IMAGE["boxes"]]
    assert log.load_image(0).size == dataset[1]["image"].size
    assert log.load_image(1) is None


def test_a_log_that_contradicts_the_dataset_is_refused(tmp_path):
    dataset = load_split("synthetic", "train", images=3)
    row = {"id": dataset[1]["id"], "completion": "[]", "boxes": [[1, 2, 3, 4]]}
    with pytest.raises(ValueError, match=rf"another `boxes` in line 1 of .* with id '{row['id']}'"):
        read_replay_log(write(tmp_path / "log.jsonl", row), dataset=dataset)


def test_images_that_cannot_be_right_are_refused_or_left_out(tmp_path):
    good, bad = (
        {**IMAGE, "id": "a", "completion": "[]"},
        {**IMAGE, "id": "b", "completion": "x", "boxes": [[0, 0, 999, 9]]},
    )
    path = write(tmp_path / "log.jsonl", bad, good, good)
    reward = get_reward("R3")
    with pytest.raises(ValueError, match=r"line 1 of .*box 0 is \[0, 0, 999, 9\], outside the image"):
        read_replay_log(path, reward=reward)
    with pytest.warns(UserWarning, match="1 of 3 answers is dropped"):
        log = read_replay_log(path, reward=reward, bad_rows="drop")
    assert log.groups == [[0, 1]]
    assert log.completions == ["[]", "[]"]

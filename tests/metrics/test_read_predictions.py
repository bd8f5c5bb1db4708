"""Completions and baselines as answered images."""

from typing import Any

import numpy as np
import pytest

from grounding_rewards import get_reward
from grounding_rewards.metrics.baselines import baseline_systems
from grounding_rewards.metrics.read_predictions import read_predictions, reading_notes, reference_images
from grounding_rewards.parsing.space_check import SpaceWarning
from grounding_rewards.rewards import SPECIFICATION_REWARDS
from tests.tables import table

REWARD = get_reward("R3", box_format="qwen3-vl")
ROWS: list[dict[str, Any]] = [
    {"id": "a", "boxes": [[0, 0, 50, 50]], "labels": ["mass"], "width": 100, "height": 100, "patient_id": "p"},
    {"id": "b", "boxes": [], "labels": [], "width": 200, "height": 100, "patient_id": ""},
]
HIT = '[{"bbox_2d": [0, 0, 500, 400], "label": "mass"}]'


def test_labels_may_be_an_array() -> None:
    rows = [{**row, "labels": np.array(row["labels"]), "asked": ["once", "twice"]} for row in ROWS]
    assert [image.asked for image in reference_images(rows)] == [(), ()]
    assert reference_images([{**ROWS[0], "asked": "Where is the MASS?"}])[0].asked == ("mass",)
    several = {**ROWS[0], "boxes": [[0, 0, 9, 9]] * 2, "labels": np.array(["mass", "nodule"])}
    assert reference_images([several])[0].gt_labels == ("mass", "nodule")


@pytest.mark.parametrize(("row", "question"), table("metrics/tables", "questions"))
def test_the_question_is_read_from_whatever_column_has_it(row: dict[str, Any], question: str | None) -> None:
    assert reference_images([{**ROWS[0], **row}])[0].question == question
    # As a table that was read from parquet has them.
    arrays = {name: np.array(value, dtype=object) if isinstance(value, list) else value for name, value in row.items()}
    assert reference_images([{**ROWS[0], **arrays}])[0].question == question


def test_answers_are_read_scored_and_kept() -> None:
    one, other = read_predictions(ROWS, [[HIT, "[]", HIT], ["no idea", "[]", "[]"]], REWARD)
    assert (one.id, one.patient, one.status, one.text) == ("a", "p", "boxes", HIT)
    assert one.gt.tolist() == [[0, 0, 50, 50]]
    assert one.pred.tolist() == [[0, 0, 50, 40]]
    assert one.pred_labels == ("mass",)
    assert one.reason == "1 of 1 found, mean IoU 0.80"
    assert one.sampled_rewards == pytest.approx((0.0, 0.8))
    assert (other.status, other.patient, other.rejected) == ("unparseable", None, {"nothing_stated": 1})
    assert other.sampled_rewards == pytest.approx((0.2, 0.2))
    assert (one.sampled_read, other.sampled_read) == ((True, True), (True, True))
    assert (one.sampled_boxes, other.sampled_boxes) == ((0, 1), (0, 0))


def test_all_five_rewards_stand_side_by_side() -> None:
    images = read_predictions(ROWS, [[HIT], ["[]"]], REWARD)
    for image in images:
        assert set(image.rewards) == set(SPECIFICATION_REWARDS)
        expected = {name: get_reward(name).score(image.pred, image.gt) for name in SPECIFICATION_REWARDS}
        assert image.rewards == pytest.approx(expected)


def test_a_column_that_only_some_rows_have() -> None:
    rows = [{**ROWS[0], "ignore_boxes": [[60, 60, 99, 99]]}, {**ROWS[1], "split": "test"}]
    far = '[{"bbox_2d": [0, 0, 500, 500]}, {"bbox_2d": [700, 700, 900, 900]}]'
    one, other = read_predictions(rows, [[far], ["[]"]], REWARD)
    assert one.rewards["R3"] == 1
    assert one.ignore.tolist() == [[60, 60, 99, 99]]
    assert other.ignore.shape == (0, 4)


def test_one_warning_about_the_space_however_many_rewards() -> None:
    # pixels of an image of 2000, where thousandths were declared
    rng = np.random.default_rng(0)
    rows, texts = [], []
    for i in range(40):
        x, y = rng.uniform(0, 1400, 2)
        box = [x, y, x + 500, y + 500]
        rows.append({"id": str(i), "boxes": [box], "labels": ["x"], "width": 2000, "height": 2000})
        texts.append([f'[{{"bbox_2d": {[round(value) for value in box]}}}]'])
    with pytest.warns(SpaceWarning) as caught:
        read_predictions(rows, texts, REWARD)
    assert [warning.category for warning in caught] == [SpaceWarning]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"width": 1, "height": 1}], "a column `boxes` for every image, got none for 1 of 1: row 0"),
        ([ROWS[0], {"id": "c", "boxes": [], "height": 1}], "`width` for every image, got none for 1 of 2: row 1 "),
        ([ROWS[0], ROWS[0]], "a name of its own for every image, got `id` 'a' 2 times"),
    ],
)
def test_images_that_cannot_be_measured_are_refused(rows: list[dict[str, Any]], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        reference_images(rows)


def test_images_without_labels_have_findings() -> None:
    row = {"boxes": [[0, 0, 5, 5], [1, 1, 3, 3]], "width": 9, "height": 9}
    assert reference_images([row])[0].gt_labels == ("finding", "finding")
    assert reference_images([{**row, "labels": ["mass", None]}])[0].gt_labels == ("mass", "finding")
    # Without training images the constant box is that of other patients, of whom there must be some.
    assert "constant box of these images" not in baseline_systems([row], None, REWARD)
    assert "constant box of these images" in baseline_systems([{**row, "id": "a"}, row], None, REWARD)
    for training in (row, {**row, "labels": None}):
        assert baseline_systems([row], [training], REWARD)["constant box"][0].pred_labels == ("finding",)


def test_baselines_know_nothing_of_the_image() -> None:
    training = [{**ROWS[0], "boxes": [[0, 0, 50, 100]]}, {**ROWS[0], "boxes": [[0, 0, 30, 100]]}]
    systems = baseline_systems(ROWS, training, REWARD)
    assert list(systems) == ["reference as answer", "constant box"]
    # the mean of the training boxes, as a part of each image
    assert [image.pred.tolist() for image in systems["constant box"]] == [[[0, 0, 40, 100]], [[0, 0, 80, 100]]]


def test_reference_as_answer_is_the_ceiling() -> None:
    images = baseline_systems(ROWS, None, REWARD)["reference as answer"]
    assert [image.pred.tolist() for image in images] == [image.gt.tolist() for image in images]
    assert [image.pred_labels for image in images] == [image.gt_labels for image in images]
    # the second image is normal: a rightly empty answer earns the bonus
    assert [image.rewards["R3"] for image in images] == [1, 0.2]
    assert [image.status for image in images] == ["boxes", "empty"]


@pytest.mark.parametrize(("unread", "said"), [(0, False), (1, False), (2, True), (10, True)])
def test_more_than_one_unread_answer_in_ten_is_said(unread, said):
    row = {"boxes": [], "width": 50, "height": 50}
    texts = [["" if k < unread else "[]"] for k in range(10)]
    images = read_predictions([row] * 10, texts, get_reward("R3", box_format="qwen3-vl"))
    assert [note.partition(" of 10")[0] for note in reading_notes(images)] == [str(unread)] * said


def test_all_rewards_read_texts_alike() -> None:
    row = {"id": "a", "boxes": [[0, 0, 50, 50]], "width": 100, "height": 100}
    cut_off = '[{"bbox_2d": [0, 0, 500, 500]}, {"bbox_2d": [1,'
    for on_truncated, earned in (("keep", 1.0), ("zero", 0.0)):
        reward = get_reward("soft_f1", box_format="qwen3-vl", on_truncated=on_truncated)
        assert read_predictions([row], [[cut_off]], reward)[0].rewards["R2"] == pytest.approx(earned)

"""The image that every metric, page and export is made from, on its way through a file."""

import math

import numpy as np
import pytest

from grounding_rewards.metrics.prediction import Prediction, load_predictions, save_predictions

ODD = [
    "\ud800 half a character",
    "line\nbreak \r \u2028 \u2029 \x85",  # one image stays one line
    '"quoted" \\ \x00 \u202e',
    "肺结节",
]


@pytest.mark.parametrize("text", ODD)
def test_whatever_a_model_writes_is_kept_in_one_line(text, tmp_path):
    images = [
        Prediction("a", 9, 9, gt=[[0, 0, 5, 5]], gt_labels=[text], pred=[[0, 0, 4, 4]], pred_labels=[text], text=text),
        Prediction(text, 9, 9, patient=text, reason=text),
    ]
    save_predictions(tmp_path / "images.jsonl", images)
    first, second = load_predictions(tmp_path)
    kept = text.replace("\ud800", "?")
    assert (first.text, first.gt_labels, first.pred_labels) == (kept, (kept,), (kept,))
    assert (second.id, second.patient, second.reason) == (kept, kept, kept)


def test_everything_comes_back(tmp_path):
    boxes = {"gt": [[0, 0, 5, 5]], "gt_labels": ["mass"], "pred": [[1, 1, math.nan, 4], [0, 0, math.inf, 1]]}
    boxes |= {"pred_labels": ["mass", None], "pred_scores": [0.5, math.nan], "ignore": [[2, 2, 3, 3]]}
    sampled = {"sampled_rewards": (0.5, 1.0), "sampled_read": (True, False), "sampled_boxes": (2, 0)}
    image = Prediction("a", 640, 480.5, **boxes, **sampled, rejected={"cut_off": 2}, rewards={"R4": 0.25})
    save_predictions(tmp_path / "images.jsonl", [image])
    (back,) = load_predictions(tmp_path / "images.jsonl")
    for name in ("gt", "pred", "pred_scores", "ignore"):
        np.testing.assert_array_equal(getattr(back, name), getattr(image, name))
    plain = ("id", "width", "height", "gt_labels", "pred_labels", "rejected", "rewards", "patient")
    plain += ("sampled_rewards", "sampled_read", "sampled_boxes")
    assert [getattr(back, name) for name in plain] == [getattr(image, name) for name in plain]


@pytest.mark.parametrize("line", ["[]", '{"id": "a", "width": 9, "height": 9}', '{"id": "a", "pred": [[1, 2]]}'])
def test_a_line_that_is_no_image_is_named(line, tmp_path):
    (tmp_path / "images.jsonl").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"Expected (a JSON object|an image of its own) in line 1 of"):
        load_predictions(tmp_path)


def test_two_images_of_one_id_are_refused(tmp_path):
    save_predictions(tmp_path / "images.jsonl", [Prediction(name, 9, 9) for name in "abca"])
    with pytest.raises(ValueError, match=r"an image of its own in line 4 of .* is there already"):
        load_predictions(tmp_path)

"""What is handed to COCO's code, and what comes back; its numbers are compared in test_average_precision.py."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from grounding_rewards.metrics.answered_film import AnsweredFilm
from grounding_rewards.metrics.coco import coco_figures, states_confidences
from grounding_rewards.metrics.sizes import FILM_AREAS
from tests.metrics.random_films import LABELS, random_films, without_confidences


def test_figures_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    film = AnsweredFilm(
        "a",
        100,
        100,
        gt=[[0, 0, 10, 10], [40, 40, 90, 90]],
        gt_labels=["Mass", "effusion"],
        pred=[[0, 0, 10, 9]],
        pred_labels=["mass "],
        pred_scores=[0.8],
    )
    figures = coco_figures([film], [0.5, 0.95])
    assert figures.labels == ("effusion", "mass")
    assert figures.average_precision() == 0.25  # of two labels and two thresholds one is found
    assert figures.average_precision(iou_threshold=0.5, label="mass") == 1.0
    assert figures.average_recall(iou_threshold=0.5) == 0.5
    assert figures.average_precision(area="small", iou_threshold=0.5) == 1.0  # the mass, 100 pixels
    assert figures.average_precision(area="medium") == 0.0  # the effusion, 2500
    assert math.isnan(figures.average_precision(area="large"))
    assert capsys.readouterr() == ("", "")


def test_labels_can_be_left_out_of_it() -> None:
    films = random_films(0)
    figures = coco_figures(films, [0.5], labels="ignore")
    assert figures.labels == ("",)
    assert figures.average_precision() > coco_figures(films, [0.5]).average_precision()


def test_a_label_that_no_film_has_and_a_box_without_one_play_no_part() -> None:
    film = AnsweredFilm(
        "a",
        100,
        100,
        gt=[[0, 0, 10, 10]],
        gt_labels=["mass"],
        pred=[[0, 0, 10, 10], [20, 20, 30, 30], [20, 20, 30, 30]],
        pred_labels=["mass", "invented", None],
        pred_scores=[0.1, 0.9, 0.9],
    )
    assert coco_figures([film], [0.5]).average_precision() == 1.0


@pytest.mark.parametrize(
    ("films", "arguments", "message"),
    [
        (without_confidences(random_films(0)), {}, "Expected a confidence for every predicted box for `films`"),
        (random_films(0), {"iou_thresholds": [0]}, r"Expected numbers in \(0, 1\] for `iou_thresholds`, got \[0\]"),
        (random_films(0), {"labels": "synonyms"}, "Expected 'exact' or 'ignore' for `labels`, got 'synonyms'"),
        (random_films(0), {"areas": FILM_AREAS}, "Expected ranges in pixels for `areas`, got 'small, below 1 %"),
        (random_films(0), {"max_detections": 0}, "Expected a positive whole number for `max_detections`, got 0"),
    ],
)
def test_wrong_arguments_are_refused(films: list[AnsweredFilm], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        coco_figures(films, **arguments)


def test_what_was_not_measured_is_refused() -> None:
    figures = coco_figures(random_films(0), [0.5])
    for arguments in ({"iou_threshold": 0.75}, {"label": "lung"}, {"area": "tiny"}):
        with pytest.raises(ValueError, match="Expected what was measured for"):
            figures.average_precision(**arguments)
    assert set(figures.labels) == set(LABELS)


def test_confidences_are_stated_for_all_boxes_or_not() -> None:
    films = random_films(0)
    assert states_confidences(films)
    assert states_confidences([])
    assert not states_confidences([*films, AnsweredFilm("a", 9, 9, pred=[[0, 0, 5, 5]] * 2, pred_scores=[0.5, np.nan])])


def test_the_library_is_loaded_when_it_is_needed() -> None:
    code = "import sys, grounding_rewards.metrics.coco; print('faster_coco_eval' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"

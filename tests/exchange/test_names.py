"""What films, labels and drawable boxes become in other tools."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.boxes import valid_boxes
from grounding_rewards.exchange.names import UNLABELLED, drawable_boxes, file_names, label_names, pred_labels_of
from grounding_rewards.metrics.answered_film import AnsweredFilm
from tests.conftest import box_lists


def test_labels_of_references_come_first(films):
    names = label_names(films)
    assert names == ["effusion", "mass", "nodule", UNLABELLED]
    assert pred_labels_of(films[1], names) == ["mass", "mass", UNLABELLED]


def test_a_box_without_label_means_the_only_one_there_is():
    film = AnsweredFilm("a", 9, 9, gt=[[0, 0, 5, 5]], gt_labels=["mass"], pred=[[0, 0, 4, 4]])
    # another answer names something else: the references still have one label
    other = AnsweredFilm("b", 9, 9, pred=[[0, 0, 4, 4]], pred_labels=["nodule"])
    names = label_names([film, other])
    assert names == ["mass", "nodule"]
    assert pred_labels_of(film, names) == ["mass"]


def test_no_two_films_share_a_file_name():
    films = [AnsweredFilm(f"{folder}/1", 9, 9, image=f"{folder}/1.png") for folder in "ab"]
    assert file_names(films) == ["a/1.png", "b/1.png"]
    # an id that would lead elsewhere, and then is that of another film
    assert file_names([AnsweredFilm(name, 9, 9) for name in ("../../etc/x", "/y", "..")]) == ["etc/x", "y", "film"]
    assert file_names([AnsweredFilm(name, 9, 9) for name in ("../x", "/x")]) == ["000001_x", "000002_x"]
    # one without an image: all are called after their ids
    assert file_names([AnsweredFilm("x", 9, 9), *films]) == ["x", "a/1.png", "b/1.png"]


@given(box_lists(), st.integers(1, 12), st.integers(1, 12))
def test_what_is_drawn_is_valid_inside_and_part_of_its_box(boxes, width, height):
    given_boxes = np.array([*boxes, [np.nan, 0, 1, 1], [0, 0, np.inf, 1], [-1, -1, 99, 99]])
    drawn, which = drawable_boxes(given_boxes, width, height)
    assert valid_boxes(drawn).all()
    assert (drawn >= 0).all()
    assert (drawn <= [width, height, width, height]).all()
    source = given_boxes[which]
    assert (drawn[:, :2] >= source[:, :2]).all()
    assert (drawn[:, 2:] <= source[:, 2:]).all()
    # the last one covers the film, and only finite ones are drawn
    assert drawn[-1].tolist() == [0, 0, width, height]
    assert not {len(boxes), len(boxes) + 1} & set(which.tolist())

"""What images, labels and drawable boxes become in other tools."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.boxes import valid_boxes
from grounding_rewards.exchange.names import UNLABELLED, drawable_boxes, file_names, label_names, pred_labels_of
from grounding_rewards.metrics.answered_image import AnsweredImage
from tests.conftest import box_lists


def test_labels_of_references_come_first(images):
    names = label_names(images)
    assert names == ["effusion", "mass", "nodule", UNLABELLED]
    assert pred_labels_of(images[1], names) == ["mass", "mass", UNLABELLED]


def test_a_box_without_label_means_the_only_one_there_is():
    image = AnsweredImage("a", 9, 9, gt=[[0, 0, 5, 5]], gt_labels=["mass"], pred=[[0, 0, 4, 4]])
    # another answer names something else: the references still have one label
    other = AnsweredImage("b", 9, 9, pred=[[0, 0, 4, 4]], pred_labels=["nodule"])
    names = label_names([image, other])
    assert names == ["mass", "nodule"]
    assert pred_labels_of(image, names) == ["mass"]


def test_no_two_images_share_a_file_name():
    images = [AnsweredImage(f"{folder}/1", 9, 9, image=f"{folder}/1.png") for folder in "ab"]
    assert file_names(images) == ["a/1.png", "b/1.png"]
    # an id that would lead elsewhere, and then is that of another image
    assert file_names([AnsweredImage(name, 9, 9) for name in ("../../etc/x", "/y", "..")]) == ["etc/x", "y", "image"]
    assert file_names([AnsweredImage(name, 9, 9) for name in ("../x", "/x")]) == ["000001_x", "000002_x"]
    # one without an image: all are called after their ids
    assert file_names([AnsweredImage("x", 9, 9), *images]) == ["x", "a/1.png", "b/1.png"]


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
    # the last one covers the image, and only finite ones are drawn
    assert drawn[-1].tolist() == [0, 0, width, height]
    assert not {len(boxes), len(boxes) + 1} & set(which.tolist())

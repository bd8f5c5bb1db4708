"""Which label is counted where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.confusion import confusion
from tests.metrics.image_pairs import pair_image

PLACES = [[20.0 * k, 0.0, 20.0 * k + 10, 10.0] for k in range(6)]


def image(gt: list[str | None], pred: list[Any], **others: Any) -> AnsweredImage:
    """One box of each kind at every place; None is no reference box there, "" no predicted box."""
    at = [place for place, label in zip(PLACES, gt, strict=False) if label is not None]
    where = [place for place, label in zip(PLACES, pred, strict=False) if label != ""]
    return AnsweredImage(
        "a",
        200,
        20,
        gt=at,
        gt_labels=[label for label in gt if label is not None],
        pred=where,
        pred_labels=[label for label in pred if label != ""],
        **others,
    )


@pytest.mark.parametrize(
    ("gt", "pred", "synonyms", "cells"),
    [
        # right, wrong, missed, invented
        (["mass", "mass", "nodule", None], ["mass", "nodule", "", "mass"], False, {
            ("mass", "mass"): 1, ("mass", "nodule"): 1, ("nodule", "nothing"): 1, ("nothing", "mass"): 1}),
        # case and white space make no difference
        (["Pleural effusion"], ["pleural  EFFUSION "], False, {("pleural effusion", "pleural effusion"): 1}),
        # a label that no reference has, and none
        (["mass", "mass"], ["tumour", None], False, {("mass", "another label"): 1, ("mass", "no label"): 1}),
        (["mass"], ["  "], True, {("mass", "no label"): 1}),
        # another word for the finding counts where asked for
        (["pleural effusion"], ["effusion"], False, {("pleural effusion", "another label"): 1}),
        (["pleural effusion"], ["effusion"], True, {("pleural effusion", "pleural effusion"): 1}),
        # a word without a side agrees with both: the partner's goes first, else the first
        (["right effusion", "left effusion"], ["", "effusion"], True, {
            ("right effusion", "nothing"): 1, ("left effusion", "left effusion"): 1}),
        (["right effusion", "left effusion", None], ["", "", "effusion"], True, {
            ("right effusion", "nothing"): 1, ("left effusion", "nothing"): 1, ("nothing", "right effusion"): 1}),
        # nothing is also what a normal image has
        ([], [], False, {}),
    ],
)  # fmt: skip
def test_labels_by_hand(gt: Any, pred: Any, synonyms: bool, cells: dict[tuple[str, str], int]) -> None:
    found = confusion([image(gt, pred)], synonyms=synonyms)
    counted = {(found.gt[i], found.pred[j]): int(found.counts[i, j]) for i, j in np.argwhere(found.counts > 0).tolist()}
    assert counted == cells


def test_the_most_frequent_label_is_first() -> None:
    found = confusion([image(["mass", "nodule", "nodule"], [])])
    assert found.gt == found.pred == ("nodule", "mass", "nothing")


def test_a_pair_below_the_threshold_is_two_mistakes() -> None:
    one = AnsweredImage("a", 99, 99, gt=[[0, 0, 10, 10]], gt_labels=["x"], pred=[[0, 0, 10, 6]], pred_labels=["x"])
    assert confusion([one]).counts.tolist() == [[1, 0], [0, 0]]
    assert confusion([one], iou_threshold=0.75).counts.tolist() == [[0, 1], [1, 0]]


def test_an_ignored_box_is_not_counted() -> None:
    assert confusion([image([None], ["mass"], ignore=[PLACES[0]])]).counts.sum() == 0


LABELS = st.lists(st.sampled_from(["mass", "nodule", "effusion", None]), max_size=6)


@given(
    st.lists(st.tuples(LABELS, st.lists(st.sampled_from(["mass", "Nodule", "else", None, ""]), max_size=6)), max_size=4)
)
def test_every_box_is_counted_once(images: Any) -> None:
    answered = [image(gt, pred) for gt, pred in images]
    found = confusion(answered)
    assert found.counts.shape == (len(found.gt), len(found.pred))
    # each reference box is in its row, each predicted box in its column
    assert found.counts[:-1].sum() == sum(len(one.gt) for one in answered)
    assert found.counts[:, :-1].sum() == sum(len(one.pred) for one in answered)
    assert found.counts[-1, -1] == 0
    assert found.counts[:-1, :-1].sum() == sum(pair_image(one).hits(0.5).sum() for one in answered)

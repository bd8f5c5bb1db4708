"""IoU of each class against counted pixels, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.areas import class_mean_iou, segmentation_areas
from grounding_rewards.metrics.class_ious import BACKGROUND, class_ious
from tests.conftest import valid_box_lists

LABELS = ("mass", "nodule")


def image(pred=(), pred_labels=(), gt=(), gt_labels=(), name="a", **more):
    boxes = {"pred": np.reshape(pred, (-1, 4)), "gt": np.reshape(gt, (-1, 4))}
    return AnsweredImage(name, 20, 20, **boxes, pred_labels=tuple(pred_labels), gt_labels=tuple(gt_labels), **more)


def counted(images, wanted):
    """Pixels that are in both masks, over those that are in one, as the page on evaluation metrics sums them."""
    both = either = 0
    for one in images:
        masks = []
        for boxes, labels in ((one.pred, one.pred_labels), (one.gt, one.gt_labels)):
            mask = np.zeros((20, 20), dtype=bool)
            for (x1, y1, x2, y2), label in zip(boxes.astype(int), labels, strict=True):
                mask[y1:y2, x1:x2] |= label == wanted or wanted == BACKGROUND
            masks.append(~mask if wanted == BACKGROUND else mask)
        both += (masks[0] & masks[1]).sum()
        either += (masks[0] | masks[1]).sum()
    return both / either if either else None


# Boxes of the shared strategy lie in a frame of 12.
labelled = valid_box_lists(max_size=3).flatmap(
    lambda boxes: st.tuples(
        st.just(np.clip(np.reshape(boxes, (-1, 4)), 0, 20).round()),
        st.lists(st.sampled_from(LABELS), min_size=len(boxes), max_size=len(boxes)),
    )
)


@given(st.lists(st.tuples(labelled, labelled), min_size=1, max_size=3))
def test_pixels_are_counted(answers):
    images = [image(*pred, *gt, name=str(k)) for k, (pred, gt) in enumerate(answers)]
    expected = {one: counted(images, one) for one in (*LABELS, BACKGROUND)}
    assert class_ious(images) == pytest.approx({one: iou for one, iou in expected.items() if iou is not None})


def test_one_label_and_the_background_are_the_two_classes_of_the_areas():
    images = [image([[0, 0, 10, 5]], ["mass"], [[0, 0, 10, 10]], ["mass"]), image(name="b")]
    pooled = segmentation_areas(images).sum(axis=0)
    assert np.mean([*class_ious(images).values()]) == pytest.approx(float(class_mean_iou(pooled)))


@pytest.mark.parametrize(
    ("label", "synonyms", "expected"),
    [
        ("Left  EFFUSION", True, {"pleural effusion": 1.0}),
        # another word is another class, which nothing was drawn of
        ("left effusion", False, {"pleural effusion": 0.0, "left effusion": 0.0}),
        (" Pleural Effusion", False, {"pleural effusion": 1.0}),
        (None, True, {"pleural effusion": 0.0, "no label": 0.0}),
    ],
)
def test_words_for_a_finding(label, synonyms, expected):
    box = [[0, 0, 10, 10]]
    found = class_ious([image(box, [label], box, ["pleural effusion"])], synonyms=synonyms)
    assert found == {**expected, BACKGROUND: 1.0}


def test_a_normal_image_rightly_called_so_has_the_background_alone():
    assert class_ious([image()]) == {BACKGROUND: 1.0}
    assert class_ious([]) == {}


def test_in_an_ignored_region_a_box_of_an_answer_does_not_count():
    assert class_ious([image([[0, 0, 10, 10]], ["mass"], ignore=[[0, 0, 10, 10]])]) == {BACKGROUND: 1.0}

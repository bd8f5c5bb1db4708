"""supervision takes the boxes, and its own IoU of them is ours."""

from __future__ import annotations

import numpy as np
import pytest

from grounding_rewards.exchange.detections import predicted_detections, reference_detections
from grounding_rewards.exchange.names import label_names
from grounding_rewards.overlap import pairwise_iou

supervision = pytest.importorskip("supervision", reason="needs supervision")


def test_boxes_labels_and_confidences(images):
    names = label_names(images)
    pred, gt = predicted_detections(images[0], names), reference_detections(images[0], names)
    assert pred.xyxy.tolist() == images[0].pred.tolist()
    assert pred.confidence.tolist() == [0.9, 0.25]
    assert [names[i] for i in pred.class_id] == pred["class_name"].tolist() == ["mass", "nodule"]
    assert gt["class_name"].tolist() == ["mass", "effusion"]
    assert gt.confidence is None


def test_without_confidences_and_without_boxes(images):
    names = label_names(images)
    assert predicted_detections(images[1], names).confidence is None
    # invalid ones are among them
    assert len(predicted_detections(images[1], names)) == 3
    assert len(predicted_detections(images[2], names)) == len(reference_detections(images[2], names)) == 0


def test_supervision_measures_the_same(images):
    names = label_names(images)
    pred, gt = predicted_detections(images[0], names), reference_detections(images[0], names)
    ious = supervision.box_iou_batch(gt.xyxy, pred.xyxy).T
    np.testing.assert_allclose(ious, pairwise_iou(images[0].pred, images[0].gt), atol=1e-6)

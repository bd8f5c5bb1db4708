"""Areas of unions of boxes against counted pixels and pycocotools, metrics by hand."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from grounding_rewards.common.numeric import ratio_or_nan
from grounding_rewards.metrics.detection import (
    MatchedImages,
    class_mean_iou,
    class_mean_iou_estimate,
    segmentation_areas,
)
from grounding_rewards.metrics.intervals import Jackknifed, sum_by_group
from grounding_rewards.metrics.prediction import Prediction
from tests.conftest import box_lists, valid_box_lists
from tests.tables import table

# Pieces that a side of a pixel is cut into, so that quarters of pixels can be counted.
FINE = 4


def one_image(pred: Any, gt: Any, *, width: int, height: int, ignore: Any = ()) -> MatchedImages:
    boxes = {"gt": gt, "gt_labels": ["x"] * len(gt), "pred": pred, "ignore": ignore}
    return MatchedImages([Prediction("a", width, height, **boxes)])


def box_areas(*boxes: Any, **options: Any) -> np.ndarray:
    return segmentation_areas(one_image(*boxes, **options).images)[0]


def ratio(key: str, image: MatchedImages) -> float:
    return float(ratio_or_nan(*image.sums([key])[key][0]))


def raster(boxes: Any, width: int, height: int) -> np.ndarray:
    """Which pieces of pixels lie in a box, one by one."""
    drawn = np.zeros((height * FINE, width * FINE), dtype=bool)
    for x1, y1, x2, y2 in np.reshape(boxes, (-1, 4)):
        for row in range(height * FINE):
            for column in range(width * FINE):
                x, y = (column + 0.5) / FINE, (row + 0.5) / FINE
                drawn[row, column] |= bool(x1 <= x < x2 and y1 <= y < y2)
    return drawn


def count_areas(pred: np.ndarray, gt: np.ndarray, void: np.ndarray) -> list[float]:
    """Hit, false, missed, rest by counting."""
    kept = gt | ~void
    counts = [pred & gt, pred & ~gt & kept, ~pred & gt, ~pred & ~gt & kept]
    return [int(one.sum()) / FINE**2 for one in counts]


# Inverted boxes, boxes of no area and boxes that reach out of the image of 9 by 7 are among them.
@given(box_lists(max_size=4), box_lists(max_size=4), box_lists(max_size=2))
def test_whole_pixels_are_counted(pred: Any, gt: Any, ignore: Any) -> None:
    expected = count_areas(*(raster(boxes, 9, 7) for boxes in (pred, gt, ignore)))
    assert box_areas(pred, gt, width=9, height=7, ignore=ignore).tolist() == expected


@pytest.mark.parametrize("seed", range(5))
def test_areas_are_those_of_pycocotools(seed: int) -> None:
    coco = pytest.importorskip("pycocotools.mask", reason="compares with pycocotools")
    rng = np.random.default_rng(seed)
    width, height = 120, 90

    def boxes(n: int) -> np.ndarray:
        corners = rng.integers(0, [60, 45], (n, 2))
        return np.concatenate([corners, corners + rng.integers(1, [60, 45], (n, 2))], axis=1).astype(float)

    def union(given: np.ndarray) -> Any:
        sides = np.concatenate([given[:, :2], given[:, 2:] - given[:, :2]], axis=1)
        return coco.merge(coco.frPyObjects(sides, height, width))

    for _ in range(20):
        pred, gt = boxes(int(rng.integers(1, 9))), boxes(int(rng.integers(1, 9)))
        areas = box_areas(pred, gt, width=width, height=height)
        both = [union(pred), union(gt)]
        hit, either = (coco.area(coco.merge(both, intersect=shared)) for shared in (True, False))
        false, missed = (coco.area(one) - hit for one in both)
        assert areas.tolist() == [hit, false, missed, width * height - either]


@given(valid_box_lists(max_size=5), valid_box_lists(max_size=5))
def test_properties_of_areas(pred: Any, gt: Any) -> None:
    image = one_image(pred, gt, width=18, height=18)
    areas = image.areas[0]
    assert areas.sum() == 18 * 18
    assert (areas >= 0).all()
    hit, false, missed, rest = areas.tolist()
    # the two sides change places
    assert box_areas(gt, pred, width=18, height=18).tolist() == [hit, missed, false, rest]
    # a box that is written twice, or as two halves, covers no more and no less
    halves = [half for x1, y1, x2, y2 in pred for half in ([x1, y1, x1 + 0.5, y2], [x1 + 0.5, y1, x2, y2])]
    assert box_areas(halves + pred, gt, width=18, height=18).tolist() == areas.tolist()
    for value in (float(class_mean_iou(areas)), ratio("pixel_accuracy", image), ratio("dice", image)):
        assert math.isnan(value) or 0 <= value <= 1


# by hand; image of 10 by 10
@pytest.mark.parametrize(("pred", "gt", "accuracy", "mean_iou", "dice_value"), table("metrics/tables", "segmentation"))
def test_metrics_by_hand(pred: Any, gt: Any, accuracy: float, mean_iou: float, dice_value: float):
    image = one_image(np.reshape(pred, (-1, 4)), np.reshape(gt, (-1, 4)), width=10, height=10)
    assert ratio("pixel_accuracy", image) == accuracy
    assert float(class_mean_iou(image.areas[0])) == pytest.approx(mean_iou)
    assert ratio("dice", image) == pytest.approx(dice_value, nan_ok=True)


def test_in_an_ignored_region_only_the_reference_counts() -> None:
    # region of 50, half of it reference; 10 by 10 image: the other half of the region plays no part
    image = Prediction("a", 10, 10, gt=[[0, 0, 5, 5]], gt_labels=["x"], pred=[[0, 0, 10, 5]], ignore=[[0, 0, 10, 5]])
    assert segmentation_areas([image]).tolist() == [[25, 0, 0, 50]]


def test_estimates_pool_areas() -> None:
    areas = np.random.default_rng(0).uniform(0, 100, (12, 4))
    areas[3, :3] = 0  # a normal image without a box
    groups = list("aabbccddeeff")
    found = class_mean_iou_estimate(areas, groups=groups)
    units = sum_by_group(areas, groups)
    value, others = float(class_mean_iou(units.sum(axis=0))), class_mean_iou(units.sum(axis=0) - units)
    assert found == pytest.approx(Jackknifed(value, others, 6).estimate)

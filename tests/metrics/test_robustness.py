"""What counts as right and as the same answer, and the metrics against the specification's formulas written out."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from grounding_rewards import get_reward
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.metrics.robustness import AnswerPair, is_right, is_same_answer, robustness_estimates
from grounding_rewards.parsing import BrokenBox
from tests.tables import table

R3 = get_reward("R3")
LABELLED = get_reward("R3", label_matching="exact")
A, B, C = [0.0, 0.0, 10.0, 10.0], [50.0, 50.0, 60.0, 60.0], [30.0, 0.0, 40.0, 10.0]
NEAR_A = [0.0, 0.0, 10.0, 8.0]  # IoU 0.8 with A
FAR_A = [0.0, 0.0, 10.0, 4.0]  # IoU 0.4 with A
INVERTED = [10.0, 10.0, 0.0, 0.0]
UNJUDGED = [45, 45, 65, 65]  # B lies in it


def image(gt: list = (), pred: list = (), **others: Any) -> Prediction:
    others.setdefault("status", "boxes" if pred else "empty")
    others.setdefault("gt_labels", ["mass"] * len(gt))
    return Prediction("a", 100, 100, gt=gt, pred=pred, **others)


def named(said: dict[str, Any]) -> Prediction:
    """An image whose boxes are called by their names above, and whose broken ones by the places where they stood."""
    boxes = {side: [globals()[name] for name in said.get(side, [])] for side in ("gt", "pred", "ignore")}
    return image(**{**said, **boxes, "broken": [BrokenBox(place) for place in said.get("broken", [])]})


@pytest.mark.parametrize(("answered", "right"), table("metrics/tables", "right"))
def test_right(answered: dict[str, Any], right: bool) -> None:
    assert is_right(named(answered), R3) is right


@pytest.mark.parametrize(("label", "right"), [("mass", True), ("nodule", False), (None, False)])
def test_right_needs_the_label_where_the_reward_compares_labels(label: str | None, right: bool) -> None:
    assert is_right(image([A], [A], pred_labels=[label]), LABELLED) is right


@pytest.mark.parametrize(("before", "after", "same"), table("metrics/tables", "the_same_answer"))
def test_the_same_answer(before: dict[str, Any], after: dict[str, Any], same: bool) -> None:
    assert is_same_answer(AnswerPair.unmoved(named(before), named(after)), R3) is same


def test_the_same_answer_moves_with_the_image() -> None:
    before = image(pred=[A, C])
    # A was moved to B, and C off the image but for a rest, which may be marked or not.
    pair = AnswerPair(before, image(pred=[B]), np.array([B, [95.0, 0.0, 100.0, 10.0]]), np.array([True, False]))
    assert is_same_answer(pair, R3)
    assert is_same_answer(replace(pair, after=image(pred=[B, [96, 0, 100, 10]])), R3)
    assert not is_same_answer(replace(pair, after=image(pred=[A])), R3)
    assert not is_same_answer(replace(pair, after=image(pred=[B, A])), R3)


def test_the_metrics_are_the_specifications() -> None:
    images = [
        (image([A], [A]), image([A], [A])),  # right, and still so
        (image([A], [A]), image([A], [B])),  # right, and lost
        (image([A], [A]), image([A], [A, C])),  # right, and lost
        (image([A], [B]), image([A], [C])),  # wrong in another way
        (image([A], [B]), image([A], [A])),  # becomes right
        (image([A], [B]), image([A], [B])),  # stays wrong
        (image(), image()),  # stays right, without a finding
    ]
    pairs = [AnswerPair.unmoved(*pair) for pair in images]
    metrics = robustness_estimates(pairs, R3)
    # Robust accuracy = 1/N Σ 1[f(x_adv) = y]: images 1, 5 and 7
    assert metrics["accuracy"].value == pytest.approx(3 / 7)
    # ASR = 1/N Σ 1[f(x_adv) ≠ f(x)]: images 2, 3, 4 and 5
    assert metrics["attack_success_rate"].value == pytest.approx(4 / 7)
    # of the four that were right, two were lost
    assert metrics["broken_share"].value == pytest.approx(2 / 4)
    # six reference boxes, of which three are still marked exactly
    assert metrics["mean_iou"].value == pytest.approx(3 / 6)

"""What counts as right and as the same answer, and the metrics against the specification's formulas written out."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from grounding_rewards import get_reward
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.metrics.robustness import AnswerPair, is_right, is_same_answer, robustness_estimates
from grounding_rewards.parsing import BrokenBox

R3 = get_reward("R3")
LABELLED = get_reward("R3", label_matching="exact")
A, B, C = [0.0, 0.0, 10.0, 10.0], [50.0, 50.0, 60.0, 60.0], [30.0, 0.0, 40.0, 10.0]
NEAR_A = [0.0, 0.0, 10.0, 8.0]  # IoU 0.8 with A
FAR_A = [0.0, 0.0, 10.0, 4.0]  # IoU 0.4 with A
INVERTED = [10.0, 10.0, 0.0, 0.0]


def image(gt: list = (), pred: list = (), **others: Any) -> Prediction:
    others.setdefault("status", "boxes" if pred else "empty")
    others.setdefault("gt_labels", ["mass"] * len(gt))
    return Prediction("a", 100, 100, gt=gt, pred=pred, **others)


@pytest.mark.parametrize(
    ("answered", "right"),
    [
        (image([A], [NEAR_A]), True),
        (image([A], [FAR_A]), False),  # below the reward's threshold
        (image([A, B], [B, A]), True),  # in any order
        (image([A, B], [A]), False),  # one is missing
        (image([A], [A, B]), False),  # one is too many
        (image([A], [A, A]), False),  # twice the same
        (image([A], [A, INVERTED]), False),  # an invalid box is one too many
        (image([A], [A], broken=(BrokenBox(1),)), False),  # something broken stands for a box
        (image([A], [A], rejected={"unclosed": 1}, status="truncated"), True),  # cut off after all was said
        (image([A], [A, B], ignore=[[45, 45, 65, 65]]), True),  # B lies where nothing counts
        (image([A]), False),
        (image(), True),  # says that there is nothing
        (image(status="unparseable"), False),  # says nothing at all
        (image(status="truncated"), False),
        (image(pred=[A]), False),
        (image(pred=[B], ignore=[[45, 45, 65, 65]]), True),
        # without a complete box the status decides, as in the rewards
        (image(rejected={"quad": 1}, status="empty"), True),
        (image(rejected={"quad": 1}, status="unparseable"), False),
        (image([A], [A], pred_labels=["nodule"]), True),  # R3 compares no labels
    ],
)
def test_right(answered: Prediction, right: bool) -> None:
    assert is_right(answered, R3) is right


@pytest.mark.parametrize(("label", "right"), [("mass", True), ("nodule", False), (None, False)])
def test_right_needs_the_label_where_the_reward_compares_labels(label: str | None, right: bool) -> None:
    assert is_right(image([A], [A], pred_labels=[label]), LABELLED) is right


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (image(pred=[A]), image(pred=[NEAR_A]), True),
        (image(pred=[A]), image(pred=[FAR_A]), False),
        (image(pred=[A, B]), image(pred=[B, A]), True),
        (image(pred=[A, B]), image(pred=[A]), False),
        (image(pred=[A]), image(pred=[A, B]), False),
        (image(pred=[A]), image(), False),
        (image(), image(), True),
        (image(), image(status="unparseable"), False),  # from "nothing there" to no answer
        (image(status="unparseable"), image(status="truncated"), True),  # neither says anything
        (image(status="unparseable", rejected={"quad": 2}), image(status="unparseable", rejected={"quad": 1}), True),
        (image(pred=[INVERTED]), image(pred=[INVERTED]), True),
        (image(pred=[A, INVERTED]), image(pred=[A]), False),
        (image(pred=[A], broken=(BrokenBox(0),)), image(pred=[A]), False),
        (image([A], [A]), image([A], [A], ignore=[A]), True),  # the reference plays no part
    ],
)
def test_the_same_answer(before: Prediction, after: Prediction, same: bool) -> None:
    assert is_same_answer(AnswerPair.unmoved(before, after), R3) is same


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

"""How rewards respond: specification §8.2 to §8.4, computed."""

from __future__ import annotations

import numpy as np
import pytest

import grounding_rewards as gr
from grounding_rewards.audit.response import (
    over_displacement,
    over_false_boxes,
    over_found,
    over_iou,
    slope,
)

NAMES = [name for name in gr.list_rewards() if name in ("R1", "R2", "R3", "R4", "R5", "soft_f1", "pointing")]


def at(curve, x):
    return float(np.interp(x, curve.x, curve.y))


@pytest.mark.parametrize(
    ("name", "expected"),
    # §8.2 at IoU 0.6, with F-beta 1: by hand
    [("R1", 1.0), ("R2", 0.6), ("R3", 0.6), ("R4", 0.6067), ("R5", 0.5), ("soft_f1", 0.6), ("pointing", 1.0)],
)
def test_the_reward_at_iou_06(name, expected):
    assert at(over_iou(gr.get_reward(name)), 0.6) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "iou", "expected"),
    # §8.4: 0 below τ; above it 1, s' and q'
    [("R3", 0.4, 0.0), ("R3", 0.8, 1.0), ("R4", 0.9, 1.15), ("R5", 0.6, 2.0), ("R5", 0.9, 1.0), ("soft_f1", 0.4, 1.0)],
)
def test_the_slope(name, iou, expected):
    assert at(slope(over_iou(gr.get_reward(name))), iou) == pytest.approx(expected, abs=0.01)


def test_a_jump_has_no_slope():
    steep = slope(over_iou(gr.get_reward("R3")))
    assert np.isnan(steep.y).sum() == 1
    assert steep.x[np.isnan(steep.y)] == pytest.approx(0.4975)


@pytest.mark.parametrize("name", NAMES)
def test_false_boxes_never_help(name):
    assert (np.diff(over_false_boxes(gr.get_reward(name)).y) <= 0).all()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "R2"])
def test_finding_more_always_helps(name):
    assert (np.diff(over_found(gr.get_reward(name)).y) > 0).all()


def test_finding_more_does_not_help_under_the_plain_product():
    found = over_found(gr.get_reward("R2"))
    assert found.x[found.y.argmax()] == 0.5


@pytest.mark.parametrize("name", NAMES)
def test_the_map_is_symmetric_and_highest_in_the_middle(name):
    moves, moved = over_displacement(gr.get_reward(name), steps=21)
    assert moves[10] == pytest.approx(0)
    assert moved[10, 10] == moved.max() == 1
    np.testing.assert_allclose(moved, moved.T, atol=1e-9)
    np.testing.assert_allclose(moved, moved[::-1, ::-1], atol=1e-9)

"""Curves from the trainer's log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.report.training_curves import PANELS, read_series, smooth, training_plot
from grounding_rewards.rewards.batch_log import METRIC_KEYS

LOG: list[dict[str, Any]] = [
    {"step": 1, "reward": 0.1, "R4/mean_iou": 0.2, "R4/hallucination_rate": None, "loss": 0.0},
    {"step": 2, "reward": 0.2, "R4/mean_iou": float("nan"), "R4/hallucination_rate": 0.5, "loss": 0.1},
    {"step": 3, "reward": 0.3, "R4/mean_iou": 0.4, "eval_reward": 0.9, "eval_R4/mean_iou": 0.9, "loss": 0.1},
    {"step": 3, "R4/boxes": 2.0, "R4/status/boxes": 0.5, "train_runtime": 2.0},
]


@pytest.mark.parametrize(
    ("key", "steps", "values"),
    [
        ("reward", [1, 2, 3], [0.1, 0.2, 0.3]),  # the whole key, and nothing of the evaluation
        ("mean_iou", [1, 3], [0.2, 0.4]),  # behind the reward's name; NaN left out
        ("hallucination_rate", [2], [0.5]),  # None, as JSON has it for NaN, left out
        ("boxes", [3], [2.0]),  # and not the share of completions with the status "boxes"
        ("iou", [], []),  # part of a key is no key
    ],
)
def test_series(key: str, steps: list[float], values: list[float]) -> None:
    found_steps, found_values = read_series(LOG, key)
    assert found_steps.tolist() == steps
    assert found_values.tolist() == values


def test_panels_know_the_metrics_that_rewards_log() -> None:
    trainer = {"reward", "kl", "loss"}
    assert set(PANELS) <= trainer | set(METRIC_KEYS)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40), st.integers(0, 10))
def test_smoothing_stays_between_the_values(values: list[float], reach: int) -> None:
    smoothed = smooth(np.array(values), reach=reach)
    assert len(smoothed) == len(values)
    assert smoothed.min() >= min(values) - 1e-6
    assert smoothed.max() <= max(values) + 1e-6


def test_smoothing_does_not_lag() -> None:
    line = np.arange(20.0)
    assert smooth(line, reach=3)[3:-3] == pytest.approx(line[3:-3])


def test_curves_are_drawn_and_an_empty_log_has_none() -> None:
    plot = training_plot(LOG)
    assert plot is not None
    assert [axis.get_title(loc="left") for axis in plot.figure().axes][:2] == ["reward", "mean IoU"]
    assert training_plot([]) is None

"""Curves from the trainer's log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from grounding_rewards.metrics.average_precision import Curve
from grounding_rewards.report.plots import curves, read_series, reward_plot
from tests.tables import table

LOG: list[dict[str, Any]] = [
    {"step": 1, "reward": 0.1, "R4/mean_iou": 0.2, "R4/hallucination_rate": None, "loss": 0.0},
    {"step": 2, "reward": 0.2, "R4/mean_iou": float("nan"), "R4/hallucination_rate": 0.5, "loss": 0.1},
    {"step": 3, "reward": 0.3, "R4/mean_iou": 0.4, "eval_reward": 0.9, "eval_R4/mean_iou": 0.9, "loss": 0.1},
    {"step": 3, "R4/boxes": 2.0, "R4/status/boxes": 0.5, "train_runtime": 2.0},
]


@pytest.mark.parametrize(("key", "steps", "values"), table("report/tables", "series"))
def test_series(key: str, steps: list[float], values: list[float]) -> None:
    found = read_series(LOG, key)
    assert (found and (found.x.tolist(), found.y.tolist())) == ((steps, values) if steps else None)


def test_the_reward_stands_beside_that_of_evaluations() -> None:
    steps = [{"step": step, "reward": step / 40} for step in range(1, 21)]
    evaluations = [{"step": step, "eval_reward": step / 50} for step in (10, 20)]
    for log, values in ((steps, None), ([*steps, *evaluations], [0.2, 0.4])):
        plot = reward_plot(log)
        assert plot is not None
        [axis] = plot.figure.axes
        # pale and strong; of the few evaluations points and the line between them, and nothing smoothed
        assert len(axis.lines) == (4 if values else 2)
        if values:
            assert [line.get_ydata().tolist() for line in axis.lines[2:]] == [values] * 2
            names = [text.get_text() for text in axis.get_legend().get_texts()]
            assert names == ["training images", "held-out images"]
    assert reward_plot([{"step": 1, "loss": 0.5}]) is None


def test_the_learning_curves_of_a_study_are_small_multiples() -> None:
    arms = [Curve(f"arm {k}", np.array([0.0, 1.0]), np.array([0.0, 0.1 * k])) for k in range(8)]
    plot = curves("learning", "Learning", "", {"from sft": arms, "from base": arms[:2]}, x="step", y="IoU")
    axes = plot.figure.axes
    assert [len(axis.lines) for axis in axes] == [3, 3, 2, 2]
    colours = {text.get_text(): line.get_color() for axis in axes for text, line in legend_of(axis)}
    assert len(set(colours.values())) == len(colours) == 8
    # an arm has its colour in all panels, and panels are compared on one axis
    assert all(line.get_color() == colours[text.get_text()] for axis in axes for text, line in legend_of(axis))
    [(low, high)] = {axis.get_ylim() for axis in axes}
    # and no panel is cut by the first
    assert low <= 0 < 0.7 <= high


def test_a_long_heading_of_a_panel_is_wrapped() -> None:
    arm, names = Curve("R4", np.array([0.0, 1.0]), np.array([0.0, 0.5])), ("one heading of small multiples", "another")
    headings = [f"{name} that is longer than its panel is wide, continued" for name in names]
    figure = curves("learning", "Learning", "", {key: [arm] for key in [*headings, "short"]}, x="step").figure
    figure.draw_without_rendering()
    left, middle, _ = (axis.get_title(loc="left") for axis in figure.axes)
    assert [" ".join(title.split()) for title in (left, middle)] == headings
    ends = [axis._left_title.get_window_extent() for axis in figure.axes]
    assert ends[0].x1 < ends[1].x0 < ends[1].x1 < ends[2].x0


def legend_of(axis: Any) -> list[tuple[Any, Any]]:
    return list(zip(axis.get_legend().get_texts(), axis.lines, strict=True))

"""What is kept of a log."""

from __future__ import annotations

from grounding_rewards.study.curves import compute_of, thin_curve

ROWS = [
    {"step": 1, "reward": 0.1, "R3/mean_iou": 0.2, "R3/hallucination_rate": None, "num_tokens": 100, "step_time": 2.0},
    {"step": 2, "reward": 0.3, "R3/mean_iou": 0.4, "R3/hallucination_rate": 0.5, "num_tokens": 210, "step_time": 1.0},
    {"step": 3, "reward": 0.5, "R3/mean_iou": 0.6, "R3/hallucination_rate": None, "num_tokens": 300, "step_time": 1.5},
]
CLOSING = {"train_runtime": 9.0, "step": 3}


def test_points_are_means_of_steps():
    assert thin_curve(ROWS, points=2) == {
        "step": [2, 3],
        "reward": [0.2, 0.5],
        "mean_iou": [0.3, 0.6],
        # a step without a negative image says nothing
        "hallucination_rate": [0.5, None],
    }


def test_short_curves_stay_as_they_are():
    assert thin_curve(ROWS)["step"] == [1, 2, 3]


def test_steps_of_equal_cost():
    assert thin_curve([{"step": 4, "loss": 1.0}, {"step": 8, "loss": 0.5}], 0.25)["step"] == [1, 2]


def test_the_whole_run_is_no_point():
    assert thin_curve([*ROWS, CLOSING])["step"] == [1, 2, 3]


def test_compute():
    found = compute_of([*ROWS, CLOSING], 16, 0)
    assert found == {"seconds": 4.5, "steps": 3, "completions": 48, "sequences": 48, "tokens": 300}


def test_seconds_of_a_supervised_run_that_went_on():
    """Its last attempt made two of three steps in 9 seconds."""
    found = compute_of([{"step": 3, "loss": 1.0, "num_tokens": 40}, CLOSING], 16, 1)
    assert found == {"seconds": 13.5, "steps": 3, "completions": 0, "sequences": 48, "tokens": 40}

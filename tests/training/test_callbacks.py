"""A run that learns nothing says so once, with the cause and the remedy."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest

from grounding_rewards.metrics.signal import SIGNAL_KEYS
from grounding_rewards.rewards.batch_log import METRIC_KEYS
from grounding_rewards.training.callbacks import PATIENCE, SignalWarning, SignalWatch, shown_of_rewards
from tests.training.runs import grpo

pytestmark = pytest.mark.training

GOOD = {
    "completions/clipped_ratio": 0.0,
    "frac_reward_zero_std": 0.0,
    "R4/boxes": 1.0,
    "R4/status/empty": 0.0,
    "R4/negatives": 0.5,
    "R4/rejected/wrong_count": 0.0,
}
GOOD |= {f"R4/signal/{key}": 0.0 for key in SIGNAL_KEYS}
CUT = {**GOOD, "completions/clipped_ratio": 1.0, "frac_reward_zero_std": 1.0, "R4/boxes": 0.0}
UNREAD = {**GOOD, "frac_reward_zero_std": 1.0, "R4/boxes": 0.0, "R4/rejected/wrong_count": 0.75}
FLAT = {**GOOD, "frac_reward_zero_std": 1.0, "R4/signal/no_spread": 1.0}
ALIKE = {**FLAT, "R4/signal/all_equal": 1.0}
BELOW = {**FLAT, "R4/signal/all_below_threshold": 0.75, "R4/signal/all_hallucinated": 0.25}
PERFECT = {**FLAT, "R4/signal/all_perfect": 1.0}


def watch(*steps, names=("R4",), functions=(), main=True):
    """The warnings of a run with these metrics step by step; None is a step without completions of its own."""
    trainer = SimpleNamespace(_metrics={"train": {}}, max_completion_length=8)
    watching = SignalWatch(trainer, list(names), functions)
    state = SimpleNamespace(is_world_process_zero=main)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for metrics in steps:
            trainer._metrics["train"] = {} if metrics is None else {key: [value] for key, value in metrics.items()}
            watching.on_step_end(None, state, None)
    assert all(warning.category is SignalWarning for warning in caught)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("metrics", "cause", "remedy"),
    [
        (CUT, "were cut off: max_completion_length 8 is too small", "Raise it"),
        (
            UNREAD,
            "found no box in any answer of 10 steps in a row, and 100% of the latest state no negative either (wrong",
            "grounding-rewards inspect",
        ),
        (ALIKE, "earned the same under R4 in 10 steps in a row", "Raise temperature"),
        (BELOW, "Of 75% of the images: there are findings and boxes, and every answer earns 0", "Lower iou_threshold"),
        (PERFECT, "Of 100% of the images: every answer earns 1", "leave such images out"),
    ],
)
def test_warned_once_with_cause_and_remedy(metrics, cause, remedy):
    (warning,) = watch(*[metrics] * (3 * PATIENCE))
    assert cause in warning
    assert remedy in warning


def test_the_cause_is_the_most_frequent_of_the_steps_that_are_spoken_of():
    (warning,) = watch(*[PERFECT] * 4, *[BELOW] * 6)
    assert "Of 45% of the images: there are findings and boxes" in warning


def test_a_reward_without_spread_is_named_though_another_has_some():
    metrics = {**BELOW, "frac_reward_zero_std": 0.0, **{key.replace("R4", "R1"): value for key, value in GOOD.items()}}
    (warning,) = watch(*[metrics] * PATIENCE, names=("R1", "R4"))
    assert "the same under R4" in warning


def test_not_before_ten_steps_in_a_row():
    assert watch(*[UNREAD] * (PATIENCE - 1), GOOD, *[UNREAD] * (PATIENCE - 1)) == []


def test_steps_that_use_older_completions_neither_count_nor_break_the_row():
    assert watch(*[UNREAD, None] * (PATIENCE - 1)) == []
    assert len(watch(*[UNREAD, None] * PATIENCE)) == 1


def test_answers_that_say_nothing_is_there_are_read():
    assert watch(*[{**GOOD, "R4/boxes": 0.0, "R4/status/empty": 1.0}] * 20) == []


def test_images_without_findings_have_no_boxes_to_be_read():
    assert watch(*[{**GOOD, "R4/boxes": 0.0, "R4/status/empty": 0.9, "R4/negatives": 1.0}] * 20) == []


def test_reward_functions_of_others_are_watched_for_spread_alone():
    metrics = {key: value for key, value in ALIKE.items() if not key.startswith("R4/")}
    assert len(watch(*[metrics] * 20, names=())) == 1


def test_a_function_that_never_returns_a_number_is_named_beside_one_that_does():
    metrics = {**GOOD, "rewards/R4/mean": 0.5, "rewards/mine/mean": float("nan")}
    (warning,) = watch(*[metrics] * 20, functions=("R4", "mine"))
    assert warning.startswith("mine returned NaN or None for every answer of 10 steps in a row")
    # It may have nothing to say of some images.
    assert watch(*[metrics, {**metrics, "rewards/mine/mean": 0.5}] * 20, functions=("R4", "mine")) == []


def test_the_other_processes_are_silent():
    assert watch(*[CUT] * 20, main=False) == []


class TestRealRuns:
    def test_all_answers_cut_off(self, tmp_path):
        with pytest.warns(SignalWarning, match="max_completion_length 1 is too small") as caught:
            grpo(tmp_path / "run", max_completion_length=1, max_steps=PATIENCE + 2, save_strategy="no")
        assert sum(warning.category is SignalWarning for warning in caught) == 1


def test_right_answers_that_would_be_cut_off_are_counted_before_the_first_step(tmp_path):
    with pytest.warns(
        UserWarning, match=r"more than max_completion_length 6 tokens on \d+ of 8 images of train_dataset"
    ):
        grpo(tmp_path / "run", max_completion_length=6, max_steps=1, save_strategy="no")


def test_what_is_shown_is_logged():
    shown = shown_of_rewards(["R4"])
    assert {key.removeprefix("R4/") for key in shown if key.startswith("R4/")} <= set(METRIC_KEYS)

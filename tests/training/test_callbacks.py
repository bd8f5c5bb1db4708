"""A run that learns nothing says so once."""

import warnings
from types import SimpleNamespace

import pytest

from grounding_rewards.metrics.signal import SIGNAL_KEYS
from grounding_rewards.rewards.scoring import METRIC_KEYS
from grounding_rewards.training.callbacks import PATIENCE, SignalWarning, SignalWatch, bar_labels
from tests.training.runs import grpo

pytestmark = pytest.mark.training

GOOD = {"frac_reward_zero_std": 0.0, **{f"R4/signal/{key}": 0.0 for key in SIGNAL_KEYS}}
FLAT = {**GOOD, "frac_reward_zero_std": 1.0}
CUT = {**FLAT, "R4/signal/all_cut_off": 1.0}
UNREAD = {**FLAT, "R4/signal/all_unread": 1.0}
ALIKE = {**FLAT, "R4/signal/all_equal": 1.0}
BELOW = {**FLAT, "R4/signal/all_below_threshold": 0.75, "R4/signal/all_hallucinated": 0.25}
PERFECT = {**FLAT, "R4/signal/all_perfect": 1.0}


def watch(*steps, names=("R4",), functions=(), main=True):
    """The warnings of a run with these metrics step by step; a step with older completions adds none to the log.

    None is such a step behind a log, and "older" one before it.
    """
    trainer = SimpleNamespace(_metrics={"train": {}})
    watching = SignalWatch(trainer, list(names), functions)
    state = SimpleNamespace(is_world_process_zero=main)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for metrics in steps:
            if metrics != "older":
                trainer._metrics["train"] = {key: [value] for key, value in (metrics or {}).items()}
            watching.on_step_end(None, state, None)
    assert all(warning.category is SignalWarning for warning in caught)
    return [str(warning.message) for warning in caught]


OF_TWO = {**BELOW, "frac_reward_zero_std": 0.0, **{key.replace("R4", "R1"): value for key, value in GOOD.items()}}
OF_OTHERS = {key: value for key, value in ALIKE.items() if not key.startswith("R4/")}


@pytest.mark.parametrize(
    ("steps", "names", "words"),
    [
        ([CUT] * 30, ["R4"], ["100% of them because every answer was cut off", "Raise max_completion_length"]),
        ([UNREAD] * 30, ["R4"], ["no answer has a complete box", "grounding-rewards inspect"]),
        ([ALIKE] * 30, ["R4"], ["10 steps in a row are without spread under R4", "Raise temperature"]),
        ([BELOW] * 30, ["R4"], ["75% of them because there are findings and boxes, and every", "Lower iou_threshold"]),
        ([PERFECT] * 30, ["R4"], ["100% of them because every answer earns 1", "leave such images out"]),
        # the most frequent cause of the latest steps
        ([*[PERFECT] * 4, *[BELOW] * 6], ["R4"], ["45% of them because there are findings and boxes"]),
        # though another reward has some
        ([OF_TWO] * PATIENCE, ["R1", "R4"], ["without spread under R4"]),
        # steps that use older completions neither count nor break the row
        ([UNREAD, None] * PATIENCE, ["R4"], ["no answer has a complete box"]),
        # reward functions of others are watched for spread alone
        ([OF_OTHERS] * 20, [], ["without spread"]),
    ],
)
def test_warned_once_with_cause_and_remedy(steps, names, words):
    (warning,) = watch(*steps, names=names)
    assert all(part in warning for part in words)


@pytest.mark.parametrize(
    ("steps", "main"),
    [
        ([*[UNREAD] * (PATIENCE - 1), GOOD, *[UNREAD] * (PATIENCE - 1)], True),
        ([UNREAD, "older", None] * (PATIENCE - 1), True),
        # the first process alone warns
        ([CUT] * 20, False),
    ],
)
def test_no_warning(steps, main):
    assert watch(*steps, main=main) == []


def test_function_without_any_number_is_named():
    metrics = {**GOOD, "rewards/R4/mean": 0.5, "rewards/mine/mean": float("nan")}
    (warning,) = watch(*[metrics] * 20, functions=("R4", "mine"))
    assert warning.startswith("mine returned NaN or None for every answer of 10 steps in a row")
    # It may have nothing to say of some images.
    assert watch(*[metrics, {**metrics, "rewards/mine/mean": 0.5}] * 20, functions=("R4", "mine")) == []


def test_answers_that_are_cut_off_in_a_real_run(tmp_path):
    with pytest.warns(SignalWarning) as caught:
        grpo(tmp_path / "run", max_completion_length=1, max_steps=PATIENCE + 2, save_strategy="no")
    said = [str(one.message) for one in caught if one.category is SignalWarning]
    assert len(said) == 1
    assert "every answer was cut off before its first complete box" in said[0]


def test_what_is_shown_is_logged():
    labels = bar_labels(["R4"])
    assert {key.removeprefix("R4/") for key in labels if key.startswith("R4/")} <= set(METRIC_KEYS)

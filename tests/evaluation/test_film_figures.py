"""The figures that head an evaluation: equal to the rewards', and by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given

from grounding_rewards import get_reward
from grounding_rewards.data.answered import AnsweredFilm
from grounding_rewards.evaluation.film_figures import film_figures, film_sums
from tests.conftest import box_lists, valid_box_lists

TRUTH: dict[str, Any] = {"width": 100, "height": 100, "gt": [[0, 0, 10, 10], [50, 50, 60, 60]], "gt_labels": ["a", "b"]}


@pytest.mark.parametrize(
    ("film", "expected"),
    [
        # IoU 0.8 with the first; the second is missed; one false box of 100 pixels
        (
            AnsweredFilm("1", **TRUTH, pred=[[0, 0, 10, 8], [80, 80, 90, 90]], pred_labels=["b", "b"]),
            {"f1_50": (2, 4), "mean_iou": (0.8, 2), "dice": (160, 380), "pixel_accuracy": (9780, 10000)},
        ),
        # the same with the false box in an ignored region, which is no part of the film then
        (
            AnsweredFilm("1", **TRUTH, pred=[[0, 0, 10, 8], [80, 80, 90, 90]], ignore=[[70, 70, 100, 100]]),
            {"f1_50": (2, 3), "precision_50": (1, 1), "dice": (160, 280)},
        ),
        # a normal film, rightly empty
        (AnsweredFilm("1", 9, 9, status="empty"), {"f1_50": (0, 0), "dice": (0, 0), "pixel_accuracy": (81, 81)}),
        # a broken box beside a complete one is a false one, as in the rewards
        (
            AnsweredFilm("1", **TRUTH, pred=[[0, 0, 10, 8]], rejected={"wrong_count": 1}),
            {"precision_50": (1, 2), "f1_50": (2, 4)},
        ),
    ],
)
def test_sums_by_hand(film: AnsweredFilm, expected: dict[str, tuple[float, float]]) -> None:
    sums = film_sums([film])
    assert {key: tuple(sums[key][0]) for key in expected} == {key: pytest.approx(one) for key, one in expected.items()}


@given(box_lists(), valid_box_lists(min_size=1, max_size=4), valid_box_lists(max_size=2))
def test_one_film_has_the_f_beta_precision_and_recall_of_its_reward(pred: Any, gt: Any, ignore: Any) -> None:
    reward = get_reward("R3", matching="hungarian", beta=1.0)
    explained = reward.explain(pred, gt, ignore=ignore)
    film = AnsweredFilm("1", 20, 20, gt=gt, gt_labels=["x"] * len(gt), pred=pred, ignore=ignore)
    sums = film_sums([film])
    for key, expected in (
        ("f1_50", explained.f_beta),
        ("precision_50", explained.precision),
        ("recall_50", explained.recall),
    ):
        numerator, denominator = sums[key][0]
        assert (numerator / denominator if denominator else 0.0) == pytest.approx(expected), key


def test_rewards_that_every_film_has() -> None:
    films = [
        AnsweredFilm("1", 9, 9, rewards={"R1": 0.5, "R4": 0.25}, sampled_rewards=(0.0, 1.0)),
        AnsweredFilm("2", 9, 9, rewards={"R4": 0.75}, sampled_rewards=(0.5,)),
    ]
    found = film_sums(films)
    assert found["reward_R4"].tolist() == [[0.25, 1.0], [0.75, 1.0]]
    assert found["sampled_reward"].tolist() == [[0.5, 1.0], [0.5, 1.0]]
    assert "reward_R1" not in found
    assert {"reward_R4", "sampled_reward"}.isdisjoint(film_sums([*films, AnsweredFilm("3", 9, 9)]))


def test_every_figure_has_sums_and_every_sum_a_figure() -> None:
    films = [AnsweredFilm("1", 9, 9, rewards={"R1": 0.5}, sampled_rewards=(0.0, 1.0))]
    assert list(film_figures(films)) == list(film_sums(films))
    assert all(sums.shape == (0, 2) for sums in film_sums([]).values())


@given(box_lists(), valid_box_lists(max_size=4))
def test_shares_are_shares(pred: Any, gt: Any) -> None:
    film = AnsweredFilm("1", 20, 20, gt=gt, gt_labels=["x"] * len(gt), pred=pred)
    for key, sums in film_sums([film]).items():
        numerator, denominator = sums[0]
        assert math.isfinite(numerator)
        if key not in ("false_per_film", "count_error", "count_bias"):
            assert 0 <= numerator <= denominator + 1e-9, key

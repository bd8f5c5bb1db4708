"""The figures that head an evaluation: equal to the rewards', and by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given

from grounding_rewards import get_reward
from grounding_rewards.metrics.answered_film import AnsweredFilm
from grounding_rewards.metrics.film_figures import (
    film_figures,
    film_sums,
    label_groups,
    reference_ious,
    reference_sums,
)
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


def test_ious_of_all_references_come_in_the_order_of_films() -> None:
    films = [
        AnsweredFilm("1", 20, 20, gt=[[15, 15, 20, 20], [0, 0, 10, 10]], gt_labels=["x", "mass"], pred=[[0, 0, 10, 5]]),
        AnsweredFilm("2", 20, 20, pred=[[0, 0, 1, 1]]),
        AnsweredFilm("3", 20, 20, gt=[[0, 0, 1, 1]], gt_labels=["Mass"]),
    ]
    assert reference_ious(films).tolist() == [0.0, 0.5, 0.0]
    # the predicted box has no label, and so none that agrees
    assert reference_ious(films, labels="exact").tolist() == [0.0, 0.0, 0.0]
    assert reference_ious([]).shape == (0,)
    groups = label_groups(films)
    assert {name: members.tolist() for name, members in groups.items()} == {
        "mass": [False, True, True],
        "x": [True, False, False],
    }
    assert reference_sums(films, groups)["mass", "recall_50"].tolist() == [[1, 1], [0, 0], [0, 1]]


@pytest.mark.parametrize(
    ("words", "labels", "expected"),
    [
        (["Mass", "mass ", "mass"], "exact", {"mass": 3}),
        (["effusion", "pleural effusion", "pleural effusion"], "exact", {"pleural effusion": 2, "effusion": 1}),
        (["effusion", "pleural effusion", "pleural effusion"], "synonyms", {"pleural effusion": 3}),
        (["", "mass"], "exact", {"": 1, "mass": 1}),
        ([], "exact", {}),
    ],
)
def test_labels_that_are_compared_as_one_are_one_group(words: list[str], labels: str, expected: dict[str, int]) -> None:
    film = AnsweredFilm("1", 20, 20, gt=[[0, 0, 1, 1]] * len(words), gt_labels=words)
    assert {name: int(members.sum()) for name, members in label_groups([film], labels).items()} == expected

"""Figures of detection by hand, and against the rewards, from whose matcher they come."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.metrics.answered_film import AnsweredFilm
from grounding_rewards.metrics.calibration import calibration
from grounding_rewards.metrics.confusion import confusion
from grounding_rewards.metrics.counts import (
    DETECTION_FIGURES,
    MatchedFilms,
    detection_sums,
    film_figures,
    film_sums,
    label_groups,
    reference_ious,
    reference_sums,
)
from grounding_rewards.metrics.estimates import COUNT, SIGNED, UNIT
from grounding_rewards.metrics.jackknife import ratio_estimates
from grounding_rewards.metrics.ranking import rank_boxes
from grounding_rewards.metrics.sizes import FILM_AREAS
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.parsing import BrokenBox
from grounding_rewards.rewards import MeanIoUReward
from grounding_rewards.rewards.grounding import get_reward
from tests.conftest import box_lists, valid_box_lists
from tests.metrics.film_pairs import pair_film
from tests.metrics.random_films import LABELS, random_films

HIT, HALF, JUNK = [0, 0, 50, 50], [0, 0, 50, 25], [80, 0, 90, 10]


def values(films: list[AnsweredFilm], **arguments: Any) -> dict[str, float]:
    found = ratio_estimates(detection_sums(films, **arguments))
    return {key: estimate.value for key, estimate in found.items()}


def test_figures_by_hand() -> None:
    films = [
        # IoU 0.5
        AnsweredFilm("one", 100, 100, gt=[HIT], gt_labels=["mass"], pred=[HALF], pred_labels=["Mass"]),
        # one of two found, under another label, and one invented
        AnsweredFilm(
            "two",
            100,
            100,
            gt=[[0, 0, 20, 20], [50, 50, 100, 100]],
            gt_labels=["mass", "effusion"],
            pred=[[0, 0, 20, 20], JUNK],
            pred_labels=["effusion", None],
        ),
        AnsweredFilm("three", 100, 100, pred=[HALF]),
        AnsweredFilm("four", 100, 100, status="empty"),
        AnsweredFilm("five", 100, 100, status="unparseable"),
    ]
    assert values(films) == pytest.approx(
        {
            "mean_iou": (0.5 + 1 + 0) / 3,
            "f1_50": 2 * 2 / (4 + 3),
            "f_beta_50": 3.25 * 2 / (2.25 * 3 + 4),
            "precision_50": 2 / 4,
            "recall_30": 2 / 3,
            "recall_50": 2 / 3,
            "recall_75": 1 / 3,
            "accuracy_50": 1.0,  # film one alone has one reference box
            "phrase_mean_iou": 0.5,
            "hallucination_rate": 1 / 3,
            "specificity": 1 / 3,  # film five is no stated negative
            "film_sensitivity": 1.0,
            "false_per_film": 2 / 5,
            "count_error": 1 / 5,
            "count_bias": 1 / 5,
            "label_accuracy": 1 / 2,
            "unparseable_share": 1 / 5,
        }
    )


@given(box_lists(), valid_box_lists(max_size=4), valid_box_lists(max_size=2))
def test_f_beta_of_one_film_is_that_of_the_reward(
    pred: list[list[float]], gt: list[list[float]], ignore: list[list[float]]
) -> None:
    film = AnsweredFilm("a", 30, 30, gt=gt, gt_labels=[""] * len(gt), pred=pred, ignore=ignore)
    figures = values([film])
    for key, beta in (("f1_50", 1.0), ("f_beta_50", 1.5)):
        explained = MeanIoUReward(beta=beta, matching="most_hits").explain(
            np.reshape(pred, (-1, 4)), np.reshape(gt, (-1, 4)), ignore=np.reshape(ignore, (-1, 4))
        )
        counted = len(pred) - len(explained.ignored) + len(gt) > 0
        assert figures[key] == pytest.approx(explained.f_beta if counted else math.nan, nan_ok=True, abs=1e-12)
    assert figures["precision_50"] == pytest.approx(explained.precision, abs=1e-12) or math.isnan(
        figures["precision_50"]
    )
    assert figures["recall_50"] == pytest.approx(explained.recall, abs=1e-12) or math.isnan(figures["recall_50"])


@pytest.mark.parametrize(
    "text",
    [
        '[{"bbox_2d": [0, 0, 500, 250]}]',
        '[{"bbox_2d": [0, 0, 500, 250]}, {"bbox_2d": [0, 0, 500]}, {"bbox_2d": [9, 9, 1, 1]}]',  # broken and inverted
        "[]",
        "what?",
    ],
)
def test_what_a_text_earns_and_what_it_is_measured_by_agree(text: str) -> None:
    reward = get_reward("R3", beta=1.5, box_format="qwen3-vl")
    (scored,) = reward.details([text], boxes=[[HIT]], width=[100], height=[100])
    parsed = scored.parsed
    film = AnsweredFilm(
        "a", 100, 100, gt=[HIT], gt_labels=[""], pred=parsed.boxes, status=parsed.status, broken=parsed.broken
    )
    figures = values([film])
    assert figures["f_beta_50"] == pytest.approx(scored.explanation.f_beta)
    assert figures["false_per_film"] == scored.explanation.fp


@given(box_lists(max_size=4), valid_box_lists(max_size=4))
def test_mean_iou_is_that_of_the_best_pairing(pred: list[list[float]], gt: list[list[float]]) -> None:
    film = AnsweredFilm("a", 30, 30, gt=gt, gt_labels=[""] * len(gt), pred=pred)
    assert detection_sums([film])["mean_iou"].tolist() == [[pytest.approx(pair_film(film).ious.sum()), len(gt)]]
    ious, there = MatchedFilms([film]).best_ious
    assert ious[there].tolist() == pytest.approx(pair_film(film).ious.tolist())


def test_a_box_more_loses_no_hit_by_hand() -> None:
    # A box between two findings, and one more that reaches the first finding alone, below the threshold.
    gt = [[35, 0, 135, 100], [103, 0, 203, 100]]
    one, more = [68, 0, 168, 100], [0, 0, 100, 100]
    iou = pairwise_iou([one, more], gt)
    # The greatest sum of IoUs, 65/135 twice, has no hit.
    assert iou.tolist() == [[pytest.approx(67 / 133), pytest.approx(65 / 135)], [pytest.approx(65 / 135), 0]]
    alone, both = (
        AnsweredFilm("a", 300, 100, gt=gt, gt_labels=["x", "y"], pred=boxes) for boxes in ([one], [one, more])
    )
    for film in (alone, both):
        assert values([film])["recall_50"] == 0.5
        assert values([film], label_matching="ignore")["recall_50"] == 0.5
        groups = label_groups([film])
        assert [reference_sums([film], groups)[name, "recall_50"].tolist() for name in groups] == [[[1, 1]], [[0, 1]]]
        assert pair_film(film).hits(0.5).tolist() == [True, False]
    assert calibration([replace(both, pred_scores=[0.5, 0.5])]).precision.tolist() == [0.5]  # type: ignore[union-attr]
    assert confusion([both]).counts.tolist() == [[0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    # The mean IoU is another matter: it is of the pairs whose sum is greatest.
    assert values([both])["mean_iou"] == pytest.approx(65 / 135)


def most_hits_of_all(film: AnsweredFilm, iou_threshold: float) -> int:
    """By trying every assignment of reference boxes to predicted ones."""
    right = pairwise_iou(film.pred, film.gt) >= iou_threshold
    few, many = sorted(right.shape)
    wide = right if right.shape[0] == few else right.T
    return max(sum(bool(wide[i, j]) for i, j in enumerate(order)) for order in permutations(range(many), few))


@given(valid_box_lists(max_size=5), valid_box_lists(max_size=4), st.sampled_from([0.1, 0.3, 0.5, 0.75]))
def test_hits_are_as_many_as_can_be_and_a_box_more_loses_none(
    pred: list[list[float]], gt: list[list[float]], iou_threshold: float
) -> None:
    films = [AnsweredFilm(str(n), 30, 30, gt=gt, gt_labels=[""] * len(gt), pred=pred[:n]) for n in range(len(pred) + 1)]
    tp = MatchedFilms(films).counts(iou_threshold).tp.tolist()
    assert tp == [most_hits_of_all(film, iou_threshold) for film in films]
    assert tp == sorted(tp)
    assert tp == [pair_film(film).hits(iou_threshold).sum() for film in films]
    lower = MatchedFilms(films).counts(iou_threshold - 0.1 or 0.05).tp.tolist()
    assert all(few <= many for few, many in zip(tp, lower, strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_ap_with_all_boxes_tied(seed: int) -> None:
    # Ignored regions excuse one box each in counts, and any number, as COCO's crowds, in AP.
    films = [replace(film, ignore=()) for film in random_films(seed)]
    ranked = rank_boxes(films, [0.5], ranking="tied").of_label(None)
    counts = MatchedFilms(films).counts(0.5)
    assert counts.tp.sum() == ranked.hit.sum()
    assert counts.n.sum() == ranked.counts.sum()
    assert counts.m.tolist() == ranked.references.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_labels_and_sizes_add_up_to_the_whole(seed: int) -> None:
    films = random_films(seed)
    for labels in ("exact", "synonyms"):
        whole = MatchedFilms(films, label_matching=labels).counts(0.5)
        parts = [MatchedFilms(films, label_matching=labels, label=label).counts(0.5) for label in LABELS]
        np.testing.assert_array_equal(np.sum(parts, axis=0), whole)
    # one box at the border of two sizes
    films.append(AnsweredFilm("border", 100, 100, gt=[[0, 0, 10, 10]], gt_labels=["mass"], pred=[[0, 0, 10, 9]]))
    parts = [MatchedFilms(films, area=area).counts(0.5) for area in FILM_AREAS.values()]
    np.testing.assert_array_equal(np.sum(parts, axis=0), MatchedFilms(films).counts(0.5))


def test_labels_that_are_compared() -> None:
    film = AnsweredFilm(
        "a",
        100,
        100,
        gt=[HIT, JUNK],
        gt_labels=["left effusion", "mass"],
        pred=[HIT, JUNK],
        pred_labels=["Pleural effusion", None],
    )
    assert values([film])["recall_50"] == 1.0
    assert values([film], label_matching="exact")["recall_50"] == 0.0
    assert values([film], label_matching="synonyms")["recall_50"] == 0.5
    assert values([film], label_matching="synonyms", label="effusion")["f1_50"] == 1.0
    mass = values([film], label_matching="synonyms", label="mass")
    assert mass["recall_50"] == 0.0
    assert math.isnan(mass["precision_50"])  # the box without a label is nobody's


def test_boxes_in_ignore_regions_do_not_count() -> None:
    film = AnsweredFilm("a", 100, 100, pred=[JUNK], ignore=[[70, 0, 100, 20]])
    figures = values([film])
    assert (figures["hallucination_rate"], figures["specificity"], figures["count_error"]) == (0.0, 1.0, 0.0)


def test_a_phrase_is_answered_by_the_highest_scoring_box() -> None:
    film = AnsweredFilm("a", 100, 100, gt=[HIT], gt_labels=["mass"], pred=[JUNK, HIT])
    assert values([film])["phrase_mean_iou"] == 0.0
    assert values([replace(film, pred_scores=[0.2, 0.8])])["phrase_mean_iou"] == 1.0
    assert values([replace(film, pred_scores=[math.nan, 0.1])])["accuracy_50"] == 1.0
    assert values([replace(film, pred=[], pred_labels=(), pred_scores=[])])["accuracy_50"] == 0.0
    assert math.isnan(values([replace(film, gt=[HIT, JUNK], gt_labels=["mass"] * 2)])["accuracy_50"])


def test_no_films_and_every_key() -> None:
    sums = detection_sums([])
    assert list(sums) == list(DETECTION_FIGURES)
    assert all(one.shape == (0, 2) for one in sums.values())
    for heading, definition, of, lower_is_better, is_share, bounds in DETECTION_FIGURES.values():
        assert heading
        assert definition
        assert callable(of)
        assert lower_is_better in (True, False, None)
        assert is_share in (True, False)
        assert bounds in (UNIT, COUNT, SIGNED)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"label_matching": "fuzzy"}, "`label_matching`, got 'fuzzy'"),
        ({"label": "mass"}, "Expected a label that is compared for `label`, got 'mass' with label_matching='ignore'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        detection_sums(random_films(0, 2), **arguments)


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
            AnsweredFilm("1", **TRUTH, pred=[[0, 0, 10, 8]], broken=(BrokenBox(0),)),
            {"precision_50": (1, 2), "f1_50": (2, 4)},
        ),
    ],
)
def test_sums_by_hand(film: AnsweredFilm, expected: dict[str, tuple[float, float]]) -> None:
    sums = film_sums([film])
    assert {key: tuple(sums[key][0]) for key in expected} == {key: pytest.approx(one) for key, one in expected.items()}


@given(box_lists(), valid_box_lists(min_size=1, max_size=4), valid_box_lists(max_size=2))
def test_one_film_has_the_f_beta_precision_and_recall_of_its_reward(pred: Any, gt: Any, ignore: Any) -> None:
    reward = get_reward("R3", matching="most_hits", beta=1.0)
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


def test_sampled_answers_that_cannot_be_read() -> None:
    films = [
        AnsweredFilm("1", 9, 9, sampled_read=(True, False, False, True)),
        AnsweredFilm("2", 9, 9, sampled_read=(True, True)),
        AnsweredFilm("3", 9, 9, sampled_read=(False,)),
    ]
    # first the share on each film, then the mean over films: (1/2 + 0 + 1) / 3, not 3 of 7
    assert ratio_estimates(film_sums(films))["sampled_unparseable_share"].value == 0.5
    figure = film_figures(films)["sampled_unparseable_share"]
    assert (figure.heading, figure.lower_is_better) == ("unparseable sampled answers", True)
    assert "sampled_unparseable_share" not in film_sums([*films, AnsweredFilm("4", 9, 9)])


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
    assert reference_ious(films, label_matching="exact").tolist() == [0.0, 0.0, 0.0]
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

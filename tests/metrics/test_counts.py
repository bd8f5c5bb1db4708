"""Figures of detection by hand, and against the rewards, from whose matcher they come."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.metrics.answered_film import AnsweredFilm
from grounding_rewards.metrics.bootstrap import ratio_estimates
from grounding_rewards.metrics.counts import DETECTION_FIGURES, MatchedFilms, detection_sums, without_duplicates
from grounding_rewards.metrics.pairing import pair_film
from grounding_rewards.metrics.ranking import FILM_AREAS, rank_boxes
from grounding_rewards.rewards import MeanIoUReward
from grounding_rewards.rewards.grounding import get_reward
from tests.conftest import box_lists, valid_box_lists
from tests.metrics.random_films import LABELS, random_films

HIT, HALF, JUNK = [0, 0, 50, 50], [0, 0, 50, 25], [80, 0, 90, 10]


def values(films: list[AnsweredFilm], **arguments: Any) -> dict[str, float]:
    found = ratio_estimates(detection_sums(films, **arguments), resamples=2)
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


@given(box_lists(), valid_box_lists(max_size=4), valid_box_lists(max_size=2), st.sampled_from(["greedy", "hungarian"]))
def test_f_beta_of_one_film_is_that_of_the_reward(
    pred: list[list[float]], gt: list[list[float]], ignore: list[list[float]], matching: str
) -> None:
    film = AnsweredFilm("a", 30, 30, gt=gt, gt_labels=[""] * len(gt), pred=pred, ignore=ignore)
    figures = values([film], matching=matching)
    for key, beta in (("f1_50", 1.0), ("f_beta_50", 1.5)):
        explained = MeanIoUReward(beta=beta, matching=matching).explain(
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
        "a", 100, 100, gt=[HIT], gt_labels=[""], pred=parsed.boxes, status=parsed.status, rejected=parsed.rejected
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


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_ap_with_all_boxes_tied(seed: int) -> None:
    films = random_films(seed)
    ranked = rank_boxes(films, [0.5], ranking="tied").of_label(None)
    counts = MatchedFilms(films).counts(0.5)
    assert counts.tp.sum() == ranked.hit.sum()
    assert counts.n.sum() == ranked.counts.sum()
    assert counts.m.tolist() == ranked.references.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_labels_and_sizes_add_up_to_the_whole(seed: int) -> None:
    films = random_films(seed)
    for labels in ("exact", "synonyms"):
        whole = MatchedFilms(films, labels=labels).counts(0.5)
        parts = [MatchedFilms(films, labels=labels, label=label).counts(0.5) for label in LABELS]
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
    assert values([film], labels="exact")["recall_50"] == 0.0
    assert values([film], labels="synonyms")["recall_50"] == 0.5
    assert values([film], labels="synonyms", label="effusion")["f1_50"] == 1.0
    mass = values([film], labels="synonyms", label="mass")
    assert mass["recall_50"] == 0.0
    assert math.isnan(mass["precision_50"])  # the box without a label is nobody's


def test_boxes_in_ignore_regions_do_not_count() -> None:
    film = AnsweredFilm("a", 100, 100, pred=[JUNK], ignore=[[70, 0, 100, 20]])
    figures = values([film])
    assert (figures["hallucination_rate"], figures["specificity"], figures["count_error"]) == (0.0, 1.0, 0.0)


def test_a_phrase_is_answered_by_the_surest_box() -> None:
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
    for heading, definition, lower_is_better, _ in DETECTION_FIGURES.values():
        assert heading
        assert definition
        assert lower_is_better in (True, False, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": "fuzzy"}, "`label_matching`, got 'fuzzy'"),
        ({"matching": "best"}, "`matching`, got 'best'"),
        ({"label": "mass"}, "Expected a label that is compared for `label`, got 'mass' with labels='ignore'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        detection_sums(random_films(0, 2), **arguments)


def test_duplicates_are_removed_within_a_label() -> None:
    film = AnsweredFilm(
        "a",
        100,
        100,
        pred=[HIT, HIT, JUNK, HIT, HIT],
        pred_labels=["mass", "Mass", "mass", None, "nodule"],
        pred_scores=[0.2, 0.7, 0.1, 0.5, math.nan],
    )
    (kept,) = without_duplicates([film])
    assert kept.pred.tolist() == [HIT, JUNK, HIT, HIT]
    assert kept.pred_labels == ("Mass", "mass", None, "nodule")
    assert kept.pred_scores[:3].tolist() == [0.7, 0.1, 0.5]
    assert without_duplicates([AnsweredFilm("b", 9, 9)])[0].pred.shape == (0, 4)

"""Figures by hand on a few films."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from grounding_rewards.evaluation.answers import score_texts
from grounding_rewards.evaluation.figures import (
    FIGURES,
    FilmAnswers,
    estimate_changes,
    estimate_figures,
    film_sums,
    pair_boxes,
)
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.scoring import get_reward
from tests.conftest import valid_box_lists

REWARD = get_reward("R3")

# On the norm1000 grid of qwen3-vl, film of 100 by 100: 10 units are a pixel.
HALF = '[{"bbox_2d": [0, 0, 500, 250], "label": "mass"}]'  # IoU 0.5 with 0, 0, 50, 50
SMALL_AND_JUNK = (
    '[{"bbox_2d": [0, 0, 200, 200], "label": "effusion"}, {"bbox_2d": [800, 0, 900, 100], "label": "mass"}]'
)


def answers(films: Any, greedy: list[str], sampled: list[list[str]] | None = None) -> list[FilmAnswers]:
    first = score_texts(REWARD, films, [[text] for text in greedy])
    others = score_texts(REWARD, films, sampled or [[text] for text in greedy])
    return [FilmAnswers(text, one[0], tuple(many)) for text, one, many in zip(greedy, first, others, strict=True)]


def values(films: Any, said: list[FilmAnswers]) -> dict[str, float]:
    sums = film_sums(said, films["boxes"], films["labels"])
    return {key: estimate.value for key, estimate in estimate_figures(sums).items()}


def test_figures_by_hand(films: Any) -> None:
    figures = values(films, answers(films, [HALF, SMALL_AND_JUNK, HALF, "[]"]))
    assert figures == pytest.approx(
        {
            # R3 (beta 1, tau 0.5): 0.5; F1 0.5 times mean IoU 1; invented box 0; stated negative 0.2
            "sampled_reward": (0.5 + 0.5 + 0.0 + 0.2) / 4,
            "mean_iou": (0.5 + 1.0 + 0.0) / 3,  # three reference boxes, one without a partner
            "f1_50": 2 * 2 / (4 + 3),  # TP 2 of 4 predicted and 3 reference boxes
            "above_50": 2 / 3,  # 0.5 counts
            "above_75": 1 / 3,
            "hallucination_rate": 1 / 2,
            "unparseable_share": 0.0,
            "label_accuracy": 1 / 2,  # the exact box on film two says effusion instead of mass
        }
    )


def test_sampled_figures_average_over_answers_first(films: Any) -> None:
    sampled = [[HALF, "what?"], ["[]", "[]"], ["[]", "[]"], ["[]", "{"]]
    figures = values(films, answers(films, ["[]"] * 4, sampled))
    assert figures["sampled_reward"] == pytest.approx((0.25 + 0.0 + 0.2 + 0.1) / 4)
    assert figures["unparseable_share"] == pytest.approx((0.5 + 0 + 0 + 0.5) / 4)
    assert figures["mean_iou"] == 0.0


def test_a_cut_off_answer_without_a_box_is_unparseable_and_no_hallucination(films: Any) -> None:
    figures = values(films, answers(films, ['[{"bbox_2d": [0, 0, 5'] * 4))
    assert figures["unparseable_share"] == 1.0
    assert figures["hallucination_rate"] == 0.0


def test_an_inverted_box_on_a_normal_film_is_a_hallucination(films: Any) -> None:
    figures = values(films, answers(films, ["[]", "[]", '[{"bbox_2d": [500, 500, 0, 0]}]', "[]"]))
    assert figures["hallucination_rate"] == 0.5


def test_answers_without_labels_have_no_label_accuracy(films: Any) -> None:
    figures = values(films, answers(films, ['[{"bbox_2d": [0, 0, 500, 500]}]', "[]", "[]", "[]"]))
    assert figures["above_75"] == pytest.approx(1 / 3)
    assert math.isnan(figures["label_accuracy"])


def test_changes_are_differences_of_figures(films: Any) -> None:
    before = answers(films, ["[]"] * 4)
    after = answers(films, [HALF, SMALL_AND_JUNK, HALF, "[]"])
    boxes, labels = films["boxes"], films["labels"]
    changes = estimate_changes(film_sums(before, boxes, labels), film_sums(after, boxes, labels))
    for key in FIGURES:
        expected = values(films, after)[key] - values(films, before)[key]
        assert changes[key].value == pytest.approx(expected, nan_ok=True), key


def test_patients_widen_the_interval_of_films_that_agree(films: Any) -> None:
    sums = film_sums(answers(films, [HALF, "[]", "[]", "[]"]), films["boxes"], films["labels"])
    grouped = estimate_figures(sums, groups=["a", "a", "b", "c"])
    assert grouped["mean_iou"].value == estimate_figures(sums)["mean_iou"].value
    # Both films with findings are one patient's, so that all resamples with a finding agree.
    assert grouped["mean_iou"].low == grouped["mean_iou"].high


def test_lengths_that_differ_are_refused(films: Any) -> None:
    with pytest.raises(ValueError, match="Expected as many answers as films for `answers`, got 4 answers, 3 "):
        film_sums(answers(films, ["[]"] * 4), films["boxes"][:3], films["labels"][:])


@given(valid_box_lists(max_size=4), valid_box_lists(max_size=4))
def test_pairing_is_the_best_of_all(pred: list[list[float]], gt: list[list[float]]) -> None:
    pairing = pair_boxes(pred, gt)
    iou = pairwise_iou(np.reshape(pred, (-1, 4)), np.reshape(gt, (-1, 4)))
    few, many = sorted(iou.shape)
    wide = iou if iou.shape[0] == few else iou.T
    best = max(sum(wide[i, j] for i, j in enumerate(order)) for order in permutations(range(many), few))
    assert pairing.ious.sum() == pytest.approx(best)
    used = [partner for partner in pairing.partners if partner >= 0]
    assert len(set(used)) == len(used)
    for j, partner in enumerate(pairing.partners):
        assert pairing.ious[j] == (iou[partner, j] if partner >= 0 else 0)

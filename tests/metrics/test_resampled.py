"""Intervals of figures that are worked out anew on every resampling."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grounding_rewards.metrics.average_precision import resampled_mean_average_precision
from grounding_rewards.metrics.bootstrap import ratio_estimates
from grounding_rewards.metrics.counts import detection_sums
from grounding_rewards.metrics.ranking import rank_boxes
from grounding_rewards.metrics.resampled import Resampled, blocks, mean_of_measured
from tests.metrics.random_films import random_films


def test_resamples_are_those_of_ratios() -> None:
    """All-point AP of one film's only right box is recall: the interval is that of the ratio of sums."""
    films = [film for film in random_films(0, 40) if len(film.gt)]
    # one sure right box per film, and nothing else
    films = [
        type(film)(film.id, 400, 400, gt=film.gt, gt_labels=film.gt_labels, pred=film.gt[:1], pred_scores=[0.9])
        for film in films
    ]
    ap = resampled_mean_average_precision(rank_boxes(films, [0.5]), interpolation="all", resamples=500, seed=3)
    recall = ratio_estimates(detection_sums(films), resamples=500, seed=3)["recall_50"]
    assert ap.estimate == pytest.approx(recall)


def test_what_was_measured_on_no_resampling_has_no_interval() -> None:
    assert all(map(math.isnan, Resampled(math.nan, np.full(3, math.nan)).estimate))
    assert Resampled(0.5, np.array([0.5, math.nan])).estimate == (0.5, 0.5, 0.5)


def test_means_leave_out_what_was_not_measured() -> None:
    assert mean_of_measured([np.array([1.0, 0.0]), np.array([math.nan, 1.0])]).tolist() == [1.0, 0.5]


@pytest.mark.parametrize("width", [0, 1, 1 << 19, 1 << 30])
def test_blocks_are_all_rows_in_their_order(width: int) -> None:
    weights = np.arange(10.0).reshape(5, 2)
    assert np.concatenate(list(blocks(weights, width))).tolist() == weights.tolist()

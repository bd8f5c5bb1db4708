"""Rulers are the metrics of metrics/, and their sums are all that a draw of patients needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from grounding_rewards.metrics.evaluation import Measures, evaluate
from grounding_rewards.metrics.intervals import ratios
from grounding_rewards.rewards.grounding import get_reward
from grounding_rewards.study.rulers import RULERS, SOFT, read_model, ruler_sums
from tests.metrics.random_images import random_images, without_confidences
from tests.study.fake_studies import answers, images

IN_METRICS = [key for key in RULERS if key != f"reward_{SOFT}"]


def value(images, key):
    return ratios(ruler_sums(images)[key].sum(axis=0))


def scored(seed: int, n: int = 25) -> list:
    rng = np.random.default_rng(seed)
    names = [key.removeprefix("reward_") for key in RULERS if key.startswith("reward_")]
    return [
        replace(image, rewards=dict.fromkeys(names, float(rng.random())))
        for image in without_confidences(random_images(seed, n))
    ]


@pytest.mark.parametrize("seed", range(2))
def test_every_ruler_is_a_metric_of_an_evaluation(seed):
    made = scored(seed)
    found = evaluate({"model": made}, Measures("R3")).systems["model"]
    for key in IN_METRICS:
        assert value(made, key) == pytest.approx(found[key].value, abs=1e-12, nan_ok=True), key


# Image dependence compares images with each other: its sums are what each contributes to those that are there.
@pytest.mark.parametrize("key", [key for key in RULERS if key != "image_dependence"])
def test_an_image_that_is_drawn_twice_counts_twice(key):
    made = scored(7, 12)
    weights = np.array([2, 0, 1, 1, 3, 0, 1, 1, 0, 1, 1, 1])
    drawn = [image for image, times in zip(made, weights, strict=True) for _ in range(times)]
    twice = [replace(image, id=str(k)) for k, image in enumerate(drawn)]
    by_weights = ratios(weights @ ruler_sums(made)[key])
    assert by_weights == pytest.approx(value(twice, key), abs=1e-12, nan_ok=True)


def test_rewards_are_those_of_the_texts():
    rows = images(5, 12)
    texts = answers(np.random.default_rng(0), rows, 0.1, 0.5)
    read = read_model(rows, texts, "qwen3-vl")
    columns = {name: [row[name] for row in rows] for name in ("boxes", "labels", "width", "height")}
    for key in (key for key in RULERS if key.startswith("reward_")):
        reward = get_reward(key.removeprefix("reward_"), box_format="qwen3-vl")
        assert value(read, key) == pytest.approx(np.mean(reward(texts, **columns)), abs=1e-12)

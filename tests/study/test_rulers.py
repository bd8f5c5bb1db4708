"""Rulers are the metrics of metrics/, and their sums are all that a draw of patients needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grounding_rewards.metrics.average_precision import average_precision
from grounding_rewards.metrics.curves import sensitivity_at_false_positives
from grounding_rewards.metrics.evaluation import Measures, evaluate
from grounding_rewards.metrics.ranking import rank_boxes
from grounding_rewards.rewards.grounding import get_reward
from grounding_rewards.study.rulers import RULERS, SOFT, ModelAnswers, read_model, ruler_of
from tests.metrics.random_images import random_images, without_confidences
from tests.study.fake_studies import answers, images

IN_METRICS = [key for key in RULERS if key not in ("sensitivity_1", f"reward_{SOFT}")]


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
    found = evaluate({"model": made}, Measures("R3", resamples=1)).systems["model"]
    for key in IN_METRICS:
        assert RULERS[key].value(ModelAnswers(made)) == pytest.approx(found[key].value, abs=1e-12, nan_ok=True), key


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.integers(1, 12))
def test_sensitivity_is_that_of_froc(seed, n):
    made = scored(seed, n)
    ranked = rank_boxes(made, (0.5,), ranking="emission")
    expected = sensitivity_at_false_positives(ranked, (1.0,)).at_rates[0].value
    assert RULERS["sensitivity_1"].value(ModelAnswers(made)) == pytest.approx(expected, abs=1e-12, nan_ok=True)
    tied = average_precision(rank_boxes(made, (0.5,), ranking="tied"))
    assert RULERS["ap_50"].value(ModelAnswers(made)) == pytest.approx(tied, abs=1e-12, nan_ok=True)


# Image dependence compares images with each other: its sums are what each contributes to those that are there.
@pytest.mark.parametrize("key", [key for key in RULERS if key != "image_dependence"])
def test_an_image_that_is_drawn_twice_counts_twice(key):
    made = scored(7, 12)
    weights = np.array([2, 0, 1, 1, 3, 0, 1, 1, 0, 1, 1, 1])
    drawn = [image for image, times in zip(made, weights, strict=True) for _ in range(times)]
    twice = [replace(image, id=str(k)) for k, image in enumerate(drawn)]
    ruler = RULERS[key]
    by_weights = ruler.combine(weights @ ruler.parts(ModelAnswers(made)))
    assert float(by_weights) == pytest.approx(ruler.value(ModelAnswers(twice)), abs=1e-12, nan_ok=True)


def test_rewards_are_those_of_the_texts():
    rows = images(5, 12)
    texts = answers(np.random.default_rng(0), rows, 0.1, 0.5)
    read = read_model(rows, texts, "qwen3-vl")
    columns = {name: [row[name] for row in rows] for name in ("boxes", "labels", "width", "height")}
    for key in (key for key in RULERS if key.startswith("reward_")):
        reward = get_reward(key.removeprefix("reward_"), box_format="qwen3-vl")
        assert RULERS[key].value(read) == pytest.approx(np.mean(reward(texts, **columns)), abs=1e-12)


def test_images_of_a_patient_are_one_unit():
    read = read_model(images(1, 6), ["[]"] * 6, "qwen3-vl")
    # without patients every image is one
    assert len(set(read.patients.tolist())) == 6
    rows = [{**row, "patient_id": row["patient"]} for row in images(1, 6)]
    assert read_model(rows, ["[]"] * 6, "qwen3-vl").patients.tolist() == [0, 0, 1, 1, 2, 2]


def test_an_unknown_metric_is_named_with_all_that_there_are():
    with pytest.raises(ValueError, match=r"got 'f1'\. Declare one of: mean_iou, f1_50, "):
        ruler_of("f1")

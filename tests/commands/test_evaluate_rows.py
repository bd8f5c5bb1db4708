"""The rows of labels and sizes, and what an evaluation does where labels or confidences are partly there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from grounding_rewards.metrics.answered_film import AnsweredFilm
from grounding_rewards.metrics.average_precision import average_precision, mean_average_precision
from grounding_rewards.metrics.evaluation import Evaluation, Measures, evaluate
from grounding_rewards.metrics.ranking import rank_boxes
from grounding_rewards.metrics.sizes import FILM_AREAS
from tests.metrics.random_films import random_films


def measured(films: list[AnsweredFilm], **measures: str) -> Evaluation:
    given = [replace(film, rewards={"R4": 0.5}) for film in films]
    return evaluate({"model": given}, Measures("R4", resamples=20, **measures))  # type: ignore[arg-type]


def with_labels(films: list[AnsweredFilm], words: list[str]) -> list[AnsweredFilm]:
    """The references' masses called by these words in turn."""
    return [
        replace(
            film,
            gt_labels=tuple(
                words[(k + i) % len(words)] if label == "mass" else label for i, label in enumerate(film.gt_labels)
            ),
        )
        for k, film in enumerate(films)
    ]


@pytest.mark.parametrize(
    ("words", "labels"),
    [
        (["mass", "MASS", " Mass "], "ignore"),
        (["mass", "MASS", " Mass "], "exact"),
        (["mass", "pulmonary mass"], "synonyms"),
    ],
)
def test_labels_that_are_compared_as_one_are_one_row(words: list[str], labels: str) -> None:
    films = random_films(3)
    expected = {
        f"{group.name} ({group.boxes})".casefold(): group.figures
        for group in measured(films, label_matching=labels).per_label
    }
    found = measured(with_labels(films, words), label_matching=labels).per_label
    assert len(found) == len(expected) == 3
    for group in found:
        count = f"{group.name} ({group.boxes})".rpartition(" ")[2]
        (same,) = [name for name in expected if name.endswith(count)]
        for key, estimate in group.figures.items():
            assert estimate == pytest.approx(expected[same][key])


@pytest.mark.parametrize("interpolation", ["101", "all", "11"])
def test_average_precision_of_labels_is_what_map_is_the_mean_of(interpolation: str) -> None:
    films = random_films(5)
    found = measured(films, interpolation=interpolation)
    of_labels = [group.figures["ap_50"].value for group in found.per_label]
    assert np.mean(of_labels) == pytest.approx(found.systems["model"]["map_50"].value, abs=1e-9)
    ranked = rank_boxes(films, [0.5], label_matching="exact")
    assert found.systems["model"]["map_50"].value == mean_average_precision(ranked, interpolation=interpolation)


def test_average_precision_of_sizes() -> None:
    films = random_films(6)
    expected = {name: average_precision(rank_boxes(films, area=area)) for name, area in FILM_AREAS.items()}
    for group in measured(films).per_size:
        assert group.figures["ap_50"].value == expected[group.name]


@pytest.mark.parametrize("label", ["", "finding"])
def test_references_without_labels_say_nothing_about_labels(label: str) -> None:
    films = [replace(film, gt_labels=(label,) * len(film.gt)) for film in random_films(2)]
    found = measured(films)
    assert not {"map_50", "label_accuracy"} & set(found.headings)
    assert found.confusion is None
    assert [f"{group.name} ({group.boxes})" for group in found.per_label] == [
        f"finding ({sum(len(film.gt) for film in films)})"
    ]


def test_one_box_without_a_confidence_makes_all_boxes_tied() -> None:
    films = random_films(2)
    films[3] = replace(films[3], pred_scores=np.full(len(films[3].pred), np.nan))
    found = measured(films)
    assert found.headings["ap_50"] == "AP at IoU 0.5, boxes tied"
    assert "not every box has a stated confidence" in found.figures["ap_50"].definition
    assert found.systems["model"]["ap_50"].value == average_precision(rank_boxes(films, ranking="tied"))

"""Answers that need no look at the film."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grounding_rewards.evaluation.answers import baseline_answers
from grounding_rewards.evaluation.baselines import constant_answer, mean_boxes
from grounding_rewards.evaluation.figures import pair_boxes
from grounding_rewards.evaluation.summary import summarise
from grounding_rewards.scoring import get_reward


def row(*labels: str, width: int = 100) -> dict[str, Any]:
    return {"boxes": [[0, 0, 10, 10]] * len(labels), "labels": list(labels), "width": width, "height": 100}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], set()),  # no films
        ([row(), row()], set()),  # no boxes
        ([row("heart"), row()], {"heart"}),  # half of the films is enough
        ([row("heart"), row(), row()], set()),  # a third is not
        ([row("mass", "mass"), row(), row()], set()),  # films are counted, not boxes
        ([row("left", "right"), row("right")], {"left", "right"}),
    ],
)
def test_labels_of_the_constant_answer(rows: list[dict[str, Any]], expected: set[str]) -> None:
    assert set(mean_boxes(rows)) == expected


def test_mean_box_is_a_mean_of_fractions() -> None:
    # by hand: x2 is 0.1 of one film and 0.05 of the other
    boxes = mean_boxes([row("heart"), row("heart", width=200)])
    assert boxes["heart"] == pytest.approx([0, 0, 0.075, 0.1])


def test_constant_box_on_the_real_lungs(shared_dir: Path) -> None:
    # Golden: shared data's own statement of what the mean training box earns on the test split.
    lines = (shared_dir / "data/cxr_lungs/annotations.jsonl").read_text(encoding="utf-8").splitlines()
    films = [json.loads(line) for line in lines]
    common = mean_boxes(film for film in films if film["split"] == "train")
    ious = np.concatenate(
        [
            pair_boxes(constant_answer(common, width=film["width"], height=film["height"])[0], film["boxes"]).ious
            for film in films
            if film["split"] == "test"
        ]
    )
    assert ious.mean() == pytest.approx(0.670, abs=5e-4)
    assert (ious >= 0.5).mean() == pytest.approx(0.892, abs=5e-4)
    assert (ious >= 0.75).mean() == pytest.approx(0.284, abs=5e-4)


def test_baselines_are_written_in_the_box_format_and_scored(films: Any) -> None:
    reward = get_reward("R3")
    answers = baseline_answers(films, films, reward)
    # "mass" is on two films of four
    assert list(answers) == ["constant box", "nothing found", "whole image"]
    figures = {row.name: row.figures for row in summarise(answers, films)}
    assert figures["nothing found"]["sampled_reward"].value == pytest.approx(0.1)
    assert figures["nothing found"]["unparseable_share"].value == 0
    assert figures["whole image"]["hallucination_rate"].value == 1
    # by hand: 0.25 on film one; on film two 0.25 for the larger box, nothing for the other
    assert figures["whole image"]["mean_iou"].value == pytest.approx((0.25 + 0.25) / 3)


def test_without_training_films_there_is_no_constant_box(films: Any) -> None:
    assert "constant box" not in baseline_answers(films, None, get_reward("R3"))


def test_another_reader_is_a_baseline_where_several_drew(films: Any) -> None:
    # the second reader draws the left half of every box, and nothing that the first did not see
    half = [[[x1, y1, (x1 + x2) / 2, y2] for x1, y1, x2, y2 in boxes] for boxes in films["boxes"]]
    sets = [[boxes, other] for boxes, other in zip(films["boxes"], half, strict=True)]
    labels = [[names, names] for names in films["labels"]]
    read = films.add_column("reader_boxes", sets).add_column("reader_labels", labels)
    answers = baseline_answers(read, None, get_reward("R3"))
    figures = {row.name: row.figures for row in summarise(answers, read)}["another reader"]
    assert figures["mean_iou"].value == pytest.approx(0.5, abs=0.01)
    assert figures["hallucination_rate"].value == 0

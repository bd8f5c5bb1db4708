"""The systems that an evaluation compares: a model's answers and the baselines', each as one answered film a row."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from grounding_rewards.boxes import as_box_array
from grounding_rewards.metrics.answered_film import AnsweredFilm, is_read
from grounding_rewards.metrics.baselines import (
    CONSTANT,
    CONSTANT_OF_THESE,
    BoxAnswer,
    baseline_rules,
    mean_boxes,
)
from grounding_rewards.metrics.counts import without_duplicates
from grounding_rewards.rewards import SPECIFICATION_REWARDS
from grounding_rewards.rewards.grounding import (
    GroundingReward,
    ScoredCompletion,
    completion_text,
    get_reward,
    score_columns,
)
from grounding_rewards.space_check import SpaceWarning

#: What every film is scored with, beside the reward that the evaluation is about.
SIDE_BY_SIDE = SPECIFICATION_REWARDS

# Columns that play no part in scoring, or are large.
_PASSED_OVER = ("prompt", "image", "images", "completion_ids", "ground_truth")
#: The label of a reference box that has none.
UNNAMED = "finding"

Row = Mapping[str, Any]


def read_answers(
    rows: Sequence[Row], texts: Sequence[Sequence[Any]], reward: GroundingReward, *, nms_threshold: float | None = None
) -> list[AnsweredFilm]:
    """Read and score what a model said about each film.

    Args:
        rows: n rows with `boxes`, `width` and `height`, and as far as known `labels`, `id`, `patient_id`,
            `ignore_boxes`, `reader_boxes`, `box_format`, `resized_width` and `resized_height`.
        texts: for each row its answers: the one that is judged, then sampled ones, of which only the
            reward is kept, and whether they can be read.
        reward: what the evaluation is about; R1 … R5 with their default parameters are taken beside it.
        nms_threshold: boxes are removed whose IoU with a surer one of the same label is greater, see
            :func:`grounding_rewards.metrics.counts.without_duplicates`; None keeps all. Rewards are those of the
            text as it is.

    Raises:
        ValueError: a row lacks a column, or holds something that is no box, label or size; two films have one name.

    Warns:
        SpaceWarning: where boxes on many films contradict the space or the order of the box format.

    Example:
        >>> row = {"id": "a", "boxes": [[0, 0, 50, 50]], "labels": ["mass"], "width": 100, "height": 100}
        >>> text = '[{"bbox_2d": [0, 0, 500, 400], "label": "mass"}]'
        >>> film = read_answers([row], [[text]], get_reward("R3", box_format="qwen3-vl"))[0]
        >>> film.pred.tolist(), film.pred_labels, round(film.rewards["R3"], 2)
        ([[0.0, 0.0, 50.0, 40.0]], ('mass',), 0.8)
    """
    films = read_references(rows)
    columns = _columns(rows)
    repeated = {
        name: [value for value, answers in zip(values, texts, strict=True) for _ in answers]
        for name, values in columns.items()
    }
    scored = iter(reward.details(list(chain.from_iterable(texts)), **repeated))
    rewards = _side_by_side(reward, [answers[0] for answers in texts], columns)
    answered = []
    for k, (film, answers) in enumerate(zip(films, texts, strict=True)):
        judged, *sampled = (next(scored) for _ in answers)
        read = replace(
            film,
            **_said(judged),
            text=completion_text(answers[0]),
            rewards={name: values[k] for name, values in rewards.items()},
            sampled_rewards=tuple(one.reward for one in sampled),
            sampled_read=tuple(is_read(one.parsed.boxes, one.parsed.status) for one in sampled),
        )
        answered.append(read)
    return answered if nms_threshold is None else without_duplicates(answered, nms_threshold)


def read_references(rows: Sequence[Row]) -> list[AnsweredFilm]:
    """The films of a dataset with an answer that has no box.

    Args:
        rows: see :func:`read_answers`.

    Raises:
        ValueError: a row lacks `boxes`, `width` or `height`, or two films have one name.

    Example:
        >>> film = read_references([{"boxes": [[0, 0, 5, 5]], "labels": ["mass"], "width": 10, "height": 10}])[0]
        >>> film.id, film.gt.tolist(), film.gt_labels, film.patient
        ('film 0', [[0.0, 0.0, 5.0, 5.0]], ('mass',), None)
    """
    for name in ("boxes", "width", "height"):
        for k, row in enumerate(rows):
            if row.get(name) is None:
                raise ValueError(
                    f"Expected a column `{name}` for every film, got none for row {k} (id {row.get('id', '-')}). "
                    "Add it, or name the dataset that has it with --dataset."
                )
    films = [_reference(row, f"film {k}") for k, row in enumerate(rows)]
    name, times = Counter(film.id for film in films).most_common(1)[0] if films else ("", 1)
    if times > 1:
        raise ValueError(f"Expected a name of its own for every film, got `id` {name!r} {times} times. Rename them.")
    return films


def _reference(row: Row, name: str) -> AnsweredFilm:
    boxes = as_box_array(row["boxes"], "boxes")
    labels = row.get("labels")
    patient, image = row.get("patient_id"), row.get("image_path")
    return AnsweredFilm(
        id=name if row.get("id") is None else str(row["id"]),
        width=_size(row, "width"),
        height=_size(row, "height"),
        gt=boxes,
        gt_labels=(UNNAMED,) * len(boxes)
        if labels is None
        else tuple(UNNAMED if label is None else str(label) for label in labels),
        ignore=as_box_array([] if row.get("ignore_boxes") is None else row["ignore_boxes"], "ignore_boxes"),
        patient=None if _is_missing(patient) else str(patient),
        image=None if image is None else str(image),
        status="empty",
    )


def _size(row: Row, side: str) -> float:
    try:
        pixels = float(row[side])
    except (TypeError, ValueError):
        pixels = math.nan
    if not 0 < pixels < math.inf:
        raise ValueError(
            f"Expected a number of pixels for `{side}`, got {row[side]!r} for the film with id {row.get('id', '-')!r}. "
            "Give the size of the film, not of what the model saw."
        )
    return pixels


def _is_missing(patient: Any) -> bool:
    # A table writes an empty cell among numbers as NaN.
    return patient in (None, "") or (isinstance(patient, float) and math.isnan(patient))


def _said(judged: ScoredCompletion) -> dict[str, Any]:
    parsed = judged.parsed
    return {
        "pred": parsed.boxes,
        "pred_labels": parsed.labels,
        "pred_scores": np.array(parsed.scores, dtype=np.float64),  # numpy reads None as NaN
        "status": parsed.status,
        "reason": judged.reason,
        "rejected": dict(parsed.rejected),
    }


def _columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """The columns that every row has; one that only some have, such as ignored regions, with None in the others."""
    names = dict.fromkeys(name for row in rows for name in row if name not in _PASSED_OVER)
    optional = ("ignore_boxes", "reader_boxes", "reader_labels")
    return {
        name: [row.get(name) for row in rows]
        for name in names
        if name in optional or all(row.get(name) is not None for row in rows)
    }


def _side_by_side(reward: GroundingReward, texts: Sequence[Any], columns: Mapping[str, Any]) -> dict[str, list[float]]:
    given = reward(texts, **columns)
    with warnings.catch_warnings():
        # The reward that the evaluation is about has given the same warning.
        warnings.simplefilter("ignore", SpaceWarning)
        others = [
            get_reward(name, box_format=reward.box_format, tokenizer=reward.tokenizer)
            for name in SIDE_BY_SIDE
            if name != reward.name
        ]
        # Every text is read once for all of them.
        scored = score_columns(others, texts, **columns)
    found = {other.name: scored[other.name] for other in others}
    return dict(sorted({**found, reward.name: given}.items()))


def baseline_systems(
    rows: Sequence[Row], training: Iterable[Row] | None, reward: GroundingReward
) -> dict[str, list[AnsweredFilm]]:
    """The answers that need no look at the film, in every table beside a model's.

    Args:
        rows: the films, see :func:`read_answers`.
        training: the films that the constant box is the mean of; without them it is the mean of these films, which
            flatters it, and its name says so. Of no films there is no constant box.
        reward: what the evaluation is about.

    Returns:
        By name: the constant box (see :func:`grounding_rewards.metrics.baselines.mean_boxes`), nothing found, the
        whole image, and, where rows have `reader_boxes`, what one more radiologist drew.

    Example:
        >>> row = {"boxes": [[0, 0, 50, 50]], "labels": ["mass"], "width": 100, "height": 100}
        >>> systems = baseline_systems([row], [row], get_reward("R3", box_format="qwen3-vl"))
        >>> [(name, films[0].rewards["R3"]) for name, films in systems.items()]
        [('constant box', 1.0), ('nothing found', 0.0), ('whole image', 0.0)]
    """
    films = read_references(rows)
    # With the names that rows without labels are given.
    named = [{**row, "labels": film.gt_labels} for row, film in zip(rows, films, strict=True)]
    constant = mean_boxes(named if training is None else training, at_least_one=True)
    rewards = {**{name: get_reward(name) for name in SIDE_BY_SIDE}, reward.name: reward}
    systems = {}
    for name, rule in baseline_rules(named, constant).items():
        answered = _with_boxes(films, [rule(row) for row in named], rewards)
        # However often such a rule is asked, it answers the same.
        systems[CONSTANT_OF_THESE if name == CONSTANT and training is None else name] = [
            replace(film, sampled_rewards=(film.rewards[reward.name],), sampled_read=(True,)) for film in answered
        ]
    return systems


def _with_boxes(
    films: Sequence[AnsweredFilm], answers: Sequence[BoxAnswer], rewards: Mapping[str, GroundingReward]
) -> list[AnsweredFilm]:
    boxes, labels = [boxes for boxes, _ in answers], [labels for _, labels in answers]
    named: dict[str, Any] = {"pred_labels": labels, "gt_labels": [film.gt_labels for film in films]}
    scores = {
        name: reward.score_many(
            boxes,
            [film.gt for film in films],
            ignore=[film.ignore for film in films],
            **(named if reward.compares_labels else {}),
        )
        for name, reward in rewards.items()
    }
    return [
        replace(
            film,
            pred=boxes[k],
            pred_labels=tuple(labels[k]),
            pred_scores=np.full(len(boxes[k]), np.nan),
            status="boxes" if len(boxes[k]) else "empty",
            rewards={name: values[k] for name, values in scores.items()},
        )
        for k, film in enumerate(films)
    ]

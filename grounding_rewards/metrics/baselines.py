"""Answers that need no look at the image: what a trained model must beat, and the reference, which it cannot."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from grounding_rewards.boxes import as_box_array
from grounding_rewards.common.arithmetic import Array
from grounding_rewards.metrics.answered_image import UNNAMED, AnsweredImage
from grounding_rewards.metrics.answers import SIDE_BY_SIDE, read_references
from grounding_rewards.rewards.grounding import GroundingReward, get_reward

#: The boxes and labels of one answer; the boxes in pixels of the image.
BoxAnswer = tuple[Array, list[str]]

CONSTANT, CONSTANT_OF_THESE = "constant box", "constant box of these images"
NOTHING_FOUND, WHOLE_IMAGE, ANOTHER_READER = "nothing found", "whole image", "another reader"
#: What no answer can better. A rightly empty answer earns the bonus, below 1, so that a mean reward cannot reach 1.
REFERENCE = "reference as answer"


def baseline_systems(
    rows: Sequence[Mapping[str, Any]],
    training: Iterable[Mapping[str, Any]] | None,
    reward: GroundingReward,
) -> dict[str, list[AnsweredImage]]:
    """The answers that need no model; they stand beside a model's in every table.

    Args:
        rows: the images, see :func:`grounding_rewards.metrics.answers.read_answers`.
        training: the images that the constant box is the median of; without them it is that of these images, which
            flatters it, and its name says so. Of no images there is no constant box.
        reward: what the evaluation is about.

    Returns:
        By name: the reference itself, the constant box (:func:`constant_boxes`), nothing found, the whole image under
        the most frequent label, and, where rows have `reader_boxes`, what one more radiologist drew.

    Example:
        >>> row = {"boxes": [[0, 0, 50, 50]], "labels": ["mass"], "width": 100, "height": 100}
        >>> systems = baseline_systems([row], [row], get_reward("R3", box_format="qwen3-vl"))
        >>> [(name, images[0].rewards["R3"]) for name, images in systems.items()]
        [('reference as answer', 1.0), ('constant box', 1.0), ('nothing found', 0.0), ('whole image', 0.0)]
    """
    images = read_references(rows)
    # With the names that rows without labels are given.
    named = [{**row, "labels": image.gt_labels} for row, image in zip(rows, images, strict=True)]
    constant = constant_boxes(named if training is None else training)
    labels = Counter(chain.from_iterable(image.gt_labels for image in images)).most_common(1)
    label = labels[0][0] if labels else UNNAMED
    answers: dict[str, list[BoxAnswer]] = {REFERENCE: [(image.gt, list(image.gt_labels)) for image in images]}
    if constant:
        answers[CONSTANT_OF_THESE if training is None else CONSTANT] = [
            constant_answer(constant, width=image.width, height=image.height) for image in images
        ]
    answers[NOTHING_FOUND] = [(np.zeros((0, 4)), [])] * len(images)
    answers[WHOLE_IMAGE] = [(np.array([[0.0, 0.0, image.width, image.height]]), [label]) for image in images]
    if any(row.get("reader_boxes") for row in rows):
        answers[ANOTHER_READER] = [other_reader(row) for row in named]
    rewards = {**{name: get_reward(name) for name in SIDE_BY_SIDE}, reward.name: reward}
    return {name: _with_boxes(images, given, rewards, reward.name) for name, given in answers.items()}


def _with_boxes(
    images: Sequence[AnsweredImage], answers: Sequence[BoxAnswer], rewards: Mapping[str, GroundingReward], main: str
) -> list[AnsweredImage]:
    boxes, labels = [boxes for boxes, _ in answers], [labels for _, labels in answers]
    named: dict[str, Any] = {"pred_labels": labels, "gt_labels": [image.gt_labels for image in images]}
    scores = {
        name: reward.score_many(
            boxes,
            [image.gt for image in images],
            ignore=[image.ignore for image in images],
            **(named if reward.compares_labels else {}),
        )
        for name, reward in rewards.items()
    }
    return [
        replace(
            image,
            pred=boxes[k],
            pred_labels=tuple(labels[k]),
            pred_scores=np.full(len(boxes[k]), np.nan),
            status="boxes" if len(boxes[k]) else "empty",
            rewards={name: values[k] for name, values in scores.items()},
            # However often such a rule is asked, it answers the same.
            sampled_rewards=(scores[main][k],),
            sampled_read=(True,),
        )
        for k, image in enumerate(images)
    ]


def other_reader(row: Mapping[str, Any]) -> BoxAnswer:
    """The boxes of the first reader who did not draw the reference; the reference where an image has no other.

    Example:
        >>> row = {"boxes": [[0, 0, 9, 9]], "labels": ["mass"], "reader_boxes": [[[0, 0, 9, 9]], [[0, 0, 8, 9]]]}
        >>> other_reader(row)
        (array([[0., 0., 8., 9.]]), ['finding'])
    """
    sets = row.get("reader_boxes") or []
    labels = row.get("reader_labels") or [[UNNAMED] * len(boxes) for boxes in sets]
    reference = as_box_array(row["boxes"])
    for boxes, names in zip(sets, labels, strict=True):
        drawn = as_box_array(boxes)
        if not np.array_equal(drawn, reference):
            return drawn, list(names)
    return reference, list(row["labels"])


def constant_boxes(rows: Iterable[Mapping[str, Any]]) -> dict[str, Array]:
    """The median training box of every label that at least half of the images carry, else of the most frequent label.

    Args:
        rows: training images with ``boxes``, ``labels``, ``width`` and ``height``.

    Returns:
        For each such label one box ``(4,)``, the median of each coordinate as a fraction of the image's width or
        height; none without any box.

    Example:
        >>> row = {"boxes": [[0, 0, 50, 100]], "labels": ["right lung"], "width": 100, "height": 200}
        >>> constant_boxes([row, {**row, "boxes": [[0, 0, 30, 100]]}])
        {'right lung': array([0. , 0. , 0.4, 0.5])}
    """
    images = 0
    seen: dict[str, list[Array]] = defaultdict(list)
    carried: dict[str, int] = defaultdict(int)
    for row in rows:
        images += 1
        size = np.array([row["width"], row["height"]] * 2, dtype=np.float64)
        for box, label in zip(as_box_array(row["boxes"]), row["labels"], strict=True):
            seen[label].append(box / size)
        for label in set(row["labels"]):
            carried[label] += 1
    chosen = [label for label in seen if 2 * carried[label] >= images]
    if not chosen and seen:
        chosen = [max(seen, key=lambda label: carried[label])]
    return {label: np.median(seen[label], axis=0) for label in chosen}


def constant_answer(boxes: Mapping[str, Array], *, width: float, height: float) -> BoxAnswer:
    """The constant boxes put on one image.

    Args:
        boxes: from :func:`constant_boxes`.
        width: of the image in pixels.
        height: of the image in pixels.

    Example:
        >>> constant_answer({"heart": np.array([0.25, 0.5, 0.75, 1.0])}, width=100, height=200)
        (array([[ 25., 100.,  75., 200.]]), ['heart'])
    """
    size = np.array([width, height] * 2, dtype=np.float64)
    return np.array(list(boxes.values())).reshape(-1, 4) * size, list(boxes)

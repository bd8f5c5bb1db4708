"""Answers that need no look at the image: what a trained model must beat, and the reference, which it cannot.

The constant box is the best box, or boxes, for an answer that never looks (:func:`constant_boxes`).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import BoxBatch, as_box_array
from grounding_rewards.common.numeric import Array
from grounding_rewards.metrics.intervals import group_numbers
from grounding_rewards.metrics.prediction import UNNAMED, Prediction, PredictionBatch, patients_of
from grounding_rewards.metrics.read_predictions import (
    asked_labels,
    named_labels,
    question_of,
    reference_images,
    rewards_beside,
    stated_labels,
)
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.rewards import MeanIoUReward
from grounding_rewards.rewards.grounding import GroundingReward

# Without training images the constant box of each part of the patients is fitted on the other parts.
_FOLDS = 5
# One box is fitted to at least this many boxes, and to the boxes of at most this many images.
_FEWEST_FITTED = 10
_MOST_FITTED = 2000
# About so many boxes of the training images are scored as starting points, and so many of the best are searched from.
_STARTS = 64
_CLIMBS = 8
# Steps of the search as fractions of the image; it moves one edge or the whole box.
_STEPS = (0.08, 0.04, 0.02, 0.01, 0.005)
_MOVES = np.vstack([np.eye(4), -np.eye(4), [[1, 0, 1, 0], [-1, 0, -1, 0], [0, 1, 0, 1], [0, -1, 0, -1]]])
# An IoU that any overlap reaches, and the pairs of boxes of the largest sum of IoUs.
_ANY_PAIR = MeanIoUReward(iou_threshold=float(np.nextafter(0.0, 1.0)), matching="hungarian")
# A move that gains less is rounding.
_ROUNDING = 1e-12

#: The boxes and labels of one answer; the boxes in pixels of the image.
BoxAnswer = tuple[Array, list[str]]

CONSTANT, CONSTANT_OF_THESE = "constant box", "constant box of these images"
#: What no answer can better. A rightly empty answer earns the bonus, below 1, so that a mean reward cannot reach 1.
REFERENCE = "reference as answer"
#: What one more radiologist answers to images that several have read.
ANOTHER_READER = "another reader"
_BASELINES = (CONSTANT, CONSTANT_OF_THESE, REFERENCE, ANOTHER_READER)


def system_name(log: str | Path) -> str:
    """The name of a log's answers beside the baselines: that of its file or folder, unless a baseline has it.

    Example:
        >>> system_name("runs/step_200.jsonl"), system_name("constant box.jsonl")
        ('step_200', 'completions')
    """
    name = Path(log).resolve().stem
    return "completions" if name in _BASELINES else name


def baseline_systems(
    rows: Sequence[Mapping[str, Any]], training: Iterable[Mapping[str, Any]] | None, reward: GroundingReward
) -> dict[str, list[Prediction]]:
    """The answers that need no model; they stand beside a model's in every table.

    Args:
        rows: the images, see :func:`grounding_rewards.metrics.read_predictions.read_predictions`.
        training: the images that the constant box is fitted on; None fits it on those of other patients among these
            images, and its name says so. Without a box to fit it to there is no constant box.
        reward: what the evaluation is about.

    Returns:
        By name: the reference itself, another reader where each row has ``reader_boxes`` of several
        (:func:`_another_reader`), and the constant box (:func:`constant_boxes`, of the training images that are
        asked for the same labels).

    Example:
        >>> from grounding_rewards import get_reward
        >>> row = {"boxes": [[0, 0, 50, 50]], "labels": ["mass"], "width": 100, "height": 100}
        >>> systems = baseline_systems([row], [row], get_reward("R3", box_format="qwen3-vl"))
        >>> [(name, images[0].rewards["R3"]) for name, images in systems.items()]
        [('reference as answer', 1.0), ('constant box', 1.0)]
    """
    images = PredictionBatch(reference_images(rows))
    constant = _constant_answers(images, rows, training)
    answers: dict[str, list[BoxAnswer]] = {REFERENCE: [(image.gt, list(image.gt_labels)) for image in images]}
    another_reader = _another_reader(images, rows)
    if another_reader:
        answers[ANOTHER_READER] = another_reader
    if constant:
        answers[CONSTANT_OF_THESE if training is None else CONSTANT] = constant
    rewards = [reward, *rewards_beside(reward)]
    return {name: _with_boxes(images, system_answers, rewards) for name, system_answers in answers.items()}


def _another_reader(images: Sequence[Prediction], rows: Sequence[Mapping[str, Any]]) -> list[BoxAnswer]:
    """For each image the boxes of another reader than the one whose boxes are its reference, the readers in turn.

    No answers at all where an image has no other reader: the answers of a system are to all images.

    Args:
        images: with their references.
        rows: those of the images, which may have `reader_boxes` and `reader_labels`, one list for each reader.
    """
    answers = []
    for number, (image, row) in enumerate(zip(images, rows, strict=True)):
        reader_boxes = list(map(as_box_array, () if row.get("reader_boxes") is None else row["reader_boxes"]))
        reader_labels = row.get("reader_labels")
        if reader_labels is None:
            reader_labels = [[UNNAMED] * len(boxes) for boxes in reader_boxes]
        reader_answers = [(boxes, list(labels)) for boxes, labels in zip(reader_boxes, reader_labels, strict=True)]
        is_reference = [np.array_equal(boxes, image.gt) for boxes in reader_boxes]
        # Of two readers with the same boxes only one is the reference.
        if any(is_reference):
            del reader_answers[is_reference.index(True)]
        if not reader_answers:
            return []
        answers.append(reader_answers[number % len(reader_answers)])
    return answers


def _with_boxes(
    images: PredictionBatch, answers: Sequence[BoxAnswer], rewards: Sequence[GroundingReward]
) -> list[Prediction]:
    """The images with these answers, scored by each reward, of which the first is what the evaluation is about."""
    boxes, labels = [answer[0] for answer in answers], [answer[1] for answer in answers]
    gt, gt_labels = [image.gt for image in images], [image.gt_labels for image in images]
    ignore = [image.ignore for image in images]
    scores = {}
    for reward in rewards:
        if reward.judges_boxes:
            scores[reward.name] = reward.score_many(boxes, gt, ignore=ignore, pred_labels=labels, gt_labels=gt_labels)
        else:
            # A control that scores texts has no number for boxes.
            scores[reward.name] = [math.nan] * len(images)
    return [
        replace(
            image,
            pred=boxes[k],
            pred_labels=tuple(labels[k]),
            status="boxes" if len(boxes[k]) else "empty",
            rewards={name: values[k] for name, values in scores.items()},
            # One sample says all: however often such a rule is asked, it answers the same.
            sampled_rewards=(scores[rewards[0].name][k],),
            sampled_read=(True,),
            sampled_boxes=(len(boxes[k]),),
        )
        for k, image in enumerate(images)
    ]


def constant_boxes(rows: Iterable[Mapping[str, Any]]) -> dict[str, Array]:
    """The best box, or boxes, for an answer that never looks: what reaches the highest mean IoU on the rows.

    Three answers are tried: the median box of every label that at least half of the images carry, else of the most
    frequent label; the median of all boxes; and one box that is fitted to all. The latter two get the most frequent
    label.

    Args:
        rows: training images with ``boxes``, ``labels``, ``width`` and ``height``.

    Returns:
        By label one box ``(4,)``, as fractions of the image's width and height; empty where the rows have no box.

    Example:
        >>> row = {"boxes": [[0, 0, 50, 100]], "labels": ["right lung"], "width": 100, "height": 200}
        >>> constant_boxes([row, {**row, "boxes": [[0, 0, 30, 100]]}])
        {'right lung': array([0. , 0. , 0.4, 0.5])}
    """
    boxes_of_rows: list[Array] = []
    by_label: dict[str, list[Array]] = defaultdict(list)
    images_with_label: Counter[str] = Counter()
    for row in rows:
        size = np.array([row["width"], row["height"]] * 2, dtype=np.float64)
        row_boxes = as_box_array(row["boxes"]) / size
        boxes_of_rows.append(row_boxes)
        for box, label in zip(row_boxes, row["labels"], strict=True):
            by_label[label].append(box)
        images_with_label.update(set(row["labels"]))
    if not by_label:
        return {}
    gt = BoxBatch.of(boxes_of_rows, "boxes")
    main_label = max(by_label, key=lambda label: images_with_label[label])
    frequent_labels = [label for label in by_label if 2 * images_with_label[label] >= len(gt.counts)] or [main_label]
    medians = {label: np.median(label_boxes, axis=0) for label, label_boxes in by_label.items()}
    median_of_all = np.median(gt.flat, axis=0)
    candidates = [{label: medians[label] for label in frequent_labels}, {main_label: median_of_all}]
    # A box that is fitted to few boxes fits no others.
    if len(gt.flat) >= _FEWEST_FITTED:
        candidates.append({main_label: _fitted_box(gt, [median_of_all, *medians.values()])})
    return max(candidates, key=lambda candidate: _mean_iou_of(np.array(list(candidate.values())), gt))


def _mean_iou_of(boxes: Array, gt: BoxBatch) -> float:
    """The mean IoU where every image gets these boxes as its answer.

    Args:
        boxes: ``(n, 4)`` as fractions of the image's sides.
        gt: the reference boxes of the images, as fractions too.
    """
    images = len(gt.counts)
    pred = BoxBatch(np.tile(boxes, (images, 1)), np.full(images, len(boxes)))
    pairs = _ANY_PAIR.match_and_score(pred, gt)
    return float(pairs.iou[pairs.hit].sum()) / len(gt.flat)


def _fitted_box(gt: BoxBatch, medians: Sequence[Array]) -> Array:
    """The one box of about the largest mean IoU with the reference boxes, searched by small steps from some boxes.

    Args:
        gt: the reference boxes of the training images, as fractions of their sides.
        medians: boxes to begin from, beside some of the reference boxes.
    """
    counts = gt.counts[gt.counts > 0][:_MOST_FITTED]
    # The boxes of the first images that have any, and the index of each image's first box among them.
    boxes, first_boxes = gt.flat[: counts.sum()], np.cumsum(counts) - counts

    def matched_iou(candidates: Array) -> Array:
        """The sum over images of each candidate's best IoU, as one box can match only one, ``(candidates,)``."""
        return np.asarray(np.maximum.reduceat(pairwise_iou(candidates, boxes), first_boxes, axis=1).sum(axis=1))

    # The medians and about `_STARTS` of the boxes, evenly spread.
    candidates = np.vstack([*medians, boxes[:: max(1, len(boxes) // _STARTS)]])
    starts = candidates[np.argsort(-matched_iou(candidates))[:_CLIMBS]]
    # A climb may get stuck at a box of the training images, which fits itself too well: several are tried.
    fitted = [_climb(start, matched_iou) for start in starts]
    return max(fitted, key=lambda box: float(matched_iou(box[None])[0]))


def _climb(box: Array, height: Callable[[Array], Array]) -> Array:
    """The box that is reached from this one by moves of an edge or of the whole box, each to the best box beside it.

    Where no move of a step makes the box better, the next, smaller step is tried, to the finest.

    Args:
        box: ``(4,)`` where the climb begins.
        height: how good boxes are, from ``(n, 4)`` to ``(n,)``.
    """
    box_height = float(height(box[None])[0])
    for step in _STEPS:
        while True:
            moved_boxes = box + step * _MOVES
            heights = height(moved_boxes)
            if heights.max() <= box_height + _ROUNDING:
                break
            box, box_height = moved_boxes[heights.argmax()], float(heights.max())
    return box


def patient_folds(patients: Sequence[Any] | None, images: int) -> list[NDArray[np.bool_]]:
    """Divide images into the images of each fifth of the patients; constant boxes are fitted on the other patients.

    Args:
        patients: of each image, where known; without them every image is a patient of its own.
        images: how many there are.

    Returns:
        For each fifth, which images are in it, ``(images,)``; of fewer than five patients for each patient.

    Example:
        >>> patient_folds(["a", "b", "a"], 3)
        [array([ True, False,  True]), array([False,  True, False])]
    """
    number = group_numbers(patients, images)
    folds = min(_FOLDS, int(number.max(initial=-1)) + 1)
    return [number % folds == fold for fold in range(folds)]


def _constant_answers(
    images: Sequence[Prediction], rows: Sequence[Mapping[str, Any]], training: Iterable[Mapping[str, Any]] | None
) -> list[BoxAnswer]:
    """The constant answer to each image, fitted on training images or else on the images of other patients.

    An image is answered by the rows that ask for the same labels, and by all rows where none of them does or has a box.

    Args:
        images: that are answered.
        rows: those of the images.
        training: rows to fit on; None to fit on `rows`.

    Returns:
        One answer for each image; none at all where there is no box to fit one to.
    """
    fitting_rows = [{**row, "labels": named_labels(row)} for row in (rows if training is None else training)]
    # A fold is which images are answered, and which of the fitting rows their answer is fitted on.
    if training is None:
        asked_of_fitting_rows = [image.asked for image in images]
        folds = [(in_fold, ~in_fold) for in_fold in patient_folds(patients_of(images), len(images))]
    else:
        # Of the labels that the images state, as those are looked for in the questions of the images too.
        asked_of_fitting_rows = asked_labels(map(question_of, fitting_rows), stated_labels(rows))
        folds = [(np.ones(len(images), dtype=bool), np.ones(len(fitting_rows), dtype=bool))]
    # Every image is in one fold, and gets its answer there.
    answers: list[BoxAnswer] = [(np.zeros((0, 4)), [])] * len(images)
    for is_answered, is_fitted in folds:
        fold_rows = [row for row, is_member in zip(fitting_rows, is_fitted, strict=True) if is_member]
        rows_by_asked: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
        for k in np.flatnonzero(is_fitted).tolist():
            rows_by_asked[asked_of_fitting_rows[k]].append(fitting_rows[k])
        boxes_by_asked = {labels: constant_boxes(members) for labels, members in rows_by_asked.items()}
        boxes_of_all = constant_boxes(fold_rows)
        for k in np.flatnonzero(is_answered).tolist():
            boxes = boxes_by_asked.get(images[k].asked) or boxes_of_all
            answers[k] = constant_answer(boxes, width=images[k].width, height=images[k].height)
    has_boxes = any(answer_labels for _, answer_labels in answers)
    return answers if has_boxes else []


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

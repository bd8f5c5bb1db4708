"""Rulers: metrics that judge every model alike, whatever reward trained it.

Each ruler is made of sums over images, which :attr:`Ruler.parts` gives, and of what :attr:`Ruler.combine` makes of
them, so that the metric of any resampling of patients is a product of weights and sums (of image dependence, which
compares images with each other, its linear part). On the images as they are it is
the metric of :mod:`grounding_rewards.metrics`, whose functions read, pair and count here too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from grounding_rewards.common.arithmetic import Array, ratio, ratio_or_nan
from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.answers import read_answers
from grounding_rewards.metrics.counts import image_sums
from grounding_rewards.metrics.curves import totals
from grounding_rewards.metrics.image_dependence import dependence_sums
from grounding_rewards.metrics.intervals import group_numbers
from grounding_rewards.metrics.ranking import Indices, rank_boxes
from grounding_rewards.parsing.space_check import SpaceWarning
from grounding_rewards.rewards import SPECIFICATION_REWARDS
from grounding_rewards.rewards.average_precision import newly_reached
from grounding_rewards.rewards.grounding import get_reward

#: The reward without a threshold, which judges every model beside R1 … R5.
SOFT = "soft_f1"
_REWARDS = (*SPECIFICATION_REWARDS, SOFT)
#: False boxes per image at which sensitivity is read.
FALSE_PER_IMAGE = 1.0


@dataclass(frozen=True, eq=False)
class ModelAnswers:
    """What one model answered to the images of a set, read once for all rulers.

    Attributes:
        images: with the answers, in the order of the set.
    """

    images: Sequence[AnsweredImage]

    @cached_property
    def sums(self) -> dict[str, Array]:
        """Of :func:`grounding_rewards.metrics.counts.image_sums`."""
        return image_sums(self.images)

    @cached_property
    def patients(self) -> Indices:
        """The number of each image's patient, from 0; an image of an unknown one is its own."""
        names = [image.id if image.patient is None else ("patient", image.patient) for image in self.images]
        return group_numbers(names, len(self.images))


@dataclass(frozen=True)
class Ruler:
    """A metric that is made of sums over images.

    Attributes:
        key: name in YAML and in files.
        heading: for tables.
        parts: answers to ``(images, k)``; k may differ between models.
        combine: sums ``(..., k)`` to values ``(...)``, NaN where there is nothing to measure.
        lower_is_better: whether it is.
    """

    key: str
    heading: str
    parts: Callable[[ModelAnswers], Array]
    combine: Callable[[Array], Array]
    lower_is_better: bool = False

    @property
    def sign(self) -> int:
        """1 where more is better, -1 where less is."""
        return -1 if self.lower_is_better else 1

    def value(self, answers: ModelAnswers) -> float:
        """The metric of these answers.

        Example:
            >>> image = AnsweredImage("a", 9, 9, gt=[[0, 0, 4, 4]], gt_labels=["x"], pred=[[0, 0, 4, 2]])
            >>> RULERS["mean_iou"].value(ModelAnswers([image]))
            0.5
        """
        return float(self.combine(self.parts(answers).sum(axis=0)))


def read_model(rows: Sequence[Mapping[str, Any]], texts: Sequence[str], box_format: Any) -> ModelAnswers:
    """Read what a model answered to the images of a set, scored by every reward that is a ruler.

    Args:
        rows: of the images, with boxes, width and height.
        texts: the answer to each.
        box_format: how the model writes boxes; None where the rows say.

    Raises:
        ValueError: a row lacks what metrics are made of.
    """
    reward = get_reward(SOFT, box_format=box_format)
    with warnings.catch_warnings():
        # Training has said so, where it matters; a start that has learned little contradicts any space.
        warnings.simplefilter("ignore", SpaceWarning)
        return ModelAnswers(read_answers(rows, [[text] for text in texts], reward))


def _quotient(sums: Array) -> Array:
    return ratio_or_nan(sums[..., 0], sums[..., 1])


def _of_sums(key: str, heading: str, **more: Any) -> Ruler:
    return Ruler(key, heading, lambda answers: answers.sums[key], _quotient, **more)


def _tied_parts(answers: ModelAnswers) -> Array:
    """Right boxes, boxes and reference boxes of each image at IoU 0.5, all boxes tied."""
    ranked = rank_boxes(answers.images, (0.5,), ranking="tied")
    return totals(ranked.of_label(None), 0).T.astype(np.float64)


def _tied_ap(sums: Array) -> Array:
    # One point on the curve: its precision at as many of the 101 recall levels as it reaches.
    hits, boxes, references = np.moveaxis(np.atleast_2d(sums), -1, 0)
    levels = np.linspace(0.0, 1.0, 101)
    recall = ratio(hits, references)[..., None]
    reached = newly_reached(recall, levels)[..., 0] / len(levels)
    return np.where(references > 0, ratio(hits, boxes) * reached, np.nan).reshape(sums.shape[:-1])


def _froc_parts(answers: ModelAnswers) -> Array:
    """Of each image the reference boxes, 1, and right and counted boxes among its first, first two, … boxes."""
    boxes = rank_boxes(answers.images, (0.5,), ranking="emission").of_label(None)
    places = int(boxes.key.max(initial=-1)) + 1
    found = np.zeros((2, len(answers.images), places))
    for table, mask in zip(found, (boxes.hit[0], boxes.counts[0]), strict=True):
        np.add.at(table, (boxes.image, boxes.key.astype(np.int64)), mask)
    right, counted = found.cumsum(axis=2)
    return np.column_stack([boxes.references, np.ones(len(answers.images)), right, counted]).astype(np.float64)


def _froc_sensitivity(sums: Array) -> Array:
    # The best of the first boxes of all images, the first two, …, that keeps to so many false boxes per image.
    references, images = sums[..., 0], sums[..., 1]
    right, counted = np.split(sums[..., 2:], 2, axis=-1)
    allowed = ratio(counted - right, images[..., None]) <= FALSE_PER_IMAGE
    best = np.where(allowed, right, 0.0).max(axis=-1, initial=0.0)
    return ratio_or_nan(best, references)


_FOUND = (
    _of_sums("mean_iou", "mean IoU"),
    _of_sums("f1_50", "F1@0.5"),
    Ruler(
        "image_dependence",
        "image dependence",
        lambda answers: dependence_sums(answers.images)["image_dependence"],
        _quotient,
    ),
    _of_sums("precision_50", "precision@0.5"),
    _of_sums("recall_50", "recall@0.5"),
    _of_sums("hallucination_rate", "hallucination", lower_is_better=True),
    Ruler("ap_50", "AP tied", _tied_parts, _tied_ap),
    Ruler("sensitivity_1", "sensitivity at 1 false box", _froc_parts, _froc_sensitivity),
    _of_sums("dice", "Dice"),
    *(_of_sums(f"reward_{name}", name.replace("_", " ")) for name in _REWARDS),
)
#: By key; a key that metrics/ has too is the same metric.
RULERS: dict[str, Ruler] = {ruler.key: ruler for ruler in _FOUND}


def ruler_of(key: str) -> Ruler:
    """A ruler by its key.

    Raises:
        ValueError: there is none of that name; lists them.

    Example:
        >>> ruler_of("dice").heading
        'Dice'
    """
    if key not in RULERS:
        raise ValueError(f"Expected a ruler for the primary metric, got {key!r}. Declare one of: {', '.join(RULERS)}.")
    return RULERS[key]

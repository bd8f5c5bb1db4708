"""How a reward answers to one thing at a time: the fit, false boxes, findings missed, a box that moves.

What is drawn of a reward (specification §8.2 to §8.4, computed). Everything is in units of the side of one square
finding; a reward has ``score_many(pred, gt)``, as those of :func:`grounding_rewards.get_reward` have.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from grounding_rewards.common.arithmetic import Array
from grounding_rewards.overlap import pairwise_iou

_FINDING = np.array([0.0, 0.0, 1.0, 1.0])
# A reward that rises faster than this from one point of a curve to the next is taken to jump there.
_JUMP = 0.1


class Scorer(Protocol):
    """A reward on boxes of many images."""

    def score_many(self, pred: Any, gt: Any) -> list[float]:
        """One number for each image."""


class RewardCurve(NamedTuple):
    """A reward ``y`` at ``x``, ``(points,)`` each."""

    x: Array
    y: Array


class Response(NamedTuple):
    """All that is drawn of one reward.

    iou: reward over IoU, for one finding and one box.
    slope: its derivative; NaN where the reward jumps.
    false_boxes: over the number of false boxes beside one right one.
    found: over the share of eight findings that is found, each at IoU 0.8.
    moved: the reward of a box of the finding's size that is moved by (x, y), ``(steps, steps)``, y first.
    moves: by how much, ``(steps,)``.
    walk: over the steps of a box that walks at random.
    walk_iou: its IoU, at the same steps.
    """

    iou: RewardCurve
    slope: RewardCurve
    false_boxes: RewardCurve
    found: RewardCurve
    moved: Array
    moves: Array
    walk: RewardCurve
    walk_iou: Array


def response(reward: Scorer) -> Response:
    """Everything that is drawn of a reward.

    Example:
        >>> import grounding_rewards as gr
        >>> r3 = response(gr.get_reward("R3"))
        >>> float(r3.iou.y[r3.iou.x == 0.4][0]), float(r3.iou.y[r3.iou.x == 0.8][0])
        (0.0, 0.8)
        >>> r3.false_boxes.y[:2].round(4).tolist()
        [1.0, 0.7647]
    """
    iou = over_iou(reward)
    moves, moved = over_displacement(reward)
    walk, walk_iou = over_walk(reward)
    return Response(iou, slope(iou), over_false_boxes(reward), over_found(reward), moved, moves, walk, walk_iou)


def over_iou(reward: Scorer, points: int = 201) -> RewardCurve:
    """The reward of one box on one finding, over their IoU.

    Example:
        >>> import grounding_rewards as gr
        >>> over_iou(gr.get_reward("soft_f1"), points=3).y.tolist()
        [0.0, 0.5, 1.0]
    """
    ious = np.linspace(0, 1, points)
    boxes = [[[0.0, 0.0, 1.0, iou]] if iou else [[0.0, 1.0, 1.0, 2.0]] for iou in ious]
    return _curve(reward, ious, boxes, [_FINDING[None]] * points)


def slope(curve: RewardCurve) -> RewardCurve:
    """The derivative of a curve between its points; NaN where it jumps.

    Example:
        >>> slope(RewardCurve(np.array([0.0, 0.1, 0.2]), np.array([0.0, 0.02, 0.9]))).y
        array([0.2, nan])
    """
    rise, run = np.diff(curve.y), np.diff(curve.x)
    return RewardCurve((curve.x[1:] + curve.x[:-1]) / 2, np.where(np.abs(rise) > _JUMP, np.nan, rise / run))


def over_false_boxes(reward: Scorer, most: int = 8) -> RewardCurve:
    """The reward of a perfect box and so many false ones behind it.

    Example:
        >>> import grounding_rewards as gr
        >>> over_false_boxes(gr.get_reward("R1", ranking="tied"), most=1).y.tolist()
        [1.0, 0.5]
    """
    boxes = [[_FINDING, *_others(count)] for count in range(most + 1)]
    return _curve(reward, np.arange(most + 1.0), boxes, [_FINDING[None]] * (most + 1))


def over_found(reward: Scorer, findings: int = 8, iou: float = 0.8) -> RewardCurve:
    """The reward of boxes at one IoU on so many of the findings, over the share that is found; none is false.

    Example:
        >>> import grounding_rewards as gr
        >>> over_found(gr.get_reward("R2", product="geometric"), findings=1).y.round(4).tolist()
        [0.0, 0.8]
    """
    all_of_them = np.array(_others(findings))
    fitting = all_of_them * (1, 1, 1, iou)
    boxes = [fitting[:count] for count in range(findings + 1)]
    return _curve(reward, np.arange(findings + 1) / findings, boxes, [all_of_them] * (findings + 1))


def over_displacement(reward: Scorer, reach: float = 1.5, steps: int = 41) -> tuple[Array, Array]:
    """The reward of a box of the finding's size, moved along both axes.

    Returns:
        ``(steps,)`` by how much, and ``(steps, steps)`` rewards, the vertical move first.

    Example:
        >>> import grounding_rewards as gr
        >>> over_displacement(gr.get_reward("R3"), reach=0.5, steps=3)[1].round(2).tolist()
        [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    moves = np.linspace(-reach, reach, steps)
    boxes = _moved([(x, y) for y in moves for x in moves])[:, None]
    return moves, np.array(reward.score_many(list(boxes), [_FINDING[None]] * len(boxes))).reshape(steps, steps)


def over_walk(reward: Scorer, steps: int = 160, seed: int = 7) -> tuple[RewardCurve, Array]:
    """The reward of a box that walks at random around the finding.

    Every step goes a fifteenth of the way back, and about a tenth of a side anywhere.

    Returns:
        The reward over the steps, and the IoU at each.

    Example:
        >>> import grounding_rewards as gr
        >>> walk, iou = over_walk(gr.get_reward("soft_f1"), steps=3)
        >>> bool((walk.y == iou).all()), float(iou[0])
        (True, 1.0)
    """
    rng = np.random.default_rng(seed)
    at = np.zeros((steps, 2))
    for k in range(1, steps):
        at[k] = at[k - 1] * 14 / 15 + rng.normal(0, 0.1, 2)
    boxes = _moved(at)
    walk = _curve(reward, np.arange(float(steps)), boxes[:, None], [_FINDING[None]] * steps)
    return walk, pairwise_iou(boxes, _FINDING[None])[:, 0]


def _moved(by: Any) -> Array:
    """The finding's box moved by each ``(x, y)``, ``(n, 4)``."""
    return _FINDING + np.tile(np.reshape(by, (-1, 2)), 2)


def _others(count: int) -> list[Array]:
    """Boxes of the finding's size that touch neither it nor each other."""
    return list(_moved([(2.0 * (k + 2), 0.0) for k in range(count)]))


def _curve(reward: Scorer, x: Array, pred: Any, gt: Any) -> RewardCurve:
    return RewardCurve(x, np.array(reward.score_many(list(pred), list(gt)), dtype=np.float64))

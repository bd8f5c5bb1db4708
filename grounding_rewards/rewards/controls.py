"""Controls for a study: rewards that do not ask boxes to fit, and but for `pointing` know of no finding's place.

What a training run gains under one of the others it did not gain by learning to ground. They judge the text, or what
answers to one image have in common, and not the references; what is logged beside the number, such as matches and
F-beta, is R3's, so that runs compare.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from grounding_rewards.boxes import Boxes, as_box_array, valid_boxes
from grounding_rewards.common.numeric import Array, ratio
from grounding_rewards.matching import Indices, match_batch
from grounding_rewards.parsing import RawBoxes
from grounding_rewards.rewards.box_reward import MatchedBatch
from grounding_rewards.rewards.f_beta import BetaReward, SoftF1Reward, f_beta_score
from grounding_rewards.rewards.scoring import ReadBatch, row_names


@dataclass(frozen=True, kw_only=True)
class PointingReward(BetaReward):
    """pointing: control; F-beta of the boxes whose centre lies in a finding, one to one, in [0, 1].

    It stands beside rewards that ask for a fit: what remains when a box only has to point. As many pairs as there can
    be; among those the greatest total IoU. A centre on the edge of a finding lies in it.

    It takes the parameters of :class:`BetaReward`.

    Ceiling: n boxes on an image with m findings earn at most ``(1 + β²) min(n, m) / (n + β² m)``, as under R2 to R5. A
    speck in the middle of a finding earns what the finding itself does.

    Raises:
        ValueError: a parameter is out of its range.

    Example:
        >>> findings = [[0, 0, 10, 10], [50, 50, 60, 60]]
        >>> PointingReward().score([[4, 4, 5, 5], [20, 20, 90, 90]], findings)
        1.0
        >>> PointingReward().score([[4, 4, 5, 5], [5, 5, 6, 6]], findings)
        0.5

    Source: the pointing game of Zhang et al., Top-Down Neural Attention by Excitation Backprop, IJCV 2018, §5.1, for
    several findings.
    """

    def _overlap(self, pred: Boxes, gt: Boxes, iou: Array) -> Array:
        with np.errstate(all="ignore"):
            centre = (pred[..., :2] + (pred[..., 2:] - pred[..., :2]) / 2)[..., :, None, :]
            lies_in = ((gt[..., None, :, :2] <= centre) & (centre <= gt[..., None, :, 2:])).all(axis=-1)
        lies_in &= valid_boxes(pred)[..., :, None] & valid_boxes(gt)[..., None, :]
        # In [0.5, 1]: every pair counts alike in F-beta, the IoU only decides between equally many.
        return np.where(lies_in, 0.5 + 0.5 * iou, 0.0)

    def _pair_up(self, overlap: Array) -> Indices:
        return match_batch(overlap, 0.0, matching="most_hits")

    def _combine(self, batch: MatchedBatch) -> tuple[Array, Array, Array]:
        f_beta = f_beta_score(batch.precision, batch.recall, self.beta)
        return f_beta, ratio(batch.tp, batch.tp), f_beta


@dataclass(frozen=True, kw_only=True)
class FormatOnlyReward:
    """format_only: control; 1 for a text that is read without a fault, whatever its boxes, else 0.

    A text is read without a fault if it holds at least one complete box, or states that there is nothing; nothing in
    it is broken or was rejected; and it was not cut off. Neither the image nor the findings play a part. Box arrays are
    read already, so that ``score`` is 1.

    Example:
        >>> import grounding_rewards as gr
        >>> control = gr.get_reward("format_only", box_format="qwen3-vl")
        >>> texts = ['[{"bbox_2d": [0, 0, 500, 400]}]', "[]", '[{"bbox_2d": [0, 0, 500]}]', "no idea"]
        >>> control(texts, boxes=[[[0, 0, 9, 9]]] * 4, width=[100] * 4, height=[100] * 4)
        [1.0, 1.0, 0.0, 0.0]

    Source: the format reward of DeepSeek-R1, arXiv 2501.12948, §2.2.2, for answers that are boxes.
    """

    def of_text(self, text: str, read: RawBoxes, row: str) -> float:
        return float(read.status in ("boxes", "empty") and not read.rejected and not read.broken)

    def score(self, pred: ArrayLike, gt: ArrayLike) -> float:
        _check_boxes(pred, gt)
        return 1.0


@dataclass(frozen=True, kw_only=True)
class ConstantReward:
    """constant: control; 0.5 for every text.

    Every advantage is 0: what changes in training comes from elsewhere, such as a penalty on the distance to the
    reference model, or weight decay.

    Example:
        >>> ConstantReward().score([[0, 0, 10, 10]], [])
        0.5
    """

    def of_text(self, text: str, read: RawBoxes, row: str) -> float:
        return 0.5

    def score(self, pred: ArrayLike, gt: ArrayLike) -> float:
        _check_boxes(pred, gt)
        return 0.5


@dataclass(frozen=True, kw_only=True)
class RandomReward:
    """random: control; a number drawn uniformly from [0, 1) for each text and image.

    A function of the seed, the text and the row (its ``id``, else its reference boxes): the same on every rank, in
    every run and after a resume. So it stays what it is where an image returns: a model can learn by heart which of its
    answers was lucky there, and nothing that holds for another image. Of box arrays it is a function too.

    Args:
        seed: another one gives other numbers, an integer.

    Raises:
        ValueError: ``seed`` is no integer.

    Example:
        >>> control = RandomReward(seed=3)
        >>> control.score([[0, 0, 9, 9]], []) == control.score([[0, 0, 9, 9]], [])
        True
        >>> control.score([[0, 0, 9, 9]], []) == RandomReward(seed=4).score([[0, 0, 9, 9]], [])
        False

    Source: random rewards as a control, Shao et al., Spurious Rewards, arXiv 2506.10947.
    """

    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.seed, int) or isinstance(self.seed, bool):
            raise ValueError(f"Expected an integer for `seed`, got {self.seed!r:.200}. The default is 0.")

    def of_text(self, text: str, read: RawBoxes, row: str) -> float:
        # repr keeps the three apart, and any character that UTF-8 does not have
        drawn = hashlib.blake2b(ascii((self.seed, row, text)).encode(), digest_size=8).digest()
        # 53 bits: every number is exact, and below 1
        return (int.from_bytes(drawn, "big") >> 11) * 2.0**-53

    def score(self, pred: ArrayLike, gt: ArrayLike) -> float:
        pred, gt = as_box_array(pred, "pred"), as_box_array(gt, "gt")
        return self.of_text(str(pred.tolist()), RawBoxes([], [], [], "boxes", {}), str(gt.tolist()))


@dataclass(frozen=True, kw_only=True)
class ConsensusReward:
    """consensus: control; how well an answer agrees with the other answers to its image in the batch, in [0, 1].

    The mean of `soft_f1` against each other answer of the same row (its ``id``, else its reference boxes), 1 where both
    hold nothing. No reference is read: what is gained so, the model knew before. 0 for a text that can't be read, and
    for an answer without others. Box arrays are two answers.

    Example:
        >>> import grounding_rewards as gr
        >>> control = gr.get_reward("consensus", box_format="qwen3-vl")
        >>> texts = ['[{"bbox_2d": [0, 0, 500, 500]}]', '[{"bbox_2d": [0, 0, 500, 500]}]', "[]"]
        >>> control(texts, id=["a"] * 3, boxes=[[[60, 60, 99, 99]]] * 3, width=[100] * 3, height=[100] * 3)
        [0.5, 0.5, 0.0]

    Source: majority voting in the place of labels, Zuo et al., TTRL, arXiv 2504.16084, for boxes.
    """

    def of_batch(self, read: ReadBatch) -> Array:
        parts = np.split(read.pred.flat, np.cumsum(read.pred.counts))[:-1]
        readable = [raw.status in ("boxes", "empty") for raw in read.raws]
        groups: dict[str, list[int]] = {}
        for k, name in enumerate(row_names(read)):
            groups.setdefault(name, []).append(k)
        earned = np.zeros(len(parts))
        for members in groups.values():
            pairs = [(i, j) for i in members for j in members if i != j]
            if pairs:
                agreed = [self.score(parts[i], parts[j]) * (readable[i] and readable[j]) for i, j in pairs]
                earned[members] = np.reshape(agreed, (len(members), -1)).mean(axis=1)
        return earned

    def score(self, pred: ArrayLike, gt: ArrayLike) -> float:
        # A broken or impossible box of the other answer is none that could be found.
        gt = as_box_array(gt, "gt")
        return _AGREEMENT.score(pred, gt[valid_boxes(gt)])


_AGREEMENT = SoftF1Reward(no_box_bonus=1.0)


def _check_boxes(pred: ArrayLike, gt: ArrayLike) -> None:
    as_box_array(pred, "pred")
    as_box_array(gt, "gt")

"""Controls for a study: rewards that do not ask boxes to fit, and, except `pointing`, know nothing of the findings.

What a training run gains under them it did not gain by learning to ground. `pointing` is a reward on boxes; the others
judge the text, or compare the answers to one image, and never use the reference boxes as such.
:func:`grounding_rewards.get_reward` makes each a reward whose log has R3's matches and F-beta, so that runs compare.
"""

import hashlib
from abc import ABC, abstractmethod
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from grounding_rewards.boxes import Boxes, valid_boxes
from grounding_rewards.columns import column_of
from grounding_rewards.common.numeric import Array, ratio
from grounding_rewards.matching import Indices, match_batch
from grounding_rewards.parsing import RawBoxes
from grounding_rewards.rewards.box_reward import Matched
from grounding_rewards.rewards.f_beta import BetaReward, SoftF1Reward, f_beta_score
from grounding_rewards.rewards.scoring import Batch


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
        """Of each pair, (b, n, m): 0.5 to 1, by its IoU, where the predicted centre lies in the finding; else 0.

        Every pair counts alike in F-beta; the IoU only decides between equally many pairs.
        """
        with np.errstate(all="ignore"):
            # (b, n, 1, 2), and (b, 1, m, 2) each, which broadcast to every pair.
            centre = (pred[..., :2] + (pred[..., 2:] - pred[..., :2]) / 2)[..., :, None, :]
            upper_left, lower_right = gt[..., None, :, :2], gt[..., None, :, 2:]
            lies_in = ((upper_left <= centre) & (centre <= lower_right)).all(axis=-1)
        lies_in &= valid_boxes(pred)[..., :, None] & valid_boxes(gt)[..., None, :]
        return np.where(lies_in, 0.5 + 0.5 * iou, 0.0)

    def _pair_up(self, overlap: Array) -> Indices:
        """Pair as many boxes one to one as there can be."""
        return match_batch(overlap, 0.0, matching="most_hits")

    def _combine(self, batch: Matched) -> tuple[Array, Array, Array]:
        """F-beta, the quality and the reward: F-beta is the reward, and the quality is 1 where any box is right."""
        f_beta = f_beta_score(batch.precision, batch.recall, self.beta)
        return f_beta, ratio(batch.tp, batch.tp), f_beta


class TextReward(ABC):
    """A control that judges texts; equal, hashable and picklable as :class:`GroundingReward` has to be."""

    @abstractmethod
    def __call__(self, read: Batch) -> list[float]:
        """A number for each of n completions that were read."""


@dataclass(frozen=True)
class FormatOnly(TextReward):
    """format_only: control; 1 for a text that is read without a fault, whatever its boxes, else 0.

    A text is read without a fault if it holds at least one complete box, or states that there is nothing; nothing in
    it is broken or was rejected; and it was not cut off. Neither the image nor the findings play a part.

    Example:
        >>> import grounding_rewards as gr
        >>> control = gr.get_reward("format_only", box_format="qwen3-vl")
        >>> texts = ['[{"bbox_2d": [0, 0, 500, 400]}]', "[]", '[{"bbox_2d": [0, 0, 500]}]', "no idea"]
        >>> control(texts, boxes=[[[0, 0, 9, 9]]] * 4, width=[100] * 4, height=[100] * 4)
        [1.0, 1.0, 0.0, 0.0]

    Source: the format reward of DeepSeek-R1, arXiv 2501.12948, §2.2.2, for answers that are boxes.
    """

    def __call__(self, read: Batch) -> list[float]:
        """1 for each text that is read without a fault, else 0."""
        return [float(_is_readable(raw) and not raw.rejected and not raw.broken) for raw in read.raws]


@dataclass(frozen=True)
class Constant(TextReward):
    """constant: control; 0.5 for every text.

    Every advantage is 0: what changes in training comes from elsewhere, such as a penalty on the distance to the
    reference model, or weight decay.
    """

    def __call__(self, read: Batch) -> list[float]:
        """0.5 for each text."""
        return [0.5] * len(read.texts)


@dataclass(frozen=True, kw_only=True)
class Random(TextReward):
    """random: control; a number drawn uniformly from [0, 1) for each text and image.

    A function of the seed, the text and the row (its ``id``, else its reference boxes): the same on every rank, in
    every run and after a resume. So it stays what it is where an image returns: a model can learn by heart which of its
    answers was lucky there, and nothing that holds for another image.

    Args:
        seed: another one gives other numbers, an integer.

    Example:
        >>> import grounding_rewards as gr
        >>> image = {"id": ["image-1"], "boxes": [[]], "width": [100], "height": [100]}
        >>> gr.get_reward("random", seed=3, box_format="qwen3-vl")(["[]"], **image)
        [0.610167991746134]

    Source: random rewards as a control, Shao et al., Spurious Rewards, arXiv 2506.10947.
    """

    seed: int = 0

    def __call__(self, read: Batch) -> list[float]:
        """A number in [0, 1) for each text, drawn by a hash of seed, row and text."""
        numbers = []
        for row, text in zip(_row_names(read), read.texts, strict=True):
            # ascii keeps the three apart, and escapes characters that UTF-8 cannot encode.
            key = ascii((self.seed, row, text)).encode()
            digest = hashlib.blake2b(key, digest_size=8).digest()
            # The upper 53 of the 64 bits as a fraction: as many as a float holds exactly, and so below 1.
            numbers.append((int.from_bytes(digest, "big") >> 11) * 2.0**-53)
        return numbers


@dataclass(frozen=True)
class Consensus(TextReward):
    """consensus: control; how well an answer agrees with the other answers to its image in the batch, in [0, 1].

    The mean of `soft_f1` against each other answer of the same row (its ``id``, else its reference boxes), 1 where both
    hold nothing. No reference is read: what is gained so, the model knew before. 0 for a text that can't be read, and
    for an answer without others.

    Example:
        >>> import grounding_rewards as gr
        >>> control = gr.get_reward("consensus", box_format="qwen3-vl")
        >>> texts = ['[{"bbox_2d": [0, 0, 500, 500]}]', '[{"bbox_2d": [0, 0, 500, 500]}]', "[]"]
        >>> control(texts, id=["a"] * 3, boxes=[[[60, 60, 99, 99]]] * 3, width=[100] * 3, height=[100] * 3)
        [0.5, 0.5, 0.0]

    Source: majority voting in the place of labels, Zuo et al., TTRL, arXiv 2504.16084, for boxes.
    """

    def __call__(self, read: Batch) -> list[float]:
        """For each answer the mean agreement with the other answers of its row; 0 with one that can't be read."""
        boxes = read.pred.split()
        # The boxes of an answer when others are scored against it: the valid ones, as every reference box is valid.
        as_references = [pred[valid_boxes(pred)] for pred in boxes]
        # The indices of the answers to each row.
        answers_by_row: dict[str, list[int]] = defaultdict(list)
        for answer, name in enumerate(_row_names(read)):
            answers_by_row[name].append(answer)
        is_readable = np.array([_is_readable(raw) for raw in read.raws], dtype=np.bool_)
        rewards = [0.0] * len(boxes)
        for answers in answers_by_row.values():
            for answer in answers:
                others = [other for other in answers if other != answer]
                if others and is_readable[answer]:
                    references = [as_references[other] for other in others]
                    agreements = _SOFT_F1.score_many([boxes[answer]] * len(others), references)
                    rewards[answer] = float(np.where(is_readable[others], agreements, 0.0).mean())
        return rewards


# Two answers without a box agree fully.
_SOFT_F1 = SoftF1Reward(no_box_bonus=1.0)


def _is_readable(raw: RawBoxes) -> bool:
    """Whether a text has boxes or says that there are none, and was not cut off."""
    return raw.status in ("boxes", "empty")


def _row_names(read: Batch) -> list[str]:
    """A name for each row, the same in every batch: its id, or else its reference boxes."""
    n, references = len(read.texts), read.references
    # The row of each list of boxes: a row with several readers has the boxes of each.
    rows = range(n) if references.rows is None else references.rows
    boxes_of_rows: list[list[Any]] = [[] for _ in range(n)]
    for row, boxes in zip(rows, references.boxes.split(), strict=True):
        boxes_of_rows[row].append(boxes.tolist())
    ids = column_of(read.columns, "id", n)
    row_ids = [None] * n if ids is None else ids
    return [str(boxes if row_id is None else row_id) for boxes, row_id in zip(boxes_of_rows, row_ids, strict=True)]

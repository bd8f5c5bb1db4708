"""Controls for a study: rewards that do not ask boxes to fit, and, except `pointing`, know nothing of the findings.

What a training run gains under them it did not gain by learning to ground. `pointing` is a reward on boxes; the others
are plain functions of TRL's protocol, ``(completions, **columns)``, which read the text, or compare the answers to one
image, and never use the reference boxes as such. :func:`grounding_rewards.get_reward` makes each a reward whose log has
R3's matches and F-beta, so that runs compare.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from grounding_rewards.boxes import Boxes, valid_boxes
from grounding_rewards.columns import column_of, image_sizes, read_references, with_ground_truth
from grounding_rewards.common.numeric import Array, ratio
from grounding_rewards.matching import Indices, match_batch
from grounding_rewards.parsing import BoxFormat, RawBoxes, read_boxes
from grounding_rewards.rewards.box_reward import MatchedBatch
from grounding_rewards.rewards.completions import completion_text
from grounding_rewards.rewards.f_beta import BetaReward, SoftF1Reward, f_beta_score
from grounding_rewards.rewards.scoring import named_format, predicted_boxes


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


def format_only(completions: Sequence[Any], **columns: Any) -> list[float]:
    """format_only: control; 1 for a text that is read without a fault, whatever its boxes, else 0.

    A text is read without a fault if it holds at least one complete box, or states that there is nothing; nothing in
    it is broken or was rejected; and it was not cut off. Neither the image nor the findings play a part.

    Args:
        completions: n texts or message lists.
        **columns: the dataset's; ``box_format`` is read, and ``prompt_opens_thinking`` if it is there.

    Returns:
        n times 0 or 1.

    Example:
        >>> import grounding_rewards as gr
        >>> control = gr.get_reward("format_only", box_format="qwen3-vl")
        >>> texts = ['[{"bbox_2d": [0, 0, 500, 400]}]', "[]", '[{"bbox_2d": [0, 0, 500]}]', "no idea"]
        >>> control(texts, boxes=[[[0, 0, 9, 9]]] * 4, width=[100] * 4, height=[100] * 4)
        [1.0, 1.0, 0.0, 0.0]
        >>> format_only(texts, box_format=["qwen3-vl"] * 4)
        [1.0, 1.0, 0.0, 0.0]

    Source: the format reward of DeepSeek-R1, arXiv 2501.12948, §2.2.2, for answers that are boxes.
    """
    raws, _ = _read(completions, columns)
    return [float(_is_readable(raw) and not raw.rejected and not raw.broken) for raw in raws]


def constant(completions: Sequence[Any], **columns: Any) -> list[float]:
    """constant: control; 0.5 for every text.

    Every advantage is 0: what changes in training comes from elsewhere, such as a penalty on the distance to the
    reference model, or weight decay.

    Example:
        >>> constant(["[]", "no idea"])
        [0.5, 0.5]
    """
    return [0.5] * len(completions)


def random(completions: Sequence[Any], *, seed: int = 0, **columns: Any) -> list[float]:
    """random: control; a number drawn uniformly from [0, 1) for each text and image.

    A function of the seed, the text and the row (its ``id``, else its reference boxes): the same on every rank, in
    every run and after a resume. So it stays what it is where an image returns: a model can learn by heart which of its
    answers was lucky there, and nothing that holds for another image.

    Args:
        completions: n texts or message lists.
        seed: another one gives other numbers, an integer.
        **columns: the dataset's; ``id`` or the reference boxes are read.

    Raises:
        ValueError: ``seed`` is no integer.

    Example:
        >>> numbers = random(["[]"], seed=3, id=["image-1"])
        >>> numbers == random(["[]"], seed=3, id=["image-1"]), numbers == random(["[]"], seed=4, id=["image-1"])
        (True, False)

    Source: random rewards as a control, Shao et al., Spurious Rewards, arXiv 2506.10947.
    """
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ValueError(f"Expected an integer for `seed`, got {seed!r:.200}. The default is 0.")
    numbers = []
    for row, completion in zip(_row_names(columns, len(completions)), completions, strict=True):
        # ascii keeps the three apart, and writes any character that UTF-8 does not have.
        key = ascii((seed, row, completion_text(completion))).encode()
        digest = hashlib.blake2b(key, digest_size=8).digest()
        # 53 bits: every number is exact, and below 1.
        numbers.append((int.from_bytes(digest, "big") >> 11) * 2.0**-53)
    return numbers


def consensus(completions: Sequence[Any], **columns: Any) -> list[float]:
    """consensus: control; how well an answer agrees with the other answers to its image in the batch, in [0, 1].

    The mean of `soft_f1` against each other answer of the same row (its ``id``, else its reference boxes), 1 where both
    hold nothing. No reference is read: what is gained so, the model knew before. 0 for a text that can't be read, and
    for an answer without others.

    Args:
        completions: n texts or message lists.
        **columns: the dataset's; ``box_format``, sizes, and ``id`` or the reference boxes are read.

    Example:
        >>> import grounding_rewards as gr
        >>> control = gr.get_reward("consensus", box_format="qwen3-vl")
        >>> texts = ['[{"bbox_2d": [0, 0, 500, 500]}]', '[{"bbox_2d": [0, 0, 500, 500]}]', "[]"]
        >>> control(texts, id=["a"] * 3, boxes=[[[60, 60, 99, 99]]] * 3, width=[100] * 3, height=[100] * 3)
        [0.5, 0.5, 0.0]

    Source: majority voting in the place of labels, Zuo et al., TTRL, arXiv 2504.16084, for boxes.
    """
    raws, formats = _read(completions, columns)
    try:
        sizes = image_sizes(columns, len(raws))
    except ValueError:
        # Only some box formats need them.
        sizes = None
    pred = predicted_boxes(raws, formats, columns, sizes)
    boxes = np.split(pred.flat, np.cumsum(pred.counts))[:-1]
    groups: dict[str, list[int]] = {}
    for k, name in enumerate(_row_names(columns, len(raws))):
        groups.setdefault(name, []).append(k)
    rewards = np.zeros(len(raws))
    for members in groups.values():
        pairs = [(i, j) for i in members for j in members if i != j]
        if pairs:
            agreements = [
                _agreement(boxes[i], boxes[j]) * (_is_readable(raws[i]) and _is_readable(raws[j])) for i, j in pairs
            ]
            rewards[members] = np.reshape(agreements, (len(members), -1)).mean(axis=1)
    return rewards.tolist()


_SOFT_F1 = SoftF1Reward(no_box_bonus=1.0)


def _agreement(answer: Boxes, other_answer: Boxes) -> float:
    # A broken or impossible box of the other answer is not one that could be found.
    return _SOFT_F1.score(answer, other_answer[valid_boxes(other_answer)])


def _is_readable(raw: RawBoxes) -> bool:
    return raw.status in ("boxes", "empty")


def _read(completions: Sequence[Any], columns: Mapping[str, Any]) -> tuple[list[RawBoxes], list[BoxFormat]]:
    n = len(completions)
    names = column_of(columns, "box_format", n)
    if names is None:
        raise ValueError(
            "Expected a column `box_format` for a control that reads texts, got none. "
            "Add it, or build the control with get_reward(..., box_format=...)."
        )
    formats = [name if isinstance(name, BoxFormat) else named_format(name) for name in names]
    opened = column_of(columns, "prompt_opens_thinking", n) or [False] * n
    raws = [
        read_boxes(completion_text(completion), box_format, prompt_opens_thinking=bool(is_open))
        for completion, box_format, is_open in zip(completions, formats, opened, strict=True)
    ]
    return raws, formats


def _row_names(columns: Mapping[str, Any], n: int) -> list[str]:
    """A name for each row, independent of its neighbours in the batch: its id, or else its reference boxes."""
    columns = with_ground_truth(columns, n)
    ids = column_of(columns, "id", n) or [None] * n
    if None not in ids:
        return [str(name) for name in ids]
    references = read_references(columns, n, labelled=False)
    rows = range(n) if references.rows is None else references.rows
    boxes_of_rows: list[list[Any]] = [[] for _ in range(n)]
    parts = np.split(references.boxes.flat, np.cumsum(references.boxes.counts))[:-1]
    for row, boxes in zip(rows, parts, strict=True):
        boxes_of_rows[row].append(boxes.tolist())
    return [str(boxes if name is None else name) for boxes, name in zip(boxes_of_rows, ids, strict=True)]


@dataclass(frozen=True, repr=False)
class TextReward:
    """A control with its parameters; equal, hashable and picklable as :class:`GroundingReward` has to be."""

    function: Callable[..., list[float]]
    parameters: tuple[tuple[str, Any], ...] = ()

    @staticmethod
    def of(function: Callable[..., list[float]], parameters: Mapping[str, Any]) -> TextReward:
        """Check the parameters on no completions.

        Raises:
            ValueError: one is out of its range.
        """
        defaults = {option.name: option.default for option in control_parameters(function)}
        control = TextReward(function, tuple(sorted({**defaults, **parameters}.items())))
        control([], {"boxes": [], "box_format": []})
        return control

    def __call__(self, completions: Sequence[Any], columns: Mapping[str, Any]) -> list[float]:
        """The control's numbers; a column of the dataset that is called like a parameter does not replace it."""
        return self.function(completions, **{**columns, **dict(self.parameters)})

    def __repr__(self) -> str:
        return f"{self.function.__name__}({', '.join(f'{name}={value!r}' for name, value in self.parameters)})"


def control_parameters(function: Callable[..., list[float]]) -> list[inspect.Parameter]:
    """The parameters of a control: what is neither the completions nor a column of the dataset."""
    return [option for option in inspect.signature(function).parameters.values() if option.kind is option.KEYWORD_ONLY]

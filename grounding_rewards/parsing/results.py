"""What a completion was read as: the boxes, the status of the text and the reasons for what was refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

#: `boxes`: at least one complete box. `empty`: the text says that there is nothing to mark.
#: `truncated`: the text breaks off inside its own syntax; complete boxes before that point are kept.
#: `unparseable`: neither a box nor a stated negative.
STATUSES = ("boxes", "empty", "truncated", "unparseable")

#: Why something that was written did not become a box, and what that means, in the order in which logs show it.
REASON_MEANINGS = {
    "wrong_count": "a list of numbers that is none of: a box, a point, a quadrilateral, a 3-D box",
    "point": "two numbers, or a key that holds points",
    "quad": "eight numbers or four corner points",
    "box_3d": "nine numbers, or a key that holds 3-D boxes",
    "not_a_number": "something else stands where a coordinate belongs",
    "placeholder": "the prompt's own x1, y1, x2, y2",
    "not_finite": "NaN or infinity",
    "number_too_large": "a coordinate that is far too large, as digit loops produce",
    "unclosed": "no closing bracket",
    "unknown_key": "four numbers under a key that does not hold boxes in this format",
    "too_deep": "nested too deep; reading stops there",
    "too_many_boxes": "too many boxes and rejects; reading stops there",
    "too_long": "an answer of too many characters or tokens; reading stops there",
    "echoed_prompt": "an instruction instead of an answer",
    "no_answer": "blank, or thinking without an answer after it",
    "nothing_stated": "text without a box and without a stated negative",
}
REJECT_REASONS = tuple(REASON_MEANINGS)

#: Reasons for something broken in the place of a box. What was merely cut off, or never meant as a box, is left out.
BROKEN_BOXES = ("wrong_count", "quad", "box_3d", "not_a_number", "not_finite", "number_too_large")

MAX_BOXES = 1000
MAX_CHARACTERS = 2**17
MAX_DEPTH = 32
#: JSON tokens that one answer may hold: 1000 labelled boxes have 18,000.
MAX_TOKENS = 25_000
#: Tags and pairs of brackets outside JSON: 1000 labelled boxes as corner points have 6000.
MAX_GROUPS = 7000
#: Lists are read this far; no shape with a name of its own is longer.
MAX_LIST = 16


def broken_boxes(rejected: Mapping[str, int], boxes: int) -> int:
    """How many broken boxes of an answer count as false positives: a wrong box must not become free by being broken.

    None where there is no complete box: such an answer is judged by its status.

    Args:
        rejected: reason out of `REJECT_REASONS` -> how often.
        boxes: number of complete boxes.

    Example:
        >>> broken_boxes({"quad": 2, "unclosed": 1}, 1), broken_boxes({"quad": 2}, 0)
        (2, 0)
    """
    return sum(rejected.get(reason, 0) for reason in BROKEN_BOXES) if rejected and boxes else 0


class RawBoxes(NamedTuple):
    """What `read_boxes` found: plain Python values, still in the format's own coordinate space.

    `coords` is flat, four finite numbers per box in the order x1, y1, x2, y2; `labels` and `scores` have one
    entry per box, None where the text states none; `status` is one of `STATUSES`; `rejected` counts reasons out
    of `REJECT_REASONS`.
    """

    coords: list[float]
    labels: list[str | None]
    scores: list[float | None]
    status: str
    rejected: dict[str, int]


@dataclass(frozen=True)
class ParsedBoxes:
    """Boxes of one completion in pixels of the original image.

    Attributes:
        boxes: (n, 4) float64, xyxy, always finite, as written: a box may be inverted, empty or outside the image.
        labels: one label per box, None where the text gives none.
        scores: one confidence per box, None where the text gives none.
        status: one of `STATUSES`.
        rejected: reason out of `REJECT_REASONS` -> how often.
    """

    boxes: npt.NDArray[np.float64]
    labels: tuple[str | None, ...]
    scores: tuple[float | None, ...]
    status: str
    rejected: dict[str, int]


class Findings:
    """What was found so far in one answer; once it is `full`, reading can stop.

    `stated_empty`: something says that there is nothing to mark; `asserted`: something says that there is.
    """

    __slots__ = ("_room", "asserted", "coords", "cut_off", "full", "labels", "rejected", "scores", "stated_empty")

    def __init__(self) -> None:
        self.coords: list[float] = []
        self.labels: list[str | None] = []
        self.scores: list[float | None] = []
        self.rejected: dict[str, int] = {}
        self.cut_off = False
        self.stated_empty = False
        self.asserted = False
        self.full = False
        self._room = MAX_BOXES

    def add(self, box: list[float], label: str | None = None, score: float | None = None) -> None:
        if self._take_room():
            self.coords += box
            self.labels.append(label)
            self.scores.append(score)

    def reject(self, reason: str) -> None:
        if self._take_room():
            self.rejected[reason] = self.rejected.get(reason, 0) + 1

    @property
    def met_nothing(self) -> bool:
        """Whether there was neither a box nor anything that was rejected."""
        return not self.labels and not self.rejected

    def _take_room(self) -> bool:
        if self._room == 0:
            self.full = True
            self.rejected["too_many_boxes"] = 1
            return False
        self._room -= 1
        return True

"""What a completion was read as: the boxes, the status of the text and the reasons for what was refused."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from grounding_rewards.common.text_files import packaged_tables

#: `boxes`: at least one complete box. `empty`: the text says that there is nothing to mark.
#: `truncated`: the text breaks off inside its own syntax; complete boxes before that point are kept.
#: `unparseable`: neither a box nor a no-finding statement.
STATUSES = ("boxes", "empty", "truncated", "unparseable")

_REASONS = packaged_tables("grounding_rewards.parsing", "reasons.toml")
#: Why something that was written did not become a box, and what that means, in the order in which logs show it.
REASON_MEANINGS: dict[str, str] = _REASONS["meanings"]
REJECT_REASONS = tuple(REASON_MEANINGS)
#: Reasons that are about the whole text. All others are about something that stands in the place of a box: it is a
#: broken box, and a text that holds one says something about boxes, whatever else it says.
WHOLE_TEXT = frozenset(_REASONS["about_texts"])

MAX_BOXES = 1000
MAX_CHARACTERS = 2**17
MAX_DEPTH = 32
#: JSON tokens that one answer may hold: 1000 labelled boxes have 18,000.
MAX_TOKENS = 25_000
#: Tags and pairs of brackets outside JSON: 1000 labelled boxes as corner points have 6000.
MAX_GROUPS = 7000
#: Lists are read this far; no shape with a name of its own is longer.
MAX_LIST = 16


def is_silent(rejected: Mapping[str, int]) -> bool:
    """Whether nothing in a text stands in the place of a box, not even something broken.

    Args:
        rejected: reason out of `REJECT_REASONS` -> how often.

    Example:
        >>> is_silent({"nothing_stated": 1}), is_silent({"wrong_count": 1})
        (True, False)
    """
    return WHOLE_TEXT.issuperset(rejected)


class BrokenBox(NamedTuple):
    """Something that stands in the place of a box and is none: a false positive there, so that breaking never pays.

    `place` is the number of complete boxes before it; `label` and `score` are None where the text states none. Beside
    boxes with confidences a broken box without a confidence is the surest, infinitely.
    """

    place: int
    label: str | None = None
    score: float | None = None


_Value = TypeVar("_Value")


def with_broken(
    values: Sequence[_Value], broken: Sequence[BrokenBox], value_of: Callable[[BrokenBox], _Value]
) -> Sequence[_Value]:
    """The values of complete boxes, such as their labels, with those of broken boxes inserted where these stood.

    Example:
        >>> with_broken(["a", "b"], [BrokenBox(1, "x")], lambda box: box.label)
        ['a', 'x', 'b']
    """
    if not broken:
        return values
    joined = list(values)
    # From the back, so that no insertion moves a place that is still to be filled.
    for box in reversed(broken):
        joined.insert(box.place, value_of(box))
    return joined


class RawBoxes(NamedTuple):
    """A completion as read: plain Python values, still in the format's own coordinate space.

    `coords` is flat, four finite numbers per box in the order x1, y1, x2, y2; `labels` and `scores` have one
    entry per box, None where the text states none; `status` is one of `STATUSES`; `rejected` counts reasons out
    of `REJECT_REASONS`; `broken` are the broken boxes that count beside complete ones, in their order. Without a
    complete box it is empty: such an answer is judged by its status.
    """

    coords: list[float]
    labels: list[str | None]
    scores: list[float | None]
    status: str
    rejected: dict[str, int]
    broken: tuple[BrokenBox, ...] = ()


@dataclass(frozen=True)
class ParsedBoxes:
    """Boxes of one completion in pixels of the original image; its length and its items are those of `boxes`.

    Attributes:
        boxes: (n, 4) float64, xyxy, always finite, as written: a box may be inverted, empty or outside the image.
        labels: one label per box, None where the text gives none.
        scores: one confidence per box, None where the text gives none.
        status: one of `STATUSES`.
        rejected: reason out of `REJECT_REASONS` -> how often.
        broken: the broken boxes that count as false positives beside complete ones, in their order.
    """

    boxes: npt.NDArray[np.float64]
    labels: tuple[str | None, ...]
    scores: tuple[float | None, ...]
    status: str
    rejected: dict[str, int]
    broken: tuple[BrokenBox, ...] = ()

    def __len__(self) -> int:
        return len(self.boxes)

    def __iter__(self) -> Iterator[npt.NDArray[np.float64]]:
        return iter(self.boxes)


@dataclass(slots=True)
class BoxCollector:
    """Collects the boxes of one answer, and why others are none.

    `coords`, `labels`, `scores`, `rejected`, `broken`: as in `RawBoxes`.
    `ends_open`: the last box or broken box has no closing bracket.
    `cut_off`: the text breaks off.
    `stated_empty`: something says that there is nothing to mark.
    `asserted`: something says that there is a finding.
    `full`: there were too many boxes and broken boxes, so that reading can stop.
    `room`: how many more there may be.
    """

    coords: list[float] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    scores: list[float | None] = field(default_factory=list)
    rejected: dict[str, int] = field(default_factory=dict)
    broken: list[BrokenBox] = field(default_factory=list)
    ends_open: bool = False
    cut_off: bool = False
    stated_empty: bool = False
    asserted: bool = False
    full: bool = False
    room: int = MAX_BOXES

    def reject(self, reason: str, label: str | None = None, score: float | None = None) -> None:
        """Count a reason in `rejected`, and add what it is about, something in the place of a box, to `broken`.

        A reason of `WHOLE_TEXT` is about nothing in the place of a box, and adds none. `ends_open` becomes whether
        this one is without its closing bracket. Where `MAX_BOXES` boxes and reasons are counted already, this one is
        left out, and `ends_open` stays that of the last one that counted.

        Args:
            reason: one of `REJECT_REASONS`.
            label: what the text says of the broken box, None for nothing.
            score: its confidence, likewise.
        """
        if self._count_if_room():
            self.rejected[reason] = self.rejected.get(reason, 0) + 1
            if reason not in WHOLE_TEXT:
                # Its place is told by how many complete boxes, each of which has a label or None, stand before it.
                self.broken.append(BrokenBox(len(self.labels), label, score))
            self.ends_open = reason == "unclosed"

    def note_words(self, label: str | None) -> None:
        """Note words in the place of a box: broken beside complete boxes, else prose, which may be a negative.

        So unlike `reject` this counts no reason, which alone would make a text without boxes unparseable. Where
        `MAX_BOXES` boxes and reasons are counted already, nothing is noted.
        """
        if self._count_if_room():
            # Its place: so many complete boxes stand before it.
            self.broken.append(BrokenBox(len(self.labels), label))
            self.ends_open = False

    def take(self, box: list[float] | str, label: str | None = None, score: float | None = None) -> None:
        """Add a box, as four numbers, with its label and confidence; for a reason in its place, a text, `reject` that.

        Where `MAX_BOXES` boxes and reasons are counted already, nothing is added.
        """
        if isinstance(box, str):
            self.reject(box, label, score)
        elif self._count_if_room():
            self.coords += box
            self.labels.append(label)
            self.scores.append(score)
            self.ends_open = False

    def broken_beside_boxes(self, *, cut_off: bool) -> tuple[BrokenBox, ...]:
        """The broken boxes that count: none without a complete box, nor the one in which a text is cut off.

        `cut_off`: the text breaks off, before its answer or inside the syntax of it.
        """
        # Each complete box has an entry in `labels`. An answer without one is judged by its status.
        if not self.labels:
            return ()
        # The last one, without its closing bracket, is where the text is cut off.
        broken = self.broken[:-1] if cut_off and self.ends_open else self.broken
        # Metrics rank boxes by confidence. A broken box without one is ranked first: last, it would cost nothing.
        if any(score is not None for score in self.scores):
            broken = [box._replace(score=math.inf) if box.score is None else box for box in broken]
        return tuple(broken)

    @property
    def met(self) -> int:
        """How many boxes and broken boxes there were."""
        return len(self.labels) + len(self.broken)

    @property
    def met_nothing(self) -> bool:
        """Whether there was neither a box nor anything that was rejected."""
        return not self.labels and not self.rejected

    def _count_if_room(self) -> bool:
        """Count one more box or reason against `MAX_BOXES`, and return True; False if that many are there already."""
        if self.room == 0:
            # Reading can stop; the reason counts once, however many more there are.
            self.full = True
            self.rejected["too_many_boxes"] = 1
            return False
        self.room -= 1
        return True

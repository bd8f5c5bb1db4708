"""Watch the completions of a training, and report once what contradicts a declaration.

* Some chat templates end in an open mark of thinking, and nobody declared it. Such a completion has only the closing
  mark; one that was cut off in its thinking has no mark at all, and is read as an answer, drafts included.
* The numbers may contradict the declared space or order, see `space_check.py`.

A single completion cannot show either, but many can.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import grounding_rewards.parsing.space_check as space_check
from grounding_rewards.boxes import Boxes
from grounding_rewards.common.numeric import Array
from grounding_rewards.parsing.answer_span import thinking_state
from grounding_rewards.parsing.box_format import BoxFormat
from grounding_rewards.parsing.results import RawBoxes

# Completions that close a thinking they never opened: fewer prove nothing, as a model may forget its opening mark.
_MIN_UNOPENED = 4
# Completions none of which closes its thinking: fewer prove nothing.
_MIN_UNCLOSED = 64
# Watching ends after this many completions: a small dataset never has `MAX_IMAGES` images.
_MAX_WATCHED = 4096


def thinking_suspicion(states: Mapping[str, int], *, prompt_opens_thinking: bool) -> str | None:
    """Say in two sentences what is suspect about how completions mark their thinking, and the remedy; None if nothing.

    Args:
        states: counts by `thinking_state`.
        prompt_opens_thinking: what was declared.

    Example:
        >>> print(thinking_suspicion({"unopened": 7, "none": 3}, prompt_opens_thinking=False))
        7 of 10 completions close a thinking that they never opened, so the prompt seems to open it, and the 3 without \
any mark were cut off inside it: their drafts count as answers. Set prompt_opens_thinking to true.
        >>> thinking_suspicion({"unopened": 7, "none": 3}, prompt_opens_thinking=True)
    """
    unopened, paired = states.get("unopened", 0), states.get("paired", 0)
    unclosed, unmarked = states.get("unclosed", 0), states.get("none", 0)
    total = unopened + paired + unclosed + unmarked
    if prompt_opens_thinking:
        if total < _MIN_UNCLOSED or unopened or paired:
            return None
        return (
            f"None of {total} completions closes its thinking, so none of them has an answer. Allow more new tokens; "
            "or, if the prompt does not end in an open mark of thinking, set prompt_opens_thinking to false."
        )
    # A model that opens its thinking itself, and forgets to now and then, is no such case.
    if not unmarked or unopened < _MIN_UNOPENED or unopened <= paired + unclosed:
        return None
    return (
        f"{unopened} of {total} completions close a thinking that they never opened, so the prompt seems to open it, "
        f"and the {unmarked} without any mark were cut off inside it: their drafts count as answers. "
        "Set prompt_opens_thinking to true."
    )


@dataclass
class _Evidence:
    """What was seen of one format, and how many images make the next check worth its time; None after the last one."""

    answers: list[space_check.ReadCompletion] = field(default_factory=list)
    images: set[object] = field(default_factory=set)
    next_check: int | None = space_check.MIN_IMAGES

    @property
    def is_full(self) -> bool:
        """Whether no more completions are kept."""
        return len(self.answers) == _MAX_WATCHED or len(self.images) == space_check.MAX_IMAGES

    def add(self, answer: space_check.ReadCompletion) -> None:
        """Keep a completion for the checks, unless enough are kept."""
        if self.next_check is not None and not self.is_full:
            self.answers.append(answer)
            self.images.add(answer.image_key)

    def check(self, fmt: BoxFormat) -> space_check.SpaceCheck | None:
        """Check the kept completions against the format: the check where they contradict it, else None.

        It runs after 4, 8, 16, … images, as it takes as long as reading hundreds of completions.
        """
        if self.next_check is None or (len(self.images) < self.next_check and not self.is_full):
            return None
        check = space_check.check_read_completions(self.answers, fmt)
        self.next_check = 2 * len(self.images)
        if self.is_full or check.likely is not None:
            self.next_check = None
            self.answers.clear()
            self.images.clear()
        return check if check.likely is not None else None


class BatchWatcher:
    """Watches batch after batch until it has seen enough, and reports each contradiction once.

    A copy, also an unpickled one, starts afresh: what was seen stays in the process that saw it.

    Example:
        >>> import numpy as np
        >>> from grounding_rewards.parsing import get_box_format, read_boxes
        >>> watcher, fmt = BatchWatcher(), get_box_format("answer-list")
        >>> watcher.watch_thinking(["hm</think>[]"] * 4 + ["hm"], prompt_opens_thinking=False)[:40]
        '4 of 5 completions close a thinking that'
        >>> watcher.watch_thinking(["hm</think>[]"], prompt_opens_thinking=False)
        >>> for k in range(0, 400, 20):
        ...     raw = read_boxes(f"<answer>[{k}, {k}, {k + 90}, {k + 50}]</answer>", fmt)
        ...     gt = np.array([[k, k, k + 90.0, k + 50]])
        ...     for check in watcher.watch_boxes([raw], [fmt], [gt], np.array([[1000, 1000, np.nan, np.nan]])):
        ...         print(check.images, check.likely)
        4 norm1000, order xyxy
    """

    def __init__(self) -> None:
        # Trainers score in many threads.
        self._lock = threading.Lock()
        self._thinking_states: Counter[str] = Counter()
        self._thinking_done = False
        # By the name of the format.
        self._evidence: dict[str, _Evidence] = {}

    def __reduce__(self) -> tuple[type[BatchWatcher], tuple[()]]:
        return BatchWatcher, ()

    def watch_thinking(self, texts: Iterable[str], *, prompt_opens_thinking: bool) -> str | None:
        """Count how the texts of a batch mark their thinking; return what is suspect, once, as `thinking_suspicion`."""
        with self._lock:
            if self._thinking_done:
                return None
            self._thinking_states.update(map(thinking_state, texts))
            suspicion = thinking_suspicion(self._thinking_states, prompt_opens_thinking=prompt_opens_thinking)
            self._thinking_done = suspicion is not None or self._thinking_states.total() >= _MAX_WATCHED
        return suspicion

    def wants_boxes(self, formats: Iterable[BoxFormat]) -> bool:
        """Whether more has to be seen of one of these formats."""
        for name in {fmt.name for fmt in formats}:
            evidence = self._evidence.get(name)
            if evidence is None or evidence.next_check is not None:
                return True
        return False

    def watch_boxes(
        self, raws: Sequence[RawBoxes], formats: Sequence[BoxFormat], gt: Sequence[Boxes], sizes: Array
    ) -> list[space_check.SpaceCheck]:
        """Keep the boxes of a batch, and return the checks that contradict a format, each format once.

        Args:
            raws: n completions.
            formats: the format of each.
            gt: the reference boxes of each, (m, 4) in original pixels; completions on images without any are left out.
            sizes: (n, 4), width, height and the resized width and height.
        """
        checks = []
        with self._lock:
            for raw, fmt, boxes, size in zip(raws, formats, gt, sizes, strict=True):
                evidence = self._evidence.setdefault(fmt.name, _Evidence())
                if raw.coords and len(boxes):
                    evidence.add(space_check.ReadCompletion(raw, boxes, size))
            for fmt in {fmt.name: fmt for fmt in formats}.values():
                check = self._evidence[fmt.name].check(fmt)
                if check is not None:
                    checks.append(check)
        return checks

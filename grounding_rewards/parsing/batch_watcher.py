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

from grounding_rewards.boxes import Boxes
from grounding_rewards.common.numeric import Array
from grounding_rewards.parsing.answer_span import thinking_state
from grounding_rewards.parsing.box_format import BoxFormat
from grounding_rewards.parsing.results import RawBoxes
from grounding_rewards.parsing.space_check import (
    MAX_IMAGES,
    MIN_IMAGES,
    ReadCompletion,
    SpaceCheck,
    check_read_completions,
)

# Completions that close a thinking they never opened: fewer prove nothing, as a model may forget its opening mark.
_MIN_UNOPENED = 4
# Completions none of which closes its thinking: fewer prove nothing.
_MIN_UNCLOSED = 64
# Watching ends after this many completions: a small dataset never has `MAX_IMAGES` images.
_MAX_WATCHED = 4096
# Completions that come alone are examined this many at a time: to examine takes longer than to wait.
_TOGETHER = 64


def thinking_suspicion(states: Mapping[str, int], *, prompt_opens_thinking: bool) -> str | None:
    """What is suspect about these counts, in two sentences with the remedy, or None.

    Args:
        states: counts by `thinking_state`.
        prompt_opens_thinking: what was declared.

    Example:
        >>> print(thinking_suspicion({"unopened": 7, "none": 3}, prompt_opens_thinking=False))
        7 of 10 completions close a thinking that they never opened, so the prompt seems to open it, and the 3 without \
any mark were cut off inside it: their drafts count as answers. Set prompt_opens_thinking to true.
        >>> thinking_suspicion({"unopened": 7, "none": 3}, prompt_opens_thinking=True)
    """
    unopened, paired, unclosed, unmarked = (states.get(name, 0) for name in ("unopened", "paired", "unclosed", "none"))
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


class BatchWatcher:
    """Watches batch after batch until it has seen enough, and reports each contradiction once.

    A copy, also an unpickled one, starts afresh: what was seen stays in the process that saw it.

    Example:
        >>> import numpy as np
        >>> from grounding_rewards.boxes import original_and_resized_sizes
        >>> from grounding_rewards.parsing import get_box_format, read_boxes
        >>> watcher, fmt = BatchWatcher(), get_box_format("answer-list")
        >>> watcher.watch_thinking(["hm</think>[]"] * 4 + ["hm"], prompt_opens_thinking=False)[:40]
        '4 of 5 completions close a thinking that'
        >>> watcher.watch_thinking(["hm</think>[]"], prompt_opens_thinking=False)
        >>> for k in range(0, 400, 20):
        ...     raw = read_boxes(f"<answer>[{k}, {k}, {k + 90}, {k + 50}]</answer>", fmt)
        ...     gt = np.array([[k, k, k + 90.0, k + 50]])
        ...     for check in watcher.watch_boxes([raw], [fmt], [gt], original_and_resized_sizes(1, 1000, 1000)):
        ...         print(check.images, check.likely)
        4 norm1000, order xyxy
    """

    def __init__(self) -> None:
        # Trainers score in many threads.
        self._lock = threading.Lock()
        self._waiting_texts: list[str] = []
        self._thinking_states: Counter[str] = Counter()
        self._thinking_done = False
        # By the name of the format: the answers seen, their images, and how many images make the next check worth its
        # time, None after the last one.
        self._answers: dict[str, list[ReadCompletion]] = {}
        self._images: dict[str, set[object]] = {}
        self._next_check: dict[str, int | None] = {}

    def __reduce__(self) -> tuple[type[BatchWatcher], tuple[()]]:
        return BatchWatcher, ()

    def watch_thinking(self, texts: Iterable[str], *, prompt_opens_thinking: bool) -> str | None:
        """Take the texts of a batch into account; returns what is suspect, the first time."""
        with self._lock:
            if self._thinking_done:
                return None
            before = len(self._waiting_texts)
            self._waiting_texts += texts
            if len(self._waiting_texts) < min(before + 2, _TOGETHER):
                return None
            self._thinking_states.update(map(thinking_state, self._waiting_texts))
            self._waiting_texts.clear()
            suspicion = thinking_suspicion(self._thinking_states, prompt_opens_thinking=prompt_opens_thinking)
            self._thinking_done = suspicion is not None or self._thinking_states.total() >= _MAX_WATCHED
        return suspicion

    def wants_boxes(self, formats: Iterable[BoxFormat]) -> bool:
        """Whether more has to be seen of one of these formats."""
        return any(self._next_check.get(name, MIN_IMAGES) is not None for name in {fmt.name for fmt in formats})

    def watch_boxes(
        self, raws: Sequence[RawBoxes], formats: Sequence[BoxFormat], gt: Sequence[Boxes], sizes: Array
    ) -> list[SpaceCheck]:
        """Take the boxes of a batch into account.

        Args:
            raws: n completions.
            formats: the format of each.
            gt: the reference boxes of each, (m, 4) in original pixels; completions on images without any are left out.
            sizes: (n, 4), see :func:`grounding_rewards.boxes.original_and_resized_sizes`.

        Returns:
            What contradicts a declared space or order, each format once.
        """
        checks = []
        with self._lock:
            for raw, fmt, boxes, size in zip(raws, formats, gt, sizes, strict=True):
                answers = self._answers.setdefault(fmt.name, [])
                images = self._images.setdefault(fmt.name, set())
                full = len(answers) == _MAX_WATCHED or len(images) == MAX_IMAGES
                if raw.coords and len(boxes) and not full and self._next_check.get(fmt.name, 0) is not None:
                    answers.append(ReadCompletion(raw, boxes, size))
                    images.add(answers[-1].image_key)
            for fmt in {fmt.name: fmt for fmt in formats}.values():
                check = self._check(fmt)
                if check is not None and check.likely is not None:
                    checks.append(check)
        return checks

    def _check(self, fmt: BoxFormat) -> SpaceCheck | None:
        """Check what was seen of a format, after 4, 8, 16, … images: a check takes as long as reading hundreds."""
        answers, images = self._answers[fmt.name], self._images[fmt.name]
        next_check = self._next_check.setdefault(fmt.name, MIN_IMAGES)
        is_last = len(answers) == _MAX_WATCHED or len(images) == MAX_IMAGES
        if next_check is None or not (is_last or len(images) >= next_check):
            return None
        check = check_read_completions(answers, fmt)
        self._next_check[fmt.name] = 2 * len(images)
        if is_last or check.likely is not None:
            self._next_check[fmt.name] = None
            answers.clear()
            images.clear()
        return check

"""Notice when completions begin inside a thinking that their prompt opened, and nobody said so.

Chat templates of some models end in an open `<think>`. The completion then has only the closing mark; one that was cut
off inside its thinking has no mark at all, and is read as an answer, drafts and musings included. A single text cannot
show that, but many can: some close a mark that they never opened.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping

from grounding_rewards.parsing.scope import thinking_state

# Fewer completions prove nothing: a model may forget its opening mark now and then.
_FEWEST_UNOPENED, _FEWEST_UNCLOSED = 4, 64
_MOST_WATCHED = 4096
# Completions that come alone are looked at so many at a time: looking takes longer than to wait.
_TOGETHER = 64


def count_thinking(texts: Iterable[str]) -> Counter[str]:
    """How many texts have each `thinking_state`.

    Example:
        >>> dict(count_thinking(["hm</think>[]", "hm", "<think>hm</think>[]"]))
        {'unopened': 1, 'none': 1, 'paired': 1}
    """
    return Counter(map(thinking_state, texts))


def thinking_suspicion(states: Mapping[str, int], *, prompt_opens_thinking: bool) -> str | None:
    """What is suspect about these counts, in two sentences with the remedy; None where nothing is.

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
        if total < _FEWEST_UNCLOSED or unopened or paired:
            return None
        return (
            f"None of {total} completions closes its thinking, so none of them has an answer. Allow more new tokens; "
            "or, if the prompt does not end in an open mark of thinking, set prompt_opens_thinking to false."
        )
    # A model that opens its thinking itself, and forgets to now and then, is no such case.
    if not unmarked or unopened < _FEWEST_UNOPENED or unopened <= paired + unclosed:
        return None
    return (
        f"{unopened} of {total} completions close a thinking that they never opened, so the prompt seems to open it, "
        f"and the {unmarked} without any mark were cut off inside it: their drafts count as answers. "
        "Set prompt_opens_thinking to true."
    )


class ThinkingWatcher:
    """Watches batch after batch, and reports a suspicion once.

    Example:
        >>> watcher = ThinkingWatcher()
        >>> watcher.watch(["hm</think>[]"] * 3 + ["hm"], prompt_opens_thinking=False)
        >>> watcher.watch(["hm</think>[]", "hm"], prompt_opens_thinking=False)[:40]
        '4 of 6 completions close a thinking that'
        >>> watcher.watch(["hm</think>[]"], prompt_opens_thinking=False)
    """

    def __init__(self) -> None:
        self._states: Counter[str] = Counter()
        self._waiting: list[str] = []
        self._done = False
        # Trainers score in many threads.
        self._lock = threading.Lock()

    # A copy, in another process or saved with a trainer, has seen nothing.
    def __reduce__(self) -> tuple[type[ThinkingWatcher], tuple[()]]:
        return ThinkingWatcher, ()

    def watch(self, texts: Iterable[str], *, prompt_opens_thinking: bool) -> str | None:
        """Take a batch into account; returns what is suspect, the first time."""
        with self._lock:
            before = len(self._waiting)
            if self._done:
                return None
            self._waiting += texts
            if len(self._waiting) < min(before + 2, _TOGETHER):
                return None
            self._states += count_thinking(self._waiting)
            self._waiting.clear()
            found = thinking_suspicion(self._states, prompt_opens_thinking=prompt_opens_thinking)
            self._done = found is not None or self._states.total() >= _MOST_WATCHED
        return found

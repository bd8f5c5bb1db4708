"""A batch of completions, scored: the number of each, and why, for the trainer, for a log and for a person."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import BoxBatch
from grounding_rewards.parsing import ParsedBoxes
from grounding_rewards.rewards.base import Explanation, Outcomes
from grounding_rewards.rewards.read_batch import ReadBatch


@dataclass(frozen=True)
class ScoredCompletion:
    """One completion, read and scored.

    Attributes:
        reward: the number that the trainer gets.
        reason: one line for a person: why.
        parsed: the boxes in the text, in original pixels, its status and what was rejected.
        explanation: matches, F-beta and quality.
        reader: index of the reader in ``reader_boxes`` by whom the answer is best, and is explained; None where the row
            has one reference.
    """

    reward: float
    reason: str
    parsed: ParsedBoxes
    explanation: Explanation
    reader: int | None = None


@dataclass(frozen=True)
class ScoredBatch(ReadBatch):
    """Beside what was read: what was matched, the rewards (n,), and the references and reader that suit each best."""

    outcomes: Outcomes
    reward: NDArray[np.float64]
    gt: BoxBatch
    readers: Sequence[int | None]

    def explanation(self, k: int) -> Explanation:
        """What led to the number of one completion; indices are of the boxes that were read."""
        made = self.outcomes.explanation(k)
        # Broken boxes count in the outcomes, and have no place among the boxes that were read.
        broken = [one.place + before for before, one in enumerate(self.raws[k].broken)]
        return replace(
            made,
            reward=float(self.reward[k]),
            matches=tuple((i - bisect(broken, i), j) for i, j in made.matches),
            ignored=tuple(i - bisect(broken, i) for i in made.ignored),
        )

    def parsed(self) -> list[ParsedBoxes]:
        """What was read in each completion, in pixels of its image."""
        ends = np.cumsum(self.pred.counts)
        return [
            ParsedBoxes(
                self.pred.flat[end - n : end],
                tuple(raw.labels),
                tuple(raw.scores),
                raw.status,
                dict(raw.rejected),
                raw.broken,
            )
            for raw, n, end in zip(self.raws, self.pred.counts, ends, strict=True)
        ]

    def reason(self, k: int) -> str:
        """One line for a person: why a completion earned what it did."""
        raw, n, m, tp = self.raws[k], int(self.pred.counts[k]), int(self.outcomes.m[k]), int(self.outcomes.tp[k])
        ignored = int(self.outcomes.ignored[k].sum())
        n -= ignored
        broken = int(self.outcomes.n[k]) - n
        if not ignored and n == 0 and raw.status != "empty":
            found = ", ".join(f"{count} × {reason}" for reason, count in raw.rejected.items())
            return f"{raw.status}: {found or 'no complete box and no no-finding statement'}"
        aside = [f"{ignored} {_boxes(ignored)} ignored"] if ignored else []
        if m == 0:
            if n or broken:
                stray = f"{n} {_boxes(n)}" if n else f"{broken} broken {_boxes(broken)}"
                return ", ".join([f"{stray} where there is nothing to find", *aside])
            if ignored:
                return ", ".join(["nothing to find" if raw.status == "boxes" else raw.status, *aside])
            return "nothing to find, and says so"
        if n == 0 and not ignored:
            return f"says there is nothing, misses {m}"
        parts = [f"{tp} of {m} found"]
        if n > tp:
            parts.append(f"{n - tp} false {_boxes(n - tp)}")
        if broken:
            parts.append(f"{broken} broken {_boxes(broken)}")
        parts += aside
        if tp:
            parts.append(f"mean IoU {self.outcomes.mean_iou[k]:.2f}")
        return ", ".join(parts)


def _boxes(count: int) -> str:
    return "box" if count == 1 else "boxes"

"""Whether the completions of an image differ in reward, and why not.

GRPO compares the completions of one image, its group: where all of them earn the same, every advantage is 0 and the
image teaches nothing. Of such a group without spread the cause is named, the first that holds in the order of
:data:`CAUSES`, so that the shares of the causes add up to the share of groups without spread.

How much of a group carries an update is its effective group size, Kish's effective sample size of the advantages A,

    (Σ |A|)² / Σ A²

from 0 without spread to the size of the group where half of it is right and half is wrong; one right answer of eight
gives 3.5. It does not depend on how advantages are scaled.

Sources: DAPO (arXiv 2503.14476) leaves groups without spread out and samples others, its dynamic sampling; TRL logs
their share as ``frac_reward_zero_std``; Kish, Survey Sampling, 1965.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grounding_rewards.common.arithmetic import Array, ratio
from grounding_rewards.common.legal import check_word
from grounding_rewards.parsing import STATUSES

#: Rewards that differ by less are equal: trainers keep them in float32.
SAME = 1e-6
#: How TRL may scale advantages.
SCALES = ("group", "batch", "none")
# TRL adds it to the standard deviation.
_EPSILON = 1e-4


class Cause(NamedTuple):
    """Why a group has no spread: in a few words, what holds, and what helps."""

    title: str
    meaning: str
    remedy: str


#: The causes by name, in the order in which they are looked for.
CAUSES: dict[str, Cause] = {
    "all_cut_off": Cause(
        "all cut off",
        "every answer was cut off before its first complete box",
        "Raise max_completion_length, or teach the model to end its answers with `grounding-rewards sft`.",
    ),
    "all_unread": Cause(
        "all unread",
        "no answer has a complete box or states a negative",
        "The model writes in another way than box_format says: see what it writes with `grounding-rewards inspect`, or "
        "teach it with `grounding-rewards sft`.",
    ),
    "all_perfect": Cause(
        "all perfect",
        "every answer earns 1, or rightly says that there is nothing",
        "The image is learned: leave such images out, or mix in harder ones. Where it has findings, a reward that also "
        "grades how well boxes fit, such as R4 or soft_f1, still tells its answers apart.",
    ),
    "all_hallucinated": Cause(
        "all hallucinated",
        "there is nothing to find, no answer says so, and some have boxes",
        "No reward on an image without findings tells these answers apart: show the model no-finding statements with "
        "`grounding-rewards sft`, raise temperature, or pay fewer false boxes more (graded_negatives).",
    ),
    "all_empty": Cause(
        "all empty",
        "there are findings, no answer has a box, and some say that there is nothing",
        "The model does not dare: raise temperature, lower the share of images without findings, or teach it with "
        "`grounding-rewards sft`.",
    ),
    "all_below_threshold": Cause(
        "all below τ",
        "there are findings and boxes, and every answer earns 0",
        "Lower iou_threshold, or take a reward without one, such as soft_f1.",
    ),
    "all_equal": Cause(
        "all equal",
        "every answer earns the same for another reason, often because all are alike",
        "Raise temperature or num_generations.",
    ),
}
#: What :meth:`Groups.metrics` gives, always in this order.
SIGNAL_KEYS = ("no_spread", *CAUSES, "effective_group_size")
_NAMES = tuple(CAUSES)


@dataclass(frozen=True, eq=False)
class Groups:
    """The rewards of n completions in g groups, those of one group next to each other.

    Attributes:
        sizes: ``(g,)`` completions of each group, at least 1.
        rewards: ``(n,)``.
        statuses: ``(n,)`` index into ``STATUSES`` of each completion.
        counted: ``(n,)`` predicted boxes that count, broken ones among them, ignored ones not.
        findings: ``(n,)`` reference boxes; by the reader who suits the completion best where there are several.

    Raises:
        ValueError: the arrays do not fit each other.

    Example:
        Two images with a finding: on one all miss it, on the other one of four has it.

        >>> groups = Groups.of([4, 4], [0, 0, 0, 0, 0, 0, 0, 1], ["boxes"] * 8, [1] * 8, [1] * 8)
        >>> groups.causes
        ['all_below_threshold', None]
        >>> groups.effective_sizes.tolist()
        [0.0, 3.0]
    """

    sizes: NDArray[np.int64]
    rewards: Array
    statuses: NDArray[np.int64]
    counted: NDArray[np.int64]
    findings: NDArray[np.int64]

    def __post_init__(self) -> None:
        n = int(self.sizes.sum())
        for name in ("rewards", "statuses", "counted", "findings"):
            if len(getattr(self, name)) != n:
                raise ValueError(
                    f"Expected {n} values for `{name}`, as many as completions, got {len(getattr(self, name))}. "
                    "Give one for each completion of every group."
                )
        if (self.sizes < 1).any():
            raise ValueError("Expected at least one completion in every group for `sizes`, got 0. Leave it out.")

    @classmethod
    def of(
        cls, sizes: ArrayLike, rewards: ArrayLike, statuses: Sequence[str], counted: ArrayLike, findings: ArrayLike
    ) -> Groups:
        """The groups from lists; statuses by name."""
        places = {status: k for k, status in enumerate(STATUSES)}
        whole = [np.asarray(one, dtype=np.int64) for one in (sizes, [places[one] for one in statuses])]
        boxes = [np.asarray(one, dtype=np.int64) for one in (counted, findings)]
        return cls(whole[0], np.asarray(rewards, dtype=np.float64), whole[1], *boxes)

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.cumsum(self.sizes) - self.sizes

    def _all(self, holds: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.logical_and.reduceat(holds, self._starts) if len(self.sizes) else np.zeros(0, dtype=bool)

    def _any(self, holds: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return ~self._all(~holds)

    def _sum(self, values: Array) -> Array:
        return np.add.reduceat(values, self._starts) if len(self.sizes) else np.zeros(0)

    @cached_property
    def has_spread(self) -> NDArray[np.bool_]:
        """``(g,)`` whether two completions of the group earn different rewards."""
        if not len(self.sizes):
            return np.zeros(0, dtype=bool)
        low, high = (one.reduceat(self.rewards, self._starts) for one in (np.minimum, np.maximum))
        return np.asarray(high - low > SAME)

    @cached_property
    def cause_codes(self) -> NDArray[np.int64]:
        """``(g,)`` index into :data:`CAUSES`, -1 for a group with spread."""
        is_status = {status: self.statuses == k for k, status in enumerate(STATUSES)}
        box = self.counted > 0
        # Whose boxes all lie in ignore regions counts as saying that there is nothing.
        negative = ~box & (is_status["empty"] | is_status["boxes"])
        cut_off = ~box & is_status["truncated"]
        normal = self._all(self.findings == 0)
        earns = self._any(self.rewards > SAME)
        holds = {
            "all_cut_off": self._all(cut_off),
            "all_unread": self._all(~box & ~negative),
            "all_perfect": np.where(normal, self._all(negative), self._all(self.rewards >= 1 - SAME)),
            "all_hallucinated": normal & self._any(box) & ~self._any(negative),
            "all_empty": ~normal & ~self._any(box) & self._any(negative),
            "all_below_threshold": ~normal & self._any(box) & ~earns,
            "all_equal": np.ones(len(self.sizes), dtype=bool),
        }
        first = np.stack([holds[name] for name in _NAMES]).argmax(axis=0)
        return np.where(self.has_spread, -1, first)

    @property
    def causes(self) -> list[str | None]:
        """Of each group the name of the cause, None for one with spread."""
        return [None if code < 0 else _NAMES[code] for code in self.cause_codes]

    @cached_property
    def effective_sizes(self) -> Array:
        """``(g,)`` effective group size, see the module."""
        centred = self._centred
        return np.where(self.has_spread, ratio(self._sum(np.abs(centred)) ** 2, self._sum(centred**2)), 0.0)

    @cached_property
    def _centred(self) -> Array:
        return self.rewards - np.repeat(self._sum(self.rewards) / self.sizes, self.sizes)

    def advantages(self, scale: str = "group") -> Array:
        """The advantage of each completion, as TRL computes it.

        Args:
            scale: ``"group"`` divides by the standard deviation of the group, ``"batch"`` by that of all completions,
                ``"none"`` does not; TRL's ``scale_rewards``.

        Returns:
            ``(n,)``.

        Example:
            >>> groups = Groups.of([4], [0, 0, 0, 1], ["boxes"] * 4, [1] * 4, [1] * 4)
            >>> groups.advantages("none").tolist()
            [-0.25, -0.25, -0.25, 0.75]
            >>> groups.advantages("group").round(2).tolist()
            [-0.5, -0.5, -0.5, 1.5]
        """
        check_word("scale", scale, SCALES)
        if scale == "none":
            return self._centred
        if scale == "batch":
            return self._centred / (np.std(self.rewards, ddof=1) + _EPSILON if len(self.rewards) > 1 else _EPSILON)
        deviation = np.sqrt(self._sum(self._centred**2) / np.maximum(self.sizes - 1, 1))
        return self._centred / np.repeat(deviation + _EPSILON, self.sizes)

    def no_spread_of(self, size: int) -> Array:
        """How likely each group would be without spread with fewer completions, drawn from those that there are.

            Σ_v C(c_v, k) / C(n, k)

        with c_v of the n completions at the reward v: the share of all choices of k that are without spread.

        Args:
            size: k, at least 2.

        Returns:
            ``(g,)``, NaN for groups with fewer completions.

        Example:
            >>> groups = Groups.of([4], [0, 0, 0, 1], ["boxes"] * 4, [1] * 4, [1] * 4)
            >>> [groups.no_spread_of(k).tolist() for k in (2, 3, 4, 8)]
            [[0.5], [0.25], [0.0], [nan]]
        """
        if size < 2:
            raise ValueError(f"Expected at least 2 completions for `size`, got {size}. One alone has nothing to beat.")
        levels = np.round(self.rewards / SAME).astype(np.int64)
        found = np.full(len(self.sizes), np.nan)
        drawn = np.arange(size)
        for k, (start, n) in enumerate(zip(self._starts, self.sizes, strict=True)):
            if n >= size:
                counts = np.unique(levels[start : start + n], return_counts=True)[1]
                # C(c, k) / C(n, k) = Π (c - i) / (n - i), 0 where c < k.
                found[k] = (np.maximum(counts[:, None] - drawn, 0) / (n - drawn)).prod(axis=1).sum()
        return found

    def metrics(self) -> dict[str, float]:
        """Shares of all groups, and the mean effective group size, by :data:`SIGNAL_KEYS`; NaN without a group.

        Example:
            >>> metrics = Groups.of([2, 2], [0, 0, 0, 1], ["boxes"] * 4, [1] * 4, [1] * 4).metrics()
            >>> tuple(metrics) == SIGNAL_KEYS, metrics["no_spread"], metrics["all_below_threshold"]
            (True, 0.5, 0.5)
            >>> metrics["effective_group_size"]
            1.0
        """
        g = len(self.sizes)
        if not g:
            return dict.fromkeys(SIGNAL_KEYS, float("nan"))
        counts = np.bincount(self.cause_codes + 1, minlength=len(_NAMES) + 1)[1:]
        return {
            "no_spread": int(counts.sum()) / g,
            **{name: int(count) / g for name, count in zip(_NAMES, counts, strict=True)},
            "effective_group_size": float(self.effective_sizes.mean()),
        }

    def take(self, chosen: NDArray[np.bool_]) -> Groups:
        """The groups for which ``chosen``, ``(g,)``, holds."""
        each = np.repeat(chosen, self.sizes)
        return Groups(
            self.sizes[chosen], self.rewards[each], self.statuses[each], self.counted[each], self.findings[each]
        )


def main_cause(metrics: dict[str, float]) -> str | None:
    """The most frequent cause in :meth:`Groups.metrics`; None where every group has spread.

    Example:
        >>> main_cause(Groups.of([2], [0, 0], ["empty"] * 2, [0, 0], [1, 1]).metrics())
        'all_empty'
    """
    name = max(_NAMES, key=lambda one: metrics[one])
    return name if metrics[name] > 0 else None

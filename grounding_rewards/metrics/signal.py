"""Differences in reward among the completions of an image, and the reward that would tell them apart.

GRPO compares the completions of one image, its group: where all of them earn the same, every advantage is 0 and the
image teaches nothing. Of such a group without spread the cause is named, the first that holds in the order of
:data:`CAUSES`, so that the shares of the causes add up to the share of groups without spread.

How much of a group carries an update is its effective group size, Kish's effective sample size of the advantages A,

    (Σ |A|)² / Σ A²

from 0 without spread to the size of the group where half of it is right and half is wrong; one right answer of eight
gives 3.5. It does not depend on how advantages are scaled.

Spread alone is not enough: a random reward has plenty. So beside it stands whether the reward prefers boxes that fit,
its correlation with the answers' mean IoU within the groups. And where the best of K answers to an image is no better
than their mean, there is nothing that RL could still prefer: what pass@K is to pass@1 for answers that are right or
wrong, here for their mean IoU.

Sources: DAPO (arXiv 2503.14476) leaves groups without spread out and samples others, its dynamic sampling; TRL logs
their share as ``frac_reward_zero_std``; Kish, Survey Sampling, 1965; pass@K beside
pass@1, arXiv 2603.01301.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grounding_rewards.columns import image_id, patient_of
from grounding_rewards.common.formatting import NO_VALUE, as_json, html_table, percent
from grounding_rewards.common.numeric import Array, ratio, ratio_or_nan
from grounding_rewards.common.text_files import packaged_tables
from grounding_rewards.metrics.intervals import Estimate, jackknifed_ratio, share_estimate, sum_by_group
from grounding_rewards.metrics.read_predictions import row_columns
from grounding_rewards.parsing import STATUSES
from grounding_rewards.parsing.space_check import SpaceWarning
from grounding_rewards.rewards import CONTROLS, SPECIFICATION_REWARDS
from grounding_rewards.rewards.box_reward import BoxReward
from grounding_rewards.rewards.grounding import GroundingReward, get_reward, score_columns

#: Rewards that differ by less are equal: trainers keep them in float32.
SAME = 1e-6


class Cause(NamedTuple):
    """Why a group has no spread: in a few words, what holds, and what helps."""

    title: str
    meaning: str
    remedy: str


#: The causes by name, in the order in which they are looked for.
CAUSES = {
    name: Cause(**texts) for name, texts in packaged_tables("grounding_rewards.metrics", "signal_causes.toml").items()
}
#: What :meth:`Groups.metrics` gives, always in this order.
SIGNAL_KEYS = (*CAUSES, "effective_group_size")
_NAMES = tuple(CAUSES)


@dataclass(frozen=True, eq=False)
class Groups:
    """The rewards of n completions in g groups, those of one group next to each other.

    Attributes:
        sizes: ``(g,)`` completions of each group, at least 1.
        rewards: ``(n,)``.
        statuses: ``(n,)`` index into ``STATUSES`` of each completion.
        counted: ``(n,)`` numbers of predicted boxes that count, broken ones among them, ignored ones not.
        findings: ``(n,)`` numbers of reference boxes; of the reader who suits the completion best if there are several.

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

    @classmethod
    def of(
        cls, sizes: ArrayLike, rewards: ArrayLike, statuses: Sequence[str], counted: ArrayLike, findings: ArrayLike
    ) -> Groups:
        """The groups from lists, which are those of the attributes but for `statuses`: words, such as `boxes`."""
        index_of = {status: k for k, status in enumerate(STATUSES)}
        return cls(
            sizes=np.asarray(sizes, dtype=np.int64),
            rewards=np.asarray(rewards, dtype=np.float64),
            statuses=np.array([index_of[status] for status in statuses], dtype=np.int64),
            counted=np.asarray(counted, dtype=np.int64),
            findings=np.asarray(findings, dtype=np.int64),
        )

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """The index of each group's first completion, ``(g,)``."""
        return np.cumsum(self.sizes) - self.sizes

    def _all(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether the flag of every completion of a group is set, ``(g,)``."""
        return np.logical_and.reduceat(flags, self._starts)

    def _any(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether the flag of some completion of a group is set, ``(g,)``."""
        return np.logical_or.reduceat(flags, self._starts)

    def _sum(self, values: Array) -> Array:
        """The sum of the completions' values in each group, ``(g,)``."""
        return np.add.reduceat(values, self._starts)

    def centred(self, values: Array) -> Array:
        """The completions' values, each less the mean of its group, ``(n,)``."""
        return values - np.repeat(self._sum(values) / self.sizes, self.sizes)

    @cached_property
    def has_spread(self) -> NDArray[np.bool_]:
        """``(g,)`` whether two completions of the group earn different rewards."""
        low = np.minimum.reduceat(self.rewards, self._starts)
        high = np.maximum.reduceat(self.rewards, self._starts)
        return np.asarray(high - low > SAME)

    @cached_property
    def cause_codes(self) -> NDArray[np.int64]:
        """``(g,)`` why the group has no spread, an index into :data:`CAUSES`; -1 for a group with spread."""
        is_status = {status: self.statuses == k for k, status in enumerate(STATUSES)}
        has_box = self.counted > 0
        # Of each completion, as `_any` and `_all` then ask of its group. One whose boxes all lie in ignore regions says
        # in effect that there is nothing.
        says_nothing = ~has_box & (is_status["empty"] | is_status["boxes"])
        is_normal = self._all(self.findings == 0)
        any_box, any_says_nothing = self._any(has_box), self._any(says_nothing)
        conditions = {
            "all_cut_off": self._all(~has_box & is_status["truncated"]),
            "all_unread": self._all(~has_box & ~says_nothing),
            "all_perfect": np.where(is_normal, self._all(says_nothing), self._all(self.rewards >= 1 - SAME)),
            "all_hallucinated": is_normal & any_box & ~any_says_nothing,
            "all_empty": ~is_normal & ~any_box & any_says_nothing,
            "all_below_threshold": ~is_normal & any_box & ~self._any(self.rewards > SAME),
            "all_equal": np.ones(len(self.sizes), dtype=bool),
        }
        # The first condition that holds: argmax finds the first True.
        first_cause = np.stack([conditions[name] for name in _NAMES]).argmax(axis=0)
        return np.where(self.has_spread, -1, first_cause)

    @property
    def causes(self) -> list[str | None]:
        """Name of the cause for each group, None for one with spread."""
        return [None if code < 0 else _NAMES[code] for code in self.cause_codes]

    @cached_property
    def effective_sizes(self) -> Array:
        """``(g,)`` effective group size, ``(Σ |A|)² / Σ A²`` of the advantages A of the group; 0 without spread."""
        centred = self.centred(self.rewards)
        return np.where(self.has_spread, ratio(self._sum(np.abs(centred)) ** 2, self._sum(centred**2)), 0.0)

    @property
    def no_spread(self) -> float:
        """The share of all groups without spread; NaN without a group."""
        return float((~self.has_spread).mean()) if len(self.sizes) else math.nan

    def metrics(self) -> dict[str, float]:
        """The share of all groups that each cause has, by its name, and the mean `effective_group_size`.

        All are NaN without a group. The shares of the causes add up to :attr:`no_spread`.

        Example:
            >>> groups = Groups.of([2, 2], [0, 0, 0, 1], ["boxes"] * 4, [1] * 4, [1] * 4)
            >>> metrics = groups.metrics()
            >>> tuple(metrics) == SIGNAL_KEYS, groups.no_spread, metrics["all_below_threshold"]
            (True, 0.5, 0.5)
            >>> metrics["effective_group_size"]
            1.0
        """
        g = len(self.sizes)
        if not g:
            return dict.fromkeys(SIGNAL_KEYS, math.nan)
        # Codes are counted one place up, so that -1, of a group with spread, comes first and is left out.
        counts = np.bincount(self.cause_codes + 1, minlength=len(_NAMES) + 1)[1:]
        metrics = {name: int(count) / g for name, count in zip(_NAMES, counts, strict=True)}
        metrics["effective_group_size"] = float(self.effective_sizes.mean())
        return metrics


def main_cause(metrics: dict[str, float]) -> str | None:
    """The most frequent cause in :meth:`Groups.metrics`; None where every group has spread.

    Example:
        >>> main_cause(Groups.of([2], [0, 0], ["empty"] * 2, [0, 0], [1, 1]).metrics())
        'all_empty'
    """
    name = max(_NAMES, key=lambda cause: metrics[cause])
    return name if metrics[name] > 0 else None


#: The threshold under which the configured reward is tried.
LOWER_THRESHOLD = 0.3
#: Rewards that are tried beside the configured one.
TRIED = ("soft_f1", *SPECIFICATION_REWARDS)
#: A share of groups without spread that needs no remedy.
ENOUGH = 0.2
# Shares of groups: the gain from which another reward is recommended, and the difference below which two are as good.
_GAIN = 0.1
_AS_GOOD = 0.05
# The share of the bonus that false boxes on images without findings may earn at most, where none is configured.
_GRADED = 0.5
# A reward that leaves more groups than this without spread is not recommended, however bad the others are.
_MOST = 0.5
# Groups that are scored together.
_CHUNK = 64


@dataclass(frozen=True)
class RewardSignal:
    """The signal of one reward on the groups.

    Attributes:
        name: of the reward, with what differs from its defaults.
        mean: of all rewards.
        no_spread: share of groups without spread, with its 95 % interval over patients, or images.
        causes: share of all groups by cause, see :data:`CAUSES`.
        effective_group_size: mean over groups.
        iou_correlation: of the reward with the mean IoU of answers, within the groups of images with findings; None
            where one of them does not differ.
    """

    name: str
    mean: float
    no_spread: Estimate
    causes: dict[str, float]
    effective_group_size: float
    iou_correlation: float | None = None

    @property
    def is_control(self) -> bool:
        """Whether the reward teaches nothing about boxes, however much spread it has."""
        return self.name.partition(" ")[0] in CONTROLS


@dataclass(frozen=True)
class SignalReport:
    """The signal of a reward on groups of completions; see :func:`measure_signal`.

    Attributes:
        configured: the reward that is asked about.
        tried: the others, in the order of how little they change.
        groups: number of groups.
        completions: number of completions.
        size: the most frequent number of completions of a group.
        best: the name of the reward that is recommended, or of the configured one.
        recommendation: what to train with, computed from the shares.
        mean_iou: of all answers to images with findings.
        best_of_k_gain: how much higher the mean IoU of the best answer to each image is, with its 95 % interval; NaN
            without findings.
        misreading: how the answers contradict the declared box format; then no reward is recommended. Empty where they
            do not.
    """

    configured: RewardSignal
    tried: tuple[RewardSignal, ...]
    groups: int
    completions: int
    size: int
    best: str
    recommendation: str
    mean_iou: float
    best_of_k_gain: Estimate
    misreading: str = ""

    def __repr__(self) -> str:
        # Shares of misread answers say nothing about the reward.
        if self.misreading:
            return self.recommendation
        share, low, high = map(percent, self.configured.no_spread)
        groups = f"{self.groups:,} groups of {self.size} completions"
        return f"{self.configured.name}: {share} [{low}, {high}] of {groups} without spread.\n{self.recommendation}"

    def _repr_html_(self) -> str:
        return html_table(*self.table(), self.recommendation)

    @property
    def best_of_k(self) -> str:
        """What the best of an image's answers reaches beside their mean, and what that means for RL, in a sentence.

        Empty where there is nothing to find on any image.
        """
        gain = self.best_of_k_gain
        if math.isnan(gain.value):
            return ""
        best = self.mean_iou + gain.value
        sentence = f"The best of {self.size} answers reaches {best:.2f} mean IoU, all of them {self.mean_iou:.2f}"
        # Also where the interval has no low end, NaN.
        if not gain.low > 0:
            return f"{sentence}: RL has nothing to prefer. Raise temperature or num_generations."
        return f"{sentence}: RL can prefer what is {gain.value:.2f} [{gain.low:.2f}, {gain.high:.2f}] better."

    @property
    def is_fine(self) -> bool:
        """Whether few groups are without spread, no other reward is recommended, and answers are not misread."""
        return not self.misreading and self.best == self.configured.name and self.configured.no_spread.value <= ENOUGH

    @property
    def all(self) -> tuple[RewardSignal, ...]:
        """The configured reward, then the others: the rows of the table."""
        return (self.configured, *self.tried)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without any text or box of the log."""
        return as_json(self)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Headings and rows of the one table: a row for every reward."""
        rows = []
        for signal in self.all:
            share, low, high = map(percent, signal.no_spread)
            # Those that occur, the most frequent first.
            causes = sorted((name for name in CAUSES if signal.causes[name]), key=lambda name: -signal.causes[name])
            row = [
                signal.name,
                f"{share} [{low}, {high}]",
                ", ".join(f"{percent(signal.causes[name])} {CAUSES[name].title}" for name in causes),
                f"{signal.effective_group_size:.1f}",
                f"{signal.mean:.3f}",
                NO_VALUE if signal.iou_correlation is None else f"{signal.iou_correlation:.2f}",
            ]
            rows.append(row)
        return ["reward", "no spread", "because", "effective size", "mean", "with IoU"], rows

    def to_dataframe(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each reward, as :attr:`all` has them: shares by cause among others."""
        import pandas

        rows = [
            {"reward": signal.name, "mean": signal.mean, "no_spread": signal.no_spread.value, **signal.causes}
            | {"effective_group_size": signal.effective_group_size, "iou_correlation": signal.iou_correlation}
            for signal in self.all
        ]
        return pandas.DataFrame(rows)


def variants(reward: GroundingReward, tried: Sequence[str] = TRIED) -> list[GroundingReward]:
    """Make the rewards to try on the same completions, the ones that differ least from the configured one first.

    They are the configured one with a lower threshold, and with pay for few false boxes on images without findings,
    where it has these settings and that changes them; then those of `tried`. All read texts as the configured one does,
    and keep its rules for labels, ignore regions and negatives.

    Args:
        reward: the configured one.
        tried: names of rewards that are registered, or dotted paths.

    Returns:
        Each under a name of its own; the configured one is not among them.

    Example:
        >>> [variant.name for variant in variants(get_reward("R4"), ["R4", "soft_f1"])]
        ['R4 at τ 0.3', 'R4 with graded_negatives 0.5', 'soft_f1']
    """
    box_reward: Any = reward.box_reward if reward.judges_boxes else None
    rewards = []
    # A third party's reward may have neither setting, and a threshold may be a schedule.
    if isinstance(getattr(box_reward, "iou_threshold", None), float) and box_reward.iou_threshold > LOWER_THRESHOLD:
        lowered = replace(box_reward, iou_threshold=LOWER_THRESHOLD)
        rewards.append(replace(reward, name=f"{reward.name} at τ {LOWER_THRESHOLD:g}", box_reward=lowered))
    if getattr(box_reward, "graded_negatives", None) == 0:
        graded = replace(box_reward, graded_negatives=_GRADED)
        rewards.append(replace(reward, name=f"{reward.name} with graded_negatives {_GRADED:g}", box_reward=graded))
    # The settings that all rewards of boxes have, such as no_box_bonus.
    common_settings = {}
    if isinstance(box_reward, BoxReward):
        common_settings = {field.name: getattr(box_reward, field.name) for field in fields(BoxReward)}
    for name in tried:
        if name != reward.name:
            registered = get_reward(name)
            tried_box: Any = registered.box_reward
            if isinstance(tried_box, BoxReward):
                tried_box = replace(tried_box, **common_settings)
            rewards.append(replace(reward, name=name, box_reward=tried_box, text_reward=registered.text_reward))
    return rewards


def measure_signal(
    rows: Sequence[Mapping[str, Any]],
    texts: Sequence[Sequence[Any]],
    reward: GroundingReward,
    *,
    tried: Sequence[str] = TRIED,
    track: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> SignalReport:
    """Measure whether completions of the same image differ in reward, and what other rewards make of them.

    Args:
        rows: one for each group, with the columns that rewards read; as far as known `id` and `patient_id`.
        texts: the completions of each group.
        reward: the configured one.
        tried: names of others, see :func:`variants`.
        track: wraps what takes a while, for a progress bar.

    Raises:
        ValueError: there is no group of several completions, or a row lacks what rewards read.

    Where the answers contradict the declared box format the recommendation says so, in place of a `SpaceWarning`.

    Example:
        Answers that all miss an IoU of 0.5, some by less than others:

        >>> row = {"boxes": [[0, 0, 50, 50]], "labels": ["mass"], "width": 100, "height": 100}
        >>> answers = ['[{"bbox_2d": [0, 0, 500, %d]}]' % (100 * k) for k in (1, 2)]
        >>> report = measure_signal([row] * 8, [answers] * 8, get_reward("R4", box_format="qwen3-vl"))
        >>> report.configured.causes["all_below_threshold"], report.best
        (1.0, 'R4 at τ 0.3')
        >>> print(report.recommendation)
        Train with R4 at τ 0.3: 0 % of the groups are without spread under it, 100 % under R4, most often because \
there are findings and boxes, and every answer earns 0.
        >>> print(report.best_of_k)
        The best of 2 answers reaches 0.40 mean IoU, all of them 0.30: RL can prefer what is 0.10 [0.06, 0.43] better.
    """
    sizes = np.array([len(answers) for answers in texts], dtype=np.int64)
    if not (sizes > 1).any():
        raise ValueError(
            f"Expected several completions for an image, got one for each of {len(sizes)}. GRPO compares answers to "
            "the same image: sample more of them."
        )
    # Groups of one patient, or of one image, are not independent.
    units = []
    for k, row in enumerate(rows):
        patient = patient_of(row)
        units.append(("image", image_id(row, k)) if patient is None else ("patient", patient))
    rewards = [reward, *variants(reward, tried)]
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always", SpaceWarning)
        groups, iou = _score_groups(rewards, rows, texts, sizes, track)
    # What the first space warning says; every other warning was caught too, and goes on to the user.
    misreading = ""
    for warning in caught_warnings:
        if not issubclass(warning.category, SpaceWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        elif not misreading:
            misreading = str(warning.message).removeprefix(f"{reward.name}: ")
    configured, *other_signals = [_reward_signal(variant.name, groups[variant.name], units, iou) for variant in rewards]
    best, recommendation = recommend(configured, other_signals)
    if misreading:
        best = configured.name
        recommendation = f"The answers are misread, so that no reward can be judged by them. {misreading}"
    # Of each group its first completion, its mean IoU, and how much better its best completion is, of 1 group.
    starts = np.cumsum(sizes) - sizes
    mean_ious = np.add.reduceat(iou, starts) / sizes
    gains = np.column_stack([np.maximum.reduceat(iou, starts) - mean_ious, np.ones(len(sizes))])
    # Images without findings have no IoU, and are of 0 groups.
    gains[np.isnan(mean_ious)] = 0.0
    return SignalReport(
        configured=configured,
        tried=tuple(other_signals),
        groups=len(sizes),
        completions=int(sizes.sum()),
        # The most frequent one.
        size=int(np.bincount(sizes).argmax()),
        best=best,
        recommendation=recommendation,
        mean_iou=float(np.nanmean(mean_ious)) if gains.any() else math.nan,
        best_of_k_gain=jackknifed_ratio(sum_by_group(gains, units)).estimate,
        misreading=misreading,
    )


def recommend(configured: RewardSignal, tried: Sequence[RewardSignal]) -> tuple[str, str]:
    """The name of the reward to train with, and a sentence that says why.

    Another reward is recommended where the best of them leaves half of the groups without spread at most, and fewer
    than the configured one by a tenth of all groups. Of those that are about as good as the best, and whose interval is
    below that of the configured one, the first is taken, which changes the least. A control is never recommended.

    Args:
        configured: the reward that is asked about.
        tried: others, the one with the least change first.
    """
    if configured.is_control:
        return configured.name, (
            f"{configured.name} is a control: whatever spread it has, it teaches nothing about boxes. Name the reward "
            "of the training."
        )
    candidates = [signal for signal in tried if not signal.is_control]
    # Shares of groups without spread: the lower the better.
    share = configured.no_spread.value
    lowest = min((signal.no_spread.value for signal in candidates), default=share)
    # Where every group has spread there is no cause, and the sentence that is then returned names none.
    cause = CAUSES[main_cause(configured.causes) or "all_equal"]
    if share - lowest >= _GAIN and lowest <= _MOST:
        for signal in candidates:
            is_as_good = signal.no_spread.value <= lowest + _AS_GOOD
            if is_as_good and signal.no_spread.high < configured.no_spread.low:
                return signal.name, (
                    f"Train with {signal.name}: {percent(signal.no_spread.value)} of the groups are without spread "
                    f"under it, {percent(share)} under {configured.name}, most often because {cause.meaning}."
                )
    if share <= ENOUGH:
        return configured.name, (
            f"Keep {configured.name}: answers to the same image differ in reward in {percent(1 - share)} of the groups."
        )
    return configured.name, (
        f"No other reward is shown to be enough: {percent(share)} of the groups are without spread under "
        f"{configured.name}, {percent(lowest)} under the best of the others, most often because {cause.meaning}. "
        f"{cause.remedy}"
    )


def _score_groups(
    rewards: Sequence[GroundingReward],
    rows: Sequence[Mapping[str, Any]],
    texts: Sequence[Sequence[Any]],
    sizes: NDArray[np.int64],
    track: Callable[[Iterable[Any]], Iterable[Any]],
) -> tuple[dict[str, Groups], Array]:
    """Score all completions by each reward.

    Args:
        rewards: the configured one, then its variants.
        rows: one for each group.
        texts: the completions of each group.
        sizes: how many they are, ``(groups,)``.
        track: wraps the chunks that are scored, for a progress bar.

    Returns:
        The groups under each reward, by its name, and the mean IoU of each completion, ``(completions,)``, NaN without
        findings.
    """
    names = list(row_columns(rows))
    # A reward for the mean IoU, beside the others: it pairs boxes at any overlap, as soft_f1 does whatever the
    # configured reward's threshold.
    every_overlap = replace(
        rewards[0], name="any overlap", box_reward=get_reward("soft_f1").box_reward, text_reward=None
    )
    scored: list[dict[str, list[Any]]] = []
    for start in track(range(0, len(rows), _CHUNK)):
        chunk_rows: list[Mapping[str, Any]] = []
        chunk_texts: list[Any] = []
        for row, row_texts in zip(rows[start : start + _CHUNK], texts[start : start + _CHUNK], strict=True):
            chunk_rows += [row] * len(row_texts)
            chunk_texts += row_texts
        columns = {name: [row.get(name) for row in chunk_rows] for name in names}
        scored.append(score_columns([*rewards, every_overlap], chunk_texts, **columns))

    def column(name: str) -> NDArray[Any]:
        """The scored column of this name, of the completions of all chunks."""
        return np.array(list(chain.from_iterable(columns[name] for columns in scored)))

    groups = {}
    for reward in rewards:
        tp, fp, fn = column(f"{reward.name}/tp"), column(f"{reward.name}/fp"), column(f"{reward.name}/fn")
        groups[reward.name] = Groups.of(
            sizes, column(reward.name), column("status").tolist(), counted=tp + fp, findings=tp + fn
        )
    tp, fn = column(f"{every_overlap.name}/tp"), column(f"{every_overlap.name}/fn")
    # The reward's mean is over matched boxes, tp; mean IoU is over reference boxes, tp + fn.
    return groups, ratio_or_nan(column(f"{every_overlap.name}/mean_iou") * tp, tp + fn)


def _correlation(groups: Groups, iou: Array) -> float | None:
    """Pearson's correlation of rewards and IoUs within groups, for which each is taken less its group's mean.

    Args:
        groups: with their rewards.
        iou: the mean IoU of each completion; a NaN, of an answer that is judged without findings, leaves the whole
            group out.

    Returns:
        In [-1, 1]; None where rewards or IoUs do not differ within any group.
    """
    rewards, ious = groups.centred(groups.rewards), groups.centred(iou)
    # The mean of a group with a NaN is NaN.
    is_judged = ~np.isnan(ious)
    rewards, ious = rewards[is_judged], ious[is_judged]
    norm = math.sqrt(float((rewards**2).sum() * (ious**2).sum()))
    # Rewards or IoUs that differ by rounding alone have a smaller norm.
    return float((rewards * ious).sum()) / norm if norm > SAME**2 else None


def _reward_signal(name: str, groups: Groups, units: Sequence[Any], iou: Array) -> RewardSignal:
    """The signal of the reward of this name; `units` are the patients of the groups, `iou` is of each completion."""
    metrics = groups.metrics()
    # Groups without spread, of all groups.
    sums = np.column_stack([~groups.has_spread, np.ones(len(groups.sizes))])
    return RewardSignal(
        name=name,
        mean=float(groups.rewards.mean()),
        no_spread=share_estimate(sum_by_group(sums, units)),
        causes={cause: metrics[cause] for cause in CAUSES},
        effective_group_size=metrics["effective_group_size"],
        iou_correlation=_correlation(groups, iou),
    )

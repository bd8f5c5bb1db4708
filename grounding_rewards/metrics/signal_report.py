"""What a reward makes of groups of completions, and what other rewards would have made of the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import as_box_array
from grounding_rewards.columns import patient_of
from grounding_rewards.common.arithmetic import Array
from grounding_rewards.metrics.answered_image import UNNAMED
from grounding_rewards.metrics.estimates import Estimate, finite_or_none, percent
from grounding_rewards.metrics.intervals import group_numbers, share_estimate
from grounding_rewards.metrics.ranking import IMAGE_AREAS
from grounding_rewards.metrics.signal import CAUSES, SAME, SCALES, Groups, main_cause
from grounding_rewards.rewards import SPECIFICATION_REWARDS
from grounding_rewards.rewards.base import BoxReward
from grounding_rewards.rewards.grounding import GroundingReward, get_reward, score_columns

#: Thresholds under which every reward that has one is tried.
THRESHOLDS = (0.5, 0.3, 0.1)
#: Rewards that are tried beside the configured one.
TRIED = (*SPECIFICATION_REWARDS, "soft_f1")
#: A share of groups without spread that needs no remedy.
ENOUGH = 0.2
# What another reward has to gain to be recommended, and what two shares differ by that are as good.
_GAIN, _AS_GOOD = 0.1, 0.05
# The share of the bonus that false boxes on images without findings may earn at most, where none is configured.
_GRADED = 0.5
# A reward that leaves more groups than this without spread is not recommended, however bad the others are.
_MOST = 0.5
# Groups that are scored together.
_CHUNK = 64
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_NO_FINDING = "no finding"
# Columns that play no part in scoring.
_PASSED_OVER = ("prompt", "image", "images", "completion_ids", "ground_truth")

Track = Callable[[Iterable[Any]], Iterable[Any]]


@dataclass(frozen=True)
class RewardSignal:
    """What one reward makes of the groups.

    Attributes:
        name: of the reward, with what differs from its defaults.
        reward: its name alone.
        threshold: its τ, None where it has none.
        mean: of all rewards.
        no_spread: share of groups without spread, with its 95 % interval over patients, or images.
        causes: share of all groups by cause, see :data:`grounding_rewards.metrics.signal.CAUSES`.
        effective_group_size: mean over groups.
        no_spread_by_size: the share that is to be expected in groups of so many completions, drawn from these.
        advantages: by how TRL may scale them, the quantiles 0.05, 0.25, 0.5, 0.75 and 0.95.
    """

    name: str
    reward: str
    threshold: float | None
    mean: float
    no_spread: Estimate
    causes: dict[str, float]
    effective_group_size: float
    no_spread_by_size: dict[int, float]
    advantages: dict[str, list[float]]

    @property
    def main_cause(self) -> str | None:
        """The most frequent cause."""
        return main_cause(self.causes)


@dataclass(frozen=True)
class Part:
    """The groups of one label, size of finding or temperature: how many, and what is said of them.

    Attributes:
        name: of the label, size or temperature.
        groups: how many.
        no_spread: share of them without spread under the configured reward.
        cause: the most frequent one, None where all have spread.
        effective_group_size: mean over them.
        mean: of the rewards.
        no_spread_best: share without spread under the recommended reward.
    """

    name: str
    groups: int
    no_spread: float
    cause: str | None
    effective_group_size: float
    mean: float
    no_spread_best: float


@dataclass(frozen=True)
class LoggedReward:
    """A column of the log with rewards: the share of groups without spread by it, and of completions for which it
    differs from what the configured reward gives now."""

    name: str
    no_spread: float
    differs: float


@dataclass(frozen=True)
class SignalReport:
    """The signal of a reward on groups of completions; see :func:`measure_signal`.

    Attributes:
        configured: the reward that is asked about.
        tried: the others, in the order of how little they change.
        groups: how many.
        completions: how many.
        size: completions of most groups.
        labels: groups by label of their findings; a group with several labels is in several.
        sizes: groups by size of their findings.
        temperatures: groups by the temperature of their completions, where several are known.
        logged: what the log says of rewards itself.
        best: the name of the reward that is recommended, or of the configured one.
        recommendation: what to train with, computed from the shares.
        causes: of each group under the configured reward, None with spread.
        rewards: of each group, by the configured reward and by the recommended one.
    """

    configured: RewardSignal
    tried: tuple[RewardSignal, ...]
    groups: int
    completions: int
    size: int
    labels: tuple[Part, ...]
    sizes: tuple[Part, ...]
    temperatures: tuple[Part, ...]
    logged: tuple[LoggedReward, ...]
    best: str
    recommendation: str
    causes: tuple[str | None, ...] = field(repr=False)
    rewards: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...] = field(repr=False)
    advantages: Array = field(repr=False, compare=False)

    @property
    def all(self) -> tuple[RewardSignal, ...]:
        """The configured reward, then the others."""
        return (self.configured, *self.tried)

    def as_json(self) -> dict[str, Any]:
        """Plain values, without any text or box of the log."""
        kept = asdict(replace(self, causes=(), rewards=(), advantages=np.zeros(0)))
        for name in ("causes", "rewards", "advantages"):
            del kept[name]
        return _plain(kept)


def variants(reward: GroundingReward, tried: Sequence[str] = TRIED) -> list[GroundingReward]:
    """The rewards that are tried on the same completions: the one with the least change first.

    All read texts as the configured one does, and keep its rules for labels, ignore regions and negatives.

    Args:
        reward: the configured one.
        tried: names of rewards that are registered, or dotted paths.

    Returns:
        Each under a name of its own; the configured one is not among them.

    Example:
        >>> [one.name for one in variants(get_reward("R4"), ["R4", "soft_f1"])]
        ['R4 at τ 0.3', 'R4 with graded_negatives 0.5', 'soft_f1', 'soft_f1 with giou', 'R4 at τ 0.1']
    """
    shared = {
        one.name: getattr(reward.box_reward, one.name)
        for one in fields(BoxReward)
        if isinstance(reward.box_reward, BoxReward)
    }
    own = getattr(reward.box_reward, "iou_threshold", None)
    made = {
        reward.name: reward.box_reward,
        **{name: _box_reward(name, shared) for name in tried if name != reward.name},
    }
    found: list[tuple[int, str, Any]] = []
    for name, box_reward in made.items():
        threshold = getattr(box_reward, "iou_threshold", None)
        is_own = name == reward.name
        if threshold is None and not is_own:
            found.append((2, name, box_reward))
        elif isinstance(threshold, float):
            steps = [one for one in THRESHOLDS if not is_own or one < (own or 0.0)]
            for place, one in enumerate(steps):
                order = (0 if place == 0 else 4) if is_own else 5
                found.append((order, f"{name} at τ {one:g}", replace(box_reward, iou_threshold=one)))
        if name == "soft_f1" and getattr(box_reward, "overlap", "") == "iou":
            found.append((3, f"{name} with giou", replace(box_reward, overlap="giou")))
    if getattr(reward.box_reward, "graded_negatives", None) == 0:
        graded = replace(reward.box_reward, graded_negatives=_GRADED)
        found.append((1, f"{reward.name} with graded_negatives {_GRADED:g}", graded))
    found.sort(key=lambda one: one[0])
    return [_renamed(reward, name, box_reward) for _, name, box_reward in found]


def _box_reward(name: str, shared: Mapping[str, Any]) -> Any:
    made = get_reward(name).box_reward
    return replace(made, **shared) if isinstance(made, BoxReward) else made


def _renamed(reward: GroundingReward, name: str, box_reward: Any) -> GroundingReward:
    return replace(reward, name=name, box_reward=box_reward)


def measure_signal(
    rows: Sequence[Mapping[str, Any]],
    texts: Sequence[Sequence[Any]],
    reward: GroundingReward,
    *,
    tried: Sequence[str] = TRIED,
    logged: Mapping[str, Sequence[Sequence[float]]] | None = None,
    track: Track = iter,
) -> SignalReport:
    """Measure whether completions of the same image differ in reward, and what other rewards make of them.

    Args:
        rows: one for each group, with the columns that rewards read; as far as known `id`, `patient_id`, `labels`, and
            `temperature`, at which the completions were sampled.
        texts: the completions of each group.
        reward: the configured one.
        tried: names of others, see :func:`variants`.
        logged: by name, rewards that the log states for the same completions.
        track: wraps what takes a while, for a progress bar.

    Raises:
        ValueError: there is no group of several completions, or a row lacks what rewards read.

    Example:
        Answers that all miss an IoU of 0.5, some by less than others:

        >>> row = {"boxes": [[0, 0, 50, 50]], "labels": ["mass"], "width": 100, "height": 100}
        >>> answers = ['[{"bbox_2d": [0, 0, 500, %d]}]' % (100 * k) for k in (1, 2)]
        >>> report = measure_signal([row], [answers], get_reward("R4", box_format="qwen3-vl"))
        >>> report.configured.causes["all_below_threshold"], report.best
        (1.0, 'R4 at τ 0.3')
        >>> print(report.recommendation)
        Train with R4 at τ 0.3: 0 % of the groups are without spread under it, 100 % under R4, most often because \
there are findings and boxes, and every answer earns 0.
    """
    sizes = np.array([len(answers) for answers in texts], dtype=np.int64)
    if not (sizes > 1).any():
        raise ValueError(
            f"Expected several completions for an image, got one for each of {len(sizes)}. GRPO compares "
            f"answers to the "
            "same image: sample more of them."
        )
    images = _units(rows)
    rewards = [reward, *variants(reward, tried)]
    judged = _judge(rewards, rows, texts, sizes, track)
    signals = {
        one.name: _signal(one, judged[one.name], images, base=reward.name if one is reward else None) for one in rewards
    }
    configured, *others = signals.values()
    best, recommendation = recommend(configured, others)
    own, chosen = judged[reward.name], judged[best]
    return SignalReport(
        configured=configured,
        tried=tuple(others),
        groups=len(sizes),
        completions=int(sizes.sum()),
        size=int(np.bincount(sizes).argmax()),
        labels=tuple(_parts(_label_members(rows), own, chosen)),
        sizes=tuple(_parts(_size_members(rows), own, chosen)),
        temperatures=tuple(_parts(_temperature_members(rows), own, chosen)),
        logged=tuple(_logged(logged or {}, own)),
        best=best,
        recommendation=recommendation,
        causes=tuple(own.causes),
        rewards=tuple(zip(_by_group(own), _by_group(chosen), strict=True)),
        advantages=own.advantages(),
    )


def recommend(configured: RewardSignal, tried: Sequence[RewardSignal]) -> tuple[str, str]:
    """The name of the reward to train with, and why, in a sentence.

    Another reward has to leave a tenth of the groups less without spread, and half of them at most, to be recommended;
    of those that are about as good as the best the first is taken, which changes the least.

    Args:
        configured: the reward that is asked about.
        tried: others, the one with the least change first.
    """
    own = configured.no_spread.value
    least = min((one.no_spread.value for one in tried), default=own)
    cause = CAUSES[configured.main_cause or "all_equal"]
    if own - least >= _GAIN and least <= _MOST:
        best = next(one for one in tried if one.no_spread.value <= least + _AS_GOOD)
        left = CAUSES[best.main_cause or "all_equal"]
        rest = f" Of what is left: {left.meaning}. {left.remedy}" if best.no_spread.value > ENOUGH else ""
        return best.name, (
            f"Train with {best.name}: {percent(best.no_spread.value)} of the groups are without spread under it, "
            f"{percent(own)} under {configured.name}, most often because {cause.meaning}.{rest}"
        )
    if own <= ENOUGH:
        return configured.name, (
            f"Keep {configured.name}: answers to the same image differ in reward in {percent(1 - own)} of the groups, "
            f"and no reward that was tried reaches more than {percent(1 - min(own, least))}."
        )
    return configured.name, (
        f"Another reward alone would not do: {percent(own)} of the groups are without spread under {configured.name}, "
        f"{percent(least)} under the best of the others, most often because {cause.meaning}. {cause.remedy}"
    )


def _judge(
    rewards: Sequence[GroundingReward],
    rows: Sequence[Mapping[str, Any]],
    texts: Sequence[Sequence[Any]],
    sizes: NDArray[np.int64],
    track: Track,
) -> dict[str, Groups]:
    """The groups under each reward, by its name; some groups at a time, so that a bar moves."""
    names = dict.fromkeys(name for row in rows for name in row if name not in _PASSED_OVER)
    scored: list[dict[str, list[Any]]] = []
    for start in track(range(0, len(rows), _CHUNK)):
        chunk = zip(rows[start : start + _CHUNK], texts[start : start + _CHUNK], strict=True)
        part = [(row, one) for row, answers in chunk for one in answers]
        columns = {name: [row.get(name) for row, _ in part] for name in names}
        scored.append(score_columns(rewards, [one for _, one in part], **columns))

    def whole(name: str) -> list[Any]:
        return [value for one in scored for value in one[name]]

    found = {}
    for reward in rewards:
        tp, fp, fn = (np.array(whole(f"{reward.name}/{part}")) for part in ("tp", "fp", "fn"))
        found[reward.name] = Groups.of(sizes, whole(reward.name), whole("status"), tp + fp, tp + fn)
    return found


def _units(rows: Sequence[Mapping[str, Any]]) -> NDArray[np.int64]:
    """Whose group it is: groups of one patient, or of one image, are not independent."""
    patients = map(patient_of, rows)
    images = (str(row["id"]) if "id" in row else k for k, row in enumerate(rows))
    names = [
        ("image", image) if patient is None else ("patient", patient)
        for patient, image in zip(patients, images, strict=True)
    ]
    return group_numbers(names, len(rows))


def _signal(reward: GroundingReward, groups: Groups, units: NDArray[np.int64], base: str | None) -> RewardSignal:
    metrics = groups.metrics()
    flat = ~groups.has_spread
    counted = np.stack([np.bincount(units, weights=flat.astype(np.float64)), np.bincount(units)], axis=1).astype(
        np.float64
    )
    threshold = getattr(reward.box_reward, "iou_threshold", None)
    return RewardSignal(
        name=reward.name,
        reward=base or reward.name.partition(" at τ ")[0],
        threshold=threshold if isinstance(threshold, float) else None,
        mean=float(groups.rewards.mean()),
        no_spread=share_estimate(counted),
        causes={name: metrics[name] for name in CAUSES},
        effective_group_size=metrics["effective_group_size"],
        no_spread_by_size={size: float(np.nanmean(groups.no_spread_of(size))) for size in _tried_sizes(groups)},
        advantages={scale: np.quantile(groups.advantages(scale), _QUANTILES).tolist() for scale in SCALES},
    )


def _tried_sizes(groups: Groups) -> list[int]:
    """2, 4, 8, … up to the largest group, and that."""
    largest = int(groups.sizes.max())
    return sorted({2**k for k in range(1, largest.bit_length()) if 2**k <= largest} | {largest})


def _parts(members: Mapping[str, NDArray[np.bool_]], own: Groups, chosen: Groups) -> Iterator[Part]:
    for name, which in members.items():
        if which.any():
            groups, metrics = own.take(which), own.take(which).metrics()
            yield Part(
                name,
                int(which.sum()),
                metrics["no_spread"],
                main_cause(metrics),
                metrics["effective_group_size"],
                float(groups.rewards.mean()),
                chosen.take(which).metrics()["no_spread"],
            )


def _label_members(rows: Sequence[Mapping[str, Any]]) -> dict[str, NDArray[np.bool_]]:
    named = [_labels_of(row) for row in rows]
    counts = {name: sum(name in one for one in named) for one in named for name in one}
    order = sorted(counts, key=lambda name: (name == _NO_FINDING, -counts[name], name))
    return {name: np.array([name in one for one in named]) for name in order}


def _labels_of(row: Mapping[str, Any]) -> set[str]:
    boxes = boxes_of_all_readers(row)
    labels = row.get("labels") or [None] * len(boxes)
    return {UNNAMED if label is None else str(label) for label in labels} if len(boxes) else {_NO_FINDING}


def _size_members(rows: Sequence[Mapping[str, Any]]) -> dict[str, NDArray[np.bool_]]:
    """Which groups have a finding of each size, where the sizes of the images are known."""
    if any(row.get("width") is None or row.get("height") is None for row in rows):
        return {}
    members: dict[str, list[bool]] = {name: [] for name in IMAGE_AREAS}
    for row in rows:
        boxes = boxes_of_all_readers(row)
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        image = np.full(len(boxes), float(row["width"]) * float(row["height"]))
        for name, area in IMAGE_AREAS.items():
            members[name].append(bool(area.holds(areas, image).any()))
    return {name: np.array(which) for name, which in members.items()}


def boxes_of_all_readers(row: Mapping[str, Any]) -> Array:
    """The reference boxes of an image, ``(m, 4)``; of several readers those of one after the other.

    Example:
        >>> boxes_of_all_readers({"boxes": [], "reader_boxes": [[[0, 0, 9, 9]], []]}).tolist()
        [[0.0, 0.0, 9.0, 9.0]]
    """
    readers = row.get("reader_boxes")
    boxes = row["boxes"] if readers is None else [box for one in readers for box in one]
    return as_box_array(boxes, "boxes")


def _temperature_members(rows: Sequence[Mapping[str, Any]]) -> dict[str, NDArray[np.bool_]]:
    known = [row.get("temperature") for row in rows]
    different = sorted({float(one) for one in known if one is not None})
    if len(different) < 2:
        return {}
    return {f"{one:g}": np.array([value is not None and float(value) == one for value in known]) for one in different}


def _logged(logged: Mapping[str, Sequence[Sequence[float]]], own: Groups) -> Iterator[LoggedReward]:
    for name, values in logged.items():
        stated = np.array(list(chain.from_iterable(values)), dtype=np.float64)
        groups = replace(own, rewards=stated)
        yield LoggedReward(
            name, float((~groups.has_spread).mean()), float((np.abs(stated - own.rewards) > 1e3 * SAME).mean())
        )


def _by_group(groups: Groups) -> list[tuple[float, ...]]:
    ends = np.cumsum(groups.sizes)[:-1]
    return [tuple(part.tolist()) for part in np.split(groups.rewards, ends)]


def _plain(value: Any) -> Any:
    """The value as JSON has it: no NaN, no tuples."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return finite_or_none(value) if isinstance(value, float) else value

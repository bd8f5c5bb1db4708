"""Play scripts against rewards: what each earns, and which of them are paid too much."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.audit.audit_images import AuditImage, images_of, with_doubt, with_small_findings
from grounding_rewards.audit.render import Item, Reply, write
from grounding_rewards.audit.scripted_answers import (
    ADDS,
    BLIND,
    FALSE_BOXES,
    HONEST,
    IOUS,
    RECALLS,
    SCRIPTED_ANSWERS,
    UNREAD,
    ScriptedAnswer,
    honest_name,
)
from grounding_rewards.common.formatting import finite_or_none
from grounding_rewards.common.numeric import Array
from grounding_rewards.metrics.intervals import Estimate, estimate_as_json, jackknifed_ratio, sum_by_group
from grounding_rewards.parsing import BoxFormat

#: A reward as TRL calls it.
Reward = Callable[..., Sequence[float]]

#: What may be found, and what it means.
FINDINGS = {
    "above ceiling": "earns more than the reward says that any answer of so many boxes can",
    "out of range": "earns less than 0, more than 1, or no finite number",
    "raises": "ends the run: the reward raised an exception",
    "pays": "earns more than the honest answer that it was made of",
    "free": "earns what the honest answer earns, although something wrong stands beside it",
    "beats honest": "does not look at the image, and earns more than an answer that does",
    "unread pays": "says nothing that can be read, and earns something",
    "worse pays": "is worse than another honest answer, and earns more",
}
#: Differences below this are rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Played:
    """One script against one reward.

    Attributes:
        reward: its name.
        script: its name.
        mean: the mean reward over images, with its 95 % interval; NaN where the reward raised.
        gain: by how much it earns more than the honest script that it is held against, in the mean over the images with
            findings or over those without, whichever is more; NaN without one.
        ceiling: the mean over images of the most that the reward says such an answer can earn.
        finding: a key of :data:`FINDINGS`; empty where there is nothing to say.
        against: the honest script that it earns more than, or as much as; or what was raised.
    """

    reward: str
    script: str
    mean: Estimate
    gain: float
    ceiling: float
    finding: str = ""
    against: str = ""


class RewardAtPlace(NamedTuple):
    """What an answer earns at a place of the image, `x` and `y` of the middle of the finding as shares of its sides."""

    reward: float
    x: float
    y: float


class PositionMap(NamedTuple):
    """What the same error earns at each place of the image: ``(steps, steps)``, y first, see :func:`position_map`.

    ``middles`` (steps,) are those of the findings, as shares of both sides.
    """

    earned: Array
    middles: Array

    @property
    def ends(self) -> tuple[RewardAtPlace, RewardAtPlace]:
        """The smallest and the largest reward, and where; NaN where the reward raised."""
        places = (np.unravel_index(find(self.earned), self.earned.shape) for find in (np.argmin, np.argmax))
        low, high = (
            RewardAtPlace(*(float(one) for one in (self.earned[y, x], *self.middles[[x, y]]))) for y, x in places
        )
        return low, high


@dataclass(frozen=True)
class Audit:
    """What all scripts earn under all rewards.

    Attributes:
        rewards: names.
        scripts: in the order in which they were played.
        played: one for each reward and script.
        images: how many.
        negatives: how many of them have no finding.
        box_format: in which the scripts wrote.
        maps: by reward what the same error earns over the image.
    """

    rewards: tuple[str, ...]
    scripts: tuple[ScriptedAnswer, ...]
    played: tuple[Played, ...]
    images: int
    negatives: int
    box_format: str
    maps: Mapping[str, PositionMap] = field(default_factory=dict)

    @property
    def found(self) -> tuple[Played, ...]:
        """Where there is something to say."""
        return tuple(one for one in self.played if one.finding)

    def of(self, reward: str, script: str) -> Played:
        """One script against one reward."""
        return next(one for one in self.played if (one.reward, one.script) == (reward, script))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "images": self.images,
            "negatives": self.negatives,
            "box_format": self.box_format,
            "rewards": list(self.rewards),
            "scripts": {
                one.name: {"kind": one.kind, "why": one.why, "base": one.base, "doubt": one.doubt}
                for one in self.scripts
            },
            "findings": FINDINGS,
            "played": [
                vars(one)
                | {"mean": estimate_as_json(one.mean)}
                | {key: finite_or_none(getattr(one, key)) for key in ("gain", "ceiling")}
                for one in self.played
            ],
            "position_maps": {
                name: {
                    **{
                        end: {key: finite_or_none(value) for key, value in place._asdict().items()}
                        for end, place in zip(("smallest", "largest"), one.ends, strict=True)
                    },
                    "middles": one.middles.tolist(),
                    "earned": [[finite_or_none(value) for value in row] for row in one.earned],
                }
                for name, one in self.maps.items()
            },
        }

    def to_dataframe(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each script and reward; see :class:`Played`."""
        import pandas

        return pandas.DataFrame([vars(one) | one.mean._asdict() for one in self.played]).drop(columns="mean")


def audit(
    rewards: Mapping[str, Reward],
    images: Sequence[AuditImage],
    box_format: BoxFormat,
    *,
    scripts: Sequence[ScriptedAnswer] = SCRIPTED_ANSWERS,
    track: Callable[[Iterable[ScriptedAnswer]], Iterable[ScriptedAnswer]] = iter,
) -> Audit:
    """Let every script answer every image, and every reward judge the answers.

    Args:
        rewards: by name; called as TRL calls a reward function, with a text for each image. An object whose
            ``box_reward`` has a ``ceiling``, as those of :func:`grounding_rewards.get_reward`, is held against it.
        images: from :func:`grounding_rewards.audit.audit_images.images_of`.
        box_format: in which the scripts write.
        scripts: which; an honest one that others are held against has to be among them.
        track: wraps the scripts, for a progress bar.

    Returns:
        What each earned; a script is flagged where it earns what its kind says it must not.

    Raises:
        ValueError: no reward, or a script whose honest base is missing.

    Example:
        >>> import grounding_rewards as gr
        >>> from grounding_rewards.audit.audit_images import images_of
        >>> rows = [{"boxes": [[10, 10, 60, 60]], "labels": ["mass"], "width": 100, "height": 100}] * 2
        >>> fmt = gr.parsing.get_box_format("qwen3-vl")
        >>> done = audit({"R1": gr.get_reward("R1", box_format=fmt)}, images_of(rows), fmt)
        >>> done.of("R1", "junk after").finding, done.of("R1", "junk before").finding
        ('free', '')
    """
    if not rewards:
        raise ValueError("Expected at least one reward for the audit, got none. Name one, for example R3.")
    names = {script.name for script in scripts}
    for script in scripts:
        if script.base and script.base not in names:
            raise ValueError(
                f"Expected the scripted answer {script.base!r} beside {script.name!r}, got {', '.join(sorted(names))}. "
                "One is held against the honest one that it is made of: play both."
            )
    doubtful = with_doubt(images)
    played_on = {"": images, "ignore": doubtful, "readers": doubtful, "small": with_small_findings(images)}
    groups = [image.number if image.patient is None else image.patient for image in images]
    earned: dict[tuple[str, str], Array | str] = {}
    ceilings: dict[tuple[str, str], Array] = {}
    for script in track(scripts):
        own = played_on[script.doubt]
        answers = [script.answer(image, box_format) for image in own]
        texts = [write(answer, image.size, box_format) for answer, image in zip(answers, own, strict=True)]
        columns = _columns(own, script.doubt, box_format)
        boxes = np.array([len(answer.items) if answer.counts else np.nan for answer in answers])
        for name, reward in rewards.items():
            earned[name, script.name] = _earned(reward, texts, columns)
            ceilings[name, script.name] = _ceiling(reward, boxes, own, script.doubt)
    positive = np.array([len(image.boxes) > 0 for image in images])
    played = [
        one for name in rewards for one in _judged(name, scripts, earned, ceilings, positive=positive, groups=groups)
    ]
    maps = {name: position_map(reward, box_format) for name, reward in rewards.items()}
    return Audit(
        tuple(rewards), tuple(scripts), tuple(played), len(images), int((~positive).sum()), box_format.name, maps
    )


def position_map(reward: Reward, box_format: BoxFormat, steps: int = 9) -> PositionMap:
    """What the same error earns at places of the image: a reward of overlap alone pays alike everywhere.

    A finding has a fifth of the image's sides, the answer lies a tenth of it to the right and below: IoU 81/119.

    Args:
        reward: called as TRL calls a reward function.
        box_format: in which the answer is written; one of few numbers rounds it, and so the reward.
        steps: places along each side, from the upper left to the lower right corner.

    Example:
        >>> import grounding_rewards as gr
        >>> fmt = gr.parsing.get_box_format("qwen3-vl")
        >>> low, high = position_map(gr.get_reward("R3", box_format=fmt), fmt).ends
        >>> round(low.reward, 3), round(high.reward, 3)
        (0.681, 0.681)
        >>> low, high = position_map(gr.get_reward("medvision", box_format=fmt), fmt).ends
        >>> [round(one, 2) for one in low], [round(one, 2) for one in high]
        ([0.58, 0.12, 0.12], [0.98, 0.84, 0.84])
    """
    # In hundredths, which most formats write without rounding.
    corners, side, shift = np.linspace(2, 74, steps).round() / 100, 0.2, 0.02
    boxes = [1000 * np.array([x, y, x + side, y + side]) for y, x in product(corners, repeat=2)]
    images = images_of([{"boxes": [box], "labels": ["finding"], "width": 1000, "height": 1000} for box in boxes])
    texts = [
        write(Reply((Item(image.boxes[0] + 1000 * shift, "finding"),)), image.size, box_format) for image in images
    ]
    earned = _earned(reward, texts, _columns(images, "", box_format))
    values = np.full(len(texts), np.nan) if isinstance(earned, str) else earned
    # Without the last digits, in which equal rewards differ.
    return PositionMap(values.round(9).reshape(steps, steps), corners + side / 2)


def _columns(images: Sequence[AuditImage], doubt: str, box_format: BoxFormat) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        "boxes": [image.boxes.tolist() for image in images],
        "labels": [list(image.labels) for image in images],
        "box_format": [box_format.name] * len(images),
        **{side: [getattr(image.size, side) for image in images] for side in images[0].size._fields},
    }
    if doubt == "ignore":
        columns["ignore_boxes"] = [image.ignore.tolist() for image in images]
    if doubt == "readers":
        columns["reader_boxes"] = [
            [own.tolist() for own in image.readers] or [image.boxes.tolist()] for image in images
        ]
        columns["reader_labels"] = [
            [[image.known.labels[0]] * len(own) for own in image.readers] or [list(image.labels)] for image in images
        ]
    return columns


def _earned(reward: Reward, texts: Sequence[str], columns: Mapping[str, list[Any]]) -> Array | str:
    """The reward of each text, or the exception."""
    try:
        values = np.array([math.nan if value is None else value for value in reward(list(texts), **columns)], float)
    except Exception as error:  # somebody's reward may fail in any way
        return f"{type(error).__name__}: {error}"
    return values if values.shape == (len(texts),) else f"returned {values.shape} numbers for {len(texts)} texts"


def _ceiling(reward: Reward, boxes: Array, images: Sequence[AuditImage], doubt: str) -> Array:
    """The most that the reward says answers of so many boxes can earn, ``(images,)``; 1 where it says nothing."""
    box_reward = getattr(reward, "box_reward", None) if getattr(reward, "judges_boxes", False) else None
    stated = getattr(box_reward, "ceiling", None)
    unread = np.isnan(boxes)
    if box_reward is None or stated is None:
        return np.where(unread, 0.0, 1.0)
    # Whichever reader it is held against, and however many of its boxes a region excuses.
    cases = [
        (k, n - excused, m)
        for k, (n, image) in enumerate(zip(np.nan_to_num(boxes), images, strict=True))
        for m in (
            {len(drawn) for drawn in image.readers} if doubt == "readers" and image.readers else {len(image.boxes)}
        )
        for excused in range(
            1
            + int(
                min(n, n if getattr(box_reward, "ignore_many", False) else len(image.ignore))
                if doubt == "ignore"
                else 0
            )
        )
    ]
    owner, n, m = np.array(cases, dtype=np.float64).T
    highest = np.zeros(len(images))
    np.maximum.at(highest, owner.astype(np.int64), stated(n, m))
    # The literal reading of the specification pays for texts that say nothing.
    return highest if getattr(reward, "on_unparseable", "zero") == "empty" else np.where(unread, 0.0, highest)


def _judged(
    reward: str,
    scripts: Sequence[ScriptedAnswer],
    earned: Mapping[tuple[str, str], Array | str],
    ceilings: Mapping[tuple[str, str], Array],
    *,
    positive: NDArray[np.bool_],
    groups: Sequence[Any],
) -> list[Played]:
    """Every script under one reward."""
    # On other images, of small findings for instance, an honest answer earns something else.
    honest = {
        one.name: float(values.mean())
        for one in scripts
        if one.kind == HONEST and not one.doubt and not isinstance(values := earned[reward, one.name], str)
    }
    played = []
    for script in scripts:
        values, ceiling = earned[reward, script.name], ceilings[reward, script.name]
        base = earned.get((reward, script.base))
        mean, gain = Estimate(math.nan, math.nan, math.nan), math.nan
        if isinstance(values, str):
            finding, against = "raises", values
        else:
            mean = jackknifed_ratio(sum_by_group(np.column_stack([values, np.ones(len(values))]), groups)).estimate
            if not isinstance(base, np.ndarray):
                base = None
            else:
                gain = max(float((values - base)[rows].mean()) for rows in (positive, ~positive) if rows.any())
            finding, against = _finding(script, values, base, gain, ceiling, honest, positive)
        played.append(Played(reward, script.name, mean, gain, float(ceiling.mean()), finding, against))
    return played


def _finding(
    script: ScriptedAnswer,
    values: Array,
    base: Array | None,
    gain: float,
    ceiling: Array,
    honest: Mapping[str, float],
    positive: NDArray[np.bool_],
) -> tuple[str, str]:
    """What is wrong with what a script earned, and the honest script that shows it; empty where nothing is."""
    if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1):
        return "out of range", ""
    if (values > ceiling + _ROUNDING).any():
        return "unread pays" if script.kind == UNREAD else "above ceiling", ""
    if gain > _ROUNDING:
        return "pays", script.base
    if (
        base is not None
        and script.kind == ADDS
        and (base[positive] > 0).any()
        and np.abs(values - base).max() <= _ROUNDING
    ):
        return "free", script.base
    names = {BLIND: [*honest], HONEST: _better(script.name)}.get(script.kind, [])
    beaten = [name for name in names if name in honest and honest[name] < float(values.mean()) - _ROUNDING]
    if not beaten:
        return "", ""
    return "beats honest" if script.kind == BLIND else "worse pays", max(beaten, key=lambda name: honest[name])


#: By name what each honest answer of stated quality is worth in every respect; more is better.
_STATED = {
    honest_name(iou, recall, false_boxes): (iou, recall, -false_boxes)
    for iou, recall, false_boxes in product(IOUS, RECALLS, FALSE_BOXES)
}


def _better(name: str) -> list[str]:
    """The honest answers of stated quality that are better than this one in one respect, and equal in the others."""
    own = _STATED.get(name, ())
    return [
        other
        for other, theirs in _STATED.items()
        if [their - mine > 0 for their, mine in zip(theirs, own, strict=False) if their != mine] == [True]
    ]

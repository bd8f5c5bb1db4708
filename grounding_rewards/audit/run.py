"""Score scripted answers by rewards, and find those that a reward pays too much."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.audit import scripted_answers as scripted
from grounding_rewards.audit.audit_images import AuditImage, Size, with_small_findings
from grounding_rewards.common.formatting import as_json
from grounding_rewards.common.numeric import Array
from grounding_rewards.metrics.intervals import Estimate, jackknifed_ratio, sum_by_group
from grounding_rewards.parsing import BoxFormat
from grounding_rewards.rewards import AveragePrecisionReward, BoxReward, PointingReward, SoftF1Reward

#: A reward as TRL calls it.
Reward = Callable[..., Sequence[float]]

#: Kinds of findings, and what each means.
FINDINGS = {
    "out of range": "earns less than 0, more than 1, or no finite number",
    "raises": "ends the run: the reward raised an exception",
    "pays": "earns more than the honest answer that it was made of",
    "free": "earns as much as the honest answer, although something wrong was added",
    "beats honest": "does not look at the image, and earns more than an answer that does",
    "unread pays": "cannot be read, and earns something",
    "worse pays": "is worse than another honest answer, and earns more",
}
# Differences below this are rounding.
_ROUNDING = 1e-9
# Smallest gain that counts; a smaller one is 0.000 in every table, and no model would learn it.
_LEAST_GAIN = 5e-4


class Weakness(NamedTuple):
    """A documented weakness of rewards, see docs/audit.md.

    Attributes:
        rewards: the class of rewards on boxes that has it.
        finding: a key of :data:`FINDINGS`.
        scripts: names of the scripts that show it; empty for all.
        reason: why it is accepted, and what to do about it.
    """

    rewards: type[Any]
    finding: str
    scripts: tuple[str, ...]
    reason: str


_CONSTANT_BOXES = (scripted.NEVER_LOOKING, f"{scripted.NEVER_LOOKING}, under every label")
_BLIND_WEAKNESS = "findings have usual places: compare a model with the constant box, and check image dependence"
#: Documented weaknesses of our own rewards: they are listed, and no failure under ``--strict``.
WEAKNESSES = (
    Weakness(AveragePrecisionReward, "free", (), "average precision is free for boxes ranked last: ranking: tied"),
    Weakness(AveragePrecisionReward, "pays", ("doubtful last",), "junk is free if ranked last: ranking: tied"),
    Weakness(BoxReward, "pays", ("leaves the loose box out",), "omission pays: product: geometric, and beta 1 or more"),
    Weakness(SoftF1Reward, "pays", ("the whole image for a small finding",), "any overlap pays: overlap: giou"),
    Weakness(BoxReward, "pays", scripted.GUESSES, "writing both guesses pays, less with a smaller beta"),
    Weakness(BoxReward, "beats honest", _CONSTANT_BOXES, _BLIND_WEAKNESS),
    Weakness(PointingReward, "beats honest", (), "a control: boxes only have to point"),
    Weakness(PointingReward, "worse pays", (), "a control: boxes only have to point"),
)


@dataclass(frozen=True)
class Played:
    """One script against one reward.

    Attributes:
        reward: its name.
        script: its name.
        mean: the mean reward over images, with its 95 % interval; NaN if the reward raised an exception.
        gain: its mean reward less that of its honest script, over the images with findings or over the images without,
            whichever is larger; NaN without an honest script.
        finding: a key of :data:`FINDINGS`; empty if nothing is wrong.
        against: the honest script that it earns more than, or as much as; or the exception.
        accepted: the reason, if the finding is one of :data:`WEAKNESSES`.
    """

    reward: str
    script: str
    mean: Estimate
    gain: float
    finding: str = ""
    against: str = ""
    accepted: str = ""


@dataclass(frozen=True)
class Audit:
    """Rewards of all scripts under all rewards.

    Attributes:
        rewards: names.
        scripts: in the order in which they were played.
        played: one for each reward and script.
        images: how many.
        negatives: how many of them have no finding.
        box_format: in which the scripts wrote.
    """

    rewards: tuple[str, ...]
    scripts: tuple[scripted.ScriptedAnswer, ...]
    played: tuple[Played, ...]
    images: int
    negatives: int
    box_format: str

    @property
    def findings(self) -> tuple[Played, ...]:
        """Scripts that are paid too much, documented weaknesses among them."""
        return tuple(played for played in self.played if played.finding)

    @property
    def faults(self) -> tuple[Played, ...]:
        """Scripts that are paid too much, documented weaknesses left out."""
        return tuple(played for played in self.findings if not played.accepted)

    @property
    def accepted(self) -> tuple[Played, ...]:
        """Documented weaknesses that were found."""
        return tuple(played for played in self.findings if played.accepted)

    def of(self, reward: str, script: str) -> Played:
        """The result of one script under one reward."""
        return next(played for played in self.played if (played.reward, played.script) == (reward, script))

    def to_dict(self) -> dict[str, Any]:
        """All attributes as plain values, as a file in JSON has them, with the scripts by name."""
        scripts = {}
        for script in self.scripts:
            # `why` and `doubt` are the names that readers of the file know.
            texts = {"kind": script.kind, "why": script.idea, "base": script.base, "doubt": script.image_set}
            scripts[script.name] = texts
        return as_json({**vars(self), "scripts": scripts, "findings": FINDINGS})

    def to_dataframe(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each script and reward; see :class:`Played`."""
        import pandas

        return pandas.DataFrame([vars(row) | row.mean._asdict() for row in self.played]).drop(columns="mean")


def audit(
    rewards: Mapping[str, Reward],
    images: Sequence[AuditImage],
    box_format: BoxFormat,
    *,
    scripts: Sequence[scripted.ScriptedAnswer] = scripted.SCRIPTED_ANSWERS,
    track: Callable[[Iterable[scripted.ScriptedAnswer]], Iterable[scripted.ScriptedAnswer]] = iter,
) -> Audit:
    """Let every script answer every image, score the answers by every reward, and list what is paid too much.

    Args:
        rewards: by name; called as TRL calls a reward function, with a text for each image.
        images: from :func:`grounding_rewards.audit.audit_images.images_of`.
        box_format: in which the scripts write.
        scripts: the scripted answers; the honest one that a script is compared with has to be among them.
        track: wraps the scripts, for a progress bar.

    Returns:
        The results of every script under every reward.

    Raises:
        ValueError: no reward.
        KeyError: the honest answer that a script is compared with is not among the scripts.

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
    # By `ScriptedAnswer.image_set`: the images as they are, and those that only some scripts need.
    images_by_set = {"": images, "small": with_small_findings(images)}
    patients = [image.patient for image in images]
    # By reward and script the reward of each image, or in words why there is none.
    rewards_of: dict[tuple[str, str], Array | str] = {}
    for script in track(scripts):
        script_images = images_by_set[script.image_set]
        texts = [scripted.write(script.answer(image, box_format), image.size, box_format) for image in script_images]
        # The columns as TRL passes them to a reward, with one value for each image.
        columns: dict[str, list[Any]] = {
            "boxes": [image.boxes.tolist() for image in script_images],
            "labels": [list(image.labels) for image in script_images],
            "box_format": [box_format.name] * len(script_images),
            **{side: [getattr(image.size, side) for image in script_images] for side in Size._fields},
        }
        for name, reward in rewards.items():
            rewards_of[name, script.name] = _reward_values(reward, texts, columns)
    positive = np.array([len(image.boxes) > 0 for image in images])
    played: list[Played] = []
    for name, reward in rewards.items():
        played += _judge_scripts(name, reward, scripts, rewards_of, positive=positive, patients=patients)
    return Audit(tuple(rewards), tuple(scripts), tuple(played), len(images), int((~positive).sum()), box_format.name)


def _reward_values(reward: Reward, texts: Sequence[str], columns: Mapping[str, list[Any]]) -> Array | str:
    """The reward of each text; or in words the exception that the reward raised, or its wrong number of values."""
    try:
        returned = reward(list(texts), **columns)
        values = np.array([math.nan if value is None else value for value in returned], float)
    except Exception as error:  # a user's reward may fail in any way
        return f"{type(error).__name__}: {error}"
    return values if values.shape == (len(texts),) else f"returned {values.shape} numbers for {len(texts)} texts"


def _accepted_reason(reward: Reward, script: str, finding: str) -> str:
    """The reason why a script's finding is accepted, if it is a documented weakness of the reward; else empty."""
    # The weaknesses are those of rewards on boxes: a plain function, or a reward on texts, has no documented one.
    if not getattr(reward, "judges_boxes", False):
        return ""
    box_reward = getattr(reward, "box_reward", None)
    # The documentation is about our classes; a user's subclass may behave otherwise.
    if not type(box_reward).__module__.startswith("grounding_rewards."):
        return ""
    for weakness in WEAKNESSES:
        # A weakness that names no scripts may be shown by every script.
        is_its_script = not weakness.scripts or script in weakness.scripts
        if isinstance(box_reward, weakness.rewards) and finding == weakness.finding and is_its_script:
            return weakness.reason
    return ""


def _judge_scripts(
    name: str,
    reward: Reward,
    scripts: Sequence[scripted.ScriptedAnswer],
    rewards_of: Mapping[tuple[str, str], Array | str],
    *,
    positive: NDArray[np.bool_],
    patients: Sequence[Any],
) -> list[Played]:
    """The results of all scripts under one reward.

    Args:
        name: of the reward.
        reward: the reward itself, whose options and documented weaknesses excuse some results.
        scripts: that were played.
        rewards_of: by reward and script the reward of each image, or in words why there is none.
        positive: ``(images,)``, whether an image has findings.
        patients: the patient of each image, whose images vary together.
    """
    # This option reads a text that says nothing as the answer that there is no finding.
    pays_for_silence = getattr(reward, "on_unparseable", "zero") == "empty"
    honest_means = {}
    for script in scripts:
        values = rewards_of[name, script.name]
        # Honest answers to changed images, such as those with small findings, cannot be compared with others.
        if script.kind == scripted.HONEST and not script.image_set and not isinstance(values, str):
            honest_means[script.name] = float(values.mean())
    results = []
    for script in scripts:
        values = rewards_of[name, script.name]
        base = rewards_of[name, script.base] if script.base else None
        if isinstance(values, str):
            no_mean = Estimate(math.nan, math.nan, math.nan)
            results.append(Played(name, script.name, no_mean, gain=math.nan, finding="raises", against=values))
            continue
        # The sum of rewards by the number of images; leaving out one patient at a time gives the interval.
        mean = jackknifed_ratio(sum_by_group(np.column_stack([values, np.ones(len(values))]), patients)).estimate
        # Without an honest script, or with one for which the reward raised, nothing is compared.
        base = None if isinstance(base, str) else base
        gain = math.nan
        if base is not None:
            # Apart, so that a gain on images without findings is not hidden by a loss on the others.
            subsets = [subset for subset in (positive, ~positive) if subset.any()]
            gain = max(float((values - base)[subset].mean()) for subset in subsets)
        finding, against = _finding(script, values, base, gain, honest_means, positive)
        # Where nothing is to find, this reward has to pay for texts that say nothing.
        if finding == "unread pays" and pays_for_silence and values[positive].max(initial=0.0) <= _ROUNDING:
            finding = ""
        accepted = _accepted_reason(reward, script.name, finding)
        results.append(Played(name, script.name, mean, gain, finding, against, accepted))
    return results


def _finding(
    script: scripted.ScriptedAnswer,
    values: Array,
    base: Array | None,
    gain: float,
    honest_means: Mapping[str, float],
    positive: NDArray[np.bool_],
) -> tuple[str, str]:
    """Judge the rewards of a script by the rule of its kind.

    Args:
        script: the scripted answer.
        values: its reward on each image.
        base: the rewards of its honest script; None if it has none, or if the reward raised for that script.
        gain: over the honest script, as in :class:`Played`; NaN without such a script.
        honest_means: by name the mean reward of every honest script on unchanged images; those that raised are left
            out.
        positive: ``(images,)``, whether an image has findings.

    Returns:
        A key of :data:`FINDINGS`, empty if nothing is wrong; and the honest script that the script is paid more than,
        or as much as, empty where none is compared.
    """
    if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1):
        return "out of range", ""
    # It must earn nothing, whatever others earn.
    if script.kind == scripted.UNREAD:
        return ("unread pays" if values.max() > _ROUNDING else ""), ""
    if gain >= _LEAST_GAIN:
        return "pays", script.base
    is_equal = base is not None and np.abs(values - base).max() <= _ROUNDING
    # If all answers earn nothing where there are findings, what was added had nothing to cost.
    if is_equal and script.kind == scripted.ADDS and (values[positive] > 0).any():
        return "free", script.base
    # Rivals are the honest answers that it must not beat: all of them if it is blind, the better ones if it is honest.
    if script.kind == scripted.BLIND:
        finding, rivals = "beats honest", list(honest_means)
    elif script.kind == scripted.HONEST:
        finding, rivals = "worse pays", _better_answers(script.name)
    else:
        return "", ""
    mean = float(values.mean())
    beaten = [name for name in rivals if name in honest_means and mean - honest_means[name] >= _LEAST_GAIN]
    if not beaten:
        return "", ""
    # The best of those that it beats is named.
    return finding, max(beaten, key=lambda name: honest_means[name])


# By name the IoU, recall and negated false boxes of each honest answer of stated quality; more is better.
_QUALITIES = {
    scripted.honest_name(iou, recall, false_boxes): (iou, recall, -false_boxes)
    for iou, recall, false_boxes in product(scripted.IOUS, scripted.RECALLS, scripted.FALSE_BOXES)
}


def _better_answers(name: str) -> list[str]:
    """Names of the honest answers that are better than this one in exactly one quality, and equal in the others."""
    if name not in _QUALITIES:
        # An honest answer of another make, such as one of two guesses, has no numbers to compare.
        return []
    better = []
    for candidate, qualities in _QUALITIES.items():
        # In every quality more is better: the sum of a single change tells its direction.
        changes = np.subtract(qualities, _QUALITIES[name])
        if np.count_nonzero(changes) == 1 and changes.sum() > 0:
            better.append(candidate)
    return better

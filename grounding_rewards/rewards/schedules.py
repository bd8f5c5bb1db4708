"""Hyper-parameters that change while a model trains: with the share of training that is over, or with what it finds.

A schedule stands in the place of a number: ``iou_threshold: {schedule: linear, from: 0.1, to: 0.5, over: 0.4}``. It
has no state: progress comes with every call, from TRL's ``trainer_state`` or ``step`` and ``max_steps``, and for
self-paced parameters from a :class:`Pace`.
"""

import copy
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from grounding_rewards.common.validation import SOME_SHARE, Interval, check_keys, check_number, check_word

#: By kind of schedule: from the share of its time that is over, u, to the share of the way from `from` to `to`.
_CURVES: dict[str, Callable[[float], float]] = {
    "linear": lambda u: u,
    "cosine": lambda u: (1 - math.cos(math.pi * u)) / 2,
    "step": lambda u: float(u >= 1),
}
_SELF_PACED = "self_paced"
#: The kinds of schedules.
SCHEDULES = (*_CURVES, _SELF_PACED)
#: What a self-paced parameter can follow.
FOLLOWED = ("hit_rate",)
# Moves of a self-paced parameter from one end to the other, unless `by` says otherwise.
_MOVES = 8
# Any finite number.
_ANY = Interval(-math.inf)


@dataclass(frozen=True)
class Schedule:
    """A value that depends on the share of training that is over, p = step / max_steps.

    ``value = (1 − c(u)) · from + c(u) · to`` with ``u = min(p / over, 1)`` and ``c(u)``: ``u`` (linear),
    ``(1 − cos πu) / 2`` (cosine), or 0 below ``u = 1`` and 1 there (step).

    Attributes:
        kind: ``"linear"``, ``"cosine"`` or ``"step"``.
        start: the value at the beginning, ``from`` in a mapping.
        to: the value from ``over`` on, and wherever nothing is trained.
        over: the share of training after which ``to`` holds, in (0, 1]; for a step the share at which it jumps.

    Example:
        >>> [round(Schedule("linear", 0.1, 0.5, 0.4).value(p), 2) for p in (0, 0.1, 0.2, 0.4, 1)]
        [0.1, 0.2, 0.3, 0.5, 0.5]
    """

    kind: str
    start: float
    to: float
    over: float

    def value(self, progress: float) -> float:
        """The value at a share of training in [0, 1]."""
        share_of_way = _CURVES[self.kind](min(progress / self.over, 1.0))
        # Written so that it is exact at both ends.
        return (1 - share_of_way) * self.start + share_of_way * self.to

    def __str__(self) -> str:
        """The schedule in the words of a log."""
        period = f"at {self.over:g}" if self.kind == "step" else f"over the first {self.over:g}"
        return f"{self.kind} from {self.start:g} to {self.to:g} {period} of training"


@dataclass(frozen=True)
class SelfPaced:
    """A value that moves towards ``to`` whenever the model finds enough at the present value, and never back.

    The hit rate is the share of reference boxes that are matched, at the reward's present values, in the last
    ``window`` completions on images with findings. When the window is full and the rate reaches ``rate``, the value
    moves by ``by``, and the older half of the window is forgotten.

    The idea is MedLoc-R1's (arXiv 2603.28120); what is the same and what is not stands in docs/rewards.md.

    Attributes:
        window: completions on images with findings, 1 or more.
        start: the value at the beginning, ``from`` in a mapping.
        to: where it ends, and the value wherever nothing is trained.
        rate: the hit rate from which on the value moves, in (0, 1].
        by: how far it moves, above 0.

    Example:
        >>> tightening = SelfPaced(window=200, start=0.1, to=0.5, rate=0.5, by=0.15)
        >>> [tightening.value(moves) for moves in range(5)]
        [0.1, 0.25, 0.4, 0.5, 0.5]
    """

    window: int
    start: float
    to: float
    rate: float
    by: float

    def value(self, moves: int) -> float:
        """The value after this many moves by the distance `by`, from `start` towards `to`; `to` once it is reached."""
        whole_way = self.to - self.start
        # Rounded, as 3 · 0.05 is 0.15000000000000002: what is logged and compared should be the number that was meant.
        distance = round(moves * self.by, 12)
        if distance >= abs(whole_way):
            return self.to
        return round(self.start + math.copysign(distance, whole_way), 12)

    def __str__(self) -> str:
        """The schedule in the words of a log."""
        return (
            f"self-paced from {self.start:g} to {self.to:g} by {self.by:g}, whenever {self.rate:g} of the findings in "
            f"{self.window} completions are hit"
        )


#: The scheduled parameters of a reward, by name.
Schedules = tuple[tuple[str, Schedule | SelfPaced], ...]


def is_self_paced(schedules: Schedules) -> bool:
    """Whether one of the schedules needs a :class:`Pace`.

    Example:
        >>> is_self_paced((("beta", Schedule("linear", 2, 1, 0.5)),))
        False
    """
    return any(isinstance(schedule, SelfPaced) for _, schedule in schedules)


def read_schedule(parameter: str, value: Mapping[str, Any]) -> Schedule | SelfPaced:
    """The schedule that a mapping describes.

    Args:
        parameter: whose value it stands for.
        value: ``schedule``, ``from`` and ``to``; for ``linear``, ``cosine`` and ``step`` ``over``; for ``self_paced``
            ``of``, and optionally ``window`` (200), ``rate`` (0.5) and ``by`` (an eighth of the way).

    Raises:
        ValueError: an unknown kind, a key that is unknown or missing, or a value out of its range.

    Example:
        >>> print(read_schedule("iou_threshold", {"schedule": "cosine", "from": 0.1, "to": 0.5, "over": 0.4}))
        cosine from 0.1 to 0.5 over the first 0.4 of training
        >>> print(read_schedule("beta", {"schedule": "self_paced", "of": "hit_rate", "from": 3, "to": 1}))
        self-paced from 3 to 1 by 0.25, whenever 0.5 of the findings in 200 completions are hit
    """
    kind: Any = value.get("schedule")
    check_word(f"schedule of {parameter}", kind, SCHEDULES)
    _check_keys(parameter, kind, value)
    start = check_number(f"from of {parameter}", value["from"], _ANY, "Write a number.")
    to = check_number(f"to of {parameter}", value["to"], _ANY, "Write a number.")
    if kind == _SELF_PACED:
        return _read_self_paced(parameter, value, start, to)
    over = check_number(f"over of {parameter}", value["over"], SOME_SHARE, "It is a share of the training.")
    if kind == "step" and over == 1:
        raise ValueError(
            f"Expected a share of the training below 1 for `over` of {parameter}, got 1, at which a step would come "
            "when all is over. The usual value is 0.4."
        )
    return Schedule(kind, start, to, over)


def _check_keys(parameter: str, kind: str, value: Mapping[str, Any]) -> None:
    """Refuse the mapping of a schedule of this kind that has an unknown key, or lacks one that it needs."""
    needed = ("schedule", "from", "to", "of" if kind == _SELF_PACED else "over")
    optional = ("window", "rate", "by") if kind == _SELF_PACED else ()
    check_keys(f"the {kind} schedule of {parameter}", value, (*needed, *optional))
    missing = [key for key in needed if key not in value]
    if missing:
        raise ValueError(
            f"Expected {', '.join(needed)} for the {kind} schedule of {parameter}, got no {missing[0]!r}. "
            f"Add it: `from` and `to` are values, `over` is a share of the training, `of` is {' or '.join(FOLLOWED)}."
        )


def _read_self_paced(parameter: str, value: Mapping[str, Any], start: float, to: float) -> SelfPaced:
    """The self-paced schedule that a mapping describes, whose keys were checked, from `start` to `to`."""
    check_word(f"of of {parameter}", value["of"], FOLLOWED)
    window = value.get("window", 200)
    if not isinstance(window, int) or isinstance(window, bool) or window < 1:
        raise ValueError(
            f"Expected a whole number from 1 up for `window` of {parameter}, got {window!r}. It counts completions on "
            "images with findings: 200 is usual."
        )
    rate = check_number(f"rate of {parameter}", value.get("rate", 0.5), SOME_SHARE, "The usual value is 0.5.")
    by_hint = "It is the length of a step, in either direction."
    by = check_number(f"by of {parameter}", value.get("by", abs(to - start) / _MOVES), Interval(above=True), by_hint)
    return SelfPaced(window=window, start=start, to=to, rate=rate, by=by)


def split_schedules(params: Mapping[str, Any]) -> tuple[dict[str, Any], Schedules]:
    """Tell schedules from constants: the parameters with the final value of each schedule, and the schedules.

    Raises:
        ValueError: as :func:`read_schedule`.

    Example:
        >>> params, schedules = split_schedules(
        ...     {"beta": 2, "iou_threshold": {"schedule": "step", "from": 0.1, "to": 0.5, "over": 0.5}}
        ... )
        >>> params, [name for name, _ in schedules]
        ({'beta': 2, 'iou_threshold': 0.5}, ['iou_threshold'])
    """
    final = dict(params)
    schedules = []
    for name, value in params.items():
        # One of its keys is enough: what is missing or wrong `read_schedule` says.
        if isinstance(value, Mapping) and not {"schedule", "from", "to"}.isdisjoint(value):
            schedule = read_schedule(name, value)
            final[name] = schedule.to
            schedules.append((name, schedule))
    return final, tuple(schedules)


def with_values(box_reward: Any, values: Mapping[str, float]) -> Any:
    """A copy of a reward on boxes with other values of its parameters.

    Of a dataclass they are its fields, and checked anew; of another class its attributes of these names.

    Raises:
        ValueError: it has no such parameter, or a value is out of range.

    Example:
        >>> from grounding_rewards.rewards import MeanIoUReward
        >>> with_values(MeanIoUReward(), {"iou_threshold": 0.1}).iou_threshold
        0.1
    """
    if not values:
        return box_reward
    is_dataclass = dataclasses.is_dataclass(box_reward)
    # An object without `__dict__` has no attribute that could be set.
    names = set(getattr(box_reward, "__dict__", {}))
    if is_dataclass:
        names = {option.name for option in dataclasses.fields(box_reward) if option.init}
    for name in values:
        if name not in names:
            raise ValueError(
                f"Expected an attribute `{name}` of {type(box_reward).__name__} for a schedule of it, got none. Keep "
                f"the parameter as `self.{name}`, and read it in `score`."
            )
    if is_dataclass:
        return dataclasses.replace(box_reward, **values)
    changed = copy.copy(box_reward)
    vars(changed).update(values)
    return changed


def training_progress(trainer_state: Any, step: Any, max_steps: Any) -> float | None:
    """The share of training that is over, in [0, 1]: by TRL's state if it is given, else step / max_steps.

    Args:
        trainer_state: an object with ``global_step`` and ``max_steps``, or None.
        step: how many steps are over, 0 during the first; or None.
        max_steps: how many steps the whole training has; or None.

    Returns:
        None if neither the state nor the steps are known.

    Raises:
        ValueError: of the two steps one is missing, negative or no number, or `max_steps` is 0.

    Example:
        >>> training_progress(None, 30, 120)
        0.25
    """
    if trainer_state is not None:
        if trainer_state.max_steps < 1:
            # An evaluation without a training: schedules take their final values.
            return 1.0
        return min(trainer_state.global_step / trainer_state.max_steps, 1.0)
    if step is None and max_steps is None:
        return None
    finished_steps = check_number("step", step, Interval(), "Give how many steps are over, with max_steps.")
    all_steps = check_number("max_steps", max_steps, Interval(1), "Give how many steps the training has, with step.")
    return min(finished_steps / all_steps, 1.0)


class Pace:
    """The present values of a reward's self-paced parameters: the only state of schedules.

    :class:`grounding_rewards.training.GroundingGRPOTrainer` holds one for each reward that needs it. In another trainer
    hand it to every call of the reward, and call :meth:`update` after the calls of a step, on every process with what
    all of them have noted.

    Args:
        reward: a reward; without self-paced parameters there is nothing to remember.

    Attributes:
        noted: hits and findings of every completion since the last update, on images with findings.

    Example:
        >>> from grounding_rewards import get_reward
        >>> paced = {"schedule": "self_paced", "of": "hit_rate", "window": 2, "from": 0.1, "to": 0.5, "by": 0.2}
        >>> reward = get_reward("R3", box_format="qwen3-vl", iou_threshold=paced)
        >>> pace = Pace(reward)
        >>> image = {"boxes": [[[0, 0, 50, 50]]] * 2, "width": [100] * 2, "height": [100] * 2}
        >>> for answer in ('[{"bbox_2d": [0, 0, 500, 200]}]', "[]"):  # IoU 0.4; then nothing is hit any more
        ...     print(reward([answer] * 2, **image, pace=pace), pace.values)
        ...     pace.update()
        [0.4, 0.4] {'iou_threshold': 0.1}
        [0.0, 0.0] {'iou_threshold': 0.3}
        >>> pace.values
        {'iou_threshold': 0.3}
    """

    def __init__(self, reward: Any) -> None:
        """Begin at the first values of all self-paced parameters; other schedules are left out."""
        self._paced = {name: schedule for name, schedule in reward.schedules if isinstance(schedule, SelfPaced)}
        # Of each parameter how often it has moved, and the hits and findings of each of the latest completions.
        self._moves = dict.fromkeys(self._paced, 0)
        self._windows: dict[str, list[tuple[int, int]]] = {name: [] for name in self._paced}
        self.noted: list[tuple[int, int]] = []

    @property
    def values(self) -> dict[str, float]:
        """The present value of every self-paced parameter."""
        return {name: paced.value(self._moves[name]) for name, paced in self._paced.items()}

    def note(self, hits: Iterable[int], findings: Iterable[int]) -> None:
        """Note how many of its findings each completion has hit; those on images without findings are left out."""
        for hit_count, finding_count in zip(hits, findings, strict=True):
            if finding_count:
                self.noted.append((int(hit_count), int(finding_count)))

    def update(self, noted: Iterable[tuple[int, int]] | None = None) -> None:
        """Move the values that are due, one step at most.

        Args:
            noted: what all processes have noted since the last update, in the same order on each; without it what this
                one has.
        """
        new_counts = list(self.noted if noted is None else noted)
        self.noted = []
        for name, paced in self._paced.items():
            # The latest `paced.window` completions.
            window = [*self._windows[name], *new_counts][-paced.window :]
            hits = sum(hit_count for hit_count, _ in window)
            findings = sum(finding_count for _, finding_count in window)
            if len(window) == paced.window and hits >= paced.rate * findings:
                if paced.value(self._moves[name]) != paced.to:
                    self._moves[name] += 1
                # The older half is forgotten: what was hit at the value before says less about the next one.
                window = window[paced.window // 2 :]
            self._windows[name] = window

    def state(self) -> dict[str, Any]:
        """All that the next steps depend on, as plain values."""
        return {name: {"moved": self._moves[name], "window": list(self._windows[name])} for name in self._paced}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Set what :meth:`state` returned in an earlier process, to go on from there.

        Raises:
            ValueError: it is the state of other parameters.
        """
        if state.keys() != self._paced.keys():
            raise ValueError(
                f"Expected the state of {', '.join(self._paced)}, got that of {', '.join(state) or 'nothing'}. "
                "Go on with the reward with which the training began."
            )
        for name in self._paced:
            self._moves[name] = int(state[name]["moved"])
            self._windows[name] = [(int(hits), int(findings)) for hits, findings in state[name]["window"]]


def present_values(
    reward: str, schedules: Schedules, progress: float | None = None, pace: Pace | None = None
) -> dict[str, float]:
    """The value of every scheduled parameter in this call.

    Args:
        reward: its name, for messages.
        schedules: of its parameters.
        progress: the share of training that is over; needed unless all of them are self-paced.
        pace: of this reward; needed where a parameter is self-paced.

    Raises:
        ValueError: what a schedule needs is missing.

    Example:
        >>> present_values("R3", (("iou_threshold", Schedule("linear", 0.1, 0.5, 0.4)),), progress=0.2)
        {'iou_threshold': 0.3}
    """
    paced_values = {} if pace is None else pace.values
    values = {}
    for name, schedule in schedules:
        if not isinstance(schedule, SelfPaced):
            if progress is None:
                raise ValueError(
                    f"Expected `step` and `max_steps` for the scheduled {name} of reward {reward}, got neither. Give "
                    "both with every call, such as step=30, max_steps=120; outside of a training take reward.final()."
                )
            values[name] = schedule.value(progress)
        elif name in paced_values:
            values[name] = paced_values[name]
        else:
            raise ValueError(
                f"Expected the Pace of reward {reward} for `pace`, because {name} is self-paced, got "
                f"{'none' if pace is None else 'one of another reward'}. Train with GroundingGRPOTrainer, which holds "
                "it, or hand pace=Pace(reward) to every call; outside of a training take reward.final()."
            )
    return values

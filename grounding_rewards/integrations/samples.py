"""The common parts of all trainers' modules: the reward, built once; the columns of images; the numbers of samples."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from grounding_rewards.columns import SCORED_COLUMNS, refuse_outside, with_ground_truth
from grounding_rewards.rewards.grounding import GroundingReward, get_reward, score_batches
from grounding_rewards.rewards.scoring import LOGGED_VALUES

#: Parameters of rewards as a JSON object, for trainers that hand none over. They go before those in a file.
ENVIRONMENT_VARIABLE = "GROUNDING_REWARDS_KWARGS"
#: Numbers of each sample next to its reward, 1 for true, in the words of TRL's log, which has their means. The rate of
#: hallucinations is the mean of ``hallucinated`` by that of ``negatives``.
COMPONENTS = tuple(LOGGED_VALUES)

_SAID: set[str] = set()


def offering(module: str, name: str, make: Callable[[], Any]) -> Callable[[str], Any]:
    """The `__getattr__` of a module with a class whose parents only a trainer has; the class is made on first access.

    Example:
        >>> offering("mine", "Environment", dict)("Environment")
        {}
    """

    def get(attribute: str) -> Any:
        if attribute == name:
            return make()
        raise AttributeError(f"module {module!r} has no attribute {attribute!r}")

    return get


class Scores(NamedTuple):
    """The rewards of n samples and their components: lists of n finite numbers, the same names every time."""

    rewards: list[float]
    components: dict[str, list[float]]

    def samples(self, key: str) -> list[dict[str, float]]:
        """A mapping for each sample: its reward under the key that the trainer wants, and its components.

        Example:
            >>> Scores([0.8], {"R3/f_beta": [1.0]}).samples("overall")
            [{'overall': 0.8, 'R3/f_beta': 1.0}]
        """
        columns = {key: self.rewards, **self.components}
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def reward_of(reward: str = "R4", **parameters: Any) -> GroundingReward:
    """The reward of this name with these parameters, one for the process, so that it sees all samples.

    Args:
        reward: as for :func:`grounding_rewards.get_reward`.
        **parameters: likewise; mappings and lists of a trainer's configuration are taken as plain ones.

    Raises:
        ValueError: an unknown name or parameter, or one that is no JSON value.

    Example:
        >>> reward_of("R3", beta=2) is reward_of("R3", beta=2)
        True
    """
    try:
        return _built(reward, json.dumps(parameters, sort_keys=True, default=_plain_container) if parameters else "{}")
    except ValueError as error:
        raise _reported(error) from None


@functools.lru_cache(maxsize=64)
def _built(name: str, parameters: str) -> GroundingReward:
    return get_reward(name, **json.loads(parameters))


def _plain_container(value: Any) -> Any:
    """A container of a trainer's configuration, such as OmegaConf's, as one that JSON knows."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise ValueError(
        f"Expected JSON values for the parameters of a reward, got {type(value).__name__}. "
        "Give numbers, words, lists and mappings."
    )


def environment_parameters() -> dict[str, Any]:
    """The parameters in :data:`ENVIRONMENT_VARIABLE`; none if it is not set.

    Raises:
        ValueError: it is no JSON object.

    Example:
        >>> os.environ[ENVIRONMENT_VARIABLE] = '{"beta": 2}'
        >>> environment_parameters()
        {'beta': 2}
        >>> del os.environ[ENVIRONMENT_VARIABLE]
    """
    return dict(_parameters_in(os.environ.get(ENVIRONMENT_VARIABLE, "{}")))


@functools.lru_cache(maxsize=8)
def _parameters_in(text: str) -> dict[str, Any]:
    try:
        parameters = json.loads(text)
    except json.JSONDecodeError:
        parameters = None
    if not isinstance(parameters, dict) or "reward" in parameters:
        raise _reported(
            ValueError(
                f"Expected a JSON object of parameters for the variable {ENVIRONMENT_VARIABLE}, got {text!r:.200}. "
                """Write it as '{"beta": 1.5, "box_format": "qwen3-vl"}'; the trainer's own options name the reward."""
            )
        )
    return parameters


def image_columns(ground_truths: Sequence[Any], rows: Sequence[Mapping[str, Any] | None] = ()) -> dict[str, Any]:
    """The columns of n samples, from one ground truth each.

    Args:
        ground_truths: JSON strings, or mappings, with ``boxes`` in original pixels, ``width``, ``height`` …; None or an
            empty string if the fields are in `rows`.
        rows: n mappings in which the trainer carries other columns: a field that a ground truth has goes before.

    Raises:
        ValueError: a ground truth is no JSON object with `boxes`.

    Example:
        >>> columns = image_columns(['{"boxes": [], "width": 640}'], [{"width": 1, "height": 480, "index": 3}])
        >>> columns["boxes"], columns["width"], columns["height"], "index" in columns
        ([[]], [640], [480], False)
    """
    other_columns = [{name: row[name] for name in SCORED_COLUMNS if row and name in row} for row in rows]
    packed = []
    for truth, extra in zip(ground_truths, other_columns or [{}] * len(ground_truths), strict=True):
        is_missing = truth is None or (isinstance(truth, str) and not truth)
        # A ground truth that is missing in both is named by the error below.
        packed.append(extra if is_missing and "boxes" in extra else truth)
    columns = dict(with_ground_truth({"ground_truth": packed}, len(packed)))
    for name in {name for extra in other_columns for name in extra}:
        values = columns.get(name) or [None] * len(packed)
        columns[name] = [
            extra.get(name) if value is None else value for value, extra in zip(values, other_columns, strict=True)
        ]
    return columns


def scored(reward: GroundingReward, completions: Sequence[Any], columns: Mapping[str, Any]) -> Scores:
    """Score n samples for a trainer that passes no step.

    Args:
        reward: of :func:`reward_of`.
        completions: n texts or message lists.
        columns: as :meth:`GroundingReward.__call__` takes them.

    Returns:
        The same rewards, to the last bit, as calling the reward, with :data:`COMPONENTS` under its name.

    Raises:
        ValueError: as calling the reward, or a parameter has a schedule. It is also written to the standard error,
            once, as some trainers go on without a word.

    Example:
        >>> columns = {"boxes": [[[0, 0, 50, 50]]], "width": [100], "height": [100]}
        >>> found = scored(reward_of("R3", box_format="qwen3-vl"), ['[{"bbox_2d": [0, 0, 500, 400]}]'], columns)
        >>> found.rewards, found.components["R3/mean_iou"], found.components["R3/hallucinated"]
        ([0.8], [0.8], [0.0])
    """
    try:
        if reward.schedules:
            raise ValueError(
                f"Expected parameters without a schedule for reward {reward.__name__} in this trainer, got "
                f"{', '.join(name for name, _ in reward.schedules)} with one. The trainer tells rewards no step: "
                "give the final value, or train with TRL or ms-swift."
            )
        [batch] = score_batches([reward], completions, **columns)
        refuse_outside(batch.references, batch.sizes, batch.columns)
    except ValueError as error:
        raise _reported(error) from None
    components = {f"{reward.__name__}/{part}": LOGGED_VALUES[part](batch).astype(float).tolist() for part in COMPONENTS}
    return Scores(batch.reward.tolist(), components)


def _reported(error: ValueError) -> ValueError:
    """The error, after writing it to the standard error, once in a process."""
    message = str(error)
    if message not in _SAID:
        _SAID.add(message)
        print(f"grounding_rewards: {message}", file=sys.stderr, flush=True)
    return error

"""Shared by the modules of all trainers: build the reward once, read the columns of samples, score them."""

import contextlib
import functools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from grounding_rewards.columns import SCORED_COLUMNS, refuse_outside, with_ground_truth
from grounding_rewards.rewards.grounding import GroundingReward, get_reward, score_batches
from grounding_rewards.rewards.scoring import LOGGED_VALUES

#: Names of the numbers of each sample besides its reward, as in TRL's log, which has their means; 1 is true. The
#: hallucination rate is the mean of ``hallucinated`` divided by that of ``negatives``.
COMPONENTS = tuple(LOGGED_VALUES)

# Messages of errors that this process has printed.
_PRINTED: set[str] = set()


def offering(module: str, name: str, make: Callable[[], Any]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module with one class, which is made when the module is first asked for it.

    The parents of the class are in the library of a trainer: so the module can be imported without that library.

    Args:
        module: the name of the module, for errors.
        name: the name of the class.
        make: returns the class.

    Example:
        >>> offering("mine", "Environment", dict)("Environment")
        {}
    """

    def get(attribute: str) -> Any:
        """The class for its name; an AttributeError, as Python expects, for every other name."""
        if attribute == name:
            return make()
        raise AttributeError(f"module {module!r} has no attribute {attribute!r}")

    return get


class Scores(NamedTuple):
    """The rewards of n samples, and their components by name: lists of n finite numbers, always the same names."""

    rewards: list[float]
    components: dict[str, list[float]]

    def samples(self, key: str) -> list[dict[str, float]]:
        """One mapping for each sample, with its components, and its reward under the trainer's key.

        Example:
            >>> Scores([0.8], {"R3/f_beta": [1.0]}).samples("overall")
            [{'overall': 0.8, 'R3/f_beta': 1.0}]
        """
        columns = {key: self.rewards, **self.components}
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@contextlib.contextmanager
def _printed_errors() -> Iterator[None]:
    """Print a ValueError to the standard error, each message once in a process: some trainers hide it and go on."""
    try:
        yield
    except ValueError as error:
        message = str(error)
        if message not in _PRINTED:
            _PRINTED.add(message)
            print(f"grounding_rewards: {message}", file=sys.stderr, flush=True)
        raise


@_printed_errors()
def reward_of(reward: str = "R4", **parameters: Any) -> GroundingReward:
    """The reward of a name with these parameters; one object for the whole process, so that it sees all samples.

    Args:
        reward: as for :func:`grounding_rewards.get_reward`.
        **parameters: of the reward; mappings and lists may be those of a trainer's configuration.

    Raises:
        ValueError: an unknown name or parameter, or one that is no JSON value.

    Example:
        >>> reward_of("R3", beta=2) is reward_of("R3", beta=2)
        True
    """
    return _build_reward(reward, json.dumps(parameters, sort_keys=True, default=_plain_container))


@functools.lru_cache(maxsize=64)
def _build_reward(name: str, parameters: str) -> GroundingReward:
    """The reward of a name and parameters in JSON, made once."""
    return get_reward(name, **json.loads(parameters))


def _plain_container(value: Any) -> Any:
    """The content of a trainer's own kind of mapping or list, such as OmegaConf's, as a dict or list for JSON."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise ValueError(
        f"Expected JSON values for the parameters of a reward, got {type(value).__name__}. "
        "Give numbers, words, lists and mappings."
    )


@_printed_errors()
def image_columns(ground_truths: Sequence[Any], rows: Sequence[Mapping[str, Any] | None] = ()) -> dict[str, Any]:
    """The columns of n samples as rewards take them, from one ground truth each.

    Args:
        ground_truths: JSON strings, or mappings, with ``boxes`` in original pixels, ``width``, ``height`` …; None or an
            empty string if the fields are in `rows`.
        rows: n mappings with the trainer's other columns; the fields of a ground truth override them.

    Raises:
        ValueError: a ground truth is no JSON object with `boxes` or `reader_boxes`.

    Example:
        >>> columns = image_columns(['{"boxes": [], "width": 640}'], [{"width": 1, "height": 480, "index": 3}])
        >>> columns["boxes"], columns["width"], columns["height"], "index" in columns
        ([[]], [640], [480], False)
    """
    # Of each row the columns that rewards read; a trainer has others, such as `index`.
    fields_of_rows: list[dict[str, Any]] = []
    for row in rows or [None] * len(ground_truths):
        fields_of_rows.append({name: row[name] for name in SCORED_COLUMNS if row and name in row})
    truths = []
    for truth, fields in zip(ground_truths, fields_of_rows, strict=True):
        is_missing = truth is None or (isinstance(truth, str) and not truth)
        # A row with boxes stands in for a missing truth; without them `with_ground_truth` refuses the missing truth.
        has_fields = not fields.keys().isdisjoint(("boxes", "reader_boxes"))
        truths.append(fields if is_missing and has_fields else truth)
    columns = dict(with_ground_truth({"ground_truth": truths}, len(truths)))
    # A field that a ground truth lacks is filled in from its row.
    for name in set().union(*fields_of_rows):
        values = columns.get(name) or [None] * len(truths)
        defaults = [fields.get(name) for fields in fields_of_rows]
        columns[name] = [default if value is None else value for value, default in zip(values, defaults, strict=True)]
    return columns


def refuse_schedules(reward: GroundingReward) -> None:
    """Refuse a reward with a schedule, for a trainer that passes no step."""
    if reward.schedules:
        raise ValueError(
            f"Expected parameters without a schedule for reward {reward.__name__} in this trainer, got "
            f"{', '.join(name for name, _ in reward.schedules)} with one. The trainer tells rewards no step: "
            "give the final value, or train with TRL or ms-swift."
        )


@_printed_errors()
def scored(reward: GroundingReward, completions: Sequence[Any], columns: Mapping[str, Any]) -> Scores:
    """Score n samples for a trainer that passes no step.

    Args:
        reward: from :func:`reward_of`.
        completions: n texts or message lists.
        columns: as :meth:`GroundingReward.__call__` takes them.

    Returns:
        The same rewards, to the last bit, as calling the reward, with :data:`COMPONENTS` under its name.

    Raises:
        ValueError: as calling the reward, or a parameter has a schedule.

    Example:
        >>> columns = {"boxes": [[[0, 0, 50, 50]]], "width": [100], "height": [100]}
        >>> found = scored(reward_of("R3", box_format="qwen3-vl"), ['[{"bbox_2d": [0, 0, 500, 400]}]'], columns)
        >>> found.rewards, found.components["R3/mean_iou"], found.components["R3/hallucinated"]
        ([0.8], [0.8], [0.0])
    """
    refuse_schedules(reward)
    [batch] = score_batches([reward], completions, **columns)
    # A trainer's rows come here unchecked; the package's own commands check theirs where they read them.
    refuse_outside(batch.references, batch.sizes, batch.columns)
    components = {f"{reward.__name__}/{part}": LOGGED_VALUES[part](batch).astype(float).tolist() for part in COMPONENTS}
    return Scores(batch.reward.tolist(), components)

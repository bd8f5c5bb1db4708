"""Build the rewards of a run from its configuration, and wrap them as the steps of a trainer call them."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object

from grounding_rewards.boxes import as_box_array
from grounding_rewards.metrics.prediction import UNNAMED, Prediction
from grounding_rewards.metrics.read_predictions import question_of
from grounding_rewards.metrics.signal import Groups
from grounding_rewards.parsing import REJECT_REASONS, STATUSES, BoxFormat, get_box_format
from grounding_rewards.rewards import registry
from grounding_rewards.rewards.grounding import GroundingReward, get_reward
from grounding_rewards.rewards.schedules import Pace, is_self_paced
from grounding_rewards.rewards.scoring import Scored

Reward = str | Callable[..., list[float]]


def build_rewards(
    reward: Reward | Sequence[Reward],
    reward_kwargs: Any = None,
    box_format: str | Mapping[str, Any] | BoxFormat | None = None,
) -> list[Callable[..., list[float]]]:
    """Return one reward function for each name or function, with the box format set in those that read boxes.

    A dotted path is a reward on boxes (with `score(pred, gt)`, or a class or factory of one), a reward function as TRL
    takes it (its first argument that is not `prompts` is `completions`), or a class whose objects are such functions.

    Args:
        reward: one name or reward function, or a list of them.
        reward_kwargs: parameters of the named rewards, see `spread_kwargs`.
        box_format: for every grounding reward, anything that `get_box_format` takes; with None, a reward without a
            box format of its own takes the dataset's column.

    Raises:
        ValueError: no reward, an unknown name, parameter or box format, parameters for a ready reward, another box
            format for a reward that has one, or two rewards of one name.

    >>> [reward.__name__ for reward in build_rewards(["R4", "R1"], [{"beta": 2.0}, None])]
    ['R4', 'R1']
    """
    names_or_functions: list[Any] = list(reward) if isinstance(reward, (list, tuple)) else [reward]
    if not names_or_functions:
        raise ValueError("Expected at least one reward for reward, got none. Name one, for example R4.")
    functions: list[Any] = []
    mappings = registry.spread_kwargs(names_or_functions, reward_kwargs)
    for name_or_function, parameters in zip(names_or_functions, mappings, strict=True):
        function = name_or_function
        if isinstance(name_or_function, str):
            function = _build_reward(name_or_function, parameters)
        elif parameters:
            raise _parameters_error(name_or_function, parameters)
        if box_format is not None and isinstance(function, GroundingReward):
            function = _with_format(function, box_format)
        functions.append(function)
    names = [reward_name(function) for function in functions]
    if len(set(names)) < len(names):
        raise ValueError(
            f"Expected different names for reward, got {', '.join(names)}. TRL logs rewards by name; "
            "give the second one a name of its own in its reward_kwargs, such as log_as: R3_low."
        )
    return functions


def check_reward_functions(rewards: Sequence[Any], columns: Sequence[str]) -> None:
    """Refuse reward functions that do not take the keyword arguments that TRL will pass.

    Args:
        rewards: reward functions of any kind; grounding rewards take any column.
        columns: of the dataset, and `environments` if the model has tools.

    Raises:
        ValueError: one needs another argument, or does not take all.

    Example:
        >>> check_reward_functions([lambda completions, **columns: [0.0]], ["prompt", "image"])
    """
    passed = {"prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric"}
    # TRL passes these two columns as `prompts` and `completions` alone.
    passed |= {*columns} - {"prompt", "completion"}
    for reward in rewards:
        # TRL calls models in another way.
        if isinstance(reward, torch.nn.Module) or registry.takes(reward, **dict.fromkeys(passed)):
            continue
        parameters = inspect.signature(reward, follow_wrapped=False).parameters.values()
        # The names that the function takes, for the error: without defaults, which may be tables of patients.
        words = [str(each.replace(default=each.empty, annotation=each.empty)) for each in parameters]
        raise ValueError(
            f"Expected a function that takes what TRL passes for reward {reward_name(reward)}, got one with "
            f"({', '.join(words)}). TRL passes {', '.join(sorted(passed))}, all by name: write "
            "`(completions, **columns)`, with those that it needs."
        )


def reward_name(reward: Any) -> str:
    """The name under which TRL logs a reward.

    >>> reward_name(get_reward("R2"))
    'R2'
    """
    return getattr(reward, "__name__", type(reward).__name__)


def reward_with_parameters(reward: Any) -> str:
    """The name of a reward with its parameters and schedules, for a model card; of a user's function only the name.

    >>> reward_with_parameters(get_reward("R3", beta=2))[:31]
    'R3: MeanIoUReward(no_box_bonus='
    """
    function = reward.reward if isinstance(reward, StepReward) else reward
    if not isinstance(function, GroundingReward):
        return reward_name(function)
    schedules = [f"{name}: {schedule}" for name, schedule in function.schedules]
    return "; ".join([f"{function.name}: {function.text_reward or function.box_reward!r}", *schedules])


class StepReward:
    """A grounding reward as a trainer calls it: on every process, once for each batch of completions.

    Scheduled parameters follow the steps, self-paced ones the rewards of all processes. In an evaluation they have
    their final values, so that evaluations can be compared. The results of the last call are kept for the metrics of
    the step.

    Args:
        reward: the reward.
        trainer: TRL's; only its mode and its processes are read.

    Attributes:
        reward: as it is called in training.
        final: as it is called in an evaluation.
        pace: the state of its self-paced parameters; None if it has none.
        rejected: how often something was rejected in the last call on all processes, by reason; set by :meth:`metrics`.
    """

    def __init__(self, reward: GroundingReward, trainer: Any) -> None:
        # As it is called in training, and in an evaluation.
        self.reward, self.final = reward, _with_final_values(reward)
        self._trainer = trainer
        # The state of self-paced parameters.
        self.pace = Pace(reward) if is_self_paced(reward.schedules) else None
        # Of the last call: counts by reason, set by :meth:`metrics`, and what was found in the completions.
        self.rejected: dict[str, int] = {}
        self._scored: Scored | None = None

    @property
    def __name__(self) -> str:
        """The name under which TRL logs it."""
        return self.reward.name

    def tell(self, **fields: Any) -> None:
        """Set fields of the :class:`GroundingReward` that only the trainer knows, such as the tokenizer."""
        self.reward = replace(self.reward, **fields)
        self.final = _with_final_values(self.reward)

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float]:
        """Score completions as :class:`GroundingReward` does; in an evaluation with the final values of parameters."""
        if not self._trainer.model.training:
            return self.final(completions, on_scored=self._keep, **columns)
        return self.reward(completions, on_scored=self._keep, pace=self.pace, **columns)

    def _keep(self, scored: Scored) -> None:
        """Keep what this call has found in the completions, for :meth:`metrics` and :meth:`predictions`."""
        self._scored = scored

    def end_step(self) -> None:
        """Update self-paced parameters with what they noted of the rewards on all processes in this step."""
        if self.pace is not None:
            # Every process gets the same list in the same order, so that their parameters stay alike.
            notes_by_process = gather_object([self.pace.noted])
            self.pace.update([note for notes in notes_by_process for note in notes])

    def predictions(self, rows: Sequence[Mapping[str, Any]]) -> list[Prediction]:
        """Predictions of the last call, one for each of its rows; boxes of several readers are left out."""
        assert self._scored is not None
        return [_prediction(row, pred) for row, pred in zip(rows, self._scored.pred.split(), strict=True)]

    def metrics(self, rewards: torch.Tensor, group_size: int) -> dict[str, float]:
        """The metrics of the last call over all processes, by their keys in the log; `rejected` is set too.

        Args:
            rewards: of all processes, as TRL has gathered them.
            group_size: completions of a group, which may span two processes.
        """
        # A reward is called before its metrics are asked for.
        assert self._scored is not None
        accelerator, scored = self._trainer.accelerator, self._scored
        # One row for each completion of this process: status, predicted boxes, reference boxes, counts by reason.
        columns = [[STATUSES.index(raw.status) for raw in scored.raws], scored.outcomes.n, scored.outcomes.m]
        for reason in REJECT_REASONS:
            columns.append([raw.rejected.get(reason, 0) for raw in scored.raws])
        local_counts = torch.tensor(np.array(columns).T, device=rewards.device).contiguous()
        # The rows of all processes, in the order of the rewards, and turned back into columns.
        statuses, predictions, findings, *rejected = accelerator.gather(local_counts).T.cpu().numpy()
        counts = [int(column.sum()) for column in rejected]
        self.rejected = {reason: count for reason, count in zip(REJECT_REASONS, counts, strict=True) if count}
        values = rewards.double().cpu().numpy()
        groups = Groups(np.full(len(values) // group_size, group_size), values, statuses, predictions, findings)
        return {f"{self.reward.name}/signal/{key}": value for key, value in groups.metrics().items()}


def _with_final_values(reward: GroundingReward) -> GroundingReward:
    """The reward with the final values of its scheduled parameters."""
    # Without schedules the same object, so that its warnings come once.
    return reward.final() if reward.schedules else reward


def _prediction(row: Mapping[str, Any], pred: Any) -> Prediction:
    """The prediction for a row of a dataset.

    Args:
        row: may lack every column.
        pred: the boxes of an answer to it, xyxy in pixels of its image.
    """
    boxes = as_box_array(row.get("boxes") or [], "boxes")
    labels = row.get("labels") or [None] * len(boxes)
    return Prediction(
        str(row.get("id", "")),
        # Boxes are compared as fractions of the image; with 1 for an unknown size they are compared in pixels.
        row.get("width") or 1,
        row.get("height") or 1,
        gt=boxes,
        gt_labels=tuple(label or UNNAMED for label in labels) if len(boxes) else (),
        pred=pred,
        source=row.get("source"),
        question=question_of(row),
    )


def _build_reward(name: str, parameters: Mapping[str, Any]) -> Any:
    """The reward function of a registered name or a dotted path, with its parameters."""
    # `get_reward` refuses a name that is neither registered nor a path.
    if name in registry.REGISTRY or "." not in name:
        return get_reward(name, **parameters)
    target = registry.look_up(name)
    if isinstance(target, GroundingReward):
        # It is ready as it is; with parameters `get_reward` decides whether it takes them.
        if not parameters:
            return target
    elif registry.takes_completions(target):
        # A reward function of TRL is ready as it is.
        if parameters:
            raise _parameters_error(name, parameters)
        return target
    # A class whose objects are reward functions of TRL.
    elif inspect.isclass(target) and registry.takes_completions(target.__call__):
        registry.check_parameters(name, target, parameters)
        return target(**parameters)
    # A reward on boxes, or a class or function that makes one.
    return get_reward(name, **parameters)


def _parameters_error(reward: object, parameters: Mapping[str, Any]) -> ValueError:
    """The error to raise for parameters of a reward function that is already made."""
    return ValueError(
        f"Expected no reward_kwargs for the ready reward {reward!r}, got {dict(parameters)!r}. "
        "Give its name, or set the parameters when making it."
    )


def _with_format(reward: GroundingReward, box_format: str | Mapping[str, Any] | BoxFormat) -> GroundingReward:
    """The reward with this box format; refuse one that has another already."""
    run_format = get_box_format(box_format)
    reward_format = run_format if reward.box_format is None else get_box_format(reward.box_format)
    if reward_format != run_format:
        raise ValueError(
            f"Expected one box format for reward {reward.__name__}, got {reward_format.name} for the reward and "
            f"{run_format.name} for box_format. State it once."
        )
    return replace(reward, box_format=box_format)  # type: ignore[arg-type]

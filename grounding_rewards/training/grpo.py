"""TRL's `GRPOTrainer` for models that answer with boxes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from datasets import Dataset
from transformers import AutoConfig, AutoProcessor
from trl import GRPOConfig, GRPOTrainer

from grounding_rewards.data.checks import check_dataset, check_films
from grounding_rewards.data.columns import add_columns
from grounding_rewards.parsing import BoxFormat, box_format_for_model_type, get_box_format
from grounding_rewards.scoring import GroundingReward, get_reward
from grounding_rewards.training.arguments import spread_kwargs

Reward = str | Callable[..., list[float]]


class GroundingGRPOTrainer(GRPOTrainer):
    """`GRPOTrainer` that takes a grounding reward by name and makes the dataset fit model and reward.

    Before the model is loaded it
      * builds the reward and settles the box format: the argument, else the reward's own, else the dataset's
        `box_format` column, else the one that models of this `model_type` write;
      * adds the columns `box_format`, `resized_width` and `resized_height`, the last two as this very
        processor resizes films;
      * checks every row (`grounding_rewards.data.checks.check_dataset`).

    It gives every grounding reward the model's tokenizer: where special tokens carry the boxes, the reward decodes
    `completion_ids` with these tokens in it. Everything else is TRL's.

    Args:
        model: Name or folder of a model, or the model itself.
        reward: Name or dotted path of a reward, a reward from `get_reward`, any other reward function of
            TRL, or a list of these.
        args: TRL's configuration.
        train_dataset: Dataset with the package's columns.
        eval_dataset: One more, or several by name.
        processing_class: Processor; loaded from the model when left out.
        reward_kwargs: Parameters of the named reward; for a list of rewards a list with one dict (or None)
            for each.
        reward_weights: One weight for each of several rewards; 1 when left out.
        box_format: How the model writes boxes: a name, or what else `get_box_format` takes.
        **kwargs: Handed on to `GRPOTrainer`.

    Raises:
        ValueError: Unknown reward, parameter or box format; two rewards of one name; a dataset that fails
            its check.
    """

    def __init__(
        self,
        model: Any,
        reward: Reward | list[Reward] = "R4",
        args: GRPOConfig | None = None,
        train_dataset: Dataset | None = None,
        eval_dataset: Dataset | Mapping[str, Dataset] | None = None,
        processing_class: Any = None,
        *,
        reward_kwargs: Any = None,
        reward_weights: Sequence[float] | None = None,
        box_format: str | Mapping[str, Any] | BoxFormat | None = None,
        **kwargs: Any,
    ) -> None:
        rewards = build_rewards(reward, reward_kwargs, box_format)
        if reward_weights is not None:
            args = copy.copy(args) if args is not None else GRPOConfig("grpo")
            args.reward_weights = list(reward_weights)
        loading = _loading_kwargs(args)
        if processing_class is None:
            processing_class = AutoProcessor.from_pretrained(
                _model_name(model), truncation_side="left", padding_side="left", **loading
            )

        def prepare(dataset: Dataset, name: str) -> Dataset:
            if not isinstance(dataset, Dataset):
                raise ValueError(
                    f"Expected a map-style datasets.Dataset for {name}, got {type(dataset).__name__}. A stream "
                    "cannot be checked before the first step; load it, or use the reward with TRL's GRPOTrainer."
                )
            # A format without a name has no place in a column; the rewards have it.
            column = box_format if isinstance(box_format, str) else None
            if "box_format" not in dataset.column_names and _some_without_format(rewards):
                column = box_format_for_model_type(_model_type(model, loading))
            check_films(dataset, name=name)
            dataset = add_columns(dataset, processing_class, column)
            for one in rewards:
                if isinstance(one, GroundingReward):
                    check_dataset(dataset, one, name=name)
            return dataset

        super().__init__(
            model=model,
            reward_funcs=rewards,
            args=args,
            train_dataset=None if train_dataset is None else prepare(train_dataset, "train_dataset"),
            eval_dataset=_each(eval_dataset, prepare),
            processing_class=processing_class,
            **kwargs,
        )
        # The generation configuration may know more tokens that end an answer than the tokenizer does.
        stop_ids = frozenset(self.eos_token_ids)
        self.reward_funcs: list[Any] = [
            replace(one, tokenizer=self._tokenizer, stop_ids=stop_ids) if isinstance(one, GroundingReward) else one
            for one in self.reward_funcs
        ]

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as TRL does, with hallucination rates that are exact over all processes and steps.

        A process whose batch holds no negative film has no rate, and TRL drops the step of all processes
        then.
        """
        metrics = self._metrics["train" if self.model.training else "eval"]
        for name in self.reward_func_names:
            if negatives := metrics.get(f"{name}/negatives"):
                seen, hallucinated = sum(negatives), sum(metrics[f"{name}/hallucinated"])
                metrics[f"{name}/hallucination_rate"] = [hallucinated / seen if seen else float("nan")]
        super().log(logs, start_time)


def build_rewards(
    reward: Reward | Sequence[Reward],
    reward_kwargs: Any = None,
    box_format: str | Mapping[str, Any] | BoxFormat | None = None,
) -> list[Callable[..., list[float]]]:
    """Turn names into rewards, settle their box format, and leave other reward functions as they are.

    Args:
        reward: One name or reward function, or a list of them.
        reward_kwargs: Parameters of the named rewards, see `spread_kwargs`.
        box_format: For every grounding reward, a name or what else `get_box_format` takes; None leaves those that
            have none to the dataset's column.

    Raises:
        ValueError: An unknown name, parameter or box format, parameters for a ready reward, another box format for a
            reward that has one, or two rewards of one name.

    >>> [one.__name__ for one in build_rewards(["R4", "R1"], [{"beta": 2.0}, None])]
    ['R4', 'R1']
    """
    rewards: list[Any] = list(reward) if isinstance(reward, (list, tuple)) else [reward]
    built: list[Any] = []
    for one, parameters in zip(rewards, spread_kwargs(rewards, reward_kwargs), strict=True):
        if isinstance(one, str):
            one = get_reward(one, **parameters)
        elif parameters:
            raise ValueError(
                f"Expected no reward_kwargs for the ready reward {one!r}, got {parameters!r}. "
                "Give its name, or set the parameters when making it."
            )
        if box_format is not None and isinstance(one, GroundingReward):
            one = _with_format(one, box_format)
        built.append(one)
    names = [getattr(one, "__name__", type(one).__name__) for one in built]
    if len(set(names)) < len(names):
        raise ValueError(
            f"Expected different names for reward, got {', '.join(names)}. TRL logs rewards by name; "
            "register the second setting under a name of its own."
        )
    return built


def _with_format(reward: GroundingReward, box_format: str | Mapping[str, Any] | BoxFormat) -> GroundingReward:
    wanted = get_box_format(box_format)
    own = wanted if reward.box_format is None else get_box_format(reward.box_format)
    if own != wanted:
        raise ValueError(
            f"Expected one box format for reward {reward.__name__}, got {own.name} for the reward and {wanted.name} "
            "for box_format. State it once."
        )
    given: Any = box_format
    return replace(reward, box_format=given)


def _each(datasets: Any, prepare: Callable[[Dataset, str], Dataset]) -> Any:
    if datasets is None:
        return None
    if isinstance(datasets, Mapping):
        return {name: prepare(dataset, f"eval_dataset[{name!r}]") for name, dataset in datasets.items()}
    return prepare(datasets, "eval_dataset")


def _some_without_format(rewards: Sequence[Any]) -> bool:
    return any(isinstance(one, GroundingReward) and one.box_format is None for one in rewards)


def _loading_kwargs(args: GRPOConfig | None) -> dict[str, Any]:
    """How TRL would load configuration and processor of this model."""
    if args is None:
        return {}
    revision = (args.model_init_kwargs or {}).get("revision")
    return {"trust_remote_code": args.trust_remote_code, **({"revision": revision} if revision else {})}


def _model_name(model: Any) -> str:
    return model if isinstance(model, str) else model.config._name_or_path


def _model_type(model: Any, loading: Mapping[str, Any]) -> str:
    config = AutoConfig.from_pretrained(model, **loading) if isinstance(model, str) else model.config
    return config.model_type

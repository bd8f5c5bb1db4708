"""TRL's `GRPOTrainer` for models that answer with boxes."""

import contextlib
import copy
import json
import logging
import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import AutoProcessor
from trl import GRPOConfig, GRPOTrainer

from grounding_rewards.metrics.image_dependence import image_dependence
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.metrics.signal import SAME
from grounding_rewards.models.generate import NEVER, completion_begins_in_thinking
from grounding_rewards.parsing import BoxFormat
from grounding_rewards.rewards.completions import completion_text
from grounding_rewards.rewards.grounding import GroundingReward
from grounding_rewards.training.callbacks import LogEntry, ParityCheck, SignalWatch
from grounding_rewards.training.card import RunCard
from grounding_rewards.training.dataset import format_name, prepare_examples
from grounding_rewards.training.look_closer import LookCloser
from grounding_rewards.training.model import loading_kwargs, model_format, warn_of_another_family
from grounding_rewards.training.resume import ExactResume, set_epoch
from grounding_rewards.training.rewards import (
    Reward,
    StepReward,
    build_rewards,
    check_reward_functions,
    reward_with_parameters,
)
from grounding_rewards.training.rollout import VllmRollout, refuse_other_rollouts
from grounding_rewards.training.sharding import SharedWeights

# Environment variables with which trackers upload checkpoints, or the whole folder of the run.
_UPLOAD_VARIABLES = (
    *("WANDB_LOG_MODEL", "HF_MLFLOW_LOG_ARTIFACTS", "HF_DAGSHUB_LOG_ARTIFACTS", "HF_DVCLIVE_LOG_MODEL"),
    *("CLEARML_LOG_MODEL", "COMET_LOG_ASSETS"),
)
# Values of these variables with which nothing is uploaded, or only the weights at the end.
_NO_UPLOAD = ("", "0", "false", "no", "none", "off", "end")
# In the log of a run, the counts of why something was rejected stand under `<reward>/rejected_reasons`.
_REASONS = "rejected_reasons"


@contextlib.contextmanager
def _no_printed_row() -> Iterator[None]:
    """A context in which TRL does not print the row of an answer without a reward: it names images, and patients."""
    logger = logging.getLogger(GRPOTrainer.__module__)

    def is_printed(record: logging.LogRecord) -> bool:
        """Whether a message of TRL's log is any but the one that has the row."""
        return "All reward functions returned None" not in str(record.msg)

    logger.addFilter(is_printed)
    try:
        yield
    finally:
        logger.removeFilter(is_printed)


class GroundingGRPOTrainer(RunCard, ExactResume, SharedWeights, VllmRollout, GRPOTrainer):
    """`GRPOTrainer` that takes a grounding reward by name and makes the dataset fit model and reward.

    Before the model is loaded it
      * builds the reward and settles the box format: the argument, else the reward's own, else the dataset's
        `box_format` column, else the one that models of this `model_type` write;
      * adds the columns `box_format`, `resized_width` and `resized_height`, the last two as the processor
        resizes images;
      * checks every row (`grounding_rewards.data.checks.check_dataset`), and that there are images for one step;
      * shrinks images to the limit that the processor carries (`grounding_rewards.images.resize.set_image_size`).

    Before the first step it checks that the trainer sees what the model saw (`grounding_rewards.models.parity`).

    It gives every grounding reward the model's tokenizer: where special tokens carry the boxes or mark thinking, the
    reward decodes `completion_ids` with these tokens. It sees whether the rendered prompt ends in an open mark of
    thinking: then a completion that never closes it has no answer. Scheduled parameters of a reward follow the steps,
    or what all processes have found together; in an evaluation they have their final values, so that evaluations can be
    compared. A resumed run equals an uninterrupted one (`grounding_rewards.training.resume`), and a run that learns
    nothing warns. Everything else is TRL's.

    Args:
        model: name or folder of a model, or the model itself.
        reward: name or dotted path of a reward, a reward from `get_reward`, any other reward function of
            TRL, or a list of these.
        args: TRL's configuration.
        train_dataset: dataset with the package's columns.
        eval_dataset: one more, or several by name.
        processing_class: processor; loaded from the model when left out.
        reward_kwargs: parameters of the named reward; for a list of rewards a list with one dict (or None)
            for each.
        reward_weights: one weight for each of several rewards; 1 when left out.
        box_format: how the model writes boxes: a name, or what else `get_box_format` takes.
        bad_rows: `refuse` rows that fail their check, or `drop` them, which a warning says.
        extras: `grounding_rewards.training.look_closer.LookCloser(looks=3)`, a tool with which the model may look at
            parts of an image before it answers.
        reward_funcs: `reward` by the name that TRL's trainer has for it; stated, it is taken in its place.
        **kwargs: handed on to `GRPOTrainer`.

    Raises:
        ValueError: unknown reward, parameter or box format; two rewards of one name; a dataset that fails
            its check.
    """

    method = "GRPO"

    step_rewards: list[StepReward]
    # Of the latest step: the share of the images whose answers all earn the same.
    _zero_spread_share: float = math.nan
    _warned_of_unscored: bool = False
    _evaluated_images: list[Prediction]

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
        bad_rows: str = "refuse",
        extras: Sequence[LookCloser] = (),
        reward_funcs: Reward | list[Reward] | None = None,
        **kwargs: Any,
    ) -> None:
        rewards = build_rewards(reward if reward_funcs is None else reward_funcs, reward_kwargs, box_format)
        path = model if isinstance(model, str) else model.config._name_or_path
        # Without args the folder has the name that TRL would give it.
        args = GRPOConfig(f"{Path(path).name}-GRPO") if args is None else copy.copy(args)
        _refuse_uploads(args)
        if reward_weights is not None:
            args.reward_weights = list(reward_weights)
        if processing_class is None:
            processing_class = AutoProcessor.from_pretrained(
                path, truncation_side="left", padding_side="left", **loading_kwargs(args)
            )
        prepare = partial(
            prepare_examples,
            rewards=rewards,
            processor=processing_class,
            box_format=box_format,
            model_format=lambda: model_format(model, loading_kwargs(args)),
            bad_rows=bad_rows,
            keep_full=bool(extras),
        )
        # Mistakes in the images are reported before the model is loaded.
        train_dataset, eval_dataset = _prepare_datasets(prepare, train_dataset, eval_dataset, args)
        if train_dataset is not None and args.process_index == 0:
            warn_of_another_family(train_dataset, rewards, model, loading_kwargs(args))
        functions = [StepReward(reward, self) if isinstance(reward, GroundingReward) else reward for reward in rewards]
        self.step_rewards = [function for function in functions if isinstance(function, StepReward)]
        self.paces = {reward.__name__: reward.pace for reward in self.step_rewards if reward.pace is not None}
        for extra in extras:
            extra.begin(args, functions, kwargs)
        refuse_other_rollouts(args, kwargs)
        if train_dataset is not None:
            environments = ["environments"] if "environment_factory" in kwargs else []
            check_reward_functions(functions, [*train_dataset.column_names, *environments])
        super().__init__(
            model=model,
            reward_funcs=functions,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            **kwargs,
        )
        if type(self.args) is GRPOConfig:
            # TRL's default would give patients' images to trackers, without a request for it.
            self.log_multimodal = False
        # Printed rows name patients, and trackers such as wandb keep what a run prints.
        self.num_completions_to_print = 0
        self._forbid_image_tokens()
        self._tell_rewards(train_dataset)
        self._begin_log(train_dataset)
        self._add_callbacks()
        # There are no videos: if a model wrote their token, TRL would look for one, and the run would end.
        self._video_pad_token_id = None

    def _tell_rewards(self, train_dataset: Dataset | None) -> None:
        """Tell the grounding rewards what they read completions by: tokenizer, end tokens, and open marks of thinking.

        Args:
            train_dataset: prepared, so that it has prompts; None if there is none.
        """
        # All prompts share the chat template, which opens the mark or does not: the first stands for all.
        opens_thinking = train_dataset is not None and completion_begins_in_thinking(
            self.processing_class,
            train_dataset[0]["prompt"],
            chat_template=self.chat_template,
            **self.chat_template_kwargs,
        )
        for step_reward in self.step_rewards:
            step_reward.tell(
                tokenizer=self._tokenizer,
                # The generation configuration may have more end tokens than the tokenizer.
                stop_ids=frozenset(self.eos_token_ids),
                prompt_opens_thinking=opens_thinking or step_reward.reward.prompt_opens_thinking,
            )

    def _begin_log(self, train_dataset: Dataset | None) -> None:
        """Set the attributes that gather metrics until they are logged, and those that the card of the run shows.

        Args:
            train_dataset: prepared; its box format stands on the card. None if there is none.
        """
        self._evaluated_images = []
        self.rejected_reasons: dict[str, dict[str, int]] = {}
        self.reward_lines = tuple(reward_with_parameters(reward) for reward in self.reward_funcs)
        if self.step_rewards and train_dataset is not None:
            self.box_format_name = format_name(self.step_rewards[0].reward.box_format, train_dataset)

    def _add_callbacks(self) -> None:
        """Add the callbacks that watch the signal, check parity before the first step, and complete the log."""
        box_format = self.step_rewards[0].reward.box_format if self.step_rewards else None
        names = [step_reward.__name__ for step_reward in self.step_rewards]
        self.add_callback(SignalWatch(self, names, self.reward_func_names))
        self.add_callback(ParityCheck(self, box_format))
        # At the front, so that it changes the log before the callbacks of trackers read it.
        self.callback_handler.callbacks.insert(0, LogEntry(self))

    def _forbid_image_tokens(self) -> None:
        """Forbid the token of an image in answers: there would be no image for it, and the step would fail.

        TRL's newer versions forbid it themselves where transformers generates.
        """
        token = getattr(self.model.config, "image_token_id", None)
        if token is None:
            return
        if self.use_vllm:
            # vLLM adds a bias to the score of a token. Its server reads JSON, whose keys are texts.
            key = token if self.vllm_mode == "colocate" else str(token)
            vllm_options = self.vllm_generation.generation_kwargs
            bias = {key: NEVER, **vllm_options.get("logit_bias", {})}
            # A new mapping, because TRL's belongs to `args`, which the caller may use again.
            self.vllm_generation.generation_kwargs = {**vllm_options, "logit_bias": bias}
        # Where vLLM generates TRL makes no such configuration.
        generation = getattr(self, "generation_config", None)
        if generation is not None:
            # TRL hands both to `generate`, where `generation_kwargs` win: both need the whole list.
            tokens = sorted({*(generation.suppress_tokens or ()), token})
            generation.suppress_tokens = self.generation_kwargs["suppress_tokens"] = tokens

    def start_epoch(self, epoch: int) -> None:
        """Draw the order of this epoch's images, independent of earlier draws."""
        set_epoch(self._sampler, epoch)

    def unfinished(self) -> dict[str, Any]:
        """As in :class:`ExactResume`, with the completions that the next steps still use, and the paces' state."""
        # At each multiple of this number of steps TRL generates anew, and needs no completions in its buffer.
        generate_every = self.args.steps_per_generation * self.num_iterations
        is_used_up = self._step % generate_every == 0
        return {
            **super().unfinished(),
            "step": self._step,
            "completions": None if is_used_up else self._buffered_inputs,
            "paces": {name: pace.state() for name, pace in self.paces.items()},
        }

    def restore(self, unfinished: Mapping[str, Any], *, is_own: bool) -> None:
        """Restore also the state of self-paced parameters, and the completions that the next steps still use."""
        super().restore(unfinished, is_own=is_own)
        for name, pace in self.paces.items():
            pace.restore(unfinished["paces"].get(name, {}))
        # The completions of another process are not those of this one, which then generates anew.
        if is_own:
            self._step, self._buffered_inputs = unfinished["step"], unfinished["completions"]

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        """The rewards of a step, `(answers, functions)`, as TRL computes them; their metrics are added to the log.

        Rewards that teach nothing are refused.
        """
        with _no_printed_row():
            rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._check_numbers(rewards)
        mode = "train" if self.model.training else "eval"
        group_size = self.num_generations if mode == "train" else self.num_generations_eval
        self._zero_spread_share = self._share_of_zero_spread(rewards, group_size)
        for column, reward in enumerate(self.reward_funcs):
            if not isinstance(reward, StepReward):
                continue
            for key, value in reward.metrics(rewards[:, column], group_size).items():
                self._metrics[mode][key].append(value)
            self._metrics[mode][f"{reward.__name__}/{_REASONS}"].append(reward.rejected)
            if mode == "train":
                reward.end_step()
        if mode == "eval" and self.step_rewards:
            # One answer for each image: the first of its group, as the first grounding reward reads it. A group may
            # span two processes, so that all are gathered before.
            self._evaluated_images += gather_object(self.step_rewards[0].predictions(inputs))[::group_size]
        return rewards

    def _check_numbers(self, rewards: torch.Tensor) -> None:
        """Refuse a step's rewards, `(answers, functions)`, if all are NaN or one is infinite.

        Warn once of an answer for which every function returned NaN.
        """
        if rewards.isnan().all():
            raise ValueError(
                f"Expected a number for each answer from {', '.join(self.reward_func_names)}, got NaN or None for all "
                f"{len(rewards)} of a step, which teaches nothing. Correct the function."
            )
        for name, n_infinite in zip(self.reward_func_names, rewards.isinf().sum(dim=0).tolist(), strict=True):
            if n_infinite:
                raise ValueError(
                    f"Expected finite numbers from {name}, got inf for {n_infinite} of {len(rewards)} answers of a "
                    "step, with which nothing is learned from any answer to the same image. Correct the function."
                )
        n_unscored = int(rewards.isnan().all(dim=1).sum())
        if n_unscored and not self._warned_of_unscored and self.accelerator.is_main_process:
            self._warned_of_unscored = True
            warnings.warn(
                f"{', '.join(self.reward_func_names)} returned NaN or None for {n_unscored} of {len(rewards)} answers "
                "of a step, which teach nothing. Correct the function if it should have a number for each.",
                stacklevel=2,
            )

    def _share_of_zero_spread(self, rewards: torch.Tensor, group_size: int) -> float:
        """The share of the groups in which all answers with a reward earn the same.

        Args:
            rewards: of a step, `(answers, functions)`; the answers of a group stand side by side.
            group_size: answers of a group.
        """
        # As in TRL, a NaN of one function adds nothing to the reward of an answer.
        total = (rewards * self.reward_weights.to(rewards.device)).nansum(dim=1)
        unscored = rewards.isnan().all(dim=1)
        # An answer without any reward is neither the highest nor the lowest of its group. In a group without any the
        # difference is -inf, so that it counts as one without spread.
        highest = total.masked_fill(unscored, -math.inf).view(-1, group_size).amax(dim=1)
        lowest = total.masked_fill(unscored, math.inf).view(-1, group_size).amin(dim=1)
        return float((highest - lowest <= SAME).float().mean())

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        """As TRL does, with the exact `frac_reward_zero_std`: the share of groups whose answers all earn the same.

        TRL takes the standard deviation in float32, which is not quite 0 if all answers earn 0.2.
        """
        output = super()._generate_and_score_completions(inputs)
        # Only then is TRL's number such a share; with the other aggregation it speaks of the batch as a whole.
        if self.multi_objective_aggregation == "sum_then_normalize":
            metrics = self._metrics["train" if self.model.training else "eval"]
            # In place of the value that TRL has just added for this step.
            metrics["frac_reward_zero_std"][-1] = self._zero_spread_share
        return output

    def _get_train_sampler(self, dataset: Dataset | None = None) -> Any:
        """As TRL does; keep the sampler for :meth:`start_epoch`."""
        self._sampler = super()._get_train_sampler(dataset)
        return self._sampler

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as TRL does, with complete metrics; the table of completions goes only into the folder of the run.

        Its rows name images and patients.
        """
        self._complete_metrics(self._metrics["train" if self.model.training else "eval"])
        completions = self._logs["completion"]
        # One by one: a new list would not forget old completions, as TRL's deque does.
        for index, completion in enumerate(completions):
            completions[index] = _uniform_completion(completion)
        # TRL sends the table to the trackers in `report_to`: for now there are none. Curves reach them by callbacks.
        trackers, self.args.report_to = self.args.report_to, []
        try:
            super().log(logs, start_time)
        finally:
            self.args.report_to = trackers

    def _complete_metrics(self, metrics: dict[str, list[Any]]) -> None:
        """Add image dependence and exact hallucination rates to the metrics; move the counts of reasons out of them.

        The counts are kept in `rejected_reasons`, for :class:`LogEntry`.

        Args:
            metrics: by key, a value for each step since the last log; TRL logs their mean. Changed in place.
        """
        if not self.model.training and self._evaluated_images:
            # Several processes fill their last batches with the first images again, which count once.
            n_images = len(self.callback_handler.eval_dataloader.dataset)
            dependence = image_dependence(self._evaluated_images[:n_images])
            metrics["image_dependence"] = [dependence.dependence.value]
            metrics["image_dependence_p"] = [dependence.p]
            self._evaluated_images = []
        for name in self.reward_func_names:
            # The images without findings in each step. TRL logs the mean of the steps' rates, in which a step with one
            # such image would weigh as much as one with twenty.
            if metrics.get(f"{name}/negatives"):
                negatives = sum(metrics[f"{name}/negatives"])
                rate = sum(metrics[f"{name}/hallucinated"]) / negatives if negatives else math.nan
                metrics[f"{name}/hallucination_rate"] = [rate]
            if f"{name}/{_REASONS}" in metrics:
                counts: Counter[str] = Counter()
                for step_counts in metrics.pop(f"{name}/{_REASONS}"):
                    counts.update(step_counts)
                # Trackers cannot draw a mapping as a curve: :class:`LogEntry` adds it to the log of the run alone.
                key = f"{name}/{_REASONS}" if self.model.training else f"eval_{name}/{_REASONS}"
                self.rejected_reasons[key] = dict(counts)


def _prepare_datasets(
    prepare: Callable[..., Dataset], train_dataset: Any, eval_dataset: Any, args: GRPOConfig
) -> tuple[Any, Any]:
    """Return both datasets prepared; a mapping of evaluation datasets stays one. Refuse too few images for a step.

    Args:
        prepare: takes a dataset and its `name` in errors.
        train_dataset: None if there is none, like the next.
        eval_dataset: one dataset, or several by name.
        args: TRL's configuration. The first process prepares before the others, which find its results in the cache.
    """
    with args.main_process_first(desc="checking images"):
        if train_dataset is not None:
            train_dataset = prepare(train_dataset, name="train_dataset")
        if isinstance(eval_dataset, Mapping):
            eval_datasets = eval_dataset.items()
            eval_dataset = {name: prepare(images, name=f"eval_dataset[{name!r}]") for name, images in eval_datasets}
        elif eval_dataset is not None:
            eval_dataset = prepare(eval_dataset, name="eval_dataset")
    # TRL drops an incomplete batch, and a run without steps would end as if it had trained.
    n_needed = args.generation_batch_size // args.num_generations
    if train_dataset is not None and train_dataset.num_rows < n_needed:
        raise ValueError(
            f"Expected at least {n_needed} images for train_dataset, as many as one step generates answers to, got "
            f"{train_dataset.num_rows}. Add images, or lower per_device_train_batch_size, gradient_accumulation_steps "
            "or generation_batch_size."
        )
    return train_dataset, eval_dataset


def _refuse_uploads(args: GRPOConfig) -> None:
    """Refuse options and variables that would upload rows that name patients, or checkpoints, which keep images."""
    if args.log_completions and (args.push_to_hub or getattr(args, "log_completions_hub_repo", None)):
        raise ValueError(
            "Expected neither push_to_hub nor log_completions_hub_repo beside log_completions, got one of them. "
            "The rows that name patients would be uploaded: push checkpoint/ when the run is over."
        )
    # Without trackers nothing reads the variables.
    if not args.report_to:
        return
    if "clearml" in args.report_to:
        # The callback of ClearML would upload checkpoints unasked.
        os.environ.setdefault("CLEARML_LOG_MODEL", "false")
    for name in _UPLOAD_VARIABLES:
        value = os.environ.get(name, "")
        if value.lower() not in _NO_UPLOAD:
            raise ValueError(
                f"Expected no {name} in the environment of a run with trackers, got {value!r}. It uploads checkpoints, "
                "which keep images of answers that are used again: unset it, and upload checkpoint/ after the run."
            )


def _uniform_completion(completion: Any) -> Any:
    """A completion whose contents and arguments of tools are texts, so that all completions fit one table column."""
    if not isinstance(completion, list):
        return completion
    messages = []
    for message in completion:
        uniform_message = {**message, "content": completion_text(message.get("content"))}
        calls = []
        for call in message.get("tool_calls") or ():
            function = call.get("function", call)
            arguments = function.get("arguments")
            # As in the messages of OpenAI, arguments are JSON.
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments)
            calls.append({"type": "function", "function": {"name": str(function.get("name")), "arguments": arguments}})
        if calls:
            uniform_message["tool_calls"] = calls
        messages.append(uniform_message)
    return messages

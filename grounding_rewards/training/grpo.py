"""TRL's `GRPOTrainer` for models that answer with boxes."""

from __future__ import annotations

import copy
import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import AutoProcessor
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import RepeatSampler

from grounding_rewards.boxes import as_box_array
from grounding_rewards.metrics.answered_image import UNNAMED, AnsweredImage
from grounding_rewards.metrics.counts import ImageGroups
from grounding_rewards.metrics.image_dependence import image_dependence
from grounding_rewards.metrics.signal import Groups
from grounding_rewards.parsing import STATUSES, BoxFormat, box_formats_of, get_box_format
from grounding_rewards.parsing.scope import opens_thinking
from grounding_rewards.rewards.batch_log import ROW_COLUMN
from grounding_rewards.rewards.completion_text import completion_text
from grounding_rewards.rewards.grounding import GroundingReward
from grounding_rewards.rewards.schedules import Pace, is_self_paced
from grounding_rewards.training.callbacks import OnlyNumbers, ParityCheck, SignalWatch
from grounding_rewards.training.card import RunCard
from grounding_rewards.training.curriculum import (
    Curriculum,
    Stages,
    draws_of_training,
    entering_stages,
    read_curriculum,
)
from grounding_rewards.training.look_closer import (
    LookCloser,
    LookEnvironment,
    LookReward,
    check_tools,
    read_look_closer,
)
from grounding_rewards.training.model import loading_kwargs, model_format
from grounding_rewards.training.resume import ExactResume
from grounding_rewards.training.rewards import Reward, build_rewards, reward_with_parameters
from grounding_rewards.training.training_images import answer_lengths, format_name, prepare_examples

# The columns of the completions table that tell why answers earn the same.
_SAID = ("status", "counted", "findings")


class GroundingGRPOTrainer(RunCard, ExactResume, GRPOTrainer):
    """`GRPOTrainer` that takes a grounding reward by name and makes the dataset fit model and reward.

    Before the model is loaded it
      * builds the reward and settles the box format: the argument, else the reward's own, else the dataset's
        `box_format` column, else the one that models of this `model_type` write;
      * adds the columns `box_format`, `resized_width` and `resized_height`, the last two as the processor
        resizes images;
      * checks every row (`grounding_rewards.data.checks.check_dataset`), and that there are images for one step;
      * shrinks images to the limit that the processor carries (`grounding_rewards.images.resize.limit_image_pixels`).

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
        curriculum: easy images first, see `grounding_rewards.training.curriculum.Curriculum`: a mapping such as
            `{"by": "boxes", "stages": 3}`.
        look_closer: tools with which the model may look at parts of an image before it answers, see
            `grounding_rewards.training.look_closer.LookCloser`: a mapping such as `{"looks": 3, "cost": 0.02}`.
        **kwargs: handed on to `GRPOTrainer`.

    Raises:
        ValueError: unknown reward, parameter or box format; two rewards of one name; a dataset that fails
            its check.
    """

    method = "GRPO"

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
        curriculum: Any = None,
        look_closer: Any = None,
        **kwargs: Any,
    ) -> None:
        rewards = build_rewards(reward, reward_kwargs, box_format)
        planned = None if curriculum is None else read_curriculum(curriculum)
        closer = read_look_closer(look_closer)
        functions = [*rewards] if closer is None else [*rewards, _look_reward(closer, rewards)]
        if reward_weights is not None:
            args = copy.copy(args) if args is not None else GRPOConfig("grpo")
            args.reward_weights = list(reward_weights)
        loading = {} if args is None else loading_kwargs(args)
        if processing_class is None:
            processing_class = AutoProcessor.from_pretrained(
                _name_or_path(model), truncation_side="left", padding_side="left", **loading
            )

        if closer is not None:
            check_tools(processing_class)
            args = _with_looks(args if args is not None else GRPOConfig("grpo"), closer)
            its_format = next((one.box_format for one in rewards if isinstance(one, GroundingReward)), box_format)
            kwargs["environment_factory"] = partial(LookEnvironment, closer, processing_class, its_format)

        def prepare(dataset: Dataset, name: str) -> Dataset:
            return prepare_examples(
                dataset,
                rewards,
                processing_class,
                box_format=box_format,
                model_format=lambda: model_format(model, loading),
                name=name,
                bad_rows=bad_rows,
                image_columns=("image", "images") if closer is None else ("image",),
                keep_full=closer is not None,
            )

        with nullcontext() if args is None else args.main_process_first(desc="checking images"):
            if train_dataset is not None:
                train_dataset = prepare(train_dataset, "train_dataset")
            eval_dataset = _each(eval_dataset, prepare)
        if args is not None and train_dataset is not None:
            _refuse_no_step(train_dataset, args)
            _warn_of_long_answers(train_dataset, rewards, processing_class, args)
            if args.process_index == 0:
                _warn_of_another_family(train_dataset, rewards, model, loading)
        self.stages: Stages | None = None
        if planned is not None and train_dataset is not None:
            args = args if args is not None else GRPOConfig("grpo")
            self.stages = _stages(train_dataset, planned, args)
        super().__init__(
            model=model,
            reward_funcs=functions,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            **kwargs,
        )
        self._forbid_image_tokens()
        if type(self.args) is GRPOConfig:
            # TRL's default would give patients' images to trackers; nobody asked for that here.
            self.log_multimodal = False
        # The generation configuration may have more end tokens than the tokenizer.
        stop_ids = frozenset(self.eos_token_ids)
        opened = train_dataset is not None and self._prompt_opens_thinking(train_dataset[0]["prompt"])
        self.reward_funcs: list[Any] = [
            replace(
                one,
                tokenizer=self._tokenizer,
                stop_ids=stop_ids,
                prompt_opens_thinking=opened or one.prompt_opens_thinking,
            )
            if isinstance(one, GroundingReward)
            else one
            for one in self.reward_funcs
        ]
        ours = [one for one in self.reward_funcs if isinstance(one, GroundingReward)]
        if closer is not None:
            self.reward_funcs[len(rewards)] = _look_reward(closer, ours)
            # There are no videos: where a model writes this token, TRL would look for one, and the run would end.
            self._video_pad_token_id = None
        self.add_callback(SignalWatch(self, [one.name for one in ours], self.reward_func_names))
        self.add_callback(ParityCheck(self, ours[0].box_format if ours else None))
        self._final_rewards = [_final(one) for one in self.reward_funcs]
        self.image_groups = _image_groups(train_dataset)
        self._evaluated: list[AnsweredImage] = []
        self.callback_handler.callbacks.insert(0, OnlyNumbers())
        self.paces = {one.name: Pace(one) for one in ours if is_self_paced(one.schedules)}
        if train_dataset is not None:
            _warn_of_slow_paces(self.paces, train_dataset, self.args)
        self.reward_lines = tuple(reward_with_parameters(one) for one in self.reward_funcs)
        if ours and train_dataset is not None:
            self.box_format_name = format_name(ours[0].box_format, train_dataset)

    def _forbid_image_tokens(self) -> None:
        """Let no answer hold the token of an image: there is no image for it, and the step would fail.

        TRL's newer versions do so themselves. It is set for transformers; vLLM has another configuration.
        """
        token = getattr(self.model.config, "image_token_id", None)
        generation = getattr(self, "generation_config", None)
        if token is not None and generation is not None and generation.suppress_tokens is None:
            generation.suppress_tokens = self.generation_kwargs["suppress_tokens"] = [token]

    def _prompt_opens_thinking(self, prompt: Any) -> bool:
        """Whether the completion begins inside a thinking that the rendered prompt opened."""
        return opens_thinking(
            self.processing_class.apply_chat_template(
                prompt,
                chat_template=self.chat_template,
                add_generation_prompt=True,
                tokenize=False,
                **self.chat_template_kwargs,
            )
        )

    def start_epoch(self, epoch: int) -> None:
        """Draw the order of this epoch's images, independent of earlier draws."""
        self._sampler.set_epoch(epoch)

    def unfinished(self) -> dict[str, Any]:
        """As in the base class, and the completions that the next steps still use."""
        used_up = self._step % (self.args.steps_per_generation * self.num_iterations) == 0
        return {
            **super().unfinished(),
            "step": self._step,
            "completions": None if used_up else self._buffered_inputs,
            "paces": {name: pace.state() for name, pace in self.paces.items()},
        }

    def restore(self, unfinished: Mapping[str, Any]) -> None:
        """As in the base class, and the completions that the next steps still use."""
        super().restore(unfinished)
        self._step, self._buffered_inputs = unfinished["step"], unfinished["completions"]

    def restore_common(self, unfinished: Mapping[str, Any]) -> None:
        """Restore where self-paced parameters stand."""
        for name, pace in self.paces.items():
            pace.restore(unfinished.get("paces", {}).get(name, {}))

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        """As TRL does, with the values that scheduled parameters have at this step; and log stage and signal.

        That is the signal of every grounding reward over the groups of all processes.
        """
        with self._scheduled():
            rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if rewards.isnan().all():
            raise ValueError(
                f"Expected a number for each answer from {', '.join(self.reward_func_names)}, got NaN or None for all "
                f"{len(rewards)} of a step, which teaches nothing. Correct the function."
            )
        mode = "train" if self.model.training else "eval"
        if self.stages is not None and mode == "train":
            draw = self.state.global_step * self.args.gradient_accumulation_steps // _batches_of_draw(self.args)
            self._metrics[mode]["curriculum/stage"].append(float(self.stages.stage(draw) + 1))
        size = self.num_generations if mode == "train" else self.num_generations_eval
        for k, reward in enumerate(self.reward_funcs):
            if isinstance(reward, GroundingReward):
                groups = self._groups(reward.name, rewards[:, k], size)
                for key, value in groups.metrics().items():
                    self._metrics[mode][f"{reward.name}/signal/{key}"].append(value)
                for key, value in self._by_image_group(reward.name, rewards[:, k], inputs).items():
                    self._metrics[mode][f"{reward.name}/{key}"].append(value)
        if mode == "eval":
            self._note_first_answers(inputs, size)
        return rewards

    def _note_first_answers(self, inputs: Sequence[Mapping[str, Any]], size: int) -> None:
        """Keep the first answer to each image, as the first grounding reward reads it, for the log."""
        name = next((one.name for one in self.reward_funcs if isinstance(one, GroundingReward)), None)
        if name is not None:
            before = self.accelerator.process_index * len(inputs)
            said = self._pending_extra_logs[f"{name}/{ROW_COLUMN}"]
            self._evaluated += [
                _answered(row, json.loads(one)["pred"])
                for k, (row, one) in enumerate(zip(inputs, said, strict=True), start=before)
                if k % size == 0
            ]

    def _by_image_group(
        self, name: str, rewards: torch.Tensor, inputs: Sequence[Mapping[str, Any]]
    ) -> dict[str, float]:
        """What was earned and found on images of each source and with each label, over all processes; NaN without."""
        keys = self.image_groups.keys
        if not keys:
            return {}
        first = self.accelerator.process_index * len(inputs)
        mine = rewards[first : first + len(inputs)].double().cpu().numpy()
        said = map(json.loads, self._pending_extra_logs[f"{name}/{ROW_COLUMN}"])
        sums = self.image_groups.sums(
            [_answered(row, one["pred"]) for row, one in zip(inputs, said, strict=True)], mine
        )
        local = torch.tensor(sums, dtype=torch.float32, device=rewards.device)[None]
        totals = self.accelerator.gather(local).sum(dim=0).cpu().tolist()
        return {key: total / n if n else math.nan for key, (total, n) in zip(keys, totals, strict=True)}

    def _groups(self, name: str, rewards: torch.Tensor, size: int) -> Groups:
        """The groups of all processes, in the order in which TRL has gathered their rewards; a group may span two."""
        status, counted, findings = (self._pending_extra_logs[f"{name}/{key}"] for key in _SAID)
        said = [[STATUSES.index(one) for one in status], counted, findings]
        gathered = self.accelerator.gather(torch.tensor(said, device=rewards.device).T.contiguous())
        sizes = torch.full((len(rewards) // size,), size)
        return Groups(sizes.numpy(), rewards.double().cpu().numpy(), *gathered.T.cpu().numpy())

    @contextmanager
    def _scheduled(self) -> Iterator[None]:
        """Rewards with the values of this step inside, and self-paced ones a step further afterwards."""
        training, rewards = self.model.training, self.reward_funcs
        self.reward_funcs = [self._of_this_step(one) for one in rewards] if training else self._final_rewards
        try:
            yield
        finally:
            self.reward_funcs = rewards
        if training and self.paces:
            # The same list in the same order on every process.
            noted = gather_object([{name: pace.noted for name, pace in self.paces.items()}])
            for name, pace in self.paces.items():
                pace.update([one for of_process in noted for one in of_process[name]])

    def _of_this_step(self, reward: Any) -> Any:
        pace = self.paces.get(reward.name) if isinstance(reward, GroundingReward) else None
        return reward if pace is None else partial(reward, pace=pace)

    def _get_train_sampler(self, dataset: Dataset | None = None) -> EpochSampler:
        theirs = super()._get_train_sampler(dataset)
        self._sampler = EpochSampler(
            theirs.data_source,
            theirs.mini_repeat_count,
            theirs.batch_size,
            theirs.repeat_count,
            theirs.shuffle,
            theirs.seed,
            stages=self.stages,
        )
        return self._sampler

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as TRL does, with hallucination rates that are exact over all processes and steps.

        Where the batch of one process has no negative image its rate is NaN, and TRL would drop the step for all.
        Completions go into the folder of the run alone, to no tracker. The rows that rewards log beside them name
        images and patients: they are not printed either, and are added to the table afterwards.
        """
        metrics = self._metrics["train" if self.model.training else "eval"]
        if not self.model.training and (answered := gather_object(self._evaluated)):
            # What the model owes to looking: its mean IoU less that of its answers dealt to other images.
            metrics["image_dependence"] = [image_dependence(answered).dependence.value]
            self._evaluated = []
        for name in self.reward_func_names:
            if negatives := metrics.get(f"{name}/negatives"):
                seen, hallucinated = sum(negatives), sum(metrics[f"{name}/hallucinated"])
                metrics[f"{name}/hallucination_rate"] = [hallucinated / seen if seen else float("nan")]
        extra = self._logs["extra"]
        rows = {name: extra.pop(name) for name in list(extra) if name.endswith(f"/{ROW_COLUMN}")}
        # By this TRL finds the trackers that get a table of completions; those that get curves are callbacks by now.
        trackers, self.args.report_to = self.args.report_to, []
        answers = self._logs["completion"]
        answers.extend([_of_one_type(answers.popleft()) for _ in range(len(answers))])
        try:
            super().log(logs, start_time)
        finally:
            self.args.report_to = trackers
            extra.update(rows)
        if rows and self.accelerator.is_main_process and self.log_completions:
            table = Path(self.args.output_dir, "completions", f"completions_{self.state.global_step:05d}.parquet")
            pandas.read_parquet(table).assign(**{name: list(rows[name]) for name in rows}).to_parquet(table)


class EpochSampler(RepeatSampler):
    """TRL's sampler with an order of images that depends on the epoch alone.

    Args:
        *args: as TRL's.
        stages: of a curriculum, which then says which images are drawn.
        **kwargs: as TRL's.
    """

    def __init__(self, *args: Any, stages: Stages | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stages, self.epoch = stages, 0

    def set_epoch(self, epoch: int) -> None:
        """Set the generator to its state at the start of this epoch, counted from 0."""
        self.epoch = epoch
        if self.shuffle:
            self.generator.manual_seed(self.seed)
            for _ in range(epoch):
                torch.randperm(self.num_samples, generator=self.generator)

    def __iter__(self) -> Iterator[int]:
        if self.stages is None:
            yield from super().__iter__()
            return
        draws = self.num_samples // self.batch_size
        for draw in range(self.epoch * draws, (self.epoch + 1) * draws):
            images = self.stages.drawn(draw)
            for _ in range(self.repeat_count):
                yield from (image for image in images for _ in range(self.mini_repeat_count))


def _look_reward(closer: LookCloser, rewards: Sequence[Any]) -> LookReward:
    """What looking earns, by the first reward on boxes."""
    ours = (one for one in rewards if isinstance(one, GroundingReward) and one.judges_boxes)
    return LookReward(closer, next(ours, None))


def _with_looks(args: GRPOConfig, closer: LookCloser) -> GRPOConfig:
    """A copy with a weight for what looking earns, and with as many turns as looks and an answer take."""
    args = copy.copy(args)
    if args.reward_weights is not None:
        args.reward_weights = [*args.reward_weights, 1.0]
    if args.max_tool_calling_iterations is None:
        # One more, for the model that is told that there are no more pictures.
        args.max_tool_calling_iterations = closer.looks + 1
    return args


def _stages(images: Dataset, curriculum: Curriculum, args: GRPOConfig) -> Stages:
    """The stages of a training; refuses images of which too few are in the first one."""
    drawn = args.generation_batch_size // args.num_generations
    draws = draws_of_training(args, images.num_rows // drawn, _batches_of_draw(args))
    seed = args.seed if args.shuffle_dataset else None
    return Stages(entering_stages(images, curriculum, args.seed), curriculum.stages, drawn, draws, seed)


def _warn_of_slow_paces(paces: Mapping[str, Pace], images: Dataset, args: GRPOConfig) -> None:
    """Warn of self-paced parameters that the training is too short for, even if everything is hit."""
    per_epoch = images.num_rows // (args.generation_batch_size // args.num_generations)
    draws = draws_of_training(args, per_epoch, _batches_of_draw(args))
    for name, pace in paces.items() if args.process_index == 0 else ():
        # After the last draw nothing is scored any more.
        for parameter, (far, to) in pace.furthest(draws - 1, args.generation_batch_size).items():
            warnings.warn(
                f"{name}: {parameter} comes to {far:g} at most, not to {to:g}, because the training has {draws} draws "
                f"of {args.generation_batch_size} completions. Train longer, or lower window, or raise by.",
                stacklevel=4,
            )


def _batches_of_draw(args: GRPOConfig) -> int:
    return args.num_iterations * args.steps_per_generation


def _answered(row: Mapping[str, Any], pred: Sequence[Sequence[float | None]]) -> AnsweredImage:
    """A row with the boxes of an answer; of several readers nobody's boxes are the image's."""
    boxes = as_box_array(row.get("boxes") or [], "boxes")
    labels = row.get("labels") or [None] * len(boxes)
    return AnsweredImage(
        str(row.get("id", "")),
        row.get("width") or 1,
        row.get("height") or 1,
        gt=boxes,
        gt_labels=tuple(label or UNNAMED for label in labels) if len(boxes) else (),
        pred=np.array(pred, dtype=np.float64).reshape(-1, 4),
        source=row.get("source"),
    )


def _image_groups(images: Dataset | None) -> ImageGroups:
    if images is None:
        return ImageGroups((), ())
    sources, labels = (images[name] if name in images.column_names else () for name in ("source", "labels"))
    return ImageGroups.of(sources, labels)


def _of_one_type(completion: Any) -> Any:
    """A logged completion whose messages fit one column of a table, whatever its tools were called with and told."""
    if not isinstance(completion, list):
        return completion
    messages = [{**one, "content": completion_text(one.get("content"))} for one in completion]
    for message in messages:
        if calls := message.get("tool_calls"):
            # As in the messages of OpenAI, arguments are JSON.
            message["tool_calls"] = [_call_of_text(call.get("function", call)) for call in calls]
    return messages


def _call_of_text(function: Mapping[str, Any]) -> dict[str, Any]:
    name, arguments = function.get("name"), function.get("arguments")
    arguments = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function", "function": {"name": str(name), "arguments": arguments}}


def _final(reward: Any) -> Any:
    return reward.final() if isinstance(reward, GroundingReward) and reward.schedules else reward


def _each(datasets: Any, prepare: Callable[[Dataset, str], Dataset]) -> Any:
    if datasets is None:
        return None
    if isinstance(datasets, Mapping):
        return {name: prepare(dataset, f"eval_dataset[{name!r}]") for name, dataset in datasets.items()}
    return prepare(datasets, "eval_dataset")


def _refuse_no_step(dataset: Dataset, args: GRPOConfig) -> None:
    """Refuse too few images: TRL drops an incomplete batch, and a run without any ends as if it had trained."""
    needed = args.generation_batch_size // args.num_generations
    if dataset.num_rows < needed:
        raise ValueError(
            f"Expected at least {needed} images for train_dataset, as many as one step generates answers to, got "
            f"{dataset.num_rows}. Add images, or lower per_device_train_batch_size, gradient_accumulation_steps or "
            "generation_batch_size."
        )


def _warn_of_long_answers(dataset: Dataset, rewards: Sequence[Any], processor: Any, args: GRPOConfig) -> None:
    """Warn of right answers that would be cut off: they earn less, and teach the model to write less."""
    limit = args.max_completion_length
    box_format = next((one.box_format for one in rewards if isinstance(one, GroundingReward)), None)
    unknown = box_format is None and "box_format" not in dataset.column_names
    if limit is None or unknown or args.process_index > 0:
        return
    lengths = answer_lengths(dataset, box_format, getattr(processor, "tokenizer", processor))
    if too_long := int((lengths > limit).sum()):
        warnings.warn(
            f"The right answer has more than max_completion_length {limit} tokens on {too_long} of {len(lengths)} "
            f"images of train_dataset, {lengths.max()} at most: it would be cut off. Raise max_completion_length.",
            stacklevel=4,
        )


def _warn_of_another_family(dataset: Dataset, rewards: Sequence[Any], model: Any, loading: Mapping[str, Any]) -> None:
    """Warn of a box format that means or writes its numbers in another way than the model's own."""
    try:
        own = get_box_format(model_format(model, loading))
    except ValueError:
        return
    column = dataset["box_format"] if "box_format" in dataset.column_names else ()
    for reward in rewards:
        for one in box_formats_of(reward.box_format, column) if isinstance(reward, GroundingReward) else ():
            if (one.space, one.order, one.syntax) != (own.space, own.order, own.syntax):
                warnings.warn(
                    f"box_format {one.name} is not the one that models of this model_type write, {own.name}: unless "
                    "this model was taught it, its boxes are misread. Leave box_format out, or begin with "
                    "`grounding-rewards sft` in this format.",
                    stacklevel=4,
                )
                return


def _name_or_path(model: Any) -> str:
    return model if isinstance(model, str) else model.config._name_or_path

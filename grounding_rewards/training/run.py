"""Run a training, GRPO or the warm start before it, in a folder that keeps what is needed to repeat it."""

import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from transformers import AutoModelForImageTextToText, EarlyStoppingCallback, ProgressCallback

import grounding_rewards.training.callbacks as callbacks
import grounding_rewards.training.model as run_model
import grounding_rewards.training.run_folder as run_folder
from grounding_rewards.common.environment import untested_vllm
from grounding_rewards.data.splits import check_patients_apart
from grounding_rewards.images.resize import largest_image, set_image_size
from grounding_rewards.logs.run_log import first_and_last
from grounding_rewards.metrics.signal import SIGNAL_KEYS
from grounding_rewards.prepare.load import load_split
from grounding_rewards.rewards.grounding import GroundingReward
from grounding_rewards.rewards.scoring import METRIC_KEYS
from grounding_rewards.training.arguments import (
    GroundingArguments,
    GRPOArguments,
    ModelArguments,
    SupervisedArguments,
    SupervisedConfig,
)
from grounding_rewards.training.grpo import GroundingGRPOTrainer
from grounding_rewards.training.run_options import AUGMENTATION
from grounding_rewards.training.sft import GroundingSFTTrainer
from grounding_rewards.training.sharding import without_zero3

# The metrics of a warm start next to its bar and in the line of an evaluation, and their names there.
_SFT_LABELS = {"loss": "loss", "mean_token_accuracy": "accuracy"}
# Endings of keys that are better when greater, and when smaller.
_GROWING_KEYS = ("reward", "/mean", "mean_iou", "f_beta", "precision", "recall", "mean_token_accuracy")
_FALLING_KEYS = ("loss", "hallucination_rate", "/unparseable", "/truncated", "frac_reward_zero_std")


def train_grpo(arguments: GroundingArguments, config: GRPOArguments, model: ModelArguments) -> GroundingGRPOTrainer:
    """Train, and write `checkpoint/`, `config.yaml`, `README.md`, `versions.json` and `log.jsonl` into `output_dir`.

    Errors that can be found without the weights are raised before these are loaded. A run that SIGTERM stops has a
    checkpoint to resume from instead of `checkpoint/`; see :func:`was_stopped`.

    Args:
        arguments: reward and images.
        config: TRL's configuration. `resume_from_checkpoint` is a folder, or `last` for the last complete
            checkpoint in `output_dir` (a run that has none yet starts from the beginning).
        model: the model, its precision and its adapters.

    Returns:
        The trainer after training.

    Raises:
        ValueError: the images or the settings do not fit, the folder holds another run, or no step could be made.
    """
    names = [reward.name for reward in arguments.rewards if isinstance(reward, GroundingReward)]
    # What an evaluation logs: the keys of TRL's trainer, then those of the rewards.
    evaluation_keys = ["loss", "reward", "reward_std", "frac_reward_zero_std", "entropy"]
    for name in names:
        evaluation_keys += [f"rewards/{name}/mean", f"rewards/{name}/std"]
    for name in names:
        evaluation_keys += [f"{name}/{key}" for key in METRIC_KEYS] + [f"{name}/signal/{key}" for key in SIGNAL_KEYS]
    # Reward functions that are not ours may log other keys.
    known_keys = evaluation_keys if len(names) == len(arguments.rewards) else None
    resolved, checkpoint, trainer_arguments = _prepare(arguments, config, model, known_keys)
    with _unknown_key_named(config):
        trainer = GroundingGRPOTrainer(**trainer_arguments, reward=list(arguments.rewards), extras=arguments.extras)
    if not arguments.parity_check:
        trainer.remove_callback(callbacks.ParityCheck)
    labels = {"reward": "reward", "image_dependence": "image dependence", "image_dependence_p": "p"}
    trainer.add_callback(callbacks.EvaluationLine(labels))
    _train(trainer, resolved, checkpoint, callbacks.bar_labels(names), arguments.early_stopping_patience)
    if not was_stopped(trainer):
        trainer.save_model(str(Path(config.output_dir, run_folder.CHECKPOINT)))
    _finish(trainer, "reward")
    return trainer


def train_supervised(
    arguments: SupervisedArguments, config: SupervisedConfig, model: ModelArguments
) -> GroundingSFTTrainer:
    """Train, and write what :func:`train_grpo` writes; with LoRA also `adapter/`, which is merged into `checkpoint/`.

    Args:
        arguments: images and augmentation.
        config: TRL's configuration.
        model: the model, its precision and its adapters.

    Returns:
        The trainer after training.

    Raises:
        ValueError: as :func:`train_grpo`, or an answer would be cut.
    """
    evaluation_keys = ("loss", "entropy", "mean_token_accuracy")
    resolved, checkpoint, trainer_arguments = _prepare(arguments, config, model, evaluation_keys)
    augmentation = {name: getattr(arguments, name) for name in AUGMENTATION}
    with _unknown_key_named(config):
        trainer = GroundingSFTTrainer(**trainer_arguments, augmentation=augmentation)
    trainer.add_callback(callbacks.EvaluationLine(_SFT_LABELS))
    _train(trainer, resolved, checkpoint, _SFT_LABELS, arguments.early_stopping_patience)
    if not was_stopped(trainer):
        _save_whole(trainer, Path(config.output_dir, run_folder.CHECKPOINT), model, arguments.save_dtype)
    _finish(trainer, "loss")
    return trainer


def was_stopped(trainer: Any) -> bool:
    """Whether SIGTERM stopped the run before its end."""
    added_callbacks = trainer.callback_handler.callbacks
    return any(callback.stopped for callback in added_callbacks if isinstance(callback, callbacks.StopOnSigterm))


def _prepare(
    arguments: GroundingArguments | SupervisedArguments,
    config: GRPOArguments | SupervisedConfig,
    model: ModelArguments,
    evaluation_keys: Sequence[str] | None,
) -> tuple[dict[str, Any], Path | None, dict[str, Any]]:
    """Make all parts of a run but its model, which is only checked, and print notes about them.

    Folder and options come first: the cheaper a check, the earlier it is made.

    Args:
        arguments: images.
        config: TRL's configuration.
        model: the model, its precision and its adapters.
        evaluation_keys: the keys that an evaluation logs; None if they are not known.

    Returns:
        The resolved configuration, the checkpoint to resume from (None for the beginning), and the arguments that both
        trainers take.
    """
    resolved = run_folder.resolved_config(arguments, config, model)
    checkpoint, start_notes = run_folder.find_start(resolved, processes=config.world_size)
    _check_best(config, evaluation_keys)
    run_model.check_installed(config, model)
    empty = run_model.check_model(model, trust_remote_code=config.trust_remote_code)
    run_model.check_optimization(config, empty)
    processor = run_model.load_run_processor(model, trust_remote_code=config.trust_remote_code)
    notes = [*start_notes, *set_image_size(processor, arguments.max_image_pixels)]
    load = partial(load_split, arguments.dataset, allow_outside=arguments.allow_outside, bad_rows=arguments.bad_rows)
    with config.main_process_first(desc="loading images"):
        train_dataset = load(arguments.train_split, max_images=arguments.train_images)
        eval_dataset = None
        if config.eval_strategy != "no":
            eval_dataset = load(arguments.eval_split, max_images=arguments.eval_images)
            check_patients_apart(train_dataset, eval_dataset)
    vllm_note = untested_vllm() if getattr(config, "use_vllm", False) else None
    if vllm_note:
        notes.append(vllm_note)
    _print_notes(config, *notes)
    config.model_init_kwargs = run_model.model_init_kwargs(model, config.model_init_kwargs)
    trainer_arguments = {
        "model": str(model.model_name_or_path),
        "args": config,
        "train_dataset": train_dataset,
        "eval_dataset": eval_dataset,
        "processing_class": processor,
        "box_format": arguments.box_format,
        "bad_rows": arguments.bad_rows,
        **run_model.adapter_and_quantisation(model),
    }
    return resolved, checkpoint, trainer_arguments


def _train(
    trainer: Any, resolved: Mapping[str, Any], checkpoint: Path | None, labels: Mapping[str, str], patience: int | None
) -> None:
    """Add the callbacks, claim the folder of the run, and train; after an error say how to go on.

    Args:
        trainer: ours, of either kind.
        resolved: the configuration of the run, for its folder and its card.
        checkpoint: from which it resumes; None for the beginning.
        labels: for :class:`callbacks.Progress`.
        patience: evaluations without improvement before it stops; None for no limit.

    Raises:
        ValueError: no step was made, or an error of the package.
        RuntimeError: any other error during the training; names the step and how to go on.
    """
    config = trainer.args
    trainer.run_config = resolved
    trainer.add_callback(callbacks.LogFile(Path(config.output_dir, run_folder.LOG)))
    trainer.add_callback(callbacks.StopOnSigterm(trainer))
    if patience is not None:
        trainer.add_callback(EarlyStoppingCallback(patience))
        # So that a resumed run goes on with the count of evaluations without improvement that its checkpoint has.
        config.restore_callback_states_from_checkpoint = True
    if not config.disable_tqdm:
        # In place of transformers' bar.
        trainer.remove_callback(ProgressCallback)
        trainer.add_callback(callbacks.Progress(labels))
    _print_notes(config, largest_image(trainer.processing_class))
    # As late as this, so that a mistake found before leaves the folder as it was.
    if trainer.is_world_process_zero():
        run_folder.claim(resolved)
    trainer.accelerator.wait_for_everyone()
    try:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        # An error of ours says what to do, and needs no more words. Some of torch begin alike, and are RuntimeErrors.
        if re.match(r"Expected .*, got ", str(error), re.DOTALL) and not isinstance(error, RuntimeError):
            raise
        # torch's error for a file that it could write only in part names its writer, `inline_container`, but no cause.
        likely_cause = " The disk is full, or a quota used up." if "inline_container" in str(error) else ""
        saved = run_folder.last_complete_checkpoint(Path(config.output_dir))
        next_run = "starts again: no checkpoint was saved yet" if saved is None else f"continues from {saved.name}"
        # Of a ValueError the command prints the message alone; of this one the traceback too.
        raise RuntimeError(
            f"the run failed at step {trainer.state.global_step}.{likely_cause} Fix the cause, then resume with "
            f"--resume_from_checkpoint last, which {next_run}"
        ) from error
    step = trainer.state.global_step
    if was_stopped(trainer):
        _print_notes(config, f"Stopped by SIGTERM after step {step}: resume with --resume_from_checkpoint last.")
    if step == 0:
        raise ValueError(
            "Expected at least one step, got none: nothing was trained. Add images, or make batches smaller."
        )


def _finish(trainer: Any, key: str) -> None:
    """Write the card and print the last line of a run, unless SIGTERM stopped it; then end all processes together.

    Args:
        trainer: after the training.
        key: of the log; the last line says how its value changed.
    """
    if not was_stopped(trainer):
        folder = Path(trainer.args.output_dir)
        checkpoint = folder / run_folder.CHECKPOINT
        trainer.create_model_card()
        if trainer.is_world_process_zero():
            shutil.copyfile(folder / run_folder.CARD, checkpoint / run_folder.CARD)
        change = first_and_last(trainer.state.log_history, key)
        change_note = f"; {key} {change}" if change else ""
        _print_notes(trainer.args, f"The model is in {checkpoint}{change_note}")
    trainer.accelerator.wait_for_everyone()
    trainer.end()


def _save_whole(trainer: Any, checkpoint: Path, model: ModelArguments, save_dtype: str | None) -> None:
    """Save the trained model and its processor as one complete checkpoint, and an adapter next to it.

    The adapter is merged into base weights of `save_dtype` or `dtype`, even if it was trained on quantised ones.

    Args:
        trainer: after the training.
        checkpoint: the folder to write.
        model: the model and its adapter.
        save_dtype: the type of the saved weights; None for that of training.
    """
    # With an adapter `save_model` saves the adapter alone, next to the checkpoint.
    trained = checkpoint.with_name(run_folder.ADAPTER) if model.use_peft else checkpoint
    trainer.save_model(str(trained))
    trainer.accelerator.wait_for_everyone()
    # What is left to do is to merge an adapter, or to save whole weights again in another type.
    if trainer.is_world_process_zero() and (model.use_peft or save_dtype is not None):
        # The first process alone loads it, which under ZeRO-3 would wait for the others.
        with without_zero3():
            merged_model = AutoModelForImageTextToText.from_pretrained(
                str(model.model_name_or_path if model.use_peft else checkpoint),
                revision=model.model_revision,
                dtype=save_dtype or model.dtype,
                use_safetensors=True,
                trust_remote_code=trainer.args.trust_remote_code,
            )
        if model.use_peft:
            from peft import PeftModel

            merged_model = PeftModel.from_pretrained(merged_model, str(trained)).merge_and_unload()
        merged_model.save_pretrained(checkpoint)
        trainer.processing_class.save_pretrained(checkpoint)
    trainer.accelerator.wait_for_everyone()


@contextmanager
def _unknown_key_named(config: GRPOArguments | SupervisedConfig) -> Iterator[None]:
    """A context in which an unknown key of `model_init_kwargs` raises ValueError: only the model knows its keys."""
    try:
        yield
    except TypeError as error:
        match = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if match is None or match[1] not in (config.model_init_kwargs or ()):
            raise
        raise ValueError(
            f"Expected keywords that exist in model_init_kwargs, got {match[1]}. Remove it, or correct its spelling."
        ) from error


def _check_best(config: GRPOArguments | SupervisedConfig, evaluation_keys: Sequence[str] | None) -> None:
    """Refuse a `metric_for_best_model` that no evaluation logs, and a `greater_is_better` that keeps the worst model.

    Where `greater_is_better` is not set, transformers takes every metric but a loss as better when greater.

    Args:
        config: TRL's configuration.
        evaluation_keys: the keys that an evaluation logs; None if they are not known.
    """
    metric = config.metric_for_best_model
    if metric is None:
        return
    if evaluation_keys is not None and metric.removeprefix("eval_") not in evaluation_keys:
        keys = ", ".join(evaluation_keys)
        raise ValueError(f"Expected one of {keys} for metric_for_best_model, got {metric!r}. Choose one of these.")
    for endings, grows in ((_GROWING_KEYS, True), (_FALLING_KEYS, False)):
        # A key with neither ending may be meant either way.
        if metric.endswith(endings) and config.greater_is_better not in (None, grows):
            raise ValueError(
                f"Expected greater_is_better: {str(grows).lower()} for metric_for_best_model {metric}, got "
                f"{str(not grows).lower()}. The worst model would be kept: set it."
            )


def _print_notes(config: Any, *lines: str) -> None:
    """Print lines to the standard error, only on the first process."""
    if config.process_index == 0:
        for line in lines:
            print(line, file=sys.stderr, flush=True)

"""Trainers whose resumed run equals an uninterrupted one: the same weights, images, samples and logged numbers.

Five things prevent this in transformers and TRL (seen in transformers 5.18 to 5.23 and TRL 1.16):

  * `Trainer._load_from_checkpoint` loads the file of a checkpoint without renaming and not strictly. `save_pretrained`
    writes the weights of many vision-language models under their published names (`visual.*`), not those in memory
    (`model.visual.*`): nothing is loaded, and the run continues from the base model. `load_best_model_at_end` does the
    same. Here `from_pretrained`, which knows both names, loads the weights, and every key must match.
  * GRPO's sampler draws the order of an epoch from the current state of its generator, which a resumed run resets.
  * Completions that are reused for several steps, and metrics that are not logged yet, are lost; so is the loss of the
    steps before the checkpoint, which belongs to the `train_loss` of the last line.
  * A run that has made all its `max_steps` makes one more before `Trainer` compares the numbers.
  * The first process may mark a checkpoint as complete before the others have written their part.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import is_peft_model
from transformers import TrainerCallback, TrainerState
from transformers.trainer_utils import get_last_checkpoint
from transformers.utils import logging
from trl.trainer.utils import RepeatSampler

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# At run time the trainer, which comes after the mix-in in the list of bases.
_Trainer: Any = object


class ExactResume(_Trainer):
    """Mix-in for TRL's trainers, before them in the list of bases."""

    _resumed_from: Path | None = None
    _has_whole_loss: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_callback(_Restore(self))

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As `Trainer.train`; a resumed run equals an uninterrupted one, and a finished run makes no step."""
        if resume_from_checkpoint is True:
            # If there is no checkpoint, True stays, which `Trainer` refuses.
            resume_from_checkpoint = get_last_checkpoint(self.args.output_dir) or True
        self._resumed_from = None if isinstance(resume_from_checkpoint, bool | None) else Path(resume_from_checkpoint)
        # Is the run finished? Not asked under FSDP and DeepSpeed: there only `Trainer.train` can load the weights.
        if self._resumed_from is not None and not (self.is_fsdp_enabled or self.is_deepspeed_enabled):
            state = TrainerState.load_from_json(str(self._resumed_from / "trainer_state.json"))
            if 0 < self.args.max_steps <= state.global_step:
                # All steps are made, and `Trainer` would make one more: load what it would end with.
                self._load_from_checkpoint(str(self._resumed_from))
                self.state = state
                if self.args.load_best_model_at_end and state.best_model_checkpoint is not None:
                    self._load_best_model()
                return None
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def start_epoch(self, epoch: int) -> None:
        """Called at the start of every epoch, and after resuming, with its number from 0."""

    def unfinished(self) -> dict[str, Any]:
        """What the next steps of this process need and no checkpoint of TRL holds, as plain values and tensors."""
        return {
            "processes": self.args.world_size,
            "metrics": dict(self._metrics["train"]),
            "tokens": self._total_train_tokens,
            "loss": float(self._tr_loss),
            "logged_loss": self._total_loss_scalar,
            "last_logged": self._globalstep_last_logged,
        }

    def restore(self, unfinished: Mapping[str, Any], *, is_own: bool) -> None:
        """Restore the state from :meth:`unfinished`.

        Args:
            unfinished: the state that one process saved.
            is_own: whether this process saved it; otherwise only what all processes have alike is restored.
        """
        self._total_loss_scalar = unfinished["logged_loss"]
        # The loss now has the steps before the checkpoint too: :meth:`log` divides it by all steps.
        self._has_whole_loss = True
        if is_own:
            self._metrics["train"] = defaultdict(list, unfinished["metrics"])
            self._total_train_tokens = unfinished["tokens"]
            self._tr_loss = torch.tensor(unfinished["loss"], device=self.args.device)
            self._globalstep_last_logged = unfinished["last_logged"]

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As `Trainer.log`; the `train_loss` of a resumed run is the mean over all of its steps."""
        # `Trainer` divides the loss, which was restored whole, by the steps since the run was resumed.
        if "train_loss" in logs and self._has_whole_loss:
            logs["train_loss"] = self._total_loss_scalar / self.state.global_step
        super().log(logs, *args, **kwargs)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """As `Trainer`, but refuse a checkpoint that lacks weights of the model or has others.

        `Trainer` would pass over the published names under which many models are saved, and load nothing.
        """
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            # These save and load by the names in memory, so that nothing is passed over.
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        else:
            load_weights(self.model if model is None else model, Path(resume_from_checkpoint))

    def _load_best_model(self) -> None:
        """As `Trainer`, but refuse a checkpoint that lacks weights of the model or has others."""
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            # These save and load by the names in memory, so that all match.
            super()._load_best_model()
        else:
            load_weights(self.model, Path(str(self.state.best_model_checkpoint)))

    def _save_rng_state(self, output_dir: str) -> None:
        """As `Trainer`; save also the state from :meth:`unfinished`, on every process.

        `Trainer` calls this before the first process marks the checkpoint as complete.
        """
        super()._save_rng_state(output_dir)
        torch.save(self.unfinished(), _unfinished_file(Path(output_dir), self.args.process_index))
        self.accelerator.wait_for_everyone()

    def restore_unfinished(self) -> None:
        """Restore the state from :meth:`unfinished` that the checkpoint holds; warn if it holds none."""
        if self._resumed_from is None:
            return
        file = _unfinished_file(self._resumed_from, self.args.process_index)
        if not file.is_file():
            # The earlier run had fewer processes. The file of the first has what all processes have alike.
            file = _unfinished_file(self._resumed_from, 0)
        if not file.is_file():
            if self.is_world_process_zero():
                warnings.warn(
                    f"The checkpoint {str(self._resumed_from)!r} has no {file.name}: buffered completions, metrics "
                    "since the last logged line and the state of self-paced parameters are lost, so the resumed run "
                    "will differ. Copy the file too, or resume from another checkpoint.",
                    stacklevel=2,
                )
            return
        unfinished = torch.load(file, map_location=self.args.device, weights_only=True)
        # With another number of processes none takes its own state, even if it has one: those that had completions left
        # would not generate, and the others would wait for them forever.
        self.restore(unfinished, is_own=unfinished["processes"] == self.args.world_size)


class _Restore(TrainerCallback):
    """Calls the trainer when training begins, and when an epoch does."""

    def __init__(self, trainer: ExactResume) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Restore what the checkpoint holds beside TRL's state: by now `Trainer` has reset what it counts anew."""
        self.trainer.restore_unfinished()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tell the trainer the number of the epoch."""
        # The epoch is a sum of fractions: allow for rounding.
        self.trainer.start_epoch(int((state.epoch or 0.0) + 1e-6))


def set_epoch(sampler: RepeatSampler, epoch: int) -> None:
    """Set the generator of a sampler to the state that it has at the start of this epoch, counted from 0."""
    # Without shuffling no random number is drawn.
    if sampler.shuffle:
        sampler.generator.manual_seed(sampler.seed)
        # TRL's sampler draws one order of the rows in each epoch: draw those of the earlier epochs again.
        for _ in range(epoch):
            torch.randperm(sampler.num_samples, generator=sampler.generator)


def load_weights(model: Any, folder: Path) -> None:
    """Load the weights of a checkpoint into a model; their names must match exactly.

    Args:
        model: a transformers model, or a PEFT model whose adapter is loaded.
        folder: what `save_pretrained` of such a model wrote.

    Raises:
        ValueError: the checkpoint cannot be read, or lacks weights of the model, or has others; names both.
    """
    if is_peft_model(model):
        _load_adapter(model, folder)
    else:
        _load_model(model, folder)


def _load_model(model: PreTrainedModel, folder: Path) -> None:
    """Load the weights of a whole model; see :func:`load_weights`."""
    # Load all weights in the widest of their types, from which each converts back to its own without loss.
    widest = max({weight.dtype for weight in model.parameters()}, key=lambda dtype: dtype.itemsize)
    verbosity = logging.get_verbosity()
    # transformers would print a table of the keys that the error below names.
    logging.set_verbosity_error()
    try:
        loaded, report = type(model).from_pretrained(
            folder, dtype=widest, output_loading_info=True, ignore_mismatched_sizes=True, use_safetensors=True
        )
    except Exception as error:  # OSError, SafetensorError and others, which do not name the folder
        raise _unreadable(folder, error) from error
    finally:
        logging.set_verbosity(verbosity)
    reshaped = [key for key, *_ in report["mismatched_keys"]]
    _refuse_other_keys(folder, report["missing_keys"], report["unexpected_keys"], reshaped)
    model.load_state_dict(loaded.state_dict(), strict=True)


def _load_adapter(model: Any, folder: Path) -> None:
    """Load the weights of the adapter of a PEFT model; see :func:`load_weights`."""
    from peft import get_peft_model_state_dict, set_peft_model_state_dict
    from peft.utils import load_peft_weights

    adapter = model.active_adapter
    try:
        weights = load_peft_weights(str(folder), device="cpu")
    except Exception as error:
        # OSError, SafetensorError and others, which do not name the folder. For a folder without an adapter PEFT also
        # looks on the hub.
        raise _unreadable(folder, error) from error
    expected = get_peft_model_state_dict(model, adapter_name=adapter)
    _refuse_other_keys(folder, expected.keys() - weights.keys(), weights.keys() - expected.keys())
    try:
        set_peft_model_state_dict(model, weights, adapter_name=adapter)
    except RuntimeError as error:
        raise _unreadable(folder, error) from error


def _unreadable(folder: Path, error: Exception) -> ValueError:
    """The error to raise for a checkpoint whose weights could not be loaded; names the folder and the cause."""
    # In one line, and cut: torch lists every weight of a model in a line of its own.
    cause = " ".join(str(error).split())[:300]
    return ValueError(
        f"Expected the weights of this model in the checkpoint {str(folder)!r}, got {type(error).__name__}: "
        f"{cause}. Resume from another checkpoint, or start again with --overwrite."
    )


def _refuse_other_keys(
    folder: Path, missing: Collection[str], unknown: Collection[str], reshaped: Collection[str] = ()
) -> None:
    """Refuse a checkpoint if it lacks weights of the model, or has unknown ones or ones of another shape."""
    differences = []
    for kind, keys in (("missing", missing), ("unknown", unknown), ("reshaped", reshaped)):
        if keys:
            # A model has hundreds of keys: three show which ones they are.
            differences.append(f"{len(keys)} {kind} weights ({', '.join(sorted(keys)[:3])})")
    if differences:
        raise ValueError(
            f"Expected the weights of this model in the checkpoint {str(folder)!r}, got one with "
            f"{', '.join(differences)}. It belongs to another model or adapter, or is damaged. Resume from another, or "
            "start with --overwrite."
        )


def _unfinished_file(folder: Path, process: int) -> Path:
    """Where a checkpoint holds the state from :meth:`ExactResume.unfinished` of one process."""
    return folder / f"unfinished_{process}.pt"

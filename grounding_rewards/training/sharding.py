"""Save, generate and build with weights that several processes share (ZeRO, FSDP2), where TRL and transformers fail.

Seen in transformers 5.24 and TRL 1.16:

  * While ZeRO-3 is configured, transformers spreads every model over the processes as it is built. A model without
    weights cannot be spread, and a process that builds one alone waits for the others for ever.
  * ZeRO-3 saves names that the original checkpoint does not have (`model.model.layers…`), which transformers reads and
    vLLM refuses. ZeRO-2 and FSDP2 save tied weights twice.
  * FSDP2 gathers the weights outside of layers (of image patches, of the projector) in `forward` alone, and `generate`
    encodes an image before it calls that: the second step fails.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from accelerate.utils import is_peft_model
from torch.distributed.fsdp import register_fsdp_forward_method
from transformers import TrainerCallback
from transformers.integrations import deepspeed

# At run time the trainer, which comes after the mix-in in the list of bases.
_Trainer: Any = object


class SharedWeights(_Trainer):
    """Mix-in for TRL's trainers, before them in the list of bases."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_callback(GatherToGenerate())

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """As TRL does; with the published names of the weights, and tied weights only once."""
        # Without weights handed over, or for an adapter, TRL saves both rightly.
        if state_dict is not None and not is_peft_model(self.model):
            conversions = getattr(self.model, "_weight_conversions", None)
            if conversions is not None:
                # Saving reverses the renamings of loading. With ZeRO-3 it reverses those that renamed nothing, too: the
                # names would be others than those of the original checkpoint.
                self.model._weight_conversions = [conversion for conversion in conversions if conversion.was_used()]
            tied = self.model.all_tied_weights_keys
            state_dict = {name: weight for name, weight in state_dict.items() if name not in tied}
        super()._save(output_dir, state_dict)


class GatherToGenerate(TrainerCallback):
    """Lets FSDP2 gather weights in `generate` as in `forward`; without FSDP2 nothing changes."""

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Register `generate` as a forward method of FSDP2."""
        register_fsdp_forward_method(model, "generate")


@contextmanager
def without_zero3() -> Iterator[None]:
    """A context in which models are built and loaded whole in this process, even if ZeRO-3 is configured."""
    # transformers asks this reference whether ZeRO-3 is on.
    config_reference = deepspeed._hf_deepspeed_config_weak_ref
    deepspeed._hf_deepspeed_config_weak_ref = None
    try:
        yield
    finally:
        deepspeed._hf_deepspeed_config_weak_ref = config_reference

"""Weights that several processes share (ZeRO, FSDP2): what TRL and transformers leave to do.

Seen in transformers 5.24 and TRL 1.16:

  * While ZeRO-3 is configured, transformers spreads every model over the processes as it is built. A model without
    weights cannot be spread, and one that a single process builds waits for the others for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transformers.integrations import deepspeed


@contextmanager
def without_zero3() -> Iterator[None]:
    """Build and load models whole in this process, also where ZeRO-3 is configured."""
    kept = deepspeed._hf_deepspeed_config_weak_ref
    deepspeed._hf_deepspeed_config_weak_ref = None
    try:
        yield
    finally:
        deepspeed._hf_deepspeed_config_weak_ref = kept

"""Load a checkpoint, or an adapter with its base model, with transformers or vLLM."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from grounding_rewards.common.legal import check_word
from grounding_rewards.common.shipped import find_shipped
from grounding_rewards.models.place import ADAPTER, adapter_config, check_place

#: What can generate answers; `auto` is vLLM where it is installed and there is a GPU, else transformers.
BACKENDS = ("transformers", "vllm", "auto")

_SMALL_MODEL = 20_000_000
# How long a process waits for one that has more to generate; the default of some minutes is too short.
_PATIENCE = timedelta(days=7)
_PROCESSORS = ("processor_config.json", "preprocessor_config.json")


@dataclass
class UnloadedModel:
    """A model that is loaded when it is asked.

    Attributes:
        path: folder or name on the hub.
        backend: that runs it, `transformers` or `vllm`.
    """

    path: str
    backend: str = "transformers"
    _loaded: Any = field(default=None, init=False, repr=False, compare=False)

    def load(self) -> Any:
        """The model, in this process; it is loaded once."""
        if self._loaded is None:
            self._loaded, _ = load_model(self.path, backend=self.backend)
        return self._loaded


def choose_backend(backend: str) -> str:
    """`transformers` or `vllm`, where `auto` may be given.

    Raises:
        ValueError: an unknown name, or vLLM that is not installed.

    Example:
        >>> choose_backend("transformers")
        'transformers'
    """
    check_word("backend", backend, BACKENDS)
    installed = find_spec("vllm") is not None
    if backend == "vllm" and not installed:
        raise ValueError(
            "Expected vLLM to be installed for `backend`, got none. Install it with `pip install vllm`, "
            "or use transformers."
        )
    if backend == "auto":
        import torch

        return "vllm" if installed and torch.cuda.is_available() else "transformers"
    return backend


def load_model(path: str | Path, *, backend: str = "transformers") -> tuple[Any, Any]:
    """A model and its processor: bfloat16 on a GPU where there is one, else float32 on the CPU.

    Each of several processes on one machine takes its own GPU. For a small model on the CPU the whole process is
    limited to one thread. An adapter is merged into its base model if its kind can be merged.

    Args:
        path: folder or name on the hub of a checkpoint, or of an adapter that PEFT saved.
        backend: one of :data:`BACKENDS`; for vLLM the model is a ``VllmModel``, see ``vllm_backend.py``.

    Raises:
        ValueError: there is no such folder or no model in it, the base model of an adapter is not where the adapter
            says, vLLM is to load an adapter or to run in several processes, or it is not installed.
        OSError: there is no model of this name on the hub.
    """
    path = find_shipped(path)
    check_place(path)
    adapter = adapter_config(path)
    if choose_backend(backend) == "vllm":
        from grounding_rewards.models.vllm_backend import load_vllm

        _check_for_vllm(path, adapter)
        with _without_code_of_its_own(path):
            return load_vllm(str(path)), _processor(path, path)
    import torch

    gpu = torch.cuda.is_available()
    model, processor = _load_with_transformers(path, adapter, torch.bfloat16 if gpu else torch.float32)
    if not gpu and model.num_parameters() < _SMALL_MODEL:
        # Its operations are too short to parallelise: several threads make it slower, on a busy machine much slower.
        torch.set_num_threads(1)
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if gpu else torch.device("cpu")
    return model.to(device), processor


def load_later(path: str | Path, *, backend: str = "transformers") -> tuple[UnloadedModel, Any]:
    """A model that is not loaded before it is asked, and its processor, which is.

    Args:
        path: as for :func:`load_model`.
        backend: likewise.

    Raises:
        ValueError: as :func:`load_model`.
        OSError: there is no model of this name on the hub.
    """
    path = find_shipped(path)
    check_place(path)
    adapter = adapter_config(path)
    backend = choose_backend(backend)
    if backend == "vllm":
        _check_for_vllm(path, adapter)
    processor = _processor(path, path if adapter is None else _base_of(path, adapter))
    return UnloadedModel(str(path), backend), processor


def model_type_of(path: str | Path) -> str:
    """The `model_type` of a checkpoint, or of the model under an adapter, from its configuration alone.

    Raises:
        ValueError: as :func:`load_model`.
        OSError: there is no model of this name on the hub.
    """
    from transformers import AutoConfig

    path = find_shipped(path)
    check_place(path)
    adapter = adapter_config(path)
    place = path if adapter is None else _base_of(path, adapter)
    with _without_code_of_its_own(place):
        return AutoConfig.from_pretrained(place, trust_remote_code=False).model_type


def process_state() -> Any:
    """Accelerate's ``PartialState``: the number of this process and how many there are; over gloo without a GPU.

    Example:
        >>> state = process_state()
        >>> state.num_processes, state.is_main_process
        (1, True)
    """
    import torch
    from accelerate import PartialState

    state = PartialState(cpu=not torch.cuda.is_available(), timeout=_PATIENCE)
    launched = int(os.environ.get("WORLD_SIZE", 1))
    if state.num_processes != launched:
        # Every process would do all the work, and write into the same file.
        raise RuntimeError(
            f"Expected {launched} processes, as the launcher started, got {state.num_processes}. "
            "Make no PartialState or Accelerator before the first call of process_state()."
        )
    return state


@contextmanager
def _without_code_of_its_own(path: str | Path) -> Iterator[None]:
    """transformers' advice, where a model brings its code, is an argument that no command has; left out, it asks."""
    try:
        yield
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise ValueError(
            f"Expected a model that transformers itself has for {str(path)!r}, got one that brings its own code, which "
            "is not run. Take one that transformers has, or log its answers yourself and give --completions."
        ) from error


def _load_with_transformers(path: str | Path, adapter: dict[str, Any] | None, dtype: Any) -> tuple[Any, Any]:
    from transformers import AutoModelForImageTextToText

    place = path if adapter is None else _base_of(path, adapter)
    try:
        with _without_code_of_its_own(place):
            model = AutoModelForImageTextToText.from_pretrained(
                place, dtype=dtype, use_safetensors=True, trust_remote_code=False
            )
    except OSError as error:
        if adapter is None:
            raise
        raise ValueError(
            f"Expected the model under the adapter {str(path)!r} at {place!r}, got none. Put it there, or correct "
            f"`base_model_name_or_path` in {ADAPTER}."
        ) from error
    if adapter is not None:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, path)
        # Prompt tuning and the like change no weights and cannot be merged.
        if hasattr(model.base_model, "merge_and_unload"):
            model = model.merge_and_unload()
    return model, _processor(path, place)


def _processor(path: str | Path, base: str | Path) -> Any:
    from transformers import AutoProcessor
    from transformers.utils import has_file

    # Trainers save the processor beside the adapter; PEFT alone does not.
    own = path == base or any(has_file(path, name) for name in _PROCESSORS)
    place = path if own else base
    with _without_code_of_its_own(place):
        return AutoProcessor.from_pretrained(place, trust_remote_code=False)


def _check_for_vllm(path: str | Path, adapter: dict[str, Any] | None) -> None:
    if adapter is not None:
        raise ValueError(
            f"Expected a whole checkpoint for the vllm backend, got the adapter {str(path)!r}. Merge it first, "
            "`load_model(path)[0].save_pretrained(folder)`, or use transformers."
        )
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise ValueError(
            f"Expected one process for the vllm backend, got {os.environ['WORLD_SIZE']}. "
            "Start it without a launcher, or use transformers."
        )


def _base_of(path: str | Path, adapter: dict[str, Any]) -> str:
    base = adapter.get("base_model_name_or_path")
    if not base:
        raise ValueError(
            f"Expected `base_model_name_or_path` in {ADAPTER} of {str(path)!r}, got {base!r}. "
            "Write the folder or name of the model that the adapter was trained on."
        )
    return str(base)

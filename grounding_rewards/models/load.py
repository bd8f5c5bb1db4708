"""Load a checkpoint, or an adapter with its base model, with transformers or vLLM.

What a path holds, and whether it is the same model as an earlier one, is checked without loading it.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from grounding_rewards.common.config_files import find_shipped
from grounding_rewards.common.validation import check_word

#: The libraries that can generate answers; `auto` is vLLM if it is installed and there is a GPU, else transformers.
BACKENDS = ("transformers", "vllm", "auto")

# By one of these files a folder holds a processor.
_PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json")

CONFIG = "config.json"
"""The file that makes a folder a checkpoint."""

ADAPTER = "adapter_config.json"
"""The file that makes a folder an adapter that PEFT saved."""

# Files of weights before safetensors, and the files that transformers and PEFT read in their place if they exist.
_PICKLED = {"pytorch_model*.bin": "*.safetensors", "adapter_model.bin": "adapter_model.safetensors"}
_NAME_ON_HUB = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class VllmModel:
    """A model in vLLM, with the same configurations as a transformers model.

    Attributes:
        llm: the ``vllm.LLM``.
        config: the model's configuration.
        generation_config: has the tokens that end an answer.
    """

    llm: Any
    config: Any
    generation_config: Any


@dataclass
class UnloadedModel:
    """A model that is loaded at the first call of :meth:`load`.

    Attributes:
        path: folder or name on the hub.
        model_type: in its configuration, or that of the model under an adapter.
        backend: `transformers` or `vllm`.
        vllm_options: options of vLLM, unused with transformers.
    """

    path: str
    model_type: str
    backend: str
    vllm_options: Mapping[str, Any]
    _loaded: Any = field(default=None, init=False, repr=False, compare=False)

    def load(self) -> Any:
        """The model, in this process; it is loaded once."""
        if self._loaded is None:
            adapter = adapter_config(self.path)
            with _errors_explained(self.path, adapter):
                if self.backend == "vllm":
                    self._loaded = _load_with_vllm(self.path, self.vllm_options)
                else:
                    self._loaded = _load_with_transformers(self.path, adapter)
        return self._loaded


def check_place(path: str | Path, argument: str = "path") -> None:
    """Refuse a path that is neither a folder with a model nor a possible name on the hub.

    Args:
        path: folder, or name on the hub.
        argument: the name of the argument, for the message.

    Raises:
        ValueError: it is neither of these, or the folder has only pickled weights, which may hold a program.

    Example:
        >>> check_place("Qwen/Qwen2.5-VL-3B-Instruct")
        >>> check_place("no/such/folder")
        Traceback (most recent call last):
        ValueError: Expected a folder, or a name on the hub such as Qwen/Qwen2.5-VL-3B-Instruct, for `path`, got \
'no/such/folder', which is neither. Check the path.
    """
    folder = Path(path)
    if not folder.is_dir():
        if not _NAME_ON_HUB.fullmatch(str(path)):
            raise ValueError(
                f"Expected a folder, or a name on the hub such as Qwen/Qwen2.5-VL-3B-Instruct, for `{argument}`, got "
                f"{str(path)!r}, which is neither. Check the path."
            )
        return
    if not Path(folder, CONFIG).is_file() and not Path(folder, ADAPTER).is_file():
        raise ValueError(
            f"Expected {CONFIG} or {ADAPTER} in the folder of a model, got neither in {str(path)!r}. "
            "Give the folder that the weights were saved in, such as run/checkpoint."
        )
    for pattern, safe_pattern in _PICKLED.items():
        pickled = sorted(folder.glob(pattern))
        # Beside safe files the pickled ones are not read.
        if pickled and not any(folder.glob(safe_pattern)):
            raise ValueError(
                f"Expected weights as *.safetensors in {str(path)!r}, got {pickled[0].name}, which may hold a program. "
                "Where you trust it, load it with transformers and save_pretrained it again."
            )


def check_weights(path: str | Path) -> None:
    """Refuse files of weights that a copy or a download left unfinished; only headers and sizes are read.

    Args:
        path: folder; a name on the hub is not checked.

    Raises:
        ValueError: a file is cut, is something else, or is missing; it is named.

    Example:
        >>> check_weights(find_shipped("assets/tiny_vlm"))
    """
    from safetensors import SafetensorError, safe_open

    folder = Path(path)
    fault = ""
    for file in sorted(folder.glob("*.safetensors")):
        try:
            # Opening compares the header with the size of the file.
            with safe_open(file, framework="np"):
                pass
        except SafetensorError as error:
            fault = f"{file.name}, which is cut, or no safetensors file ({error})"
    for index in folder.glob("*.safetensors.index.json"):
        for shard in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values():
            if not (folder / shard).is_file():
                fault = f"{shard}, which is missing"
    if fault:
        raise ValueError(f"Expected whole weights in {str(folder)!r}, got {fault}. Copy or download it again.")


def adapter_config(path: str | Path) -> dict[str, Any] | None:
    """The configuration of an adapter that PEFT saved; None for a checkpoint.

    Args:
        path: folder, or name on the hub.
    """
    from transformers.utils import find_adapter_config_file

    # With config.json it is a checkpoint, even next to an adapter, which transformers then loads itself.
    if Path(path, CONFIG).is_file():
        return None
    file = find_adapter_config_file(str(path))
    return None if file is None else json.loads(Path(file).read_text(encoding="utf-8"))


def digest_of_weights(path: str | Path) -> str:
    """A digest of all weights of a model, which is not loaded: models with the same digest are the same.

    The digest of an adapter is made of its weights, its settings and its base model; that of a name on the hub, of the
    name and the version in the cache. Paths and times of files do not matter.

    Args:
        path: folder, or name on the hub, that :func:`check_place` lets pass.

    Returns:
        16 hexadecimal digits.
    """
    digest = hashlib.sha256()
    adapter = adapter_config(path)
    if adapter is not None:
        digest.update(json.dumps(adapter, sort_keys=True).encode())
        base = adapter.get("base_model_name_or_path")
        if base:
            digest.update(digest_of_weights(base).encode())
    if not Path(path).is_dir():
        from transformers.utils import cached_file

        # The cache has the file at .../snapshots/VERSION/config.json.
        version = Path(cached_file(str(path), CONFIG if adapter is None else ADAPTER)).parent.name
        digest.update(f"{path} {version}".encode())
    for file in sorted(Path(path).glob("*.safetensors")):
        with file.open("rb") as content:
            # The whole file: two models may differ in a few rows of one weight. It takes less time than loading.
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()[:16]


def choose_backend(backend: str) -> str:
    """Turn the name of a backend, also `auto`, into `transformers` or `vllm`.

    Raises:
        ValueError: an unknown name, or vLLM that is not installed.

    Example:
        >>> choose_backend("transformers")
        'transformers'
    """
    check_word("backend", backend, BACKENDS)
    is_installed = find_spec("vllm") is not None
    if backend == "vllm" and not is_installed:
        raise ValueError(
            "Expected vLLM to be installed for `backend`, got none. Install it with `pip install vllm`, "
            "or use transformers."
        )
    if backend != "auto":
        return backend
    import torch

    return "vllm" if is_installed and torch.cuda.is_available() else "transformers"


def load_model(
    path: str | Path, *, backend: str = "transformers", vllm_options: Mapping[str, Any] | None = None
) -> tuple[Any, Any]:
    """Load a model and its processor: in bfloat16 on a GPU if there is one, else in float32 on the CPU.

    A small model on the CPU limits the whole process to one thread. An adapter is merged into its base model if its
    kind can be merged.

    Args:
        path: folder or name on the hub of a checkpoint, or of an adapter that PEFT saved.
        backend: one of :data:`BACKENDS`; for vLLM the model is a :class:`VllmModel`.
        vllm_options: arguments of ``vllm.LLM``, such as ``max_model_len`` and ``tensor_parallel_size``.

    Raises:
        ValueError: there is no such folder or no whole model in it, the base model of an adapter is not where the
            adapter says, there are several processes, vLLM is to load an adapter, it is not installed, or there are
            options of vLLM for another backend.
        OSError: there is no model of this name on the hub.
    """
    model, processor = load_later(path, backend=backend, vllm_options=vllm_options)
    return model.load(), processor


def load_later(
    path: str | Path, *, backend: str = "transformers", vllm_options: Mapping[str, Any] | None = None
) -> tuple[UnloadedModel, Any]:
    """Check a model and load its processor; return both, the model to be loaded when it is needed.

    Args:
        path: as for :func:`load_model`.
        backend: as for :func:`load_model`.
        vllm_options: as for :func:`load_model`.

    Raises:
        ValueError: as :func:`load_model`.
        OSError: there is no model of this name on the hub.
    """
    path = find_shipped(path)
    check_place(path)
    check_weights(path)
    adapter = adapter_config(path)
    backend = choose_backend(backend)
    if vllm_options is not None and backend != "vllm":
        raise ValueError(f"Expected vllm for `backend` beside `vllm_options`, got {backend}. Leave one of them out.")
    if backend == "vllm" and adapter is not None:
        raise ValueError(
            f"Expected a whole checkpoint for the vllm backend, got the adapter {str(path)!r}. Merge it first, "
            "`load_model(path)[0].save_pretrained(folder)`, or use transformers."
        )
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        # Every process would do all the work, and write into the same file.
        raise ValueError(
            f"Expected one process that asks a model, got {os.environ['WORLD_SIZE']}. Start it without a launcher."
        )
    from transformers import AutoConfig, AutoProcessor
    from transformers.utils import has_file

    # The model under an adapter, or the checkpoint itself.
    processor_path = _base_path(path, adapter)
    with _errors_explained(path, adapter):
        # Before the processor: a model that brings its own code is refused for that, whatever its processor lacks.
        model_type = AutoConfig.from_pretrained(processor_path, trust_remote_code=False).model_type
    # Trainers save the processor next to the adapter; PEFT alone does not.
    if adapter is not None and any(has_file(path, name) for name in _PROCESSOR_FILES):
        processor_path = str(path)
    with _errors_explained(path, adapter):
        processor = AutoProcessor.from_pretrained(processor_path, trust_remote_code=False)
    return UnloadedModel(str(path), model_type, backend, vllm_options or {}), processor


@contextmanager
def _errors_explained(path: str | Path, adapter: dict[str, Any] | None) -> Iterator[None]:
    """A context in which errors of transformers about a model name its path and what to do.

    Args:
        path: of the model, or of the adapter.
        adapter: from :func:`adapter_config`; None for a checkpoint.
    """
    try:
        yield
    except ValueError as error:
        # transformers advises to set an argument that no command here has.
        if "trust_remote_code" not in str(error):
            raise
        raise ValueError(
            f"Expected a model that transformers itself has for {str(path)!r}, got one that brings its own code, which "
            "is not run. Take one that transformers has, or log its answers yourself and give --completions."
        ) from error
    except OSError as error:
        # The error for a checkpoint names the path that the user gave; that for an adapter would name another one.
        if adapter is None:
            raise
        raise ValueError(
            f"Expected the model under the adapter {str(path)!r} at {_base_path(path, adapter)!r}, got none. Put it "
            f"there, or correct `base_model_name_or_path` in {ADAPTER}."
        ) from error


def _load_with_vllm(path: str, options: Mapping[str, Any]) -> VllmModel:
    """Start vLLM with a checkpoint, and return it with the configurations that a transformers model has."""
    from transformers import AutoConfig, GenerationConfig
    from vllm import LLM

    config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    try:
        generation = GenerationConfig.from_pretrained(path)
    except OSError:
        # Without generation_config.json, transformers derives it from config.json.
        generation = GenerationConfig.from_model_config(config)
    # vLLM keeps memory for as many images as a prompt may have: one.
    llm = LLM(model=path, limit_mm_per_prompt={"image": 1}, **options)
    return VllmModel(llm, config, generation)


def _load_with_transformers(path: str, adapter: dict[str, Any] | None) -> Any:
    """Load a checkpoint, or an adapter with its base model, onto the device of this process, and return the model."""
    import torch
    from transformers import AutoModelForImageTextToText

    has_gpu = torch.cuda.is_available()
    model = AutoModelForImageTextToText.from_pretrained(
        _base_path(path, adapter),
        dtype=torch.bfloat16 if has_gpu else torch.float32,
        use_safetensors=True,
        trust_remote_code=False,
    )
    if adapter is not None:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, path)
        # Prompt tuning and the like change no weights and cannot be merged.
        if hasattr(model.base_model, "merge_and_unload"):
            model = model.merge_and_unload()
    if not has_gpu and model.num_parameters() < 20_000_000:
        # Its operations are too short to parallelise: several threads make it slower, on a busy machine much slower.
        torch.set_num_threads(1)
    return model.to("cuda" if has_gpu else "cpu")


def _base_path(path: str | Path, adapter: dict[str, Any] | None) -> str:
    """The folder or name of the whole weights: the path itself, or for an adapter its base model."""
    return str(path if adapter is None else adapter.get("base_model_name_or_path"))
